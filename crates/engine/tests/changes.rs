//! Changesets that are watched follow the tree they are of.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ostler_contract::points::{Changes, ChangesState, Worktrees};
use ostler_contract::{Call, Plugin, json};
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
    Plugin::new("@test/git", move |host, _| {
        let asked = asked.clone();
        Box::pin(async move {
            host.register_worktrees(
                Worktrees {
                    repository: Call::now(|_| Ok(None)),
                    branches: Call::now(|_| Ok(vec![])),
                    create: Call::now(|_| Err("there is no git".into())),
                    dirty: Call::now(|_| Ok(false)),
                    remove: Call::now(|_| Ok(())),
                    git_dir: Some(Call::now(|(tree,): (String,)| Ok(Some(format!("{tree}/.git"))))),
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
