//! Bodies as senders send them: lists, text, codings, byte order marks; and the requests by which they check an address.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use ostler_contract::http::Method;
use ostler_contract::{Value, json};
use ring::hmac;

use crate::support::{World, automation, endpoint, folder, read, request, write};

const SECRET: &str = "it is a secret";

/// A host with the endpoint `in` and its automation.
async fn world(fields: &str) -> World {
    let dir = folder();
    write(dir.path(), "vault.json", &json!({ "host:sender": SECRET }).to_string());
    endpoint(dir.path(), "in", &format!("automation: true\nsecret: host:sender\n{fields}"));
    automation(dir.path(), "in");
    World::start(&dir).await
}

fn signature(body: &[u8]) -> String {
    hex::encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), body))
}

fn gzip(body: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Calls the endpoint with these bytes.
async fn call(world: &World, body: &[u8], headers: &[(&str, &str)]) -> (u16, Value) {
    read(world.send(request("in", bytes::Bytes::copy_from_slice(body), headers)).await).await
}

/// Calls it as `verify: gitea` wants it.
async fn signed(world: &World, body: &[u8], headers: &[(&str, &str)]) -> (u16, Value) {
    let signature = signature(body);
    call(world, body, &[&[("x-gitea-signature", signature.as_str())], headers].concat()).await
}

/// What the newest run was started with.
async fn event(world: &World) -> Value {
    let state = world.chat("ahp-automations://").await;
    state["entries"][0]["runs"][0]["origin"]["event"].clone()
}

fn refused(status: u16, why: &str) -> (u16, Value) {
    (status, json!({ "message": why }))
}

#[tokio::test]
async fn a_sender_sends_any_json_or_text() {
    let world = world("verify: gitea").await;
    let json = [("content-type", "application/json")];
    let xml = [("content-type", "text/xml; charset=utf-8")];
    for (body, headers, expected) in [
        (
            r#"[{"event":"bounce"},{"event":"open"}]"#,
            &json,
            json!({ "0": { "event": "bounce" }, "1": { "event": "open" } }),
        ),
        (r#"[{"endpoint":"other"}]"#, &json, json!({ "0": { "endpoint": "other" } })),
        ("\"text\"", &json, json!({ "value": "text" })),
        ("<a/>", &xml, json!({ "text": "<a/>" })),
        (r#"{"a":1}"#, &xml, json!({ "a": 1 })),
        ("\u{feff}{\"ref\":\"main\"}", &json, json!({ "ref": "main" })),
        ("\u{feff}[1]", &json, json!({ "0": 1 })),
    ] {
        assert_eq!(signed(&world, body.as_bytes(), headers).await.0, 202, "{body}");
        let mut event = event(&world).await;
        let own = ["endpoint", "event"].map(|field| event.as_object_mut().unwrap().remove(field));
        assert_eq!(own, [Some("in".into()), Some("call".into())], "{body}");
        assert_eq!(event, expected, "{body}");
    }
    assert_eq!(signed(&world, b"<a/>", &json).await, refused(400, "The body is not JSON"));
    // Signatures are those of the bytes as they were sent.
    let signature = signature(b"{}");
    let marked = call(&world, "\u{feff}{}".as_bytes(), &[("x-gitea-signature", &signature)]).await;
    assert_eq!(marked.0, 401);
}

#[tokio::test]
async fn a_form_of_a_sender_nests_its_fields_and_has_parts() {
    let world = world("verify: gitea").await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(signed(&world, b"user%5Bname%5D=Ada&l[]=a&l[]=b&endpoint[x]=1", &form).await.0, 202);
    let sent = event(&world).await;
    assert_eq!(
        (&sent["user"], &sent["l"], &sent["endpoint"]),
        (&json!({ "name": "Ada" }), &json!(["a", "b"]), &json!("in"))
    );
    let parts = [("content-type", "multipart/form-data; boundary=X")];
    let body = "--X\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--X\r\nContent-Disposition: form-data; \
                name=\"f\"; filename=\"n.txt\"\r\n\r\nnote\r\n--X--\r\n";
    assert_eq!(signed(&world, body.as_bytes(), &parts).await.0, 202);
    let sent = event(&world).await;
    assert_eq!(
        (&sent["a"], &sent["f"]["text"], &sent["f"]["size"]),
        (&json!("1"), &json!("note"), &json!(4))
    );
    let (status, said) = signed(&world, b"--X\r\n", &parts).await;
    assert!(
        status == 400 && said["message"].as_str().unwrap().starts_with("The body is not a multipart form"),
        "{said}"
    );
}

#[tokio::test]
async fn an_endpoint_that_names_no_sender_takes_objects_alone() {
    let world = world("").await;
    let token = ("authorization", "Bearer it is a secret");
    for (body, why) in [
        ("[1]", "The body is not a JSON object"),
        ("5", "The body is not a JSON object"),
        ("<a/>", "The body is not JSON"),
        ("", "The body is not JSON"),
    ] {
        let (status, said) = call(&world, body.as_bytes(), &[token, ("content-type", "text/xml")]).await;
        assert_eq!((status, said), refused(400, why), "{body}");
    }
    assert_eq!(call(&world, "\u{feff}{\"ref\":\"main\"}".as_bytes(), &[token]).await.0, 202);
    assert_eq!(event(&world).await["ref"], "main");
    let text = "{\"ref\":\"dev\"}";
    assert_eq!(call(&world, &gzip(text), &[token, ("content-encoding", "gzip")]).await.0, 202);
    assert_eq!(event(&world).await["ref"], "dev");
    let why = "The content coding zstd is not supported; send gzip, deflate, br or none";
    assert_eq!(
        call(&world, text.as_bytes(), &[token, ("content-encoding", "zstd")]).await,
        refused(400, why)
    );
    let why = "The body is not gzip, as its Content-Encoding says";
    assert_eq!(
        call(&world, text.as_bytes(), &[token, ("content-encoding", "gzip")]).await,
        refused(400, why)
    );
    // 40 MiB in 40 kB.
    let large = gzip(&format!("{{\"a\":\"{}\"}}", "x".repeat(40 << 20)));
    let (status, said) = call(&world, &large, &[token, ("content-encoding", "gzip")]).await;
    assert_eq!(status, 400, "{said}");
    assert!(said["message"].as_str().unwrap().contains(&(25 << 20).to_string()), "{said}");
    assert_eq!(
        call(&world, text.as_bytes(), &[("content-encoding", "zstd")]).await.0,
        401,
        "the secret comes first"
    );
    for method in [Method::GET, Method::HEAD] {
        let mut check = request("in?hub.challenge=1", "", &[]);
        *check.method_mut() = method;
        assert_eq!(world.send(check).await.status().as_u16(), 405);
    }
    assert_eq!(world.runs("in").await, 2);
}

#[tokio::test]
async fn a_signature_covers_a_coded_body_as_it_was_sent() {
    let world = world("verify: gitea").await;
    let body = gzip(r#"{"ref":"main"}"#);
    let coded = [("content-encoding", "gzip")];
    assert_eq!(signed(&world, &body, &coded).await.0, 202);
    assert_eq!(event(&world).await["ref"], "main");
    let of_text = signature(br#"{"ref":"main"}"#);
    let why = "The sender's signature does not match the endpoint's secret and the body as it was sent, in its content coding";
    let headers = [("x-gitea-signature", of_text.as_str()), ("content-encoding", "gzip")];
    assert_eq!(call(&world, &body, &headers).await, refused(401, why));
}

#[tokio::test]
async fn a_check_of_an_address_is_answered_and_is_a_line_of_the_log() {
    for (sender, method, query, status, body) in [
        (
            "meta",
            Method::GET,
            "?hub.mode=subscribe&hub.verify_token=t&hub.challenge=1158201444",
            200,
            json!("1158201444"),
        ),
        ("dropbox", Method::GET, "?challenge=abc", 200, json!("abc")),
        ("trello", Method::HEAD, "", 200, json!("")),
        ("microsoft-graph", Method::POST, "?validationToken=a%20b", 200, json!("a b")),
        (
            "x",
            Method::GET,
            "?crc_token=abc",
            200,
            json!({ "response_token": format!("sha256={}", STANDARD.encode(hex::decode(signature(b"abc")).unwrap())) }),
        ),
        ("github", Method::GET, "?challenge=abc", 405, json!({ "message": "The method must be POST" })),
    ] {
        let verify = match sender {
            "trello" => "verify: { scheme: trello, url: https://hooks.example/plugins/webhook/in }",
            _ => &format!("verify: {sender}"),
        };
        let world = world(verify).await;
        let mut check = request(&format!("in{query}"), "", &[]);
        *check.method_mut() = method;
        assert_eq!(read(world.send(check).await).await, (status, body), "{sender}");
        if status == 200 {
            let seen = world.refused("in", 1).await;
            assert!(seen[0].to_string().contains("it only checks the endpoint"), "{seen:?}");
        }
        assert_eq!(world.runs("in").await, 0, "{sender}");
    }
}

/// Linear repeats a failed delivery for hours, with the bytes and the signature of the first one.
#[tokio::test]
async fn a_repeated_delivery_of_linear_passes_for_hours() {
    let world = world("verify: linear\ndedupe: true").await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for (age, status) in [(3_700, 200), (7 * 3600 + 60, 200), (8 * 3600 + 60, 401)] {
        let body = format!(r#"{{"type":"Issue","webhookTimestamp":{}000}}"#, now - age);
        let (signature, id) = (signature(body.as_bytes()), age.to_string());
        let headers = [("linear-signature", signature.as_str()), ("linear-delivery", id.as_str())];
        for _ in 0..2 {
            assert_eq!(call(&world, body.as_bytes(), &headers).await.0, status, "{age} s");
        }
    }
    assert_eq!(world.runs("in").await, 2, "each delivery started one run");
}

/// The headers of Svix are a set of three: the id that is first found decides which of them count.
#[tokio::test]
async fn the_headers_of_svix_are_those_of_the_standard() {
    let world = world("verify: standard\ndedupe: true").await;
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs().to_string();
    let made = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()),
        format!("m1.{now}.{{}}").as_bytes(),
    );
    let signature = format!("v1,{}", STANDARD.encode(made));
    let svix = [("svix-id", "m1"), ("svix-timestamp", now.as_str()), ("svix-signature", signature.as_str())];
    for _ in 0..2 {
        assert_eq!(call(&world, b"{}", &svix).await.0, 202);
    }
    assert_eq!(world.runs("in").await, 1, "the delivery sent again fires nothing");
    // Another id beside it would make it a new delivery.
    let mixed = [&svix[..], &[("webhook-id", "m2")]].concat();
    assert_eq!(call(&world, b"{}", &mixed).await.0, 401);
}

/// X has a token signed that anyone can choose, with what signs its calls.
#[tokio::test]
async fn what_anyone_can_have_signed_is_no_call() {
    let world = world("verify: x").await;
    for (token, body, kind) in [
        ("attack", "attack", "text/plain"),
        ("a%3Db", "a=b", "application/x-www-form-urlencoded"),
        ("5", "5", "application/json"),
    ] {
        let mut check = request(&format!("in?crc_token={token}"), "", &[]);
        *check.method_mut() = Method::GET;
        let (status, answer) = read(world.send(check).await).await;
        assert_eq!(status, 200);
        let signature = answer["response_token"].as_str().unwrap();
        let headers = [("x-twitter-webhooks-signature", signature), ("content-type", kind)];
        assert_eq!(call(&world, body.as_bytes(), &headers).await.0, 401, "{body}");
    }
    let signature = format!("sha256={}", STANDARD.encode(hex::decode(signature(b"{\"a\":1}")).unwrap()));
    let headers = [("x-twitter-webhooks-signature", signature.as_str())];
    assert_eq!(call(&world, b"{\"a\":1}", &headers).await.0, 200);
    assert_eq!(world.runs("in").await, 1);
}
