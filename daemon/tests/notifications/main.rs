//! Messages about requests for input, and their links, from outside: a real daemon, servers that take messages, and requests
//! as a browser sends them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod receiver;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use receiver::{Receiver, Smtp};
use serde_json::{Value, json};
use support::{Client, Daemon, Folder, LIMIT};

const KEY: &str = "bm90aWZ5IHRlc3Qga2V5IG9mIDI0IGJ5";
const CALL: &str = r#"/confirm createChat {"prompt":"Opened by <b>a call</b>"}"#;

/// A daemon that knows users, with a secret `host:hook` that signs messages.
fn folder(rules: &str) -> Folder {
    let folder = Folder::new(json!({
        "plugins": [{ "name": "@ostler/echo" }], "users": "users.json", "trustToken": true,
    }));
    folder.write("vault.json", &json!({ "host:hook": format!("whsec_{KEY}") }).to_string());
    folder.write("notify.yaml", rules);
    folder
}

/// Adds a user; returns the token.
fn add(folder: &Folder, id: &str, role: &str) -> String {
    let ended = folder.run(&["user", "add", id, "--role", role]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    ended.out.trim().to_owned()
}

/// A rule `hook` that posts to a receiver.
fn rule(receiver: &Receiver, more: &str) -> String {
    let url = &receiver.url;
    format!("rules:\n  - {{ id: hook, {more} webhook: {{ url: '{url}', secret: 'host:hook' }} }}\n")
}

async fn connect(daemon: &Daemon, token: &str) -> Client {
    let mut client = Client::connect(&format!("{}/?tkn={token}", daemon.url)).await;
    client.initialize("test").await;
    client
}

/// Starts a turn in a new session of the echo backend; returns the chat.
async fn begin(client: &mut Client, id: &str, text: &str) -> String {
    let session = format!("echo:/{id}");
    client.request("createSession", json!({ "channel": session })).await.unwrap();
    let chat = client.subscribe(&session).await["defaultChat"].as_str().unwrap().to_owned();
    client.subscribe(&chat).await;
    let started =
        json!({ "type": "chat/turnStarted", "turnId": format!("t-{id}"), "message": { "text": text } });
    client.dispatch(&chat, 1, started).await;
    chat
}

/// Until the turn ends; returns what the agent said.
async fn said(client: &mut Client) -> String {
    let seen = client.actions_until("chat/turnComplete").await;
    seen.iter().filter_map(|action| action["action"]["content"].as_str()).collect()
}

/// A page: its status, its head and its text.
struct Page {
    status: u16,
    head: String,
    body: String,
}

async fn page(daemon: &Daemon, method: &str, path: &str, form: &str) -> Page {
    let (address, length) = (daemon.address(), form.len());
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nOrigin: null\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{form}"
    );
    let answer = daemon.exchange(request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Page { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

async fn get(daemon: &Daemon, path: &str) -> Page {
    page(daemon, "GET", path, "").await
}

async fn post(daemon: &Daemon, path: &str, form: &str) -> Page {
    page(daemon, "POST", path, form).await
}

/// Opens a link until its page has this status and says this.
async fn get_until(daemon: &Daemon, path: &str, status: u16, says: &str) {
    let end = Instant::now() + LIMIT;
    loop {
        let page = get(daemon, path).await;
        if page.status == status && page.body.contains(says) {
            return;
        }
        assert!(Instant::now() < end, "{status} {says}: {} {}", page.status, page.body);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The token in a link's path.
fn token(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// The signature of a message, made independently of the program.
fn signature(id: &str, time: &str, body: &str) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &STANDARD.decode(KEY).unwrap());
    let signed = ring::hmac::sign(&key, format!("{id}.{time}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(signed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_approved_with_the_link_of_a_signed_message() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "owner: user:ada, after: 0s,"));
    let token_of_ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &token_of_ada).await;
    begin(&mut client, "1", CALL).await;

    let message = receiver.inbox.nth(1).await;
    let (id, time) = (message.header("webhook-id"), message.header("webhook-timestamp"));
    assert_eq!(message.header("webhook-signature"), signature(id, time, &message.body));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(time.parse().unwrap()) < 60, "{time}");
    let json = message.json();
    assert_eq!(json["type"], "input.requested");
    let data = &json["data"];
    assert_eq!(
        (&data["kind"], &data["session"], &data["user"]),
        (&json!("approval"), &json!("echo:/1"), &json!("ada"))
    );
    assert_eq!(data["owner"], "user:ada");
    assert!(data["expiresAt"].is_string());

    // Looking changes nothing, however often: programs open the links of mails.
    let path = message.path();
    for _ in 0..3 {
        let page = get(&daemon, &path).await;
        assert_eq!(page.status, 200, "{}", page.body);
        assert!(page.body.contains("Opened by &lt;b&gt;a call&lt;/b&gt;"), "{}", page.body);
        assert!(page.body.contains("<dd>ada</dd>") && !page.body.contains("<script"), "{}", page.body);
        for header in [
            "cache-control: no-store",
            "referrer-policy: no-referrer",
            "x-frame-options: deny",
            "content-security-policy: default-src 'none'; style-src 'sha256-",
        ] {
            assert!(page.head.contains(header), "{header}: {}", page.head);
        }
    }
    assert_eq!(page(&daemon, "HEAD", &path, "").await.status, 200);
    assert_eq!(page(&daemon, "PUT", &path, "").await.status, 405);
    assert!(token(&path).len() >= 43, "{path}");

    let begun = Instant::now();
    let answered = post(&daemon, &path, "answer=approve").await;
    assert_eq!(answered.status, 200, "{}", answered.body);
    eprintln!("from the form to the recorded answer: {:?}", begun.elapsed());
    let seen = client.actions_until("chat/turnComplete").await;
    assert!(json!(seen).to_string().contains("Chat created"), "{seen:?}");

    // Once.
    for answered in [post(&daemon, &path, "answer=approve").await, get(&daemon, &path).await] {
        assert_eq!(answered.status, 410);
        assert!(answered.body.contains("This link was used"), "{}", answered.body);
    }
    assert_eq!(receiver.inbox.all().len(), 1);
    let log = folder.wait_for_log("user ada answered a request of echo:/1 with its link");
    assert!(log.contains("notify rule hook"), "{log}");
    let stored = folder.path().join("notify-links");
    let stored: String = std::fs::read_dir(stored)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    assert!(stored.contains("state: used"), "{stored}");
    for text in [folder.read("log"), stored] {
        assert!(!text.contains(token(&path)) && !text.contains(KEY), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_denied_and_an_option_chosen_with_a_link() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "after: 0s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", CALL).await;
    let path = receiver.inbox.nth(1).await.path();
    // What is not offered is no answer, and leaves the link as it was.
    for form in ["", "answer=option%3Anone", "answer=later"] {
        assert_eq!(post(&daemon, &path, form).await.status, 422, "{form}");
    }
    let changed = post(&daemon, &path, "answer=approve&shown=0123").await;
    assert_eq!(changed.status, 422);
    assert!(changed.body.contains("has changed since it was shown"), "{}", changed.body);
    let shown = get(&daemon, &path).await.body;
    let (_, rest) = shown.split_once("name=shown value=\"").unwrap();
    let digest = rest.split('"').next().unwrap();
    assert_eq!(post(&daemon, &path, &format!("answer=deny&shown={digest}")).await.status, 200);
    let seen = client.actions_until("chat/turnComplete").await;
    let confirmed = seen.iter().find(|action| action["action"]["type"] == "chat/toolCallConfirmed").unwrap();
    assert_eq!(confirmed["action"]["approved"], false, "{confirmed}");

    begin(&mut client, "2", CALL).await;
    let path = receiver.inbox.nth(2).await.path();
    let shown = get(&daemon, &path).await.body;
    let (_, rest) = shown.split_once("value=\"option:").unwrap();
    let option = rest.split('"').next().unwrap();
    assert_eq!(post(&daemon, &path, &format!("answer=option%3A{option}")).await.status, 200);
    let seen = client.actions_until("chat/turnComplete").await;
    let confirmed = seen.iter().find(|action| action["action"]["type"] == "chat/toolCallConfirmed").unwrap();
    assert_eq!(confirmed["action"]["selectedOptionId"], option, "{confirmed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_with_a_link() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "after: 0s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", "/ask Which colour?").await;
    let message = receiver.inbox.nth(1).await;
    let data = &message.json()["data"];
    assert_eq!((&data["kind"], &data["message"]), (&json!("question"), &json!("Which colour?")));
    let path = message.path();
    assert!(get(&daemon, &path).await.body.contains("Which colour?"));
    let empty = post(&daemon, &path, "answer=accept&q0=").await;
    assert_eq!(empty.status, 422);
    assert!(empty.body.contains("an answer is needed"), "{}", empty.body);
    let json = page(&daemon, "POST", &path, "answer=accept&q0=a+blue+one").await;
    assert_eq!(json.status, 200, "{}", json.body);
    assert!(said(&mut client).await.contains("You said: a blue one"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_in_a_message_hides_what_it_is() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "after: 0s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", "/ask Run \u{1b}[8mrm\u{7}\n\u{202e}fr- now?").await;
    let message = receiver.inbox.nth(1).await;
    let data = &message.json()["data"];
    assert_eq!(data["message"], "Run \\u{1b}[8mrm\\u{7} \\u{202e}fr- now?");
    assert!(!data["title"].as_str().unwrap().contains(['\u{1b}', '\u{7}', '\u{202e}']), "{data}");
    let long = post(&daemon, &message.path(), &format!("answer=accept&q0={}", "x".repeat(300_000))).await;
    assert_eq!(long.status, 413);
    assert!(long.body.contains("Send a shorter answer") && !long.body.contains("Retry"), "{}", long.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_not_accepted_follows_its_rule() {
    let (wrong, right) = (Receiver::new().await, Receiver::new().await);
    wrong.failing.store(usize::MAX, std::sync::atomic::Ordering::SeqCst);
    let folder = folder(&rule(&wrong, "after: 0s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", "/ask Which?").await;
    let lost = wrong.inbox.nth(1).await.path();
    folder.wait_for_log("was not sent: 127.0.0.1 answered 500");

    folder.write("notify.yaml", &rule(&right, "after: 0s,"));
    let path = right.inbox.nth(1).await.path();
    get_until(&daemon, &lost, 404, "not valid").await;
    assert_eq!(post(&daemon, &path, "answer=accept&q0=this").await.status, 200);
    assert!(said(&mut client).await.contains("You said: this"));

    // So does one whose time has not come.
    let other = "  - { id: other, owner: user:nobody, slack: { url: host:slack } }\n";
    folder.write("notify.yaml", &(rule(&right, "after: 1h,") + other));
    folder.wait_for_log("notify.yaml: 2 rules in force");
    begin(&mut client, "2", "/ask Again?").await;
    client.actions_until("chat/inputRequested").await;
    folder.write("notify.yaml", &(rule(&right, "after: 0s,") + other));
    assert_eq!(right.inbox.nth(2).await.json()["data"]["session"], "echo:/2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_a_client_sends_nothing_in_time_and_ends_a_link_later() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "after: 1s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    let answer = |id: &str| {
        json!({
            "type": "chat/inputCompleted", "requestId": format!("t-{id}-question"), "response": "accept",
            "answers": { "answer": { "state": "submitted", "value": { "kind": "text", "value": "x" } } },
        })
    };
    let chat = begin(&mut client, "first", "/ask First?").await;
    client.actions_until("chat/inputRequested").await;
    client.dispatch(&chat, 2, answer("first")).await;
    said(&mut client).await;

    // Its message comes later than one about the first request would.
    let chat = begin(&mut client, "second", "/ask Second?").await;
    let message = receiver.inbox.nth(1).await;
    assert_eq!(message.json()["data"]["session"], "echo:/second");
    client.dispatch(&chat, 2, answer("second")).await;
    said(&mut client).await;
    let path = message.path();
    get_until(&daemon, &path, 410, "answered elsewhere").await;
    let late = post(&daemon, &path, "answer=accept&q0=late").await;
    assert_eq!(late.status, 410);
    assert!(late.body.contains("answered elsewhere"), "{}", late.body);
    assert_eq!(receiver.inbox.all().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_answers_at_the_same_time_one_counts() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "after: 0s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", "/ask Which?").await;
    let path = receiver.inbox.nth(1).await.path();
    let forms: Vec<String> = (0..8).map(|at| format!("answer=accept&q0=answer-{at}")).collect();
    let pages = futures::future::join_all(forms.iter().map(|form| post(&daemon, &path, form))).await;
    let taken: Vec<usize> =
        pages.iter().enumerate().filter(|(_, page)| page.status == 200).map(|(at, _)| at).collect();
    assert_eq!(taken.len(), 1, "{:?}", pages.iter().map(|page| page.status).collect::<Vec<_>>());
    assert!(pages.iter().all(|page| [200, 410].contains(&page.status)));
    assert!(said(&mut client).await.contains(&format!("You said: answer-{}", taken[0])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_expires_and_a_restart_ends_it() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "after: 0s, expires: 1s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", "/ask Which?").await;
    let path = receiver.inbox.nth(1).await.path();
    get_until(&daemon, &path, 410, "This link has expired").await;
    assert_eq!(post(&daemon, &path, "answer=accept&q0=x").await.status, 410);

    folder.write("notify.yaml", &rule(&receiver, "after: 0s,"));
    begin(&mut client, "2", "/ask Again?").await;
    let path = receiver.inbox.nth(2).await.path();
    daemon.kill();
    let daemon = folder.start();
    for page in [get(&daemon, &path).await, post(&daemon, &path, "answer=accept&q0=x").await] {
        assert_eq!(page.status, 410);
        assert!(page.body.contains("The host restarted"), "{}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_find_nothing_and_are_slowed_down() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "after: 0s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", "/ask Which?").await;
    let path = receiver.inbox.nth(1).await.path();
    let id = path.split('/').nth(2).unwrap();
    let wrong = [
        "/notify".to_owned(),
        "/notify/".to_owned(),
        format!("/notify/{id}"),
        format!("/notify/{id}/"),
        format!("/notify/{id}/{}", "A".repeat(43)),
        format!("{path}A"),
        format!("{path}/x"),
        path[..path.len() - 1].to_owned(),
    ];
    for path in &wrong {
        let page = get(&daemon, path).await;
        assert_eq!(page.status, 404, "{path}: {}", page.body);
        assert!(!page.body.contains("Which?"));
    }
    let mut slowed = false;
    for at in 0..40 {
        let page = post(&daemon, &format!("/notify/{id}/guess{at}"), "answer=accept&q0=x").await;
        slowed |= page.status == 429 && page.head.contains("retry-after: 60");
        assert!([404, 429].contains(&page.status));
    }
    assert!(slowed);
    // Whoever has the link is not affected.
    assert_eq!(get(&daemon, &path).await.status, 200);
    let foreign = daemon
        .exchange(
            format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").as_bytes(),
        )
        .await;
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_user_may_decides_when_the_link_is_used() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "user: bob, after: 0s,"));
    let (ada, _) = (add(&folder, "ada", "member"), add(&folder, "bob", "member"));
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", "/ask Which?").await;
    let message = receiver.inbox.nth(1).await;
    assert_eq!(message.json()["data"]["user"], "bob");
    let path = message.path();
    assert_eq!(get(&daemon, &path).await.status, 200);

    let member = folder.read("users.json");
    let mut users: Value = serde_json::from_str(&member).unwrap();
    users["users"][1]["roles"] = json!(["guest"]);
    folder.write("users.json", &users.to_string());
    get_until(&daemon, &path, 403, "bob may not chat:answer here").await;
    assert_eq!(post(&daemon, &path, "answer=accept&q0=x").await.status, 403);

    users["users"].as_array_mut().unwrap().remove(1);
    folder.write("users.json", &users.to_string());
    get_until(&daemon, &path, 410, "The user bob was removed").await;
    assert_eq!(post(&daemon, &path, "answer=accept&q0=x").await.status, 410);

    // None of this used it.
    folder.write("users.json", &member);
    get_until(&daemon, &path, 200, "Which?").await;
    assert_eq!(post(&daemon, &path, "answer=accept&q0=mine").await.status, 200);
    assert!(said(&mut client).await.contains("You said: mine"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_file_holds_and_an_invalid_one_changes_nothing() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "owner: user:nobody, after: 0s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    folder.wait_for_log("notify.yaml: 1 rule in force");
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", "/ask Which?").await;
    client.actions_until("chat/inputRequested").await;
    folder.write("notify.yaml", "rules:\n  - id: hook\n    slack: { url: https://hooks.example/SECRET }\n");
    let line = folder.wait_for_log("keeping the last valid rules");
    assert!(line.contains("notify.yaml: rules[0].slack.url must be the vault name of a secret"), "{line}");
    assert!(!folder.read("log").contains("SECRET"));

    // What waits already is looked at with the new rules.
    let other = rule(&receiver, "owner: user:ada, after: 0s,").replace("hook,", "other,");
    folder.write("notify.yaml", &other);
    let message = receiver.inbox.nth(1).await;
    assert_eq!(message.json()["data"]["rule"], "other");
    folder.write("notify.yaml", &format!("{other}# the same rules\nafter: 2s\n"));
    folder.wait_for_log("notify.yaml: 1 rule in force");
    begin(&mut client, "2", "/ask Again?").await;
    assert_eq!(
        receiver.inbox.nth(2).await.json()["data"]["session"],
        "echo:/2",
        "one message for each request"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_not_taken_is_sent_again() {
    let receiver = Receiver::new().await;
    receiver.failing.store(1, std::sync::atomic::Ordering::SeqCst);
    let folder = folder(&rule(&receiver, "after: 0s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", "/ask Which?").await;
    let first = receiver.inbox.nth(1).await;
    folder.wait_for_log("127.0.0.1 answered 500 to the webhook message; retrying in 5 seconds");
    let second = receiver.inbox.nth(2).await;
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    assert_eq!(first.path(), second.path());
    let (id, time) = (second.header("webhook-id"), second.header("webhook-timestamp"));
    assert_eq!(second.header("webhook-signature"), signature(id, time, &second.body));
    assert_eq!(post(&daemon, &second.path(), "answer=decline").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_select_by_automation_and_bot() {
    let receiver = Receiver::new().await;
    let folder = Folder::with_webhook("/ask Which?");
    let config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    let mut config = config;
    config["plugins"].as_array_mut().unwrap().push(json!({ "name": "@ostler/bot" }));
    folder.write("config.json", &config.to_string());
    let vault =
        json!({ "host:in": "right", "host:hook": format!("whsec_{KEY}"), "host:slack": receiver.url });
    folder.write("vault.json", &vault.to_string());
    let target = format!("webhook: {{ url: '{}', secret: 'host:hook' }}", receiver.url);
    folder.write(
        "notify.yaml",
        &format!(
            "after: 0s\nrules:\n  - {{ id: run, automation: note, {target} }}\n  - {{ id: other, automation: none, {target} }}\n  \
             - {{ id: bots, bot: helper, {target} }}\n"
        ),
    );
    folder.write("bots/helper.md", "---\nid: helper\nname: Helper\nharness: echo\n---\n");
    let daemon = folder.start();
    folder.wait_for_status(&daemon, "/plugins/webhook/in", 202).await;
    let message = receiver.inbox.nth(1).await.json();
    assert_eq!((&message["data"]["rule"], &message["data"]["automation"]), (&json!("run"), &json!("note")));
    assert!(message["data"]["run"].is_string(), "{message}");

    // The session of a bot is what its record or its chats name.
    let mut client = daemon.initialized("c").await;
    begin(&mut client, "of-bot", "Hello").await;
    said(&mut client).await;
    folder.write(
        "bots/helper.md",
        "---\nid: helper\nname: Helper\nharness: echo\nsession: echo:/of-bot\n---\n",
    );
    let (session, end) = (json!("echo:/of-bot"), Instant::now() + LIMIT);
    loop {
        let bot =
            client.request("resourceRead", json!({ "channel": "ahp-root://", "uri": "bot://helper" })).await;
        if bot.as_ref().is_ok_and(|bot| bot.to_string().contains("of-bot")) {
            break;
        }
        assert!(Instant::now() < end, "{bot:?} has no {session}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let chat = client.subscribe("echo:/of-bot").await["defaultChat"].as_str().unwrap().to_owned();
    let ask = json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": "/ask A bot?" } });
    client.dispatch(&chat, 2, ask).await;
    let message = receiver.inbox.nth(2).await;
    let data = message.json()["data"].clone();
    assert_eq!((&data["rule"], &data["bots"]), (&json!("bots"), &json!(["helper"])));
    // Without a users file whoever has the link answers.
    assert_eq!(post(&daemon, &message.path(), "answer=decline").await.status, 200);
    assert!(!folder.read("log").contains("notify rule other"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_to_a_session_without_an_owner_needs_a_user_of_the_rule() {
    let receiver = Receiver::new().await;
    let folder = Folder::with_webhook("/ask Which?");
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["users"] = "users.json".into();
    folder.write("config.json", &config.to_string());
    folder
        .write("vault.json", &json!({ "host:in": "right", "host:hook": format!("whsec_{KEY}") }).to_string());
    folder.write("users.json", r#"{ "users": [] }"#);
    add(&folder, "ada", "admin");
    folder.write("notify.yaml", &rule(&receiver, "after: 0s,"));
    let daemon = folder.start();
    folder.wait_for_status(&daemon, "/plugins/webhook/in", 202).await;
    folder.wait_for_log("it has no owner; set user in the rule");
    folder.write("notify.yaml", &rule(&receiver, "after: 0s, user: ada,"));
    let message = receiver.inbox.nth(1).await;
    let answered = post(&daemon, &message.path(), "answer=decline").await;
    assert_eq!(answered.status, 200, "{}", answered.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slack_and_mail_have_the_link() {
    let receiver = Receiver::new().await;
    let (starttls, tls) = (Smtp::new(false).await, Smtp::new(true).await);
    let mail = "user: ada, password: 'host:mail', from: 'Ostler <ostler@host.example>', to: [ada@host.example, b@host.example]";
    let folder = folder(&format!(
        "after: 0s\nrules:\n  - {{ id: slack, slack: {{ url: 'host:slack' }} }}\n  \
         - {{ id: starttls, email: {{ server: localhost, port: {}, {mail} }} }}\n  \
         - {{ id: tls, email: {{ server: localhost, port: {}, tls: tls, {mail} }} }}\n",
        starttls.port, tls.port
    ));
    let vault = json!({ "host:slack": receiver.url, "host:mail": "hunter2-hunter2" });
    folder.write("vault.json", &vault.to_string());
    let ada = add(&folder, "ada", "member");
    let mut command = folder.command(&[]);
    command.env("SSL_CERT_FILE", support::tls::AUTHORITY);
    let daemon = folder.started(command);
    let mut client = connect(&daemon, &ada).await;
    begin(&mut client, "1", "/ask Which?").await;

    let slack = receiver.inbox.nth(1).await;
    assert_eq!(slack.json()["blocks"][1]["text"]["text"], "Which?");
    assert_eq!(get(&daemon, &slack.path()).await.status, 200);
    let mut paths = vec![slack.path()];
    for server in [&starttls, &tls] {
        let mail = server.inbox.nth(1).await;
        assert!(mail.encrypted, "{mail:?}");
        assert_eq!(mail.login.as_deref(), Some("ada/hunter2-hunter2"));
        assert_eq!(mail.commands.iter().filter(|line| line.starts_with("RCPT")).count(), 2, "{mail:?}");
        // A soft line break of quoted-printable ends in "=".
        let text = mail.data.replace("=\r\n", "").replace("=3D", "=");
        assert!(text.contains("Subject: [ostler] Question:") && text.contains("Which?"), "{text}");
        let from = text.find("/notify/").unwrap();
        let path = text[from..].split_whitespace().next().unwrap().to_owned();
        assert_eq!(get(&daemon, &path).await.status, 200, "{path}");
        paths.push(path);
    }
    // One answer ends all of them.
    assert_eq!(post(&daemon, &paths.remove(1), "answer=accept&q0=x").await.status, 200);
    for path in &paths {
        get_until(&daemon, path, 410, "answered elsewhere").await;
    }
    let log = folder.read("log");
    assert!(!log.contains("hunter2") && paths.iter().all(|path| !log.contains(token(path))), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_to_a_server_that_is_not_trusted_is_not_sent() {
    let smtp = Smtp::new(false).await;
    let folder = folder(&format!(
        "rules: [{{ id: mail, email: {{ server: localhost, port: {}, user: ada, password: 'host:mail', \
         from: a@host.example, to: b@host.example }} }}]",
        smtp.port
    ));
    folder.write("vault.json", &json!({ "host:mail": "hunter2-hunter2" }).to_string());
    let ended = folder.run(&["notify", "test", "mail"]);
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    assert!(ended.err.contains("rule mail: the message was not sent: localhost: "), "{}", ended.err);
    assert!(!ended.err.contains("hunter2"), "{}", ended.err);
    assert!(smtp.inbox.all().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_is_tested_by_a_command_and_by_a_request() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, ""));
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["http"] = json!(true);
    config["connectionToken"] = json!("the-token");
    config["publicUrl"] = json!("https://agents.example.org/ostler");
    folder.write("config.json", &config.to_string());
    add(&folder, "ada", "member");
    let ended = folder.run(&["notify", "test", "hook", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let printed: Value = serde_json::from_str(&ended.out).unwrap();
    let link = "https://agents.example.org/ostler/notify/test";
    assert_eq!(printed, json!({ "rule": "hook", "by": "webhook", "link": link }));
    let message = receiver.inbox.nth(1).await;
    assert_eq!(
        (&message.json()["data"]["test"], &message.json()["data"]["url"]),
        (&json!(true), &json!(link))
    );
    assert_eq!(folder.run(&["notify", "test", "hook", "--quiet"]).out, "hook\n");
    let unknown = folder.run(&["notify", "test", "hok"]);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.err.contains("unknown rule hok") && unknown.err.contains("did you mean hook?"),
        "{}",
        unknown.err
    );
    let unlike = folder.run(&["notify", "test", "mail"]).err;
    assert!(unlike.contains("unknown rule mail in ") && unlike.contains("; the rules are hook"), "{unlike}");

    let daemon = folder.start();
    assert_eq!(get(&daemon, "/notify/test").await.status, 200);
    let url = format!("http://{}", daemon.address());
    let mut remote = folder.command(&["notify", "test", "hook", "--remote", &url]);
    let ended = support::ended(remote.env("OSTLER_TOKEN", "the-token"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains("Rule hook sent a test message by webhook."), "{}", ended.out);
    assert_eq!(receiver.inbox.all().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_checks_the_rules() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "user: bob,"));
    add(&folder, "ada", "member");
    folder.write("vault.json", "{}");
    let checks = || {
        let ended = folder.run(&["doctor", "--json"]);
        let all: Value = serde_json::from_str(&ended.out).unwrap();
        let found = |what: &str| -> Vec<String> {
            let all = all["checks"].as_array().unwrap().iter();
            let of = all.filter(|check| check["check"] == what);
            of.map(|check| format!("{} {}", check["state"], check["found"])).collect()
        };
        (found("notify"), found("vault"))
    };
    let (notify, vault) = checks();
    assert!(
        notify[0].contains("error") && notify[0].contains("rule hook: the users file has no user bob"),
        "{notify:?}"
    );
    assert!(notify[1].contains("warning") && notify[1].contains("only this computer can open"), "{notify:?}");
    assert!(
        vault[0].contains("host:hook is not set but required by notify.yaml: rules[0].webhook.secret"),
        "{vault:?}"
    );

    folder.write("notify.yaml", "rules: [{ id: X }]");
    assert!(checks().0[0].contains("rules[0].id must be lowercase letters"), "{:?}", checks().0);

    folder.write("notify.yaml", &rule(&receiver, "user: ada,"));
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["publicUrl"] = json!("https://agents.example.org");
    folder.write("config.json", &config.to_string());
    assert_eq!(checks().0, ["\"ok\" \"1 rule; links begin with https://agents.example.org\""]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_about_a_tool_of_a_client_leads_to_what_to_do() {
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "after: 0s, kinds: [clientTool, approval],"));
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["http"] = json!(true);
    folder.write("config.json", &config.to_string());
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    client.request("createSession", json!({ "channel": "echo:/1" })).await.unwrap();
    let chat = client.subscribe("echo:/1").await["defaultChat"].as_str().unwrap().to_owned();
    client.subscribe(&chat).await;
    let tool = json!({ "name": "shout", "description": "Shouts.", "inputSchema": { "type": "object" } });
    let active = json!({ "clientId": "test", "tools": [tool] });
    client.dispatch("echo:/1", 1, json!({ "type": "session/activeClientSet", "activeClient": active })).await;
    client.actions_until("session/activeClientSet").await;
    let started =
        json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "/tool shout {}" } });
    client.dispatch(&chat, 2, started).await;

    let message = receiver.inbox.nth(1).await;
    let data = &message.json()["data"];
    assert_eq!(data["kind"], "clientTool");
    assert!(data["message"].as_str().unwrap().ends_with("waits for the client test to run it"), "{data}");
    let path = message.path();
    let shown = get(&daemon, &path).await;
    assert_eq!(shown.status, 200);
    for says in ["A client has to run a tool", "A link cannot run the tool", ">Open the session</a>"] {
        assert!(shown.body.contains(says), "{says}: {}", shown.body);
    }
    assert!(!shown.body.contains("<form") && !shown.body.contains("<button"), "{}", shown.body);
    assert_eq!(post(&daemon, &path, "answer=approve").await.status, 422);
    // What the client does ends it.
    client.dispatch("echo:/1", 3, json!({ "type": "session/activeClientRemoved", "clientId": "test" })).await;
    get_until(&daemon, &path, 410, "No answer is needed any more").await;
    assert_eq!(receiver.inbox.all().len(), 1, "an answer in vain sends nothing");
}

/// The middle of what rounds took.
fn middle(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took[took.len() / 2]
}

/// With `OSTLER_MEASURE=<rounds>` for figures; otherwise a few rounds that only keep this working.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_its_message_and_its_answer_are_measured() {
    let rounds = std::env::var("OSTLER_MEASURE").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let receiver = Receiver::new().await;
    let folder = folder(&rule(&receiver, "after: 0s,"));
    let ada = add(&folder, "ada", "member");
    let daemon = folder.start();
    let mut client = connect(&daemon, &ada).await;
    let (mut sent, mut shown, mut answered) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        let begun = Instant::now();
        begin(&mut client, &round.to_string(), CALL).await;
        let path = receiver.inbox.nth(round).await.path();
        sent.push(begun.elapsed());
        let begun = Instant::now();
        assert_eq!(get(&daemon, &path).await.status, 200);
        shown.push(begun.elapsed());
        let begun = Instant::now();
        assert_eq!(post(&daemon, &path, "answer=approve").await.status, 200);
        client.actions_until("chat/toolCallConfirmed").await;
        answered.push(begun.elapsed());
        client.actions_until("chat/turnComplete").await;
    }
    eprintln!(
        "{rounds} rounds, p50: a new session and its request to the message {:?}, the page {:?}, the form to the recorded \
         answer {:?}",
        middle(sent),
        middle(shown),
        middle(answered)
    );
}
