//! Webhooks of a real daemon: bots behind them, callbacks to a real server, and a process killed right after it
//! answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Client, Daemon, Folder, calls_in};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A folder with a bot that runs no model, one that answers, and an endpoint for each way to reply.
fn folder() -> Folder {
    let folder = Folder::new(json!({}));
    let root = folder.path().join("bot-folders");
    let grants = ["bot:get", "bot:chat", "session:read", "session:create", "session:write"];
    let plugins = json!([
        { "name": "@ostler/echo" },
        { "name": "@ostler/bot", "options": { "root": root } },
        { "name": "@ostler/webhook", "grants": grants },
    ]);
    folder.write("config.json", &json!({ "port": 0, "deltaWindowMs": 0, "plugins": plugins }).to_string());
    folder.write("vault.json", r#"{ "host:in": "right" }"#);
    folder.write("bots/helper.md", "---\nid: helper\nname: Helper\n---\n");
    folder.write("bots/echo.md", "---\nid: echo\nname: Echo\nharness: echo\nanswers: true\n---\n");
    for (id, bot, rest) in [
        ("silent", "helper", "reply: none"),
        ("loud", "echo", "reply: none"),
        ("sync", "echo", "reply: sync"),
    ] {
        let text = format!("---\nid: {id}\nbot: bot://{bot}\nsecret: host:in\n{rest}\n---\n");
        folder.write(&format!("webhooks/{id}.md"), &text);
    }
    folder
}

/// Every call has to be found as a turn or as a message that waits for one.
async fn found(client: &mut Client, turns: &BTreeMap<String, String>) {
    let listed = client.request("listSessions", json!({})).await.unwrap();
    let sessions = listed["items"].as_array().unwrap().iter();
    let chats: Vec<String> = sessions
        .map(|session| ostler_protocol::uri::default_chat(session["resource"].as_str().unwrap()))
        .collect();
    let mut held: BTreeMap<String, String> = BTreeMap::new();
    for chat in chats {
        let state = client.subscribe(&chat).await;
        held.extend(calls_in(&state));
    }
    for (turn, text) in turns {
        assert_eq!(held.get(turn), Some(text), "{turn} of {} that were accepted", turns.len());
    }
}

/// Calls an endpoint until the daemon is gone; answers what was accepted.
async fn call(
    address: String,
    endpoint: &'static str,
    lane: usize,
    taken: Arc<AtomicUsize>,
) -> BTreeMap<String, String> {
    let mut accepted = BTreeMap::new();
    for at in 0.. {
        let text = format!("{endpoint} {lane} {at}");
        let body = json!({ "thread": format!("lane-{lane}"), "text": text }).to_string();
        let path = format!("/plugins/webhook/{endpoint}");
        let Some((202, answer)) = crate::support::post(&address, &path, Some("right"), &body).await else {
            break;
        };
        let answer: Value = serde_json::from_str(&answer).unwrap();
        accepted.insert(answer["turn"].as_str().unwrap().to_owned(), text);
        taken.fetch_add(1, Ordering::Relaxed);
    }
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_accepted_is_found_after_the_process_was_killed_right_after_the_answer() {
    let folder = folder();
    let mut told = BTreeMap::new();
    for round in 0..5 {
        let daemon = folder.start();
        if round > 0 {
            found(&mut daemon.initialized("checker").await, &told).await;
        }
        let taken = Arc::new(AtomicUsize::new(0));
        let calls: Vec<_> = ["silent", "loud", "silent", "loud"]
            .into_iter()
            .enumerate()
            .map(|(lane, endpoint)| {
                tokio::spawn(call(daemon.address().to_owned(), endpoint, lane, taken.clone()))
            })
            .collect();
        // With the answer just given, another one every time.
        while taken.load(Ordering::Relaxed) < 1 + round * 9 {
            tokio::task::yield_now().await;
        }
        daemon.kill();
        for accepted in calls {
            told.extend(accepted.await.unwrap());
        }
    }
    assert!(told.len() >= 50, "{}", told.len());
    let daemon = folder.start();
    found(&mut daemon.initialized("checker").await, &told).await;
}

async fn said(daemon: &Daemon, endpoint: &str, body: Value) -> (u16, Value) {
    let (status, answer) =
        daemon.post(&format!("/plugins/webhook/{endpoint}"), Some("right"), &body.to_string()).await;
    (status, serde_json::from_str(&answer).unwrap())
}

/// A server that answers its first callers so, and everybody after them with 200; tells what it was sent.
async fn outside(
    answers: &'static [&'static str],
) -> (String, tokio::sync::mpsc::UnboundedReceiver<(String, Value)>) {
    let (url, mut heads) = outside_with_heads(answers).await;
    let (sent, seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some((head, body)) = heads.recv().await {
            let _ = sent.send((head.lines().next().unwrap().to_owned(), body));
        }
    });
    (url, seen)
}

/// The same, and tells the whole head of what it was sent.
async fn outside_with_heads(
    answers: &'static [&'static str],
) -> (String, tokio::sync::mpsc::UnboundedReceiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sent, seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        for at in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = Vec::new();
            let (line, body) = loop {
                stream.read_buf(&mut read).await.unwrap();
                let text = String::from_utf8_lossy(&read);
                if let Some((head, body)) = text.split_once("\r\n\r\n")
                    && let Ok(body) = serde_json::from_str(body)
                {
                    break (head.to_owned(), body);
                }
            };
            sent.send((line, body)).unwrap();
            let answer = answers.get(at).copied().unwrap_or("200 OK");
            let whole = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(whole.as_bytes()).await.unwrap();
        }
    });
    (url, seen)
}

#[tokio::test]
async fn answers_and_callbacks_name_the_session_they_are_of() {
    let (url, mut seen) = outside_with_heads(&["500 Internal Server Error"]).await;
    let folder = folder();
    let config = folder.read("config.json");
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["connectionToken"] = "token".into();
    config["http"] = true.into();
    config["publicUrl"] = "https://agents.example".into();
    folder.write("config.json", &config.to_string());
    folder.write(
        "webhooks/back.md",
        &format!(
            "---\nid: back\nbot: bot://echo\nsecret: host:in\ncallbackPrefix: {url}/\nretry: {{ times: 3, first: 1s }}\n---\n"
        ),
    );
    let daemon = folder.start();
    let call = json!({ "thread": "t", "text": "one", "callback": format!("{url}/x") }).to_string();
    let request = format!(
        "POST /plugins/webhook/back HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer right\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{call}",
        daemon.address(),
        call.len()
    );
    let answer = daemon.exchange(request.as_bytes()).await;
    let link = |head: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(name, _)| name.eq_ignore_ascii_case("link")).map(|(_, value)| value.to_owned())
    };
    let told = link(&answer).unwrap_or_else(|| panic!("{answer}"));
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    let session = told.strip_prefix("<https://agents.example/api/sessions/").unwrap();
    let session = session.strip_suffix(r#">; rel="about""#).unwrap();
    // The first callback fails, and the next one says the same.
    for _ in 0..2 {
        let (head, body) = seen.recv().await.unwrap();
        assert_eq!((link(&head), &body["text"]), (Some(told.clone()), &json!("one")), "{head}");
    }
    let (status, found) =
        daemon.ask(&format!("GET /api/sessions/{session}"), "Authorization: Bearer token\r\n", "").await;
    assert_eq!((status, &found["id"]), (200, &json!(session)), "{found}");
}

#[tokio::test]
async fn a_bot_is_talked_to_over_http_and_its_words_come_back() {
    let (url, mut seen) = outside(&["302 Found\r\nLocation: /elsewhere", "500 Internal Server Error"]).await;
    let folder = folder();
    let record = format!("---\nid: back\nbot: bot://echo\nsecret: host:in\ncallbackPrefix: {url}/in/\n---\n");
    folder.write("webhooks/back.md", &record);
    let daemon = folder.start();
    let (status, body) = said(&daemon, "sync", json!({ "thread": "t", "text": "hello there" })).await;
    assert_eq!((status, &body["text"], &body["status"]), (200, &json!("hello there"), &json!("complete")));
    assert_eq!(said(&daemon, "sync", json!({ "thread": "t", "text": "/fail no" })).await.0, 502);
    for text in ["one", "two", "three"] {
        let call = json!({ "thread": "t", "text": text, "callback": format!("{url}/in/x?key=hush") });
        let (status, body) = said(&daemon, "back", call).await;
        assert_eq!(status, 202);
        let told = json!({ "thread": "t", "turn": body["turn"], "status": "complete", "text": text });
        let (line, posted) = seen.recv().await.unwrap();
        assert_eq!((line.as_str(), posted), ("POST /in/x?key=hush HTTP/1.1", told));
    }
    folder.wait_for_log("failed: response 302, a redirect, is not followed");
    folder.wait_for_log("failed: response 500");
    assert!(seen.try_recv().is_err(), "nobody was asked a second time");
    assert!(!folder.read("log").contains("hush"));
    let elsewhere = json!({ "thread": "t", "text": "x", "callback": url.replace("http://", "http://user@") });
    assert_eq!(said(&daemon, "back", elsewhere).await.0, 400);
    assert_eq!(daemon.stop(), Some(0));
    for part in ["webhook-deliveries", "webhook-threads", "bot-chats"] {
        let files: Vec<_> =
            std::fs::read_dir(folder.path().join(part)).unwrap().map(Result::unwrap).collect();
        assert!(!files.is_empty(), "{part}");
        for file in files {
            let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600, "{}", file.path().display());
        }
    }
    let deliveries = folder.read("webhook-deliveries/back.md");
    assert!(deliveries.contains("status: 202") && deliveries.contains("status: 400"), "{deliveries}");
    assert!(!deliveries.contains("hush") && !deliveries.contains("right"), "{deliveries}");
}

#[tokio::test]
async fn what_an_endpoint_asks_for_outlives_a_killed_process() {
    let (url, mut seen) = outside(&["503 Service Unavailable"]).await;
    let folder = folder();
    let record = "id: back\nbot: bot://echo\nsecret: host:in\nretry: { times: 5, first: 1s }";
    folder.write("webhooks/back.md", &format!("---\n{record}\ncallbackPrefix: {url}/\n---\n"));
    let record = "id: talk\nbot: bot://echo\nsecret: host:in\nreply: sync\ndedupe: Content-Type";
    folder.write("webhooks/talk.md", &format!("---\n{record}\n---\n"));
    let daemon = folder.start();
    let first = said(&daemon, "talk", json!({ "thread": "t", "text": "once" })).await;
    assert_eq!(first.0, 200);
    let (status, body) =
        said(&daemon, "back", json!({ "thread": "t", "text": "/hang", "callback": format!("{url}/x") }))
            .await;
    assert_eq!(status, 202);
    daemon.kill();
    assert!(seen.try_recv().is_err());

    let daemon = folder.start();
    let why = "the host stopped while this turn was running";
    let told = json!({ "thread": "t", "turn": body["turn"], "status": "error", "text": "", "error": why });
    assert_eq!(seen.recv().await.unwrap().1, told, "the callback is found again");
    let again = said(&daemon, "talk", json!({ "thread": "t", "text": "twice" })).await;
    assert_eq!(again, first, "and so is the first answer");
    folder.wait_for_log("failed: response 503; retrying in 1 seconds");
    daemon.kill();
    let _daemon = folder.start();
    assert_eq!(seen.recv().await.unwrap().1, told, "one that failed is tried again");
}

#[tokio::test]
async fn a_route_is_guarded_by_its_plugin_alone() {
    let folder = folder();
    let daemon = folder.start_with(&["--connection-token", "door"]);
    let body = r#"{"thread":"t","text":"x"}"#;
    let call = |bearer: &str| {
        format!(
            "POST /plugins/webhook/silent HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nOrigin: https://elsewhere.example\r\n\
             Authorization: Bearer {bearer}\r\nContent-Length: {}\r\n\r\n{body}",
            daemon.address(),
            body.len()
        )
    };
    let answer = daemon.exchange(call("right").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    let answer = daemon.exchange(call("door").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "the door's token opens no endpoint: {answer}");
}

#[tokio::test]
async fn the_webhook_plugin_needs_no_node() {
    let folder = folder();
    let mut command = folder.command(&[]);
    // Nothing at all can be found to run.
    command.env("PATH", folder.path());
    let daemon = folder.started(command);
    let body = json!({ "thread": "t", "text": "Well?" }).to_string();
    let (status, answer) = daemon.post("/plugins/webhook/sync", Some("right"), &body).await;
    assert_eq!(status, 200, "{answer}");
}
