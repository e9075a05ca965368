//! What goes wrong in a plugin costs that plugin alone, with a line or a sentence that names it.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use ostler_contract::*;
use ostler_js::{JsSource, Level};

fn hurried() -> Loader {
    let mut loader = Loader::default();
    loader.options.busy_limit = Duration::from_millis(200);
    loader
}

/// Tools by name, from functions.
pub(crate) fn tools(functions: &str) -> String {
    format!(
        "const tools = {{ {functions} }};\n\
         let host;\n\
         export function apply(given) {{\n\
           host = given;\n\
           for (const name in tools) host.registerTool({{ definition: {{ name }}, run: tools[name] }});\n\
         }}"
    )
}

const INTERRUPTED: &str = "plugin text ran for more than 0.2 seconds without a pause and was interrupted";

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_throws_while_it_is_imported_ends() {
    let loader = Loader::default();
    let thrown = loader.text("const words = 'no luck';\nthrow new RangeError(words);").await.unwrap_err();
    assert_eq!((thrown.name.as_str(), thrown.message.as_str()), ("RangeError", "no luck"));
    assert!(thrown.stack.unwrap().contains("index.mjs:2:"));
    assert_eq!(loader.text("await null; throw 'text';").await.unwrap_err().message, "text");
    let syntax = loader.text("export const a = ;").await.unwrap_err();
    assert!(syntax.message.contains("index.mjs:1:"), "{}", syntax.message);
    until("the engines end", || Arc::strong_count(&loader.options.log) == 1).await;
    assert!(loader.lines.all().is_empty(), "{:#?}", loader.lines.texts());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_throws_in_apply_says_so() {
    let loader = Loader::default();
    for text in [
        "export function apply() { throw new TypeError('not today'); }",
        "export async function apply() { await null; throw new TypeError('not today'); }",
    ] {
        let thrown = loader.text(text).await.unwrap_err();
        assert_eq!((thrown.name.as_str(), thrown.message.as_str()), ("TypeError", "not today"));
    }
    until("the engines end", || Arc::strong_count(&loader.options.log) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_without_a_pause_is_interrupted_and_the_rest_goes_on() {
    let loader = hurried();
    let plugin = loader
        .text(&tools(
            "sync() { for (;;); },\n\
             async later() { await null; for (;;); },\n\
             caught() { try { for (;;); } catch { return 'caught'; } },\n\
             regex() { return /^(a+)+$/.test('a'.repeat(60) + 'b'); },\n\
             sort() { return [3, 2, 1].sort(() => { for (;;); }); },\n\
             jobs() { const spin = () => Promise.resolve().then(spin); return spin(); },\n\
             timer() { return new Promise((go) => setTimeout(() => { for (let at = 0; ; at += 1) if (at < 0) go(); }, 1)); },\n\
             immediate() { const spin = () => setImmediate(spin); spin(); return 'spins'; },\n\
             fine() { return 'fine'; },",
        ))
        .await
        .unwrap();
    let other = Loader::default().text(&tools("fine() { return 'fine'; }")).await.unwrap();
    for name in ["sync", "later", "caught", "regex", "sort", "timer"] {
        let (stuck, fine) = (plugin.run(name, Value::Null), other.run("fine", Value::Null));
        let (stuck, fine) = tokio::join!(stuck, fine);
        assert_eq!(stuck.unwrap_err().message, INTERRUPTED, "{name}");
        assert_eq!(fine.unwrap(), "fine");
        assert_eq!(plugin.run("fine", Value::Null).await.unwrap(), "fine", "after {name}");
    }
    let calls: Vec<_> = ["sync", "fine", "sync", "fine"].map(|name| plugin.run(name, Value::Null)).into();
    let answers = futures::future::join_all(calls).await;
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, false, true]);
    plugin.run("jobs", Value::Null).await.unwrap_err();
    plugin.run("immediate", Value::Null).await.unwrap();
    assert_eq!(plugin.run("fine", Value::Null).await.unwrap(), "fine");
    let line = loader.lines.wait_for("ran for more").await;
    assert!(line.to_string().starts_with(&INTERRUPTED.replace("text ran", "text: ran")), "{line}");
    assert!(line.text.contains("index.mjs"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_child_does_not_work_meanwhile() {
    let plugin = hurried()
        .text(&tools(
            "async waits() {\n\
               const { spawnSync } = await import('node:child_process');\n\
               const { status } = spawnSync('sleep', ['0.5']);\n\
               for (let at = 0; at < 30000; at += 1);\n\
               return status;\n\
             },",
        ))
        .await
        .unwrap();
    assert_eq!(plugin.run("waits", Value::Null).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_never_pauses_or_never_settles_is_given_up() {
    let loader = hurried();
    let thrown = loader.text("for (;;);").await.unwrap_err();
    assert_eq!(
        thrown.message,
        "plugin text ran for more than 0.2 seconds without a pause and was interrupted"
    );
    for text in ["await new Promise(() => {});", "setTimeout(() => {}, 1);\nawait new Promise(() => {});"] {
        let thrown = loader.text(text).await.unwrap_err();
        assert_eq!(thrown.message, "plugin text awaits at its top level a promise that nothing can settle");
    }
    for (text, awaits) in [
        ("export const apply = () => new Promise(() => {});", true),
        (
            "export const apply = async () => { await new Promise((go) => setTimeout(go, 1)); await new Promise(() => {}); };",
            true,
        ),
        ("export const apply = () => new Promise((go) => setTimeout(go, 10));", false),
        ("export const apply = async () => { await fetch('http://127.0.0.1:1/').catch(() => {}); };", false),
    ] {
        let applied = loader.text(text).await;
        let never = "awaits in its apply a promise that nothing can settle";
        assert_eq!(applied.err().is_some_and(|thrown| thrown.message.ends_with(never)), awaits, "{text}");
    }
    let awaits = "import { readFile } from 'node:fs/promises';\n\
         await new Promise((go) => setTimeout(go, 10));\n\
         await readFile('/dev/null');\n\
         await new Promise((go) => setImmediate(go));\n\
         export function apply() {}";
    loader.text(awaits).await.unwrap();
    let folder = Folder::new();
    let path = folder
        .write("index.mjs", "setInterval(() => {}, 1);\nawait new Promise((go) => { globalThis.go = go; });");
    let import = JsSource::new(loader.options.clone()).import(&path, "text");
    // The import is dropped while the module waits; nothing is settled that could mark it.
    tokio::time::timeout(Duration::from_millis(20), import).await.unwrap_err();
    until("the engines end", || Arc::strong_count(&loader.options.log) == 1).await;
}

/// A function that waits is held by what will wake it, and that may be a variable of its own that a closure shares.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_kept_where_only_a_closure_leads_to_it() {
    let plugin = Loader::default()
        .text(&format!("const FILE = {:?};\n{}", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), tools(
            "async closure() {\n\
               return await rounds(async (wait) => {\n\
                 let wake;\n\
                 wait(() => wake());\n\
                 await new Promise((go) => { wake = go; });\n\
               });\n\
             },\n\
             async generator() {\n\
               return await rounds(async (wait) => {\n\
                 async function* parts() {\n\
                   let wake;\n\
                   wait(() => wake());\n\
                   await new Promise((go) => { wake = go; });\n\
                   yield 'part';\n\
                 }\n\
                 for await (const part of parts()) part.length;\n\
               });\n\
             },\n\
             async stream() {\n\
               const { createReadStream } = await import('node:fs');\n\
               return await rounds(async () => { for await (const part of createReadStream(FILE)) part.length; });\n\
             },\n\
             async lines() {\n\
               const { createReadStream } = await import('node:fs');\n\
               const { createInterface } = await import('node:readline');\n\
               return await rounds(async () => {\n\
                 let lines = 0;\n\
                 for await (const line of createInterface({ input: createReadStream(FILE) })) lines += 1;\n\
                 if (lines < 10) throw new Error(`${lines} lines`);\n\
               });\n\
             },\n\
             };\n\
             const litter = () => { for (let n = 0; n < 2000; n++) { const one = { n }; one.one = one; } };\n\
             const soon = (then) => setTimeout(() => { litter(); then(); }, 0);\n\
             const rounds = (run) => new Promise((done, failed) => setTimeout(async () => {\n\
               try {\n\
                 for (let at = 0; at < 100; at++) { await run(soon); litter(); }\n\
                 done('done');\n\
               } catch (error) { failed(error); }\n\
             }, 0));\n\
             const none = {",
        )))
        .await
        .unwrap();
    for name in ["closure", "generator", "stream", "lines"] {
        assert_eq!(plugin.run(name, Value::Null).await.unwrap(), "done", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_has_a_limit_of_its_own() {
    let mut loader = Loader::default();
    loader.options.memory_limit = Some(24 << 20);
    let plugin = loader
        .text(&tools(
            "list() { const all = []; for (;;) all.push(new Array(1000).fill({})); },\n\
             async later() { await null; const all = []; for (;;) all.push(new Array(1000).fill({})); },\n\
             text() { let text = 'x'; for (;;) { text += text; text.at(0); } },\n\
             objects() { const all = []; for (let n = 0; ; n++) all.push({ n }); },\n\
             chain() { let last = null; for (;;) last = { last }; },\n\
             nested() { return JSON.parse('[' + '[],'.repeat(1 << 20) + '[]]'); },\n\
             caught() { const all = []; for (;;) try { all.push(new Uint8Array(1 << 20)); } catch { all.push(1); } },\n\
             circles() {\n\
                 for (let n = 0; n < 400_000; n++) { const one = { two: {} }; one.two.one = one; }\n\
                 return 'collected';\n\
             },\n\
             bytes() { const all = []; for (;;) all.push(new Uint8Array(1 << 20)); },\n\
             fine() { return 'fine'; },",
        ))
        .await
        .unwrap();
    let other = Loader::default().text(&tools("much() { const all = []; while (all.length < 64) all.push(new Uint8Array(1 << 20)); return all.length; }")).await.unwrap();
    for name in ["list", "later", "bytes", "text", "objects", "chain", "nested", "caught"] {
        let thrown = plugin.run(name, Value::Null).await.unwrap_err();
        assert_eq!(thrown.message, "plugin text needs more memory than its limit of 24 MB", "{name}");
        assert_eq!(plugin.run("fine", Value::Null).await.unwrap(), "fine", "after {name}");
    }
    assert_eq!(plugin.run("circles", Value::Null).await.unwrap(), "collected");
    assert_eq!(other.run("much", Value::Null).await.unwrap(), 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_nest_too_deep_throw() {
    let loader = Loader::default();
    let plugin = loader
        .text(&tools(
            "calls() { const down = () => down() + 1; return down(); },\n\
             data() { let deep = []; for (let at = 0; at < 200000; at += 1) deep = [deep]; return deep; },\n\
             parse() { return JSON.parse('['.repeat(200000) + ']'.repeat(200000)); },\n\
             regex() { return new RegExp('('.repeat(100000) + ')'.repeat(100000)); },\n\
             code() { return new Function('return ' + '('.repeat(200000) + ')'.repeat(200000)); },\n\
             getter() { return { get a() { return this.a; } }; },\n\
             json() { return { toJSON() { return JSON.stringify(this); } }; },\n\
             fine() { return 'fine'; },",
        ))
        .await
        .unwrap();
    for name in ["calls", "data", "parse", "regex", "code", "getter", "json"] {
        let thrown = plugin.run(name, Value::Null).await.unwrap_err();
        assert!(!thrown.message.is_empty(), "{name}");
        assert_eq!(plugin.run("fine", Value::Null).await.unwrap(), "fine", "after {name}: {thrown}");
    }
    assert_eq!(plugin.run("calls", Value::Null).await.unwrap_err().name, "RangeError");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_catches_is_a_line_with_the_plugins_name() {
    let loader = Loader::default();
    let plugin = loader
        .text(&tools(
            "reject() { void Promise.reject(new TypeError('nobody listens')); },\n\
             text() { void Promise.reject('only words'); },\n\
             own_class() { class Refused extends Error {} void Promise.reject(new Refused('not allowed')); },\n\
             late() { const late = Promise.reject(new Error('heard')); queueMicrotask(() => late.catch(() => {})); },\n\
             timer() { setTimeout(() => { throw new RangeError('in a timer'); }, 1); },\n\
             tick() { process.nextTick(() => { throw new Error('in a tick'); }); },\n\
             micro() { queueMicrotask(() => { throw new Error('in a microtask'); }); },\n\
             event() { setTimeout(() => new (process.constructor)().emit('error', new Error('an event')), 1); },\n\
             target() { const target = new EventTarget(); target.addEventListener('a', () => { throw new Error('a listener'); }); target.dispatchEvent(new Event('a')); },\n\
             own() { process.on('unhandledRejection', (reason) => console.log('own:', reason.message)); void Promise.reject(new Error('mine')); },",
        ))
        .await
        .unwrap();
    for (name, words) in [
        ("reject", "unhandled rejection: TypeError: nobody listens\n    at reject ("),
        ("text", "unhandled rejection: only words"),
        ("own_class", "unhandled rejection: Refused: not allowed\n"),
        ("timer", "uncaught error: RangeError: in a timer\n"),
        ("tick", "uncaught error: Error: in a tick\n"),
        ("micro", "uncaught error: Error: in a microtask\n"),
        ("event", "uncaught error: Error: an event\n"),
        ("target", "uncaught error: Error: a listener\n"),
    ] {
        plugin.run(name, Value::Null).await.unwrap();
        let line = loader.lines.wait_for(words).await;
        assert!(line.to_string().starts_with(&format!("plugin text: {words}")), "{line}");
        assert_eq!(line.level, Level::Uncaught);
    }
    let before = loader.lines.all().len();
    plugin.run("late", Value::Null).await.unwrap();
    plugin.run("own", Value::Null).await.unwrap();
    let line = loader.lines.wait_for("own: mine").await;
    assert_eq!((line.level, loader.lines.all().len()), (Level::Info, before + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_function_that_panics_fails_its_call_alone() {
    let loader = Loader::default();
    let plugin = loader
        .text(&tools(
            "now() { return host.stringifyYaml('panic'); },\n\
             caught() { try { host.stringifyYaml('panic'); } catch (error) { return error.message; } },\n\
             fine() { return host.stringifyYaml('fine'); },",
        ))
        .await
        .unwrap();
    let thrown = plugin.run("now", Value::Null).await.unwrap_err();
    assert!(thrown.message.starts_with("it panicked: "), "{}", thrown.message);
    assert_eq!(plugin.run("caught", Value::Null).await.unwrap(), thrown.message.as_str());
    assert_eq!(plugin.run("fine", Value::Null).await.unwrap(), "\"fine\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_a_plugin_ends_the_daemon() {
    let said = run(
        "import process from 'node:process';",
        "const tries = [() => process.exit(1), () => process.abort(), () => process.kill(process.pid, 'SIGKILL'), () => process.chdir('/'), () => process.reallyExit(0)];\n\
         return tries.map((attempt) => { try { attempt(); return 'went on'; } catch (error) { return error.message; } });",
    )
    .await;
    for told in said.as_array().unwrap() {
        assert!(told.as_str().unwrap().contains("daemon"), "{told}");
    }
    let loader = Loader::default();
    let thrown = loader.text("process.exit(3);").await.unwrap_err();
    assert_eq!(
        thrown.message,
        "process.exit(3) does not end the daemon: a plugin is stopped by its configuration"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_prints_goes_to_the_log_under_its_name() {
    let loader = Loader::default();
    let folder = Folder::new();
    let path = folder.write(
        "index.mjs",
        "console.log('imported');\n\
         export function apply() {\n\
           console.log('a', 1, { b: [2] }, '%s', 'c');\n\
           console.warn('care'); console.error(new RangeError('bad')); console.debug('detail');\n\
           process.stdout.write('half '); process.stdout.write('line\\nand more'); process.stdout.write('\\n'); process.stderr.write('err\\n');\n\
           console.group('G'); console.info('in'); console.groupEnd(); console.table([{ a: 1 }]); console.assert(false, 'not so'); console.count(); console.trace('here');\n\
         }",
    );
    let module = loader.import(&path, "./index.mjs").await.unwrap();
    loader.apply(module, "talker", Value::Null).await.unwrap();
    let lines = loader.lines.all();
    let shown: Vec<String> = lines.iter().map(|line| format!("{:?} {line}", line.level)).collect();
    let shown = shown.join("\n").replace(folder.path().to_str().unwrap(), "");
    insta::assert_snapshot!(shown, @r"
    Info plugin ./index.mjs: imported
    Info plugin talker: a 1 { b: [ 2 ] } %s c
    Warn plugin talker: care
    Error plugin talker: RangeError: bad
        at apply (/index.mjs:4:41)
    Debug plugin talker: detail
    Info plugin talker: half line
    Info plugin talker: and more
    Error plugin talker: err
    Info plugin talker: G
    Info plugin talker:   in
    Info plugin talker: ┌─────────┬───┐
      │ (index) │ a │
      ├─────────┼───┤
      │ 0       │ 1 │
      └─────────┴───┘
    Error plugin talker: Assertion failed: not so
    Info plugin talker: default: 1
    Debug plugin talker: Trace: here
        at apply (/index.mjs:6:146)
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn children_end_with_their_plugin() {
    let loader = Loader::default();
    let plugin = loader
        .text(&format!(
            "import {{ spawn }} from 'node:child_process';\n{}",
            tools(
                "async start() {\n\
                   const child = spawn('sh', ['-c', 'sleep 1000 & echo $!; wait'], { stdio: ['ignore', 'pipe', 'ignore'] });\n\
                   const grandchild = await new Promise((go) => child.stdout.once('data', (text) => go(Number(text))));\n\
                   return [child.pid, grandchild];\n\
                 }"
            )
        ))
        .await
        .unwrap();
    let started: Vec<u32> = serde_json::from_value(plugin.run("start", Value::Null).await.unwrap()).unwrap();
    let runs = |pid: &u32| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    };
    assert!(started.iter().all(runs));
    drop(plugin);
    until("the children end", || !started.iter().any(runs)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_ends_with_its_last_handle_whatever_it_waits_for() {
    let loader = Loader::default();
    let plugin = loader
        .text(&tools(
            "async wait() { setInterval(() => {}, 1); await new Promise((go) => setTimeout(go, 100000)); },\n\
             listen() { return new Promise(async (go) => { const { createServer } = await import('node:net'); createServer().listen(0, '127.0.0.1', () => go('listens')); }); },",
        ))
        .await
        .unwrap();
    plugin.run("listen", Value::Null).await.unwrap();
    let tool = plugin.tool("wait");
    let waiting = tokio::spawn(tool.run.unbounded((Value::Null, place())));
    drop((plugin, tool));
    // The call in flight keeps its engine; without it there is nothing left.
    waiting.abort();
    until("the engine ends", || Arc::strong_count(&loader.options.log) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_holds_what_its_plugin_uses() {
    let used = "used() { return process.memoryUsage().heapUsed; }";
    let small = Loader::default().text(&tools(used)).await.unwrap();
    let small = small.run("used", Value::Null).await.unwrap().as_u64().unwrap();
    let with_sdk = format!("import {{ RpcError }} from '@ostler/sdk';\n{}", tools(used));
    let with_sdk = Loader::default().text(&with_sdk).await.unwrap();
    let with_sdk = with_sdk.run("used", Value::Null).await.unwrap().as_u64().unwrap();
    // The modules of files, streams and cryptography take twice as much.
    assert!(small < 430 << 10, "{small}");
    assert!(with_sdk < 520 << 10, "{with_sdk}");
}

/// What a pipe made for a chunk is freed before the next ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_holds_no_memory_for_chunks_that_passed() {
    let said = run(
        "",
        "let sent = 0; let seen = 0; const used = [];\n\
         const source = new ReadableStream({ pull(to) { sent += 1; if (sent > 30000) to.close(); else to.enqueue(sent); } });\n\
         const double = new TransformStream({ transform(chunk, to) { to.enqueue(chunk * 2); } });\n\
         await source.pipeThrough(double).pipeTo(new WritableStream({ write() {\n\
           seen += 1; if (seen === 5000 || seen === 30000) used.push(process.memoryUsage().heapUsed);\n\
         } }));\n\
         return [seen, used[1] - used[0] < 64 << 10];",
    )
    .await;
    assert_eq!(said, json!([30000, true]));
}

/// A few bytes can be blown up to any size: what comes out counts while it is made.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_unpacked_counts_against_the_memory_of_the_plugin() {
    let mut loader = Loader::default();
    loader.options.memory_limit = Some(32 << 20);
    let said = run_with(
        &loader,
        "import { createGunzip, createGzip, gunzipSync, inflateSync, gzipSync, deflateSync } from 'node:zlib';",
        "const piece = Buffer.alloc(1 << 20);\n\
         const parts = [];\n\
         await new Promise((resolve) => {\n\
           const stream = createGzip(); stream.on('data', (part) => parts.push(part)).on('end', resolve);\n\
           let left = 60; const more = () => { left -= 1; if (left === 0) stream.end(); else stream.write(piece, more); }; more();\n\
         });\n\
         const bomb = Buffer.concat(parts);\n\
         let said; try { gunzipSync(bomb); } catch (error) { said = error.code; }\n\
         let through = 0;\n\
         await new Promise((resolve) => { createGunzip().on('data', (part) => { through += part.length; }).on('end', resolve).end(bomb); });\n\
         return [bomb.length < (1 << 20), said, through, gunzipSync(gzipSync('still here')).toString()];",
    )
    .await;
    let said = said.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    assert_eq!(said, json!([true, "ERR_BUFFER_TOO_LARGE", 59 << 20, "still here"]));
}

/// A module that loops in `spin` and grows its memory in `grow`.
const WASM: &str =
    "AGFzbQEAAAABCQJgAABgAX8BfwMDAgABBQMBAAEHGAMGbWVtb3J5AgAEc3BpbgAABGdyb3cAAQoQAgcAA0AMAAsLBgAgAEAACw==";

#[tokio::test(flavor = "multi_thread")]
async fn web_assembly_is_interrupted_and_its_memory_counts() {
    let mut loader = hurried();
    loader.options.memory_limit = Some(32 << 20);
    let text = tools(&format!(
        "spin() {{ instance().spin(); }},\n\
             caught() {{ try {{ instance().spin(); }} catch {{ return 'caught'; }} }},\n\
             fine() {{ return 'fine'; }},\n\
             grow() {{\n\
               const {{ grow }} = instance();\n\
               const before = process.memoryUsage().heapUsed;\n\
               const grown = [grow(64), grow(64), grow(4096), grow(1)];\n\
               return [grown, Math.round((process.memoryUsage().heapUsed - before) / 2 ** 20)];\n\
             }},\n\
             many() {{ for (let at = 0; at < 40; at += 1) instance().grow(32); return 'many'; }} }};\n\
             const instance = () => new WebAssembly.Instance(new WebAssembly.Module(Buffer.from('{WASM}', 'base64'))).exports;\n\
             const more = {{"
    ));
    let plugin = loader.text(&text).await.unwrap();
    for name in ["spin", "caught"] {
        assert_eq!(plugin.run(name, Value::Null).await.unwrap_err().message, INTERRUPTED, "{name}");
        assert_eq!(plugin.run("fine", Value::Null).await.unwrap(), "fine");
    }
    assert_eq!(plugin.run("grow", Value::Null).await.unwrap(), json!([[1, 65, -1, 129], 8]));
    loader.options.busy_limit = Duration::from_secs(10);
    let plugin = loader.text(&text).await.unwrap();
    // 80 MB in instances that nobody holds any more.
    assert_eq!(plugin.run("many", Value::Null).await.unwrap(), "many");
}
