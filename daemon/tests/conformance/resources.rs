//! `registerResources`: the store behind `file:`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ostler_contract::points::{
    ChangeType, Reader, ResourceAccess, ResourceChanged, ResourceCompletion, ResourceContent, ResourceFacts,
    ResourceResolving, ResourceStore, ResourceWrite, ResourceWriter, When,
};
use ostler_contract::registry::Registrant;
use ostler_contract::wire::commands::DirectoryEntry;
use ostler_contract::{Call, HostFunction, Options, PluginHost, RpcError, Thrown, Value, json};
use ostler_ports::DiskFiles;
use ostler_testkit::RawClient;

use crate::side::{Both, Side, builder, lines_of, object};

const PLUGIN: Both =
    Both { spec: "@conformance/resources", native, javascript: "resources.mjs", dress: None };

both! { PLUGIN:
    files_are_read_listed_and_resolved_and_the_write_half_is_optional,
    a_store_with_a_write_half_is_written_to,
    a_store_that_replaces_takes_the_port_over,
    what_a_person_types_is_completed,
    file_is_no_scheme_a_client_is_told_of,
}

type Files = Arc<Mutex<BTreeMap<String, String>>>;

/// Files in memory; with `writes`, ones that are written to.
fn native(host: PluginHost, options: Options) -> Result<(), Thrown> {
    let files: Files =
        Arc::new(Mutex::new(BTreeMap::from([("file:///inn/menu".to_owned(), "Stew".to_owned())])));
    let missing = |uri: &str| Thrown::from(RpcError::not_found(format!("there is no {uri}")));
    let (read, resolved, written, deleted, logs) =
        (files.clone(), files.clone(), files.clone(), files.clone(), host.clone());
    let store = ResourceStore {
        list: Call::now(move |(uri, _): (String, Option<Reader>)| {
            let files = files.lock().unwrap();
            let names = files.keys().filter_map(|file| file.strip_prefix(&format!("{uri}/")));
            Ok(names
                .map(|name| DirectoryEntry { name: name.to_owned(), r#type: "file".to_owned() })
                .collect())
        }),
        read: Call::now(move |(uri, reader): (String, Option<Reader>)| match uri.as_str() {
            "file:///who" => Ok(ResourceContent::text(json!(reader.map(|reader| reader.id)).to_string())),
            _ => read.lock().unwrap().get(&uri).map(ResourceContent::text).ok_or_else(|| missing(&uri)),
        }),
        resolve: Call::now(move |(uri, _, options): (String, Option<Reader>, ResourceResolving)| {
            if uri == "file:///link" {
                let leads = options.follow_symlinks.then(|| "file:///inn/menu".to_owned());
                let r#type = if options.follow_symlinks { "file" } else { "symlink" }.to_owned();
                return Ok(ResourceFacts { uri: leads, r#type, ..ResourceFacts::default() });
            }
            let files = resolved.lock().unwrap();
            let size = files.get(&uri).map(String::len).ok_or_else(|| missing(&uri))?;
            Ok(ResourceFacts {
                r#type: "file".to_owned(),
                size: Some(size as i64),
                ..ResourceFacts::default()
            })
        }),
        complete: Call::now(|(directory, typed): (String, String)| {
            Ok(vec![ResourceCompletion { uri: format!("{directory}/{typed}nu"), path: format!("{typed}nu") }])
        }),
        ..ResourceStore::default()
    };
    let store = match options.contains_key("writes") {
        false => store,
        true => ResourceStore {
            write: Some(Call::now(move |(uri, content, writer): (String, ResourceWrite, ResourceWriter)| {
                logs.log(format!("{} writes {uri}", writer.client.unwrap()))?;
                written.lock().unwrap().insert(uri, content.data);
                Ok(())
            })),
            delete: Some(Call::now(move |(uri, ..): (String, bool, ResourceWriter)| {
                deleted.lock().unwrap().remove(&uri).map(drop).ok_or_else(|| missing(&uri))
            })),
            request: Some(Call::now(|(_, _, access): (String, ResourceWriter, ResourceAccess)| match access
                .write
            {
                true => Err(RpcError::permission_denied("ask the cook").into()),
                false => Ok(()),
            })),
            watch: Some(Call::new(
                |(uri, _, told): (String, bool, HostFunction<fn(Vec<ResourceChanged>)>)| async move {
                    let change = ResourceChanged { uri: format!("{uri}/menu"), r#type: ChangeType::Updated };
                    told.call((vec![change],)).await?;
                    Ok(None)
                },
            )),
            ..store
        },
    };
    host.register_resources(store, options.contains_key("replace").then_some(When::Replace))
}

async fn ask(client: &mut RawClient, method: &str, params: Value) -> Result<Value, (i64, String)> {
    client.request(method, params).await.map_err(|error| {
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap_or_default().to_owned())
    })
}

async fn files_are_read_listed_and_resolved_and_the_write_half_is_optional(side: Side) {
    let host = side.host_with_echo().start().await;
    assert!(host.problems.is_empty(), "{:?}", host.problems);
    let mut client = host.raw();
    client.initialize("c").await;
    let menu = json!({ "uri": "file:///inn/menu" });
    let read = ask(&mut client, "resourceRead", menu.clone()).await.unwrap();
    assert_eq!(read, json!({ "data": "Stew", "encoding": "utf-8" }));
    let read =
        ask(&mut client, "resourceRead", json!({ "uri": "file:///inn/menu", "encoding": "base64" })).await;
    assert_eq!(
        read.unwrap(),
        json!({ "data": "U3Rldw==", "encoding": "base64" }),
        "as the client asked for it"
    );
    let listed = ask(&mut client, "resourceList", json!({ "uri": "file:///inn" })).await.unwrap();
    assert_eq!(listed["entries"], json!([{ "name": "menu", "type": "file" }]));
    let facts = ask(&mut client, "resourceResolve", menu.clone()).await.unwrap();
    assert_eq!(facts, json!({ "uri": "file:///inn/menu", "type": "file", "size": 4 }));
    let link = ask(&mut client, "resourceResolve", json!({ "uri": "file:///link" })).await.unwrap();
    assert_eq!(link, json!({ "uri": "file:///inn/menu", "type": "file" }));
    let link = json!({ "uri": "file:///link", "followSymlinks": false });
    assert_eq!(ask(&mut client, "resourceResolve", link).await.unwrap()["type"], "symlink");
    let missing = ask(&mut client, "resourceRead", json!({ "uri": "file:///none" })).await.unwrap_err();
    assert_eq!(missing, (-32008, "there is no file:///none".to_owned()));
    // A path without a scheme is a file.
    assert_eq!(ask(&mut client, "resourceRead", json!({ "uri": "/none" })).await.unwrap_err().0, -32008);
    let both = json!({ "source": "file:///inn/menu", "destination": "file:///inn/card" });
    let write = json!({ "uri": "file:///inn/menu", "data": "x", "encoding": "utf-8" });
    for (method, params, lacks) in [
        ("resourceWrite", &write, "write"),
        ("resourceDelete", &menu, "delete"),
        ("resourceMkdir", &menu, "mkdir"),
        ("resourceMove", &both, "move"),
        ("resourceCopy", &both, "copy"),
        ("createResourceWatch", &menu, "watch"),
    ] {
        let refused = ask(&mut client, method, params.clone()).await.unwrap_err();
        assert_eq!(refused, (-32601, format!("file: cannot {lacks}")), "{method}");
    }
    let refused = ask(&mut client, "resourceRequest", menu).await.unwrap_err();
    assert_eq!(refused, (-32009, "This host does not mediate file:///inn/menu".to_owned()));
    // Who a reader is, is told where the host knows people.
    let who = ask(&mut client, "resourceRead", json!({ "uri": "file:///who" })).await.unwrap();
    assert_eq!(who["data"], "null");
}

async fn a_store_with_a_write_half_is_written_to(side: Side) {
    let host = side.load(builder(), json!({ "writes": true })).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let write = json!({ "uri": "file:///inn/card", "data": "Ale", "encoding": "utf-8" });
    ask(&mut client, "resourceWrite", write.clone()).await.unwrap();
    assert_eq!(lines_of(&host.log, "resources"), ["c writes file:///inn/card"]);
    let card = json!({ "uri": "file:///inn/card" });
    assert_eq!(ask(&mut client, "resourceRead", card.clone()).await.unwrap()["data"], "Ale");
    ask(&mut client, "resourceDelete", card.clone()).await.unwrap();
    assert_eq!(ask(&mut client, "resourceDelete", card.clone()).await.unwrap_err().0, -32008);
    let mut negative = object(write);
    negative.insert("position".to_owned(), (-1).into());
    let refused = ask(&mut client, "resourceWrite", Value::Object(negative)).await.unwrap_err();
    assert_eq!(refused, (-32602, "position must be 0 or more".to_owned()));
    // Neither asked for means to read.
    ask(&mut client, "resourceRequest", card.clone()).await.unwrap();
    let refused = json!({ "uri": "file:///inn/card", "write": true });
    assert_eq!(
        ask(&mut client, "resourceRequest", refused).await.unwrap_err(),
        (-32009, "ask the cook".to_owned())
    );
    let across = json!({ "source": "file:///inn/menu", "destination": "notes://menu" });
    let refused = ask(&mut client, "resourceMove", across).await.unwrap_err();
    assert_eq!(
        refused,
        (-32602, "file:///inn/menu and notes://menu are served by different providers".to_owned())
    );
    let watch = ask(&mut client, "createResourceWatch", json!({ "uri": "file:///inn" })).await.unwrap();
    let channel = watch["channel"].as_str().unwrap();
    let seen = ask(&mut client, "subscribe", json!({ "channel": channel })).await.unwrap();
    assert_eq!(seen["snapshot"]["state"]["root"], "file:///inn");
    let excludes = json!({ "uri": "file:///inn", "excludes": { "items": 5 } });
    assert_eq!(ask(&mut client, "createResourceWatch", excludes).await.unwrap_err().0, -32602);
}

async fn a_store_that_replaces_takes_the_port_over(side: Side) {
    for (options, held) in [(json!({}), "on disk"), (json!({ "replace": true }), "Stew")] {
        let dir = tempfile::tempdir().unwrap();
        let inn = dir.path().canonicalize().unwrap();
        std::fs::write(inn.join("menu"), "on disk").unwrap();
        let own = Arc::new(DiskFiles::new(std::slice::from_ref(&inn))).into_point();
        let builder = builder().own(move |host| host.register_resources(own, None));
        let replaces = options.get("replace").is_some();
        let host = side.load(builder, options).start().await;
        let holder = host.registry().holder::<ResourceStore>().unwrap();
        assert_eq!(*holder != Registrant::Host, replaces);
        let clash =
            "plugin resources sets resources, which the daemon already set; pass 'replace' to take it over";
        assert_eq!(host.problems.iter().any(|line| line == clash), !replaces, "{:?}", host.problems);
        let uri =
            if replaces { "file:///inn/menu".to_owned() } else { format!("file://{}/menu", inn.display()) };
        let mut client = host.raw();
        client.initialize("c").await;
        assert_eq!(ask(&mut client, "resourceRead", json!({ "uri": uri })).await.unwrap()["data"], held);
    }
}

async fn what_a_person_types_is_completed(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let session = json!({ "channel": "echo:/1", "workingDirectories": ["file:///inn"] });
    client.request("createSession", session).await.unwrap();
    let typed = |text: &str, offset: i64| json!({ "channel": "echo:/1", "kind": "userMessage", "text": text, "offset": offset });
    // Counted as the protocol counts: the horse takes two.
    let told = ask(&mut client, "completions", typed("🐎 see @me please", 10)).await.unwrap();
    let file =
        json!({ "type": "resource", "label": "menu", "displayKind": "document", "uri": "file:///inn/menu" });
    let expected = json!([{ "insertText": "@menu", "rangeStart": 7, "rangeEnd": 10, "attachment": file }]);
    assert_eq!(told["items"], expected);
    assert_eq!(ask(&mut client, "completions", typed("nothing", 3)).await.unwrap()["items"], json!([]));
    assert_eq!(ask(&mut client, "completions", typed("@", 3)).await.unwrap()["items"], json!([]));
}

async fn file_is_no_scheme_a_client_is_told_of(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut client = host.raw();
    let meta = client.initialize("c").await["_meta"].clone();
    assert_eq!(meta.get("ostler.resourceProviders"), None, "{meta}");
    assert_eq!(meta["ostler.grants"]["file"]["read"], json!(["get", "list", "resolve", "watch"]));
}
