//! CPU profiles and heap summaries of plugins, by commands.

use serde_json::{Value, json};

use crate::support::{Folder, ended};

/// A plugin that never pauses once it has started.
const HOT: &str = "\
export const name = 'hot';

interface Counted {
  sum: number;
}

function spin(rounds: number): Counted {
  let sum: number = 0;
  for (let at = 0; at < rounds; at += 1) sum += at % 7;
  return { sum };
}

export function apply(host: { on(event: 'listening', call: () => void): void }): void {
  host.on('listening', () => setTimeout(() => { for (;;) spin(1000); }, 1));
}
";

/// A plugin that holds what its option says, with a test that takes a while.
const FULL: &str = "\
export function apply(_: unknown, { most }: { most: number }): void {
  (globalThis as any).all = Array.from({ length: most }, (_, at) => ({ at }));
}
export function sum(most: number): number {
  let sum: number = 0;
  for (let at = 0; at < most; at += 1) sum += at % 7;
  return sum;
}
";

/// The function that most samples of a profile were in, and the line of its definition.
fn hottest(folder: &Folder, file: &str) -> (String, i64, String) {
    let profile: Value = serde_json::from_str(&folder.read(file)).unwrap();
    let nodes = profile["nodes"].as_array().unwrap();
    let is_running = |node: &&Value| node["callFrame"]["functionName"] != "(idle)";
    let hottest = nodes.iter().filter(is_running).max_by_key(|node| node["hitCount"].as_u64()).unwrap();
    let samples = (profile["samples"].as_array().unwrap(), profile["timeDeltas"].as_array().unwrap());
    assert_eq!(samples.0.len(), samples.1.len());
    let recorded: u64 = samples.1.iter().map(|delta| delta.as_u64().unwrap()).sum();
    assert_eq!(profile["endTime"].as_u64().unwrap() - profile["startTime"].as_u64().unwrap(), recorded);
    let frame = &hottest["callFrame"];
    let text = |key: &str| frame[key].as_str().unwrap().to_owned();
    (text("functionName"), frame["lineNumber"].as_i64().unwrap() + 1, text("url"))
}

#[test]
fn a_plugin_of_the_running_daemon_is_measured_while_it_never_pauses() {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./hot.ts" }] }));
    folder.write("hot.ts", HOT);
    let none = folder.run(&["plugin", "profile", "hot"]);
    assert_eq!((none.code, none.out.as_str()), (Some(1), "None running.\n"));
    let _daemon = folder.start();

    // Two commands at the same time: one of them records, and the other one is refused.
    let recording = [(); 2].map(|()| {
        let mut command = folder.command(&["plugin", "profile", "hot", "--seconds", "3"]);
        std::thread::spawn(move || ended(&mut command))
    });
    let mut recorded = recording.map(|command| command.join().unwrap());
    recorded.sort_by_key(|ended| ended.code);
    let [first, second] = recorded;
    assert_eq!(first.code, Some(0), "{first:?}");
    let why = "a profile of plugin hot is being recorded; try again when it has ended";
    assert!(second.code == Some(1) && second.err.contains(why), "{second:?}");
    let out = first.out;
    assert!(out.starts_with("Wrote hot.cpuprofile.\n3."), "{out}");
    assert!(out.contains(" %  spin (") && out.contains("hot.ts:7)"), "{out}");
    let url = url::Url::from_file_path(folder.path().join("hot.ts").canonicalize().unwrap()).unwrap();
    assert_eq!(hottest(&folder, "hot.cpuprofile"), ("spin".to_owned(), 7, url.to_string()));

    let memory = folder.run(&["plugin", "memory", "hot", "--json"]);
    assert_eq!(memory.code, Some(0), "{memory:?}");
    let memory: Value = serde_json::from_str(&memory.out).unwrap();
    assert_eq!((&memory["plugin"], &memory["limit"]), (&json!("hot"), &json!(512 << 20)));
    assert!(
        memory["used"].as_u64() >= memory["heap"].as_u64() && memory["heap"].as_u64() > Some(0),
        "{memory}"
    );
    let table = folder.run(&["plugin", "memory", "./hot.ts"]);
    for row in ["plugin hot: ", "  heap ", "    objects ", "    strings ", "  timers "] {
        assert!(table.out.lines().any(|line| line.starts_with(row)), "{row}: {table:?}");
    }

    for (arguments, code, why) in [
        (&["plugin", "profile", "nope"][..], 2, "unknown plugin nope; plugins: echo, hot"),
        (&["plugin", "memory", "echo"][..], 2, "plugin echo is part of the host; only plugins in JavaScript"),
        (&["plugin", "profile", "hot", "--seconds", "61"][..], 2, "61 is not in 1..=60"),
        (
            &["plugin", "profile", "hot", "--seconds", "1", "--out", "no/such/x"][..],
            1,
            "cannot write the profile to ",
        ),
    ] {
        let refused = folder.run(arguments);
        assert!(refused.code == Some(code) && refused.err.contains(why), "{arguments:?}: {refused:?}");
    }
}

#[test]
fn a_check_measures_the_plugin_and_its_tests() {
    let folder = Folder::new(json!({}));
    folder.write("full.ts", FULL);
    folder.write(
        "full.test.ts",
        "import { test } from 'node:test';\nimport { sum } from './full.ts';\n\
         test('sums', () => { const end = performance.now() + 200; while (performance.now() < end) sum(1000); });\n",
    );
    let heap = |most: u64| {
        let option = format!("most={most}");
        let checked = folder.run(&[
            "plugin",
            "check",
            "./full.ts",
            "--option",
            &option,
            "--heap",
            "--cpu-profile",
            "full.cpuprofile",
            "--json",
        ]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let answer: Value = serde_json::from_str(&checked.out).unwrap();
        assert_eq!(answer["profile"]["file"], "full.cpuprofile");
        answer["memory"]["heap"].as_u64().unwrap()
    };
    let (little, much) = (heap(10), heap(100_000));
    assert!(much > little + 5_000_000, "{little} {much}");
    let (name, line, _) = hottest(&folder, "full.cpuprofile");
    assert_eq!((name.as_str(), line), ("sum", 4));

    let shown =
        folder.run(&["plugin", "check", "./full.ts", "--option", "most=1", "--heap", "--cpu-profile", "x"]);
    for row in ["plugin full: ", "    objects ", "Wrote x.", "tests: 1 passed"] {
        assert!(shown.out.lines().any(|line| line.starts_with(row)), "{row}: {shown:?}");
    }
    // What hangs in its import is what a profile is for.
    folder.write("config.json", &json!({ "javascript": { "busyLimitMs": 300 } }).to_string());
    folder.write("stuck.ts", "function stick(): never { for (;;); }\nstick();\n");
    let stuck = folder.run(&["plugin", "check", "./stuck.ts", "--cpu-profile", "stuck.cpuprofile"]);
    assert_eq!(stuck.code, Some(1), "{stuck:?}");
    let (name, line, _) = hottest(&folder, "stuck.cpuprofile");
    assert_eq!((name.as_str(), line), ("stick", 1));
    let native = folder.run(&["plugin", "check", "@ostler/echo", "--heap"]);
    assert!(native.code == Some(2) && native.err.contains("echo is part of the host"), "{native:?}");
}
