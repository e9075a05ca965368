//! Input that should not have come, against a daemon of its own: each gets the answer or the line that says
//! what is wrong, what was kept stays, and the daemon goes on.

use std::fs;
use std::io::{BufRead, Write};

use crate::support::{Client, Daemon, Folder};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Bytes, Message};

const IN: &str = "/plugins/webhook/in";

/// The whole way still works: a call is taken, and its run completes.
async fn goes_on(daemon: &Daemon) {
    let mut client = daemon.initialized("afterwards").await;
    let before = client.ended_runs(0).await.len();
    assert_eq!(daemon.post(IN, Some("right"), "{}").await.0, 202);
    let runs = client.ended_runs(before + 1).await;
    assert_eq!(runs[0]["lifecycle"]["status"], "completed", "{runs:?}");
}

/// Frames a connection takes, answers with an error of this code that says this, and outlives.
async fn refused(frames: &[(&str, i64, &str)]) {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    for (frame, code, says) in frames {
        client.send(frame).await;
        let answer = client.next_frame().await.expect("the connection goes on");
        assert_eq!(answer["error"]["code"], json!(code), "{frame}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(says), "{frame}: {message:?} does not say {says:?}");
        assert_eq!(client.request("ping", json!({})).await, Ok(Value::Null), "{frame}");
    }
    goes_on(&daemon).await;
}

/// As [`refused`], for requests: each a method, its params, and what is said of them.
async fn refused_requests(requests: &[(&str, Value, i64, &str)]) {
    let frames: Vec<String> = requests
        .iter()
        .map(|(method, params, ..)| {
            json!({ "jsonrpc": "2.0", "id": "q", "method": method, "params": params }).to_string()
        })
        .collect();
    let expected =
        frames.iter().zip(requests).map(|(frame, (_, _, code, says))| (frame.as_str(), *code, *says));
    refused(&expected.collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_frame_that_is_not_json() {
    refused(&[
        ("", -32700, "the frame is not JSON"),
        ("{", -32700, "the frame is not JSON"),
        ("nonsense", -32700, "the frame is not JSON"),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}", -32700, "the frame is not JSON"),
        (&"[".repeat(100_000), -32700, "the frame is not JSON"),
        ("\u{0}", -32700, "the frame is not JSON"),
    ])
    .await;
}

#[tokio::test]
async fn a_frame_that_is_no_message() {
    refused(&[
        ("3", -32600, "expected an object"),
        ("null", -32600, "expected an object"),
        ("\"ping\"", -32600, "expected an object"),
        ("{}", -32600, "jsonrpc must be \"2.0\""),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600, "jsonrpc must be \"2.0\""),
        (r#"{"jsonrpc":"2.0","id":[],"method":"ping"}"#, -32600, "id must be a number or a string"),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600, "a message must have a method, a result or an error"),
        (r#"{"jsonrpc":"2.0","id":1,"method":1}"#, -32600, "method must be a string"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"#, -32600, "params must be an object"),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, -32600, "duplicate field `id`"),
    ])
    .await;
}

#[tokio::test]
async fn a_batch() {
    let says = "one message per frame; batches are not part of the protocol";
    refused(&[("[]", -32600, says), (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600, says)]).await;
}

#[tokio::test]
async fn an_unknown_channel() {
    let unknown = |channel: &str, code, says| ("subscribe", json!({ "channel": channel }), code, says);
    refused_requests(&[
        unknown("echo:/nobody", -32001, "No agent for session echo:/nobody"),
        unknown("ahp-chat:/nobody", -32001, "No chat at ahp-chat:/nobody"),
        unknown("ahp-chat://default/!!", -32001, "No chat at"),
        unknown("ahp-automation-run:/nobody", -32008, "No run at ahp-automation-run:/nobody"),
        unknown("x-nobody://all", -32601, "nothing here serves x-nobody:"),
        unknown("nothing at all", -32008, "there is no channel nothing at all"),
        unknown("", -32008, "there is no channel"),
        unknown("../../etc/passwd", -32008, "there is no channel"),
        ("disposeSession", json!({ "channel": "echo:/nobody" }), -32001, "No agent for session"),
        ("listSessions", json!({ "channel": "echo:/nobody" }), -32602, "ahp-root://"),
    ])
    .await;
}

#[tokio::test]
async fn params_of_the_wrong_type() {
    let subscribe = |params| ("subscribe", params, -32602, "subscribe: channel");
    refused_requests(&[
        subscribe(json!({ "channel": 3 })),
        subscribe(json!({ "channel": null })),
        subscribe(json!({ "channel": {} })),
        ("subscribe", json!({}), -32602, "missing field `channel`"),
        ("createSession", json!({ "channel": "echo:/1", "config": [] }), -32602, "createSession: config"),
        (
            "createSession",
            json!({ "channel": "echo:/1", "provider": "echo", "config": { "delayMs": "abc", "zz": 1 } }),
            -32602,
            "delayMs does not fit: \"abc\" is not of type \"number\"",
        ),
        (
            "createSession",
            json!({ "channel": "echo:/a\nb", "provider": "echo" }),
            -32602,
            r#""echo:/a\nb" is not a session URI: it contains a control character"#,
        ),
        (
            "createSession",
            json!({ "channel": "echo:/1", "workingDirectories": [1] }),
            -32602,
            "createSession: workingDirectories[0]",
        ),
        ("listSessions", json!({ "limit": "many" }), -32602, "listSessions: limit"),
        (
            "reconnect",
            json!({ "clientId": "c", "lastSeenServerSeq": "x", "subscriptions": [] }),
            -32602,
            "reconnect: lastSeenServerSeq",
        ),
        ("noSuchThing", json!({}), -32601, "noSuchThing is not a command this host serves"),
    ])
    .await;
}

/// Half a character, as `JSON.stringify` writes an emoji that was cut in two.
#[tokio::test]
async fn half_a_character() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    client.request("createSession", json!({ "channel": "echo:/half", "provider": "echo" })).await.unwrap();
    let session = client.subscribe("echo:/half").await;
    let chat = session["defaultChat"].as_str().unwrap().to_owned();
    client.subscribe(&chat).await;
    let turn = r#"{"type":"chat/turnStarted","turnId":"t","message":{"text":"cut \ud83d, whole \ud83d\ude00, said \\ud83d"}}"#;
    client
        .send(&format!(
            r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":{{"channel":"{chat}","clientSeq":1,"action":{turn}}}}}"#
        ))
        .await;
    let started = client.actions_until("chat/turnStarted").await.pop().unwrap();
    assert_eq!(started["origin"], json!({ "clientId": "c", "clientSeq": 1 }), "{started}");
    assert!(started.get("rejectionReason").is_none(), "{started}");
    assert_eq!(started["action"]["message"]["text"], "cut \u{fffd}, whole \u{1f600}, said \\ud83d",);
    let (status, answer) = daemon.post(IN, Some("right"), r#"{"a":"\ud800","escaped":"\\ud800"}"#).await;
    assert_eq!(status, 202, "{answer}");
    let runs = client.ended_runs(1).await;
    let event = &runs[0]["origin"]["event"];
    assert_eq!((&event["a"], &event["escaped"]), (&json!("\u{fffd}"), &json!("\\ud800")), "{runs:?}");
}

#[tokio::test]
async fn an_action_that_does_not_read() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    client.request("createSession", json!({ "channel": "echo:/1", "provider": "echo" })).await.unwrap();
    let deep = format!(
        r#","action":{{"type":"session/titleChanged","title":{}1{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    for (seq, action, says) in [
        (1, "", "missing field `action`"),
        (2, r#","action":null"#, "type"),
        (3, r#","action":[1]"#, "type"),
        (4, r#","action":"x""#, "type"),
        (5, r#","action":{"type":5}"#, "type"),
        (6, r#","action":{"type":"no/such"}"#, "no/such"),
        (7, r#","action":{"type":"session/titleChanged"}"#, "session/titleChanged"),
        (8, r#","action":{"type":"session/titleChanged","title":1e999}"#, "number out of range"),
        (9, &deep, "recursion limit"),
    ] {
        client
            .send(&format!(
                r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":{{"channel":"echo:/1","clientSeq":{seq}{action}}}}}"#
            ))
            .await;
        let echo = loop {
            let frame = client.next_text().await;
            if frame.contains(r#""method":"action""#) {
                break frame;
            }
        };
        let origin = format!(r#""origin":{{"clientId":"c","clientSeq":{seq}}}"#);
        let (_, reason) =
            echo.rsplit_once(r#","rejectionReason":"#).unwrap_or_else(|| panic!("{action}: {echo}"));
        assert!(echo.contains(&origin) && reason.contains(says), "{action}: {echo}");
    }
    // Nothing to echo where the client's own count does not read: the connection goes on.
    for seq in ["\"one\"", "1.5", "1e30"] {
        client
            .send(&format!(
                r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":{{"channel":"echo:/1","clientSeq":{seq},"action":{{"type":"no/such"}}}}}}"#
            ))
            .await;
    }
    assert_eq!(client.request("ping", json!({})).await, Ok(Value::Null));
    goes_on(&daemon).await;
}

#[tokio::test]
async fn a_binary_frame() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    let mut watcher = daemon.initialized("w").await;
    // A message is a message, whatever the frame it came in calls itself.
    watcher
        .send_message(Message::Binary(Bytes::from_static(br#"{"jsonrpc":"2.0","id":"b","method":"ping"}"#)))
        .await;
    assert_eq!(watcher.next_frame().await.unwrap()["id"], "b");
    let mut binary = daemon.initialized("b").await;
    binary.send_message(Message::Binary(Bytes::from_static(b"\xff\xfe\x00"))).await;
    assert_eq!(binary.closed().await, (1002, "not the Agent Host Protocol".to_owned()));
    assert_eq!(watcher.request("ping", json!({})).await, Ok(Value::Null));
    goes_on(&daemon).await;
}

#[tokio::test]
async fn a_frame_over_the_limit() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    let mut watcher = daemon.initialized("w").await;
    // Said from the frame's head, before a byte of it is read; and when its parts are too much together.
    let head = |opcode: u8, length: u64| {
        let mut head = vec![opcode, 0xff];
        head.extend_from_slice(&length.to_be_bytes());
        head.extend_from_slice(&[0; 4]);
        head
    };
    let mut whole = daemon.initialized("l").await;
    whole.send_bytes(&head(0x81, 80 << 20)).await;
    assert_eq!(whole.closed().await, (1009, "the frame is too large".to_owned()));
    let mut parts = daemon.initialized("p").await;
    for opcode in [0x01, 0x80] {
        parts.send_bytes(&head(opcode, 17 << 20)).await;
        parts.send_bytes(&vec![b' '; 17 << 20]).await;
    }
    assert_eq!(parts.closed().await, (1009, "the frame is too large".to_owned()));
    assert_eq!(watcher.request("ping", json!({})).await, Ok(Value::Null));
    goes_on(&daemon).await;
}

#[tokio::test]
async fn a_line_over_the_limit_on_stdio() {
    let folder = Folder::with_webhook("x");
    let mut daemon = folder.over_stdio();
    let mut input = daemon.take_input();
    let writing = std::thread::spawn(move || {
        // What is refused half-way is not read to its end.
        let _ = input.write_all(&vec![b' '; 40 << 20]).and_then(|()| input.write_all(b"\n"));
    });
    let answer = daemon.next().unwrap();
    assert_eq!(answer["error"]["code"], -32600);
    assert!(answer["error"]["message"].as_str().unwrap().starts_with("a message is at most "), "{answer}");
    let ended = daemon.end();
    assert_eq!((ended.code, ended.unread), (Some(0), vec![]));
    writing.join().unwrap();
}

#[tokio::test]
async fn a_handshake_nobody_can_answer() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    let mut client = daemon.client().await;
    let offer = json!({ "channel": "ahp-root://", "clientId": "c", "protocolVersions": ["0.5.1"] });
    let refused = client.request("initialize", offer).await.unwrap_err();
    assert_eq!(refused["code"], -32005);
    assert_eq!(refused["data"], json!({ "supportedVersions": ["1.0.0", "0.9.0"] }));
    assert_eq!(client.closed().await.0, 1002);
    goes_on(&daemon).await;
}

#[tokio::test]
async fn a_path_that_leads_elsewhere() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    let malformed = r#"{"message":"The request path or Host is not valid"}"#;
    for path in
        ["/plugins/webhook/%zz", "/plugins/webhook/%", "/plugins/webhook/in%2", "/%ff%fe", "/plugins/%c3%28"]
    {
        assert_eq!(daemon.post(path, Some("right"), "{}").await, (400, malformed.to_owned()), "{path}");
    }
    for path in [
        "/plugins/webhook/../webhook/in",
        "/plugins/../plugins/webhook/in",
        "/plugins/./webhook/in",
        "/plugins/webhook/./in",
        "/plugins/webhook/%2e%2e/in",
        "/plugins/webhook%2fin",
        "/plugins/webhook/in%2f",
        "/plugins/webhook/..%2fwebhook%2fin",
        "/plugins/webhook/in%00",
        "/plugins/webhook/i%6e",
        "/plugins/webhook//in",
        "/plugins//webhook/in",
        "/plugins/webhook/in/",
        "/plugins/webhook/IN",
        "/plugins%2fwebhook%2fin",
        "//plugins/webhook/in",
    ] {
        let (status, answer) = daemon.post(path, Some("right"), "{}").await;
        assert!(matches!(status, 404 | 426), "{path}: {status} {answer}");
    }
    // What is no HTTP at all.
    for junk in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET /a b HTTP/1.1\r\n\r\n",
        b"POST \xff HTTP/1.1\r\n\r\n",
        b"\r\n\r\n\r\n\x00",
    ] {
        let answer = daemon.exchange_half(junk).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    goes_on(&daemon).await;
    let mut client = daemon.initialized("c").await;
    assert_eq!(client.ended_runs(1).await.len(), 1, "none of the paths fired anything");
}

#[tokio::test]
async fn a_body_over_the_limit() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(25 << 20));
    let (status, answer) = daemon.post(IN, Some("right"), &body).await;
    assert_eq!((status, answer.as_str()), (400, r#"{"message":"The body is larger than 26214400 bytes"}"#));
    // In chunks, its length is not known beforehand.
    let mut request = format!(
        "POST {IN} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer right\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
        daemon.address()
    )
    .into_bytes();
    for _ in 0..26 {
        request.extend_from_slice(b"100000\r\n");
        request.resize(request.len() + (1 << 20), b' ');
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"2\r\n{}\r\n0\r\n\r\n");
    let answer = daemon.exchange(&request).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    // Without the token, none of it is read.
    let announced = format!(
        "POST {IN} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 99999999999\r\n\r\n",
        daemon.address()
    );
    assert!(daemon.exchange(announced.as_bytes()).await.starts_with("HTTP/1.1 401"));
    // With it, what says that it is too much is not waited for: none of it is ever sent.
    let begun = std::time::Instant::now();
    for length in ["26214401", "99999999999"] {
        let announced = format!(
            "POST {IN} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer right\r\nExpect: 100-continue\r\n\
             Connection: close\r\nContent-Length: {length}\r\n\r\n",
            daemon.address()
        );
        let answer = daemon.exchange(announced.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(answer.ends_with(r#"{"message":"The body is larger than 26214400 bytes"}"#), "{answer}");
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "a body that does not come has 30 seconds");
    goes_on(&daemon).await;
    let mut client = daemon.initialized("c").await;
    assert_eq!(client.ended_runs(1).await.len(), 1);
}

#[tokio::test]
async fn a_body_cut_short() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    for body in ["Content-Length: 20\r\n\r\n{}", "Transfer-Encoding: chunked\r\n\r\n5\r\n{}"] {
        let head = format!("POST {IN} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer right", daemon.address());
        let answer = daemon.exchange_half(format!("{head}\r\n{body}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{body:?}: {answer}");
        assert!(answer.contains(r#"{"message":"The body was cut short: "#), "{body:?}: {answer}");
    }
    goes_on(&daemon).await;
    let mut client = daemon.initialized("c").await;
    assert_eq!(client.ended_runs(1).await.len(), 1, "none of the bodies fired anything");
}

#[tokio::test]
async fn a_body_that_lies_about_itself() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    let head = format!(
        "POST {IN} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer right\r\nConnection: close\r\n",
        daemon.address()
    );
    for rest in [
        "Content-Length: 20\r\n\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "Content-Length: -1\r\n\r\n{}",
        "Content-Length: 2\r\nContent-Length: 20\r\n\r\n{}",
        "Content-Length: 2\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        "Content-Length: 4\r\n\r\n\u{fffd}{",
    ] {
        let answer = daemon.exchange_half(format!("{head}{rest}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{rest:?}: {answer}");
    }
    goes_on(&daemon).await;
    let mut client = daemon.initialized("c").await;
    assert_eq!(client.ended_runs(1).await.len(), 1, "none of the bodies fired anything");
}

const ENDPOINT: &str = "---\nid: ID\nautomation: true\nsecret: host:in\n---\n";

/// A folder with one record beside the good one, and the daemon that reads it.
fn with_record(text: &str) -> (Folder, Daemon) {
    let folder = Folder::with_webhook("x");
    folder.write("webhooks/odd.md", text);
    let daemon = folder.start();
    (folder, daemon)
}

/// A record that cannot be used: the log says where and why, calling it is 404, and it is left as it is.
async fn no_endpoint(text: &str, says: &str) {
    let (folder, daemon) = with_record(text);
    folder.wait_for_log(says);
    assert_eq!(daemon.post("/plugins/webhook/odd", Some("right"), "{}").await.0, 404);
    assert_eq!(folder.read("webhooks/odd.md"), text);
    goes_on(&daemon).await;
    // An edit mends it, without a restart.
    folder.write("webhooks/odd.md", &ENDPOINT.replace("ID", "odd"));
    folder.wait_for_status(&daemon, "/plugins/webhook/odd", 202).await;
}

#[tokio::test]
async fn a_record_with_broken_frontmatter() {
    no_endpoint("---\nid: odd\nautomation: true\nsec", "webhooks/odd.md: line 1, column 1: the frontmatter is not closed by a line of ---; skipped until the file is fixed").await;
    no_endpoint(
        "---\nid: odd\nsecret: a: b\n---\n",
        "webhooks/odd.md: line 3, column 10: mapping values are not allowed in this context",
    )
    .await;
}

#[tokio::test]
async fn a_record_with_a_field_of_the_wrong_type() {
    no_endpoint(
        "---\nid: odd\nautomation: [1]\nsecret: host:in\n---\n",
        "endpoint webhooks/odd: automation must be true or false; a call to it answers 404",
    )
    .await;
    no_endpoint(
        "---\nid: odd\nautomation: true\nsecret: 5\n---\n",
        "endpoint webhooks/odd: secret must be text; a call to it answers 404",
    )
    .await;
}

#[tokio::test]
async fn a_record_with_a_field_nobody_knows() {
    let (folder, daemon) = with_record("---\nid: odd\nautomation: true\nsecret: host:in\ncolour: red\n---\n");
    folder.wait_for_log("endpoint webhooks/odd: unknown field colour; ignored");
    assert_eq!(daemon.post("/plugins/webhook/odd", Some("right"), "{}").await.0, 202);
    goes_on(&daemon).await;
}

#[tokio::test]
async fn a_record_with_the_id_of_another() {
    no_endpoint(
        "---\nid: in\nautomation: true\nsecret: host:in\n---\n",
        "webhooks/odd.md: id in does not match the file name odd; skipped until the file is fixed",
    )
    .await;
}

#[tokio::test]
async fn a_record_that_is_no_text() {
    let folder = Folder::with_webhook("x");
    fs::write(folder.path().join("webhooks/odd.md"), b"---\nid: odd\nsecret: \xff\xfe\n---\n").unwrap();
    fs::create_dir(folder.path().join("webhooks/folder.md")).unwrap();
    let daemon = folder.start();
    folder.wait_for_log("webhooks/odd.md: line 3: not UTF-8 text; skipped until the file is fixed");
    assert_eq!(daemon.post("/plugins/webhook/odd", Some("right"), "{}").await.0, 404);
    assert_eq!(daemon.post("/plugins/webhook/folder", Some("right"), "{}").await.0, 404);
    goes_on(&daemon).await;
}

/// An automation that cannot be used, beside one that can: the log says why, the catalogue is without it, and
/// its file is left as it is.
async fn no_automation(text: &str, says: &str) {
    let folder = Folder::with_webhook("x");
    folder.write("automations/odd.md", text);
    let daemon = folder.start();
    folder.wait_for_log(says);
    let mut client = daemon.initialized("c").await;
    assert_eq!(automations(&mut client).await, ["ahp-automation:/note"]);
    goes_on(&daemon).await;
    assert_eq!(folder.read("automations/odd.md"), text);
    folder.write("automations/odd.md", "---\ntitle: Mended\n---\nx\n");
    while automations(&mut client).await.len() < 2 {
        client.actions_until("automation/set").await;
    }
}

async fn automations(client: &mut Client) -> Vec<String> {
    let state = client.subscribe("ahp-automations://").await;
    let entries = state["entries"].as_array().unwrap();
    entries.iter().map(|entry| entry["resource"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_automation_with_broken_frontmatter() {
    no_automation("no fields at all\n", "automations/odd.md: line 1, column 1: the file must begin with frontmatter between two lines of ---; skipped until the file is fixed").await;
    no_automation("---\ntitle: [\n---\n", "automations/odd.md: line ").await;
}

#[tokio::test]
async fn an_automation_with_a_field_of_the_wrong_type() {
    no_automation(
        "---\ntitle: T\nenabled: maybe\n---\nx\n",
        "automations/odd.md: enabled must be true or false; skipped until the file is fixed",
    )
    .await;
    no_automation(
        "---\ntitle: T\ntriggers: [{ id: t, kind: push }]\n---\nx\n",
        "automations/odd.md: triggers[0].kind must be one of schedule, event; skipped until the file is fixed",
    )
    .await;
}

#[tokio::test]
async fn an_automation_whose_owner_is_nobody() {
    no_automation(
        "---\ntitle: T\nowner: ada\n---\nx\n",
        "automations/odd.md: owner must be user:<id>, root:<host>, plugin:<id>, team:<team> or project:<team>:<project>; \
         skipped until the file is fixed",
    )
    .await;
}

#[tokio::test]
async fn an_automation_with_a_field_nobody_knows() {
    let folder = Folder::with_webhook("x");
    folder.write("automations/odd.md", "---\ntitle: T\ntilte: T\n---\nx\n");
    let daemon = folder.start();
    folder.wait_for_log("automations/odd.md: tilte is not a field of an automation; ignored");
    let mut client = daemon.initialized("c").await;
    assert_eq!(automations(&mut client).await.len(), 2);
    goes_on(&daemon).await;
}

#[tokio::test]
async fn an_automation_with_the_id_of_another() {
    no_automation(
        "---\nid: note\ntitle: T\n---\nx\n",
        "automations/odd.md: id note does not match the file name odd; skipped until the file is fixed",
    )
    .await;
}

#[tokio::test]
async fn a_vault_that_does_not_read() {
    let folder = Folder::with_webhook("x");
    let daemon = folder.start();
    assert_eq!(daemon.post(IN, Some("right"), "{}").await.0, 202);
    folder.write("vault.json", "{ \"host:in\": ");
    folder.wait_for_status(&daemon, IN, 503).await;
    folder.wait_for_log("vault.json");
    assert!(!folder.read("log").contains("right"), "{}", folder.read("log"));
    folder.write("vault.json", r#"{ "host:in": "right" }"#);
    folder.wait_for_status(&daemon, IN, 202).await;
}

/// A configuration nobody can start with: exit code 2 and the sentence; what is kept beside it stays.
fn no_start(config: &str, says: &str) {
    let folder = Folder::with_webhook("x");
    folder.write("config.json", config);
    let ended = folder.run(&[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains(says), "{says:?} is not in {:?}", ended.err);
    assert_eq!(ended.out, "");
    assert!(folder.read("webhooks/in.md").contains("host:in"));
    assert_eq!(folder.read("config.json"), config);
}

#[test]
fn a_configuration_that_is_not_json() {
    no_start("{", "config.json is not JSON: ");
    no_start("---\nplugins: []\n---\n", "config.json is not JSON: ");
}

#[test]
fn a_configuration_with_a_key_written_twice() {
    no_start(r#"{ "port": 1, "port": 0 }"#, "config.json: duplicate key port at line 1 column 19");
    no_start(
        "{ \"plugins\": [{ \"name\": \"@ostler/echo\", \"options\": { \"a\": 1,\n \"a\": 2 } }] }",
        "config.json: duplicate key a at line 2 column 4",
    );
}

#[tokio::test]
async fn a_configuration_with_the_mark_of_its_encoding() {
    let folder = Folder::with_webhook("x");
    folder.write("config.json", &format!("\u{feff}{}", folder.read("config.json")));
    let daemon = folder.start();
    assert!(daemon.block.contains(&"plugins echo, webhook".to_owned()), "{:?}", daemon.block);
    goes_on(&daemon).await;
}

#[test]
fn a_configuration_with_a_value_of_the_wrong_type() {
    no_start("[]", "config.json is not a JSON object");
    no_start(r#"{ "port": "x" }"#, "config.json: port must be an integer");
    no_start(r#"{ "plugins": {} }"#, "config.json: plugins must be ");
    no_start(r#"{ "plugins": [{ "name": 3 }] }"#, "config.json: plugins[0].name must be a string");
    no_start(
        r#"{ "plugins": [{ "name": "@ostler/echo", "options": [] }] }"#,
        "config.json: plugins[0].options must be ",
    );
    no_start(
        r#"{ "plugins": [{ "name": "@ostler/echo", "enabled": "no" }] }"#,
        "config.json: plugins[0].enabled must be ",
    );
}

/// A daemon whose configuration names these plugins beside those of the webhook.
fn with_plugins(more: &[Value], files: &[(&str, &str)]) -> (Folder, Daemon) {
    let folder = Folder::with_webhook("x");
    for (file, text) in files {
        folder.write(file, text);
    }
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["plugins"].as_array_mut().unwrap().extend(more.iter().cloned());
    folder.write("config.json", &config.to_string());
    let daemon = folder.start();
    (folder, daemon)
}

#[tokio::test]
async fn a_configuration_with_a_key_nobody_knows() {
    let (folder, daemon) =
        with_plugins(&[json!({ "name": "./a.mjs", "speed": 3 })], &[("a.mjs", "export function apply() {}")]);
    folder.wait_for_log("config.json: unknown key plugins[2].speed; ignored");
    assert!(daemon.block.contains(&"plugins echo, webhook, a".to_owned()), "{:?}", daemon.block);
    goes_on(&daemon).await;
}

/// The next line of the announcement that says what was skipped.
fn skipped(daemon: &mut Daemon) -> String {
    let mut line = String::new();
    daemon.out.read_line(&mut line).unwrap();
    let line = line.trim_end();
    // That of a plugin says so itself.
    let of_plugin = line.starts_with("plugin ") && line.contains(" skipped: ");
    let item = line.strip_prefix("skipped: ").or(of_plugin.then_some(line));
    item.unwrap_or_else(|| panic!("nothing skipped: {line:?}")).to_owned()
}

#[tokio::test]
async fn two_plugins_with_one_id() {
    let source = "export const name = 'notes'; export function apply() {}";
    let (_folder, mut daemon) = with_plugins(
        &[json!({ "name": "./a.mjs" }), json!({ "name": "./b.mjs" })],
        &[("a.mjs", source), ("b.mjs", source)],
    );
    assert_eq!(
        skipped(&mut daemon),
        "plugin notes is named by ./a.mjs and by ./b.mjs; only ./a.mjs is loaded"
    );
    assert!(daemon.block.contains(&"plugins echo, webhook, notes".to_owned()), "{:?}", daemon.block);
    goes_on(&daemon).await;
}

#[tokio::test]
async fn two_plugins_with_one_id_of_which_the_first_is_off() {
    let source = "export const name = 'notes'; export function apply() {}";
    let (_folder, mut daemon) = with_plugins(
        &[json!({ "name": "./a.mjs", "enabled": false }), json!({ "name": "./b.mjs" })],
        &[("a.mjs", source), ("b.mjs", source)],
    );
    assert_eq!(
        skipped(&mut daemon),
        "plugin notes is named by ./a.mjs and by ./b.mjs; ./a.mjs is off, so neither is loaded"
    );
    assert!(daemon.block.contains(&"plugins echo, webhook".to_owned()), "{:?}", daemon.block);
    goes_on(&daemon).await;
}

#[tokio::test]
async fn a_plugin_whose_options_are_not_described() {
    let source = |export: &str| format!("export {export}; export function apply() {{}}");
    let (_folder, mut daemon) = with_plugins(
        &["./list.mjs", "./five.mjs", "./schema.mjs"].map(|name| json!({ "name": name })),
        &[
            ("list.mjs", &source("const defaults = [1]")),
            ("five.mjs", &source("const defaults = 5")),
            ("schema.mjs", &source("const optionsSchema = { properties: { a: { type: 'strng' } } }")),
        ],
    );
    for says in [
        "plugin list skipped: its defaults is not an object",
        "plugin five skipped: its defaults is not an object",
        "plugin schema skipped: its optionsSchema does not hold: properties.a.type cannot be \"strng\": a type is one of \
         array, boolean, integer, null, number, object, string, or a list of these",
    ] {
        assert_eq!(skipped(&mut daemon), says);
    }
    goes_on(&daemon).await;
}

#[tokio::test]
async fn a_plugin_that_does_not_resolve() {
    let gone = ["./gone.ts", "nobody-has-this", "@nobody/x", ""].map(|name| json!({ "name": name }));
    let (_folder, mut daemon) = with_plugins(&gone, &[]);
    assert!(daemon.block.contains(&"plugins echo, webhook".to_owned()), "{:?}", daemon.block);
    for says in [
        "Plugin ./gone.ts is not there: tried ",
        "Plugin nobody-has-this is not installed in ",
        "Plugin @nobody/x is not installed in ",
        "Plugin ",
    ] {
        let line = skipped(&mut daemon);
        assert!(line.starts_with(says), "{line:?}");
    }
    goes_on(&daemon).await;
}
