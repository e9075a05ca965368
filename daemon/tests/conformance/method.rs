//! `registerMethod`: commands of a plugin's own, answered by name.

use std::sync::{Arc, Mutex};

use ostler_contract::host::Peer;
use ostler_contract::points::{Description, Method, NamedMethod, Reader};
use ostler_contract::{Call, JsonObject, Options, PluginHost, RpcError, Thrown, Value, json};
use ostler_engine::users::{UsersFile, hash_of};
use ostler_engine::{People, Principal};
use ostler_testkit::{MemoryHost, RawClient, SIGN_IN};

use crate::side::{Both, Side, Talk, builder, lines_of, object};

const PLUGIN: Both = Both { spec: "@conformance/method", native, javascript: "method.mjs", dress: None };
const LATER: Both =
    Both { spec: "@conformance/later", native: later, javascript: "method-later.mjs", dress: None };

both! { PLUGIN:
    a_command_is_answered_by_its_name,
    what_a_command_throws_is_what_the_caller_is_told,
    a_command_is_answered_only_after_initialize,
    a_command_is_named_to_clients,
    the_grant_and_then_authorize_let_a_caller_in,
    a_command_that_hangs_holds_nothing_else,
    a_name_that_is_taken_is_dropped,
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let logs = host.clone();
    host.register_method(
        "x-method/echo".into(),
        Method {
            grant: "x-method:call".into(),
            authorize: Some(Call::now(move |(params, reader): (JsonObject, Reader)| {
                let word = params.get("word").and_then(Value::as_str).unwrap_or("undefined");
                logs.log(format!("authorize {word} of {}", reader.id))?;
                match word {
                    "angry" => Err(Thrown::new("not in the mood")),
                    word => Ok(word == "please"),
                }
            })),
            handle: Call::now(
                |(params, reader, client, owner): (JsonObject, Option<Reader>, String, Option<String>)| {
                    Ok(json!({ "params": params, "reader": reader, "client": client, "owner": owner }))
                },
            ),
            describe: Some(Call::now(|()| {
                Ok(Description { title: Some("Echo".into()), description: Some("Says it back.".into()) })
            })),
        },
    )?;
    host.register_method(
        "x-method/fail".into(),
        Method {
            grant: "x-method:fail".into(),
            handle: Call::new(|(params, ..): (JsonObject, _, _, _)| async move {
                match params["how"].as_str().unwrap() {
                    "rpc" => Err(RpcError::new(-32099, "out of oats").with_data(json!({ "left": 0 })).into()),
                    "throw" => Err(Thrown::new("it broke")),
                    "never" => std::future::pending().await,
                    _ => Ok(Value::Null),
                }
            }),
            describe: Some(Call::now(|()| Ok(Description::default()))),
            ..Method::default()
        },
    )?;
    let order = Arc::new(Mutex::new(Vec::new()));
    host.register_method(
        "x-method/order".into(),
        Method {
            grant: "x-method:call".into(),
            handle: Call::now(move |(params, ..): (JsonObject, _, _, _)| {
                order.lock().unwrap().push(params["word"].clone());
                Ok(json!(*order.lock().unwrap()))
            }),
            ..Method::default()
        },
    )
}

fn later(host: PluginHost, _: Options) -> Result<(), Thrown> {
    for name in ["x-method/echo", "x-later/echo", "x-ostler/usage/totals", "x-ostler/anything"] {
        let handle = Call::now(move |_| Ok(name.into()));
        host.register_method(
            name.into(),
            Method { grant: "x-later:call".into(), handle, ..Method::default() },
        )?;
    }
    Ok(())
}

async fn client_as(host: &MemoryHost, name: &str, principal: Principal) -> RawClient {
    let mut client = host.raw_as(principal);
    client.initialize(name).await;
    client
}

async fn a_command_is_answered_by_its_name(side: Side) {
    let host = side.host().start().await;
    let mut ada = client_as(&host, "ada", Principal::Anyone).await;
    let told = ada
        .request("x-method/echo", json!({ "channel": "ahp-root://", "n": [1, { "a": null }] }))
        .await
        .unwrap();
    // Nobody is known here, so every caller is let in, and there is no reader and no owner.
    assert_eq!(
        told,
        json!({ "params": { "channel": "ahp-root://", "n": [1, { "a": null }] }, "reader": null, "client": "ada", "owner": null })
    );
    // Parameters may be left out, and are an object.
    ada.send(r#"{ "jsonrpc": "2.0", "id": "bare", "method": "x-method/echo" }"#).await;
    let frame = ada.next_frame().await.unwrap();
    assert_eq!((&frame["id"], &frame["result"]["params"]), (&json!("bare"), &json!({})));
    let list = ada.request("x-method/echo", json!([1])).await.unwrap_err();
    assert_eq!(list["code"], ostler_protocol::error::code::INVALID_REQUEST, "{list}");
    let none = ada.request("x-method/nothing", json!({})).await.unwrap_err();
    assert_eq!(none["code"], ostler_protocol::error::code::METHOD_NOT_FOUND);
    assert_eq!(ada.request("x-method/fail", json!({ "how": "well" })).await.unwrap(), Value::Null);
    // A caller's calls reach the plugin in the order they were sent.
    for word in ["one", "two", "three"] {
        let call =
            json!({ "jsonrpc": "2.0", "id": word, "method": "x-method/order", "params": { "word": word } });
        ada.send(&call.to_string()).await;
    }
    let order = ada.request("x-method/order", json!({ "word": "four" })).await.unwrap();
    assert_eq!(order, json!(["one", "two", "three", "four"]));
    // A plugin's own connection is a caller like any other.
    let peer = introduced(&host).await;
    let told = ask(&peer, "x-method/echo", json!({ "word": "hello" })).await.unwrap();
    assert_eq!((&told["client"], &told["owner"], &told["reader"]), (&json!("p"), &Value::Null, &Value::Null));
}

async fn introduced(host: &MemoryHost) -> Peer {
    let peer = host.plugin("method").connect().unwrap();
    let hello = json!({ "channel": "ahp-root://", "clientId": "p", "protocolVersions": ["1.0.0"] });
    ask(&peer, "initialize", hello).await.unwrap();
    peer
}

async fn ask(peer: &Peer, method: &str, params: Value) -> Result<Value, RpcError> {
    peer.request.call((method.to_owned(), Some(object(params)))).await.map_err(Thrown::into_rpc)
}

async fn what_a_command_throws_is_what_the_caller_is_told(side: Side) {
    let host = side.host().start().await;
    let mut client = client_as(&host, "c", Principal::Anyone).await;
    let rpc = client.request("x-method/fail", json!({ "how": "rpc" })).await.unwrap_err();
    assert_eq!(rpc, json!({ "code": -32099, "message": "out of oats", "data": { "left": 0 } }));
    let thrown = client.request("x-method/fail", json!({ "how": "throw" })).await.unwrap_err();
    assert_eq!(thrown, json!({ "code": -32603, "message": "it broke" }));
    let why = host.log.wait_for("its command x-method/fail failed: it broke").await;
    assert!(why.starts_with("plugin method: "), "{why}");
    assert!(!host.log.has("out of oats"), "what the caller is told is no failure of the plugin's");
}

async fn a_command_is_answered_only_after_initialize(side: Side) {
    let host = side.host().start().await;
    let mut client = host.raw();
    let early = client.request("x-method/echo", json!({})).await.unwrap_err();
    assert_eq!(early, json!({ "code": -32600, "message": "x-method/echo was received before initialize" }));
    client.initialize("c").await;
    client.request("x-method/echo", json!({})).await.unwrap();
}

async fn a_command_is_named_to_clients(side: Side) {
    let host = side.host().start().await;
    let mut client = host.raw();
    let introduced = client.initialize("c").await;
    let rows = json!([
        { "method": "x-method/echo", "title": "Echo", "description": "Says it back.", "grant": "x-method:call" },
        { "method": "x-method/fail", "title": "x-method/fail", "grant": "x-method:fail" },
    ]);
    assert_eq!(introduced["_meta"]["ostler.methods"], rows, "one that does not describe itself is not named");
    let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(root["snapshot"]["state"]["_meta"]["ostler.methods"], rows);
    let grants = &introduced["_meta"]["ostler.grants"]["x-method"];
    assert_eq!((&grants["title"], &grants["operations"]), (&json!("Echo"), &json!(["call", "fail"])));
    assert!(builder().start().await.raw().initialize("c").await["_meta"].get("ostler.methods").is_none());
}

async fn the_grant_and_then_authorize_let_a_caller_in(side: Side) {
    let people = json!({
        "roles": { "calls": ["x-method:write"], "else": ["session:read", "x-method:fail"] },
        "users": [{ "id": "ada", "roles": ["calls"], "token": hash_of("a") },
            { "id": "bob", "roles": ["else"], "token": hash_of("b") }],
    });
    let host = side.host().grants(&["x-method:call"]).people(People::new(SIGN_IN, "inn")).start().await;
    let known = host.host.access.gate.people().unwrap();
    known.set(UsersFile::parse(&people.to_string()).unwrap()).unwrap();
    let person = |id: &str| Principal::Person(known.now().person(id).unwrap());
    let mut ada = client_as(&host, "a", person("ada")).await;
    let told = ada.request("x-method/echo", json!({ "word": "hello" })).await.unwrap();
    assert_eq!((&told["owner"], &told["reader"]["id"]), (&json!("user:ada"), &json!("user:ada")));
    assert_eq!(told["reader"]["grants"], json!(["x-method:write"]));
    let mut bob = client_as(&host, "b", person("bob")).await;
    for word in ["hello", "angry"] {
        let refused = bob.request("x-method/echo", json!({ "word": word })).await.unwrap_err();
        assert_eq!(refused, json!({ "code": -32009, "message": "bob may not x-method:call here" }));
    }
    let why = host.log.wait_for("the authorize of x-method/echo failed: not in the mood").await;
    assert!(why.starts_with("plugin method: "), "{why}");
    let told = bob.request("x-method/echo", json!({ "word": "please" })).await.unwrap();
    assert_eq!(told["owner"], "user:bob");
    // A command with no `authorize` leaves it at the grant.
    bob.request("x-method/fail", json!({ "how": "well" })).await.unwrap();
    let refused = bob.request("x-method/order", json!({ "word": "x" })).await.unwrap_err();
    assert_eq!(refused["message"], "bob may not x-method:call here");
    let mut nobody = client_as(&host, "n", Principal::Anyone).await;
    let refused = nobody.request("x-method/echo", json!({ "word": "please" })).await.unwrap_err();
    assert_eq!(refused["code"], ostler_protocol::error::code::AUTH_REQUIRED);
    let mut root = client_as(&host, "r", Principal::Root).await;
    let told = root.request("x-method/echo", json!({})).await.unwrap();
    assert_eq!((&told["owner"], &told["reader"]), (&json!("root:localhost"), &Value::Null));
    let asked = lines_of(&host.log, "method");
    let asked: Vec<&String> = asked.iter().filter(|line| line.starts_with("authorize")).collect();
    // Only of the caller the grant refused.
    assert_eq!(
        asked,
        ["authorize hello of user:bob", "authorize angry of user:bob", "authorize please of user:bob"]
    );
    // A plugin's own connection holds what its entry says.
    let peer = introduced(&host).await;
    let told = ask(&peer, "x-method/echo", json!({})).await.unwrap();
    assert_eq!((&told["owner"], &told["reader"]["id"]), (&json!("plugin:method"), &json!("plugin:method")));
    let refused = ask(&peer, "x-method/fail", json!({ "how": "well" })).await.unwrap_err();
    assert_eq!(refused.message, "plugin:method may not x-method:fail here");
}

async fn a_command_that_hangs_holds_nothing_else(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = Talk::with(&host, "echo").await;
    let never =
        json!({ "jsonrpc": "2.0", "id": "never", "method": "x-method/fail", "params": { "how": "never" } });
    talk.client.send(&never.to_string()).await;
    assert_eq!(talk.say("still here").await, "still here");
    talk.client.request("x-method/echo", json!({})).await.unwrap();
}

async fn a_name_that_is_taken_is_dropped(side: Side) {
    let host = side.other(LATER).load(side.host(), json!({})).start().await;
    let names: Vec<String> =
        host.registry().all::<NamedMethod>().iter().map(|held| held.name.to_string()).collect();
    assert_eq!(names, ["x-method/echo", "x-method/fail", "x-method/order", "x-later/echo"]);
    assert_eq!(
        host.problems,
        [
            "plugin later registers command x-method/echo, which plugin method already registered",
            "plugin later registers command x-ostler/usage/totals, which the daemon already registered",
            "plugin later registers command x-ostler/anything, which the daemon already registered",
        ]
    );
    let mut client = client_as(&host, "c", Principal::Anyone).await;
    assert_eq!(client.request("x-method/echo", json!({})).await.unwrap()["client"], "c");
    assert_eq!(client.request("x-later/echo", json!({})).await.unwrap(), "x-later/echo");
}
