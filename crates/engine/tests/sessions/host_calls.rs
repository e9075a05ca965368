//! What plugins ask of the host: connections, sessions, secrets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ostler_contract::host::{SecretScope, SessionModel, SessionRequest};
use ostler_contract::points::{
    ResourceContent, ResourceProvider, SchemeDescription, SessionStore, Tool, ToolSpec, Vault,
};
use ostler_contract::{Call, Plugin, PluginHost, Thrown, Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::{Builder, MemoryHost, Stage, cases};

fn plugin(spec: &'static str) -> Plugin {
    Plugin::new(spec, |_, _| Box::pin(async { Ok(()) }))
}

/// A host with the backend `stage`, that knows people if `guarded`, and a plugin `caller` of these grants.
async fn host(stage: &Stage, guarded: bool, grants: &[&str]) -> MemoryHost {
    let builder = builder(stage).plugin(plugin("@test/caller"), json!({})).grants(grants);
    if guarded { builder.guarded().start().await } else { builder.start().await }
}

fn builder(stage: &Stage) -> Builder {
    let store = SqliteSessions::new(StateDb::memory().unwrap(), ostler_ports::Report::quiet());
    MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .options(|options| {
            options.delta_window_ms = 0;
            options.paths = vec!["/srv".to_owned()];
        })
        .sessions(Arc::new(store).into_point())
}

fn object(value: Value) -> ostler_contract::JsonObject {
    value.as_object().cloned().unwrap()
}

async fn ask(
    peer: &ostler_contract::host::Peer,
    method: &str,
    params: Value,
) -> Result<Value, ostler_contract::Thrown> {
    peer.request.call((method.to_owned(), Some(object(params)))).await
}

async fn connected(host: &PluginHost, client: &str) -> ostler_contract::host::Peer {
    let peer = host.connect().unwrap();
    ask(
        &peer,
        "initialize",
        json!({ "channel": "ahp-root://", "clientId": client, "protocolVersions": ["0.9.0"] }),
    )
    .await
    .unwrap();
    peer
}

/// Messages a peer hears, as they come.
fn heard(peer: &ostler_contract::host::Peer) -> Arc<Mutex<Vec<Value>>> {
    let heard: Arc<Mutex<Vec<Value>>> = Arc::default();
    let hears = heard.clone();
    let listener = Call::now(move |(message,)| {
        hears.lock().unwrap().push(message);
        Ok(())
    });
    peer.on_message.call((listener,)).unwrap();
    heard
}

async fn until(what: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if what() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it did not come about");
}

#[tokio::test]
async fn a_plugin_talks_to_the_host_over_connections_of_its_own() {
    let stage = Stage::default();
    let host = host(&stage, false, &[]).await;
    let caller = host.plugin("caller");
    let (one, two) = (connected(caller, "one").await, connected(caller, "two").await);
    let (first, second) = (heard(&one), heard(&two));
    let session = "stage:/1";
    let chat = ostler_protocol::uri::default_chat(session);
    ask(&one, "createSession", json!({ "channel": session, "provider": "stage" })).await.unwrap();
    ask(&one, "subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "channel": chat, "clientSeq": 1, "action": { "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } } });
    one.notify.call(("dispatchAction".to_owned(), Some(object(turn)))).unwrap();
    stage.wait_told("begin").await;
    until(|| {
        first.lock().unwrap().iter().any(|message| message["params"]["action"]["type"] == "chat/turnStarted")
    })
    .await;
    assert!(!second.lock().unwrap().iter().any(|message| message["method"] == "action"), "each is its own");
    assert_eq!(caller.session_owner(session.to_owned()).await.unwrap().as_deref(), Some("plugin:caller"));
    assert_eq!(caller.session_owner("stage:/2".to_owned()).await.unwrap(), None);
    assert!(caller.session_kept(session.to_owned()).await.unwrap());
    assert!(!caller.session_kept("stage:/2".to_owned()).await.unwrap());
    assert!(!caller.session_kept("other:/1".to_owned()).await.unwrap(), "another backend's");
}

#[tokio::test]
async fn a_session_that_cannot_be_looked_up_is_not_said_to_be_gone() {
    let stage = Stage::default();
    let store =
        Arc::new(SqliteSessions::new(StateDb::memory().unwrap(), ostler_ports::Report::quiet())).into_point();
    let fails = Arc::new(AtomicBool::new(false));
    let (sessions, failing) = (store.session.clone().unwrap(), fails.clone());
    let store = SessionStore {
        session: Some(Call::new(move |arguments| {
            let (sessions, fails) = (sessions.clone(), failing.load(Ordering::Relaxed));
            async move { if fails { Err(Thrown::new("no disk")) } else { sessions.unbounded(arguments).await } }
        })),
        ..store
    };
    let host = builder(&stage).sessions(store).plugin(plugin("@test/caller"), json!({})).start().await;
    let caller = host.plugin("caller");
    let missing = "stage:/missing";
    assert!(!caller.session_kept(missing.to_owned()).await.unwrap());
    fails.store(true, Ordering::Relaxed);
    assert!(caller.session_kept(missing.to_owned()).await.unwrap_err().message.contains("no disk"));
    assert!(caller.session_owner(missing.to_owned()).await.unwrap_err().message.contains("no disk"));
    fails.store(false, Ordering::Relaxed);
    host.host.stop().await;
    let why = caller.session_kept(missing.to_owned()).await.unwrap_err();
    assert_eq!(why.message, "the host is stopping");
}

#[tokio::test]
async fn a_plugins_connection_may_do_what_its_entry_grants_and_nothing_else() {
    let stage = Stage::default();
    let granted = self::host(&stage, true, &["session:create"]).await;
    let peer = connected(granted.plugin("caller"), "c").await;
    ask(&peer, "createSession", json!({ "channel": "stage:/1", "provider": "stage" })).await.unwrap();
    let refused = ask(&peer, "subscribe", json!({ "channel": "stage:/1" })).await.unwrap_err();
    assert_eq!(refused.message, "plugin:caller may not session:state here");
    let reads = self::host(&Stage::default(), true, &["session:create", "session:read"]).await;
    let peer = connected(reads.plugin("caller"), "c").await;
    ask(&peer, "createSession", json!({ "channel": "stage:/1" })).await.unwrap();
    ask(&peer, "subscribe", json!({ "channel": "stage:/1" })).await.unwrap();

    let ungranted = host(&Stage::default(), true, &[]).await;
    let peer = connected(ungranted.plugin("caller"), "c").await;
    let refused = ask(&peer, "createSession", json!({ "channel": "stage:/1" })).await.unwrap_err();
    assert_eq!(refused.message, "plugin:caller may not session:create here");

    let open = host(&Stage::default(), false, &[]).await;
    let peer = connected(open.plugin("caller"), "c").await;
    ask(&peer, "createSession", json!({ "channel": "stage:/1" })).await.unwrap();
}

#[tokio::test]
async fn a_closed_connection_takes_nothing_more() {
    let stage = Stage::default();
    let host = host(&stage, false, &[]).await;
    let (closes, stopped) =
        (connected(host.plugin("caller"), "a").await, connected(host.plugin("caller"), "b").await);
    let session = "stage:/1";
    let chat = ostler_protocol::uri::default_chat(session);
    ask(&closes, "createSession", json!({ "channel": session })).await.unwrap();
    for peer in [&closes, &stopped] {
        ask(peer, "subscribe", json!({ "channel": chat })).await.unwrap();
    }
    let turn = |id: &str| {
        let action = json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": "Go." } });
        (
            "dispatchAction".to_owned(),
            Some(object(json!({ "channel": chat, "clientSeq": 1, "action": action }))),
        )
    };
    assert_eq!(host.host.core.fanout.watchers(&chat).len(), 2);
    closes.notify.call(turn("before")).unwrap();
    closes.close.call(()).unwrap();
    closes.close.call(()).unwrap();
    assert_eq!(closes.notify.call(turn("after")).unwrap_err().message, "this connection is closed");
    assert_eq!(ask(&closes, "ping", json!({})).await.unwrap_err().message, "this connection is closed");
    until(|| host.host.core.fanout.watchers(&chat).len() == 1).await;
    assert_eq!(stage.wait_told("begin").await[0], "before", "what was sent before is taken");

    host.host.stop().await;
    assert_eq!(stopped.notify.call(turn("after")).unwrap_err().message, "this connection is closed");
    assert_eq!(ask(&stopped, "ping", json!({})).await.unwrap_err().message, "this connection is closed");
    assert!(host.host.core.fanout.watchers(&chat).is_empty());
    assert!(host.plugin("caller").connect().unwrap_err().message.contains("the host is closing"));
}

fn request(owner: &str) -> SessionRequest {
    SessionRequest { owner: owner.to_owned(), ..SessionRequest::default() }
}

#[tokio::test]
async fn a_session_is_started_for_its_owner_or_refused() {
    let stage = Stage::default();
    let host = host(&stage, false, &[]).await;
    let caller = host.plugin("caller");
    let uri = caller.start_session(request("user:ada")).await.unwrap();
    assert!(uri.starts_with("stage:/"), "the default backend: {uri}");
    assert_eq!(stage.start(0).working_directory.as_deref(), Some("/srv"), "the default directory");
    assert!(!stage.told().iter().any(|told| told.get("begin").is_some()), "nobody speaks");
    assert_eq!(caller.session_owner(uri.clone()).await.unwrap().as_deref(), Some("user:ada"));
    assert!(caller.session_kept(uri.clone()).await.unwrap());
    let mut client = host.raw();
    client.initialize("c").await;
    let listed = client.request("listSessions", json!({})).await.unwrap();
    assert_eq!(listed["items"][0]["resource"], json!(uri), "it is in the catalogue");

    let whole = SessionRequest {
        provider: Some("stage".into()),
        working_directory: Some("/srv/other".into()),
        config: Some(object(json!({ "mood": "calm" }))),
        model: Some(SessionModel { id: "large".into() }),
        prompt: Some("Say something about horses.".into()),
        ..request("plugin:caller")
    };
    let uri = caller.start_session(whole.clone()).await.unwrap();
    let start = stage.start(1);
    assert_eq!(start.working_directory.as_deref(), Some("/srv/other"));
    assert_eq!(start.settings, object(json!({ "mood": "calm" })));
    let told = stage.wait_told("begin").await;
    assert_eq!((&told[1], &told[2]["id"]), (&json!("Say something about horses."), &json!("large")));
    let title = async |client: &mut ostler_testkit::RawClient, uri: &str| {
        let subscribed = client.request("subscribe", json!({ "channel": uri })).await.unwrap();
        subscribed["snapshot"]["state"]["title"].as_str().unwrap().to_owned()
    };
    assert_eq!(title(&mut client, &uri).await, "Say something about horses.", "named after its first turn");
    let uri = caller.start_session(SessionRequest { title: Some("Horses".into()), ..whole }).await.unwrap();
    assert_eq!(title(&mut client, &uri).await, "Horses");

    // Whoever speaks first, and whenever: the first message has the model, unless it names one.
    let silent = SessionRequest {
        owner: "plugin:caller".into(),
        provider: Some("stage".into()),
        model: Some(SessionModel { id: "large".into() }),
        ..SessionRequest::default()
    };
    for (named, given) in [(Value::Null, json!("large")), (json!({ "id": "small" }), json!("small"))] {
        let chat = ostler_protocol::uri::default_chat(&caller.start_session(silent.clone()).await.unwrap());
        client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let begun = |stage: &Stage| {
            stage.told().into_iter().filter(|told| told.get("begin").is_some()).collect::<Vec<_>>()
        };
        for (turn, model) in [("one", &given), ("two", &Value::Null)] {
            let mut message = json!({ "text": turn });
            if turn == "one" && !named.is_null() {
                message["model"] = named.clone();
            }
            let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": message });
            let count = begun(&stage).len();
            client.dispatch(&chat, 1, started).await;
            while begun(&stage).len() == count {
                tokio::task::yield_now().await;
            }
            assert_eq!(&begun(&stage)[count]["begin"][2]["id"], model, "{turn}");
            client.dispatch(&chat, 2, json!({ "type": "chat/turnCancelled", "turnId": turn })).await;
            client.actions_until("chat/turnCancelled").await;
        }
    }

    let before = (host.host.sessions.count(), stage.started());
    for (refused, why) in [
        (
            SessionRequest { prompt: Some(" \n".into()), ..request("user:ada") },
            "prompt is blank; leave it out to open a session with nobody speaking",
        ),
        (
            request("ada"),
            "plugin caller: startSession needs owner to be user:<id>, root:<host>, plugin:<id>, team:<team> or project:<team>:<project>",
        ),
        (
            request("project:x"),
            "plugin caller: startSession needs owner to be user:<id>, root:<host>, plugin:<id>, team:<team> or project:<team>:<project>",
        ),
        (
            request("root:elsewhere"),
            "plugin caller: startSession needs owner to be of this host, root:localhost",
        ),
        (SessionRequest { provider: Some("none".into()), ..request("user:ada") }, "No provider called none"),
    ] {
        assert_eq!(caller.start_session(refused).await.unwrap_err().message, why);
    }
    assert_eq!((host.host.sessions.count(), stage.started()), before, "what is refused leaves nothing");
}

#[tokio::test]
async fn the_owner_of_a_session_has_to_be_allowed_to_create_one() {
    let stage = Stage::default();
    let host = host(&stage, true, &["session:create"]).await;
    let caller = host.plugin("caller");
    // Asked before anything else is looked at.
    let wrong =
        SessionRequest { prompt: Some(String::new()), provider: Some("none".into()), ..request("user:ada") };
    let refused = caller.start_session(wrong).await.unwrap_err();
    assert_eq!(refused.message, "user:ada may not session:create here");
    let refused = caller.start_session(request("plugin:stage")).await.unwrap_err();
    assert_eq!(refused.message, "plugin:stage may not session:create here");
    assert_eq!(stage.started(), 0);
    caller.start_session(request("plugin:caller")).await.unwrap();
    caller.start_session(request("root:localhost")).await.unwrap();
}

#[tokio::test]
async fn a_secret_is_for_the_work_its_name_says() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let asks = asked.clone();
    let held = HashMap::from([("host:k", "h"), ("team:inn/k", "t"), ("user:ada/k", "u")]);
    let vault = Vault {
        get: Call::now(move |(name,): (String,)| {
            asks.lock().unwrap().push(name.clone());
            Ok(held.get(name.as_str()).map(|value| (*value).to_owned()))
        }),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(Vec::new())),
        ..Vault::default()
    };
    let host =
        builder(&Stage::default()).plugin(plugin("@test/caller"), json!({})).vault(vault).start().await;
    let secret = async |name: &str, scope: Option<SecretScope>| {
        host.plugin("caller").secret(name.to_owned(), scope).await.map_err(|thrown| thrown.message)
    };
    let team = |team: &str| Some(SecretScope { team: Some(team.into()), owner: None });
    let owner = |owner: &str| Some(SecretScope { team: None, owner: Some(owner.into()) });
    assert_eq!(secret("host:k", None).await.unwrap(), "h");
    assert_eq!(secret("host:k", owner("user:ada")).await.unwrap(), "h", "any work's");
    assert_eq!(secret("team:inn/k", team("inn")).await.unwrap(), "t");
    assert_eq!(secret("user:ada/k", owner("user:ada")).await.unwrap(), "u");
    asked.lock().unwrap().clear();
    for (name, scope) in [
        ("team:inn/k", None),
        ("team:inn/k", team("other")),
        ("team:inn/k", owner("user:ada")),
        ("user:ada/k", None),
        ("user:ada/k", owner("user:eve")),
        ("user:ada/k", owner("ada")),
        ("user:ada/k", team("ada")),
        ("k", None),
    ] {
        secret(name, scope).await.unwrap_err();
    }
    assert!(asked.lock().unwrap().is_empty(), "the vault is not asked what is refused");
    assert_eq!(
        secret("k", None).await.unwrap_err(),
        "a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>"
    );
    assert_eq!(secret("team:inn/gone", team("inn")).await.unwrap_err(), "the vault holds no team:inn/gone");
    let bare = builder(&Stage::default()).plugin(plugin("@test/caller"), json!({})).start().await;
    let refused = bare.plugin("caller").secret("host:k".into(), None).await.unwrap_err();
    assert_eq!(refused.message, "host:k cannot be read: this host has no vault");
    let refused =
        bare.plugin("caller").records("notes".into(), None).unwrap().list.call(()).await.unwrap_err();
    assert_eq!(refused.message, "records notes cannot be read: this host has no record store");
}

fn notes(host: &PluginHost) -> Result<(), ostler_contract::Thrown> {
    host.register_resource_provider(
        "notes".into(),
        ResourceProvider {
            read: Call::now(|(uri, reader): (String, Option<_>)| {
                let reader: Option<ostler_contract::points::Reader> = reader;
                let who = reader.map_or_else(|| "nobody".to_owned(), |reader| reader.id);
                Ok(ResourceContent::text(format!("{uri} for {who}")))
            }),
            list: Some(Call::now(|_| Ok(Vec::new()))),
            write: Some(Call::now(|_| Ok(()))),
            describe: Some(Call::now(|()| {
                Ok(SchemeDescription {
                    title: Some("Notes".into()),
                    description: Some("What was noted.".into()),
                    manifest: Some(object(json!({ "type": "object" }))),
                })
            })),
            operations: Some(vec!["publish".into()]),
            ..ResourceProvider::default()
        },
    )
}

/// A host tool that reads what it is handed a URI of.
fn reader(host: &PluginHost) -> Result<(), ostler_contract::Thrown> {
    host.register_tool(Tool {
        definition: ToolSpec { name: "read".into(), ..ToolSpec::default() },
        run: Call::new(|(input, at): (Value, ostler_contract::points::ToolContext)| async move {
            at.read.call((input.as_str().unwrap_or_default().to_owned(),)).await.map(Value::from)
        }),
        ..Tool::default()
    })
}

#[tokio::test]
async fn a_scheme_is_advertised_and_read_by_whoever_holds_its_grant() {
    let both = Plugin::new("@test/notes", |host, _| Box::pin(async move { notes(&host) }));
    let host = builder(&Stage::default()).plugin(both, json!({})).start().await;
    let mut client = host.raw();
    let initialized = client.initialize("c").await;
    let meta = &initialized["_meta"];
    assert_eq!(
        meta["ostler.resourceProviders"],
        json!({ "notes": { "title": "Notes", "description": "What was noted.", "manifest": { "type": "object" },
            "root": "notes://", "operations": ["get", "list", "put", "publish"] } })
    );
    let subject = &meta["ostler.grants"]["notes"];
    assert_eq!(subject["operations"], json!(["get", "list", "put", "publish"]));
    assert_eq!((&subject["read"], &subject["write"]), (&json!(["get", "list"]), &json!(["put", "publish"])));
    let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(
        root["snapshot"]["state"]["_meta"]["ostler.resourceProviders"],
        meta["ostler.resourceProviders"]
    );
    let read = client.request("resourceRead", json!({ "uri": "notes://a" })).await.unwrap();
    assert_eq!((&read["data"], &read["encoding"]), (&json!("notes://a for nobody"), &json!("utf-8")));

    let bare = builder(&Stage::default()).start().await;
    let initialized = bare.raw().initialize("c").await;
    assert!(initialized["_meta"].get("ostler.resourceProviders").is_none());

    for (grants, outcome) in [
        (&["notes:get"][..], Ok("notes://a for plugin:caller")),
        (&["notes:put"][..], Err("plugin:caller may not notes:get here")),
    ] {
        let both = Plugin::new("@test/notes", |host, _| Box::pin(async move { notes(&host) }));
        let stage = Stage::default();
        let tool = Plugin::new("@test/tool", |host, _| Box::pin(async move { reader(&host) }));
        let guarded = builder(&stage)
            .plugin(both, json!({}))
            .plugin(tool, json!({}))
            .plugin(plugin("@test/caller"), json!({}))
            .grants(&[grants, &["session:create"]].concat())
            .guarded()
            .start()
            .await;
        let peer = connected(guarded.plugin("caller"), "c").await;
        let read = ask(&peer, "resourceRead", json!({ "uri": "notes://a" })).await;
        let read =
            read.map(|read| read["data"].as_str().unwrap().to_owned()).map_err(|thrown| thrown.message);
        assert_eq!(read.as_deref().map_err(String::as_str), outcome);
        // A tool reads what the owner of its session may.
        guarded.plugin("caller").start_session(request("plugin:caller")).await.unwrap();
        let tool = stage.start(0).tools.unwrap().remove(0).run.unwrap();
        let read = tool.call((json!("notes://a"), None)).await;
        let read = read.map(|read| read.as_str().unwrap().to_owned()).map_err(|thrown| thrown.message);
        assert_eq!(read.as_deref().map_err(String::as_str), outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_never_describes_itself_costs_its_description() {
    let silent = Plugin::new("@test/silent", |host, _| {
        Box::pin(async move {
            for (scheme, describe) in [
                ("silent", Call::new(|()| std::future::pending())),
                ("broken", Call::now(|()| Err("boom".into()))),
            ] {
                host.register_resource_provider(
                    scheme.into(),
                    ResourceProvider {
                        read: Call::now(|_| Ok(ResourceContent::text(""))),
                        describe: Some(describe),
                        ..ResourceProvider::default()
                    },
                )?;
            }
            Ok(())
        })
    });
    let begun = tokio::time::Instant::now();
    // Without a store, whose thread paused time would not wait for.
    let stage = Stage::default();
    let builder = MemoryHost::builder().plugin(stage.plugin(), json!({}));
    let host = builder.plugin(silent, json!({})).start().await;
    assert!(begun.elapsed() <= std::time::Duration::from_secs(6), "{:?}", begun.elapsed());
    assert!(
        host.log.has(
            "plugin silent: the describe of its scheme silent failed: it did not answer within 5 seconds"
        )
    );
    assert!(host.log.has("plugin silent: the describe of its scheme broken failed: boom"));
    let initialized = host.raw().initialize("c").await;
    assert_eq!(
        initialized["_meta"]["ostler.resourceProviders"]["silent"],
        json!({ "root": "silent://", "operations": ["get"] })
    );
}

#[tokio::test]
async fn two_plugins_cannot_serve_one_scheme() {
    let one = Plugin::new("@test/one", |host, _| Box::pin(async move { notes(&host) }));
    let two = Plugin::new("@test/two", |host, _| Box::pin(async move { notes(&host) }));
    let host = builder(&Stage::default()).plugin(one, json!({})).plugin(two, json!({})).start().await;
    assert_eq!(host.problems, ["plugin two registers scheme notes, which plugin one already registered"]);
}

#[tokio::test]
async fn turns_a_session_store_does_not_keep_are_kept_by_the_host() {
    let own =
        Arc::new(SqliteSessions::new(StateDb::memory().unwrap(), ostler_ports::Report::quiet())).into_point();
    let stage = Stage::default();
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .sessions(cases::empty_sessions())
        .start()
        .await;
    host.host.core.set_own_sessions(own.clone());
    let mut client = host.raw();
    client.initialize("c").await;
    let session = "stage:/1";
    let chat = ostler_protocol::uri::default_chat(session);
    client.request("createSession", json!({ "channel": session })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    client
        .dispatch(
            &chat,
            1,
            json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } }),
        )
        .await;
    stage.wait_told("begin").await;
    let turns = async || own.turns.clone().unwrap().unbounded(("1".into(), chat.clone())).await.unwrap();
    assert_eq!(turns().await[0].turn.id, "t");
    client.request("disposeSession", json!({ "channel": session })).await.unwrap();
    assert!(turns().await.is_empty(), "and forgotten with the session");
}
