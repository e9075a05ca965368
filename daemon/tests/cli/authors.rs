//! What the command line does for authors: a new plugin works at once, and a check says what is wrong and where.

use std::path::Path;
use std::sync::Arc;

use crate::support::{Folder, program};
use ostler::exit::Exit;
use ostler::plugin_check::{Checked, CheckedEntry, PluginCheck};
use ostler::plugin_new::plugin_new;
use ostler::sources::Sources;
use ostler_contract::{JsonObject, Value, json};

async fn check(dir: &Path, spec: &str, options: Value) -> Checked {
    let options: JsonObject = options.as_object().cloned().unwrap();
    let mut entry = CheckedEntry::of(spec, dir);
    entry.plugin.options = options;
    let check = PluginCheck {
        entry,
        javascript: Default::default(),
        working_dir: dir.to_owned(),
        config_dir: dir.to_owned(),
        measures: Default::default(),
    };
    check.run(&Sources::default(), Arc::new(|_| ())).await.unwrap()
}

/// The lines, without where the folder is and how long anything took.
fn shown(checked: &Checked, dir: &Path) -> String {
    let lines = checked.lines.join("\n").replace(&dir.canonicalize().unwrap().display().to_string(), "<dir>");
    let mut words = Vec::new();
    for word in lines.replace(&dir.display().to_string(), "<dir>").split(' ') {
        let is_time = words.last().is_some_and(|last| last == "in") && word.parse::<u64>().is_ok();
        words.push(if is_time { "<n>".to_owned() } else { word.to_owned() });
    }
    words.join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_plugin_works_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let folder = plugin_new("greeter", dir.path()).unwrap();
    assert_eq!(folder, dir.path().join("greeter"));
    let checked = check(dir.path(), "./greeter", json!({ "greeting": "Welcome" })).await;
    assert!(checked.holds(), "{:#?}", checked);
    insta::assert_snapshot!(shown(&checked, dir.path()), @r#"
    plugin greeter from <dir>/greeter/index.ts
    registered: registerTool greet (index.ts:13)
    registered: on (index.ts:22)
    test passed: index.test.ts: greets by name
    test passed: index.test.ts: uses the configured greeting
    test passed: index.test.ts: logs the end of a turn
    tests: 3 passed, 0 failed, 0 skipped
    "#);
    for (name, why) in [
        ("Greeter", "invalid plugin name Greeter: "),
        ("../out", "invalid plugin name ../out: "),
        ("", "invalid plugin name : "),
        ("greeter", "already exists and is not empty"),
    ] {
        let refused = plugin_new(name, dir.path()).unwrap_err();
        assert!(matches!(&refused, Exit::Usage(said) if said.contains(why)), "{refused}");
    }
    for file in ["package.json", "tsconfig.json", "sdk/package.json"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        assert!(serde_json::from_str::<Value>(&text).is_ok() && !text.contains("PLUGIN_NAME"), "{text}");
    }
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let manifest: Value = serde_json::from_str(&read("package.json")).unwrap();
    let sdk: Value = serde_json::from_str(&read("sdk/package.json")).unwrap();
    assert_eq!(manifest["peerDependencies"]["@ostler/sdk"], concat!("^", env!("CARGO_PKG_VERSION")));
    assert_eq!(manifest["peerDependenciesMeta"]["@ostler/sdk"]["optional"], true);
    // What npm links has to be in the range.
    assert_eq!(sdk["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_refused_is_said_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(dir.path().join(file), text).unwrap();
    write(
        "nameless.ts",
        "import type { PluginHost } from '@ostler/sdk';\n\nexport function apply(host: PluginHost) {\n  const run = () => 1;\n  \
         host.registerTool({ definition: { name: '' }, run });\n}\n",
    );
    std::fs::create_dir(dir.path().join("weather")).unwrap();
    write("weather/index.mjs", "export function apply() {}\n");
    write("torn.mjs", "export const a = 1;\nnull.b;\nexport function apply() {}\n");
    write("syntax.ts", "export const a: = 1;\n");
    write("default.mjs", "export default function apply() {}\n");
    write(
        "held.mjs",
        "export const optionsSchema = { type: 'object', properties: { key: { type: 'string' } }, required: ['key'] };\n\
         export function apply(host, { key }) {\n\
           host.registerVault({ get: () => key, set() {}, delete: () => false, list: () => [] });\n\
           host.problem(`one of ${typeof key}`);\n\
           for (const name of ['a', 'b']) host.registerTool({ definition: { name }, run: () => 1 });\n\
         }\n",
    );
    write(
        "held.test.mjs",
        "import test from 'node:test';\ntest('holds', () => {});\ntest('breaks', () => {\n  throw new Error('no');\n});\n",
    );
    write(
        "secret.mjs",
        "export function apply(host, { key }) {\n  if (typeof key !== 'string') throw new Error('no key');\n  host.registerAgent({ provider: 'a' });\n}\n",
    );
    write("other.test.mjs", "throw new Error('of nobody');\n");
    let mut all = Vec::new();
    for (spec, options) in [
        ("./nameless.ts", json!({})),
        ("./torn.mjs", json!({})),
        ("./syntax.ts", json!({})),
        ("./default.mjs", json!({})),
        ("./gone.mjs", json!({})),
        ("not-installed", json!({})),
        ("weather", json!({})),
        ("./held.mjs", json!({})),
        ("./held.mjs", json!({ "key": "k" })),
        ("./secret.mjs", json!({ "key": { "$secret": "host:key" } })),
    ] {
        let checked = check(dir.path(), spec, options.clone()).await;
        assert!(!checked.holds(), "{spec}");
        all.push(format!("# {spec} {options}\n{}", shown(&checked, dir.path())));
    }
    insta::assert_snapshot!(all.join("\n"), @r#"
    # ./nameless.ts {}
    plugin nameless from <dir>/nameless.ts
    refused: plugin nameless failed in <n> ms: plugin nameless: registerTool needs definition.name to be a non-empty string (nameless.ts:5:8)
    # ./torn.mjs {}
    refused: plugin ./torn.mjs could not be imported from <dir>/torn.mjs in <n> ms: cannot read property 'b' of null (torn.mjs:2:1)
    # ./syntax.ts {}
    refused: plugin ./syntax.ts could not be imported from <dir>/syntax.ts in <n> ms: Unexpected token (<dir>/syntax.ts:1:17)
    # ./default.mjs {}
    refused: file://<dir>/default.mjs does not export an apply function
    # ./gone.mjs {}
    refused: Plugin ./gone.mjs is not there: tried <dir>/gone.mjs.
    # not-installed {}
    refused: Plugin not-installed is not installed in <dir>; run npm install there, or name a path.
    # weather {}
    refused: Plugin weather is not installed in <dir>; run npm install there, or name a path. Did you mean ./weather?
    # ./held.mjs {}
    plugin held from <dir>/held.mjs
    refused: plugin held skipped: plugins.held.options.key must be given; set it with --option key=<value>
    test passed: held.test.mjs: holds
    test failed: held.test.mjs: breaks: Error: no (held.test.mjs:4:13)
    tests: 1 passed, 1 failed, 0 skipped
    # ./held.mjs {"key":"k"}
    plugin held from <dir>/held.mjs
    registered: registerTool a (held.mjs:5)
    registered: registerTool b (held.mjs:5)
    refused: one of string (held.mjs:4)
    refused: plugin held sets vault, which the daemon already set; pass 'replace' to take it over (held.mjs:3)
    test passed: held.test.mjs: holds
    test failed: held.test.mjs: breaks: Error: no (held.test.mjs:4:13)
    tests: 1 passed, 1 failed, 0 skipped
    # ./secret.mjs {"key":{"$secret":"host:key"}}
    plugin secret from <dir>/secret.mjs
    refused: plugin secret failed in <n> ms: plugin secret: registerAgent needs displayName to be a non-empty string (secret.mjs:3:8)
    "#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundled_plugin_is_checked_as_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let checked = check(dir.path(), "@ostler/echo", json!({})).await;
    assert!(checked.holds(), "{checked:#?}");
    assert_eq!(checked.registered[0].method, "registerAgent");
    assert_eq!(checked.registered[0].name.as_deref(), Some("echo"));
}

#[test]
fn the_command_line_writes_a_plugin_and_checks_it() {
    let folder = Folder::new(json!({}));
    let written = folder.run(&["plugin", "new", "greeter"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    assert!(written.out.contains("ostler plugin check ./greeter"), "{}", written.out);
    assert_eq!(folder.run(&["plugin", "new", "greeter"]).code, Some(2));

    let checked = folder.run(&["plugin", "check", "./greeter", "--option", "greeting=Welcome"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.out.contains("registered: registerTool greet (index.ts:"), "{}", checked.out);
    assert!(checked.out.ends_with("tests: 3 passed, 0 failed, 0 skipped\n"), "{}", checked.out);

    let unfit = folder.run(&["plugin", "check", "./greeter", "--option", "greeting=5", "--json"]);
    assert_eq!(unfit.code, Some(1), "{unfit:?}");
    let answer: Value = serde_json::from_str(&unfit.out).unwrap();
    assert_eq!((&answer["holds"], &answer["registered"]), (&json!(false), &json!([])));
    assert!(
        answer["refused"][0]["line"]
            .as_str()
            .unwrap()
            .contains("plugins.greeter.options.greeting must be text")
    );
    assert_eq!(folder.run(&["plugin", "check", "./greeter", "--option", "greeting"]).code, Some(2));
    assert_eq!(folder.run(&["plugin", "check", "./nowhere"]).code, Some(1));
}

#[test]
fn a_check_prints_what_a_plugin_logs_and_what_it_leaves_uncaught() {
    let folder = Folder::new(json!({}));
    // The late timer is one that a check still waits for once the plugin is up.
    folder.write(
        "noisy.ts",
        "export function apply(host: { log(line: string): void; say(line: string): void; on(event: string, heard: () => void): void }) {\n  \
           console.log('from the console');\n  \
           host.log('from the log');\n  \
           host.on('listening', () => { host.say('up at last'); setTimeout(() => { throw new RangeError('in a late timer'); }, 300); });\n  \
           setTimeout(() => { throw new Error('in a timer'); }, 10);\n  \
           setInterval(() => undefined, 5);\n  \
           Promise.reject(new TypeError('nobody waits'));\n\
         }\n",
    );
    let noisy = folder.run(&["plugin", "check", "./noisy.ts"]);
    assert_eq!(noisy.code, Some(1), "{noisy:?}");
    for line in [
        "announced: up at last",
        "log: plugin noisy: from the console",
        "log: plugin noisy: from the log",
        "uncaught: plugin noisy: unhandled rejection: TypeError: nobody waits",
        "uncaught: plugin noisy: uncaught error: Error: in a timer",
        "uncaught: plugin noisy: uncaught error: RangeError: in a late timer",
    ] {
        assert!(noisy.out.lines().any(|said| said == line), "{line:?} is not in {}", noisy.out);
    }
    assert!(noisy.out.contains("noisy.ts:5:"), "the place of an error is told: {}", noisy.out);
    let answer: Value =
        serde_json::from_str(&folder.run(&["plugin", "check", "./noisy.ts", "--json"]).out).unwrap();
    assert_eq!((&answer["holds"], &answer["said"]), (&json!(false), &json!(["up at last"])));
    assert_eq!(answer["log"], json!(["plugin noisy: from the console", "plugin noisy: from the log"]));
    assert_eq!(answer["uncaught"].as_array().unwrap().len(), 3, "{answer}");

    // What a plugin logs and catches is no fault.
    folder.write(
        "calm.mjs",
        "export function apply(host) {\n  host.log('well');\n  console.error('caught');\n}\n",
    );
    let calm = folder.run(&["plugin", "check", "./calm.mjs"]);
    assert_eq!(calm.code, Some(0), "{calm:?}");
    assert!(
        calm.out.contains("\nlog: plugin calm: well\n") && calm.out.contains("log: plugin calm: caught\n"),
        "{calm:?}"
    );
}

#[test]
fn a_check_waits_for_what_is_under_way_and_hears_what_fails_in_the_end() {
    let folder = Folder::new(json!({}));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let request = format!("fetch('http://{closed}/').catch(() => {{ throw new Error('in catch'); }});");
    let socket = format!(
        "const socket = new WebSocket('ws://{closed}/'); socket.onerror = () => {{ throw new Error('in onerror'); }};"
    );
    let failing = [
        ("request", request.as_str(), "unhandled rejection: Error: in catch"),
        ("socket", socket.as_str(), "uncaught error: Error: in onerror"),
        (
            "child",
            "execFile('/bin/sleep', ['0.3'], () => { throw new Error('in a child'); });",
            "unhandled rejection: Error: in a child",
        ),
        (
            "heard",
            "host.on('listening', () => { throw new Error('at the start'); });",
            "its listening listener failed: at the start",
        ),
        (
            "heard-later",
            "host.on('listening', async () => { await null; throw new Error('at the start'); });",
            "its listening listener failed: at the start",
        ),
        (
            "stopping",
            "host.on('stopping', () => { throw new Error('at the end'); });",
            "its stopping listener failed: at the end",
        ),
        (
            "close",
            "host.registerClose(() => { throw new Error('at the close'); });",
            "its close failed: at the close",
        ),
        (
            "close-later",
            "host.registerClose(async () => { await null; throw new Error('at the close'); });",
            "its close failed: at the close",
        ),
    ];
    for (name, body, said) in failing {
        let text = format!(
            "import {{ execFile }} from 'node:child_process';\nexport function apply(host) {{\n  {body}\n}}\n"
        );
        folder.write(&format!("{name}.mjs"), &text);
        let checked = folder.run(&["plugin", "check", &format!("./{name}.mjs")]);
        assert_eq!(checked.code, Some(1), "{name}: {checked:?}");
        let line = format!("uncaught: plugin {name}: {said}");
        assert!(checked.out.lines().any(|said| said == line), "{line:?} is not in {}", checked.out);
        assert!(
            checked.out.contains(&format!("{name}.mjs:3:")),
            "the place of an error is told: {checked:?}"
        );
    }

    // What never ends is waited for no longer than timers are, and what rests is not waited for.
    let timed = |body: &str| {
        folder.write(
            "timed.mjs",
            &format!("import net from 'node:net';\nexport function apply() {{ {body} }}\n"),
        );
        let begun = std::time::Instant::now();
        let checked = folder.run(&["plugin", "check", "./timed.mjs"]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        begun.elapsed()
    };
    let limit = std::time::Duration::from_secs(2);
    assert!(timed("") < limit);
    assert!(timed("const again = () => setImmediate(again); again();") >= limit);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(timed(&format!("net.connect({port}, '127.0.0.1');")) >= limit);
}

#[test]
fn a_check_prints_the_registrations_first_and_each_test_when_it_ends() {
    use std::io::{BufRead, BufReader, Read};
    let folder = Folder::new(json!({}));
    let gate = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gate.local_addr().unwrap();
    folder.write(
        "slow.mjs",
        "console.log('imported');\nexport function apply(host) { host.on('stopping', () => {}); }\n",
    );
    folder.write(
        "slow.test.mjs",
        &format!(
            "import net from 'node:net';\nimport test from 'node:test';\n\
             test('first', () => console.log('in the first'));\n\
             test('waits', () => new Promise((go) => net.connect({}, '127.0.0.1').on('close', go).resume()));\n\
             test('hangs', () => new Promise(() => {{}}));\n\
             test('last', () => {{}});\n",
            address.port()
        ),
    );
    let mut command = folder.command(&["plugin", "check", "./slow.mjs"]);
    let mut child =
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut seen = String::new();
    // The second test waits for this one, so what is read now was printed before it ended.
    while !seen.ends_with("test passed: slow.test.mjs: first\n") {
        assert!(out.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    let lines: Vec<&str> = seen.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "registered: on (slow.mjs:2)",
            "log: plugin ./slow.mjs: imported",
            "log: plugin slow.test.mjs: in the first",
            "test passed: slow.test.mjs: first",
        ]
    );
    drop(gate.accept().unwrap());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(
        rest,
        "test passed: slow.test.mjs: waits\n\
         test failed: slow.test.mjs: hangs: Error: Promise resolution is still pending but the event loop has already resolved\n\
         test passed: slow.test.mjs: last\n\
         tests: 3 passed, 1 failed, 0 skipped\n"
    );
}

/// A plugin that logs what it was given, and tries to listen.
const GIVEN: &str = "\
import { createServer } from 'node:http';
export const optionsSchema = { type: 'object', properties: { a: {}, b: { type: 'object' }, key: { type: 'string', writeOnly: true } } };
export async function apply(host, options) {
  console.log(`options ${JSON.stringify(options)}`);
  const listened = await new Promise((go) => {
    const server = createServer().on('error', (error) => go(error.message)).listen(0, '127.0.0.1', () => { server.close(); go('listens'); });
  });
  console.log(listened);
}
";

#[test]
fn a_check_reads_the_configured_entry_and_its_flags() {
    let entry = json!({
        "name": "./given.mjs", "options": { "a": 1, "b": { "c": 2 }, "key": { "$secret": "host:key" } },
        "listen": ["127.0.0.1:0"], "grants": ["session:read"], "enabled": false,
    });
    let folder = Folder::new(json!({
        "plugins": [{ "name": "@ostler/echo", "options": { "delay": "x" } }, entry, { "name": "./granted.mjs", "grants": ["nope"] }],
    }));
    folder.write("given.mjs", GIVEN);
    folder.write("other.mjs", GIVEN);
    let check = |spec: &str, flags: &[&str]| {
        let checked = folder.run(&[&["plugin", "check", spec], flags].concat());
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let of = |prefix: &str| {
            let line =
                checked.out.lines().find_map(|line| line.split_once(prefix).map(|(_, rest)| rest.to_owned()));
            line.unwrap_or_default()
        };
        let listens = checked.out.lines().any(|line| line.ends_with(": listens"));
        (of(": options "), listens, of("configured in "))
    };
    let configured = format!("{}: plugins", folder.path().join("config.json").display());
    assert_eq!(
        check("./given.mjs", &[]),
        (r#"{"a":1,"b":{"c":2},"key":"<set>"}"#.to_owned(), true, configured.clone())
    );
    assert_eq!(
        check("./given.mjs", &["--option", "b.d=3", "--option", "a=4"]),
        (r#"{"a":4,"b":{"c":2,"d":3},"key":"<set>"}"#.to_owned(), true, configured)
    );
    assert_eq!(check("./other.mjs", &[]), ("{}".to_owned(), false, String::new()));
    assert_eq!(
        check("./other.mjs", &["--listen", "127.0.0.1:0", "--grant", "session:read"]),
        ("{}".to_owned(), true, String::new())
    );
    folder.write("granted.mjs", "export function apply() {}\n");
    let granted = folder.run(&["plugin", "check", "./granted.mjs"]);
    let dropped = "refused: plugin granted: grants: nope is not <subject>:<operation>; dropped\n";
    assert!(granted.code == Some(1) && granted.out.contains(dropped), "{granted:?}");
    // As the configuration writes it, relative to its folder.
    let elsewhere = folder.command(&["plugin", "check", "./given.mjs"]).current_dir("/").output().unwrap();
    let out = String::from_utf8(elsewhere.stdout).unwrap();
    assert!(out.contains(r#"options {"a":1,"#), "{out}");
    // The entry of a bundled plugin is that of a host which serves others.
    assert_eq!(check("@ostler/echo", &[]).2, "");
    for (flag, value, why) in [
        ("--grant", "session", "--grant: session is not <subject>:<operation>"),
        ("--listen", "8080", "--listen: 8080 is not <host>:<port> or the absolute path of a socket"),
        ("--listen", "a/b", "--listen: a/b is not <host>:<port> or the absolute path of a socket"),
    ] {
        let refused = folder.run(&["plugin", "check", "./other.mjs", flag, value]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(why), "{refused:?}");
    }
}

#[test]
fn no_form_of_a_check_prints_a_secret_of_the_entry() {
    const SECRET: &str = "sk-live-0123456789";
    let folder = Folder::new(json!({ "plugins": [{ "name": "./tells.mjs", "options": { "key": SECRET } }] }));
    folder.write(
        "tells.mjs",
        "export const optionsSchema = { type: 'object', properties: { key: { type: 'string', writeOnly: true } } };\n\
         export function apply(host, { key }) {\n\
           host.on('listening', (event, { say, log }) => { say(`uses ${key}`); log(`uses ${key}`); setTimeout(() => { throw new Error(key); }); });\n\
           host.problem(`${key} is skipped`);\n\
         }\n",
    );
    folder.write(
        "tells.test.mjs",
        &format!(
            "import test from 'node:test';\ntest('{SECRET}', () => {{ throw new Error('{SECRET}'); }});\n"
        ),
    );
    folder.write("tells.test.js", &format!("throw new Error('{SECRET}');\n"));
    for flags in [&["--json"][..], &["--json", "--verbose"], &[], &["--verbose"]] {
        let checked = folder.run(&[&["plugin", "check", "./tells.mjs"], flags].concat());
        assert_eq!(checked.code, Some(1), "{checked:?}");
        assert!(!checked.out.contains(SECRET) && !checked.err.contains(SECRET), "{flags:?}: {checked:?}");
        if flags.contains(&"--json") {
            let answer: Value = serde_json::from_str(&checked.out).unwrap();
            assert_eq!(answer["said"], json!(["uses <set>"]), "{answer}");
            assert_eq!(answer["log"], json!(["plugin tells: uses <set>"]), "{answer}");
            let tests = answer["tests"].as_array().unwrap();
            let (broken, ran) = (&tests[0], &tests[1]);
            assert!(broken["problem"].as_str().unwrap().contains("<set>"), "{broken}");
            assert_eq!(
                (&ran["tests"][0]["name"], &ran["tests"][0]["why"]),
                (&json!("<set>"), &json!("Error: <set>"))
            );
        }
    }
}

#[test]
fn a_check_does_not_take_an_unreadable_configuration_for_none() {
    let folder = Folder::new(json!({}));
    folder.write("plain.mjs", "export function apply() {}\n");
    assert_eq!(folder.run(&["plugin", "check", "./plain.mjs"]).code, Some(0));
    folder.write("config.json", "{ \"plugins\": ");
    let unread = folder.run(&["plugin", "check", "./plain.mjs"]);
    assert_eq!(unread.code, Some(2), "{unread:?}");
    assert!(unread.err.contains("config.json is not JSON: "), "{unread:?}");
    let mut homeless = program();
    homeless.args(["plugin", "check", "./plain.mjs"]).current_dir(folder.path());
    for name in ["HOME", "XDG_CONFIG_HOME", "OSTLER_CONFIG"] {
        homeless.env_remove(name);
    }
    let checked = homeless.output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

#[test]
fn tests_of_a_plugin_listen_on_loopback_and_nowhere_else() {
    let folder = Folder::new(json!({}));
    folder.write("served.mjs", "export function apply() {}\n");
    folder.write(
        "served.test.mjs",
        "import { createServer } from 'node:http';\nimport net from 'node:net';\nimport test from 'node:test';\n\
         const listen = (host) => new Promise((go, fail) => { const server = net.createServer().on('error', fail).listen(0, host, () => { server.close(); go(); }); });\n\
         test('a local server answers', async () => {\n\
           const server = createServer((request, response) => response.end('hello'));\n\
           await new Promise((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));\n\
           const text = await (await fetch(`http://127.0.0.1:${server.address().port}/`)).text();\n\
           server.close();\n\
           if (text !== 'hello') throw new Error(text);\n\
         });\n\
         test('by name', () => listen('localhost'));\n\
         test('everywhere', () => listen('0.0.0.0'));\n",
    );
    let run = |flags: &[&str]| folder.run(&[&["plugin", "check", "./served.mjs"], flags].concat());
    let checked = run(&[]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.out.ends_with("tests: 2 passed, 1 failed, 0 skipped\n"), "{}", checked.out);
    let refused = "everywhere: Error: listen EACCES: permission denied 0.0.0.0:0; listen on 127.0.0.1, or pass --listen";
    assert!(checked.out.contains(refused), "{}", checked.out);
    let allowed = run(&["--listen", "0.0.0.0:0"]);
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_of_a_built_plugin_names_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    // All of the first line is line 7, column 5 of the source.
    let map = json!({ "version": 3, "sources": ["../src/plugin.ts"], "names": [], "mappings": "AAMI" });
    write("dist/index.mjs.map", &map.to_string());
    let built = |text: &str| format!("{text}\n//# sourceMappingURL=index.mjs.map");
    write("dist/index.mjs", &built("export function apply(){const a=()=>{throw new Error('no')};a()}"));
    write(
        "dist/index.test.mjs",
        &built("import{test}from'node:test';test('breaks',()=>{throw new Error('no')})"),
    );
    let checked = check(dir.path(), "./dist", json!({})).await;
    let source = format!("{}/src/plugin.ts:7:5", dir.path().canonicalize().unwrap().display());
    assert_eq!(checked.refused[0].at, Some(source), "{:?}", checked.loading);
    assert!(
        checked.lines.iter().any(|line| line.ends_with("breaks: Error: no (plugin.ts:7:5)")),
        "{:?}",
        checked.lines
    );
}
