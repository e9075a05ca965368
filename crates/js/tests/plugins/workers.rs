//! Workers stay within what their plugin may take, and end with it.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use ostler_contract::*;

/// A plugin with a tool `run`, which starts workers from code.
fn plugin(body: &str) -> String {
    format!(
        "import {{ once }} from 'node:events';\n\
         import {{ Worker }} from 'node:worker_threads';\n\
         const start = (code, options) => new Worker(\n\
           `const {{ parentPort, workerData }} = require('node:worker_threads'); ${{code}}`, {{ eval: true, ...options }});\n\
         const next = async (worker) => (await once(worker, 'message'))[0];\n\
         const end = (worker) => new Promise((resolve) => {{\n\
           let failed; worker.on('error', (error) => {{ failed = [error.code ?? null, error.message]; }});\n\
           worker.on('exit', (code) => resolve([code, failed ?? null]));\n\
         }});\n\
         export const apply = (host) => host.registerTool({{ definition: {{ name: 'run' }}, run: async (given) => {{ {body} }} }});"
    )
}

async fn run(loader: &Loader, body: &str) -> Value {
    let applied = loader.text(&plugin(body)).await.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    let answer = applied.run("run", Value::Null).await;
    answer.unwrap_or_else(|thrown| panic!("{}\n{:#?}", thrown.for_log(), loader.lines.texts()))
}

fn limited(megabytes: usize) -> Loader {
    let mut loader = Loader::default();
    loader.options.memory_limit = Some(megabytes << 20);
    loader
}

const FILL: &str = "const kept = []; for (;;) kept.push(new Uint8Array(1 << 20).fill(1));";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_outgrows_the_memory_of_its_plugin_ends_and_the_plugin_goes_on() {
    let answer = run(
        &limited(48),
        &format!("const ended = await end(start(`{FILL}`)); return [ended, await next(start('parentPort.postMessage(1)'))];"),
    )
    .await;
    assert_eq!(answer[0][0], 1, "{answer}");
    assert_eq!(answer[0][1][0], "ERR_WORKER_OUT_OF_MEMORY", "{answer}");
    assert_eq!(answer[1], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_and_its_workers_have_one_limit_together() {
    // Each alone is well within the limit; together they are not.
    let body = "const fill = 'globalThis.kept = new Uint8Array(24 << 20).fill(1); parentPort.postMessage(1); parentPort.on(\"message\", () => {});';\n\
         const workers = [start(fill), start(fill)];\n\
         await Promise.all(workers.map(next));\n\
         const third = await end(start(fill));\n\
         const own = (() => { try { return new Uint8Array(40 << 20).length; } catch (error) { return error.message; } })();\n\
         await Promise.all(workers.map((worker) => worker.terminate()));\n\
         return [third[0], own, new Uint8Array(30 << 20).length, (await next(start(fill)))];";
    let answer = run(&limited(64), body).await;
    assert_eq!(answer[0], 1, "{answer}");
    assert!(answer[1].is_string(), "{answer}");
    // What the workers took is free again.
    assert_eq!((&answer[2], &answer[3]), (&json!(30 << 20), &json!(1)), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_limits_are_what_they_say() {
    let body = format!(
        "const worker = start(`{FILL}`, {{ resourceLimits: {{ maxOldGenerationSizeMb: 12, stackSizeMb: 1000 }} }});\n\
         const limits = worker.resourceLimits;\n\
         return [limits, await end(worker), worker.resourceLimits];"
    );
    let answer = run(&limited(256), &body).await;
    let limits = json!({ "maxYoungGenerationSizeMb": 0, "maxOldGenerationSizeMb": 12, "codeRangeSizeMb": 0, "stackSizeMb": 2 });
    assert_eq!(answer[0], limits);
    assert_eq!(answer[1][1][0], "ERR_WORKER_OUT_OF_MEMORY", "{answer}");
    assert_eq!(answer[2], json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_counts_against_the_memory() {
    let body = "const worker = start('parentPort.on(\"message\", () => { for (;;); });');\n\
         let sent = 0; let failed;\n\
         try { for (; sent < 100; sent += 1) worker.postMessage(new Uint8Array(4 << 20)); } catch (error) { failed = error.message; }\n\
         await worker.terminate();\n\
         return [sent, failed];";
    let answer = run(&limited(64), body).await;
    assert!(answer[0].as_u64().unwrap() < 16, "{answer}");
    assert!(answer[1].as_str().unwrap().contains("memory"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_runs_without_a_pause_is_interrupted() {
    let mut loader = Loader::default();
    loader.options.busy_limit = Duration::from_millis(300);
    let answer = run(&loader, "return end(start('for (;;);'));").await;
    assert_eq!(answer[0], 1, "{answer}");
    assert!(answer[1][1].as_str().unwrap().contains("ran for more than 0.3 seconds"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_has_a_limited_number_of_workers() {
    let body = "const workers = []; let failed;\n\
         try { for (;;) workers.push(start('parentPort.on(\"message\", () => {});')); } catch (error) { failed = [error.code, error.message]; }\n\
         await Promise.all(workers.map((worker) => worker.terminate()));\n\
         return [workers.length, failed, await next(start('parentPort.postMessage(1)'))];";
    let answer = run(&Loader::default(), body).await;
    assert_eq!(
        (&answer[0], &answer[1][0], &answer[2]),
        (&json!(32), &json!("ERR_WORKER_INIT_FAILED"), &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_end_with_their_plugin() {
    let loader = Loader::default();
    let body = "start('for (;;);'); start('setInterval(() => {}, 10)'); return next(start('parentPort.on(\"message\", () => {}); parentPort.postMessage(1)'));";
    let applied = loader.text(&plugin(body)).await.unwrap();
    assert_eq!(applied.run("run", Value::Null).await.unwrap(), 1);
    drop(applied);
    until("the engines end", || Arc::strong_count(&loader.options.log) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_may_open_no_listener_that_its_plugin_may_not() {
    let code = "require('node:http').createServer().on('error', (error) => parentPort.postMessage(error.code ?? error.message)).listen(0, '127.0.0.1', () => parentPort.postMessage('listens'));";
    let mut loader = Loader::default();
    loader.options.listen = Arc::new(|_, _| false);
    assert_ne!(run(&loader, &format!("return next(start(`{code}`));")).await, "listens");
    loader.options.listen = Arc::new(|_, _| true);
    assert_eq!(run(&loader, &format!("return next(start(`{code}`));")).await, "listens");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_workers_use_is_the_plugins() {
    let loader = Loader::default();
    let body = "const worker = start('globalThis.kept = new Uint8Array(16 << 20).fill(1); let n = 0; for (let at = 0; at < 3e5; at += 1) n += at % 7; parentPort.postMessage(n); parentPort.on(\"message\", () => {});'); return next(worker);";
    let applied = loader.text(&plugin(body)).await.unwrap();
    applied.run("run", Value::Null).await.unwrap();
    assert!(applied.engine().used().1 > 16 << 20, "{:?}", applied.engine().used());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_lacks_says_so() {
    let body = "const tell = (run) => { try { run(); return 'nothing'; } catch (error) { return error.name === 'Error' ? error.code : error.name; } };\n\
         const worker = start('parentPort.on(\"message\", () => {});');\n\
         const said = [tell(() => start('', { stdout: true })), tell(() => worker.stdout.on('data', () => {})), tell(() => worker.postMessage(new SharedArrayBuffer(8))), tell(() => worker.getHeapSnapshot())];\n\
         await worker.terminate();\n\
         return said;";
    let lacks = "ERR_METHOD_NOT_IMPLEMENTED";
    assert_eq!(run(&Loader::default(), body).await, json!([lacks, lacks, "DataCloneError", lacks]));
}
