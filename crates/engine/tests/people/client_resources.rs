//! Resources that clients serve: a user, a plugin and a session reach only clients of the same user, and a session those
//! that are active in it.

use ostler_contract::{Value, json};
use ostler_engine::users::UsersFile;
use ostler_engine::{People, Principal};
use ostler_protocol::commands::NAMES;
use ostler_protocol::error::code;
use ostler_protocol::grants::Grant;
use ostler_protocol::uri;
use ostler_testkit::{MemoryHost, RawClient, SIGN_IN};

const SESSION: &str = "echo:/1";

/// The schemes under which clients publish, by which a missing client is reported in different ways.
const SCHEMES: [(&str, i32); 3] = [
    ("vscode-agent-client", code::NOT_FOUND),
    ("memory", code::METHOD_NOT_FOUND),
    ("ostler-buffer", code::METHOD_NOT_FOUND),
];

/// A host with two users who have all grants.
async fn host() -> MemoryHost {
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .people(People::new(SIGN_IN, "inn"))
        .start()
        .await;
    let file = json!({ "roles": { "all": ["*:*"] },
        "users": [{ "id": "ada", "roles": ["all"] }, { "id": "ben", "roles": ["all"] }] });
    let people = host.host.access.gate.people().unwrap();
    assert!(people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap().is_empty());
    host.host.review_authority();
    host
}

async fn client(host: &MemoryHost, user: &str, id: &str) -> RawClient {
    let person = host.host.access.gate.people().unwrap().now().person(user).unwrap();
    connected(host, Principal::Person(person), id).await
}

async fn connected(host: &MemoryHost, principal: Principal, id: &str) -> RawClient {
    let mut client = host.raw_as(principal);
    client.initialize(id).await;
    client
}

/// Parameters of a command about a resource; a new one has to be added.
fn about(method: &str, uri: &str) -> Value {
    match method {
        "resourceRead"
        | "resourceList"
        | "resourceResolve"
        | "resourceMkdir"
        | "resourceDelete"
        | "resourceRequest"
        | "createResourceWatch" => json!({ "uri": uri }),
        "resourceWrite" => json!({ "uri": uri, "data": "x", "encoding": "utf-8" }),
        "resourceMove" | "resourceCopy" => json!({ "source": uri, "destination": format!("{uri}.old") }),
        _ => panic!("{method} has no parameters in this test"),
    }
}

fn resource_commands() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied().filter(|name| name.to_ascii_lowercase().contains("resource"))
}

/// Answers the next request of the host; returns its parameters.
async fn answer(client: &mut RawClient, method: &str, result: Value) -> Value {
    loop {
        let frame = client.next_frame().await.unwrap();
        if frame["method"] == method {
            client.send(&json!({ "jsonrpc": "2.0", "id": frame["id"], "result": result }).to_string()).await;
            return frame["params"].clone();
        }
    }
}

/// Asserts that the host has sent a client no request.
async fn assert_unasked(client: &mut RawClient) {
    // A request that was sent before this one would come before its answer.
    client.request("listSessions", json!({})).await.unwrap();
    let asked: Vec<_> =
        client.ready_frames().await.into_iter().filter(|frame| frame.get("id").is_some()).collect();
    assert!(asked.is_empty(), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn every_resource_command_reaches_only_clients_of_the_same_user() {
    let host = host().await;
    let mut bens = client(&host, "ben", "bens").await;
    let plugin = Principal::Plugin { id: "p".to_owned(), grants: vec![Grant::of("*", "*")].into() };
    let mut askers = [
        client(&host, "ada", "adas").await,
        connected(&host, Principal::Root, "root").await,
        connected(&host, plugin, "plugin").await,
    ];
    assert_eq!(resource_commands().count(), 10);
    for method in resource_commands() {
        for (scheme, absent) in SCHEMES {
            for id in ["bens", "BENS", "%62ens"] {
                let uri = format!("{scheme}://{id}/file/-/a");
                for asker in &mut askers {
                    let refused = asker.request(method, about(method, &uri)).await.unwrap_err();
                    assert_eq!(refused["code"], absent, "{method} {uri}: {refused}");
                }
            }
            // As if there were no such client.
            let uri = format!("{scheme}://none/file/-/a");
            let refused = askers[0].request(method, about(method, &uri)).await.unwrap_err();
            assert_eq!(refused["code"], absent, "{method} {uri}: {refused}");
        }
    }
    assert_unasked(&mut bens).await;
    let read = about("resourceRead", "vscode-agent-client://bens/file/-/a");
    let refused = askers[0].request("resourceRead", read).await.unwrap_err();
    let why = "vscode-agent-client://bens/file/-/a: client bens is not connected as user:ada";
    assert_eq!(refused["message"], why);

    // The own client answers, also if the client of another user has the same id.
    let mut own = client(&host, "ada", "bens").await;
    for method in resource_commands().filter(|method| *method != "createResourceWatch") {
        let result = match method {
            "resourceRead" => json!({ "data": "hers", "encoding": "utf-8" }),
            _ => json!({ "entries": [], "uri": "file:///a", "type": "file" }),
        };
        let asked = about(method, "vscode-agent-client://bens/file/-/a");
        let (answered, asked) =
            futures::join!(askers[0].request(method, asked), answer(&mut own, method, result.clone()));
        assert_eq!(answered, Ok(result), "{method}");
        assert!(asked.to_string().contains("file:///a"), "{method}: {asked}");
    }
    assert_unasked(&mut bens).await;
}

#[tokio::test(start_paused = true)]
async fn a_move_between_clients_of_two_users_reaches_neither() {
    let host = host().await;
    let (mut adas, mut bens) = (client(&host, "ada", "adas").await, client(&host, "ben", "bens").await);
    let mut asker = client(&host, "ada", "asker").await;
    for method in ["resourceMove", "resourceCopy"] {
        for (source, destination, expected) in
            [("adas", "bens", code::INVALID_PARAMS), ("bens", "adas", code::NOT_FOUND)]
        {
            let of = |id: &str| format!("vscode-agent-client://{id}/file/-/a");
            let params = json!({ "source": of(source), "destination": of(destination) });
            let refused = asker.request(method, params).await.unwrap_err();
            assert_eq!(refused["code"], expected, "{method} {source}: {refused}");
        }
    }
    assert_unasked(&mut adas).await;
    assert_unasked(&mut bens).await;
}

/// The session of one user, read by another user's client as well.
struct Read {
    owner: RawClient,
    turns: usize,
}

impl Read {
    async fn begin(host: &MemoryHost) -> Self {
        let mut owner = client(host, "ada", "adas").await;
        owner.request("createSession", json!({ "channel": SESSION, "provider": "echo" })).await.unwrap();
        owner.request("subscribe", json!({ "channel": uri::default_chat(SESSION) })).await.unwrap();
        owner.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
        Self { owner, turns: 0 }
    }

    /// Starts a turn in which the backend reads a URI.
    async fn start(&mut self, uri: &str) {
        self.turns += 1;
        let turn = json!({ "type": "chat/turnStarted", "turnId": format!("t{}", self.turns),
            "message": { "text": format!("/read {uri}") } });
        self.owner.dispatch(&uri::default_chat(SESSION), 1, turn).await;
    }

    async fn refused(&mut self, uri: &str) -> String {
        self.start(uri).await;
        let failed = self.owner.actions_until("chat/error").await.pop().unwrap();
        failed["action"]["part"]["error"]["message"].as_str().unwrap().to_owned()
    }

    /// Returns what the backend reads if `from` is asked.
    async fn answered(&mut self, uri: &str, from: &mut RawClient) -> String {
        self.start(uri).await;
        answer(from, "resourceRead", json!({ "data": "hay", "encoding": "utf-8" })).await;
        let actions = self.owner.actions_until("chat/turnComplete").await;
        actions.iter().filter_map(|action| action["action"]["content"].as_str()).collect()
    }
}

async fn activate(client: &mut RawClient, id: &str) {
    client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    let active =
        json!({ "type": "session/activeClientSet", "activeClient": { "clientId": id, "tools": [] } });
    client.dispatch(SESSION, 2, active).await;
    client.actions_until("session/activeClientSet").await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_reads_from_clients_of_the_sessions_owner_and_active_ones() {
    let host = host().await;
    let mut bens = client(&host, "ben", "bens").await;
    let mut read = Read::begin(&host).await;
    for (scheme, _) in SCHEMES {
        let refused = read.refused(&format!("{scheme}://bens/file/-/a")).await;
        let why = match scheme {
            "vscode-agent-client" => {
                "vscode-agent-client://bens/file/-/a: client bens is neither connected as user:ada nor active in \
                 this session"
                    .to_owned()
            }
            _ => format!("nothing here serves {scheme}:"),
        };
        assert_eq!(refused, why);
    }
    assert_unasked(&mut bens).await;

    activate(&mut bens, "bens").await;
    for (scheme, _) in SCHEMES {
        assert_eq!(read.answered(&format!("{scheme}://bens/file/-/a"), &mut bens).await, "hay");
    }
    let removed = json!({ "type": "session/activeClientRemoved", "clientId": "bens" });
    bens.dispatch(SESSION, 3, removed).await;
    bens.actions_until("session/activeClientRemoved").await;
    let refused = read.refused("vscode-agent-client://bens/file/-/a").await;
    assert!(refused.contains("nor active in this session"), "{refused}");
    assert_unasked(&mut bens).await;
}

/// Clients choose their ids: one that becomes active under the id of another user's client does not open that one.
#[tokio::test(start_paused = true)]
async fn an_active_client_does_not_stand_for_another_users_of_the_same_id() {
    let host = host().await;
    let mut bens = client(&host, "ben", "bens").await;
    let mut read = Read::begin(&host).await;
    let mut impostor = client(&host, "ada", "bens").await;
    activate(&mut impostor, "bens").await;
    let attached = json!([{ "type": "resource", "uri": "untitled:a", "label": "a" }]);
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t0",
        "message": { "text": "hi", "attachments": attached } });
    impostor.dispatch(&uri::default_chat(SESSION), 3, turn).await;
    read.owner.actions_until("chat/turnComplete").await;
    impostor.connection.close();
    for uri in ["vscode-agent-client://bens/file/-/a", "untitled:a"] {
        let refused = read.refused(uri).await;
        assert!(refused.contains("neither connected as user:ada nor active in this session"), "{refused}");
    }
    let settings = json!({ "type": "root/configChanged", "config": { "autoReplyEnabled": true } });
    bens.request("subscribe", json!({ "channel": uri::ROOT })).await.unwrap();
    bens.dispatch(uri::ROOT, 1, settings).await;
    bens.actions_until("root/configChanged").await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t9", "message": { "text": "/settings" } });
    read.owner.dispatch(&uri::default_chat(SESSION), 9, turn).await;
    let said = read.owner.actions_until("chat/turnComplete").await;
    let said: String = said.iter().filter_map(|action| action["action"]["content"].as_str()).collect();
    assert!(!said.contains("autoReplyEnabled"), "{said}");
    assert_unasked(&mut bens).await;
}
