//! Chats of a real daemon: opened, killed, found again, over the official client and over frames.

use crate::support::{Client, Folder};
use serde_json::{Value, json};

const FIRST: &str = "ahp-chat://default/ZWNobzovMQ";
const SECOND: &str = "ahp-chat:/second";

const PREAMBLE: &str = "
export const name = 'preamble';
export function apply(host) {
  host.registerChatPreamble(({ chat, chats }) => `${chat} beside ${chats.length}`);
}
";

fn folder() -> Folder {
    let folder =
        Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./preamble.mjs" }] }));
    folder.write("preamble.mjs", PREAMBLE);
    folder
}

async fn say(client: &mut Client, chat: &str, turn: &str, text: &str) -> String {
    let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": text } });
    client.dispatch(chat, 1, started).await;
    let mut said = String::new();
    for seen in client.actions_until("chat/turnComplete").await {
        if seen["channel"] == chat {
            said.push_str(seen["action"]["content"].as_str().unwrap_or_default());
        }
    }
    said
}

#[tokio::test]
async fn chats_outlive_a_daemon_that_is_killed() {
    let folder = folder();
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    client.request("createSession", json!({ "channel": "echo:/1", "provider": "echo" })).await.unwrap();
    client.subscribe(FIRST).await;
    assert_eq!(say(&mut client, FIRST, "t1", "Hay?").await, "Hay?");
    for params in [
        json!({ "chat": SECOND }),
        json!({ "chat": "ahp-chat:/fork", "source": { "kind": "fork", "chat": FIRST, "turnId": "t1" } }),
        json!({ "chat": "ahp-chat:/gone" }),
    ] {
        let mut whole = json!({ "channel": "echo:/1" });
        whole.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
        client.request("createChat", whole).await.unwrap();
    }
    client.request("disposeChat", json!({ "channel": "ahp-chat:/gone" })).await.unwrap();
    daemon.kill();

    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let session = client.subscribe("echo:/1").await;
    let chats: Vec<&str> =
        session["chats"].as_array().unwrap().iter().map(|chat| chat["resource"].as_str().unwrap()).collect();
    assert_eq!(chats, [FIRST, SECOND, "ahp-chat:/fork"]);
    assert_eq!(session["chats"][2]["origin"], json!({ "kind": "fork", "chat": FIRST, "turnId": "t1" }));
    let forked = client.subscribe("ahp-chat:/fork").await;
    assert_eq!(forked["turns"][0]["message"]["text"], "Hay?");
    assert_eq!(say(&mut client, "ahp-chat:/fork", "t2", "Oats?").await, "Oats?");
    // What a plugin had put before its first turn is still put before it.
    client.subscribe(SECOND).await;
    let heard = say(&mut client, SECOND, "t1", "/heard Straw?").await;
    assert_eq!(heard, format!("{SECOND} beside 1\n\nStraw?"));
    daemon.kill();

    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    assert_eq!(client.subscribe(SECOND).await["turns"][0]["message"]["text"], "/heard Straw?");
    assert_eq!(say(&mut client, SECOND, "t2", "/heard again").await, "again", "and before no other");
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test]
async fn the_official_client_opens_and_closes_a_chat() {
    use ostler_protocol::wire::commands::{CreateChatParams, CreateSessionParams, DisposeChatParams};
    let folder = folder();
    let daemon = folder.start();
    let transport = ahp_ws::WebSocketTransport::connect(&daemon.url).await.unwrap();
    let client = ahp::Client::connect(transport, ahp::ClientConfig::default()).await.unwrap();
    client.initialize("c".to_owned(), vec!["0.9.0".to_owned()], vec![]).await.unwrap();
    let session: CreateSessionParams =
        serde_json::from_value(json!({ "channel": "echo:/1", "provider": "echo" })).unwrap();
    let _: Value = client.request("createSession", session).await.unwrap();
    let chat: CreateChatParams = serde_json::from_value(json!({ "channel": "echo:/1", "chat": SECOND,
        "initialMessage": { "text": "hello", "origin": { "kind": "user" } } }))
    .unwrap();
    let _: Value = client.request("createChat", chat).await.unwrap();
    let gone = DisposeChatParams { channel: FIRST.to_owned(), meta: None };
    let _: Value = client.request("disposeChat", gone).await.unwrap();
    let last = DisposeChatParams { channel: SECOND.to_owned(), meta: None };
    let refused: Result<Value, _> = client.request("disposeChat", last).await;
    assert!(refused.unwrap_err().to_string().contains("dispose the session instead"));
}

#[tokio::test]
async fn a_message_that_was_echoed_has_its_attachment_after_a_kill() {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let session = "echo:/pictures";
    let outside = json!({ "channel": session, "workingDirectories": ["file:///"] });
    let refused = client.request("createSession", outside).await.unwrap_err();
    assert_eq!(refused["code"], -32009, "{refused}");
    client.request("createSession", json!({ "channel": session })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(session);
    client.subscribe(&chat).await;
    let data = "QUJD".repeat(200_000);
    let picture =
        json!({ "type": "embeddedResource", "label": "a.png", "contentType": "image/png", "data": data });
    let message = json!({ "text": "/hang", "origin": { "kind": "user" }, "attachments": [picture] });
    client
        .dispatch(&chat, 1, json!({ "type": "chat/turnStarted", "turnId": "t1", "message": message }))
        .await;
    let echoed = client.actions_until("chat/turnStarted").await.pop().unwrap();
    daemon.kill();
    let uri = echoed.pointer("/action/message/attachments/0/uri").unwrap().clone();

    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let seen = client.subscribe(&chat).await.to_string();
    assert!(seen.contains(uri.as_str().unwrap()) && seen.len() < 10_000, "{} bytes", seen.len());
    let read = client.request("resourceRead", json!({ "uri": uri })).await.unwrap();
    assert_eq!(read, json!({ "data": data, "encoding": "base64", "contentType": "image/png" }));
}

/// A backend whose conversation has another id after each turn, and that counts how often it is asked.
const RENAMED: &str = "
export const name = 'renamed';
export function apply(host) {
  host.registerAgent({
    provider: 'renamed', displayName: 'Renamed', schema: () => ({ type: 'object', properties: {} }), defaults: () => ({}),
    create({ emit, resume }) {
      let id;
      let asked = 0;
      return {
        async begin(turnId) {
          const content = JSON.stringify({ resume, asked });
          emit('chat', { type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: turnId, content } });
          await undefined;
          id = `after-${turnId}`;
          emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
        },
        agentId() { asked += 1; return id; },
        cancel() {},
        close() {},
      };
    },
  });
}
";

#[tokio::test]
async fn a_backend_in_javascript_is_continued_by_its_latest_id_and_seldom_asked_for_it() {
    let chat = ostler_protocol::uri::default_chat("renamed:/1");
    let folder = Folder::new(json!({ "plugins": [{ "name": "./renamed.mjs" }] }));
    folder.write("renamed.mjs", RENAMED);
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    client.request("createSession", json!({ "channel": "renamed:/1", "provider": "renamed" })).await.unwrap();
    client.subscribe(&chat).await;
    // A backend without an id is not asked all the time: only time shows that, and the plugin has the real clock.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    for (turn, at_most) in [("t1", 3), ("t2", 8)] {
        let said: Value = serde_json::from_str(&part(&mut client, &chat, turn).await).unwrap();
        assert!(said["asked"].as_u64().unwrap() <= at_most, "{turn}: {said}");
    }
    daemon.stop();
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    client.subscribe(&chat).await;
    let said: Value = serde_json::from_str(&part(&mut client, &chat, "t3").await).unwrap();
    assert_eq!(said["resume"], "after-t2");
}

/// Runs a turn; answers its only part.
async fn part(client: &mut Client, chat: &str, turn: &str) -> String {
    let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": "hello" } });
    client.dispatch(chat, 1, started).await;
    let seen = client.actions_until("chat/turnComplete").await;
    let part = seen.iter().find(|seen| seen["action"]["type"] == "chat/responsePart").unwrap();
    part["action"]["part"]["content"].as_str().unwrap().to_owned()
}
