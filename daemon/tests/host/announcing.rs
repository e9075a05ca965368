//! What a plugin says and hears in a real daemon, over a listener and over stdio.

use std::io::BufRead;

use crate::support::{Folder, wait_for};
use serde_json::{Value, json};

/// Logs what it hears of the daemon, and what its connection answers once the daemon stops.
const WATCHER: &str = r#"
export const name = 'watcher';
export function apply(host) {
  host.problem('one record\x1b[31m\nis broken');
  let peer;
  host.on('listening', (event, context) => {
    context.say(`watcher at ${event.host}`);
    peer = host.connect();
    host.log(`heard ${JSON.stringify(event)}`);
  });
  host.on('stopping', (event) => host.log(`heard ${JSON.stringify(event)}`));
  host.registerClose(async () => {
    const says = async (what) => { try { await what(); return 'taken'; } catch (error) { return error.message; } };
    host.log(`request: ${await says(() => peer.request('ping'))}`);
    host.log(`notify: ${await says(() => peer.notify('dispatchAction', {}))}`);
    host.say('too late');
  });
}
"#;

fn watched() -> Folder {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./watcher.mjs" }] }));
    folder.write("watcher.mjs", WATCHER);
    folder
}

/// What the log holds of the watcher, from when the daemon was up.
fn heard(log: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| line.split_once("plugin watcher: ")).map(|(_, said)| said);
    lines.map(str::to_owned).collect()
}

#[test]
fn what_a_plugin_says_is_announced_and_it_hears_the_end() {
    let folder = watched();
    let mut daemon = folder.start();
    let mut lines = (&mut daemon.out).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), r"skipped: one record\u{1b}[31m is broken");
    assert_eq!(lines.next().unwrap(), "watcher at 127.0.0.1");
    drop(lines);
    let port: u16 = daemon.address().rsplit(':').next().unwrap().parse().unwrap();
    assert_eq!(daemon.stop(), Some(0));
    let heard = heard(&folder.read("log"));
    let listening: Value = serde_json::from_str(heard[0].strip_prefix("heard ").unwrap()).unwrap();
    assert_eq!(
        listening,
        json!({ "type": "listening", "runtime": "ostler", "host": "127.0.0.1", "port": port, "guarded": false })
    );
    assert_eq!(
        heard[1..],
        [
            r#"heard {"type":"stopping"}"#,
            "request: this connection is closed",
            "notify: this connection is closed",
            "announced after the start, dropped: too late",
        ]
    );
}

#[tokio::test]
async fn the_frames_of_a_connection_are_recorded_where_that_is_asked() {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let mut daemon = folder.start_with(&["--wire", "frames.jsonl"]);
    let mut line = String::new();
    daemon.out.read_line(&mut line).unwrap();
    assert_eq!(line, format!("wire to {}\n", folder.path().join("frames.jsonl").display()));
    let mut client = daemon.initialized("c").await;
    let token = json!({ "resource": "https://inn.example", "token": "SECRET-token" });
    client.request("authenticate", token).await.unwrap_err();
    client.send("no frame").await;
    client.next_frame().await.unwrap();
    client.send(&format!(r#"{{"jsonrpc":"2.0","id":9,"method":"{}"}}"#, "x".repeat(2 << 20))).await;
    client.next_frame().await.unwrap();
    client.request("ping", json!({})).await.unwrap();
    assert_eq!(daemon.stop(), Some(0));

    let recorded = folder.read("frames.jsonl");
    assert!(!recorded.contains("SECRET"), "{recorded}");
    let lines: Vec<Value> = recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |from: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["from"] == from).map(|line| &line["frame"]).collect()
    };
    let (sent, answered) = (of("client"), of("host"));
    assert_eq!((&sent[0]["method"], &answered[0]["id"]), (&json!("initialize"), &sent[0]["id"]));
    assert_eq!(sent[1]["params"]["token"], "<set>");
    assert_eq!(sent[2], "no frame");
    assert_eq!(answered[2]["error"]["code"], -32700);
    let cut = lines.iter().find(|line| line.get("bytes").is_some()).unwrap();
    assert!(cut["bytes"].as_u64().unwrap() > 2 << 20 && cut["frame"].as_str().unwrap().len() == 1 << 20);
    assert_eq!(answered.last().unwrap()["result"], Value::Null);
    assert!(lines.iter().all(|line| line["connection"] == lines[0]["connection"]));
}

#[test]
fn over_stdio_a_plugin_hears_the_same() {
    let folder = watched();
    let mut daemon = folder.over_stdio();
    daemon.initialize("1.0.0");
    let ended = daemon.end();
    let said = ended.err;
    assert!(said.contains("\nskipped: one record\\u{1b}[31m is broken\nwatcher at stdio\n"), "{said}");
    assert_eq!(
        heard(&said),
        [
            r#"heard {"type":"listening","runtime":"ostler","host":"stdio","port":0,"guarded":false}"#,
            r#"heard {"type":"stopping"}"#,
            "request: this connection is closed",
            "notify: this connection is closed",
            "announced after the start, dropped: too late",
        ]
    );
    assert_eq!(ended.code, Some(0));
}

#[tokio::test]
async fn mcp_servers_are_read_from_the_file_at_each_sessions_start() {
    let folder = Folder::new(json!({ "plugins": [{ "name": "./probe.mjs" }] }));
    folder.write(
        "probe.mjs",
        "export const name = 'probe';\n\
         export function apply(host) {\n\
           host.registerAgent({\n\
             provider: 'probe', displayName: 'Probe', schema: () => ({ properties: {} }), defaults: () => ({}),\n\
             create: (start) => {\n\
               host.log(`servers ${'mcpServers' in start && start.mcpServers !== undefined ? JSON.stringify(start.mcpServers) : 'absent'}`);\n\
               return { begin() {}, cancel() {}, close() {} };\n\
             },\n\
           });\n\
         }",
    );
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    let mut start = async |number: usize, servers: Value, seen: &str| {
        config["mcpServers"] = servers;
        folder.write("config.json", &config.to_string());
        let session = json!({ "channel": format!("probe:/{number}") });
        client.request("createSession", session).await.unwrap();
        let log = wait_for(|| {
            let log = folder.read("log");
            let seen: Vec<String> =
                log.lines().filter_map(|line| Some(line.split_once("servers ")?.1.to_owned())).collect();
            (seen.len() >= number).then_some(seen)
        });
        assert_eq!(log.unwrap().last().unwrap(), seen);
    };
    start(1, json!({}), "absent").await;
    let both = json!({ "a": { "type": "http", "url": "https://a.example/" }, "b": { "type": "stdio", "command": "serve" } });
    start(2, both.clone(), &both.to_string()).await;
    start(3, json!({ "a": { "type": "http" } }), "absent").await;
    folder.wait_for_log("config.json: mcpServers.a is an http server without url; ignored");
    folder.write("vault.json", &json!({ "host:key": "the key" }).to_string());
    let named = |name: &str| json!({ "n": { "type": "stdio", "command": "serve", "env": { "KEY": { "$secret": name } }, "odd": 1 } });
    let read = json!({ "n": { "type": "stdio", "command": "serve", "env": { "KEY": "<set>" } } });
    // No line holds a secret that was read, so this is the secret and nothing else.
    start(4, named("host:key"), &read.to_string()).await;
    folder.wait_for_log("mcpServers.n.odd is not a field of a stdio server");
    start(5, named("team:inn/key"), "absent").await;
    let line = "probe:/5: skipped mcpServers.n: env.KEY names team:inn/key: it is for sessions of team inn";
    folder.wait_for_log(line);
    // Both forms, with every field they may have.
    let whole = |secret: Value| {
        json!({
            "a": { "type": "http", "url": "https://a.example/mcp", "headers": { "x-key": secret } },
            "b": { "type": "stdio", "command": "serve", "args": ["--depth", "2"], "env": { "KEY": secret }, "cwd": "/srv/b" },
        })
    };
    start(6, whole(json!({ "$secret": "host:key" })), &whole(json!("<set>")).to_string()).await;
}

#[tokio::test]
async fn plugin_routes_move_to_a_listener_of_their_own() {
    let folder = Folder::with_webhook("x");
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["routes"] = json!({ "port": 0, "host": "127.0.0.1" });
    config["origins"] = json!(["https://hooks.example"]);
    config["plugins"].as_array_mut().unwrap().push(json!({ "name": "./named.mjs" }));
    folder.write("config.json", &config.to_string());
    folder.write(
        "named.mjs",
        "export const name = 'named';\n\
         export function apply(host) { host.on('listening', (_, context) => context.say('named at https://named.example/')); }",
    );
    let mut daemon = folder.start();
    let mut line = String::new();
    daemon.out.read_line(&mut line).unwrap();
    let routes =
        line.trim().strip_prefix("routes on http://").and_then(|rest| rest.strip_suffix("/plugins/"));
    let routes = routes.unwrap_or_else(|| panic!("no line for the routes: {line}")).to_owned();
    assert_ne!(routes, daemon.address());
    let path = "/plugins/webhook/in";
    let post = async |address: &str, path: &str| {
        crate::support::post(address, path, Some("right"), "{}").await.expect("an answer").0
    };
    assert_eq!(post(&routes, path).await, 202);
    assert_eq!(post(daemon.address(), path).await, 404);
    for elsewhere in ["/", "/api/config", "/api/status", "/v1/models", "/v1", "/ahp-mcp/x"] {
        assert_eq!(post(&routes, elsewhere).await, 404, "{elsewhere}");
    }
    assert!(tokio_tungstenite::connect_async(format!("ws://{routes}")).await.is_err(), "no protocol there");
    let to = async |host: &str| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer right\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        crate::support::exchange(&routes, head.as_bytes()).await.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(to(&routes).await, "202");
    assert_eq!(to("hooks.example").await, "202", "a name of origins");
    assert_eq!(to("named.example").await, "403", "a name a plugin announced");
    assert_eq!(to("evil.example").await, "403");
    let stdio = folder.run(&["--stdio"]);
    assert_eq!(stdio.code, Some(2));
    assert!(stdio.err.contains("routes requires a listener, which --stdio does not have"), "{}", stdio.err);
}
