//! `registerChannel`: a channel of a plugin's own, watched, published on, and closed to whoever may not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ostler_contract::host::Peer;
use ostler_contract::points::{
    Channel, ChannelHandle, Description, Method, PublishOptions, Reader, SchemeChannel,
};
use ostler_contract::{Call, JsonObject, Options, PluginHost, RpcError, Thrown, Value, json};
use ostler_engine::users::{UsersFile, hash_of};
use ostler_engine::{People, Principal};
use ostler_testkit::{MemoryHost, RawClient, SIGN_IN};
use tokio::sync::oneshot;

use crate::side::{Both, Side, Talk, builder, lines_of, object};

const PLUGIN: Both = Both { spec: "@conformance/channel", native, javascript: "channel.mjs", dress: None };
const LATER: Both =
    Both { spec: "@conformance/later", native: later, javascript: "channel-later.mjs", dress: None };

both! { PLUGIN:
    a_channel_is_watched_and_published_on,
    a_publish_that_cannot_be_is_thrown,
    who_may_see_an_action_is_asked_at_the_send,
    who_may_see_an_action_is_asked_again_on_replay,
    subscribers_are_told_once_per_client_and_person,
    a_client_has_left_once_it_watches_nothing,
    nothing_is_dispatched_to_a_plugins_channel,
    a_channel_is_named_to_clients,
    the_grant_and_then_authorize_let_a_reader_in,
    a_snapshot_that_fails_costs_that_subscribe,
    a_snapshot_that_takes_long_holds_nothing_else,
    a_scheme_another_plugin_serves_is_dropped,
}

type Released = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;
type Asked = Arc<Mutex<Vec<(String, Option<String>)>>>;

fn names(value: &Value) -> Option<Vec<String>> {
    let names = value.as_array()?;
    Some(names.iter().map(|name| name.as_str().unwrap().to_owned()).collect())
}

fn attempt(board: &ChannelHandle, asked: &Asked, params: &JsonObject) -> Result<(), Thrown> {
    let given = |key: &str| params.get(key).and_then(names);
    let (hide, angry, asked) = (given("hide"), given("angry"), asked.clone());
    let chosen = hide.is_some() || angry.is_some();
    let visible = Call::now(move |(reader, client): (Option<Reader>, String)| {
        asked.lock().unwrap().push((client.clone(), reader.map(|reader| reader.id)));
        if angry.iter().flatten().any(|name| *name == client) {
            return Err(Thrown::new(format!("not {client}")));
        }
        Ok(!hide.iter().flatten().any(|name| *name == client))
    });
    let to = params.get("to").and_then(Value::as_str).map(str::to_owned);
    let options = PublishOptions { visible: chosen.then_some(visible), to };
    let uri = params["uri"].as_str().unwrap().to_owned();
    board.publish.call((uri, params["action"].as_object().cloned().unwrap(), Some(options)))
}

fn said(outcome: Result<(), Thrown>) -> Value {
    outcome.map_or_else(|thrown| thrown.message.into(), |()| Value::Null)
}

type Handle = fn(params: JsonObject, reader: Option<Reader>, client: String, owner: Option<String>) -> Value;

fn control(host: &PluginHost, verb: &str, handle: Call<Handle>) -> Result<(), Thrown> {
    let method = Method { grant: "x-channel:control".into(), handle, ..Method::default() };
    host.register_method(format!("x-channel/{verb}").into(), method)
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let (released, asked) = (Released::default(), Asked::default());
    let (logs, authorizes, leaves, waits) = (host.clone(), host.clone(), host.clone(), released.clone());
    let board = host.register_channel(
        "x-board".into(),
        Channel {
            grant: "x-board:get".into(),
            snapshot: Call::new(move |(uri, reader, client): (String, Option<Reader>, String)| {
                logs.log(format!("snapshot {uri} of {client}")).unwrap();
                let slow = (uri == "x-board://slow").then(oneshot::channel).map(|(release, wait)| {
                    waits.lock().unwrap().insert(client.clone(), release);
                    wait
                });
                async move {
                    match uri.as_str() {
                        "x-board://broken" => return Err(Thrown::new("no such board")),
                        "x-board://gone" => {
                            let gone = RpcError::new(-32008, "this board is gone");
                            return Err(gone.with_data(json!({ "since": "May" })).into());
                        }
                        _ => {}
                    }
                    if let Some(wait) = slow {
                        wait.await.unwrap();
                    }
                    Ok(json!({ "uri": uri, "reader": reader, "client": client }))
                }
            }),
            authorize: Some(Call::now(move |(uri, reader): (String, Reader)| {
                authorizes.log(format!("authorize {uri} of {}", reader.id))?;
                match uri.as_str() {
                    "x-board://angry" => Err(Thrown::new("not in the mood")),
                    uri => Ok(uri == "x-board://open"),
                }
            })),
            left: Some(Call::now(move |(client,)| leaves.log(format!("left {client}")))),
            describe: Some(Call::now(|()| {
                Ok(Description {
                    title: Some("Board".into()),
                    description: Some("What everybody sees.".into()),
                })
            })),
        },
    )?;
    let plain = Channel {
        grant: "x-plain:read".into(),
        snapshot: Call::now(|_| Ok(Value::Null)),
        ..Channel::default()
    };
    host.register_channel("X-Plain".into(), plain)?;
    let early = object(json!({ "uri": "x-board://a", "action": { "type": "x-board/early" } }));
    host.log(said(attempt(&board, &asked, &early)).as_str().unwrap().to_owned())?;
    host.log(format!("{} subscribers", board.subscribers.call(("x-board://a".to_owned(),))?.len()))?;
    let (publishes, were) = (board.clone(), asked.clone());
    control(
        &host,
        "publish",
        Call::now(move |(params, ..): (JsonObject, _, _, _)| Ok(said(attempt(&publishes, &were, &params)))),
    )?;
    control(
        &host,
        "subscribers",
        Call::now(move |(params, ..): (JsonObject, _, _, _)| {
            let uri = params["uri"].as_str().unwrap().to_owned();
            Ok(json!(board.subscribers.call((uri,))?))
        }),
    )?;
    control(
        &host,
        "release",
        Call::now(move |(params, ..): (JsonObject, _, _, _)| {
            let release = released.lock().unwrap().remove(params["client"].as_str().unwrap());
            release.unwrap().send(()).unwrap();
            Ok(Value::Null)
        }),
    )?;
    control(&host, "asked", Call::now(move |_| Ok(json!(std::mem::take(&mut *asked.lock().unwrap())))))
}

fn later(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let says = |text: &'static str| Channel {
        grant: "x-later:get".into(),
        snapshot: Call::now(move |_| Ok(text.into())),
        ..Channel::default()
    };
    let lost = host.register_channel("X-board".into(), says("mine"))?;
    let described = Channel { describe: Some(Call::now(|()| Ok(Description::default()))), ..says("kept") };
    let kept = host.register_channel("x-later".into(), described)?;
    host.register_channel("x-ostler".into(), says("the host"))?;
    host.register_method(
        "x-later/publish".into(),
        Method {
            grant: "x-later:publish".into(),
            handle: Call::now(move |(params, ..): (JsonObject, _, _, _)| {
                let (handle, uri, name) = match params.get("lost") == Some(&json!(true)) {
                    true => (&lost, "x-board://a", "x-board/mine"),
                    false => (&kept, "x-later://a", "x-later/kept"),
                };
                Ok(said(handle.publish.call((uri.into(), object(json!({ "type": name })), None))))
            }),
            ..Method::default()
        },
    )
}

async fn client(host: &MemoryHost, name: &str) -> RawClient {
    client_as(host, name, Principal::Anyone).await
}

async fn client_as(host: &MemoryHost, name: &str, principal: Principal) -> RawClient {
    let mut client = host.raw_as(principal);
    client.initialize(name).await;
    client
}

async fn watch(client: &mut RawClient, uri: &str) -> Value {
    client.request("subscribe", json!({ "channel": uri })).await.unwrap()["snapshot"].clone()
}

/// Publishes through the plugin; answers what it threw.
async fn publish(client: &mut RawClient, params: Value) -> Value {
    client.request("x-channel/publish", params).await.unwrap()
}

fn note(text: &str) -> Value {
    json!({ "type": "x-board/note", "text": text })
}

/// The texts of the next notes, and their numbers.
async fn notes(client: &mut RawClient, count: usize) -> Vec<(String, u64)> {
    let mut notes = Vec::new();
    while notes.len() < count {
        let action = client.next_action().await;
        let text = action["action"]["text"].as_str().unwrap_or_else(|| panic!("{action}"));
        notes.push((text.to_owned(), action["serverSeq"].as_u64().unwrap()));
    }
    notes
}

fn texts(notes: &[(String, u64)]) -> Vec<&str> {
    notes.iter().map(|(text, _)| text.as_str()).collect()
}

async fn a_channel_is_watched_and_published_on(side: Side) {
    let host = side.host().start().await;
    let (mut ada, mut bob) = (client(&host, "ada").await, client(&host, "bob").await);
    let seen = watch(&mut ada, "x-board://a").await;
    assert_eq!(seen["resource"], "x-board://a");
    assert_eq!(seen["state"], json!({ "uri": "x-board://a", "reader": null, "client": "ada" }));
    // A spelling of the scheme names the same channel, and is answered as it was spelt.
    let spelled = watch(&mut bob, "X-Board://a").await;
    assert_eq!(
        (&spelled["resource"], &spelled["state"]["uri"]),
        (&json!("X-Board://a"), &json!("x-board://a"))
    );
    for (uri, text) in [("x-board://a", "one"), ("x-board://b", "elsewhere"), ("x-board://a", "two")] {
        assert_eq!(publish(&mut ada, json!({ "uri": uri, "action": note(text) })).await, Value::Null);
    }
    let first = ada.next_action().await;
    assert_eq!((&first["channel"], &first["action"]), (&json!("x-board://a"), &note("one")));
    assert!(first["serverSeq"].as_u64() > seen["fromSeq"].as_u64(), "{first} {seen}");
    assert!(first.get("origin").is_none(), "{first}");
    let second = notes(&mut ada, 1).await;
    assert_eq!(texts(&second), ["two"]);
    assert!(second[0].1 > first["serverSeq"].as_u64().unwrap() + 1, "what was sent elsewhere is a gap here");
    let aliased = bob.next_action().await;
    assert_eq!((&aliased["channel"], &aliased["action"]["text"]), (&json!("X-Board://a"), &json!("one")));
    bob.next_action().await;
    bob.notify("unsubscribe", json!({ "channel": "X-Board://a" })).await;
    publish(&mut ada, json!({ "uri": "x-board://a", "action": note("three") })).await;
    assert_eq!(texts(&notes(&mut ada, 1).await), ["three"]);
    assert!(bob.ready_frames().await.is_empty());
}

async fn a_publish_that_cannot_be_is_thrown(side: Side) {
    let host = side.host().start().await;
    // What the plugin tried while it was applied.
    assert_eq!(
        lines_of(&host.log, "channel"),
        [
            "plugin channel: publish needs a host to be built over this plugin; publish from `listening` or later",
            "0 subscribers"
        ]
    );
    let mut client = client(&host, "c").await;
    for (uri, name, why) in [
        ("x-board://a", "note", "needs action.type to start with x-board/, not \"note\""),
        ("x-board://a", "x-board/", "needs action.type to start with x-board/, not \"x-board/\""),
        ("x-board://a", "x-boards/note", "needs action.type to start with x-board/, not \"x-boards/note\""),
        ("x-other://a", "x-board/note", "needs uri to start with x-board:, not x-other://a"),
    ] {
        let said = publish(&mut client, json!({ "uri": uri, "action": { "type": name } })).await;
        assert_eq!(said, format!("plugin channel: publish {why}"));
    }
    assert_eq!(
        publish(&mut client, json!({ "uri": "x-board://a", "action": {} })).await,
        "plugin channel: publish needs action.type to start with x-board/, not \"\""
    );
}

async fn who_may_see_an_action_is_asked_at_the_send(side: Side) {
    let host = side.host().start().await;
    let (mut ada, mut bob) = (client(&host, "ada").await, client(&host, "bob").await);
    let mut again = client(&host, "ada").await;
    for client in [&mut ada, &mut bob, &mut again] {
        watch(client, "x-board://a").await;
    }
    let mut all = client(&host, "all").await;
    watch(&mut all, "x-board://a").await;
    let uri = "x-board://a";
    for action in [
        json!({ "uri": uri, "action": note("not bob"), "hide": ["bob"] }),
        json!({ "uri": uri, "action": note("angry at bob"), "angry": ["bob"] }),
        json!({ "uri": uri, "action": note("everybody") }),
        json!({ "uri": uri, "action": note("to bob"), "to": "bob" }),
        json!({ "uri": uri, "action": note("to bob, who is hidden"), "to": "bob", "hide": ["bob"] }),
        json!({ "uri": uri, "action": note("last") }),
    ] {
        assert_eq!(publish(&mut all, action).await, Value::Null);
    }
    let (to_ada, to_bob) = (notes(&mut ada, 4).await, notes(&mut bob, 3).await);
    assert_eq!(texts(&to_ada), ["not bob", "angry at bob", "everybody", "last"]);
    assert_eq!(texts(&to_bob), ["everybody", "to bob", "last"]);
    let numbers: Vec<u64> = to_ada.iter().map(|(_, number)| number - to_ada[0].1).collect();
    assert_eq!(numbers, [0, 1, 2, 5], "what others were sent is a gap");
    assert_eq!(texts(&notes(&mut again, 4).await), texts(&to_ada));
    let asked: Vec<(String, Option<String>)> =
        serde_json::from_value(all.request("x-channel/asked", json!({})).await.unwrap()).unwrap();
    let once = |asked: &[(String, Option<String>)]| {
        let mut names: Vec<&str> = asked.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.join(" ")
    };
    // Twice of everybody, each client once, and only of the one it is for the third time.
    assert_eq!(once(&asked[..3]), "ada all bob");
    assert_eq!(once(&asked[3..6]), "ada all bob");
    assert_eq!(once(&asked[6..]), "bob");
    let logged = host.log.wait_for("visible for 1 of 3 on x-board://a failed: not bob").await;
    assert!(logged.starts_with("plugin channel: "), "{logged}");
}

async fn who_may_see_an_action_is_asked_again_on_replay(side: Side) {
    let host = side.host().start().await;
    let mut control = client(&host, "control").await;
    let mut gone = client(&host, "gone").await;
    let from = watch(&mut gone, "x-board://a").await["fromSeq"].clone();
    gone.connection.close();
    host.log.wait_for("left gone").await;
    let uri = "x-board://a";
    for action in [
        json!({ "uri": uri, "action": note("for all") }),
        json!({ "uri": uri, "action": note("hidden"), "hide": ["gone"] }),
        json!({ "uri": uri, "action": note("angry"), "angry": ["gone"] }),
        json!({ "uri": uri, "action": note("seen"), "hide": ["somebody"] }),
        json!({ "uri": uri, "action": note("to another"), "to": "control" }),
        json!({ "uri": uri, "action": note("to it"), "to": "gone" }),
    ] {
        publish(&mut control, action).await;
    }
    // Nobody watched, so nobody was asked about.
    assert_eq!(control.request("x-channel/asked", json!({})).await.unwrap(), json!([]));
    let mut back = host.raw();
    let reconnect = json!({ "clientId": "gone", "lastSeenServerSeq": from,
        "subscriptions": [uri, "x-nobody://a"] });
    let replay = back.request("reconnect", reconnect).await.unwrap();
    assert_eq!((&replay["type"], &replay["missing"]), (&json!("replay"), &json!(["x-nobody://a"])));
    let replayed: Vec<&str> = replay["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sent| sent["action"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(replayed, ["for all", "seen", "to it"]);
    let asked = control.request("x-channel/asked", json!({})).await.unwrap();
    assert_eq!(asked, json!([["gone", null], ["gone", null], ["gone", null]]));
    // It watches again from there.
    publish(&mut control, json!({ "uri": uri, "action": note("after") })).await;
    assert_eq!(texts(&notes(&mut back, 1).await), ["after"]);
}

async fn subscribers_are_told_once_per_client_and_person(side: Side) {
    let people = json!({
        "roles": { "r": ["x-board:get"] },
        "users": [{ "id": "ada", "roles": ["r"], "token": hash_of("ada") },
            { "id": "bob", "roles": ["r"], "token": hash_of("bob") }],
    });
    let host = guarded(side, &people, &[]).await;
    let (ada, bob) = (person(&host, "ada"), person(&host, "bob"));
    let mut watchers = Vec::new();
    for (name, principal) in
        [("desk", &ada), ("desk", &ada), ("phone", &ada), ("desk", &bob), ("admin", &Principal::Root)]
    {
        let mut client = client_as(&host, name, principal.clone()).await;
        watch(&mut client, "x-board://a").await;
        watchers.push(client);
    }
    let mut root = client_as(&host, "control", Principal::Root).await;
    let told = root.request("x-channel/subscribers", json!({ "uri": "x-board://a" })).await.unwrap();
    let told: Vec<(Value, Value)> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|told| {
            (told["client"].clone(), told.get("reader").map_or(Value::Null, |reader| reader["id"].clone()))
        })
        .collect();
    let row = |client: &str, reader: Value| (json!(client), reader);
    assert_eq!(
        told,
        [
            row("desk", json!("user:ada")),
            row("phone", json!("user:ada")),
            row("desk", json!("user:bob")),
            row("admin", Value::Null)
        ]
    );
    let none = root.request("x-channel/subscribers", json!({ "uri": "x-board://b" })).await.unwrap();
    assert_eq!(none, json!([]));
}

async fn a_client_has_left_once_it_watches_nothing(side: Side) {
    let host = side.host().start().await;
    let (mut one, mut two) = (client(&host, "ada").await, client(&host, "ada").await);
    watch(&mut one, "x-board://a").await;
    watch(&mut one, "x-board://b").await;
    watch(&mut two, "x-board://a").await;
    one.notify("unsubscribe", json!({ "channel": "x-board://a" })).await;
    one.notify("unsubscribe", json!({ "channel": "x-board://b" })).await;
    // Another client's end is told after everything that was told before.
    let mut other = client(&host, "bob").await;
    watch(&mut other, "x-board://a").await;
    other.notify("unsubscribe", json!({ "channel": "x-board://a" })).await;
    host.log.wait_for("left bob").await;
    assert!(!host.log.has("left ada"), "another connection of hers still watches");
    two.connection.close();
    host.log.wait_for("left ada").await;
    watch(&mut one, "x-board://a").await;
    one.notify("unsubscribe", json!({ "channel": "x-board://a" })).await;
    // One that never came to watch has not left.
    one.request("subscribe", json!({ "channel": "x-board://broken" })).await.unwrap_err();
    watch(&mut other, "x-board://a").await;
    other.connection.close();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let left = || -> Vec<String> {
        lines_of(&host.log, "channel").into_iter().filter(|line| line.starts_with("left")).collect()
    };
    while left().len() < 4 {
        assert!(std::time::Instant::now() < end, "{:?}", left());
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(left(), ["left bob", "left ada", "left ada", "left bob"]);
}

async fn nothing_is_dispatched_to_a_plugins_channel(side: Side) {
    let host = side.host().start().await;
    let mut client = client(&host, "c").await;
    watch(&mut client, "x-board://a").await;
    client.dispatch("x-board://a", 1, note("mine")).await;
    let refused = client.next_action().await;
    assert_eq!(refused["rejectionReason"], "a plugin's channel accepts no actions of clients");
    assert_eq!(refused["origin"], json!({ "clientId": "c", "clientSeq": 1 }));
}

async fn a_channel_is_named_to_clients(side: Side) {
    let host = side.other(LATER).load(side.host(), json!({})).start().await;
    let mut client = host.raw();
    let introduced = client.initialize("c").await;
    // One that does not describe itself is not named.
    let rows = json!([
        { "scheme": "x-board", "title": "Board", "description": "What everybody sees.", "grant": "x-board:get" },
        { "scheme": "x-later", "title": "x-later", "grant": "x-later:get" },
    ]);
    assert_eq!(introduced["_meta"]["ostler.channels"], rows);
    let root = watch(&mut client, "ahp-root://").await;
    assert_eq!(root["state"]["_meta"]["ostler.channels"], rows);
    let grants = &introduced["_meta"]["ostler.grants"];
    assert_eq!(
        grants["x-board"],
        json!({ "title": "Board", "description": "What everybody sees.", "operations": ["get"],
            "read": ["get"], "write": [] })
    );
    assert_eq!(grants["x-channel"]["write"], json!(["control"]));
    assert_eq!(grants["x-plain"]["operations"], json!([]), "a group names no operation");
    assert!(builder().start().await.raw().initialize("c").await["_meta"].get("ostler.channels").is_none());
}

async fn guarded(side: Side, people: &Value, grants: &[&str]) -> MemoryHost {
    let host = side.host().grants(grants).people(People::new(SIGN_IN, "inn")).start().await;
    let file = UsersFile::parse(&people.to_string()).unwrap();
    host.host.access.gate.people().unwrap().set(file).unwrap();
    host
}

fn person(host: &MemoryHost, id: &str) -> Principal {
    Principal::Person(host.host.access.gate.people().unwrap().now().person(id).unwrap())
}

async fn peer_asks(peer: &Peer, method: &str, params: Value) -> Result<Value, RpcError> {
    peer.request.call((method.to_owned(), Some(object(params)))).await.map_err(Thrown::into_rpc)
}

async fn the_grant_and_then_authorize_let_a_reader_in(side: Side) {
    let people = json!({
        "roles": { "watches": ["x-board:read"], "else": ["session:read", "x-board:put"] },
        "users": [{ "id": "ada", "roles": ["watches"], "memberships": ["inn"], "token": hash_of("a") },
            { "id": "bob", "roles": ["else"], "token": hash_of("b") }],
    });
    let host = guarded(side, &people, &["x-board:get"]).await;
    let mut ada = client_as(&host, "a", person(&host, "ada")).await;
    let seen = watch(&mut ada, "x-board://a").await["state"].clone();
    assert_eq!(seen["client"], "a");
    let reader = &seen["reader"];
    assert_eq!((&reader["id"], &reader["roles"]), (&json!("user:ada"), &json!(["watches"])));
    assert_eq!((&reader["memberships"], &reader["grants"]), (&json!(["inn"]), &json!(["x-board:read"])));
    let mut bob = client_as(&host, "b", person(&host, "bob")).await;
    for uri in ["x-board://a", "x-board://angry"] {
        let refused = bob.request("subscribe", json!({ "channel": uri })).await.unwrap_err();
        assert_eq!(refused["code"], ostler_protocol::error::code::PERMISSION_DENIED, "{refused}");
        assert_eq!(refused["message"], "bob may not x-board:get here");
    }
    let why = host.log.wait_for("the authorize of x-board://angry failed: not in the mood").await;
    assert!(why.starts_with("plugin channel: "), "{why}");
    assert_eq!(watch(&mut bob, "x-board://open").await["state"]["reader"]["id"], "user:bob");
    // A channel with no `authorize` leaves it at the grant.
    let plain = bob.request("subscribe", json!({ "channel": "x-plain://a" })).await.unwrap_err();
    assert_eq!(plain["message"], "bob may not x-plain:read here");
    let mut nobody = client_as(&host, "n", Principal::Anyone).await;
    let refused = nobody.request("subscribe", json!({ "channel": "x-board://open" })).await.unwrap_err();
    assert_eq!(refused["code"], ostler_protocol::error::code::AUTH_REQUIRED, "{refused}");
    assert_eq!(refused["data"]["resources"][0]["resource"], SIGN_IN);
    let mut root = client_as(&host, "r", Principal::Root).await;
    assert_eq!(watch(&mut root, "x-board://a").await["state"]["reader"], Value::Null);
    let asked: Vec<String> =
        lines_of(&host.log, "channel").into_iter().filter(|line| line.starts_with("authorize")).collect();
    // Only of the reader the grant refused.
    assert_eq!(
        asked,
        [
            "authorize x-board://a of user:bob",
            "authorize x-board://angry of user:bob",
            "authorize x-board://open of user:bob"
        ]
    );
    // Who is refused is refused wherever a subscription may begin.
    let subscriptions = json!(["x-board://a", "x-board://open", "x-board://angry"]);
    let mut second = host.raw_as(person(&host, "bob"));
    let introduced = second
        .request(
            "initialize",
            json!({ "clientId": "b2", "protocolVersions": ["1.0.0"], "initialSubscriptions": subscriptions }),
        )
        .await
        .unwrap();
    let resources: Vec<&Value> =
        introduced["snapshots"].as_array().unwrap().iter().map(|seen| &seen["resource"]).collect();
    assert_eq!(resources, ["x-board://open"]);
    let mut third = host.raw_as(person(&host, "bob"));
    let back = json!({ "clientId": "b", "lastSeenServerSeq": introduced["serverSeq"], "subscriptions": subscriptions });
    let back = third.request("reconnect", back).await.unwrap();
    assert_eq!(back["type"], "replay", "{back}");
    let mut missing: Vec<&str> =
        back["missing"].as_array().unwrap().iter().map(|uri| uri.as_str().unwrap()).collect();
    missing.sort_unstable();
    assert_eq!(missing, ["x-board://a", "x-board://angry"]);
    // A plugin's own connection holds what its entry says.
    let peer = host.plugin("channel").connect().unwrap();
    let hello = json!({ "channel": "ahp-root://", "clientId": "p", "protocolVersions": ["1.0.0"] });
    peer_asks(&peer, "initialize", hello).await.unwrap();
    let own = peer_asks(&peer, "subscribe", json!({ "channel": "x-board://a" })).await.unwrap();
    assert_eq!(own["snapshot"]["state"]["reader"]["id"], "plugin:channel");
    let refused = peer_asks(&peer, "subscribe", json!({ "channel": "x-plain://a" })).await.unwrap_err();
    assert_eq!(refused.message, "plugin:channel may not x-plain:read here");
    // Without people nothing is gated and there is no reader, not even of a plugin.
    let open = side.host().start().await;
    let peer = open.plugin("channel").connect().unwrap();
    let hello = json!({ "channel": "ahp-root://", "clientId": "p", "protocolVersions": ["1.0.0"] });
    peer_asks(&peer, "initialize", hello).await.unwrap();
    let own = peer_asks(&peer, "subscribe", json!({ "channel": "x-board://a" })).await.unwrap();
    assert_eq!(own["snapshot"]["state"]["reader"], Value::Null);
}

async fn a_snapshot_that_fails_costs_that_subscribe(side: Side) {
    let host = side.host().start().await;
    let mut ada = client(&host, "ada").await;
    let error = ada.request("subscribe", json!({ "channel": "x-board://gone" })).await.unwrap_err();
    assert_eq!(error, json!({ "code": -32008, "message": "this board is gone", "data": { "since": "May" } }));
    let error = ada.request("subscribe", json!({ "channel": "x-board://broken" })).await.unwrap_err();
    assert_eq!((&error["code"], &error["message"]), (&json!(-32603), &json!("no such board")));
    let why = host.log.wait_for("the snapshot of x-board://broken failed: no such board").await;
    assert!(why.starts_with("plugin channel: "), "{why}");
    for uri in ["x-board://gone", "x-board://broken"] {
        publish(&mut ada, json!({ "uri": uri, "action": note("unheard") })).await;
    }
    let none = ada.request("subscribe", json!({ "channel": "x-nobody://a" })).await.unwrap_err();
    assert_eq!(none["message"], "nothing here serves x-nobody:");
    watch(&mut ada, "x-board://a").await;
    publish(&mut ada, json!({ "uri": "x-board://a", "action": note("heard") })).await;
    assert_eq!(texts(&notes(&mut ada, 1).await), ["heard"]);
}

async fn a_snapshot_that_takes_long_holds_nothing_else(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut control = client(&host, "control").await;
    watch(&mut control, "x-board://a").await;
    let mut talk = Talk::with(&host, "echo").await;
    let slow = json!({ "jsonrpc": "2.0", "id": "slow", "method": "subscribe", "params": { "channel": "x-board://slow" } });
    talk.client.send(&slow.to_string()).await;
    host.log.wait_for("snapshot x-board://slow of talker").await;
    // The same connection goes on with its session, another client with its channel.
    assert_eq!(talk.say("still here").await, "still here");
    publish(&mut control, json!({ "uri": "x-board://a", "action": note("elsewhere") })).await;
    assert_eq!(texts(&notes(&mut control, 1).await), ["elsewhere"]);
    // What is published meanwhile comes after the state.
    publish(&mut control, json!({ "uri": "x-board://slow", "action": note("one") })).await;
    publish(&mut control, json!({ "uri": "x-board://slow", "action": note("two"), "hide": [] })).await;
    control.request("x-channel/release", json!({ "client": "talker" })).await.unwrap();
    let mut order = Vec::new();
    while order.len() < 3 {
        let frame = talk.client.next_frame().await.unwrap();
        match frame["id"] == "slow" {
            true => order.push(frame["result"]["snapshot"]["state"]["uri"].clone()),
            false if frame["params"]["channel"] == "x-board://slow" => {
                order.push(frame["params"]["action"]["text"].clone());
            }
            false => {}
        }
    }
    assert_eq!(order, ["x-board://slow", "one", "two"]);
}

async fn a_scheme_another_plugin_serves_is_dropped(side: Side) {
    let host = side.other(LATER).load(side.host(), json!({})).start().await;
    let schemes: Vec<String> =
        host.registry().all::<SchemeChannel>().iter().map(|held| held.scheme.to_string()).collect();
    assert_eq!(schemes, ["x-board", "X-Plain", "x-later"]);
    assert_eq!(
        host.problems,
        [
            "plugin later registers channel X-board, which plugin channel already registered",
            "plugin later registers channel x-ostler, which the daemon already registered",
        ]
    );
    let mut client = client(&host, "c").await;
    assert_eq!(watch(&mut client, "x-board://a").await["state"]["client"], "c");
    watch(&mut client, "x-later://a").await;
    let lost = client.request("x-later/publish", json!({ "lost": true })).await.unwrap();
    assert_eq!(lost, "plugin later: publish cannot: x-board belongs to plugin channel");
    assert_eq!(client.request("x-later/publish", json!({})).await.unwrap(), Value::Null);
    assert_eq!(client.next_action().await["action"]["type"], "x-later/kept");
}
