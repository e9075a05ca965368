//! `registerContainers`: a client has a dev container made and speaks to the host inside it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ostler_contract::points::{ContainerEvents, ContainerRequest, Containers, DevContainer};
use ostler_contract::{Call, Options, PluginHost, Thrown, Value, json};
use ostler_testkit::{MemoryHost, RawClient};

use crate::side::{Both, Side, builder};

const PLUGIN: Both =
    Both { spec: "@conformance/containers", native, javascript: "containers.mjs", dress: None };

both! { PLUGIN:
    a_client_speaks_to_the_host_inside,
    a_container_is_stopped_and_removed,
    a_connection_that_ends_leaves_its_container,
    what_cannot_be_made_is_said,
    who_may_not_is_refused,
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let open: Arc<Mutex<HashMap<String, ContainerEvents>>> = Arc::default();
    let (made, written) = (open.clone(), open);
    let logged = |word: &'static str| {
        let host = host.clone();
        move |container: String| host.log(format!("{word} {container}"))
    };
    let (stop, remove, disconnect) = (logged("stop"), logged("remove"), logged("disconnect"));
    let (makes, closes) = (host.clone(), host.clone());
    host.register_containers(
        Containers {
            available: Call::now(|()| Ok(true)),
            make: Call::now(move |(request, events): (ContainerRequest, ContainerEvents)| {
                let folder = request.workspace_folder;
                makes.log(format!("make {folder} {}", request.name.as_deref().unwrap_or("undefined")))?;
                if folder == "/broken" {
                    return Err("no room".into());
                }
                events.output.call(("making".into(),))?;
                made.lock().unwrap().insert(request.connection, events);
                Ok(DevContainer {
                    id: "c1".into(),
                    name: None,
                    remote_workspace_folder: "/workspaces/x".into(),
                    host_workspace_folder: Some(folder),
                })
            }),
            write: Call::now(move |(container, connection, data): (String, String, String)| {
                let events = written.lock().unwrap()[&connection].clone();
                match data.as_str() {
                    "out" => events.output.call(("a line".into(),)),
                    "close" => events.closed.call(()),
                    "throw" => Err("not that".into()),
                    data => events.message.call((format!("{container} heard {data}"),)),
                }
            }),
            stop: Call::now(move |(container,): (String,)| stop(container)),
            remove: Call::now(move |(container,): (String,)| remove(container)),
            disconnect: Some(Call::now(move |(container, _): (String, String)| disconnect(container))),
            close: Some(Call::now(move |()| closes.log("closed".into()))),
        },
        None,
    )
}

async fn start(side: Side) -> (MemoryHost, RawClient) {
    let host = side.host().start().await;
    let mut client = host.raw();
    let result = client.initialize("c").await;
    assert_eq!(result["_meta"]["vscode.devContainers"], true);
    (host, client)
}

async fn ask(client: &mut RawClient, verb: &str, params: Value) -> Result<Value, Value> {
    client.request(&format!("vscode/devContainers/{verb}"), params).await
}

async fn connect(client: &mut RawClient, name: &str) -> Result<Value, Value> {
    let params = json!({ "connectionId": name, "workspaceFolder": "file:///srv/my%20inn", "name": "Inn" });
    ask(client, "connect", params).await
}

/// The next notification about containers: its last word and its params.
async fn told(client: &mut RawClient) -> (String, Value) {
    loop {
        let frame = client.next_frame().await.unwrap();
        if let Some(verb) =
            frame["method"].as_str().and_then(|name| name.strip_prefix("vscode/devContainers/"))
        {
            return (verb.to_owned(), frame["params"].clone());
        }
    }
}

async fn a_client_speaks_to_the_host_inside(side: Side) {
    let (host, mut client) = start(side).await;
    assert_eq!(ask(&mut client, "isDockerAvailable", json!({})).await, Ok(json!(true)));
    assert_eq!(
        connect(&mut client, "one").await.unwrap(),
        json!({ "connectionId": "one", "address": "devcontainer:c1", "name": "Inn",
            "remoteWorkspaceFolder": "/workspaces/x", "hostWorkspaceFolder": "/srv/my inn" })
    );
    host.log.wait_for("plugin containers: make /srv/my inn Inn").await;
    let said = |verb: &str, data: &str| (verb.to_owned(), json!({ "connectionId": "one", "data": data }));
    assert_eq!(told(&mut client).await, said("output", "making"));
    for (sent, heard) in [
        ("{}", said("relayMessage", "c1 heard {}")),
        ("out", said("output", "a line")),
        ("close", ("relayClose".to_owned(), json!({ "connectionId": "one" }))),
    ] {
        let send = json!({ "connectionId": "one", "data": sent });
        assert_eq!(ask(&mut client, "relaySend", send).await, Ok(Value::Null));
        assert_eq!(told(&mut client).await, heard);
    }
    let late =
        ask(&mut client, "relaySend", json!({ "connectionId": "one", "data": "x" })).await.unwrap_err();
    assert_eq!(
        (&late["code"], &late["message"]),
        (&json!(-32008), &json!("No connection one to a container"))
    );
    host.host.close().await;
    assert!(host.log.has("plugin containers: closed"));
}

async fn a_container_is_stopped_and_removed(side: Side) {
    let (host, mut client) = start(side).await;
    let mut other = host.raw();
    other.initialize("d").await;
    let container = json!({ "address": "devcontainer:c1" });
    let unknown = client.request("x-ostler/containers/stop", container.clone()).await.unwrap_err();
    assert_eq!(
        (&unknown["code"], &unknown["message"]),
        (&json!(-32008), &json!("No container at devcontainer:c1"))
    );
    for verb in ["stop", "remove"] {
        // A name is a client's own: two may use the same.
        connect(&mut client, "one").await.unwrap();
        connect(&mut other, "one").await.unwrap();
        let ended = client.request(&format!("x-ostler/containers/{verb}"), container.clone()).await;
        assert_eq!(ended, Ok(Value::Null));
        host.log.wait_for(&format!("plugin containers: {verb} c1")).await;
        for client in [&mut client, &mut other] {
            let output = told(client).await;
            assert_eq!(output.0, "output");
            assert_eq!(told(client).await, ("closeConnection".to_owned(), json!({ "connectionId": "one" })));
        }
    }
    let gone = client.request("x-ostler/containers/stop", container).await.unwrap_err();
    assert_eq!(gone["code"], -32008, "what was removed is gone");
}

async fn a_connection_that_ends_leaves_its_container(side: Side) {
    let (host, mut client) = start(side).await;
    connect(&mut client, "one").await.unwrap();
    let twice = connect(&mut client, "one").await.unwrap_err();
    assert_eq!((&twice["code"], &twice["message"]), (&json!(-32010), &json!("one is connected already")));
    let end = json!({ "connectionId": "one" });
    assert_eq!(ask(&mut client, "disconnect", end.clone()).await, Ok(Value::Null));
    host.log.wait_for("plugin containers: disconnect c1").await;
    assert_eq!(ask(&mut client, "disconnect", end).await.unwrap_err()["code"], -32008);
    connect(&mut client, "two").await.unwrap();
    client.connection.close();
    let lines = || host.log.all().iter().filter(|line| line.ends_with("disconnect c1")).count();
    let late = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while lines() < 2 {
        assert!(std::time::Instant::now() < late, "{:?}", host.log.all());
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert!(!host.log.has("stop c1") && !host.log.has("remove c1"));
}

async fn what_cannot_be_made_is_said(side: Side) {
    let (_host, mut client) = start(side).await;
    for (folder, name, code, why) in [
        ("srv", "one", -32602, "workspaceFolder must be an absolute path, not srv"),
        ("/srv", "", -32602, "connectionId must name the connection"),
        ("/broken", "one", -32603, "the container could not be created: no room"),
    ] {
        let params = json!({ "connectionId": name, "workspaceFolder": folder });
        let error = ask(&mut client, "connect", params).await.unwrap_err();
        assert_eq!((&error["code"], &error["message"]), (&json!(code), &json!(why)));
    }
    // The name of one that could not be made is free again.
    connect(&mut client, "one").await.unwrap();
    let error =
        ask(&mut client, "relaySend", json!({ "connectionId": "one", "data": "throw" })).await.unwrap_err();
    assert_eq!(error["message"], "not that");
}

async fn who_may_not_is_refused(side: Side) {
    let host = side.host().guarded().start().await;
    let mut client = host.raw();
    let result = client.initialize("c").await;
    let words = &result["_meta"]["ostler.grants"]["container"]["operations"];
    assert_eq!(*words, json!(["connect", "disconnect", "relay", "stop", "remove"]));
    assert_eq!(ask(&mut client, "isDockerAvailable", json!({})).await, Ok(json!(true)));
    assert_eq!(connect(&mut client, "one").await.unwrap_err()["code"], -32007);
    let remove = client.request("x-ostler/containers/remove", json!({ "address": "devcontainer:c1" })).await;
    assert_eq!(remove.unwrap_err()["code"], -32007);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_maker_none_is_served() {
    let host = builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let mut client = host.raw();
    assert!(client.initialize("c").await["_meta"].get("vscode.devContainers").is_none());
    let (id, address) = (json!({ "connectionId": "a", "data": "" }), json!({ "address": "devcontainer:c1" }));
    for (method, params) in [
        ("vscode/devContainers/isDockerAvailable", json!({})),
        ("vscode/devContainers/connect", json!({ "connectionId": "a", "workspaceFolder": "/srv" })),
        ("vscode/devContainers/relaySend", id.clone()),
        ("vscode/devContainers/disconnect", id),
        ("x-ostler/containers/stop", address.clone()),
        ("x-ostler/containers/remove", address),
    ] {
        let error = client.request(method, params).await.unwrap_err();
        assert_eq!(error["code"], -32601, "{method}");
        assert_eq!(error["message"], format!("{method} is not a command this host serves"));
    }
}
