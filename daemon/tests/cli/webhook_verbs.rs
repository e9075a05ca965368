//! Endpoints added, tried, listed and looked at from beside a daemon that runs.

use crate::support::Folder;
use ostler::webhook::{AddFlags, Endpoints, ReplayFlags, RmFlags, TestFlags, VerbOutput, WebhookVerb};
use ostler_plugin_webhook::tools::senders;
use serde_json::{Value, json};

/// A key as SendGrid shows it.
const SENDGRID_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";

fn folder() -> Folder {
    let folder = Folder::new(json!({}));
    let root = folder.path().join("bot-folders");
    let plugins = json!([
        { "name": "@ostler/echo" },
        { "name": "@ostler/bot", "options": { "root": root } },
        { "name": "@ostler/webhook" },
    ]);
    folder.write("config.json", &json!({ "port": 0, "deltaWindowMs": 0, "plugins": plugins }).to_string());
    folder.write("bots/echo.md", "---\nid: echo\nname: Echo\nharness: echo\nanswers: true\n---\n");
    folder
}

async fn add(endpoints: &Endpoints, flags: AddFlags) -> VerbOutput {
    endpoints.run(WebhookVerb::Add(flags)).await.unwrap()
}

async fn test(endpoints: &Endpoints, id: &str) -> VerbOutput {
    endpoints.run(WebhookVerb::Test(TestFlags { id: id.to_owned(), ..TestFlags::default() })).await.unwrap()
}

#[test]
fn an_automation_of_an_endpoint_gets_the_owner_that_is_given() {
    let folder = folder();
    let add = |id: &str, owner: &str| folder.run(&["webhook", "add", id, "--automation", "--owner", owner]);
    let added = add("report", "team:core");
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(folder.read("automations/report.md").contains("owner: team:core\n"));
    for wrong in ["core", "team:", "group:core", ""] {
        let refused = add("other", wrong);
        assert_eq!(refused.code, Some(2), "{wrong}: {refused:?}");
        let forms =
            "--owner must be user:<id>, root:<host>, plugin:<id>, team:<team> or project:<team>:<project>";
        assert!(refused.err.contains(forms), "{refused:?}");
    }
    assert!(
        !folder.path().join("webhooks/other.md").exists()
            && !folder.path().join("automations/other.md").exists()
    );
    let bot = folder.run(&["webhook", "add", "ask", "--bot", "bot://echo", "--owner", "team:core"]);
    assert_eq!(bot.code, Some(2), "the bot has an owner of its own: {bot:?}");
}

#[test]
fn a_path_that_leads_to_no_field_is_refused() {
    let folder = folder();
    for (flags, why) in [
        (["--prompt", "{{event.a[\"x.y}}"], "has a quoted name without its end"),
        (["--prompt", "{{event.a..b}}"], "has an empty name"),
        (["--order-by", "a[\"x\"]y"], "orderBy must be the name of a field"),
        (["--session-by", "a[10000]"], "session must be { by: <field> }"),
        (["--when", "event.a.0.b == 1"], "when is invalid"),
    ] {
        let refused = folder.run(&[&["webhook", "add", "hub", "--automation"], &flags[..]].concat());
        assert!(refused.code == Some(2) && refused.err.contains(why), "{flags:?}: {refused:?}");
    }
    assert!(!folder.path().join("webhooks/hub.md").exists());
    let prompt =
        "{{event.commits.0.id}} {{event.commits[0].id}} {{event.labels[\"app.kubernetes.io/name\"]}}";
    let added = folder.run(&[
        "webhook",
        "add",
        "hub",
        "--automation",
        "--prompt",
        prompt,
        "--order-by",
        "commits.0.id",
    ]);
    assert_eq!(added.code, Some(0), "{added:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_is_added_tried_listed_and_looked_at() {
    let folder = folder();
    let daemon = folder.start();
    let base = format!("http://{}", daemon.address());
    let endpoints = Endpoints::of(folder.path(), &format!("{base}/")).unwrap();
    let flags = |id: &str| AddFlags { id: id.to_owned(), ..AddFlags::default() };

    let told = add(&endpoints, AddFlags { automation: true, ..flags("fire") }).await;
    let url = format!("{base}/plugins/webhook/fire");
    let token = told.json["token"].as_str().unwrap().to_owned();
    assert_eq!(told.lines[0], format!("fire: {url}"));
    let curl = format!(
        "curl -X POST {url} -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' -d '{{\"hello\":\"world\"}}'"
    );
    assert_eq!(told.lines[2], curl);
    assert_eq!(test(&endpoints, "fire").await.json["answer"], json!({ "endpoint": "fire" }));

    let bot = AddFlags { bot: Some("bot://echo".to_owned()), reply: Some("sync".to_owned()), ..flags("ask") };
    add(&endpoints, bot).await;
    let told = test(&endpoints, "ask").await;
    assert!(told.good);
    assert_eq!((&told.json["status"], &told.json["answer"]["text"]), (&json!(200), &json!("Hello.")));

    for sender in senders() {
        let id = sender.name;
        let signed = AddFlags { automation: true, verify: Some(sender.example.to_owned()), ..flags(id) };
        // These sign with a key of their own.
        let (value, signer) = match id {
            "discord" => ("0123456789abcdef".repeat(4), Some("Discord")),
            "sendgrid" => (SENDGRID_KEY.to_owned(), Some("SendGrid")),
            _ => ("whsec_c2VjcmV0".to_owned(), None),
        };
        add(&endpoints, AddFlags { value: Some(value), ..signed }).await;
        let Some(signer) = signer else {
            assert!(test(&endpoints, id).await.good, "{id}");
            continue;
        };
        let verb = WebhookVerb::Test(TestFlags { id: id.to_owned(), ..TestFlags::default() });
        let exit = endpoints.run(verb).await.unwrap_err();
        let why = format!("only {signer} can sign a call");
        assert!(exit.code() == 2 && exit.to_string().contains(&why), "{exit}");
    }
    let gitlab = AddFlags { automation: true, verify: Some("gitlab".to_owned()), ..flags("token") };
    let told = add(&endpoints, gitlab).await;
    let said = |what: &str| told.lines.iter().any(|line| line.contains(what));
    assert!(said("-H \"X-Gitlab-Token: $SECRET\""), "{:?}", told.lines);
    assert!(said("gitlab waits 10 s for an answer"), "{:?}", told.lines);
    assert!(test(&endpoints, "token").await.good, "a token of GitLab's");
    let events = AddFlags { automation: true, format: Some("cloudevents".to_owned()), ..flags("events") };
    add(&endpoints, AddFlags { dedupe: Some("true".to_owned()), ..events }).await;
    assert!(test(&endpoints, "events").await.good);
    let ordered = AddFlags { automation: true, order_by: Some("issue.id".to_owned()), ..flags("ordered") };
    add(&endpoints, AddFlags { session_by: Some("issue.id".to_owned()), ..ordered }).await;
    let record = folder.read("webhooks/ordered.md");
    assert!(record.contains("orderBy: issue.id") && record.contains("session:\n  by: issue.id"), "{record}");
    assert!(test(&endpoints, "ordered").await.good);
    let ask = "OPTIONS /plugins/webhook/events";
    let (status, answer) = daemon.ask(ask, "WebHook-Request-Origin: a.example\r\n", "").await;
    assert_eq!((status, &answer["endpoint"]), (200, &json!("events")), "through the guard of the listener");
    folder.write("webhooks/broken.md", "---\nid: broken\nautomation: true\n---\n");

    let endpoints = Endpoints::of(folder.path(), &base).unwrap();
    let listed = endpoints.run(WebhookVerb::List).await.unwrap();
    let mut names: Vec<&str> = senders().map(|sender| sender.name).collect();
    names.extend(["ask", "broken", "events", "fire", "ordered", "token"]);
    names.sort_unstable();
    assert_eq!(listed.names, names);
    assert!(listed.lines[0].starts_with(&format!("ask: bot://echo, sync, {base}/plugins/webhook/ask")));
    let broken = names.iter().position(|name| *name == "broken").unwrap();
    assert!(listed.lines[broken].contains("a call to it answers 404"), "{:?}", listed.lines);
    let logged = loop {
        let logged = endpoints.run(WebhookVerb::Log { id: "ask".to_owned() }).await.unwrap();
        if logged.json["calls"].as_array().is_some_and(|calls| !calls.is_empty()) {
            break logged;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert!(
        logged.lines[0].contains(" 200 ") && logged.lines[0].contains("thread test, turn "),
        "{:?}",
        logged.lines
    );
    for told in [listed, logged] {
        let all = format!("{:?}", told);
        for hidden in [token.as_str(), "whsec_c2VjcmV0", "Hello."] {
            assert!(!all.contains(hidden), "{all}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_added_is_said_and_leaves_nothing() {
    let folder = folder();
    let endpoints = Endpoints::of(folder.path(), "http://127.0.0.1:1").unwrap();
    let fire = AddFlags { id: "fire".to_owned(), automation: true, ..AddFlags::default() };
    for (flags, why) in [
        (AddFlags { id: "No".to_owned(), ..fire.clone() }, "invalid endpoint id No"),
        (
            AddFlags { limit: Some("many".to_owned()), ..fire.clone() },
            "invalid limit many; write it as <calls>/<time>, such as 60/1m",
        ),
        (AddFlags { limit: Some("5/soon".to_owned()), ..fire.clone() }, "limit must be"),
        (
            AddFlags { order_by: Some("a..b".to_owned()), ..fire.clone() },
            "orderBy must be the name of a field",
        ),
        (AddFlags { verify: Some("nobody".to_owned()), ..fire.clone() }, "verify must be github, gitlab, "),
        (
            AddFlags { verify: Some("{ scheme: hmac }".to_owned()), ..fire.clone() },
            "verify hmac must have a header",
        ),
        (
            AddFlags { verify: Some("{ scheme".to_owned()), ..fire.clone() },
            "invalid --verify { scheme: line 1",
        ),
        (
            AddFlags { verify: Some("discord".to_owned()), ..fire.clone() },
            "a secret made here cannot verify discord; pass the sender's with --secret-stdin",
        ),
        (
            AddFlags { verify: Some("discord".to_owned()), value: Some("right".to_owned()), ..fire.clone() },
            "the secret is not the public key of a Discord application",
        ),
        (AddFlags { secret: Some("plain".to_owned()), ..fire.clone() }, "a secret is named host:<name>"),
        (
            AddFlags { automation: false, bot: Some("helper".to_owned()), ..fire.clone() },
            "bot must be bot://<slug>",
        ),
        (AddFlags { value: Some(String::new()), ..fire.clone() }, "the secret is empty"),
        (
            AddFlags { value: Some("one\ntwo".to_owned()), ..fire.clone() },
            "the secret contains a line break or another control character, which a header cannot contain",
        ),
        (
            AddFlags { value: Some("tail ".to_owned()), ..fire.clone() },
            "the secret begins or ends with a space, which a bearer token cannot",
        ),
    ] {
        let exit = endpoints.run(WebhookVerb::Add(flags)).await.unwrap_err();
        assert_eq!(exit.code(), 2);
        assert!(exit.to_string().contains(why), "{exit}");
    }
    assert_eq!((folder.read("vault.json"), folder.read("webhooks/fire.md")), (String::new(), String::new()));
    add(&endpoints, fire.clone()).await;
    let exit = endpoints.run(WebhookVerb::Add(fire.clone())).await.unwrap_err();
    assert_eq!(exit.to_string(), "endpoint fire already exists; edit webhooks/fire.md");
    let again = AddFlags { id: "other".to_owned(), secret: Some("host:webhook-fire".to_owned()), ..fire };
    let told = add(&endpoints, again).await;
    assert_eq!(told.json.get("token"), None, "a secret that was there is not shown");
    assert!(told.lines[2].contains("\"Authorization: Bearer $SECRET\""), "{:?}", told.lines);
    for id in ["fire", "nobody"] {
        let verb = WebhookVerb::Test(TestFlags { id: id.to_owned(), ..TestFlags::default() });
        let exit = endpoints.run(verb).await.unwrap_err();
        assert_eq!(exit.code(), if id == "fire" { 1 } else { 2 }, "{exit}");
    }
    let none = endpoints.run(WebhookVerb::Log { id: "fire".to_owned() }).await.unwrap();
    assert_eq!(
        (none.lines, &none.json["calls"]),
        (vec!["no calls of fire recorded yet".to_owned()], &Value::Array(vec![]))
    );
}

/// The first message of a chat waits for the turn with the bot's instructions, and is a turn under another name then.
#[test]
fn a_call_whose_message_waited_is_followed_and_its_turn_is_in_the_log() {
    let folder = folder();
    folder.write(
        "bots/slow.md",
        "---\nid: slow\nname: Slow\nharness: echo\nanswers: true\n---\n/slow 1s ready\n",
    );
    let _daemon = folder.start();
    crate::support::wait_for(|| (folder.run(&["status"]).code == Some(0)).then_some(()))
        .expect("it is found");
    let add = folder.run(&["webhook", "add", "slow", "--bot", "bot://slow", "--reply", "none"]);
    assert_eq!(add.code, Some(0), "{add:?}");
    let test = |text: &str, more: &[&str]| {
        let body = json!({ "thread": "t", "text": text }).to_string();
        folder.run(&[&["webhook", "test", "slow", "--body", &body], more].concat())
    };
    let followed = test("hello", &["--follow"]);
    assert_eq!(followed.code, Some(0), "{followed:?}");
    assert!(followed.out.ends_with("\n> hello\n  hello\nturn complete\n"), "{followed:?}");
    for text in ["/slow 600s", "after it"] {
        assert_eq!(test(text, &[]).code, Some(0));
    }
    let log = crate::support::wait_for(|| {
        let log = folder.run(&["webhook", "log", "slow"]).out;
        (log.lines().count() == 6).then_some(log)
    })
    .expect("three calls and their turns");
    let outcomes: Vec<&str> = log.lines().filter(|line| line.starts_with(' ')).collect();
    assert_eq!(outcomes, ["  turn complete", "  turn running", "  turn waiting"], "{log}");
}

#[test]
fn the_command_line_does_the_same() {
    let folder = folder();
    let daemon = folder.start();
    // Others find it a moment after it said that it is up.
    crate::support::wait_for(|| (folder.run(&["status"]).code == Some(0)).then_some(()))
        .expect("it is found");
    let add = folder.run(&["webhook", "add", "ask", "--bot", "bot://echo", "--reply", "sync"]);
    assert_eq!((add.code, add.err.as_str()), (Some(0), ""), "{add:?}");
    let url = format!("ask: http://{}/plugins/webhook/ask", daemon.address());
    assert_eq!(add.out.lines().next(), Some(url.as_str()));
    // At once: it waits until the daemon has read the record.
    let test = folder.run(&["webhook", "test", "ask", "--json"]);
    assert_eq!(test.code, Some(0), "{test:?}");
    let told: Value = serde_json::from_str(&test.out).unwrap();
    assert_eq!((&told["status"], &told["answer"]["text"]), (&json!(200), &json!("Hello.")));
    let log = folder.run(&["webhook", "log", "ask"]).out;
    assert!(log.contains(" 200 "), "the call is in the log by then: {log}");
    // The turn of a bot is followed as a run is, and its end is in the log.
    let followed = folder.run(&["webhook", "test", "ask", "--follow"]);
    assert_eq!(followed.code, Some(0), "{followed:?}");
    assert!(followed.out.contains("\n> Hello.\n  Hello.\n"), "{followed:?}");
    assert!(followed.out.ends_with("turn complete\n"), "{followed:?}");
    let log = folder.run(&["webhook", "log", "ask"]).out;
    assert!(log.ends_with("\n  turn complete\n"), "{log}");
    let mut given = folder
        .command(&["webhook", "add", "hub", "--automation", "--verify", "github", "--secret-stdin"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut given.stdin.take().unwrap(), b"given by the sender\n").unwrap();
    let out = String::from_utf8(given.wait_with_output().unwrap().stdout).unwrap();
    assert!(
        out.contains("secret stored in the vault as host:webhook-hub") && !out.contains("given"),
        "{out}"
    );
    assert!(folder.read("vault.json").contains("given by the sender\""), "without the line's end");
    assert_eq!(folder.run(&["webhook", "list", "--quiet"]).out, "ask\nhub\n");
    drop(daemon);
    let log = folder.run(&["webhook", "log", "ask"]).out;
    assert!(log.ends_with("unavailable: no daemon is running; start it with: ostler start\n"), "{log}");
    let refused = folder.run(&["webhook", "test", "ask"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for wrong in
        [&["webhook", "add", "both", "--bot", "bot://echo", "--automation"][..], &["webhook", "add", "none"]]
    {
        assert_eq!(folder.run(wrong).code, Some(2), "{wrong:?}");
    }
    let log = folder.run(&["webhook", "log", "nobody"]);
    assert_eq!(log.err, "unknown endpoint nobody; list endpoints with: ostler webhook list\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_whose_body_is_stored_is_replayed() {
    let folder = folder();
    let daemon = folder.start();
    let mut endpoints = Endpoints::of(folder.path(), &format!("http://{}", daemon.address())).unwrap();
    endpoints.daemon = Some(daemon.url.clone());
    let flags = AddFlags {
        id: "fire".to_owned(),
        automation: true,
        when: Some("event.a == 1".to_owned()),
        keep_bodies: Some("7d".to_owned()),
        ..AddFlags::default()
    };
    let told = add(&endpoints, flags.clone()).await;
    assert_eq!(told.lines[2], "key of stored bodies created in the vault as host:webhook-bodies");
    let again = AddFlags { id: "second".to_owned(), ..flags.clone() };
    assert!(!add(&endpoints, again).await.lines[2].contains("key of"), "there is one key");
    let wrong = AddFlags { id: "wrong".to_owned(), when: Some("event.".to_owned()), ..flags };
    let exit = endpoints.run(WebhookVerb::Add(wrong)).await.unwrap_err();
    assert!(exit.code() == 2 && exit.to_string().starts_with("when is invalid: "), "{exit}");

    for body in [r#"{"a":1}"#, r#"{"a":2}"#] {
        let flags = TestFlags { id: "fire".to_owned(), body: Some(body.to_owned()), ..TestFlags::default() };
        assert!(endpoints.run(WebhookVerb::Test(flags)).await.unwrap().good);
    }
    let logged = async || {
        endpoints.run(WebhookVerb::Log { id: "fire".to_owned() }).await.unwrap().json["calls"].clone()
    };
    let calls = loop {
        let calls = logged().await;
        let calls_of = calls.as_array().unwrap();
        if calls_of.len() == 2 && calls_of.iter().all(|call| call["status"].is_u64()) {
            break calls;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!((calls[0].get("leftOut"), &calls[1]["leftOut"]), (None, &json!(true)));
    let replay = async |delivery: &str, follow: bool| {
        let flags = ReplayFlags { delivery: delivery.to_owned(), follow };
        endpoints.run(WebhookVerb::Replay(flags)).await
    };
    let id = calls[0]["id"].as_str().unwrap();
    let told = replay(id, true).await.unwrap();
    assert!(told.good, "{told:?}");
    assert_eq!(
        (&told.json["call"]["replays"], &told.json["runs"][0]["status"]),
        (&json!(id), &json!("completed"))
    );
    let left_out = calls[1]["id"].as_str().unwrap();
    let told = replay(left_out, false).await.unwrap();
    assert_eq!(told.lines, [format!("replayed {left_out} on fire: 202, left out by when")]);
    let exit = replay("nothing", false).await.unwrap_err();
    assert!(exit.code() == 2 && exit.to_string().contains("no body of delivery nothing is stored"), "{exit}");
    let lines = endpoints.run(WebhookVerb::Log { id: "fire".to_owned() }).await.unwrap().lines;
    assert!(lines.iter().any(|line| line.contains(&format!("delivery {id}"))), "{lines:?}");

    let rm = RmFlags { id: "fire".to_owned(), yes: true, ..RmFlags::default() };
    endpoints.run(WebhookVerb::Rm(rm)).await.unwrap();
    let left =
        std::fs::read_dir(folder.path().join("webhook-bodies")).map(Iterator::count).unwrap_or_default();
    assert_eq!(left, 0, "its bodies are gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_daemon_was_killed_right_after_the_answer_is_in_the_log_and_replayed() {
    let folder = Folder::with_webhook("{{event.n}}");
    let endpoint = "---\nid: in\nautomation: true\nsecret: host:in\nkeepBodies: 7d\n---\n";
    folder.write("webhooks/in.md", endpoint);
    folder.write("vault.json", r#"{ "host:in": "right", "host:webhook-bodies": "0123456789abcdef-a-key" }"#);
    let daemon = folder.start();
    assert_eq!(daemon.post("/plugins/webhook/in", Some("right"), r#"{"n":1}"#).await.0, 202);
    daemon.kill();
    let daemon = folder.start();
    let mut endpoints = Endpoints::of(folder.path(), &format!("http://{}", daemon.address())).unwrap();
    endpoints.daemon = Some(daemon.url.clone());
    let told = endpoints.run(WebhookVerb::Log { id: "in".to_owned() }).await.unwrap();
    let call = &told.json["calls"][0];
    assert!(call["keptUntil"].is_string() && call["at"].is_string(), "{told:?}");
    let delivery = call["id"].as_str().unwrap().to_owned();
    let line = format!("{} answer not recorded, delivery {delivery}", call["at"].as_str().unwrap());
    assert_eq!(told.lines, [line]);
    let flags = ReplayFlags { delivery, follow: true };
    let told = endpoints.run(WebhookVerb::Replay(flags)).await.unwrap();
    assert_eq!(told.json["runs"][0]["status"], "completed", "{told:?}");
}

/// Each command has its own stores, as separate processes have.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_endpoint_that_is_added_twice_concurrently_is_added_once() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let adding = (0..4).map(|_| {
            let endpoints = Endpoints::of(folder.path(), "http://127.0.0.1:1").unwrap();
            let flags = AddFlags { id: "fire".to_owned(), automation: true, ..AddFlags::default() };
            tokio::spawn(async move { endpoints.run(WebhookVerb::Add(flags)).await })
        });
        let adding: Vec<_> = adding.collect();
        let mut tokens = Vec::new();
        for added in adding {
            match added.await.unwrap() {
                Ok(added) => tokens.push(added.json["token"].as_str().unwrap().to_owned()),
                Err(why) => assert!(why.to_string().contains("endpoint fire already exists"), "{why}"),
            }
        }
        let vault = std::fs::read_to_string(folder.path().join("vault.json")).unwrap();
        assert_eq!(tokens.len(), 1);
        assert!(vault.contains(&tokens[0]), "the token is the one that is stored");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_body_was_evicted_is_not_shown_as_replayable() {
    let folder = Folder::with_webhook("{{event.n}}");
    let endpoint = "---\nid: big\nautomation: true\nsecret: host:in\nkeepBodies: 7d\n---\n";
    folder.write("webhooks/big.md", endpoint);
    folder.write("vault.json", r#"{ "host:in": "right", "host:webhook-bodies": "0123456789abcdef-a-key" }"#);
    let daemon = folder.start();
    let body = json!({ "text": "x".repeat(1000 * 1024) }).to_string();
    for _ in 0..17 {
        assert_eq!(daemon.post("/plugins/webhook/big", Some("right"), &body).await.0, 202);
    }
    let endpoints = Endpoints::of(folder.path(), &format!("http://{}", daemon.address())).unwrap();
    let calls = loop {
        let logged = endpoints.run(WebhookVerb::Log { id: "big".to_owned() }).await.unwrap();
        let calls = logged.json["calls"].as_array().unwrap().clone();
        if calls.len() == 17 && calls.iter().all(|call| call["status"].is_u64()) {
            break calls;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let replayable: Vec<bool> = calls.iter().map(|call| call["keptUntil"].is_string()).collect();
    assert_eq!(replayable, [vec![false], vec![true; 16]].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_url_of_an_endpoint_is_the_one_that_senders_use() {
    let public = "https://agents.example/ostler";
    let folder = Folder::new(json!({
        "publicUrl": public, "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }],
    }));
    let run = |args: &[&str]| {
        let run = folder.run(args);
        assert_eq!(run.code, Some(0), "{run:?}");
        run.out
    };
    let url = format!("{public}/plugins/webhook/early");
    assert!(run(&["webhook", "add", "early", "--automation"]).contains(&format!("early: {url}\n")));
    let daemon = folder.start();
    let added = run(&["webhook", "add", "later", "--automation"]);
    let url = format!("{public}/plugins/webhook/later");
    assert!(
        added.contains(&format!("later: {url}\n")) && added.contains(&format!("curl -X POST {url} ")),
        "{added}"
    );
    assert!(run(&["webhook", "list"]).contains(&url));
    // It is called at this computer, so that the proxy need not be there.
    let tested = run(&["webhook", "test", "later"]);
    let local = format!("http://{}/plugins/webhook/later", daemon.address());
    assert!(tested.starts_with(&format!("{url} (called at {local}) returned 202\n")), "{tested}");
    assert!(run(&["status"]).contains(&format!("public URL {public}\n")));
    assert!(run(&["doctor"]).contains(&format!(", public URL {public}.\n")));
}

#[test]
fn a_call_is_explained_without_effects() {
    let folder = folder();
    let flags = ["--automation", "--verify", "github", "--dedupe", "true", "--when", "event.ref == \"main\""];
    let added = folder.run(&[&["webhook", "add", "hub"], &flags[..]].concat());
    assert_eq!(added.code, Some(0), "{added:?}");
    let not_running = folder.run(&["webhook", "explain", "hub"]);
    assert!(not_running.code == Some(1) && not_running.err.contains("ostler start"), "{not_running:?}");
    let _daemon = folder.start();
    folder.write("push.json", r#"{"ref":"main"}"#);
    let body = folder.path().join("push.json");
    let body = body.to_str().unwrap();
    let said = folder.run(&[
        "webhook",
        "explain",
        "hub",
        "--body",
        body,
        "--header",
        "X-GitHub-Event: push",
        "--header",
        "X-GitHub-Delivery: 17",
    ]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for line in [
        "the caller would get 401: The sender's signature is missing or malformed",
        "not verified by github; what follows is for a call that is",
        "event: push",
        "delivery: 17",
        "when holds: event.ref == \"main\"",
        "  event.ref is \"main\"",
        "automation hub starts a run now, with echo in a new session",
        "github waits 10 s for an answer and never repeats a failed call",
    ] {
        assert!(said.out.lines().any(|other| other == line), "{line}: {}", said.out);
    }
    let json = folder.run(&["webhook", "explain", "hub", "--json"]);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["status"], &json["when"]["holds"]), (&json!(401), &json!(false)));
    for (flags, why) in [
        (["none", "--header", "a: b"], "no valid endpoint has the id none"),
        (["hub", "--header", "ab"], "header \"ab\" has no colon; write it as 'Name: value'"),
        (["hub", "--body", "/nowhere/x"], "/nowhere/x cannot be read"),
    ] {
        let refused = folder.run(&[&["webhook", "explain"], &flags[..]].concat());
        assert!(refused.code == Some(2) && refused.err.contains(why), "{flags:?}: {refused:?}");
    }
    let log = folder.run(&["webhook", "log", "hub"]);
    assert!(log.out.contains("no calls of hub recorded yet"), "{log:?}");
}
