//! CPU profiles and heap summaries: what they show, and that the plugin does not notice them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::isolation::tools;
use crate::support::*;
use ostler_contract::Value;
use ostler_js::{CpuProfile, Engine, ProfileNode};
use oxc_sourcemap::SourceMapBuilder;

/// Long enough for many samples.
const WHILE: Duration = Duration::from_millis(200);

/// The time in each node itself, in microseconds: the longest first.
fn own_times(profile: &CpuProfile) -> Vec<(&ProfileNode, u64)> {
    let mut times: BTreeMap<u32, u64> = BTreeMap::new();
    for (sample, time) in profile.samples.iter().zip(&profile.deltas[1..]) {
        *times.entry(*sample).or_default() += time;
    }
    let node = |id: u32| profile.nodes.iter().find(|node| node.id == id).unwrap();
    let mut times: Vec<_> = times.into_iter().map(|(id, time)| (node(id), time)).collect();
    times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    times
}

fn hottest(profile: &CpuProfile) -> &ProfileNode {
    own_times(profile).first().unwrap_or_else(|| panic!("nothing was sampled: {profile:?}")).0
}

/// Runs a tool that never returns during a profile. The plugin is asked for its heap meanwhile, which it answers between two
/// instructions.
async fn of_hung(plugin: &Applied, tool: &str) -> CpuProfile {
    let engine = plugin.engine();
    let profiling = engine.profiler().start().unwrap();
    let run = plugin.run(tool, Value::Null);
    tokio::pin!(run);
    let begun = Instant::now();
    while begun.elapsed() < WHILE {
        tokio::select! {
            ended = &mut run => panic!("{tool} ended: {ended:?}"),
            heap = engine.heap() => assert!(heap.unwrap().heap > 0),
        }
    }
    profiling.end()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_never_pauses_has_a_profile_with_its_typescript() {
    let folder = Folder::new();
    let file = folder.write(
        "index.ts",
        "interface Counted { sum: number }\n\
         \n\
         function cold(counted: Counted): void { counted.sum = 0; }\n\
         \n\
         export const apply = (host: any): void => {\n\
           function hot(rounds: number): number {\n\
             let sum: number = 0;\n\
             for (let at = 0; at < rounds; at += 1) sum += at % 7;\n\
             return sum;\n\
           }\n\
           host.registerTool({ definition: { name: 'hang' }, run: () => { for (;;) { cold({ sum: hot(1000) }); } } });\n\
         };\n",
    );
    let plugin = Loader::default().load(&file, "hot", Value::Null).await.unwrap();
    let profile = of_hung(&plugin, "hang").await;
    let hot = hottest(&profile);
    assert_eq!((hot.function.as_str(), hot.at.map(|(line, _)| line)), ("hot", Some(5)), "{profile:?}");
    assert_eq!(hot.url, url::Url::from_file_path(&file).unwrap().as_str());
    assert!(hot.hits > 20, "{profile:?}");
    let caller = profile.nodes.iter().find(|node| node.children.contains(&hot.id)).unwrap();
    assert_eq!((caller.function.as_str(), caller.at.map(|(line, _)| line)), ("run", Some(10)));
    let recorded: u64 = profile.deltas.iter().sum();
    assert_eq!(profile.end - profile.start, recorded);
    assert!(u128::from(recorded) >= WHILE.as_micros());
    assert_eq!(profile.samples.len(), profile.deltas.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_a_built_plugin_are_those_of_its_source() {
    let code = "export function apply(h){h.registerTool({definition:{name:'hang'},run(){for(;;)f()}})}\
                function f(){let s=0;for(let a=0;a<1e3;a++)s+=a%7;return s}";
    let at = u32::try_from(code.find("function f").unwrap()).unwrap();
    let mut map = SourceMapBuilder::default();
    let source = map.add_source_and_content("src/hot.ts", "");
    map.add_token(0, 0, 0, 0, Some(source), None);
    map.add_token(0, at, 11, 2, Some(source), None);
    let folder = Folder::new();
    folder.write("index.mjs.map", &map.into_sourcemap().to_json_string());
    let file = folder.write("index.mjs", &format!("{code}\n//# sourceMappingURL=index.mjs.map\n"));
    let plugin = Loader::default().load(&file, "built", Value::Null).await.unwrap();
    let profile = of_hung(&plugin, "hang").await;
    let hot = hottest(&profile);
    let source = folder.path().join("src/hot.ts");
    assert_eq!((hot.function.as_str(), hot.at), ("f", Some((11, 2))), "{profile:?}");
    assert_eq!(hot.url, url::Url::from_file_path(source).unwrap().as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_does_nothing_is_idle() {
    let plugin = Loader::default().text(&tools("fine() { return 'fine'; }")).await.unwrap();
    let idle = |profile: &CpuProfile| profile.nodes.iter().find(|node| node.function == "(idle)").unwrap().id;
    // The turn of the last call ends after its answer.
    until("the plugin is idle", || {
        let profile = plugin.engine().profiler().start().unwrap().end();
        profile.samples.last() == Some(&idle(&profile))
    })
    .await;
    let profiling = plugin.engine().profiler().start().unwrap();
    // Time that passes is what is measured.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let profile = profiling.end();
    assert_eq!(hottest(&profile).function, "(idle)", "{profile:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_has_one_profile_at_a_time() {
    let plugin = Loader::default().text(&tools("fine() { return 'fine'; }")).await.unwrap();
    let engine = plugin.engine();
    let first = engine.profiler().start().unwrap();
    assert!(engine.profiler().start().is_none());
    assert!(Loader::default().text(&tools("")).await.unwrap().engine().profiler().start().is_some());
    drop(first);
    assert!(engine.profiler().start().is_some(), "a profile whose caller goes away is discarded");
}

/// What throws, catches, recurses, waits and prepares stacks, and answers what it saw of it.
const OBSERVANT: &str = "
    async observe() {
        const failures = [];
        const check = (name, holds) => { if (!holds && !failures.includes(name)) failures.push(name); };
        let prepared = 0;
        const prepare = (error, sites) => { prepared += 1; return `${error.message} ${sites.length > 0} ${typeof sites[0].getLineNumber()}`; };
        const deep = (left) => (left === 0 ? 0 : 1 + deep(left - 1));
        const endless = () => 1 + endless();
        function* items() { try { for (let at = 0; ; at += 1) yield at; } finally { for (let at = 0; at < 300; at += 1); } }
        const end = performance.now() + 400;
        let rounds = 0;
        while (performance.now() < end) {
            rounds += 1;
            Error.stackTraceLimit = rounds % 5;
            try { for (let at = 0; at < 2000; at += 1) if (at === 1999) throw new RangeError('far'); } catch (error) { check('caught', error instanceof RangeError && error.message === 'far'); }
            try { for (const item of items()) if (item === 20) throw 'thrown'; } catch (error) { check('closed', error === 'thrown'); }
            check('limit', Error.stackTraceLimit === rounds % 5);
            Error.stackTraceLimit = 10;
            Error.prepareStackTrace = prepare;
            const before = prepared;
            const { stack } = new Error('own');
            check('stack', stack === 'own true number');
            check('prepared', prepared === before + 1);
            for (let at = 0; at < 3000; at += 1);
            check('hook', Error.prepareStackTrace === prepare && prepared === before + 1);
            Error.prepareStackTrace = undefined;
            check('deep', deep(500) === 500);
            let overflow;
            try { endless(); } catch (error) { overflow = error; }
            check('overflow', overflow instanceof RangeError);
            check('sorted', [3, 1, 2].sort((a, b) => { for (let at = 0; at < 500; at += 1); return a - b; }).join() === '1,2,3');
            check('matched', /^(a+)+$/.test('a'.repeat(14) + 'b') === false);
            check('replaced', 'aXbX'.replace(/X/g, () => { for (let at = 0; at < 500; at += 1); return 'y'; }) === 'ayby');
            check('rejected', await Promise.reject(new TypeError('later')).catch((error) => error.message) === 'later');
            check('buffer', new Uint8Array(1000).fill(7).map((at) => at + 1).every((at) => at === 8));
        }
        return { failures, rounds };
    },
    tampered() {
        Array.prototype.push = () => { throw new Error('pushed'); };
        Reflect.apply = () => { throw new Error('applied'); };
        Object.defineProperty(Error, 'prepareStackTrace', { get() { throw new Error('read'); }, set() { throw new Error('set'); } });
        globalThis.Error = class { constructor() { throw new globalThis.TypeError('made'); } };
        for (let at = 0, end = performance.now() + 100; performance.now() < end; at += 1);
        return 'fine';
    },
    fine() { return 'fine'; },";

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_does_not_notice_that_it_is_profiled() {
    let loader = Loader::default();
    let plugin = loader.text(&tools(OBSERVANT)).await.unwrap();
    let engine = plugin.engine();
    let profiling = engine.profiler().start().unwrap();
    let observed = plugin.run("observe", Value::Null).await.unwrap();
    let profile = profiling.end();
    assert_eq!(observed["failures"], serde_json::json!([]), "{observed}");
    let names: Vec<&str> = profile.nodes.iter().map(|node| node.function.as_str()).collect();
    for name in ["observe", "endless", "sort", "(idle)"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let is_own = |node: &ProfileNode| node.url == "ostler:internal/profile";
    assert!(!profile.nodes.iter().any(is_own), "{profile:?}");

    let profiling = engine.profiler().start().unwrap();
    assert_eq!(plugin.run("tampered", Value::Null).await.unwrap(), "fine");
    let profile = profiling.end();
    let tampered = profile.nodes.iter().find(|node| node.function == "tampered").unwrap();
    let callees = profile.nodes.iter().filter(|node| tampered.children.contains(&node.id));
    // One in ten milliseconds, and fewer beside others.
    assert!(tampered.hits + callees.map(|node| node.hits).sum::<u32>() > 3, "{profile:?}");
    assert_eq!(plugin.run("fine", Value::Null).await.unwrap(), "fine");
    assert!(loader.lines.all().is_empty(), "{:#?}", loader.lines.texts());
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_during_a_profile() {
    let mut loader = Loader::default();
    loader.options.busy_limit = Duration::from_millis(200);
    loader.options.memory_limit = Some(24 << 20);
    let plugin = loader
        .text(&tools(
            "hang() { for (;;); },\n\
             fill() { const all = []; for (let at = 0; ; at += 1) all.push({ at, text: 'x'.repeat(at % 50) }); },\n\
             fine() { return 'fine'; },",
        ))
        .await
        .unwrap();
    let profiling = plugin.engine().profiler().start().unwrap();
    let busy = plugin.run("hang", Value::Null).await.unwrap_err().message;
    assert!(busy.ends_with("ran for more than 0.2 seconds without a pause and was interrupted"), "{busy}");
    let full = plugin.run("fill", Value::Null).await.unwrap_err().message;
    assert!(full.ends_with("needs more memory than its limit of 24 MB"), "{full}");
    assert_eq!(plugin.run("fine", Value::Null).await.unwrap(), "fine");
    let profile = profiling.end();
    assert!(profile.nodes.iter().any(|node| node.function == "hang" && node.hits > 10), "{profile:?}");
}

async fn bytes_of(engine: &Engine, kind: &str) -> (u64, u64) {
    let heap = engine.heap().await.unwrap();
    let row = heap.kinds.iter().find(|row| row.kind == kind).unwrap_or_else(|| panic!("{kind}: {heap:?}"));
    (heap.heap, row.bytes.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_grows_with_what_the_plugin_holds() {
    let plugin = Loader::default()
        .text(&tools(
            "texts() { globalThis.texts = Array.from({ length: 1000 }, (_, at) => `${at}`.repeat(1000)); },\n\
             objects() { globalThis.objects = Array.from({ length: 50000 }, (_, at) => ({ at })); },\n\
             forget() { globalThis.texts = globalThis.objects = undefined; },\n\
             timer() { setTimeout(() => {}, 1e6); },",
        ))
        .await
        .unwrap();
    let engine = plugin.engine();
    let (before, texts) = bytes_of(&engine, "strings").await;
    plugin.run("texts", Value::Null).await.unwrap();
    let (with_texts, more_texts) = bytes_of(&engine, "strings").await;
    assert!(more_texts > texts + 2_000_000 && with_texts > before + 2_000_000, "{before} {with_texts}");
    let (_, objects) = bytes_of(&engine, "objects").await;
    plugin.run("objects", Value::Null).await.unwrap();
    let (with_objects, more_objects) = bytes_of(&engine, "objects").await;
    assert!(more_objects > objects + 2_000_000 && with_objects > with_texts + 2_000_000);
    plugin.run("forget", Value::Null).await.unwrap();
    assert!(bytes_of(&engine, "strings").await.0 < before + 1_000_000);

    let held = engine.heap().await.unwrap();
    assert_eq!((held.timers, held.workers_running), (0, 0));
    assert!(held.functions_held >= 4, "{held:?}");
    assert_eq!(held.used, held.heap + held.outside + held.workers);
    assert_eq!(
        held.kinds.iter().filter_map(|row| row.bytes).sum::<u64>(),
        held.heap,
        "the kinds are the heap"
    );
    plugin.run("timer", Value::Null).await.unwrap();
    assert_eq!(engine.heap().await.unwrap().timers, 1);
}
