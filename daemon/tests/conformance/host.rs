//! The calls a plugin makes on its host, and the facts it reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::Shared;
use ostler_contract::host::{SecretScope, SessionRequest};
use ostler_contract::points::{
    Collection, CollectionOptions, RecordChange, Tool, ToolSpec, Usage, UsageEntry, UsageKind, UsageQuery,
    Vault,
};
use ostler_contract::{Call, Cross, JsonObject, Live, Options, PluginHost, Thrown, Value, json};
use ostler_ports::memory_records;
use ostler_testkit::{Builder, MemoryHost};

use crate::side::{Both, Side, Talk, lines_of, object};

const PLUGIN: Both = Both { spec: "@conformance/host-calls", native, javascript: "host.mjs", dress: None };

both! { PLUGIN:
    facts_are_the_hosts,
    yaml_is_read_and_written,
    a_host_without_yaml_throws,
    sessions_are_started_for_their_owner,
    a_session_request_is_taken_field_by_field,
    a_secret_out_of_scope_is_not_asked_for,
    secrets_are_read_by_name_and_scope,
    use_is_recorded_where_a_store_keeps_it,
    use_costs_nothing_where_no_store_keeps_it,
    a_usage_store_that_refuses_throws_at_the_caller,
    records_are_kept_and_watched,
    what_is_handed_over_is_a_copy,
    a_host_without_stores_says_so,
    a_connection_of_its_own_is_a_client_like_any_other,
    a_problem_costs_the_item,
}

type Early = Shared<ostler_contract::Pending<usize>>;

/// A plugin waits for what others do a turn at a time.
async fn turns_until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

async fn answer(
    host: &PluginHost,
    notes: &Collection,
    early: &Early,
    input: &Value,
) -> Result<Value, Thrown> {
    let way = input["way"].as_str().unwrap();
    let secret = |name: &str, scope: Option<SecretScope>| host.secret(name.to_owned(), scope);
    let started = |request: SessionRequest| host.start_session(request);
    Ok(match way {
        "facts" => {
            let facts = host.facts();
            assert!(!facts.version.is_empty());
            json!([facts.paths.first(), facts.paths, "string", facts.host_name, facts.config_dir])
        }
        "yaml" => {
            let value = json!({ "title": "yes", "list": [1, "no", null], "deep": { "text": "a\nb" } });
            json!([host.parse_yaml("a: [1, two]\n".into())?, host.parse_yaml(host.stringify_yaml(value)?)?])
        }
        "badYaml" => host.parse_yaml("a: [".into())?,
        "session" => {
            let asked = SessionRequest {
                owner: "user:ada".into(),
                provider: Some("echo".into()),
                title: Some("Asked".into()),
                prompt: Some("hello".into()),
                ..SessionRequest::default()
            };
            let uri = started(asked).await?;
            let silent =
                started(SessionRequest { owner: "root:inn".into(), ..SessionRequest::default() }).await?;
            json!([
                host.session_kept(uri.clone()).await?,
                host.session_kept("echo:/none".into()).await?,
                host.session_owner(uri).await?,
                host.session_owner(silent).await?,
            ])
        }
        "start" => started(serde_json::from_value(input["request"].clone()).unwrap()).await?.into(),
        "blank" => {
            let blank = SessionRequest {
                owner: "user:ada".into(),
                prompt: Some("  ".into()),
                ..SessionRequest::default()
            };
            started(blank).await?.into()
        }
        "nobody" => {
            started(SessionRequest { owner: "ada".into(), ..SessionRequest::default() }).await?.into()
        }
        "secret" => secret("host:key", None).await?.into(),
        "noSecret" => secret("host:none", None).await?.into(),
        "malformed" => secret("key", None).await?.into(),
        "outOfScope" => secret("team:inn/key", None).await?.into(),
        "inScope" => {
            let scope = SecretScope { team: Some("inn".into()), ..SecretScope::default() };
            secret("team:inn/key", Some(scope)).await?.into()
        }
        "personal" => {
            let scope = SecretScope { owner: Some("user:ada".into()), ..SecretScope::default() };
            secret("user:ada/key", Some(scope)).await?.into()
        }
        "usage" => {
            // What JavaScript is told by the boundary.
            let entry = UsageEntry::from_live(Live::Data(input["request"].clone()));
            let entry = entry
                .map_err(|wrong| Thrown::new(format_args!("plugin host-calls: recordUsage needs {wrong}")))?;
            host.record_usage(entry).await?;
            Value::Null
        }
        "records" => records(notes).await?,
        "copies" => {
            let mut given = object(json!({ "id": "a", "text": "Milk", "deep": { "list": [1] } }));
            notes.put.call((given.clone(),)).await?;
            given["deep"] = Value::Null;
            let mut got = notes.get.call(("a".into(),)).await?.unwrap();
            got["deep"]["list"] = json!([1, 3]);
            notes.list.call(()).await?[0]["text"] = json!("gone");
            notes.find.call((object(json!({ "text": "Milk" })),)).await?[0]["deep"] = Value::Null;
            let mut paths = host.facts().paths.clone();
            paths.push("/mine".into());
            json!([notes.get.call(("a".into(),)).await?, host.facts().paths])
        }
        "badCollection" => json!(host.records("Not a slug".into(), None)?.list.call(()).await?),
        "early" => json!(early.clone().await?),
        "peer" => peer(host).await?,
        other => panic!("{other}"),
    })
}

async fn records(notes: &Collection) -> Result<Value, Thrown> {
    let changes: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = changes.clone();
    let stop = notes.watch.call((Call::now(move |(change,): (RecordChange,)| {
        heard.lock().unwrap().push(format!("{} {}", change.r#type.as_str(), change.id));
        Ok(())
    }),))?;
    let put = |record: Value| notes.put.call((object(record),));
    put(json!({ "id": "a", "text": "Milk" })).await?;
    put(json!({ "id": "a", "text": "Bread" })).await?;
    turns_until(|| changes.lock().unwrap().len() >= 2).await;
    stop.call(())?;
    put(json!({ "id": "b", "text": "Bread" })).await?;
    let bad = put(json!({ "id": "Not a slug" })).await.unwrap_err().message;
    let found: Vec<JsonObject> = notes.find.call((object(json!({ "text": "Bread" })),)).await?;
    let changes = changes.lock().unwrap().clone();
    Ok(json!([
        notes.get.call(("a".into(),)).await?,
        notes.get.call(("none".into(),)).await?,
        notes.list.call(()).await?.len(),
        found.len(),
        notes.remove.call(("b".into(),)).await?,
        notes.remove.call(("b".into(),)).await?,
        changes,
        bad
    ]))
}

async fn peer(host: &PluginHost) -> Result<Value, Thrown> {
    let peer = host.connect()?;
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = heard.clone();
    peer.on_message.call((Call::now(move |(message,): (Value,)| {
        let said = message["params"]["action"]["type"].as_str().or_else(|| message["method"].as_str());
        hears.lock().unwrap().push(said.unwrap_or_default().to_owned());
        Ok(())
    }),))?;
    let ask = |method: &str, params: Value| peer.request.call((method.to_owned(), Some(object(params))));
    let introduction =
        json!({ "channel": "ahp-root://", "clientId": "peer", "protocolVersions": ["1.0.0", "0.9.0"] });
    ask("initialize", introduction).await?;
    ask("createSession", json!({ "channel": "echo:/peer", "provider": "echo" })).await?;
    let listed = ask("listSessions", json!({})).await?["items"].as_array().unwrap().len();
    let session = ask("subscribe", json!({ "channel": "echo:/peer" })).await?;
    let chat = session["snapshot"]["state"]["chats"][0]["resource"].clone();
    ask("subscribe", json!({ "channel": chat })).await?;
    let action = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "hi" } });
    let params = object(json!({ "channel": chat, "clientSeq": 1, "action": action }));
    peer.notify.call(("dispatchAction".into(), Some(params)))?;
    turns_until(|| heard.lock().unwrap().iter().any(|said| said == "chat/turnComplete")).await;
    let refused = ask("createSession", json!({ "channel": "echo:/peer" })).await.unwrap_err().into_rpc().code;
    peer.close.call(())?;
    let closed = ask("listSessions", json!({})).await.unwrap_err().message;
    let streamed = heard.lock().unwrap().iter().any(|said| said == "chat/delta");
    Ok(json!([listed, streamed, refused, closed]))
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.log(host.connect().unwrap_err().message)?;
    let notes = host.records(
        "notes".into(),
        Some(CollectionOptions { body: Some("text".into()), ..CollectionOptions::default() }),
    )?;
    let list = notes.list.call(());
    let counted: ostler_contract::Pending<usize> = Box::pin(async move { Ok(list.await?.len()) });
    let early = counted.shared();
    host.problem("one note could not be read".into())?;
    let asked = host.clone();
    host.register_tool(Tool {
        definition: ToolSpec { name: "ask".into(), ..ToolSpec::default() },
        run: Call::new(move |(input, _): (Value, _)| {
            let (host, notes, early) = (asked.clone(), notes.clone(), early.clone());
            async move {
                Ok(match answer(&host, &notes, &early, &input).await {
                    Ok(answer) => json!({ "answer": answer }),
                    Err(thrown) => json!({ "threw": thrown.message }),
                })
            }
        }),
        ..Tool::default()
    })
}

fn vault() -> Vault {
    let held = BTreeMap::from([("host:key", "h"), ("team:inn/key", "t"), ("user:ada/key", "u")]);
    Vault {
        get: Call::now(move |(name,): (String,)| {
            Ok(held.get(name.as_str()).map(|value| (*value).to_owned()))
        }),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(vec![])),
        close: None,
    }
}

fn with_stores(builder: Builder) -> Builder {
    builder.vault(vault()).records(memory_records()).options(|options| {
        options.host_name = "inn".into();
        options.paths = vec!["/srv/work".into(), "/srv/more".into()];
    })
}

async fn ask(host: &MemoryHost, way: &str) -> Value {
    let said = Talk::with(host, "echo").await.tool("ask", json!({ "way": way })).await;
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("{way}: {said}"))
}

async fn facts_are_the_hosts(side: Side) {
    let host = with_stores(side.host_with_echo()).folder("/etc/inn".as_ref()).start().await;
    assert_eq!(
        ask(&host, "facts").await["answer"],
        json!(["/srv/work", ["/srv/work", "/srv/more"], "string", "inn", "/etc/inn"])
    );
}

async fn what_is_handed_over_is_a_copy(side: Side) {
    let host = with_stores(side.host_with_echo()).start().await;
    let kept = json!({ "id": "a", "text": "Milk", "deep": { "list": [1] } });
    assert_eq!(ask(&host, "copies").await["answer"], json!([kept, ["/srv/work", "/srv/more"]]));
}

async fn yaml_is_read_and_written(side: Side) {
    let host = side.host_with_echo().start().await;
    assert_eq!(
        ask(&host, "yaml").await["answer"],
        json!([{ "a": [1, "two"] }, { "title": "yes", "list": [1, "no", null], "deep": { "text": "a\nb" } }])
    );
    let host = side.host_with_echo().start().await;
    assert!(ask(&host, "badYaml").await["threw"].is_string());
}

async fn a_host_without_yaml_throws(side: Side) {
    for way in ["yaml", "badYaml"] {
        let host = side.host_with_echo().yaml(ostler_engine::Yaml::default()).start().await;
        assert_eq!(ask(&host, way).await["threw"], "this host has no YAML parser");
    }
}

async fn sessions_are_started_for_their_owner(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let db = ostler_ports::StateDb::open(dir.path()).unwrap();
    let sessions =
        Arc::new(ostler_ports::SqliteSessions::new(db, ostler_ports::Report::quiet())).into_point();
    let host = with_stores(side.host_with_echo()).sessions(sessions).start().await;
    assert_eq!(ask(&host, "session").await["answer"], json!([true, false, "user:ada", "root:inn"]));
    let mut client = host.raw();
    client.initialize("c").await;
    let listed = client.request("listSessions", json!({})).await.unwrap();
    let titles: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|row| row["title"].as_str().unwrap()).collect();
    assert!(titles.contains(&"Asked"), "{titles:?}");
    for (way, why) in [("blank", "prompt"), ("nobody", "startSession needs owner to be user:<id>")] {
        let host = side.host_with_echo().start().await;
        let refused = ask(&host, way).await["threw"].as_str().unwrap().to_owned();
        assert!(refused.contains(why), "{refused}");
        let mut client = host.raw();
        client.initialize("c").await;
        let left =
            client.request("listSessions", json!({})).await.unwrap()["items"].as_array().unwrap().len();
        assert_eq!(left, 1, "a refusal leaves nothing behind");
    }
}

/// Starts a session as asked; answers its row and its chat once the turn it was asked with is over.
async fn started(host: &MemoryHost, turn: u64, request: Value) -> (Value, Value) {
    let mut client = host.raw();
    client.initialize(&format!("asker-{turn}")).await;
    let session = format!("echo:/asker-{turn}");
    client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(&session);
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let text = format!("/tool ask {}", json!({ "way": "start", "request": request }));
    let message = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": text } });
    client.dispatch(&chat, 1, message).await;
    let seen = client.actions_until("chat/toolCallComplete").await;
    let said = seen.last().unwrap()["action"]["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    let answer: Value = serde_json::from_str(&said).unwrap();
    let uri = answer["answer"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let turns = usize::from(request.get("prompt").is_some());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let chat = ostler_protocol::uri::default_chat(&uri);
        let state =
            client.request("subscribe", json!({ "channel": chat })).await.unwrap()["snapshot"]["state"]
                .clone();
        if state["turns"].as_array().map_or(0, Vec::len) >= turns {
            let listed = client.request("listSessions", json!({})).await.unwrap()["items"].clone();
            let row = listed.as_array().unwrap().iter().find(|row| row["resource"] == uri.as_str()).cloned();
            return (row.unwrap(), state);
        }
        assert!(std::time::Instant::now() < end, "{state}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

async fn a_session_request_is_taken_field_by_field(side: Side) {
    let builder = with_stores(side.host_with_echo());
    let host = side.other(crate::agent::PLUGIN).load(builder, json!({})).start().await;
    let said = |chat: &Value| {
        let parts = chat["turns"][0]["responseParts"].as_array().unwrap();
        parts.iter().map(|part| part["content"].as_str().unwrap()).collect::<String>()
    };
    let (row, chat) = started(&host, 1, json!({ "owner": "user:ada", "prompt": "What to feed?" })).await;
    assert_eq!(
        (&row["provider"], &row["title"]),
        (&json!("echo"), &json!("What to feed?")),
        "the first backend, named after its turn"
    );
    assert_eq!(chat["turns"][0]["message"]["text"], "What to feed?");

    let ask = json!({ "owner": "user:ada", "provider": "parrot", "prompt": "start" });
    let place: Value = serde_json::from_str(&said(&started(&host, 2, ask).await.1)).unwrap();
    assert_eq!(place[2], "/srv/work", "the host's first directory");
    let ask = json!({ "owner": "user:ada", "provider": "parrot", "workingDirectory": "/srv/more", "prompt": "start" });
    let place: Value = serde_json::from_str(&said(&started(&host, 3, ask).await.1)).unwrap();
    assert_eq!(place[2], "/srv/more");

    let ask = json!({ "owner": "user:ada", "provider": "parrot", "config": { "prefix": "> " }, "model": { "id": "m" },
        "title": "Mine", "prompt": "hi" });
    let (row, chat) = started(&host, 4, ask).await;
    assert_eq!((row["title"].as_str(), said(&chat).as_str()), (Some("Mine"), "> hi"));
    assert_eq!(chat["turns"][0]["message"]["model"]["id"], "m");

    let (_, chat) = started(&host, 5, json!({ "owner": "user:ada" })).await;
    assert!(chat["turns"].as_array().is_none_or(Vec::is_empty), "nobody speaks: {chat}");
}

async fn a_secret_out_of_scope_is_not_asked_for(side: Side) {
    for (way, asked) in [("outOfScope", 0), ("malformed", 0), ("inScope", 1)] {
        let count = Arc::new(Mutex::new(0));
        let counts = count.clone();
        let vault = Vault {
            get: Call::now(move |_| {
                *counts.lock().unwrap() += 1;
                Ok(Some("t".into()))
            }),
            ..vault()
        };
        let host = side.host_with_echo().vault(vault).start().await;
        ask(&host, way).await;
        assert_eq!(*count.lock().unwrap(), asked, "{way}");
    }
}

async fn secrets_are_read_by_name_and_scope(side: Side) {
    for (way, answer) in [
        ("secret", json!({ "answer": "h" })),
        ("inScope", json!({ "answer": "t" })),
        ("personal", json!({ "answer": "u" })),
        ("noSecret", json!({ "threw": "the vault holds no host:none" })),
        (
            "malformed",
            json!({ "threw": "a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>" }),
        ),
        (
            "outOfScope",
            json!({ "threw": "plugin host-calls: secret team:inn/key is for work of team inn; name it as { team: 'inn' }" }),
        ),
    ] {
        let host = with_stores(side.host_with_echo()).start().await;
        assert_eq!(ask(&host, way).await, answer, "{way}");
    }
}

/// Records an entry of ada's, with more said of it; answers what came of it.
async fn record(talk: &mut Talk, more: Value) -> Value {
    let mut entry = object(json!({ "kind": "model", "owner": "user:ada", "note": { "kept": 1 } }));
    entry.extend(object(more));
    let said = talk.tool("ask", json!({ "way": "usage", "request": entry })).await;
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"))
}

fn with_usage(side: Side, usage: Usage) -> Builder {
    side.host_with_echo().own(move |host| host.register_usage(usage, None))
}

fn usage() -> Usage {
    let db = ostler_ports::StateDb::memory().unwrap();
    Arc::new(ostler_ports::SqliteUsage::new(db, ostler_ports::Report::quiet())).into_point()
}

async fn use_is_recorded_where_a_store_keeps_it(side: Side) {
    let usage = usage();
    let host = with_usage(side, usage.clone()).start().await;
    let mut talk = Talk::with(&host, "echo").await;
    let taken = json!({ "answer": null });
    assert_eq!(record(&mut talk, json!({ "team": "web", "project": "shop" })).await, taken);
    assert_eq!(record(&mut talk, json!({ "team": "web" })).await, taken);
    let pools = json!(["root:inn", "team:web", "project:web:shop"]);
    let computer = json!({ "kind": "computer", "pools": pools, "at": "2026-02-01T00:00:00Z", "seconds": 2 });
    assert_eq!(record(&mut talk, computer).await, taken);
    let kept = usage.records.unbounded((UsageQuery::default(),)).await.unwrap();
    let [computer, of_team, of_project] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((computer.kind, of_team.kind), (UsageKind::Computer, UsageKind::Model));
    assert_eq!(json!(computer.pools), pools, "the keys charged are the ones named");
    assert_eq!(of_project.charged(), ["user:ada", "team:web", "project:web:shop"]);
    assert_eq!(of_team.charged(), ["user:ada", "team:web"], "each only where the entry has it");
    assert!(
        of_team.at.as_deref().is_some_and(|at| at.starts_with("2026-01-01T")),
        "now, where it does not say"
    );
    assert_eq!(of_team.rest["note"], json!({ "kept": 1 }), "what the host does not know is kept");
    let known = "user:<id>, root:<host>, plugin:<id>, team:<team> or project:<team>:<project>";
    for (wrong, why) in [
        (
            json!({ "kind": "toll" }),
            "plugin host-calls: recordUsage needs kind to be one of model, computer".to_owned(),
        ),
        (
            json!({ "pools": ["user:ada", "everybody"] }),
            format!("plugin host-calls: recordUsage needs pools[1] to be {known}"),
        ),
        (
            json!({ "at": "soon" }),
            "plugin host-calls: recordUsage needs at to be an ISO 8601 instant, as 2026-01-31T12:00:00Z"
                .to_owned(),
        ),
    ] {
        assert_eq!(record(&mut talk, wrong).await, json!({ "threw": why }));
    }
    assert_eq!(usage.records.unbounded((UsageQuery::default(),)).await.unwrap().len(), 3);
}

async fn use_costs_nothing_where_no_store_keeps_it(side: Side) {
    let host = side.host_with_echo().start().await;
    assert_eq!(record(&mut Talk::with(&host, "echo").await, json!({})).await, json!({ "answer": null }));
}

async fn a_usage_store_that_refuses_throws_at_the_caller(side: Side) {
    let closed = Call::new(|_| async { Err("the books are closed".into()) });
    let host = with_usage(side, Usage { record: closed, ..usage() }).start().await;
    let told = record(&mut Talk::with(&host, "echo").await, json!({})).await;
    assert_eq!(told, json!({ "threw": "the books are closed" }));
}

async fn records_are_kept_and_watched(side: Side) {
    let host = with_stores(side.host_with_echo()).start().await;
    let bad = r#"records notes: put needs id to be a slug, not "Not a slug""#;
    assert_eq!(
        ask(&host, "records").await["answer"],
        json!([{ "id": "a", "text": "Bread" }, null, 2, 2, true, false, ["added a", "updated a"], bad])
    );
    let host = with_stores(side.host_with_echo()).start().await;
    assert_eq!(ask(&host, "early").await, json!({ "answer": 0 }), "a call made in apply is answered later");
    let host = with_stores(side.host_with_echo()).start().await;
    let refused = ask(&host, "badCollection").await;
    assert_eq!(refused["threw"], "plugin host-calls: records needs name to be a slug, not Not a slug");
}

async fn a_host_without_stores_says_so(side: Side) {
    let host = side.host_with_echo().start().await;
    assert_eq!(ask(&host, "secret").await["threw"], "host:key cannot be read: this host has no vault");
    let host = side.host_with_echo().start().await;
    assert_eq!(
        ask(&host, "early").await["threw"],
        "records notes cannot be read: this host has no record store"
    );
}

async fn a_connection_of_its_own_is_a_client_like_any_other(side: Side) {
    let host = with_stores(side.host_with_echo()).start().await;
    let early = lines_of(&host.log, "host-calls").remove(0);
    assert!(early.starts_with("plugin host-calls: connect needs"), "{early}");
    let exists = ostler_protocol::error::code::SESSION_ALREADY_EXISTS;
    assert_eq!(ask(&host, "peer").await["answer"], json!([2, true, exists, "this connection is closed"]));
}

async fn a_problem_costs_the_item(side: Side) {
    let host = with_stores(side.host_with_echo()).start().await;
    assert_eq!(host.problems, ["one note could not be read"]);
    assert_eq!(ask(&host, "secret").await["answer"], "h", "the plugin itself goes on");
}
