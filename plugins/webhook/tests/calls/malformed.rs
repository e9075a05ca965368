//! A thousand malformed calls of every kind change nothing that is kept, and each is answered with a status of
//! the table.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::{SECRET, World, automation, endpoint, folder, read, until};
use ostler_contract::Value;
use ostler_contract::http::{Body, HeaderValue, Method, Request, header::HeaderName};
use ostler_plugin_webhook::tools::senders;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// One malformed call of every kind.
#[derive(Debug, Clone)]
struct Calls {
    /// A token that is not the secret, however it is written.
    token: Vec<u8>,
    method: String,
    path: String,
    /// What is no JSON object, and names no thread.
    body: Vec<u8>,
    query: String,
    callback: String,
    /// What stands where a signature should.
    signature: String,
    time: String,
    kind: String,
}

fn calls() -> impl Strategy<Value = Calls> {
    let token = prop_oneof![
        "[ -~]{0,40}".prop_map(String::into_bytes),
        "(Bearer|bearer|Basic|Bearer ) ?(s3cre|s3crett|S3CRET|s3cret s3cret|,s3cret)?"
            .prop_map(String::into_bytes),
        prop::collection::vec(128..=255_u8, 1..40),
    ];
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        "\\PC{0,40}".prop_map(String::into_bytes),
        "[\\[{\"\\]}:,0-9a-z ]{0,40}".prop_map(String::into_bytes),
        Just(vec![b'['; 5000]),
        "\\{\"text\":(\"[a-z]{0,5}\"|[0-9]|null)\\}".prop_map(String::into_bytes),
    ];
    let callback = prop_oneof![
        "\\PC{0,40}",
        "https?://(hooks\\.example|evil\\.example)(\\.|@|:)[a-z0-9]{1,8}/in/",
        "https://hooks.example/in/(\\.\\.|%2e%2e)/[a-z]{0,5}",
        "(ftp|file|javascript|data):[ -~]{0,20}",
    ];
    let of_call = (token, "[A-Z]{1,8}", "[!-~]{0,30}", body, "[ -~&&[^#<>`\"{}|\\\\^\\[\\]]]{0,30}");
    let of_rest = (
        callback,
        "(sha256=|v0=|v1,|t=[0-9]{0,11},v1=|t=)?[ -~]{0,70}",
        "[0-9]{0,12}|[ -~]{0,12}",
        "(application/json|text/plain|application/x-www-form-urlencoded|[ -~]{0,20})",
    );
    (of_call, of_rest).prop_map(|((token, method, path, body, query), (callback, signature, time, kind))| {
        Calls { token, method, path, body, query, callback, signature, time, kind }
    })
}

/// A request, or nothing where no server would hand on such a one.
fn built(method: &str, path: &str, headers: &[(&str, &[u8])], body: &[u8]) -> Option<Request> {
    let mut request = Request::new(Body::from(bytes::Bytes::copy_from_slice(body)));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).ok()?;
    *request.uri_mut() = format!("/plugins/webhook/{path}").parse().ok()?;
    for (name, value) in headers {
        request.headers_mut().append(HeaderName::try_from(*name).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    Some(request)
}

async fn refused(world: &World, request: Option<Request>, status: u16, what: &str) {
    let Some(request) = request else { return };
    let shown = format!("{what}: {request:?}");
    let (answered, body) = read(world.send(request).await).await;
    assert_eq!(answered, status, "{shown} {body}");
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{shown}");
    assert!(!body.to_string().contains(SECRET), "{shown}");
}

async fn call_all(world: &World, calls: &Calls) {
    let bearer = format!("Bearer {SECRET}");
    let secret: (&str, &[u8]) = ("authorization", bearer.as_bytes());
    let kind: (&str, &[u8]) = ("content-type", calls.kind.as_bytes());
    let good = br#"{"thread":"t","text":"x","callback":"https://hooks.example/in/"}"#;
    for path in ["fire", "none", "sync", "back"] {
        refused(world, built("POST", path, &[kind], good), 401, "no token").await;
        let token: (&str, &[u8]) = ("authorization", &calls.token);
        refused(world, built("POST", path, &[token, kind], good), 401, "a wrong token").await;
        let prefixed = [b"Bearer ", calls.token.as_slice(), b"x"].concat();
        refused(world, built("POST", path, &[("authorization", &prefixed)], good), 401, "a wrong bearer")
            .await;
        if calls.method != "POST" {
            refused(world, built(&calls.method, path, &[secret, kind], good), 405, "another method").await;
        }
        let deeper = format!("{path}/{}", calls.path.replace(['?', '#'], ""));
        refused(world, built("POST", &deeper, &[secret], good), 404, "another segment").await;
    }
    let named = calls.path.split(['?', '#']).next().unwrap();
    if !["fire", "none", "sync", "back"].contains(&named) && senders().all(|sender| sender.name != named) {
        refused(world, built("POST", &calls.path, &[secret, kind], good), 404, "no endpoint").await;
    }
    if serde_json::from_slice::<ostler_contract::JsonObject>(&calls.body).is_err() {
        refused(world, built("POST", "fire", &[secret, kind], &calls.body), 400, "no JSON object").await;
    }
    let query = calls.query.replace("thread", "read");
    for path in ["none", "sync", "back"] {
        let path = format!("{path}?{query}");
        refused(world, built("POST", &path, &[secret, kind], &calls.body), 400, "no thread").await;
        let path = format!("{path}&thread=t");
        refused(world, built("POST", &path, &[secret, kind], b" \n"), 400, "no text").await;
    }
    let callback = serde_json::json!({ "thread": "t", "text": "x", "callback": calls.callback }).to_string();
    refused(world, built("POST", "back", &[secret], callback.as_bytes()), 400, "a callback elsewhere").await;
    refused(world, built("POST", "back?thread=t", &[secret], b"x"), 400, "no callback").await;
    let (signature, time) = (calls.signature.as_bytes(), calls.time.as_bytes());
    for sender in senders() {
        let path = sender.name;
        let mut headers = vec![secret, kind];
        headers.extend(sender.headers.iter().map(
            |name| match name.to_ascii_lowercase().ends_with("timestamp") {
                true => (*name, time),
                false => (*name, signature),
            },
        ));
        refused(world, built("POST", path, &headers, &calls.body), 401, "a made-up signature").await;
        refused(world, built("POST", path, &[secret], good), 401, "no signature").await;
    }
}

/// Every file of the folder but the database, which the sessions below speak for, and what each endpoint was
/// sent.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            match path.is_dir() {
                true => open.push(path),
                false if name.starts_with("state.db") || name.starts_with("webhook-deliveries") => {}
                false => {
                    found.insert(name, std::fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}

async fn kept(world: &World) -> (BTreeMap<String, Vec<u8>>, usize, usize, Value) {
    let sessions = world.host.host.sessions.count();
    let chat = world.chat(&world.chat_of("none").await).await;
    (files(world.dir.path()), sessions, world.runs("fire").await, chat)
}

#[test]
fn a_thousand_of_every_kind_change_nothing() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Delivery");
    endpoint(dir.path(), "none", "bot: bot://helper\nreply: none");
    endpoint(dir.path(), "sync", "bot: bot://echo\nreply: sync");
    endpoint(dir.path(), "back", "bot: bot://helper\ncallbackPrefix: https://hooks.example/in/\nretry: true");
    for sender in senders() {
        endpoint(dir.path(), sender.name, &format!("automation: true\nverify: {}", sender.example));
    }
    automation(dir.path(), "fire");
    let world = runtime.block_on(World::start(&dir));
    assert_eq!(runtime.block_on(world.say("none", "t", "hello")).0, 202);
    assert_eq!(runtime.block_on(world.post("fire", "{}")).0, 202);
    // The run's session comes a moment after the answer.
    runtime.block_on(until(async || (world.host.host.sessions.count() == 2).then_some(())));
    let before = runtime.block_on(kept(&world));
    assert!(
        before.0.keys().any(|name| name.starts_with("webhook-threads/")) && before.1 == 2 && before.2 == 1
    );
    let config = Config { cases: 1000, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&calls(), |calls| {
            runtime.block_on(call_all(&world, &calls));
            Ok(())
        })
        .unwrap();
    assert_eq!(runtime.block_on(kept(&world)), before);
    assert!(world.posts.all().is_empty());
}
