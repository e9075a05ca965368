//! The memory of resources that are read: for clients that do not receive the answers, for backends, and for copies of
//! clients' plugins.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use ostler_contract::points::{ResourceContent, SessionStore};
use ostler_contract::{Call, Value, json};
use ostler_engine::{Limits, PluginFolders};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::cases::at_once;
use ostler_testkit::{MemoryHost, RawClient};
use tokio::sync::Semaphore;

const MIB: usize = 1024 * 1024;
/// The memory of a connection: enough for one answer and the content of another, not for two of each.
const CONNECTION: usize = 2 * MIB;
/// Bytes of an attachment.
const SIZE: usize = 600_000;
/// How many requests are sent: as many as a connection has served concurrently.
const READS: u64 = 4;

async fn host(store: SessionStore) -> MemoryHost {
    host_of(16 * MIB, store).await
}

async fn host_of(memory: usize, store: SessionStore) -> MemoryHost {
    MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .options(move |options| {
            options.limits = Limits { memory, connection_memory: CONNECTION, ..Limits::default() };
        })
        .sessions(store)
        .start()
        .await
}

/// Returns a store in memory, and how often it has read an attachment.
fn counting_store() -> (SessionStore, Arc<AtomicUsize>) {
    let db = StateDb::memory().unwrap();
    let mut store = at_once(Arc::new(SqliteSessions::new(db, ostler_ports::Report::quiet())).into_point());
    let (read, reads) = (store.attachment.take().unwrap(), Arc::<AtomicUsize>::default());
    let counted = reads.clone();
    store.attachment = Some(Call::new(move |arguments| {
        counted.fetch_add(1, Ordering::SeqCst);
        read.unbounded(arguments)
    }));
    (store, reads)
}

/// Stores an attachment in a session's chat; returns its URI and its content.
async fn with_attachment(client: &mut RawClient) -> (String, String) {
    let data = ResourceContent::base64(&[7; SIZE]).data;
    client.request("createSession", json!({ "channel": "echo:/a" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("echo:/a");
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let picture =
        json!({ "type": "embeddedResource", "label": "a.png", "contentType": "image/png", "data": data });
    let message = json!({ "text": "look", "origin": { "kind": "user" }, "attachments": [picture] });
    let started = json!({ "type": "chat/turnStarted", "turnId": "t", "message": message });
    client.dispatch(&chat, 1, started).await;
    let started = client.actions_until("chat/turnStarted").await.pop().unwrap();
    client.actions_until("chat/turnComplete").await;
    let uri = started["action"]["message"]["attachments"][0]["uri"].as_str().unwrap();
    (uri.to_owned(), data)
}

/// Waits until every task waits: paused time passes only then.
async fn everything_waits() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Requests a resource without receiving an answer.
async fn ask(client: &RawClient, uri: &str) {
    for id in 100..100 + READS {
        let params = json!({ "channel": "ahp-root://", "uri": uri });
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "resourceRead", "params": params });
        client.send(&request.to_string()).await;
    }
}

/// Returns the next answer.
async fn answer(client: &mut RawClient) -> Value {
    loop {
        let frame = client.next_frame().await.unwrap();
        if frame.get("method").is_none() {
            return frame;
        }
    }
}

/// Returns the content in the next answer.
async fn content(client: &mut RawClient) -> Value {
    let answer = answer(client).await;
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"]["data"].clone()
}

#[tokio::test(start_paused = true)]
async fn an_attachment_is_read_when_there_is_memory_for_it() {
    let (store, reads) = counting_store();
    let host = host(store).await;
    let (mut writer, mut reader) = (host.raw(), host.raw());
    writer.initialize("writer").await;
    reader.initialize("reader").await;
    let (uri, data) = with_attachment(&mut writer).await;
    ask(&reader, &uri).await;
    everything_waits().await;
    assert_eq!(reads.load(Ordering::SeqCst), 1, "the others wait until the answer is received");
    for _ in 0..READS {
        assert_eq!(content(&mut reader).await, data.as_str());
    }
    assert_eq!(reads.load(Ordering::SeqCst) as u64, READS);

    // Its id contains its size; an unknown one is assumed to be large, and alone it is served.
    let unknown = reader.request("resourceRead", json!({ "uri": "ostler-attachment:/a" })).await.unwrap_err();
    assert_eq!(unknown["message"], "No attachment at ostler-attachment:/a");
    let facts = reader.request("resourceResolve", json!({ "uri": uri })).await.unwrap();
    assert_eq!((&facts["size"], &facts["contentType"]), (&json!(SIZE), &json!("image/png")));
    assert_eq!(host.host.core.budget.used(), 0);
}

/// Answers the next read that the host asks of a publisher.
async fn publish(publisher: &mut RawClient, data: &str) {
    let asked = publisher.next_frame().await.unwrap();
    assert_eq!(asked["method"], "resourceRead");
    let result = json!({ "data": data, "encoding": "utf-8" });
    publisher.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }).to_string()).await;
}

#[tokio::test]
async fn content_of_a_client_without_memory_is_requested_again_when_there_is() {
    let host = host(counting_store().0).await;
    let (mut publisher, mut reader) = (host.raw(), host.raw());
    publisher.initialize("publisher").await;
    reader.initialize("reader").await;
    let data = "x".repeat(700_000);
    ask(&reader, "memory://publisher/a").await;
    for _ in 0..READS {
        publish(&mut publisher, &data).await;
    }
    assert_eq!(publisher.ready_frames().await.len(), 0, "the others wait until the answer is received");
    let used = host.host.core.budget.used();
    assert!(used <= CONNECTION, "{used} bytes are in use");
    assert_eq!(content(&mut reader).await, data.as_str());
    for _ in 1..READS {
        let (read, ()) = futures::join!(content(&mut reader), publish(&mut publisher, &data));
        assert_eq!(read, data.as_str());
    }
    assert_eq!(host.host.core.budget.used(), 0);

    // Content for which the room that was waited for is not enough is refused.
    ask(&reader, "memory://publisher/a").await;
    for _ in 0..READS {
        publish(&mut publisher, &data).await;
    }
    assert_eq!(content(&mut reader).await, data.as_str());
    publish(&mut publisher, &"x".repeat(CONNECTION)).await;
    let refused = answer(&mut reader).await;
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.starts_with("the memory for answers is in use"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn attachments_are_read_for_backends_when_there_is_memory_for_them() {
    let (mut store, reads) = counting_store();
    let (read, open) = (store.attachment.take().unwrap(), Arc::new(Semaphore::new(0)));
    let gate = open.clone();
    store.attachment = Some(Call::new(move |arguments| {
        let (read, gate) = (read.unbounded(arguments), gate.clone());
        async move {
            gate.acquire().await.unwrap().forget();
            read.await
        }
    }));
    // A quarter of the memory is enough for three of them.
    let host = host_of(24 * MIB, store).await;
    let mut writer = host.raw();
    writer.initialize("writer").await;
    let (uri, _) = with_attachment(&mut writer).await;
    let mut readers = Vec::new();
    for number in 0..5 {
        let (mut reader, session) = (host.raw(), format!("echo:/reader{number}"));
        reader.initialize(&session).await;
        reader.request("createSession", json!({ "channel": session })).await.unwrap();
        let chat = ostler_protocol::uri::default_chat(&session);
        reader.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let message = json!({ "text": format!("/read {uri}"), "origin": { "kind": "user" } });
        reader
            .dispatch(&chat, 1, json!({ "type": "chat/turnStarted", "turnId": "t", "message": message }))
            .await;
        readers.push(reader);
    }
    everything_waits().await;
    assert_eq!(reads.load(Ordering::SeqCst), 3, "the others wait until there is memory");
    let mut ends: FuturesUnordered<_> =
        readers.iter_mut().map(|reader| reader.actions_until("chat/turnComplete")).collect();
    for _ in 0..5 {
        open.add_permits(1);
        ends.next().await.unwrap();
    }
    drop(ends);
    assert_eq!(reads.load(Ordering::SeqCst), 5);
    drop(readers);
    assert_eq!(host.host.core.budget.used(), 0);
}

/// Folders whose files are written when there are permits.
#[derive(Debug)]
struct SlowFolders {
    writes: AtomicUsize,
    open: Semaphore,
}

impl PluginFolders for SlowFolders {
    fn make<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move { Ok(session.to_owned()) })
    }

    fn write<'a>(&'a self, _: &'a str, _: &'a [String], bytes: Vec<u8>) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.writes.fetch_add(1, Ordering::SeqCst);
            self.open.acquire().await.unwrap().forget();
            drop(bytes);
            Ok(())
        })
    }

    fn remove(&self, _: &str) {}
}

/// Answers the requests for a plugin with one file, until its content was requested a number of times.
async fn serve_plugin(publisher: &mut RawClient, content: &str, reads: usize) {
    let mut read = 0;
    while read < reads {
        let asked = publisher.next_frame().await.unwrap();
        let result = match asked["method"].as_str().unwrap() {
            "resourceList" => json!({ "entries": [{ "name": "skill.md", "type": "file" }] }),
            "resourceRead" => {
                read += 1;
                json!({ "data": content, "encoding": "utf-8" })
            }
            _ => continue,
        };
        publisher.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }).to_string()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn plugins_of_clients_are_copied_when_there_is_memory_for_them() {
    /// The number of copies, and of those for which a quarter of the memory is enough.
    const COPIES: usize = 6;
    const AT_ONCE: usize = 4;
    let folders = Arc::new(SlowFolders { writes: AtomicUsize::new(0), open: Semaphore::new(0) });
    let host = host_of(24 * MIB, counting_store().0).await;
    host.host.core.set_plugin_folders(folders.clone());
    // The newest connection of a client is the one that the host asks.
    let (mut editor, mut publisher) = (host.raw(), host.raw());
    editor.initialize("editor").await;
    publisher.initialize("editor").await;
    for number in 0..COPIES {
        let session = format!("echo:/plugins{number}");
        editor.request("createSession", json!({ "channel": session })).await.unwrap();
        editor.request("subscribe", json!({ "channel": session })).await.unwrap();
        let plugin = json!({ "type": "plugin", "id": "kit", "uri": "file:///kit", "name": "Kit" });
        let client = json!({ "clientId": "editor", "tools": [], "customizations": [plugin] });
        let active = json!({ "type": "session/activeClientSet", "activeClient": client });
        editor.dispatch(&session, i64::try_from(number).unwrap(), active).await;
    }
    let content = "x".repeat(700_000);
    serve_plugin(&mut publisher, &content, COPIES).await;
    everything_waits().await;
    assert_eq!(folders.writes.load(Ordering::SeqCst), AT_ONCE, "the others wait until there is memory");
    let used = host.host.core.budget.used();
    assert!(used <= 6 * MIB, "{used} bytes are in use");

    folders.open.add_permits(COPIES);
    serve_plugin(&mut publisher, &content, COPIES - AT_ONCE).await;
    let mut loaded = 0;
    while loaded < COPIES {
        let update = editor.actions_until("session/customizationUpdated").await.pop().unwrap();
        loaded += usize::from(update["action"]["customization"]["load"]["kind"] == "loaded");
    }
    assert_eq!(folders.writes.load(Ordering::SeqCst), COPIES);
    let used = host.host.core.budget.used();
    assert!(used <= COPIES * 256, "{used} bytes remain, for the sessions in which the client is active");
}
