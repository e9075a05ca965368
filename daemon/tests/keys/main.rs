//! Every configuration key reaches what it controls: in the file, as a flag, and as a setting on the root channel.
//!
//! A row observes the effect of one key in a running daemon under two or more values. A key that is not connected gives
//! the same observation for all of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod observe;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Mutex;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ostler::config::{Config, Effect, KEYS};
use ostler_contract::Cross;
use ostler_contract::shape::{ObjectShape, Shape};
use serde_json::{Value, json};
use support::collector::Collector;
use support::{Client, Daemon, Folder};

/// A daemon and what it was started with.
pub struct At {
    folder: Folder,
    daemon: Option<Daemon>,
    flags: Vec<String>,
}

impl At {
    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("a daemon that runs")
    }

    fn restart(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop();
        }
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.daemon = Some(self.folder.start_with(&flags));
    }
}

type Observing<'a> = Pin<Box<dyn Future<Output = Value> + 'a>>;

/// How a key gets its value.
enum Given {
    File(Value),
    /// Over the value that the first case has in the file.
    Flags(Vec<String>),
    /// Over the value that the first case has in the file.
    Root(Value),
}

struct Case {
    given: Given,
    expected: Value,
}

fn file(value: Value, expected: Value) -> Case {
    Case { given: Given::File(value), expected }
}

fn flags(flags: &[&str], expected: Value) -> Case {
    Case { given: Given::Flags(flags.iter().map(|flag| (*flag).to_owned()).collect()), expected }
}

fn root(value: Value, expected: Value) -> Case {
    Case { given: Given::Root(value), expected }
}

/// The observations of one key.
struct Row {
    key: &'static str,
    /// What the configuration has besides.
    with: Value,
    /// Whether the observation starts the program itself.
    stopped: bool,
    observe: for<'a> fn(&'a mut At) -> Observing<'a>,
    cases: Vec<Case>,
}

/// Puts a value at a key such as `http.port`.
fn set(config: &mut Value, key: &str, value: Value) {
    match key.split_once('.') {
        // Entries of a list are given as a whole.
        _ if key.contains("[]") => config["plugins"] = value,
        None => config[key] = value,
        Some((outer, inner)) => config[outer][inner] = value,
    }
}

async fn check(row: Row) {
    let Some(Case { given: Given::File(first), .. }) = row.cases.first() else {
        panic!("a file comes first")
    };
    for Case { given, expected } in &row.cases {
        let mut config = json!({
            "port": 0, "deltaWindowMs": 0,
            "plugins": [{ "name": "@ostler/echo" }, { "name": "./probe.mjs" }, { "name": "@ostler/webhook" }],
        });
        config.as_object_mut().unwrap().extend(row.with.as_object().cloned().unwrap_or_default());
        let (value, flags, root) = match given {
            Given::File(value) => (value, &[][..], None),
            Given::Flags(flags) => (first, &flags[..], None),
            Given::Root(value) => (first, &[][..], Some(value)),
        };
        if !value.is_null() {
            set(&mut config, row.key, value.clone());
        }
        let folder = Folder::with_webhook("Hello");
        observe::prepare(&folder);
        folder.write("config.json", &config.to_string());
        let mut at = At { folder, daemon: None, flags: flags.to_vec() };
        if !row.stopped {
            at.restart();
        }
        if let Some(value) = root {
            let mut client = Client::connect(&format!("{}/?tkn=one", at.daemon().url)).await;
            client.initialize("editor").await;
            client.subscribe("ahp-root://").await;
            let change = json!({ "type": "root/configChanged", "config": { row.key: value } });
            client.dispatch("ahp-root://", 1, change).await;
            let echo = client.actions_until("root/configChanged").await.pop().unwrap();
            assert_eq!(echo.get("rejectionReason"), None, "{}: {echo}", row.key);
            let declared = KEYS.iter().find(|key| key.name == row.key).unwrap();
            if let Effect::Restart = declared.root.as_ref().expect("a root setting").effect {
                at.restart();
            }
        }
        let seen = (row.observe)(&mut at).await;
        let log = at.folder.read("log");
        let what = match given {
            Given::File(value) => format!("{}: {value} in the file", row.key),
            Given::Flags(flags) => format!("{}: {flags:?}", row.key),
            Given::Root(value) => format!("{}: {value} on the root channel", row.key),
        };
        assert_eq!(seen, *expected, "{what}; the log: {log}");
    }
}

/// A port that was free a moment ago.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The address of a new collector, which [`observe`] finds.
fn collector() -> String {
    let collector = Collector::start("200 OK");
    let address = collector.address.clone();
    COLLECTORS.lock().unwrap().push(collector);
    address
}

static COLLECTORS: Mutex<Vec<Collector>> = Mutex::new(Vec::new());

macro_rules! rows {
    ($($name:ident: $key:literal, $observe:ident $(in $state:ident)?, with $with:expr, $cases:expr;)+) => {
        mod row {
            use super::*;

            $(pub fn $name() -> Row {
                let stopped = false $(|| stringify!($state) == "stopped")?;
                Row { key: $key, with: $with, stopped, observe: |at| Box::pin(observe::$observe(at)), cases: $cases }
            })+
        }

        $(#[tokio::test]
        async fn $name() {
            check(row::$name()).await;
        })+

        fn rows() -> Vec<Row> {
            vec![$(row::$name()),+]
        }
    };
}

rows! {
    port_key: "port", port, with json!({}), {
        let (a, b, c) = (port(), port(), port());
        vec![file(json!(a), json!(a)), flags(&["--port", &b.to_string()], json!(b)), root(json!(c), json!(c))]
    };
    host_key: "host", address, with json!({}), vec![
        file(json!(null), json!("127.0.0.1")),
        file(json!("127.0.0.2"), json!("127.0.0.2")),
        flags(&["--host", "127.0.0.3"], json!("127.0.0.3")),
        root(json!("127.0.0.2"), json!("127.0.0.2")),
    ];
    paths_key: "paths", readable, with json!({}), vec![
        file(json!(["a"]), json!(["a"])),
        file(json!(["a", "b"]), json!(["a", "b"])),
        flags(&["--path", "b"], json!(["b"])),
        root(json!(["b"]), json!(["b"])),
    ];
    connection_token: "connectionToken", tokens, with json!({}), vec![
        file(json!(null), json!(["", "one", "two"])),
        file(json!("one"), json!(["one"])),
        flags(&["--connection-token", "two"], json!(["two"])),
    ];
    connection_token_file: "connectionTokenFile", tokens, with json!({}), vec![
        file(json!("one.token"), json!(["one"])),
        file(json!("two.token"), json!(["two"])),
        flags(&["--connection-token-file", "two.token"], json!(["two"])),
    ];
    // No listener can have this address, so the check of the token is seen and nothing listens.
    without_connection_token: "withoutConnectionToken", exit in stopped, with json!({ "host": "192.0.2.1" }), vec![
        file(json!(false), json!(2)),
        file(json!(true), json!(1)),
        flags(&["--without-connection-token"], json!(1)),
    ];
    users: "users", list_without_user, with json!({}), vec![
        file(json!(null), json!(null)),
        file(json!("users.json"), json!(-32007)),
        flags(&["--users", "users.json"], json!(-32007)),
    ];
    resource: "resource", sign_in_resource, with json!({ "users": "users.json" }), vec![
        file(json!("https://one.example"), json!("https://one.example")),
        file(json!("https://two.example"), json!("https://two.example")),
        flags(&["--resource", "https://two.example"], json!("https://two.example")),
    ];
    issuer: "issuer", sign_in_issuers, with json!({ "users": "users.json" }), vec![
        file(json!("https://one.example"), json!(["https://one.example"])),
        file(json!("github"), json!(["https://github.com/login/oauth"])),
        flags(&["--issuer", "https://two.example"], json!(["https://two.example"])),
    ];
    trust_token: "trustToken", principal, with json!({ "users": "users.json" }), vec![
        file(json!(null), json!(null)),
        file(json!(true), json!("user:ada")),
        flags(&["--trust-token"], json!("user:ada")),
    ];
    automations: "automations", automations, with json!({}), vec![
        file(json!("file"), json!(1)),
        file(json!("memory"), json!(0)),
        flags(&["--automations", "memory"], json!(0)),
    ];
    unowned_automations: "unownedAutomations", call, with json!({}), vec![
        file(json!("every"), json!("a run")),
        file(json!("none"), json!("a line")),
        flags(&["--unowned-automations", "none"], json!("a line")),
    ];
    sessions: "sessions", sessions_after_restart, with json!({}), vec![
        file(json!("file"), json!(1)),
        file(json!("memory"), json!(0)),
        flags(&["--sessions", "memory"], json!(0)),
    ];
    client_tool_timeout: "clientToolTimeoutMs", tool_timeout, with json!({}), vec![
        file(json!(1), json!("c did not answer within 0 seconds")),
        file(json!(1000), json!("c did not answer within 1 seconds")),
        flags(&["--client-tool-timeout-ms", "1001"], json!("c did not answer within 1 seconds")),
    ];
    delta_window: "deltaWindowMs", many_deltas, with json!({}), vec![
        file(json!(0), json!(true)),
        file(json!(1000), json!(false)),
    ];
    advanced_tools: "advancedTools", advanced_tool, with json!({}), vec![
        file(json!(null), json!("there is no tool advanced")),
        file(json!(true), json!("let through")),
        flags(&["--advanced-tools"], json!("let through")),
        root(json!(true), json!("let through")),
    ];
    wire: "wire", recordings, with json!({}), vec![
        file(json!("one.jsonl"), json!(["one.jsonl"])),
        file(json!("two.jsonl"), json!(["two.jsonl"])),
        flags(&["--wire", "two.jsonl"], json!(["two.jsonl"])),
        root(json!("three.jsonl"), json!(["one.jsonl", "wire/three.jsonl"])),
    ];
    mcp_servers: "mcpServers", mcp_servers, with json!({}), {
        let server = |name: &str| json!({ name: { "type": "stdio", "command": "serve" } });
        vec![
            file(server("one"), json!(["one"])),
            file(server("two"), json!(["two"])),
            root(server("two"), json!(["one", "two"])),
        ]
    };
    origins: "origins", status_by_name, with json!({}), vec![
        file(json!(null), json!(403)),
        file(json!(["https://host.example"]), json!(200)),
    ];
    public_url: "publicUrl", status_by_name, with json!({}), vec![
        file(json!(null), json!(403)),
        file(json!("https://host.example/"), json!(200)),
    ];
    routes_key: "routes", routes, with json!({}), {
        let a = port();
        vec![file(json!(null), json!("main")), file(json!({ "port": a }), json!(format!("127.0.0.1:{a}")))]
    };
    routes_port: "routes.port", routes, with json!({}), {
        let (a, b) = (port(), port());
        vec![
            file(json!(a), json!(format!("127.0.0.1:{a}"))),
            file(json!(b), json!(format!("127.0.0.1:{b}"))),
        ]
    };
    routes_host: "routes.host", routes, with json!({ "routes": { "port": 0 } }), vec![
        file(json!("127.0.0.1"), json!("127.0.0.1")),
        file(json!("127.0.0.2"), json!("127.0.0.2")),
    ];
    http: "http", api, with json!({ "connectionToken": "one" }), vec![
        file(json!(null), json!(null)),
        file(json!(true), json!("main")),
        root(json!({}), json!("main")),
    ];
    http_port: "http.port", api, with json!({ "connectionToken": "one" }), {
        let (a, b) = (port(), port());
        vec![
            file(json!(a), json!(format!("127.0.0.1:{a}"))),
            file(json!(b), json!(format!("127.0.0.1:{b}"))),
        ]
    };
    http_host: "http.host", api, with json!({ "connectionToken": "one", "http": { "port": 0 } }), vec![
        file(json!("127.0.0.1"), json!("127.0.0.1")),
        file(json!("127.0.0.2"), json!("127.0.0.2")),
    ];
    policies: "policies", create, with json!({ "users": "users.json", "trustToken": true }), vec![
        file(json!(null), json!(null)),
        file(json!({ "check": true }), json!("no-echo refuses agent echo")),
    ];
    policies_check: "policies.check", create, with json!({ "users": "users.json", "trustToken": true }), vec![
        file(json!(false), json!(null)),
        file(json!(true), json!("no-echo refuses agent echo")),
    ];
    usage: "usage", usage_entries, with json!({}), vec![
        file(json!(null), json!(1)),
        file(json!({ "per": "report" }), json!(2)),
    ];
    usage_per: "usage.per", usage_entries, with json!({}), vec![
        file(json!("turn"), json!(1)),
        file(json!("report"), json!(2)),
    ];
    usage_timezone: "usage.timezone", usage_of_the_latest_day, with json!({}), vec![
        file(json!("Etc/GMT-14"), json!(1)),
        file(json!("Etc/GMT+12"), json!(0)),
    ];
    runs: "runs", retained_runs, with json!({}), vec![
        file(json!(null), json!(4)),
        file(json!({ "count": 1 }), json!(1)),
    ];
    runs_count: "runs.count", retained_runs, with json!({}), vec![
        file(json!(1000), json!(4)),
        file(json!(2), json!(2)),
    ];
    runs_days: "runs.days", retained_runs, with json!({}), vec![
        file(json!(30), json!(4)),
        file(json!(5), json!(3)),
    ];
    runs_size: "runs.sizeMb", retained_runs, with json!({}), vec![
        file(json!(8), json!(4)),
        file(json!(1), json!(2)),
    ];
    javascript: "javascript", busy, with json!({}), vec![
        file(json!(null), json!(200)),
        file(json!({ "busyLimitMs": 100 }), json!(500)),
    ];
    javascript_busy: "javascript.busyLimitMs", busy, with json!({}), vec![
        file(json!(10_000), json!(200)),
        file(json!(100), json!(500)),
    ];
    javascript_memory: "javascript.memoryLimitMb", memory, with json!({}), vec![
        file(json!(512), json!(200)),
        file(json!(32), json!(500)),
    ];
    limits: "limits", body_status, with json!({}), vec![
        file(json!(null), json!(200)),
        file(json!({ "unverifiedBodiesMb": 1 }), json!(413)),
    ];
    limits_memory: "limits.memoryMb", message, with json!({}), vec![
        file(json!(192), json!("answered")),
        file(json!(1), json!("closed")),
    ];
    limits_connection_memory: "limits.connectionMemoryMb", message, with json!({}), vec![
        file(json!(96), json!("answered")),
        file(json!(1), json!("closed")),
    ];
    limits_unverified: "limits.unverifiedBodiesMb", body_status, with json!({}), vec![
        file(json!(64), json!(200)),
        file(json!(1), json!(413)),
    ];
    limits_sessions: "limits.sessionMemoryMb", second_draft, with json!({}), vec![
        file(json!(128), json!(null)),
        file(json!(1), json!(
            "the states of the sessions at work take as much memory as limits.sessionMemoryMb allows (1 MiB); end or leave a \
             session, or shorten this one, then try again"
        )),
    ];
    limits_awake: "limits.awakeSessions", second_session, with json!({}), vec![
        file(json!(2), json!(null)),
        file(json!(1), json!(
            "1 sessions are at work or watched, as many as limits.awakeSessions allows; end or leave one, then try again"
        )),
    ];
    log: "log", log_lines, with json!({}), vec![
        file(json!(null), json!(["text", true])),
        file(json!({ "format": "json" }), json!(["json", true])),
    ];
    log_level: "log.level", log_lines, with json!({}), vec![
        file(json!("info"), json!(["text", true])),
        file(json!("warn"), json!(["text", false])),
    ];
    log_format: "log.format", log_lines, with json!({}), vec![
        file(json!("text"), json!(["text", true])),
        file(json!("json"), json!(["json", true])),
    ];
    otlp: "otlp", export, with json!({}), {
        let (a, b) = (collector(), collector());
        vec![
            file(json!({ "endpoint": format!("http://{a}") }), json!([a, "/v1/metrics"])),
            file(json!({ "endpoint": format!("http://{b}/otlp/") }), json!([b, "/otlp/v1/metrics"])),
        ]
    };
    otlp_endpoint: "otlp.endpoint", export, with json!({}), {
        let (a, b) = (collector(), collector());
        vec![
            file(json!(format!("http://{a}")), json!([a, "/v1/metrics"])),
            file(json!(format!("http://{b}")), json!([b, "/v1/metrics"])),
        ]
    };
    otlp_headers: "otlp.headers", export_key, with json!({ "otlp": { "endpoint": format!("http://{}", collector()) } }), vec![
        file(json!({ "x-api-key": "key-one" }), json!("key-one")),
        file(json!({ "x-api-key": "key-two" }), json!("key-two")),
    ];
    plugins: "plugins", plugins, with json!({}), vec![
        file(json!([{ "name": "@ostler/echo" }]), json!([404, 404])),
        file(json!([{ "name": "@ostler/echo" }, { "name": "./probe.mjs" }]), json!([200, 404])),
        flags(&["--plugin", "@ostler/echo", "--plugin", "./other.mjs"], json!([404, 200])),
    ];
    plugins_name: "plugins[].name", plugins, with json!({}), vec![
        file(json!([{ "name": "@ostler/echo" }, { "name": "./probe.mjs" }]), json!([200, 404])),
        file(json!([{ "name": "@ostler/echo" }, { "name": "./other.mjs" }]), json!([404, 200])),
    ];
    plugins_options: "plugins[].options", plugin_options, with json!({}), vec![
        file(json!([{ "name": "@ostler/echo" }, { "name": "./probe.mjs" }]), json!({})),
        file(json!([{ "name": "@ostler/echo" }, { "name": "./probe.mjs", "options": { "a": 1 } }]), json!({ "a": 1 })),
    ];
    plugins_enabled: "plugins[].enabled", plugins, with json!({}), vec![
        file(json!([{ "name": "@ostler/echo" }, { "name": "./probe.mjs", "enabled": true }]), json!([200, 404])),
        file(json!([{ "name": "@ostler/echo" }, { "name": "./probe.mjs", "enabled": false }]), json!([404, 404])),
    ];
    plugins_grants: "plugins[].grants", plugin_lists, with json!({ "users": "users.json" }), vec![
        file(json!([{ "name": "@ostler/echo" }, { "name": "./probe.mjs" }]), json!("plugin:probe may not session:list here")),
        file(json!([{ "name": "@ostler/echo" }, { "name": "./probe.mjs", "grants": ["session:list"] }]), json!("listed")),
    ];
    plugins_listen: "plugins[].listen", plugin_listens, with json!({}), vec![
        file(json!([{ "name": "@ostler/echo" }, { "name": "./probe.mjs" }]), json!("EACCES")),
        file(json!([{ "name": "@ostler/echo" }, { "name": "./probe.mjs", "listen": ["127.0.0.1:0"] }]), json!("listens")),
    ];
}

/// The names of all keys, with those in objects and entries.
fn declared(object: &ObjectShape, under: &str, into: &mut BTreeSet<String>) {
    for field in &object.fields {
        let key = format!("{under}{}", field.name);
        match field.shape.core() {
            Shape::Object(inner) => declared(inner(), &format!("{key}."), into),
            Shape::List(entry) => {
                if let Shape::Object(inner) = entry.core() {
                    declared(inner(), &format!("{key}[]."), into);
                }
            }
            _ => {}
        }
        into.insert(key);
    }
}

#[test]
fn every_key_has_a_row() {
    let Shape::Object(config) = Config::shape() else { panic!("the configuration is an object") };
    let mut keys = BTreeSet::new();
    declared(config(), "", &mut keys);
    let rows = rows();
    let named: BTreeSet<String> = rows.iter().map(|row| row.key.to_owned()).collect();
    assert_eq!(named, keys);
    for row in &rows {
        let seen: BTreeSet<String> = row.cases.iter().map(|case| case.expected.to_string()).collect();
        assert!(seen.len() > 1, "{}: every value gives the same observation", row.key);
    }
    for key in KEYS.iter() {
        let cases = || rows.iter().filter(|row| row.key == key.name).flat_map(|row| &row.cases);
        let flags = cases().any(|case| matches!(case.given, Given::Flags(_)));
        let root = cases().any(|case| matches!(case.given, Given::Root(_)));
        assert_eq!(
            (flags, root),
            (key.flag.is_some(), key.root.is_some()),
            "{}: flag and root setting",
            key.name
        );
    }
}

/// The date at the place where a day begins first.
fn latest_day() -> String {
    let zone = TimeZone::get("Etc/GMT-14").unwrap();
    Timestamp::now().to_zoned(zone).date().to_string()
}
