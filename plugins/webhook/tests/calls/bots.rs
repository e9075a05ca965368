//! Calls that talk to a bot.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Outside, SECRET, World, builder, endpoint, folder, read, request, until, write};
use ostler_contract::{Value, json};
use ostler_ports::{FileVault, SqliteSessions, StateDb};
use ostler_testkit::{Builder, MemoryHost};

const BACK: &str = "https://hooks.example/in/a";

fn message(text: &str) -> Value {
    json!({ "message": text })
}

#[tokio::test]
async fn each_reply_of_a_bot_that_runs_no_model() {
    let dir = folder();
    endpoint(dir.path(), "none", "bot: bot://helper\nreply: none");
    endpoint(dir.path(), "sync", "bot: bot://helper\nreply: sync");
    endpoint(dir.path(), "back", "bot: bot://helper\ncallbackPrefix: https://hooks.example/in/");
    let world = World::start(&dir).await;
    let (status, body) = world.say("none", "t1", "hello").await;
    let turn = body["turn"].as_str().unwrap().to_owned();
    assert_eq!((status, body), (202, json!({ "thread": "t1", "turn": turn })));
    let (status, body) = world.say("sync", "t1", "hello").await;
    assert_eq!(status, 200);
    assert_eq!(body, json!({ "thread": "t1", "turn": body["turn"], "status": "complete", "text": "" }));
    let (status, body) = world.say_back("back", "t1", "hello", BACK).await;
    assert_eq!((status, &body), (202, &json!({ "thread": "t1", "turn": body["turn"] })));
    let posts = world.posts.wait_for(1).await;
    let told = json!({ "thread": "t1", "turn": body["turn"], "status": "complete", "text": "" });
    assert_eq!(posts, [(BACK.to_owned(), told)], "and none for the others");

    let chat = world.chat_of("none").await;
    let state = world.chat(&chat).await;
    let sent = &state["turns"][0];
    assert_eq!((&sent["id"], &sent["state"]), (&json!(turn), &json!("complete")));
    assert_eq!((&sent["message"]["text"], &sent["responseParts"]), (&json!("hello"), &json!([])));
    let session =
        world.host.host.sessions.all().into_iter().find(|entry| entry.default_chat() == chat).unwrap();
    assert_eq!(session.owner.as_deref(), Some("plugin:webhook"));
    assert_eq!(world.deliveries("back", 1).await[0]["status"], 202);
}

#[tokio::test]
async fn a_call_is_answered_when_its_turn_is_accepted_and_neither_before_nor_at_its_end() {
    let dir = folder();
    endpoint(dir.path(), "none", "bot: bot://echo\nreply: none");
    endpoint(dir.path(), "back", "bot: bot://echo\ncallbackPrefix: https://hooks.example/in/");
    let accepts = &["bot:get", "bot:chat", "session:create", "session:read"];
    let refuses = World::of(&dir, builder(dir.path()).await.grants(accepts).guarded()).await;
    for id in ["none", "back"] {
        let refused = refuses.say_back(id, "t", "/hang", BACK).await;
        assert_eq!(refused, (409, message("plugin:webhook may not chat:send here")), "{id}");
    }
    assert_eq!(refuses.posts.all(), []);
    refuses.host.host.close().await;
    drop(refuses);

    let world = World::start(&dir).await;
    for id in ["none", "back"] {
        let (status, body) = world.say_back(id, "t", "/hang", BACK).await;
        assert_eq!((status, &body), (202, &json!({ "thread": "t", "turn": body["turn"] })), "{id}");
        let chat = world.chat_of(id).await;
        assert_eq!(world.chat(&chat).await["activeTurn"]["id"], body["turn"], "{id}: it runs on");
        assert_eq!(world.posts.all(), [], "{id}");
        let cancelled = json!({ "type": "chat/turnCancelled", "turnId": body["turn"], "duration": 1 });
        world.client().await.dispatch(&chat, 1, cancelled).await;
        if id == "back" {
            let told = json!({ "thread": "t", "turn": body["turn"], "status": "cancelled", "text": "" });
            assert_eq!(world.posts.wait_for(1).await, [(BACK.to_owned(), told)]);
        }
    }
}

#[tokio::test]
async fn a_chat_is_left_once_no_call_waits_in_it() {
    let dir = folder();
    let replies = ["reply: none", "reply: sync", "callbackPrefix: https://hooks.example/in/"];
    let endpoints: Vec<String> = (0..6).map(|at| format!("e{at}")).collect();
    for (at, id) in endpoints.iter().enumerate() {
        endpoint(dir.path(), id, &format!("bot: bot://echo\n{}", replies[at % 3]));
    }
    let few = |builder: Builder| builder.options(|options| options.limits.awake_sessions = 2);
    let mut world = World::of(&dir, few(builder(dir.path()).await)).await;
    // Each endpoint has its own session. One that the plugin was still subscribed to could not sleep.
    for (at, id) in endpoints.iter().enumerate() {
        let (status, body) = world.say_back(id, "t", "hello", BACK).await;
        assert_eq!(status, if at % 3 == 1 { 200 } else { 202 }, "{id}: {body}");
        let chat = world.chat_of(id).await;
        until(async || world.chat(&chat).await["activeTurn"].is_null().then_some(())).await;
        world.posts.wait_for((at + 1) / 3).await;
    }
    // Nor are those that the next host looks at when it starts.
    world.host.host.close().await;
    drop(world);
    world = World::of(&dir, few(builder(dir.path()).await)).await;
    world.listening().await;
    for id in endpoints.iter().rev() {
        let (status, body) = world.say_back(id, "t", "again", BACK).await;
        assert!(status < 300, "{id}: {body}");
        let chat = world.chat_of(id).await;
        until(async || world.chat(&chat).await["activeTurn"].is_null().then_some(())).await;
    }
}

#[tokio::test]
async fn a_call_that_ends_leaves_the_chat_to_those_that_wait_in_it() {
    let dir = folder();
    endpoint(dir.path(), "sync", "bot: bot://echo\nreply: sync");
    let world = World::start(&dir).await;
    assert_eq!(world.say("sync", "t", "hello").await.0, 200);
    let begun = std::time::Instant::now();
    let (first, second) =
        tokio::join!(world.say("sync", "t", "/slow 200ms one"), world.say("sync", "u", "/slow 200ms two"));
    for ((status, body), text) in [(first, "one"), (second, "two")] {
        assert_eq!((status, &body["text"]), (200, &json!(text)));
    }
    // Without the chat's actions the end of a turn is found 15 seconds later.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn one_chat_per_endpoint_and_every_thread_in_it() {
    let dir = folder();
    endpoint(dir.path(), "one", "bot: bot://helper\nreply: none");
    endpoint(dir.path(), "two", "bot: bot://helper\nreply: none");
    let world = World::start(&dir).await;
    assert!(world.host.host.sessions.all().is_empty(), "the first call starts it");
    for (endpoint, thread) in [("one", "a"), ("one", "b"), ("two", "a"), ("one", "a")] {
        assert_eq!(world.say(endpoint, thread, "hi").await.0, 202);
    }
    let threads = world.kept("webhook-threads").await;
    let of =
        |endpoint: &str| threads.iter().filter(|thread| thread["endpoint"] == endpoint).collect::<Vec<_>>();
    assert_eq!((of("one").len(), of("two").len()), (2, 1));
    assert_eq!(
        (&of("one")[0]["session"], &of("one")[0]["chat"]),
        (&of("one")[1]["session"], &of("one")[1]["chat"])
    );
    assert_ne!(of("one")[0]["chat"], of("two")[0]["chat"]);
    let mut names: Vec<_> = of("one").iter().map(|thread| thread["thread"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(world.chat(&world.chat_of("one").await).await["turns"].as_array().unwrap().len(), 3);

    let first = of("one")[0]["session"].as_str().unwrap().to_owned();
    world.client().await.request("disposeSession", json!({ "channel": first })).await.unwrap();
    assert_eq!(world.say("one", "c", "again").await.0, 202, "one that ended is started again");
    let threads = world.kept("webhook-threads").await;
    let now: Vec<_> = threads.iter().filter(|thread| thread["endpoint"] == "one").collect();
    assert_eq!(now.len(), 3);
    assert!(
        now.iter().all(|thread| thread["session"] == now[0]["session"] && thread["chat"] == now[0]["chat"])
    );
    assert_ne!(now[0]["session"], json!(first), "and every thread is rewritten");
    let world = world.again().await;
    assert_eq!(world.say("one", "a", "later").await.0, 202);
    assert_eq!(world.kept("webhook-threads").await, threads, "the next start goes on in the same");
}

#[tokio::test]
async fn a_bot_that_answers_is_heard_back() {
    let dir = folder();
    endpoint(dir.path(), "sync", "bot: bot://echo\nreply: sync");
    endpoint(dir.path(), "back", "bot: bot://echo\ncallbackPrefix: https://hooks.example/in/");
    let world = World::start(&dir).await;
    let (status, body) = world.say("sync", "t", "good morning").await;
    assert_eq!((status, &body["status"], &body["text"]), (200, &json!("complete"), &json!("good morning")));
    let (status, body) = world.say("sync", "t", "/fail no model today").await;
    assert_eq!(status, 502);
    assert_eq!(
        body,
        json!({
            "thread": "t", "turn": body["turn"], "status": "error", "text": "", "error": "no model today",
            "message": "no model today",
        })
    );
    for (text, status, said, error) in
        [("good evening", "complete", "good evening", None), ("/fail not now", "error", "", Some("not now"))]
    {
        let before = world.posts.all().len();
        assert_eq!(world.say_back("back", "t", text, BACK).await.0, 202);
        let told = world.posts.wait_for(before + 1).await.pop().unwrap().1;
        assert_eq!((&told["status"], &told["text"]), (&json!(status), &json!(said)));
        assert_eq!(told.get("error").and_then(Value::as_str), error);
    }
}

#[tokio::test]
async fn a_bot_that_answers_does_so_with_its_own_model_and_after_its_instructions() {
    let dir = folder();
    let bot = "---\nid: wise\nname: Wise\nharness: echo\nmodel: echo\nanswers: true\n---\nBe brief.\n";
    write(dir.path(), "bots/wise.md", bot);
    endpoint(dir.path(), "sync", "bot: bot://wise\nreply: sync");
    let world = World::start(&dir).await;
    let (status, body) = world.say("sync", "t", "why").await;
    assert_eq!((status, &body["text"]), (200, &json!("why")));
    let turns = world.chat(&world.chat_of("sync").await).await["turns"].as_array().unwrap().clone();
    let said: Vec<_> = turns.iter().map(|turn| turn["message"]["text"].as_str().unwrap()).collect();
    assert_eq!(said, ["Be brief.", "why"]);
    assert_eq!(turns[1]["message"]["model"], json!({ "id": "echo" }));
    assert!(dir.path().join("root/wise").is_dir(), "in a folder of its own");
}

#[tokio::test]
async fn a_sync_call_that_takes_too_long_goes_on_and_one_that_is_cancelled_is_answered() {
    let dir = folder();
    endpoint(dir.path(), "short", "bot: bot://echo\nreply: sync\nsyncTimeoutSeconds: 0.05");
    endpoint(dir.path(), "long", "bot: bot://echo\nreply: sync");
    let world = World::start(&dir).await;
    let (status, body) = world.say("short", "t", "/slow 400ms late").await;
    assert_eq!((status, &body), (202, &json!({ "thread": "t", "turn": body["turn"], "status": "running" })));
    let chat = world.chat_of("short").await;
    let turn = until(async || {
        let turn = world.chat(&chat).await["turns"][0].clone();
        (!turn.is_null()).then_some(turn)
    })
    .await;
    assert_eq!(
        (&turn["id"], &turn["responseParts"][0]["content"]),
        (&body["turn"], &json!("late")),
        "the turn goes on"
    );

    let cancel = async {
        let chat = until(async || {
            let threads = world.kept("webhook-threads").await;
            let thread = threads.iter().find(|thread| thread["endpoint"] == "long")?;
            Some(thread["chat"].as_str().unwrap().to_owned())
        })
        .await;
        let running =
            until(async || world.chat(&chat).await["activeTurn"]["id"].as_str().map(str::to_owned)).await;
        let client = world.client().await;
        client
            .dispatch(&chat, 1, json!({ "type": "chat/turnCancelled", "turnId": running, "duration": 1 }))
            .await;
    };
    let ((status, body), ()) = tokio::join!(world.say("long", "t", "/hang"), cancel);
    assert_eq!((status, &body["status"]), (200, &json!("cancelled")));
    assert_eq!(body.get("error"), None);
}

/// A host with no backend of its own, and these options of the webhook plugin.
fn bare(dir: &Path, options: Value) -> Builder {
    let quiet = ostler_ports::Report::quiet();
    let db = StateDb::open(dir).unwrap();
    MemoryHost::builder()
        .plugin(ostler_plugin_webhook::plugin(), options)
        .plugin(ostler_plugin_bot::plugin(), json!({ "root": dir.join("root") }))
        .sessions(Arc::new(SqliteSessions::new(db, quiet.clone())).into_point())
        .records(crate::support::records(dir))
        .vault(Arc::new(FileVault::new(dir, quiet).unwrap()).into_point())
}

#[tokio::test]
async fn the_plugins_own_timeout_holds_where_the_endpoint_names_none() {
    let dir = folder();
    endpoint(dir.path(), "sync", "bot: bot://echo\nreply: sync");
    endpoint(dir.path(), "own", "bot: bot://echo\nreply: sync\nsyncTimeoutSeconds: 20");
    let host = bare(dir.path(), json!({ "syncTimeoutSeconds": 0.05 }));
    let host = host.plugin(ostler_plugin_echo::plugin(), json!({}));
    let world = World::of(&dir, host).await;
    assert_eq!(world.say("sync", "t", "/slow 60s x").await.1["status"], "running");
    assert_eq!(
        world.say("own", "t", "/slow 300ms x").await.1["text"],
        "x",
        "the endpoint's own overrides it"
    );
}

#[tokio::test]
async fn calls_that_come_while_a_turn_runs_wait_for_it() {
    let dir = folder();
    endpoint(dir.path(), "back", "bot: bot://echo\ncallbackPrefix: https://hooks.example/in/");
    let world = World::start(&dir).await;
    let (first, second, third) = tokio::join!(
        world.say_back("back", "a", "/slow 200ms first", BACK),
        world.say_back("back", "b", "/slow 50ms second", BACK),
        world.say_back("back", "c", "third", BACK),
    );
    let mut told = world.posts.wait_for(3).await;
    for (thread, text, (status, body)) in
        [("a", "first", first), ("b", "second", second), ("c", "third", third)]
    {
        assert_eq!(status, 202);
        let at = told.iter().position(|(_, told)| told["thread"] == thread).unwrap();
        let (_, told) = told.remove(at);
        assert_eq!((&told["turn"], &told["text"]), (&body["turn"], &json!(text)), "each its own words");
    }
}

#[tokio::test]
async fn what_a_call_says_comes_in_either_shape() {
    let dir = folder();
    endpoint(dir.path(), "sync", "bot: bot://echo\nreply: sync");
    endpoint(dir.path(), "back", "bot: bot://helper\ncallbackPrefix: https://hooks.example/in/");
    let world = World::start(&dir).await;
    let bearer = format!("Bearer {SECRET}");
    let text = [("authorization", bearer.as_str()), ("content-type", "text/plain")];
    let (status, body) = world.post_with("sync?thread=a%20b", "plain words", &text).await;
    assert_eq!((status, &body["thread"], &body["text"]), (200, &json!("a b"), &json!("plain words")));
    let (_, body) = world.post("sync?thread=t", r#"{"title":"no text"}"#).await;
    assert_eq!(body["text"], r#"{"title":"no text"}"#, "the whole body is the text");
    assert_eq!(world.post_with(&format!("back?thread=t&callback={BACK}"), "x", &text).await.0, 202);
    world.posts.wait_for(1).await;
    for (path, body, why) in [
        ("sync", "plain words", "The call has no thread"),
        ("sync", r#"{"text":"x"}"#, "The call has no thread"),
        ("sync?thread=t", "", "The call has no text"),
        ("sync?thread=t", r#"{"text":""}"#, "The call has no text"),
        ("back?thread=t", "x", "The call has no callback URL"),
        (
            "back?thread=t&callback=https://hooks.example.evil.example/in/",
            "x",
            "The callback is outside the endpoint's callbackPrefix",
        ),
        ("back?thread=t&callback=nowhere", "x", "The callback is not a URL"),
    ] {
        assert_eq!(world.post(path, body).await, (400, message(why)), "{path}");
    }
    assert_eq!(world.posts.all().len(), 1);
}

#[tokio::test]
async fn a_callback_that_fails_costs_a_log_line_and_nothing_else() {
    let dir = folder();
    endpoint(dir.path(), "back", "bot: bot://helper\ncallbackPrefix: https://hooks.example/in/");
    let world = World::start(&dir).await;
    world.posts.answer(&[Outside::Hangs, Outside::Status(302), Outside::Status(500), Outside::Fails]);
    for _ in 0..5 {
        let (status, _) = world.say_back("back", "t", "x", &format!("{BACK}?token=hush")).await;
        assert_eq!(status, 202);
        let before = world.posts.all().len();
        world.posts.wait_for(before).await;
    }
    let posts = world.posts.wait_for(5).await;
    assert!(posts.iter().all(|(url, _)| url.starts_with(BACK)), "a redirect is not followed: {posts:?}");
    for why in ["response 302, a redirect, is not followed", "response 500", "connection refused"] {
        until(async || world.host.log.has(why).then_some(())).await;
    }
    let lines = world.host.log.all();
    assert!(lines.iter().all(|line| !line.contains("hush")), "{lines:?}");
    let rows = until(async || {
        let rows = world.deliveries("back", 5).await;
        (rows.iter().filter(|row| row.get("callback").is_some()).count() == 4).then_some(rows)
    })
    .await;
    assert!(rows.iter().any(|row| row["callback"] == "200"), "{rows:?}");
}

#[tokio::test]
async fn a_bot_that_cannot_be_talked_to_is_said() {
    let dir = folder();
    endpoint(dir.path(), "nobody", "bot: bot://nobody\nreply: none");
    endpoint(dir.path(), "loud", "bot: bot://echo\nreply: none");
    let world = World::start(&dir).await;
    assert_eq!(world.say("nobody", "t", "x").await, (409, message("No bot at bot://nobody")));
    let why = "endpoint webhooks/nobody: bot://nobody is not available: No bot at bot://nobody";
    assert!(world.host.log.has(why));
    assert_eq!(world.say("loud", "t", "x").await.0, 202);
    world.host.host.close().await;
    drop(world);
    let world = World::of(&dir, bare(dir.path(), json!({}))).await;
    let why = "echo is not loaded on this host";
    assert_eq!(world.say("loud", "t", "x").await, (409, message(why)), "the host's own reason");
}

#[tokio::test]
async fn on_a_host_that_knows_people_the_plugins_grants_decide() {
    const READ: &str = "plugin:webhook may not bot:get here";
    const CHAT: &str =
        "bot://helper answered no chat: the plugin webhook needs the grants bot:chat and session:create";
    for (grants, status, why) in [
        (&[][..], 409, Some(READ)),
        (&["bot:chat", "session:create", "session:read", "session:write"], 409, Some(READ)),
        (&["bot:get", "session:read", "session:write", "session:create"], 409, Some(CHAT)),
        (&["bot:get", "bot:chat", "session:read", "chat:send"], 409, Some(CHAT)),
        (&["bot:get", "bot:chat", "session:create"], 409, Some("plugin:webhook may not chat:turns here")),
        (
            &["bot:get", "bot:chat", "session:create", "session:read"],
            409,
            Some("plugin:webhook may not chat:send here"),
        ),
        (&["bot:get", "bot:chat", "session:create", "session:read", "session:write"], 202, None),
    ] {
        let dir = folder();
        endpoint(dir.path(), "helper", "bot: bot://helper\nreply: none");
        endpoint(dir.path(), "fire", "automation: true");
        let world = World::of(&dir, builder(dir.path()).await.grants(grants).guarded()).await;
        let (answered, body) = world.say("helper", "t", "x").await;
        assert_eq!((answered, body.get("message").and_then(Value::as_str)), (status, why), "{grants:?}");
        if why == Some(READ) || why == Some(CHAT) {
            assert!(world.host.log.has(why.unwrap()), "{grants:?}");
        }
        assert_eq!(world.post("fire", "{}").await.0, 202, "an automation call needs no grant");
        for session in world.host.host.sessions.all() {
            assert_eq!(session.owner.as_deref(), Some("plugin:webhook"));
        }
    }
}

#[tokio::test]
async fn a_record_edited_while_the_host_runs_holds_from_then_on() {
    let dir = folder();
    let world = World::start(&dir).await;
    assert_eq!(world.say("new", "t", "x").await, (404, message("Unknown endpoint")));
    endpoint(dir.path(), "new", "bot: bot://helper\nreply: none");
    until(async || (world.say("new", "t", "x").await.0 == 202).then_some(())).await;
    write(dir.path(), "vault.json", r#"{ "host:hook": "another" }"#);
    until(async || (world.say("new", "t", "x").await.0 == 401).then_some(())).await;
    endpoint(dir.path(), "new", "bot: bot://helper\nreply: none\nsecret: host:empty");
    until(async || {
        (read(world.send(request("new", "x", &[("authorization", "Bearer ")])).await).await.0 == 401)
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_record_that_becomes_invalid_or_is_removed_is_no_endpoint_any_more() {
    let dir = folder();
    endpoint(dir.path(), "new", "bot: bot://helper\nreply: none");
    let world = World::start(&dir).await;
    let answers = async |status: u16| {
        until(async || (world.say("new", "t", "x").await.0 == status).then_some(())).await;
    };
    answers(202).await;
    endpoint(dir.path(), "new", "bot: helper");
    answers(404).await;
    endpoint(dir.path(), "new", "bot: bot://helper\nreply: none");
    answers(202).await;
    std::fs::remove_file(dir.path().join("webhooks/new.md")).unwrap();
    answers(404).await;
}

#[tokio::test]
async fn nothing_of_a_body_is_read_before_the_token_passes_and_no_more_than_the_limit_after() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ostler_contract::http::Body;

    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true");
    endpoint(dir.path(), "talk", "bot: bot://helper\nreply: none");
    let world = World::start(&dir).await;
    let read = Arc::new(AtomicUsize::new(0));
    let body = || {
        let read = read.clone();
        Body::stream(futures::stream::repeat_with(move || {
            read.fetch_add(1, Ordering::Relaxed);
            Ok(bytes::Bytes::from_static(&[b'x'; 1 << 20]))
        }))
    };
    assert_eq!(world.post_with("fire", body(), &[]).await.0, 401);
    assert_eq!(world.post_with("fire", body(), &[("authorization", "Bearer wrong")]).await.0, 401);
    assert_eq!(read.load(Ordering::Relaxed), 0);
    assert_eq!(world.post("fire", body()).await, (400, message("The body is larger than 26214400 bytes")));
    assert!(read.load(Ordering::Relaxed) <= 26, "{read:?}");
    assert_eq!(world.post("talk", body()).await, (400, message("The body is larger than 1048576 bytes")));
    let cut = Body::stream(futures::stream::iter([
        Ok(bytes::Bytes::from_static(b"{\"a\":")),
        Err(ostler_contract::http::BodyError::Slow(Duration::from_secs(30))),
    ]));
    assert_eq!(world.post("fire", cut).await, (400, message("The body did not arrive within 30 seconds")));
}

#[tokio::test]
async fn what_waited_when_the_host_went_down_is_begun_by_the_next() {
    let dir = folder();
    endpoint(dir.path(), "loud", "bot: bot://echo\nreply: none");
    let world = World::start(&dir).await;
    assert_eq!(world.say("loud", "t", "/hang").await.0, 202);
    assert_eq!(world.say("loud", "t", "and then").await.0, 202);
    let chat = world.chat_of("loud").await;
    assert_eq!(world.chat(&chat).await["queuedMessages"].as_array().unwrap().len(), 1);
    let world = world.again().await;
    let turns = until(async || {
        let state = world.chat(&chat).await;
        let turns = state["turns"].as_array().unwrap().clone();
        (turns.len() == 2 && state["activeTurn"].is_null()).then_some(turns)
    })
    .await;
    assert_eq!(turns[1]["responseParts"][0]["content"], "and then");
}
