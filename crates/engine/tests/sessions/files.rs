//! `file:` as clients reach it: by what grants, and what a watch tells of.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler_contract::points::{ChangeType, ResourceChanged, ResourceStore};
use ostler_contract::{Call, HostFunction, Value, json};
use ostler_engine::users::UsersFile;
use ostler_engine::{People, Principal};
use ostler_ports::DiskFiles;
use ostler_protocol::error::code;
use ostler_testkit::{Builder, MemoryHost, RawClient, SIGN_IN, Stage};

fn builder(files: ResourceStore) -> Builder {
    MemoryHost::builder()
        .plugin(Stage::default().plugin(), json!({}))
        .own(move |host| host.register_resources(files, None))
}

async fn client(host: &MemoryHost, principal: Principal) -> RawClient {
    let mut client = host.raw_as(principal);
    client.initialize("c").await;
    client
}

#[tokio::test]
async fn each_operation_asks_its_own_grant() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::write(root.join("a"), "A").unwrap();
    let people = People::new(SIGN_IN, "inn");
    let file = json!({
        "roles": { "reader": ["file:get", "file:list"] },
        "users": [{ "id": "ada", "roles": ["member"] }, { "id": "ben", "roles": ["reader"] }, { "id": "cleo" }]
    });
    people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    let host = builder(Arc::new(DiskFiles::new(std::slice::from_ref(&root))).into_point())
        .people(people)
        .start()
        .await;
    let person =
        |id: &str| Principal::Person(host.host.access.gate.people().unwrap().now().person(id).unwrap());
    let uri = |path: &str| format!("file://{}/{path}", root.display());
    let a = json!({ "uri": uri("a") });
    let write = json!({ "uri": uri("b"), "data": "B", "encoding": "utf-8" });
    let transfer = json!({ "source": uri("b"), "destination": uri("c") });
    let asked = [
        ("resourceRead", &a, "get", true),
        ("resourceList", &json!({ "uri": uri("") }), "list", true),
        ("resourceResolve", &a, "resolve", false),
        ("createResourceWatch", &a, "watch", false),
        ("resourceWrite", &write, "put", false),
        ("resourceCopy", &transfer, "copy", false),
        ("resourceMove", &transfer, "move", false),
        ("resourceMkdir", &json!({ "uri": uri("d") }), "mkdir", false),
        ("resourceDelete", &json!({ "uri": uri("d") }), "delete", false),
        ("resourceRequest", &a, "request", false),
    ];
    let (mut ada, mut ben) = (client(&host, person("ada")).await, client(&host, person("ben")).await);
    let (mut cleo, mut nobody) =
        (client(&host, person("cleo")).await, client(&host, Principal::Anyone).await);
    for (method, params, operation, reads) in asked {
        let refused = |who: &str, outcome: Result<Value, Value>| {
            let error = outcome.unwrap_err();
            assert_eq!(error["code"], code::PERMISSION_DENIED, "{method}");
            assert_eq!(error["message"], format!("{who} may not file:{operation} here"));
        };
        ada.request(method, params.clone()).await.unwrap_or_else(|error| panic!("{method}: {error}"));
        refused("cleo", cleo.request(method, params.clone()).await);
        match reads {
            true => drop(ben.request(method, params.clone()).await.unwrap()),
            false => refused("ben", ben.request(method, params.clone()).await),
        }
        let error = nobody.request(method, params.clone()).await.unwrap_err();
        assert_eq!(error["code"], code::AUTH_REQUIRED, "{method}");
    }
    assert_eq!(std::fs::read_to_string(root.join("c")).unwrap(), "B");
    let typed = json!({ "channel": "stage:/1", "kind": "userMessage", "text": "@", "offset": 1 });
    assert_eq!(
        cleo.request("completions", typed).await.unwrap_err()["message"],
        "cleo may not file:list here"
    );
}

/// Files that are watched: how often that was begun and ended, and who is told.
#[derive(Default)]
struct Watched {
    ended: Arc<AtomicUsize>,
    told: Arc<parking_lot::Mutex<Option<HostFunction<fn(Vec<ResourceChanged>)>>>>,
}

impl Watched {
    fn store(&self) -> ResourceStore {
        let (ended, told) = (self.ended.clone(), self.told.clone());
        ResourceStore {
            list: Call::now(|_| Ok(vec![])),
            read: Call::now(|_| Err("nothing is here".into())),
            resolve: Call::now(|_| Ok(Default::default())),
            complete: Call::now(|_| Ok(vec![])),
            watch: Some(Call::now(move |(_, _, tell)| {
                *told.lock() = Some(tell);
                let ended = ended.clone();
                Ok(Some(Call::now(move |()| {
                    ended.fetch_add(1, Ordering::AcqRel);
                    Ok(())
                })))
            })),
            ..ResourceStore::default()
        }
    }

    async fn tell(&self, paths: &[&str]) {
        let told = self.told.lock().clone().unwrap();
        let changed =
            |path: &&str| ResourceChanged { uri: format!("file:///srv/{path}"), r#type: ChangeType::Updated };
        told.call((paths.iter().map(changed).collect(),)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_it_includes_and_ends_with_its_last_watcher() {
    let watched = Watched::default();
    let host = builder(watched.store()).start().await;
    let mut client = client(&host, Principal::Anyone).await;
    let watch = json!({ "uri": "file:///srv", "recursive": true, "includes": { "items": ["**/*.rs"] },
        "excludes": { "items": ["target"] } });
    let opened = client.request("createResourceWatch", watch).await.unwrap();
    let channel = opened["channel"].clone();
    client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    watched.tell(&["a.txt", "target/b.rs"]).await;
    watched.tell(&["src/c.rs", "target/d.rs"]).await;
    let told = client.next_action().await;
    assert_eq!(told["channel"], channel);
    assert_eq!(
        told["action"],
        json!({ "type": "resourceWatch/changed", "changes": { "items": [{ "uri": "file:///srv/src/c.rs", "type": "updated" }] } })
    );
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(watched.ended.load(Ordering::Acquire), 0, "somebody looks");
    client.notify("unsubscribe", json!({ "channel": channel })).await;
    while watched.ended.load(Ordering::Acquire) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(client.request("subscribe", json!({ "channel": channel })).await.is_err(), "it is released");
}

#[tokio::test(start_paused = true)]
async fn a_watch_nobody_looks_at_in_time_is_released() {
    let watched = Watched::default();
    let host = builder(watched.store()).start().await;
    let mut client = client(&host, Principal::Anyone).await;
    client.request("createResourceWatch", json!({ "uri": "file:///srv" })).await.unwrap();
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(watched.ended.load(Ordering::Acquire), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(watched.ended.load(Ordering::Acquire), 1);
}
