//! The web console: its files, the sign-in of its pages, and that nothing but its pages can use one.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{Client, Daemon, Folder, LIMIT};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;

const TOKEN: &str = "the-token";
const ADA: &str = "adas-own-token";
const PAGE: &str = "/plugins/console/";

fn hash(token: &str) -> String {
    ostler_engine::users::hash_of(token)
}

fn users(token: &str) -> String {
    json!({ "users": [{ "id": "ada", "roles": ["member"], "token": hash(token) }] }).to_string()
}

fn folder() -> Folder {
    let plugins =
        json!([{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }, { "name": "@ostler/console" }]);
    let folder = Folder::new(json!({ "connectionToken": TOKEN, "users": "users.json", "plugins": plugins }));
    folder.write("users.json", &users(ADA));
    folder.write("webhooks/in.md", "---\nid: in\nautomation: true\nsecret: host:in\n---\n");
    folder.write("vault.json", r#"{ "host:in": "right" }"#);
    folder
}

/// A request; the head of its answer, and its body.
async fn ask(daemon: &Daemon, head: &str, headers: &str, body: &str) -> (String, String) {
    let (address, length) = (daemon.address(), body.len());
    let request = format!(
        "{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let answer = daemon.exchange(request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// What a page of the console sends beside its request.
fn own(daemon: &Daemon, cookie: &str) -> String {
    format!("Origin: http://{}\r\n{cookie}", daemon.address())
}

/// Signs a page in; the cookie as a browser sends it.
async fn sign_in(daemon: &Daemon, token: &str) -> String {
    let body = json!({ "token": token }).to_string();
    let (head, answer) = ask(daemon, "POST /api/sign-in", &own(daemon, ""), &body).await;
    assert_eq!(status(&head), 200, "{head}\n{answer}");
    assert!(!answer.contains(token), "{answer}");
    let set = header(&head, "set-cookie").unwrap();
    assert!(set.contains("httponly") && set.contains("samesite=strict") && !set.contains(token), "{set}");
    let cookie = set.split(';').next().unwrap();
    format!("Cookie: {cookie}\r\n")
}

async fn me(daemon: &Daemon, headers: &str) -> (u16, Value) {
    let (head, body) = ask(daemon, "GET /api/me", headers, "").await;
    (status(&head), serde_json::from_str(&body).unwrap_or_default())
}

/// A connection of the protocol from a page.
async fn connect(daemon: &Daemon, cookie: &str, origin: &str) -> Result<Client, u16> {
    let mut request = format!("{}/", daemon.url).into_client_request().unwrap();
    let cookie = cookie.trim_start_matches("Cookie: ").trim();
    request.headers_mut().insert("cookie", HeaderValue::from_str(cookie).unwrap());
    request.headers_mut().insert("origin", HeaderValue::from_str(origin).unwrap());
    match tokio_tungstenite::connect_async(request).await {
        Ok((socket, _)) => Ok(Client::of(socket)),
        Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn the_route_serves_pages_without_data() {
    let folder = folder();
    let daemon = folder.start();
    let (head, page) = ask(&daemon, &format!("GET {PAGE}"), "", "").await;
    assert_eq!(status(&head), 200);
    let policy = header(&head, "content-security-policy").unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header(&head, "x-content-type-options"), Some("nosniff"));
    assert_eq!(header(&head, "referrer-policy"), Some("no-referrer"));
    for secret in [TOKEN, ADA, "right", "ada"] {
        assert!(!page.contains(&format!("\"{secret}\"")), "{secret}");
    }
    let tag = header(&head, "etag").unwrap().to_owned();
    let (head, body) = ask(&daemon, &format!("GET {PAGE}"), &format!("If-None-Match: {tag}\r\n"), "").await;
    assert_eq!((status(&head), body.as_str()), (304, ""));
    // Every module that the page leads to.
    let base = url::Url::parse(&format!("http://{}{PAGE}", daemon.address())).unwrap();
    let named = |from: &url::Url, text: &str| -> Vec<url::Url> {
        let words = text.split(['"', '\'']).filter(|word| word.ends_with(".js") || word.ends_with(".css"));
        words.map(|word| from.join(word).unwrap()).collect()
    };
    let (mut waiting, mut seen) = (named(&base, &page), BTreeSet::new());
    while let Some(module) = waiting.pop() {
        if !seen.insert(module.to_string()) {
            continue;
        }
        let (head, body) = ask(&daemon, &format!("GET {}", module.path()), "", "").await;
        assert_eq!(status(&head), 200, "{module}");
        waiting.extend(named(&module, &body));
        // Nothing of another site; the name of a namespace is no address.
        let body = body.replace("http://www.w3.org/2000/svg", "");
        assert!(body.len() > 100 && !body.contains("http://") && !body.contains("https://"), "{module}");
    }
    assert!(seen.len() > 20, "{seen:?}");
    let (head, _) = ask(&daemon, &format!("POST {PAGE}"), "", "{}").await;
    assert_eq!(status(&head), 405);
    let (head, _) = ask(&daemon, &format!("GET {PAGE}nothing.js"), "", "").await;
    assert_eq!(status(&head), 404);
    const { assert!(ostler_plugin_console::SIZE <= 200_000, "the console is at most 200 kB") };
}

#[tokio::test]
async fn a_page_signs_in_as_the_user_of_a_token() {
    let folder = folder();
    let daemon = folder.start();
    assert_eq!(me(&daemon, &own(&daemon, "")).await.0, 401);
    let (head, answer) =
        ask(&daemon, "POST /api/sign-in", &own(&daemon, ""), r#"{ "token": "wrong" }"#).await;
    assert_eq!((status(&head), header(&head, "set-cookie")), (401, None), "{answer}");

    let cookie = sign_in(&daemon, ADA).await;
    let (code, answer) = me(&daemon, &own(&daemon, &cookie)).await;
    assert_eq!((code, &answer["user"]), (200, &json!("ada")), "{answer}");
    assert!(answer["grants"].as_array().unwrap().contains(&json!("session:read")), "{answer}");
    // As that user, with that user's grants and no others.
    let (head, _) = ask(&daemon, "GET /api/status", &own(&daemon, &cookie), "").await;
    assert_eq!(status(&head), 403);
    let mut client = connect(&daemon, &cookie, &format!("http://{}", daemon.address())).await.unwrap();
    let answer = client.initialize("page").await;
    assert_eq!(answer["_meta"]["ostler.principal"], "user:ada", "{answer}");

    let root = sign_in(&daemon, TOKEN).await;
    let (head, body) = ask(&daemon, "GET /api/webhook/list", &own(&daemon, &root), "").await;
    let listed: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status(&head), &listed[0]["id"], &listed[0]["secretSet"]),
        (200, &json!("in"), &json!(true)),
        "{body}"
    );
    assert!(!body.contains("right"), "{body}");
    let (head, body) = ask(&daemon, "GET /api/user/permissions", &own(&daemon, &root), "").await;
    let listed: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status(&head), &listed[0]["id"], &listed[0]["roles"][0]["role"]),
        (200, &json!("ada"), &json!("member"))
    );

    let (head, _) = ask(&daemon, "POST /api/sign-out", &own(&daemon, &cookie), "{}").await;
    assert_eq!(status(&head), 200);
    assert!(header(&head, "set-cookie").unwrap().contains("max-age=0"), "{head}");
    assert_eq!(me(&daemon, &own(&daemon, &cookie)).await.0, 401);
    assert_eq!(me(&daemon, &own(&daemon, &root)).await.0, 200, "another sign-in stays");
}

#[tokio::test]
async fn no_other_site_uses_a_sign_in() {
    let folder = folder();
    let daemon = folder.start();
    let cookie = sign_in(&daemon, TOKEN).await;
    let port = daemon.address().rsplit_once(':').unwrap().1;
    // A page on another port of this computer sends the cookie too.
    let foreign = [
        String::new(),
        "Origin: https://evil.org\r\n".to_owned(),
        "Origin: null\r\n".to_owned(),
        "Origin: http://localhost:1\r\n".to_owned(),
        format!("Origin: http://localhost:{port}\r\nSec-Fetch-Site: cross-site\r\n"),
        "Sec-Fetch-Site: same-site\r\n".to_owned(),
        "Sec-Fetch-Site: none\r\n".to_owned(),
    ];
    for headers in &foreign {
        let (code, answer) = me(&daemon, &format!("{headers}{cookie}")).await;
        assert!(matches!(code, 401 | 403), "{headers}: {code} {answer}");
        let (head, _) =
            ask(&daemon, "POST /api/user/add", &format!("{headers}{cookie}"), r#"{ "id": "eve" }"#).await;
        assert!(matches!(status(&head), 401 | 403), "{headers}: {head}");
        let body = json!({ "token": TOKEN }).to_string();
        let (head, _) = ask(&daemon, "POST /api/sign-in", headers, &body).await;
        assert_eq!((status(&head), header(&head, "set-cookie")), (403, None), "{headers}: {head}");
        let (head, _) = ask(&daemon, "TRACE /api/sign-in", headers, "").await;
        assert_eq!((status(&head), header(&head, "allow")), (405, Some("post")), "{headers}: {head}");
    }
    for origin in ["https://evil.org", "http://localhost:1", "null"] {
        assert_eq!(connect(&daemon, &cookie, origin).await.err(), Some(401), "{origin}");
    }
    assert!(!folder.read("users.json").contains("eve"));
    // The same requests without a sign-in are as they were.
    let (code, _) = me(&daemon, &format!("Authorization: Bearer {TOKEN}\r\n")).await;
    assert_eq!(code, 200);
    let same = format!("Sec-Fetch-Site: same-origin\r\n{cookie}");
    assert_eq!(me(&daemon, &same).await.0, 200, "a browser's own word");
}

#[tokio::test]
async fn a_sign_in_ends_with_its_token() {
    let folder = folder();
    let daemon = folder.start();
    let cookie = sign_in(&daemon, ADA).await;
    let headers = own(&daemon, &cookie);
    assert_eq!(me(&daemon, &headers).await.0, 200);
    folder.write("users.json", &users("another-token"));
    let end = std::time::Instant::now() + LIMIT;
    while me(&daemon, &headers).await.0 != 401 {
        assert!(std::time::Instant::now() < end, "the sign-in of a replaced token goes on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_host_without_tokens_needs_no_sign_in() {
    let folder =
        Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/console" }] }));
    let daemon = folder.start();
    let (code, answer) = me(&daemon, &own(&daemon, "")).await;
    assert_eq!((code, &answer["signIn"], &answer["users"]), (200, &json!(false), &json!(false)), "{answer}");
    assert_eq!(me(&daemon, "Origin: https://evil.org\r\n").await.0, 403);
    // What changes this computer is left to the commands on it.
    for (path, body) in
        [("plugin/install", r#"{ "name": "x" }"#), ("vault/set/host%3Ax", r#"{ "value": "x" }"#)]
    {
        let (head, _) = ask(&daemon, &format!("POST /api/{path}"), &own(&daemon, ""), body).await;
        assert_eq!(status(&head), 403, "{path}");
    }
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let daemon = folder.start();
    assert_eq!(me(&daemon, &own(&daemon, "")).await.0, 404, "without the console the API is as it was");
}

#[tokio::test]
async fn pages_of_users_without_grants_are_notified_too() {
    let folder = folder();
    let daemon = folder.start();
    let cookie = sign_in(&daemon, ADA).await;
    let mut client = connect(&daemon, &cookie, &format!("http://{}", daemon.address())).await.unwrap();
    client.initialize("page").await;
    client.request("subscribe", json!({ "channel": "x-console://changes" })).await.unwrap();
    assert!(client.request("subscribe", json!({ "channel": "x-console://other" })).await.is_err());
    folder.write("webhooks/in.md", "---\nid: in\nautomation: true\nsecret: host:other\n---\n");
    loop {
        let frame = client.next_frame().await.unwrap();
        if frame["params"]["action"]["topic"] == "endpoints" {
            break;
        }
    }
    let (head, _) = ask(&daemon, "GET /api/webhook/list", &own(&daemon, &cookie), "").await;
    assert_eq!(status(&head), 403);
}

#[tokio::test]
async fn a_line_of_the_log_has_one_time() {
    let folder = folder();
    let daemon = folder.start();
    let cookie = sign_in(&daemon, TOKEN).await;
    let mut client = connect(&daemon, &cookie, &format!("http://{}", daemon.address())).await.unwrap();
    client.initialize("page").await;
    client.request("subscribe", json!({ "channel": "ahp-otlp://logs" })).await.unwrap();
    folder.write("webhooks/bad.md", "---\nid: bad\n---\n");
    let record = loop {
        let frame = client.next_frame().await.unwrap();
        let record = &frame["params"]["payload"]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
        if record["body"]["stringValue"].as_str().is_some_and(|text| text.contains("bad")) {
            break record.clone();
        }
    };
    let (_, body) = ask(&daemon, "GET /api/log", &own(&daemon, &cookie), "").await;
    let lines: Value = serde_json::from_str(&body).unwrap();
    let text = &record["body"]["stringValue"];
    let line = lines.as_array().unwrap().iter().find(|line| line["text"] == *text).unwrap();
    let at: jiff::Timestamp = line["at"].as_str().unwrap().parse().unwrap();
    let nanos: i64 = record["timeUnixNano"].as_str().unwrap().parse().unwrap();
    assert_eq!(at.as_millisecond(), nanos / 1_000_000);
}

#[tokio::test]
async fn pages_are_notified_of_deliveries() {
    let folder = folder();
    let daemon = folder.start();
    let cookie = sign_in(&daemon, TOKEN).await;
    let mut client = connect(&daemon, &cookie, &format!("http://{}", daemon.address())).await.unwrap();
    client.initialize("page").await;
    client.request("subscribe", json!({ "channel": "x-console://changes" })).await.unwrap();
    // The body that the endpoint gets is a text or JSON.
    for call in [
        r#"{ "id": "in" }"#,
        r#"{ "id": "in", "body": "{\"a\":1}" }"#,
        r#"{ "id": "in", "body": { "a": 1 } }"#,
    ] {
        let (head, body) = ask(&daemon, "POST /api/webhook/test", &own(&daemon, &cookie), call).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status(&head), &answer["status"]), (200, &json!(202)), "{call}: {body}");
    }
    loop {
        let frame = client.next_frame().await.unwrap();
        if frame["params"]["action"]["topic"] == "deliveries" {
            break;
        }
    }
    let (_, body) = ask(&daemon, "GET /api/webhook/log/in", &own(&daemon, &cookie), "").await;
    let log: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(log["calls"][0]["status"], 202, "{body}");
    let (_, body) = ask(&daemon, "GET /api/log", &own(&daemon, &cookie), "").await;
    let lines: Value = serde_json::from_str(&body).unwrap();
    assert!(
        lines.as_array().unwrap().iter().any(|line| line["text"].as_str().unwrap().contains("console")),
        "{body}"
    );
}
