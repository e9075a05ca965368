//! What an operator observes: the log with its levels, formats and fields, and the metrics.

use crate::support::collector::Collector;
use crate::support::{Client, Daemon, Folder, wait_for};
use serde_json::{Value, json};

const PROBE: &str = "
export const name = 'probe';
export function apply(host) {
  host.registerTool({ definition: { name: 'shout' }, run: () => 'A!' });
}
";

fn folder(more: Value) -> Folder {
    let folder = Folder::with_webhook("Hello");
    folder.write("probe.mjs", PROBE);
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["plugins"].as_array_mut().unwrap().push(json!({ "name": "./probe.mjs" }));
    config.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    folder.write("config.json", &config.to_string());
    folder
}

/// A call that starts a run, and a turn that uses the tool of a plugin.
async fn work(client: &mut Client, folder: &Folder, daemon: &Daemon) {
    folder.wait_for_status(daemon, "/plugins/webhook/in", 202).await;
    daemon.post("/plugins/webhook/none", Some("right"), "{}").await;
    client.ended_runs(1).await;
    client.request("createSession", json!({ "channel": "echo:/1", "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("echo:/1");
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "/tool shout {}" } });
    client.dispatch(&chat, 1, turn).await;
    client.actions_until("chat/turnComplete").await;
    client.request("disposeSession", json!({ "channel": "echo:/none" })).await.unwrap_err();
}

#[tokio::test]
async fn each_command_plugin_call_turn_and_run_is_a_line_at_the_level_debug() {
    let folder = folder(json!({ "log": { "level": "debug", "format": "json" } }));
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    work(&mut client, &folder, &daemon).await;
    let ended = |name: &str, fields: &[(&str, Value)]| {
        let found = wait_for(|| {
            let lines = folder.read("log");
            let mut lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| {
                line["message"] == name && fields.iter().all(|(field, value)| line[*field] == *value)
            })
        });
        let line = found.unwrap_or_else(|| panic!("no {name} with {fields:?}: {}", folder.read("log")));
        assert_eq!(line["level"], "debug", "{line}");
        assert!(line["ms"].as_f64().is_some_and(|ms| ms >= 0.0), "{line}");
        line
    };
    ended("command", &[("method", json!("createSession"))]);
    ended(
        "command",
        &[
            ("method", json!("disposeSession")),
            ("session", json!("echo:/none")),
            ("outcome", json!("failed")),
        ],
    );
    ended("plugin_call", &[("plugin", json!("probe")), ("method", json!("Tool.run"))]);
    ended("plugin_call", &[("plugin", json!("echo")), ("method", json!("Agent.create"))]);
    ended("plugin_call", &[("plugin", json!("echo")), ("method", json!("AgentSession.begin"))]);
    let chat = ostler_protocol::uri::default_chat("echo:/1");
    let turn = [
        ("session", json!("echo:/1")),
        ("chat", json!(chat)),
        ("turn", json!("t1")),
        ("outcome", json!("complete")),
    ];
    ended("turn", &turn);
    let run = ended("run", &[("outcome", json!("complete"))]);
    assert!(run["run"].as_str().is_some_and(|run| run.starts_with("ahp-automation-run:/")), "{run}");
}

#[tokio::test]
async fn the_variable_overrides_the_configured_level() {
    let folder = folder(json!({ "log": { "level": "debug" } }));
    let mut command = folder.command(&[]);
    command.env("OSTLER_LOG", "error");
    let daemon = folder.started(command);
    daemon.initialized("c").await;
    assert_eq!(folder.read("log"), "");
    drop(daemon);
    let mut command = folder.command(&[]);
    let ended = crate::support::ended(command.env("OSTLER_LOG", "loud"));
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.err.contains("OSTLER_LOG: invalid level loud; use error, warn, info, debug or trace"),
        "{}",
        ended.err
    );
    folder.write("config.json", &json!({ "log": { "level": "a=b" } }).to_string());
    let ended = folder.run(&[]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("log.level: invalid level a=b"), "{}", ended.err);
}

#[test]
fn commands_find_the_lines_they_wait_for_at_every_level_and_in_each_format() {
    for format in ["text", "json"] {
        let folder = folder(json!({ "log": { "level": "error", "format": format } }));
        for verb in ["start", "restart", "stop"] {
            let ended = folder.run(&[verb]);
            assert_eq!(ended.code, Some(0), "{verb}: {}", ended.err);
        }
    }
}

/// The value of a metric with these labels.
fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

#[tokio::test]
async fn the_metrics_count_what_the_host_does() {
    let folder = folder(json!({ "http": true, "connectionToken": "the token" }));
    let daemon = folder.start();
    let mut client = Client::connect(&format!("{}/?tkn=the%20token", daemon.url)).await;
    client.initialize("c").await;
    work(&mut client, &folder, &daemon).await;
    let headers = "Authorization: Bearer the token\r\n";
    let head = format!("GET /api/metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", daemon.address());
    let request = format!("{head}{headers}\r\n");
    let answer = daemon.exchange(request.as_bytes()).await.to_lowercase();
    assert!(
        answer.starts_with("http/1.1 200") && answer.contains("content-type: application/openmetrics-text"),
        "{answer}"
    );
    let (_, metrics) = daemon.ask("GET /api/metrics", headers, "").await;
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let count = |kind: &str, labels: &str| {
        value(metrics, &format!("ostler_{kind}_duration_seconds_count{{{labels}}}"))
    };
    assert_eq!(count("command", r#"method="createSession",outcome="ok""#), 1.0);
    assert_eq!(count("command", r#"method="disposeSession",outcome="failed""#), 1.0);
    assert_eq!(count("plugin_call", r#"plugin="probe",method="Tool.run",outcome="ok""#), 1.0);
    assert_eq!(count("turn", r#"provider="echo",outcome="complete""#), 2.0);
    assert_eq!(count("run", r#"outcome="complete""#), 1.0);
    assert_eq!(count("webhook_call", r#"endpoint="in",status="202""#), 1.0);
    assert!(!metrics.contains(r#"endpoint="none""#), "an endpoint that does not exist is no label");
    let stores =
        metrics.lines().filter(|line| line.contains(r#"_count{plugin="host",method="SessionStore."#));
    assert!(stores.count() > 1, "the latency of stores: {metrics}");
    // The client, and the webhook plugin's or the command's own.
    assert!(value(metrics, "ostler_connections") >= 1.0);
    assert!(value(metrics, "ostler_sessions") >= 2.0);
    assert!(value(metrics, "ostler_awake_sessions") >= 1.0);
    assert_eq!(value(metrics, "ostler_open_runs"), 0.0);
    assert_eq!(value(metrics, "ostler_outbox_bytes"), 0.0);
    assert_eq!(value(metrics, "ostler_session_messages"), 0.0);
    assert!(value(metrics, "ostler_session_memory_used_bytes") > 0.0);
    assert!(value(metrics, r#"ostler_plugin_cpu_seconds_total{plugin="probe"}"#) > 0.0);
    assert!(value(metrics, r#"ostler_plugin_memory_bytes{plugin="probe"}"#) > 10_000.0);
    let build = metrics.lines().find(|line| line.starts_with("ostler_build_info{")).unwrap();
    assert!(build.contains(&format!("version=\"{}\"", env!("CARGO_PKG_VERSION"))), "{build}");
    assert!(build.contains("os=\"") && build.contains("arch=\"") && build.ends_with("} 1"), "{build}");
    if cfg!(target_os = "linux") {
        assert!(value(metrics, "ostler_resident_memory_bytes") > 1_000_000.0);
    }
    assert!(!metrics.contains("the token"));
}

#[tokio::test]
async fn the_metrics_require_a_grant() {
    let folder = folder(json!({ "http": true, "users": "users.json" }));
    let token = |id: &str, role: &str| {
        let ended = folder.run(&["user", "add", id, "--role", role]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        ended.out.trim().to_owned()
    };
    let (ada, ben) = (token("ada", "admin"), token("ben", "member"));
    let daemon = folder.start();
    let ask = async |token: &str| {
        let headers = format!("Authorization: Bearer {token}\r\n");
        daemon.ask("GET /api/metrics", &headers, "").await
    };
    assert_eq!(daemon.ask("GET /api/metrics", "", "").await.0, 401);
    assert_eq!(ask(&ben).await, (403, json!({ "message": "ben may not diagnostics:metrics here" })));
    assert_eq!(ask(&ada).await.0, 200);
    assert_eq!(daemon.ask("POST /api/metrics", &format!("Authorization: Bearer {ada}\r\n"), "").await.0, 405);
}

/// A configuration that exports to a collector, with a header.
fn exporting(collector: &Collector) -> Value {
    let endpoint = format!("http://{}", collector.address);
    json!({ "otlp": { "endpoint": endpoint, "headers": { "authorization": "Bearer collector-key" } } })
}

#[tokio::test]
async fn traces_and_metrics_are_exported_to_a_collector() {
    let collector = Collector::start("200 OK");
    let folder = folder(exporting(&collector));
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    work(&mut client, &folder, &daemon).await;
    daemon.stop();
    let received = collector.received();
    assert!(!received.is_empty());
    for request in &received {
        assert!(request.head.contains("authorization: bearer collector-key"), "{request:?}");
        assert!(request.head.contains("content-type: application/json"), "{request:?}");
        assert!(!request.body.to_string().contains("collector-key"), "{request:?}");
    }
    let spans = collector.items("/v1/traces", ["resourceSpans", "scopeSpans", "spans"]);
    let named = |name: &str| {
        let found = spans.iter().find(|span| span["name"] == name);
        found.unwrap_or_else(|| panic!("no span {name} in {spans:#?}"))
    };
    let created = named("command createSession");
    assert_eq!((&created["kind"], &created["parentSpanId"]), (&json!(2), &json!("")));
    assert_eq!(named("command disposeSession")["status"], json!({ "code": 2 }));
    named("plugin_call Tool.run");
    let chat = ostler_protocol::uri::default_chat("echo:/1");
    let value = |span: &Value, key: &str| {
        let attributes = span["attributes"].as_array().unwrap();
        attributes
            .iter()
            .find(|attribute| attribute["key"] == key)
            .map(|found| found["value"]["stringValue"].clone())
    };
    let turn = spans.iter().find(|span| span["name"] == "turn" && value(span, "chat") == Some(json!(chat)));
    let turn = turn.unwrap_or_else(|| panic!("no turn of {chat} in {spans:#?}"));
    assert_eq!(value(turn, "outcome"), Some(json!("complete")));
    let time = |key: &str| turn[key].as_str().unwrap().parse::<u128>().unwrap();
    assert!(time("startTimeUnixNano") < time("endTimeUnixNano"), "{turn}");
    // What a run called belongs to its trace.
    let run = named("run");
    let within = spans.iter().find(|span| span["parentSpanId"] == run["spanId"]);
    assert_eq!(within.map(|span| &span["traceId"]), Some(&run["traceId"]), "{spans:#?}");
    let turn_of_run =
        spans.iter().find(|span| span["name"] == "turn" && span["parentSpanId"] == run["spanId"]);
    let turn_of_run = turn_of_run.unwrap_or_else(|| panic!("no turn of the run in {spans:#?}"));
    assert_eq!(turn["parentSpanId"], "", "a client's turn is a trace");
    for turn in [turn, turn_of_run] {
        let begun = spans.iter().find(|span| {
            span["name"] == "plugin_call AgentSession.begin" && span["parentSpanId"] == turn["spanId"]
        });
        assert!(begun.is_some_and(|begun| begun["traceId"] == turn["traceId"]), "{turn} in {spans:#?}");
    }

    let metrics = collector.items("/v1/metrics", ["resourceMetrics", "scopeMetrics", "metrics"]);
    let last = |name: &str| {
        let found = metrics.iter().rfind(|metric| metric["name"] == name);
        found.unwrap_or_else(|| panic!("no metric {name} in {metrics:#?}"))
    };
    let turns = &last("ostler_turn_duration_seconds")["histogram"]["dataPoints"][0];
    assert_eq!(turns["count"], "2", "{turns}");
    assert_eq!(
        turns["bucketCounts"].as_array().unwrap().len(),
        turns["explicitBounds"].as_array().unwrap().len() + 1
    );
    assert!(last("ostler_connections")["gauge"]["dataPoints"][0]["asDouble"].is_number());
    let cpu = &last("ostler_plugin_cpu_seconds")["sum"];
    assert_eq!((&cpu["isMonotonic"], &cpu["aggregationTemporality"]), (&json!(true), &json!(2)));
}

#[tokio::test]
async fn a_collector_that_refuses_is_one_line_of_the_log() {
    let collector = Collector::start("503 Service Unavailable");
    let folder = folder(exporting(&collector));
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    work(&mut client, &folder, &daemon).await;
    daemon.stop();
    let log = folder.read("log");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("otlp: ")).collect();
    let [line] = &lines[..] else { panic!("{log}") };
    assert!(line.contains("/v1/traces: the collector answered 503 Service Unavailable"), "{line}");
    assert!(collector.received().len() > 1);
}

#[test]
fn an_invalid_collector_stops_the_start() {
    for (otlp, why) in [
        (json!({ "endpoint": "localhost:4318" }), "otlp.endpoint must be an http or https URL"),
        (
            json!({ "endpoint": "http://a", "headers": { "a b": "c" } }),
            "otlp.headers: \"a b\" is not a valid HTTP header",
        ),
        (
            json!({ "endpoint": "http://a", "headers": { "a": "key\n" } }),
            "otlp.headers: \"a\" is not a valid HTTP header",
        ),
    ] {
        let folder = folder(json!({ "otlp": otlp }));
        let ended = folder.run(&[]);
        assert_eq!(ended.code, Some(2), "{}", ended.err);
        assert!(ended.err.contains(why), "{}", ended.err);
    }
}
