//! `registerResourceProvider`: one URI scheme of a plugin's own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ostler_contract::points::{
    Reader, ResourceContent, ResourceProvider, ResourceWrite, ResourceWriter, SchemeDescription,
    SchemeProvider,
};
use ostler_contract::wire::commands::{ContentEncoding, DirectoryEntry};
use ostler_contract::{Call, Options, PluginHost, RpcError, Thrown, Value, json};

use crate::side::{Both, Side, builder, object};

const PLUGIN: Both =
    Both { spec: "@conformance/resource-provider", native, javascript: "resource-provider.mjs", dress: None };
const LATER: Both = Both {
    spec: "@conformance/later",
    native: later,
    javascript: "resource-provider-later.mjs",
    dress: None,
};

both! { PLUGIN:
    a_scheme_is_read_listed_and_written,
    what_a_provider_throws_is_what_the_client_is_told,
    a_scheme_is_described_with_what_it_can_do,
    a_reader_is_who_the_grants_say,
    a_scheme_another_plugin_holds_is_dropped,
}

type Notes = Arc<Mutex<BTreeMap<String, String>>>;

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let notes: Notes = Arc::new(Mutex::new(BTreeMap::from([
        ("notes://first".to_owned(), "Milk".to_owned()),
        ("notes://second".to_owned(), "Bread".to_owned()),
    ])));
    let (listed, written, logs) = (notes.clone(), notes.clone(), host.clone());
    host.register_resource_provider(
        "notes".into(),
        ResourceProvider {
            read: Call::now(move |(uri, reader): (String, Option<Reader>)| match uri.as_str() {
                "notes://who" => Ok(ResourceContent {
                    content_type: Some("application/json".into()),
                    ..ResourceContent::text(json!(reader).to_string())
                }),
                "notes://bytes" => {
                    Ok(ResourceContent { encoding: ContentEncoding::Base64, ..ResourceContent::text("AAE=") })
                }
                _ => match notes.lock().unwrap().get(&uri) {
                    Some(note) => Ok(ResourceContent::text(note)),
                    None => Err(RpcError::new(-32008, format!("no note at {uri}"))
                        .with_data(json!({ "uri": uri }))
                        .into()),
                },
            }),
            list: Some(Call::now(move |(uri, _): (String, Option<Reader>)| {
                let notes = listed.lock().unwrap();
                let entry = |note: &String| DirectoryEntry {
                    name: note[uri.len()..].to_owned(),
                    r#type: "file".to_owned(),
                };
                Ok(notes.keys().map(entry).collect())
            })),
            write: Some(Call::now(move |(uri, content, writer): (String, ResourceWrite, ResourceWriter)| {
                logs.log(format!("{} writes {}", writer.client.unwrap(), content.data))?;
                written.lock().unwrap().insert(uri, content.data);
                Ok(())
            })),
            describe: Some(Call::now(|()| {
                Ok(SchemeDescription {
                    title: Some("Notes".into()),
                    description: Some("What not to forget.".into()),
                    manifest: Some(object(json!({ "type": "object" }))),
                })
            })),
            operations: Some(vec!["archive".into()]),
            ..ResourceProvider::default()
        },
    )
}

fn later(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let says = |text: &'static str| ResourceProvider {
        read: Call::now(move |_| Ok(ResourceContent::text(text))),
        ..ResourceProvider::default()
    };
    host.register_resource_provider("Notes".into(), says("mine"))?;
    host.register_resource_provider("plain".into(), says("plain"))
}

async fn a_scheme_is_read_listed_and_written(side: Side) {
    let host = side.host().start().await;
    let mut client = host.raw();
    client.initialize("ada").await;
    let read = client.request("resourceRead", json!({ "uri": "notes://first" })).await.unwrap();
    assert_eq!(read, json!({ "data": "Milk", "encoding": "utf-8" }));
    let bytes = client.request("resourceRead", json!({ "uri": "notes://bytes" })).await.unwrap();
    assert_eq!(bytes, json!({ "data": "AAE=", "encoding": "base64" }));
    let listed = client.request("resourceList", json!({ "uri": "notes://" })).await.unwrap();
    assert_eq!(
        listed["entries"],
        json!([{ "name": "first", "type": "file" }, { "name": "second", "type": "file" }])
    );
    let write = json!({ "uri": "notes://third", "data": "Oats", "encoding": "utf-8" });
    client.request("resourceWrite", write).await.unwrap();
    host.log.wait_for("plugin resource-provider: ada writes Oats").await;
    let read = client.request("resourceRead", json!({ "uri": "notes://third" })).await.unwrap();
    assert_eq!(read["data"], "Oats");
    // What it lacks is named; what it has is not the worse for it.
    let lacks = client.request("resourceDelete", json!({ "uri": "notes://third" })).await.unwrap_err();
    assert_eq!(
        (&lacks["code"], lacks["message"].as_str().unwrap()),
        (&json!(-32601), "notes: cannot delete")
    );
}

async fn what_a_provider_throws_is_what_the_client_is_told(side: Side) {
    let host = side.host().start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let error = client.request("resourceRead", json!({ "uri": "notes://none" })).await.unwrap_err();
    assert_eq!(
        error,
        json!({ "code": -32008, "message": "no note at notes://none", "data": { "uri": "notes://none" } })
    );
}

async fn a_scheme_is_described_with_what_it_can_do(side: Side) {
    let host = side.host().start().await;
    let mut client = host.raw();
    let introduced = client.initialize("c").await;
    let row = json!({ "title": "Notes", "description": "What not to forget.", "manifest": { "type": "object" },
        "root": "notes://", "operations": ["get", "list", "put", "archive"] });
    assert_eq!(introduced["_meta"]["ostler.resourceProviders"], json!({ "notes": row }));
    let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(root["snapshot"]["state"]["_meta"]["ostler.resourceProviders"], json!({ "notes": row }));
    let grants = &introduced["_meta"]["ostler.grants"]["notes"];
    assert_eq!(grants["operations"], json!(["get", "list", "put", "archive"]));
    assert_eq!((&grants["read"], &grants["write"]), (&json!(["get", "list"]), &json!(["put", "archive"])));
    let without = side.other(LATER).load(builder(), json!({})).start().await;
    let described = without.raw().initialize("c").await["_meta"]["ostler.resourceProviders"].clone();
    assert_eq!(described["plain"], json!({ "root": "plain://", "operations": ["get"] }));
    let none = builder().start().await;
    let mut client = none.raw();
    assert_eq!(client.initialize("c").await["_meta"].get("ostler.resourceProviders"), None);
    let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(root["snapshot"]["state"]["_meta"].get("ostler.resourceProviders"), None, "{root}");
}

async fn a_reader_is_who_the_grants_say(side: Side) {
    let host = side.host().start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let who = client.request("resourceRead", json!({ "uri": "notes://who" })).await.unwrap();
    assert_eq!(who, json!({ "data": "null", "encoding": "utf-8", "contentType": "application/json" }));

    let host = side.host().grants(&["notes:get"]).guarded().start().await;
    let plugin = host.plugin("resource-provider").connect().unwrap();
    let ask = async |method: &str, params: Value| {
        plugin.request.call((method.to_owned(), Some(object(params)))).await
    };
    ask("initialize", json!({ "channel": "ahp-root://", "clientId": "p", "protocolVersions": ["1.0.0"] }))
        .await
        .unwrap();
    let who = ask("resourceRead", json!({ "uri": "notes://who" })).await.unwrap();
    let who: Value = serde_json::from_str(who["data"].as_str().unwrap()).unwrap();
    assert_eq!((&who["id"], &who["grants"]), (&json!("plugin:resource-provider"), &json!(["notes:get"])));
    let refused = ask("resourceWrite", json!({ "uri": "notes://x", "data": "", "encoding": "utf-8" }))
        .await
        .unwrap_err();
    assert_eq!(refused.into_rpc().code, ostler_protocol::error::code::PERMISSION_DENIED);
}

async fn a_scheme_another_plugin_holds_is_dropped(side: Side) {
    let host = side.other(LATER).load(side.host(), json!({})).start().await;
    let schemes: Vec<String> =
        host.registry().all::<SchemeProvider>().iter().map(|held| held.scheme.to_string()).collect();
    assert_eq!(schemes, ["notes", "plain"]);
    assert_eq!(
        host.problems,
        ["plugin later registers scheme Notes, which plugin resource-provider already registered"]
    );
    let mut client = host.raw();
    client.initialize("c").await;
    let read = client.request("resourceRead", json!({ "uri": "notes://first" })).await.unwrap();
    assert_eq!(read["data"], "Milk");
}
