//! The directories of a session that change while it is there: what its backend is handed, and whose files are completed.

use ostler_contract::points::{Emit, ResourceCompletion, ResourceFacts, ResourceStore};
use ostler_contract::{Call, Value, json};
use ostler_testkit::{MemoryHost, RawClient, Stage};

const SESSION: &str = "stage:/1";
const CHAT: &str = "ahp-chat://default/c3RhZ2U6LzE";
const A: &str = "file:///srv/a";
const B: &str = "file:///srv/b";

/// Files of which each directory has one, `oats`.
fn files() -> ResourceStore {
    ResourceStore {
        list: Call::now(|_| Ok(vec![])),
        read: Call::now(|_| Err("nothing is there".into())),
        resolve: Call::now(|_| Ok(ResourceFacts { r#type: "file".into(), ..ResourceFacts::default() })),
        complete: Call::now(|(directory, typed): (String, String)| {
            assert_eq!(typed, "oa");
            Ok(vec![ResourceCompletion { path: "oats".into(), uri: format!("{directory}/oats") }])
        }),
        ..ResourceStore::default()
    }
}

async fn host(stage: &Stage) -> (MemoryHost, RawClient) {
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .own(|own| own.register_resources(files(), None))
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    let create = json!({ "channel": SESSION, "workingDirectories": [A] });
    client.request("createSession", create).await.unwrap();
    for channel in [SESSION, CHAT] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    (host, client)
}

/// A turn said and ended; answers in which directories the `number`th start of the backend works.
async fn worked_in(client: &mut RawClient, stage: &Stage, number: usize) -> Vec<String> {
    let turn = format!("t{number}");
    let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": turn } });
    client.dispatch(CHAT, 1, started).await;
    while !stage.told().iter().any(|told| told["begin"][0] == json!(turn)) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    stage.emit(number, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 }));
    client.actions_until("chat/turnComplete").await;
    assert_eq!(stage.started(), number + 1);
    let start = stage.start(number);
    start.working_directory.into_iter().chain(start.additional.into_iter().flatten()).collect()
}

async fn change(client: &mut RawClient, action: Value) {
    let name = action["type"].as_str().unwrap().to_owned();
    client.dispatch(SESSION, 2, action).await;
    let taken = client.actions_until(&name).await.pop().unwrap();
    assert!(taken.get("rejectionReason").is_none(), "{taken}");
}

async fn completed(client: &mut RawClient) -> Vec<String> {
    let params = json!({ "channel": CHAT, "kind": "userMessage", "text": "@oa", "offset": 3 });
    let found = client.request("completions", params).await.unwrap();
    let uri = |item: &Value| item["attachment"]["uri"].as_str().unwrap().to_owned();
    found["items"].as_array().unwrap().iter().map(uri).collect()
}

#[tokio::test]
async fn a_directory_that_is_added_or_removed_reaches_the_backend_and_the_completion_of_files() {
    let stage = Stage::default().in_many_folders();
    let (_host, mut client) = host(&stage).await;
    assert_eq!(worked_in(&mut client, &stage, 0).await, ["/srv/a"]);
    assert_eq!(completed(&mut client).await, ["file:///srv/a/oats"]);

    change(&mut client, json!({ "type": "session/workingDirectorySet", "directory": B })).await;
    assert_eq!(worked_in(&mut client, &stage, 1).await, ["/srv/a", "/srv/b"]);
    assert_eq!(completed(&mut client).await, ["file:///srv/a/oats", "file:///srv/b/oats"]);

    change(&mut client, json!({ "type": "session/workingDirectoryRemoved", "directory": B })).await;
    assert_eq!(worked_in(&mut client, &stage, 2).await, ["/srv/a"]);
    assert_eq!(completed(&mut client).await, ["file:///srv/a/oats"]);
}

#[tokio::test]
async fn the_same_directory_again_starts_nothing_anew() {
    let stage = Stage::default().in_many_folders();
    let (_host, mut client) = host(&stage).await;
    worked_in(&mut client, &stage, 0).await;
    let action = json!({ "type": "session/workingDirectorySet", "directory": A });
    client.dispatch(SESSION, 2, action).await;
    client.request("ping", json!({ "channel": "ahp-root://" })).await.unwrap();
    let started = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Go." } });
    client.dispatch(CHAT, 3, started).await;
    client.actions_until("chat/turnStarted").await;
    assert_eq!(stage.started(), 1);
}
