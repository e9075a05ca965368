//! Serving: webhook calls that become runs, clients that watch, and input that should not have come.

use std::fs;

use crate::support::{Client, Folder, runs_of, wait_for};
use serde_json::{Value, json};

const IN: &str = "/plugins/webhook/in";

#[tokio::test]
async fn a_call_becomes_a_run_whose_turn_a_client_watches() {
    let folder = Folder::with_webhook("{{event.name}} said {{event.words}}");
    let daemon = folder.start();
    let mut client = daemon.initialized("watcher").await;
    client.subscribe("ahp-automations://").await;
    let body = json!({ "name": "Ada", "words": "hello there" }).to_string();
    assert_eq!(daemon.post(IN, Some("right"), &body).await, (202, r#"{"endpoint":"in"}"#.to_owned()));
    let actions = client.actions_until("automation/set").await;
    let run = actions.last().unwrap()["action"]["automation"]["runs"][0].clone();
    assert_eq!(run["origin"]["kind"], "trigger");
    let runs = client.ended_runs(1).await;
    assert_eq!(runs[0]["lifecycle"]["status"], "completed", "{runs:?}");
    let session = runs[0]["primarySession"].as_str().unwrap().to_owned();
    let chat = client.subscribe(&ostler_protocol::uri::default_chat(&session)).await;
    let turn = &chat["turns"][0];
    let text = turn["message"]["text"].as_str().unwrap();
    assert!(
        text.starts_with("Ada said hello there\n\nWhat woke this run: call\nCount: 1\nAt: 20"),
        "{text:?}"
    );
    assert_eq!(turn["responseParts"][0]["content"], text);
}

/// A run's first message.
async fn message_of(client: &mut Client, run: &Value) -> String {
    let session = run["primarySession"].as_str().unwrap();
    let chat = client.subscribe(&ostler_protocol::uri::default_chat(session)).await;
    let turn = chat["turns"].as_array().unwrap().last().unwrap_or(&chat["activeTurn"]).clone();
    turn["message"]["text"].as_str().unwrap().split("\n\n").next().unwrap().to_owned()
}

#[tokio::test]
async fn numbers_keep_the_digits_of_their_sender() {
    let folder = Folder::with_webhook("id={{event.id}} n={{event.n}} z={{event.z}} all={{event.all}}");
    let daemon = folder.start();
    let mut client = daemon.initialized("watcher").await;
    client.subscribe("ahp-automations://").await;
    let body = r#"{"id":12345678901234567890123,"n":1e3,"z":1.10,"all":[1E400,{"half":0.50}]}"#;
    assert_eq!(daemon.post(IN, Some("right"), body).await.0, 202);
    let runs = client.ended_runs(1).await;
    let message = message_of(&mut client, &runs[0]).await;
    assert_eq!(message, "id=12345678901234567890123 n=1e3 z=1.10 all=[1E400,{\"half\":0.50}]");
    // What is longer than is read at once is read in another way.
    let long = body.replacen('{', &format!("{{\"long\":\"{}\",", "x".repeat(400_000)), 1);
    assert_eq!(daemon.post(IN, Some("right"), &long).await.0, 202);
    let runs = client.ended_runs(2).await;
    assert_eq!(message_of(&mut client, &runs[0]).await, message);
}

#[tokio::test]
async fn customers_whose_ids_differ_in_their_last_digit_have_sessions_of_their_own() {
    let folder = Folder::with_webhook("{{event.id}}");
    folder.write(
        "webhooks/in.md",
        "---\nid: in\nautomation: true\nsecret: host:in\nsession: { by: id }\nwhen: event.id != 12345678901234567890125\n---\n",
    );
    let daemon = folder.start();
    let mut client = daemon.initialized("watcher").await;
    client.subscribe("ahp-automations://").await;
    let mut sessions = Vec::new();
    for id in [
        "12345678901234567890123",
        "12345678901234567890124",
        "12345678901234567890123.0",
        r#""\ud800""#,
        r#""\ud801""#,
        "12345678901234567890125",
        r#""\ud800""#,
    ] {
        assert_eq!(daemon.post(IN, Some("right"), &format!(r#"{{"id":{id}}}"#)).await.0, 202, "{id}");
        if !id.ends_with('5') {
            let runs = client.ended_runs(sessions.len() + 1).await;
            sessions.push(runs[0]["primarySession"].as_str().unwrap().to_owned());
        }
    }
    let first = |at: usize| sessions.iter().position(|session| *session == sessions[at]);
    let firsts: Vec<_> = (0..sessions.len()).map(first).collect();
    assert_eq!(firsts, [Some(0), Some(1), Some(0), Some(3), Some(4), Some(3)], "{sessions:?}");
}

#[tokio::test]
async fn webhook_calls_are_answered_by_the_table() {
    let folder = Folder::with_webhook("x");
    folder.write("webhooks/bot.md", "---\nid: bot\nbot: bot://helper\nreply: none\nsecret: host:in\n---\n");
    folder.write("webhooks/bare.md", "---\nid: bare\nautomation: true\nsecret: host:unset\n---\n");
    folder.write("webhooks/wrong.md", "---\nid: wrong\nautomation: [1]\nsecret: host:in\n---\n");
    folder.write("webhooks/torn.md", "---\nid: torn\nautomation: true\nsec");
    let daemon = folder.start();
    let message = |text: &str| json!({ "message": text }).to_string();
    for (path, token, body, status) in [
        (IN, None, "{}", 401),
        (IN, Some("wrong"), "{}", 401),
        (IN, Some("rightt"), "{}", 401),
        (IN, Some("right"), "[]", 400),
        (IN, Some("right"), "{", 400),
        (IN, Some("right"), "", 400),
        ("/plugins/webhook/nobody", Some("right"), "{}", 404),
        ("/plugins/webhook", Some("right"), "{}", 404),
        ("/plugins/webhook/in/more", Some("right"), "{}", 404),
        ("/plugins/webhook/wrong", Some("right"), "{}", 404),
        ("/plugins/webhook/torn", Some("right"), "{}", 404),
        ("/plugins/webhook/bare", Some("right"), "{}", 401),
        ("/plugins/webhook/%2e%2e", Some("right"), "{}", 404),
        ("/plugins/webhook/a%2fb", Some("right"), "{}", 404),
        ("/plugins/webhook/%zz", Some("right"), "{}", 400),
        ("/plugins/other", None, "{}", 404),
        ("/plugins/webhookery", None, "{}", 404),
        (IN, Some("right"), "{}", 202),
    ] {
        let (seen, answer) = daemon.post(path, token, body).await;
        assert_eq!(seen, status, "{path} {token:?} {body}: {answer}");
        if status != 202 {
            let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
            assert!(answer["message"].is_string(), "{path}: {answer}");
            assert!(!answer.to_string().contains("right\""), "{answer}");
        }
    }
    let said = r#"{"thread":"t","text":"x"}"#;
    let nobody = (409, message("nothing here serves bot:"));
    assert_eq!(daemon.post("/plugins/webhook/bot", Some("right"), said).await, nobody);
    assert_eq!(daemon.post("/plugins/webhook/bot", Some("right"), "{}").await.0, 400);
    assert_eq!(daemon.post("/plugins/other", None, "").await.1, message("No plugin route at /plugins/other"));
    let get = daemon
        .exchange(
            format!("GET {IN} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", daemon.address())
                .as_bytes(),
        )
        .await;
    assert!(get.starts_with("HTTP/1.1 405"), "{get}");
    folder.wait_for_log("wrong");
    folder.wait_for_log("torn");
}

#[tokio::test]
async fn endpoints_are_added_edited_and_removed_while_the_host_runs() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    let status = async |path, expected| folder.wait_for_status(&daemon, path, expected).await;
    status("/plugins/webhook/later", 404).await;
    folder.write("webhooks/later.md", "---\nid: later\nautomation: true\nsecret: host:in\n---\n");
    status("/plugins/webhook/later", 202).await;
    folder.write("webhooks/later.md", "---\nid: later\nautomation: true\nsecret: host:other\n---\n");
    status("/plugins/webhook/later", 401).await;
    folder.write("vault.json", r#"{ "host:in": "right", "host:other": "right" }"#);
    status("/plugins/webhook/later", 202).await;
    // A record that is broken by an edit is reported, and the one kept goes on serving.
    folder.write("webhooks/later.md", "---\nid: [\n---\n");
    folder.wait_for_log("later.md");
    status("/plugins/webhook/later", 202).await;
    fs::remove_file(folder.path().join("webhooks/later.md")).unwrap();
    status("/plugins/webhook/later", 404).await;
}

#[tokio::test]
async fn automations_are_reread_when_edited() {
    let folder = Folder::with_webhook("first");
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    daemon.post(IN, Some("right"), "{}").await;
    client.ended_runs(1).await;
    let file = "automations/note.md";
    folder.write(file, &folder.read(file).replace("first", "second"));
    loop {
        let state = client.actions_until("automation/set").await;
        if state.last().unwrap()["action"]["automation"]["definition"]["message"]["text"] == "second" {
            break;
        }
    }
    folder.write(file, "---\ntitle: [\n---\n");
    folder.wait_for_log("note.md");
    daemon.post(IN, Some("right"), "{}").await;
    assert_eq!(client.ended_runs(2).await.len(), 2);
    fs::remove_file(folder.path().join(file)).unwrap();
    client.actions_until("automation/removed").await;
}

#[tokio::test]
async fn connections_and_routes_are_guarded() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start_with(&["--connection-token", "open sesame"]);
    let ask =
        async |head: &str| daemon.exchange(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).await;
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade, close\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let host = daemon.address();
    let refused =
        daemon.exchange(format!("GET / HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n\r\n").as_bytes()).await;
    assert!(
        refused.starts_with("HTTP/1.1 401") && refused.ends_with("A connection token is required"),
        "{refused}"
    );
    let plain = ask(&format!("GET / HTTP/1.1\r\nHost: {host}")).await;
    assert!(
        plain.starts_with("HTTP/1.1 426")
            && plain.ends_with("ostler speaks the Agent Host Protocol over WebSocket"),
        "{plain}"
    );
    let api = ask(&format!("GET /api/status HTTP/1.1\r\nHost: {host}")).await;
    assert!(api.starts_with("HTTP/1.1 404") && api.contains("No API at /api/status"), "{api}");
    let foreign = ask(&format!("POST {IN} HTTP/1.1\r\nHost: evil.example")).await;
    assert!(
        foreign.starts_with("HTTP/1.1 403") && foreign.contains("This route does not answer to evil.example"),
        "{foreign}"
    );
    // A route asks neither for the host's token nor where a page is from; the plugin does.
    let called = ask(&format!(
        "POST {IN} HTTP/1.1\r\nHost: {host}\r\nOrigin: https://evil.example\r\nAuthorization: Bearer right\r\nContent-Length: 0"
    ))
    .await;
    assert!(called.starts_with("HTTP/1.1 400") && called.contains("The body is not JSON"), "{called}");
    let mut client = Client::connect(&format!("{}/?tkn=open%20sesame", daemon.url)).await;
    client.initialize("c").await;
    // Never the secret, in a log or an announcement.
    assert!(!folder.read("log").contains("sesame"));
    assert!(daemon.block.iter().all(|line| !line.contains("sesame")), "{:?}", daemon.block);
}

/// Returns the status of the answer to a request, whose connection can stay open.
#[cfg(feature = "console")]
async fn status_of(daemon: &crate::support::Daemon, request: &str) -> u16 {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let mut stream = BufReader::new(tokio::net::TcpStream::connect(daemon.address()).await.unwrap());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[cfg(feature = "console")]
#[tokio::test]
async fn a_host_without_a_token_serves_its_own_and_named_pages_only() {
    let folder = Folder::new(json!({
        "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/console" }],
        "origins": ["https://console.example", "http://localhost:4711"],
    }));
    let daemon = folder.start();
    let (address, port) = (daemon.address(), daemon.address().rsplit_once(':').unwrap().1);
    let socket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    // What a listener serves: the path, more headers, the status of an accepted request, and whether `Origin` is checked.
    let entries = [
        ("/", socket, 101, true),
        ("/api/me", "Connection: close\r\n", 200, true),
        ("/plugins/console/", "Connection: close\r\n", 200, false),
    ];
    let own = format!("http://{address}");
    let names = [address.to_owned(), format!("localhost:{port}"), "console.example".to_owned()];
    let pages = [
        own.clone(),
        format!("http://localhost:{port}"),
        "vscode-file://vscode-app".to_owned(),
        "https://console.example".to_owned(),
        "http://localhost:4711".to_owned(),
    ];
    let foreign_names = ["evil.example", "localhost:1", "127.0.0.1"].map(str::to_owned);
    let foreign_pages = [
        "http://127.0.0.1:1",
        "http://localhost",
        "http://localhost:4712",
        "http://console.example",
        "https://evil.example",
        "null",
    ]
    .map(str::to_owned);
    for (path, headers, accepted, checks_origin) in entries {
        let ask = async |host: &str, origin: Option<&str>| {
            let origin = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
            status_of(&daemon, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{origin}{headers}\r\n")).await
        };
        for host in &names {
            assert_eq!(ask(host, None).await, accepted, "{path} at {host}");
        }
        for host in &foreign_names {
            assert_eq!(ask(host, None).await, 403, "{path} at {host}");
            assert_eq!(ask(host, Some(&own)).await, 403, "{path} at {host}");
        }
        for page in &pages {
            assert_eq!(ask(address, Some(page)).await, accepted, "{path} from {page}");
        }
        let expected = if checks_origin { 403 } else { accepted };
        for page in &foreign_pages {
            assert_eq!(ask(address, Some(page)).await, expected, "{path} from {page}");
        }
    }
}

#[tokio::test]
async fn a_body_cut_short_fires_nothing() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    use tokio::io::AsyncWriteExt;
    for _ in 0..20 {
        let mut stream = tokio::net::TcpStream::connect(daemon.address()).await.unwrap();
        let head = format!(
            "POST {IN} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer right\r\nContent-Length: 20\r\n\r\n{{}}",
            daemon.address()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
    }
    assert_eq!(daemon.post(IN, Some("right"), "{}").await.0, 202);
    let mut client = daemon.initialized("c").await;
    assert_eq!(client.ended_runs(1).await.len(), 1);
}

#[tokio::test]
async fn a_plugin_that_fails_costs_itself_alone() {
    let folder = Folder::with_webhook("x");
    let plugins = [
        ("throws", "throw new Error('at import');"),
        ("applies", "export function apply() { throw new TypeError('in apply'); }"),
        ("rejects", "export function apply() { Promise.reject(new Error('nobody waits')); }"),
        ("spins", "export function apply() { setTimeout(() => { for (;;) {} }, 0); }"),
        ("syntax", "export function apply( {"),
        ("nothing", "export const name = 'nothing';"),
    ];
    for (name, source) in plugins {
        folder.write(&format!("{name}.mjs"), source);
    }
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    let entries = config["plugins"].as_array_mut().unwrap();
    entries.extend(plugins.iter().map(|(name, _)| json!({ "name": format!("./{name}.mjs") })));
    folder.write("config.json", &config.to_string());
    let daemon = folder.start();
    assert!(daemon.block.contains(&"plugins echo, webhook, rejects, spins".to_owned()), "{:?}", daemon.block);
    for line in ["at import", "in apply", "nobody waits", "syntax.mjs", "nothing"] {
        folder.wait_for_log(line);
    }
    assert_eq!(daemon.post(IN, Some("right"), "{}").await.0, 202);
    let mut client = daemon.initialized("c").await;
    client.ended_runs(1).await;
    folder.wait_for_log("spins");
}

#[tokio::test]
async fn stdio_serves_one_connection() {
    let folder = Folder::with_webhook("x");
    let mut daemon = folder.over_stdio();
    assert_eq!(daemon.initialize("1.0.0")["protocolVersion"], "1.0.0");
    let ended = daemon.end();
    assert!(ended.err.contains("ostler over stdio (ostler "), "{}", ended.err);
    assert_eq!(ended.code, Some(0));
}

#[tokio::test]
async fn runs_are_found_in_the_catalogue() {
    let folder = Folder::with_webhook("/fail no oats");
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    daemon.post(IN, Some("right"), "{}").await;
    let runs = client.ended_runs(1).await;
    assert_eq!(runs[0]["lifecycle"]["status"], "failed");
    let catalogue = client.subscribe("ahp-automations://").await;
    assert_eq!(runs_of(&catalogue, "note").len(), 1);
    let run = client.subscribe(runs[0]["resource"].as_str().unwrap()).await;
    assert!(run["lifecycle"]["error"]["message"].as_str().unwrap().contains("no oats"), "{run}");
}

#[tokio::test]
async fn the_daemon_tells_of_itself_without_any_plugin() {
    let folder = Folder::with_webhook("Go.");
    let daemon = folder.start();
    let mut client = daemon.client().await;
    let told = client.initialize("watcher").await;
    assert_eq!(told["telemetry"], json!({ "logs": "ahp-otlp://logs/{level}" }));
    client.request("subscribe", json!({ "channel": "ahp-otlp://logs/info" })).await.unwrap();
    // Something the log says: an endpoint whose record does not read.
    folder.write("webhooks/broken.md", "---\nid: broken\nautomation: perhaps\n---\n");
    let line = loop {
        let frame = client.next_frame().await.unwrap();
        if frame["method"] == "otlp/exportLogs" {
            let record = &frame["params"]["payload"]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
            let line = record["body"]["stringValue"].as_str().unwrap().to_owned();
            if line.contains("broken") {
                assert_eq!(record["severityText"], "INFO");
                break line;
            }
        }
    };
    assert!(folder.wait_for_log("broken").contains(&line), "what is told is what the log says");
    let network = client.request("x-ostler/diagnostics/network", json!({})).await.unwrap();
    assert!(network["proxies"].is_object(), "{network}");
    let url = format!("http://{}/api", daemon.address());
    let tried = client.request("x-ostler/diagnostics/fetch", json!({ "url": url })).await.unwrap();
    assert_eq!((&tried["url"], &tried["status"]), (&json!(url), &json!(404)), "{tried}");
    assert!(tried["milliseconds"].is_u64());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_daemon_returns_the_memory_that_work_left_free() {
    let folder = Folder::with_webhook("hello");
    let daemon = folder.start();
    let memory = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        anonymous.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = memory();
    let mut clients = Vec::new();
    for number in 0..300 {
        clients.push(daemon.initialized(&format!("client-{number}")).await);
    }
    let busy = memory();
    // What stays in use lies behind what becomes free, so that the allocator returns nothing without a trim.
    clients.drain(..290);
    let rested = wait_for(|| (memory() + 600 < busy).then_some(()));
    assert!(rested.is_some(), "{before} kB before, {busy} kB with clients, {} kB at rest", memory());
    println!("{before} kB before, {busy} kB with clients, {} kB at rest", memory());
    assert_eq!(daemon.post(IN, Some("right"), "{}").await.0, 202);
    daemon.initialized("c").await.ended_runs(1).await;
    assert!(!folder.read("log").contains("panicked"), "{}", folder.read("log"));
}
