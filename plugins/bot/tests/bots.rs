//! Bots from outside: made, edited, read, listed, deleted, and talked to.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::sync::Arc;

use ostler_contract::host::Peer;
use ostler_contract::points::{Agent, AgentSession};
use ostler_contract::{Call, JsonObject, Plugin, RpcError, Value, json};
use ostler_ports::{FileRecords, SqliteSessions, StateDb};
use ostler_testkit::{Builder, MemoryHost, RawClient};

/// A plugin that is only somebody with a connection.
fn somebody(spec: &'static str) -> Plugin {
    Plugin::new(spec, |_, _| Box::pin(async { Ok(()) }))
}

/// A backend that lets nobody in.
fn closed() -> Plugin {
    Plugin::new("@test/closed", |host, _| {
        Box::pin(async move {
            host.register_agent(Agent {
                provider: "closed".into(),
                display_name: "Closed".into(),
                schema: Call::now(|()| Ok(json!({}))),
                defaults: Call::now(|()| Ok(JsonObject::new())),
                create: Call::now(|_| -> Result<AgentSession, _> {
                    Err(RpcError::permission_denied("user:x may not session:create here").into())
                }),
                ..Agent::default()
            })
        })
    })
}

fn builder(dir: &Path) -> Builder {
    let quiet = ostler_ports::Report::quiet();
    let db = StateDb::open(dir).unwrap();
    MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .plugin(ostler_plugin_bot::plugin(), json!({ "root": dir.join("root") }))
        .options(|options| options.delta_window_ms = 0)
        .sessions(Arc::new(SqliteSessions::new(db, quiet.clone())).into_point())
        .records(Arc::new(FileRecords::new(dir, quiet)).into_point())
}

async fn client(host: &MemoryHost) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    client
}

async fn write(client: &mut RawClient, uri: &str, body: Value) -> Result<Value, Value> {
    write_with(client, uri, body, json!({})).await
}

async fn write_with(client: &mut RawClient, uri: &str, body: Value, more: Value) -> Result<Value, Value> {
    let mut params =
        json!({ "channel": "ahp-root://", "uri": uri, "data": body.to_string(), "encoding": "utf-8" });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.request("resourceWrite", params).await
}

async fn read(client: &mut RawClient, uri: &str) -> Result<Value, Value> {
    let read = client.request("resourceRead", json!({ "channel": "ahp-root://", "uri": uri })).await?;
    assert_eq!(read["contentType"], "application/json");
    Ok(serde_json::from_str(read["data"].as_str().unwrap()).unwrap())
}

async fn list(client: &mut RawClient) -> Vec<String> {
    let listed =
        client.request("resourceList", json!({ "channel": "ahp-root://", "uri": "bot://" })).await.unwrap();
    let entries = listed["entries"].as_array().unwrap();
    entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

fn refused(outcome: Result<Value, Value>) -> (i64, String) {
    let error = outcome.unwrap_err();
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

/// A plugin's own connection, introduced.
async fn peer(host: &MemoryHost, plugin: &str) -> Peer {
    let peer = host.plugin(plugin).connect().unwrap();
    let hello = json!({ "channel": "ahp-root://", "clientId": plugin, "protocolVersions": ["0.9.0"] });
    peer.request.call(("initialize".into(), hello.as_object().cloned())).await.unwrap();
    peer
}

async fn ask(peer: &Peer, method: &str, params: Value) -> Result<Value, RpcError> {
    peer.request.call((method.to_owned(), params.as_object().cloned())).await.map_err(|why| why.into_rpc())
}

async fn read_as(peer: &Peer, uri: &str) -> Result<Value, RpcError> {
    let read = ask(peer, "resourceRead", json!({ "channel": "ahp-root://", "uri": uri })).await?;
    Ok(serde_json::from_str(read["data"].as_str().unwrap()).unwrap())
}

/// The turns of a chat once none runs any more.
async fn turns(peer: &Peer, chat: &str) -> Vec<Value> {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let state =
            ask(peer, "subscribe", json!({ "channel": chat })).await.unwrap()["snapshot"]["state"].clone();
        if state["activeTurn"].is_null() {
            return state["turns"].as_array().unwrap().clone();
        }
        assert!(std::time::Instant::now() < end, "the turn never ends");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_bot_is_made_edited_and_deleted_once() {
    let dir = tempfile::tempdir().unwrap();
    let host = builder(dir.path()).start().await;
    let mut client = client(&host).await;
    write(&mut client, "bot://helper", json!({ "name": "Helper", "instructions": "Be kind." }))
        .await
        .unwrap();
    let bot = read(&mut client, "bot://helper").await.unwrap();
    assert_eq!(
        (&bot["id"], &bot["name"], &bot["owner"]),
        (&json!("helper"), &json!("Helper"), &json!("root:localhost"))
    );
    let workspace = dir.path().join("root/helper");
    assert_eq!(bot["workspace"], json!(workspace));
    assert!(workspace.is_dir());
    let session = bot["session"].as_str().unwrap();
    let listed = client.request("listSessions", json!({})).await.unwrap();
    assert_eq!(listed["items"][0]["resource"], bot["session"]);
    assert_eq!(listed["items"][0]["title"], "Helper");
    let chat = client
        .request("subscribe", json!({ "channel": ostler_contract::protocol::uri::default_chat(session) }))
        .await;
    let state = chat.unwrap()["snapshot"]["state"].clone();
    let first = if state["turns"][0].is_null() { &state["activeTurn"] } else { &state["turns"][0] };
    assert_eq!(first["message"]["text"], "Be kind.", "what it is told first");
    let file = std::fs::read_to_string(dir.path().join("bots/helper.md")).unwrap();
    assert!(file.trim_end().ends_with("---\nBe kind."), "{file}");

    assert_eq!(
        refused(
            write_with(&mut client, "bot://helper", json!({ "name": "x" }), json!({ "createOnly": true }))
                .await
        ),
        (-32010, "helper is already a bot here".to_owned())
    );
    assert_eq!(
        refused(
            write_with(&mut client, "bot://helper", json!({ "name": "x" }), json!({ "ifMatch": "old" }))
                .await
        ),
        (-32011, "helper is not the bot that was read; read it again".to_owned())
    );
    let facts = client
        .request("resourceResolve", json!({ "channel": "ahp-root://", "uri": "bot://helper" }))
        .await
        .unwrap();
    assert_eq!((&facts["type"], &facts["etag"]), (&json!("file"), &bot["updatedAt"]));
    write_with(&mut client, "bot://helper", json!({ "labels": ["a"] }), json!({ "ifMatch": facts["etag"] }))
        .await
        .unwrap();
    let edited = read(&mut client, "bot://helper").await.unwrap();
    assert_eq!(
        (&edited["name"], &edited["labels"], &edited["session"]),
        (&bot["name"], &json!(["a"]), &bot["session"])
    );
    assert!(edited["updatedAt"].as_str() > bot["updatedAt"].as_str());

    write(&mut client, "bot://other", json!({ "name": "Other", "session": session })).await.unwrap();
    assert_eq!(
        read(&mut client, "bot://other").await.unwrap()["session"],
        bot["session"],
        "a link, not a start"
    );
    assert_eq!(list(&mut client).await, ["helper", "other"]);
    write(&mut client, "bot://other", json!({ "session": null })).await.unwrap();
    assert_eq!(read(&mut client, "bot://other").await.unwrap().get("session"), None);

    client
        .request("resourceDelete", json!({ "channel": "ahp-root://", "uri": "bot://helper" }))
        .await
        .unwrap();
    assert_eq!(
        refused(read(&mut client, "bot://helper").await),
        (-32008, "No bot at bot://helper".to_owned())
    );
    assert_eq!(
        refused(write(&mut client, "bot://helper", json!({ "name": "x" })).await),
        (-32010, "helper was a bot here once; choose another name".to_owned())
    );
    let sessions = client.request("listSessions", json!({})).await.unwrap();
    assert_eq!(sessions["items"].as_array().unwrap().len(), 1, "the session stays");
    assert!(workspace.is_dir(), "the folder stays");
}

#[tokio::test]
async fn what_is_refused_leaves_no_bot() {
    let dir = tempfile::tempdir().unwrap();
    let host = builder(dir.path()).plugin(closed(), json!({})).start().await;
    let mut client = client(&host).await;
    write(&mut client, "bot://first", json!({ "name": "First" })).await.unwrap();
    let root = dir.path().join("root").display().to_string();
    for (uri, body, code, why) in [
        (
            "bot://Bad",
            json!({ "name": "x" }),
            -32602,
            "Bad is not a bot's name: lowercase letters, digits and dashes, 1 to 40 characters, starting with a letter"
                .to_owned(),
        ),
        (
            "bot://a/b",
            json!({ "name": "x" }),
            -32602,
            "bot://a/b is not where a bot is; write bot://<slug>".to_owned(),
        ),
        ("bot://b", json!({}), -32602, "b needs a name".to_owned()),
        ("bot://b", json!([]), -32602, "bot://b is made from an object with a name".to_owned()),
        ("bot://b", json!({ "name": "x", "id": "c" }), -32602, "c is not this bot; b is".to_owned()),
        (
            "bot://b",
            json!({ "name": "x", "workspace": "/etc" }),
            -32602,
            format!("/etc is not under {root}; a bot's folder is one there"),
        ),
        (
            "bot://b",
            json!({ "name": "x", "workspace": format!("{root}/first") }),
            -32602,
            format!("{root}/first is where first works; a bot's folder is its own"),
        ),
        (
            "bot://b",
            json!({ "name": "x", "session": "echo:/none" }),
            -32602,
            "echo:/none is not a session this host has".to_owned(),
        ),
        (
            "bot://b",
            json!({ "name": "x", "harness": "closed" }),
            -32009,
            "user:x may not session:create here".to_owned(),
        ),
        (
            "bot://b",
            json!({ "name": "x", "harness": "nobody" }),
            -32002,
            "No provider called nobody".to_owned(),
        ),
    ] {
        let (told, message) = refused(write(&mut client, uri, body).await);
        assert_eq!(message, why);
        if code != -32002 {
            assert_eq!(told, code, "{why}");
        }
    }
    for (data, why) in
        [("", "bot://b is made from an object with a name"), ("{", "bot://b is made from JSON")]
    {
        let params = json!({ "channel": "ahp-root://", "uri": "bot://b", "data": data, "encoding": "utf-8" });
        assert_eq!(refused(client.request("resourceWrite", params).await), (-32602, why.to_owned()));
    }
    assert_eq!(list(&mut client).await, ["first"]);
    let made = client.request("listSessions", json!({})).await.unwrap();
    assert_eq!(made["items"].as_array().unwrap().len(), 1, "nothing was started for the refused ones");
}

#[tokio::test]
async fn a_scheme_is_described_and_its_backend_is_nobody_elses() {
    let dir = tempfile::tempdir().unwrap();
    let host = builder(dir.path()).start().await;
    let mut client = host.raw();
    let hello = client.initialize("c").await;
    let rows = &hello["_meta"]["ostler.resourceProviders"]["bot"];
    assert_eq!(rows["title"], "Bot");
    assert_eq!(rows["operations"], json!(["get", "list", "resolve", "put", "delete", "chat"]));
    assert_eq!(rows["manifest"]["required"], json!(["name"]));
    let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let agents = root["snapshot"]["state"]["agents"].as_array().unwrap().clone();
    assert_eq!(agents.iter().map(|agent| agent["provider"].as_str().unwrap()).collect::<Vec<_>>(), ["echo"]);
    let made =
        client.request("createSession", json!({ "channel": "bot-chat:/mine", "provider": "bot-chat" })).await;
    assert_eq!(refused(made).1, "No provider called bot-chat");
}

#[tokio::test]
async fn a_file_a_person_writes_is_a_bot_and_one_that_does_not_read_is_said_and_skipped() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("bots")).unwrap();
    std::fs::write(
        dir.path().join("bots/mine.md"),
        "---\nid: mine\nname: Mine\nanswers: true\n---\nBe short.\n",
    )
    .unwrap();
    std::fs::write(dir.path().join("bots/bad.md"), "---\nid: bad\nname: 5\n---\n").unwrap();
    let host = builder(dir.path()).start().await;
    let mut client = client(&host).await;
    let bot = read(&mut client, "bot://mine").await.unwrap();
    assert_eq!((&bot["instructions"], &bot["owner"]), (&json!("Be short."), &json!("root:localhost")));
    assert_eq!(list(&mut client).await, ["mine"]);
    host.log.wait_for("bot bots/bad is not served: name is a line of text").await;
}

#[tokio::test]
async fn a_reader_is_answered_a_chat_of_its_own_and_a_turn_in_it_runs_no_model() {
    let dir = tempfile::tempdir().unwrap();
    let host = builder(dir.path())
        .plugin(somebody("@test/reader"), json!({}))
        .plugin(somebody("@test/second"), json!({}))
        .start()
        .await;
    write(&mut client(&host).await, "bot://helper", json!({ "name": "Helper", "harness": "echo" }))
        .await
        .unwrap();
    let (reader, second) = (peer(&host, "reader").await, peer(&host, "second").await);
    assert_eq!(
        read_as(&reader, "bot://helper").await.unwrap().get("chat"),
        None,
        "only where one is asked for"
    );
    let (one, at_once) =
        tokio::join!(read_as(&reader, "bot://helper?chat=a"), read_as(&reader, "bot://helper?chat=a"));
    let (one, at_once) = (one.unwrap(), at_once.unwrap());
    assert_eq!(one["chat"], at_once["chat"], "two first reads start one chat");
    assert_eq!(one["name"], "Helper");
    let (session, chat) = (one["chat"]["session"].as_str().unwrap(), one["chat"]["uri"].as_str().unwrap());
    assert!(session.starts_with("bot-chat:/"), "{session}");
    let title = host.host.sessions.by_uri(session).unwrap().view().summary.title.clone();
    assert_eq!(title, "Helper (a)");
    assert_eq!(host.host.sessions.by_uri(session).unwrap().owner.as_deref(), Some("plugin:reader"));
    let other = read_as(&reader, "bot://helper?chat=b").await.unwrap();
    let theirs = read_as(&second, "bot://helper?chat=a").await.unwrap();
    assert_ne!(other["chat"], one["chat"]);
    assert_ne!(theirs["chat"], one["chat"]);

    ask(&reader, "subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "hello" } });
    let dispatch = json!({ "channel": chat, "clientSeq": 1, "action": turn });
    reader.notify.call(("dispatchAction".into(), dispatch.as_object().cloned())).unwrap();
    let turns = turns(&reader, chat).await;
    assert_eq!((&turns[0]["id"], &turns[0]["state"]), (&json!("t1"), &json!("complete")));
    assert_eq!(turns[0]["responseParts"], json!([]));

    ask(&reader, "disposeSession", json!({ "channel": session })).await.unwrap();
    let again = read_as(&reader, "bot://helper?chat=a").await.unwrap();
    assert_ne!(again["chat"]["session"], one["chat"]["session"], "one that ended is started again");
    assert_eq!(read_as(&reader, "bot://helper?chat=a").await.unwrap()["chat"], again["chat"]);
}

#[tokio::test]
async fn a_chat_is_found_again_by_the_next_host() {
    let dir = tempfile::tempdir().unwrap();
    let first = {
        let host = builder(dir.path()).plugin(somebody("@test/reader"), json!({})).start().await;
        write(&mut client(&host).await, "bot://helper", json!({ "name": "Helper" })).await.unwrap();
        let chat =
            read_as(&peer(&host, "reader").await, "bot://helper?chat=a").await.unwrap()["chat"].clone();
        host.host.close().await;
        chat
    };
    let host = builder(dir.path()).plugin(somebody("@test/reader"), json!({})).start().await;
    let reader = peer(&host, "reader").await;
    assert_eq!(read_as(&reader, "bot://helper?chat=a").await.unwrap()["chat"], first);
}

#[tokio::test]
async fn a_bot_that_answers_runs_the_turn_on_its_own_backend() {
    let dir = tempfile::tempdir().unwrap();
    let host = builder(dir.path()).plugin(somebody("@test/reader"), json!({})).start().await;
    let mut person = client(&host).await;
    write(&mut person, "bot://helper", json!({ "name": "Helper", "harness": "echo", "answers": true }))
        .await
        .unwrap();
    let reader = peer(&host, "reader").await;
    let chat = read_as(&reader, "bot://helper?chat=a").await.unwrap()["chat"].clone();
    assert!(chat["session"].as_str().unwrap().starts_with("echo:/"), "{chat}");
    let uri = chat["uri"].as_str().unwrap();
    ask(&reader, "subscribe", json!({ "channel": uri })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "hello there" } });
    let dispatch = json!({ "channel": uri, "clientSeq": 1, "action": turn });
    reader.notify.call(("dispatchAction".into(), dispatch.as_object().cloned())).unwrap();
    assert_eq!(turns(&reader, uri).await[0]["responseParts"][0]["content"], "hello there");

    write(&mut person, "bot://helper", json!({ "answers": false })).await.unwrap();
    let silent = read_as(&reader, "bot://helper?chat=a").await.unwrap()["chat"].clone();
    assert!(silent["session"].as_str().unwrap().starts_with("bot-chat:/"), "{silent}");
}

#[tokio::test]
async fn on_a_host_that_knows_people_grants_decide() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("bots")).unwrap();
    for (id, owner) in [("helper", "root:localhost"), ("own", "plugin:maker")] {
        let text = format!("---\nid: {id}\nname: {id}\nowner: {owner}\n---\n");
        std::fs::write(dir.path().join(format!("bots/{id}.md")), text).unwrap();
    }
    let host = builder(dir.path())
        .guarded()
        .plugin(somebody("@test/none"), json!({}))
        .plugin(somebody("@test/getter"), json!({}))
        .grants(&["bot:get"])
        .plugin(somebody("@test/chatter"), json!({}))
        .grants(&["bot:get", "bot:chat", "session:create", "session:read", "session:write"])
        .plugin(somebody("@test/maker"), json!({}))
        .grants(&["bot:put", "bot:delete", "session:create"])
        .plugin(somebody("@test/admin"), json!({}))
        .grants(&["*:*"])
        .start()
        .await;
    let none = peer(&host, "none").await;
    let refusal = read_as(&none, "bot://helper").await.unwrap_err();
    assert_eq!((refusal.code, refusal.message.as_str()), (-32009, "plugin:none may not bot:get here"));
    let listed = async |peer: &Peer| {
        let listed =
            ask(peer, "resourceList", json!({ "channel": "ahp-root://", "uri": "bot://" })).await.unwrap();
        listed["entries"].as_array().unwrap().len()
    };
    assert_eq!(listed(&none).await, 0, "narrowed to what its reader may see");

    let getter = peer(&host, "getter").await;
    let alone = read_as(&getter, "bot://helper?chat=a").await.unwrap();
    assert_eq!((alone.get("chat"), &alone["name"]), (None, &json!("helper")), "the record comes alone");
    assert_eq!(listed(&getter).await, 2);

    let chatter = peer(&host, "chatter").await;
    let with = read_as(&chatter, "bot://helper?chat=a").await.unwrap();
    let session = with["chat"]["session"].as_str().unwrap();
    assert_eq!(host.host.sessions.by_uri(session).unwrap().owner.as_deref(), Some("plugin:chatter"));
    let put = |uri: &str, body: Value| json!({ "channel": "ahp-root://", "uri": uri, "data": body.to_string(), "encoding": "utf-8" });
    let unasked =
        ask(&chatter, "resourceWrite", put("bot://helper", json!({ "size": 1 }))).await.unwrap_err();
    assert_eq!(unasked.message, "plugin:chatter may not bot:put here", "before the body is looked at");

    let maker = peer(&host, "maker").await;
    let others = ask(&maker, "resourceWrite", put("bot://helper", json!({ "size": 1 }))).await.unwrap_err();
    let only =
        "Only the owner of helper, a member of its team or project, an admin or this host may change it";
    assert_eq!((others.code, others.message.as_str()), (-32009, only));
    let delete = json!({ "channel": "ahp-root://", "uri": "bot://helper" });
    assert_eq!(ask(&maker, "resourceDelete", delete).await.unwrap_err().message, only);
    let for_another = put("bot://more", json!({ "name": "More", "owner": "user:ann" }));
    let for_another = ask(&maker, "resourceWrite", for_another).await.unwrap_err();
    assert_eq!(for_another.message, "plugin:maker may not make a bot of user:ann here");
    ask(&maker, "resourceWrite", put("bot://own", json!({ "labels": ["mine"] }))).await.unwrap();
    assert_eq!(
        read_as(&maker, "bot://own").await.unwrap()["labels"],
        json!(["mine"]),
        "its own, without bot:get"
    );
    ask(&maker, "resourceWrite", put("bot://new", json!({ "name": "New" }))).await.unwrap();
    assert_eq!(read_as(&maker, "bot://new").await.unwrap()["owner"], "plugin:maker");

    let admin = peer(&host, "admin").await;
    ask(&admin, "resourceWrite", put("bot://helper", json!({ "labels": ["x"] }))).await.unwrap();
}

#[tokio::test]
async fn a_team_and_a_project_own_bots_on_a_host_that_knows_people() {
    use ostler_engine::users::UsersFile;
    use ostler_engine::{People, Principal};
    let dir = tempfile::tempdir().unwrap();
    let file = json!({
        "teams": { "ops": {} }, "projects": { "site": {} },
        "roles": { "maker": ["bot:put", "bot:delete"] },
        "users": [
            { "id": "ann", "roles": ["maker"], "memberships": ["ops"] },
            { "id": "eve", "roles": ["maker"], "memberships": ["ops:other"] },
        ],
    });
    let people = People::new(ostler_testkit::SIGN_IN, "inn");
    people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    let host = builder(dir.path()).people(people).start().await;
    let signed_in = async |id: &str| {
        let person = host.host.access.gate.people().unwrap().now().person(id).unwrap();
        let mut client = host.raw_as(Principal::Person(person));
        client.initialize(id).await;
        client
    };
    let (mut ann, mut eve) = (signed_in("ann").await, signed_in("eve").await);
    for (slug, owner) in [("crew", "team:ops"), ("web", "project:ops:site")] {
        let uri = format!("bot://{slug}");
        let body = json!({ "name": slug, "owner": owner });
        let (_, why) = refused(write(&mut eve, &uri, body.clone()).await);
        assert_eq!(why, format!("user:eve may not make a bot of {owner} here"));
        write(&mut ann, &uri, body).await.expect("the work of a team has the role member");
        let bot = read(&mut ann, &uri).await.unwrap();
        let session = bot["session"].as_str().unwrap();
        assert_eq!(host.host.sessions.by_uri(session).unwrap().owner.as_deref(), Some(owner));
        refused(write(&mut eve, &uri, json!({ "labels": ["mine"] })).await);
        write(&mut ann, &uri, json!({ "labels": ["ours"] })).await.unwrap();
    }
    let body = json!({ "name": "moon", "owner": "team:moon" });
    refused(write(&mut ann, "bot://moon", body).await);
}
