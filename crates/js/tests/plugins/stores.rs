//! What `AsyncLocalStorage` sees where Node has no say: between calls of the host, in the daemon's own promises.

use crate::support::*;
use ostler_contract::*;

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_host_do_not_see_one_anothers_stores() {
    let plugin = Loader::default()
        .text(
            "import { AsyncLocalStorage } from 'node:async_hooks';\n\
             const store = new AsyncLocalStorage();\n\
             const pause = () => new Promise((resolve) => setTimeout(resolve, 1));\n\
             const tool = (name, run) => host.registerTool({ definition: { name }, run });\n\
             let host;\n\
             export function apply(given) {\n\
               host = given;\n\
               tool('ask', async ({ id, enter }) => {\n\
                 const seen = [store.getStore() ?? null];\n\
                 if (enter) store.enterWith(id);\n\
                 await (enter ? pause() : store.run(id, async () => { await pause(); seen.push(store.getStore()); }));\n\
                 await null;\n\
                 seen.push(store.getStore() ?? null);\n\
                 return seen;\n\
               });\n\
             }",
        )
        .await
        .unwrap();
    let asked = (0..40).map(|id| {
        let plugin = &plugin;
        async move { plugin.run("ask", json!({ "id": id, "enter": id % 2 == 0 })).await.unwrap() }
    });
    for (id, seen) in futures::future::join_all(asked).await.into_iter().enumerate() {
        let expected = if id % 2 == 0 { json!([null, id]) } else { json!([null, id, null]) };
        assert_eq!(seen, expected, "call {id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_children_are_awaited_in_the_same_store() {
    let said = run(
        "import { AsyncLocalStorage } from 'node:async_hooks';\nimport { readFile } from 'node:fs/promises';\n\
         import { readFile as late } from 'node:fs';\nimport { execFile } from 'node:child_process';",
        "const store = new AsyncLocalStorage();\n\
         return store.run('kept', async () => {\n\
           const seen = {};\n\
           await readFile('/dev/null');\n\
           seen.file = store.getStore();\n\
           try { await readFile('/nowhere'); } catch { seen.missing = store.getStore(); }\n\
           seen.callback = await new Promise((resolve) => late('/dev/null', () => resolve(store.getStore() ?? null)));\n\
           seen.child = await new Promise((resolve) => execFile('true', () => resolve(store.getStore() ?? null)));\n\
           seen.subtle = await crypto.subtle.digest('SHA-256', new Uint8Array(1)).then(() => store.getStore());\n\
           seen.end = store.getStore();\n\
           return seen;\n\
         });",
    )
    .await;
    assert_eq!(
        said,
        json!({
            "file": "kept", "missing": "kept", "callback": "kept", "child": "kept", "subtle": "kept",
            "end": "kept",
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_nobody_hears_are_still_reported() {
    let loader = Loader::default();
    let plugin = loader
        .text(
            "import { AsyncLocalStorage } from 'node:async_hooks';\n\
             const store = new AsyncLocalStorage();\n\
             export const apply = (host) => host.registerTool({ definition: { name: 'run' }, run: () => store.run(1, async () => {\n\
               const refused = Promise.reject(new Error('unheard of'));\n\
               [refused.constructor, Promise.resolve(refused)];\n\
               await null;\n\
               try { await Promise.reject(new Error('heard of')); } catch { return 'caught'; }\n\
             }) });",
        )
        .await
        .unwrap();
    assert_eq!(plugin.run("run", Value::Null).await.unwrap(), "caught");
    loader.lines.wait_for("unheard of").await;
    assert!(
        !loader.lines.texts().iter().any(|line| line.contains(": heard of")),
        "{:#?}",
        loader.lines.texts()
    );
}

/// A store costs the promises around it something; what it costs is given back.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_holds_no_memory_for_awaits_that_are_over() {
    let plugin = Loader::default()
        .text(
            "import { AsyncLocalStorage } from 'node:async_hooks';\n\
             const store = new AsyncLocalStorage();\n\
             export const apply = (host) => host.registerTool({ definition: { name: 'run' }, run: () => store.run({}, async () => {\n\
               for (let at = 0; at < 20_000; at += 1) await (at % 2 ? null : Promise.resolve());\n\
             }) });",
        )
        .await
        .unwrap();
    plugin.run("run", Value::Null).await.unwrap();
    let before = plugin.engine().memory_used().await.unwrap();
    for _ in 0..5 {
        plugin.run("run", Value::Null).await.unwrap();
    }
    let after = plugin.engine().memory_used().await.unwrap();
    assert!(after < before + (1 << 20), "{before} bytes before, {after} after");
}
