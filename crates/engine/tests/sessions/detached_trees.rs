//! Detached working trees that no window names for a day.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_contract::call::Signature;
use ostler_contract::points::{Repository, SessionStore, Worktree, WorktreeRequest, Worktrees};
use ostler_contract::{Call, Plugin, Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::wrapped_store::{WrapCall, wrapped_store};
use ostler_testkit::{MemoryHost, RawClient, Stage};

/// The trees, by path, and whether each has changes.
type Trees = Arc<Mutex<BTreeMap<String, bool>>>;

fn git(trees: &Trees) -> Plugin {
    let trees = trees.clone();
    Plugin::new("@test/git", move |host, _| {
        let (made, dirty, removed) = (trees.clone(), trees.clone(), trees.clone());
        let tree = |request: &WorktreeRequest| Worktree {
            path: format!("/trees/{}", request.name),
            branch: Some(request.name.clone()),
            repository: None,
        };
        Box::pin(async move {
            host.register_worktrees(
                Worktrees {
                    repository: Call::now(|_| Ok(Some(Repository { root: "/work/yard".into() }))),
                    branches: Call::now(|_| Ok(vec!["main".into()])),
                    plan: Some(Call::now(move |(request,)| Ok(tree(&request)))),
                    create: Call::now(move |(request,)| {
                        let tree = tree(&request);
                        made.lock().unwrap().insert(tree.path.clone(), false);
                        Ok(tree)
                    }),
                    dirty: Call::now(move |(path,): (String,)| {
                        Ok(dirty.lock().unwrap().get(&path) == Some(&true))
                    }),
                    remove: Call::now(move |(path,): (String,)| {
                        removed.lock().unwrap().remove(&path);
                        Ok(())
                    }),
                    git_dir: None,
                    remove_branch: Some(Call::now(|_| Ok(true))),
                },
                None,
            )
        })
    })
}

/// Waits for the store on the thread of the test, whose time must not pass until then.
struct Waited;

impl WrapCall for Waited {
    fn wrap<S: Signature>(&self, call: &Call<S>, _: bool) -> Call<S> {
        let call = call.clone();
        Call::new(move |arguments| {
            let call = call.clone();
            async move { futures::executor::block_on(call.unbounded(arguments)) }
        })
    }
}

async fn start(store: &SessionStore, trees: &Trees, hours: i64) -> (MemoryHost, RawClient) {
    let begun: jiff::Timestamp = "2027-01-01T00:00:00Z".parse().unwrap();
    let host = MemoryHost::builder()
        .plugin(Stage::default().plugin(), json!({}))
        .plugin(git(trees), json!({}))
        .sessions(store.clone())
        .started(begun + jiff::SignedDuration::from_hours(hours))
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    (host, client)
}

async fn reconcile(client: &mut RawClient, active: &[&Value]) {
    let params = json!({ "scope": "s", "activeHandles": active });
    client.request("vscode/reconcileAgentHostDetachedWorktrees", params).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clean_tree_goes_when_no_window_named_it_for_a_day_also_across_restarts() {
    let db = StateDb::memory().unwrap();
    let store =
        Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point();
    let store = SessionStore { close: None, ..wrapped_store(&store, &Waited) };
    let trees = Trees::default();
    let (host, mut client) = start(&store, &trees, 0).await;
    let session = json!({ "channel": "stage:/1", "provider": "stage",
        "workingDirectories": ["file:///work/yard"], "config": { "isolation": "worktree" } });
    client.request("createSession", session).await.unwrap();
    let mut made = Vec::new();
    for _ in 0..3 {
        let params = json!({ "session": "stage:/1", "prompt": "p" });
        let answer = client.request("vscode/createAgentHostDetachedWorktree", params).await.unwrap();
        let path = answer["resource"].as_str().unwrap().strip_prefix("file://").unwrap().to_owned();
        made.push((answer["handle"].clone(), path));
    }
    let [used, unnamed, changed] = &made[..] else { panic!("{made:?}") };
    trees.lock().unwrap().insert(changed.1.clone(), true);
    host.host.close().await;
    drop((host, client));

    // Two days later, windows have an hour to name what they use.
    let (_host, mut client) = start(&store, &trees, 48).await;
    let exist = |expected: &[&(Value, String)]| {
        let trees = trees.lock().unwrap();
        for (_, path) in &made {
            let is_expected = expected.iter().any(|(_, other)| other == path);
            assert_eq!(trees.contains_key(path), is_expected, "{path}: {trees:?}");
        }
    };
    tokio::time::sleep(Duration::from_secs(59 * 60)).await;
    reconcile(&mut client, &[]).await;
    exist(&[used, unnamed, changed]);
    reconcile(&mut client, &[&used.0]).await;
    tokio::time::sleep(Duration::from_secs(2 * 60)).await;
    reconcile(&mut client, &[]).await;
    exist(&[used, changed]);
    let claim = "vscode/claimAgentHostDetachedWorktree";
    assert!(client.request(claim, json!({ "handle": unnamed.0 })).await.is_err());
    client.request(claim, json!({ "handle": changed.0 })).await.unwrap();
}
