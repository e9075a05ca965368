//! Changesets that are watched follow the tree they are of.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_contract::points::{
    Changes, ChangesState, Emit, ResourceFacts, ResourceStore, Terminal, TerminalEvents, TerminalRequest,
    TerminalStore, Worktrees,
};
use ostler_contract::{Call, Func, Plugin, json};
use ostler_engine::{Found, LocalSystem, Pinned, Stamp};

use ostler_testkit::{MemoryHost, Stage};

/// A host on which one file moves when a test says so.
#[derive(Default)]
struct Moving(Arc<AtomicU64>);

impl LocalSystem for Moving {
    fn home(&self) -> Option<String> {
        None
    }

    fn look(&self, path: &str) -> Option<Found> {
        (path == "/work/yard").then(|| Found { is_directory: true, real: path.to_owned() })
    }

    fn stamp(&self, path: &str) -> Option<Stamp> {
        (path == "/work/yard/.git/index").then(|| (u128::from(self.0.load(Ordering::SeqCst)), 1))
    }

    fn parts(&self) -> Result<BTreeMap<String, Pinned>, String> {
        Ok(BTreeMap::new())
    }
}

fn git(asked: Arc<AtomicUsize>) -> Plugin {
    counted_git(asked, Arc::default())
}

/// Counts how often the content of a changeset and the directory of git's data are asked for.
fn counted_git(asked: Arc<AtomicUsize>, followed: Arc<AtomicUsize>) -> Plugin {
    Plugin::new("@test/git", move |host, _| {
        let (asked, followed) = (asked.clone(), followed.clone());
        Box::pin(async move {
            host.register_worktrees(
                Worktrees {
                    repository: Call::now(|_| Ok(None)),
                    branches: Call::now(|_| Ok(vec![])),
                    create: Call::now(|_| Err("there is no git".into())),
                    dirty: Call::now(|_| Ok(false)),
                    remove: Call::now(|_| Ok(())),
                    git_dir: Some(Call::now(move |(tree,): (String,)| {
                        followed.fetch_add(1, Ordering::SeqCst);
                        Ok(Some(format!("{tree}/.git")))
                    })),
                    ..Worktrees::default()
                },
                None,
            )?;
            host.register_changes(
                Changes {
                    scopes: Call::now(|_| Ok(vec![])),
                    state: Call::now(move |_| {
                        asked.fetch_add(1, Ordering::SeqCst);
                        Ok(ChangesState::default())
                    }),
                    summary: Call::now(|_| Ok(None)),
                    ..Changes::default()
                },
                None,
            )
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_watched_changeset_is_asked_for_again_when_its_index_moves() {
    let (index, asked) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicUsize::new(0)));
    let host = MemoryHost::builder()
        .plugin(Stage::default().plugin(), json!({}))
        .plugin(git(asked.clone()), json!({}))
        .here(Arc::new(Moving(index.clone())))
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    let session = json!({ "channel": "stage:/1", "workingDirectories": ["file:///work/yard"] });
    client.request("createSession", session).await.unwrap();
    let changeset = json!({ "channel": "stage:/1/changeset/session" });
    client.request("subscribe", changeset.clone()).await.unwrap();
    let pass = async |seconds: u64| tokio::time::sleep(Duration::from_secs(seconds)).await;
    pass(5).await;
    let before = asked.load(Ordering::SeqCst);
    pass(5).await;
    assert_eq!(asked.load(Ordering::SeqCst), before, "nothing moved");
    index.store(2, Ordering::SeqCst);
    pass(3).await;
    assert_eq!(asked.load(Ordering::SeqCst), before + 1);
    client.notify("unsubscribe", changeset).await;
    pass(3).await;
    index.store(3, Ordering::SeqCst);
    pass(5).await;
    assert_eq!(asked.load(Ordering::SeqCst), before + 1, "nobody watches");
}

/// A client that loses its connection is the only subscriber, so nothing follows the directory meanwhile.
#[tokio::test(start_paused = true)]
async fn a_changeset_and_a_session_are_followed_again_after_a_replay() {
    let changeset = "stage:/1/changeset/session";
    for channels in [vec![changeset], vec!["stage:/1"]] {
        let (index, asked) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicUsize::new(0)));
        let followed = Arc::new(AtomicUsize::new(0));
        let host = MemoryHost::builder()
            .plugin(Stage::default().plugin(), json!({}))
            .plugin(counted_git(asked.clone(), followed.clone()), json!({}))
            .here(Arc::new(Moving(index.clone())))
            .start()
            .await;
        let mut client = host.raw();
        client.initialize("c").await;
        let session = json!({ "channel": "stage:/1", "workingDirectories": ["file:///work/yard"] });
        client.request("createSession", session).await.unwrap();
        let mut seen = 0;
        for channel in &channels {
            let subscribed = client.request("subscribe", json!({ "channel": channel })).await.unwrap();
            seen = subscribed["snapshot"]["fromSeq"].as_u64().unwrap();
        }
        let pass = async |seconds: u64| tokio::time::sleep(Duration::from_secs(seconds)).await;
        pass(5).await;
        for frame in client.ready_frames().await {
            seen = seen.max(frame["params"]["serverSeq"].as_u64().unwrap_or_default());
        }
        client.connection.close();
        pass(10).await;
        let (away, left) = (asked.load(Ordering::SeqCst), followed.load(Ordering::SeqCst));
        index.store(2, Ordering::SeqCst);
        pass(10).await;
        assert_eq!(asked.load(Ordering::SeqCst), away, "nobody watches");
        let mut client = host.raw();
        let back = json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": seen,
            "subscriptions": channels });
        let back = client.request("reconnect", back).await.unwrap();
        assert_eq!((&back["type"], &back["missing"]), (&json!("replay"), &json!([])), "{back}");
        pass(5).await;
        assert!(followed.load(Ordering::SeqCst) > left, "{channels:?} is followed again");
        if channels != [changeset] {
            continue;
        }
        let before = asked.load(Ordering::SeqCst);
        assert!(before > away, "it is read again after the replay");
        index.store(3, Ordering::SeqCst);
        pass(5).await;
        assert_eq!(asked.load(Ordering::SeqCst), before + 1, "it is followed");
    }
}

type Ended = Arc<Mutex<Option<Func<fn(Option<i64>)>>>>;

/// Files that take everything.
fn files() -> ResourceStore {
    ResourceStore {
        list: Call::now(|_| Ok(vec![])),
        read: Call::now(|_| Err("nothing is there".into())),
        resolve: Call::now(|_| Ok(ResourceFacts { r#type: "file".into(), ..ResourceFacts::default() })),
        complete: Call::now(|_| Ok(vec![])),
        write: Some(Call::now(|_| Ok(()))),
        ..ResourceStore::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_watched_changeset_is_asked_for_again_after_work_in_its_directory() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (stage, opened) = (Stage::default(), Ended::default());
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .plugin(git(asked.clone()), json!({}))
        .own({
            let opened = opened.clone();
            move |host| {
                host.register_resources(files(), None)?;
                let create = Call::now(move |(_, events): (TerminalRequest, TerminalEvents)| {
                    *opened.lock().unwrap() = Some(events.exited);
                    let input = Call::now(|_| Ok(()));
                    Ok(Terminal { input, dispose: Call::now(|()| Ok(())), ..Terminal::default() })
                });
                host.register_terminals(TerminalStore { create, ..TerminalStore::default() }, None)
            }
        })
        .here(Arc::new(Moving::default()))
        .start()
        .await;
    assert!(host.problems.is_empty(), "{:?}", host.problems);
    let mut client = host.raw();
    client.initialize("c").await;
    for id in ["1", "2"] {
        let session =
            json!({ "channel": format!("stage:/{id}"), "workingDirectories": ["file:///work/yard"] });
        client.request("createSession", session).await.unwrap();
    }
    let pass = async |seconds: u64| tokio::time::sleep(Duration::from_secs(seconds)).await;
    let write =
        json!({ "channel": "ahp-root://", "uri": "file:///work/yard/a", "data": "a", "encoding": "utf-8" });
    client.request("resourceWrite", write.clone()).await.unwrap();
    pass(5).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0, "nobody watches");
    for id in ["1", "2"] {
        client
            .request("subscribe", json!({ "channel": format!("stage:/{id}/changeset/session") }))
            .await
            .unwrap();
    }
    pass(5).await;
    let mut before = asked.load(Ordering::SeqCst);

    client.request("resourceWrite", write.clone()).await.unwrap();
    pass(5).await;
    assert_eq!(asked.load(Ordering::SeqCst), before + 2, "a client wrote: one question for each changeset");
    for _ in 0..50 {
        client.request("resourceWrite", write.clone()).await.unwrap();
    }
    pass(5).await;
    let many = asked.load(Ordering::SeqCst) - before - 2;
    assert!((2..50).contains(&many), "{many} questions after 50 writes");
    before += many;
    let elsewhere =
        json!({ "channel": "ahp-root://", "uri": "file:///work/other/a", "data": "a", "encoding": "utf-8" });
    client.request("resourceWrite", elsewhere).await.unwrap();
    pass(5).await;
    assert_eq!(asked.load(Ordering::SeqCst), before + 2, "somewhere else");

    let shell = json!({ "channel": "ahp-terminal:/t", "cwd": "file:///work/yard/deep",
        "claim": { "kind": "client", "clientId": "c" } });
    client.request("createTerminal", shell).await.unwrap();
    before = asked.load(Ordering::SeqCst);
    let exited = opened.lock().unwrap().take().unwrap();
    exited.call((Some(0),)).unwrap();
    pass(5).await;
    assert_eq!(asked.load(Ordering::SeqCst), before + 2, "a terminal exited");

    let chat = ostler_protocol::uri::default_chat("stage:/1");
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "go" } });
    client.dispatch(&chat, 1, turn).await;
    stage.wait_told("begin").await;
    for action in [
        json!({ "type": "chat/toolCallStart", "turnId": "t", "toolCallId": "w", "toolName": "edit",
            "displayName": "Edit" }),
        json!({ "type": "chat/toolCallReady", "turnId": "t", "toolCallId": "w", "invocationMessage": "Editing",
            "confirmed": "not-needed" }),
    ] {
        stage.emit(0, Emit::Chat, action);
    }
    pass(5).await;
    before = asked.load(Ordering::SeqCst);
    stage.emit(
        0,
        Emit::Chat,
        json!({ "type": "chat/toolCallComplete", "turnId": "t", "toolCallId": "w",
            "result": { "success": true, "pastTenseMessage": "Edited" } }),
    );
    pass(5).await;
    assert_eq!(asked.load(Ordering::SeqCst), before + 2, "a tool call finished");
}
