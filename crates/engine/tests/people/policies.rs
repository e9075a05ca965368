//! Policies: what they bound of what grants allow, and the scheme they are edited under.

use std::sync::Arc;

use ostler_contract::host::SessionRequest;
use ostler_contract::points::{Policies, Vault};
use ostler_contract::{Call, JsonObject, Plugin, Value, json};
use ostler_engine::users::UsersFile;
use ostler_engine::{McpServers, People, Principal};
use ostler_ports::FilePolicies;
use ostler_protocol::error::code;
use ostler_protocol::uri;
use ostler_testkit::{Builder, MemoryHost, RawClient, SIGN_IN, Stage};

fn builder(check: bool) -> Builder {
    builder_of(&Stage::default(), check)
}

fn builder_of(stage: &Stage, check: bool) -> Builder {
    let people = People::new(SIGN_IN, "inn");
    let file = json!({
        "roles": { "keeper": ["session:read", "session:write", "policy:read", "policy:write"] },
        "teams": { "st": { "title": "Stables" } },
        "projects": { "hay": { "title": "Hay" } },
        "users": [
            { "id": "ada", "roles": ["admin"] }, { "id": "ben", "roles": ["keeper"] }, { "id": "cleo" },
            { "id": "dan", "roles": ["keeper"], "memberships": ["st"], "primary": "st" },
            { "id": "eve", "roles": ["keeper"], "memberships": ["st:hay"], "primary": "st:hay" },
            { "id": "fay", "roles": ["keeper"], "memberships": ["st"] }
        ]
    });
    people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    let caller = Plugin::new("@test/caller", |_, _| Box::pin(async { Ok(()) }));
    MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .plugin(caller, json!({}))
        .grants(&["session:*"])
        .options(|options| options.check_policies = check)
        .people(people)
}

async fn host(rows: Value) -> (MemoryHost, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let policies = Arc::new(FilePolicies::new(dir.path())).into_point();
    for row in rows.as_array().unwrap() {
        policies.put.unbounded((row.as_object().cloned().unwrap(),)).await.unwrap();
    }
    (builder(true).policies(policies).start().await, dir)
}

async fn person(host: &MemoryHost, id: &str) -> RawClient {
    let person = host.host.access.gate.people().unwrap().now().person(id).unwrap();
    let mut client = host.raw_as(Principal::Person(person));
    client.initialize(id).await;
    client
}

/// What a session of somebody's comes to.
async fn start(client: &mut RawClient, id: &str) -> Result<(), String> {
    let made = client.request("createSession", json!({ "channel": format!("stage:/{id}") })).await;
    made.map(drop).map_err(|error| {
        assert_eq!(error["code"], code::PERMISSION_DENIED, "{error}");
        error["message"].as_str().unwrap().to_owned()
    })
}

/// What came back of an action a client dispatched.
async fn echo_of(client: &mut RawClient, seq: i64) -> Value {
    loop {
        let mut frame = client.next_frame().await.unwrap();
        if frame["params"]["origin"]["clientSeq"] == seq {
            return frame["params"].take();
        }
    }
}

fn row(id: &str, effect: &str, more: Value) -> Value {
    let mut row = json!({ "id": id, "scope": "all", "kind": "agent", "effect": effect });
    row.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    row
}

#[tokio::test]
async fn a_session_starts_where_a_policy_allows_and_none_refuses() {
    let refuses = |id: &str| Err(format!("{id} refuses agent stage"));
    let none = || Err("no policy allows agent stage".to_owned());
    let allow = |more: Value| row("yes", "allow", more);
    let deny = |more: Value| row("no", "deny", more);
    // The clock of these hosts starts with 2026.
    for (rows, outcome) in [
        (json!([]), none()),
        (json!([allow(json!({}))]), Ok(())),
        (json!([allow(json!({})), deny(json!({}))]), refuses("no")),
        (json!([deny(json!({ "match": { "agent": ["st*"] } })), allow(json!({}))]), refuses("no")),
        (json!([deny(json!({ "match": { "agent": ["other"] } })), allow(json!({}))]), Ok(())),
        (json!([allow(json!({ "match": { "agent": ["other", "stage"] } }))]), Ok(())),
        (json!([allow(json!({ "match": { "agent": ["Stage"] } }))]), none()),
        (json!([allow(json!({ "scope": "user:ben" }))]), Ok(())),
        (json!([allow(json!({ "scope": "user:ada" }))]), none()),
        (json!([allow(json!({ "kind": "computer" }))]), none()),
        (json!([allow(json!({ "until": "2025-12-31" }))]), none()),
        (json!([allow(json!({ "from": "2026-01-01", "until": "2026-01-01" }))]), Ok(())),
        (json!([allow(json!({ "from": "2026-01-02" }))]), none()),
        // No model is known when a session starts.
        (json!([allow(json!({ "match": { "model": ["a/b"] } }))]), Ok(())),
        (json!([allow(json!({})), deny(json!({ "match": { "model": ["*"] } }))]), Ok(())),
    ] {
        let (host, _dir) = host(rows.clone()).await;
        assert_eq!(start(&mut person(&host, "ben").await, "1").await, outcome, "{rows}");
        assert_eq!(
            host.host.sessions.all().len(),
            usize::from(outcome.is_ok()),
            "what is refused leaves nothing"
        );
        assert_eq!(
            start(&mut person(&host, "ada").await, "2").await,
            Ok(()),
            "who may everything is not asked"
        );
        let mut root = host.raw_as(Principal::Root);
        root.initialize("r").await;
        assert_eq!(start(&mut root, "3").await, Ok(()));
        let warned = host.log.has("policy checks are on but no policy exists");
        assert_eq!(warned, rows == json!([]));
    }
}

/// Who works for a team is bound by its policies where the work is charged to it, as the team itself is.
#[tokio::test]
async fn policies_of_a_team_and_a_project_bind_what_is_charged_to_them() {
    let all = || row("all", "allow", json!({}));
    let deny = |scope: &str| row("no", "deny", json!({ "scope": scope }));
    for (scope, bound) in [
        ("team:st", &["dan", "eve"][..]),
        ("project:st:hay", &["eve"]),
        ("project:st:oats", &[]),
        ("team:other", &[]),
        ("user:dan", &["dan"]),
    ] {
        let (host, _dir) = host(json!([all(), deny(scope)])).await;
        for id in ["ben", "dan", "eve", "fay"] {
            let mut client = person(&host, id).await;
            let expected = match bound.contains(&id) {
                true => Err("no refuses agent stage".to_owned()),
                false => Ok(()),
            };
            assert_eq!(start(&mut client, id).await, expected, "{scope} {id}");
        }
        let mut root = host.raw_as(Principal::Root);
        root.initialize("r").await;
        assert_eq!(start(&mut root, "r").await, Ok(()), "{scope}");
    }
    // What only the policies of the team allow is allowed, and only to work that is charged to it.
    let (host, _dir) = host(json!([row("st", "allow", json!({ "scope": "team:st" }))])).await;
    assert_eq!(start(&mut person(&host, "dan").await, "dan").await, Ok(()));
    let none = Err("no policy allows agent stage".to_owned());
    assert_eq!(start(&mut person(&host, "fay").await, "fay").await, none);
}

/// Turns are checked as sessions are, in each way that one begins: with the team and project the session is charged to.
#[tokio::test]
async fn a_turn_is_bound_by_the_policies_of_the_team_that_is_charged() {
    let rows = json!([
        row("all", "allow", json!({})),
        row("no-big", "deny", json!({ "scope": "team:st", "match": { "model": ["maker/big"] } })),
    ]);
    let (host, _dir) = host(rows).await;
    let message = json!({ "text": "hi", "origin": { "kind": "user" }, "model": { "id": "maker/big" } });
    for (id, is_bound) in [("dan", true), ("fay", false)] {
        let mut client = person(&host, id).await;
        start(&mut client, id).await.unwrap();
        let chat = uri::default_chat(&format!("stage:/{id}"));
        client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": message });
        client.dispatch(&chat, 7, turn).await;
        let echo = echo_of(&mut client, 7).await;
        let expected =
            if is_bound { json!("no-big refuses agent stage with model maker/big") } else { Value::Null };
        assert_eq!(echo["rejectionReason"], expected, "{id}");
        let queued =
            json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": message });
        client.dispatch(&chat, 8, queued).await;
        assert_eq!(echo_of(&mut client, 8).await["rejectionReason"], expected, "{id}: a queued message");
    }
}

/// The secrets of a team are for the sessions that are charged to it, its members' included.
#[tokio::test]
async fn secrets_of_a_team_are_for_sessions_that_are_charged_to_it() {
    let server =
        json!({ "st": { "type": "stdio", "command": "c", "env": { "KEY": { "$secret": "team:st/k" } } } });
    let servers = server.as_object().unwrap().clone();
    let vault = Vault {
        get: Call::now(|(name,): (String,)| Ok(Some(format!("the value of {name}")))),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(vec![])),
        close: None,
    };
    let stage = Stage::default();
    let host = builder_of(&stage, false)
        .options(|options| options.mcp_servers = McpServers::new(move || servers.clone()))
        .vault(vault)
        .start()
        .await;
    for (at, (id, is_given)) in
        [("dan", true), ("eve", true), ("fay", false), ("ben", false)].into_iter().enumerate()
    {
        start(&mut person(&host, id).await, id).await.unwrap();
        let given = stage.start(at).mcp_servers.map(|servers| servers["st"]["env"]["KEY"].clone());
        assert_eq!(given, is_given.then(|| json!("the value of team:st/k")), "{id}");
    }
}

#[tokio::test]
async fn what_a_plugin_starts_is_asked_of_its_owner() {
    let (host, _dir) = host(json!([row("ben", "allow", json!({ "scope": "user:ben" }))])).await;
    let start = |owner: &str| {
        let request = SessionRequest { owner: owner.to_owned(), ..SessionRequest::default() };
        host.plugin("caller").start_session(request)
    };
    assert!(start("user:ben").await.is_ok());
    assert!(start("root:localhost").await.is_ok());
    assert_eq!(start("plugin:caller").await.unwrap_err().message, "no policy allows agent stage");
    // The grant is asked first.
    assert_eq!(start("user:cleo").await.unwrap_err().message, "user:cleo may not session:create here");
}

/// A host whose policies allow everything but big models, and somebody who watches a chat there.
async fn without_big_models() -> (MemoryHost, tempfile::TempDir, RawClient, String) {
    let rows = json!([
        row("yes", "allow", json!({})),
        row("no-big", "deny", json!({ "match": { "model": ["maker/big*"] } }))
    ]);
    let (host, dir) = host(rows).await;
    let mut ben = person(&host, "ben").await;
    start(&mut ben, "1").await.unwrap();
    let chat = uri::default_chat("stage:/1");
    ben.request("subscribe", json!({ "channel": chat })).await.unwrap();
    (host, dir, ben, chat)
}

#[tokio::test]
async fn a_turn_is_asked_with_the_model_it_names() {
    let (_host, _dir, mut ben, chat) = without_big_models().await;
    for (seq, model, why) in [
        (1, "maker/big-2", json!("no-big refuses agent stage with model maker/big-2")),
        (2, "maker/small", Value::Null),
    ] {
        let message = json!({ "text": "Go.", "model": { "id": model } });
        ben.dispatch(&chat, seq, json!({ "type": "chat/turnStarted", "turnId": model, "message": message }))
            .await;
        assert_eq!(echo_of(&mut ben, seq).await["rejectionReason"], why);
    }
}

#[tokio::test]
async fn a_message_that_waits_is_asked_for_when_it_comes_and_when_its_turn_does() {
    let (host, _dir, mut ben, chat) = without_big_models().await;
    let waits = |id: &str, model: &str| {
        json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id,
            "message": { "text": "Go.", "origin": { "kind": "user" }, "model": { "id": model } } })
    };
    // Nothing runs, so it would begin at once.
    ben.dispatch(&chat, 1, waits("w1", "maker/big-2")).await;
    let reason = "no-big refuses agent stage with model maker/big-2";
    assert_eq!(echo_of(&mut ben, 1).await["rejectionReason"], reason);
    let started = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Run." } });
    ben.dispatch(&chat, 2, started).await;
    for (seq, id) in [(3, "w2"), (4, "w3")] {
        ben.dispatch(&chat, seq, waits(id, "maker/small")).await;
        assert_eq!(echo_of(&mut ben, seq).await["rejectionReason"], Value::Null);
    }
    // It is allowed no longer when its turn comes, nor is the one behind it.
    let mut ada = person(&host, "ada").await;
    let deny = row("no-small", "deny", json!({ "match": { "model": ["maker/small"] } }));
    let write = json!({ "channel": "ahp-root://", "uri": "policy://no-small", "data": deny.to_string(), "encoding": "utf-8" });
    ada.request("resourceWrite", write).await.unwrap();
    ben.dispatch(&chat, 5, json!({ "type": "chat/turnCancelled", "turnId": "t", "duration": 1 })).await;
    for _ in 0..2 {
        let ended = ben.actions_until("chat/error").await.pop().unwrap();
        let error = &ended["action"]["part"]["error"];
        assert_eq!(error["errorType"], "policy", "{ended}");
        assert_eq!(error["message"], "no-small refuses agent stage with model maker/small");
    }
    let state =
        ben.request("subscribe", json!({ "channel": chat })).await.unwrap()["snapshot"]["state"].take();
    assert_eq!(state["turns"].as_array().unwrap().len(), 3, "{state}");
    assert!(state.get("queuedMessages").is_none(), "{state}");
}

#[tokio::test]
async fn nothing_binds_until_it_is_switched_on_and_nothing_starts_where_they_cannot_be_read() {
    let broken = |row: Option<Value>| Policies {
        list: Call::now(move |()| match &row {
            None => Err("the disk is gone".into()),
            Some(row) => Ok(vec![row.as_object().cloned().unwrap_or_else(JsonObject::new)]),
        }),
        get: Call::now(|_| Ok(None)),
        put: Call::now(|_| Ok(())),
        remove: Call::now(|_| Ok(false)),
        close: None,
    };
    let off = builder(false).policies(broken(None)).start().await;
    assert_eq!(start(&mut person(&off, "ben").await, "1").await, Ok(()));
    for (row, why) in [
        (None, "the disk is gone"),
        (
            Some(json!({ "id": "a", "scope": "all", "kind": "agent", "effect": "maybe" })),
            "effect must be one of allow, deny",
        ),
    ] {
        let on = builder(true).policies(broken(row)).start().await;
        let refused = start(&mut person(&on, "ben").await, "1").await.unwrap_err();
        assert_eq!(refused, format!("cannot read the policies, so no work can start: {why}"));
    }
    let nowhere = builder(true).start().await;
    assert!(start(&mut person(&nowhere, "ben").await, "1").await.is_err());
}

#[tokio::test]
async fn policies_are_read_and_edited_under_their_scheme() {
    let (host, _dir) = host(json!([])).await;
    let mut ben = person(&host, "ben").await;
    let write = |body: Value| json!({ "uri": "policy://a", "data": body.to_string(), "encoding": "utf-8", "createOnly": false });
    let body = json!({ "id": "b", "scope": "all", "kind": "agent", "effect": "deny", "title": "No" });
    ben.request("resourceWrite", write(body)).await.unwrap();
    assert_eq!(
        start(&mut ben, "1").await,
        Err("a refuses agent stage".to_owned()),
        "the URI's id is the row's"
    );
    ben.request("resourceWrite", write(json!({ "effect": "allow", "title": null }))).await.unwrap();
    assert_eq!(start(&mut ben, "1").await, Ok(()), "a change binds at once");
    let read = ben.request("resourceRead", json!({ "uri": "policy://a" })).await.unwrap();
    let read: Value = serde_json::from_str(read["data"].as_str().unwrap()).unwrap();
    assert_eq!(read, json!({ "id": "a", "scope": "all", "kind": "agent", "effect": "allow" }));
    let wrong = ben.request("resourceWrite", write(json!({ "kind": "tool" }))).await.unwrap_err();
    assert_eq!(
        (&wrong["code"], &wrong["message"]),
        (&json!(code::INVALID_PARAMS), &json!("kind must be one of model, agent, computer"))
    );
    let mut again = write(json!({}));
    again["createOnly"] = json!(true);
    assert_eq!(ben.request("resourceWrite", again).await.unwrap_err()["code"], code::ALREADY_EXISTS);
    let list = ben.request("resourceList", json!({ "uri": "policy://" })).await.unwrap();
    assert_eq!(list["entries"], json!([{ "name": "a", "type": "file" }]));
    ben.request("resourceDelete", json!({ "uri": "policy://a" })).await.unwrap();
    let gone = ben.request("resourceDelete", json!({ "uri": "policy://a" })).await.unwrap_err();
    assert_eq!(gone["message"], "unknown policy a");
    let mut cleo = person(&host, "cleo").await;
    let refused = cleo.request("resourceRead", json!({ "uri": "policy://a" })).await.unwrap_err();
    assert_eq!(refused["message"], "cleo may not policy:get here");
}
