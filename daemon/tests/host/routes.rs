//! Routes of plugins over a real daemon: on its own port, and on a listener of their own.

use crate::support::{Daemon, Folder};
use serde_json::{Value, json};

const DOORS: &str = r"
    export const name = 'doors';
    export function apply(host) {
        host.on('listening', () => host.say('doors at https://announced.example.org/in'));
        host.registerRoute(async (request) => {
            const path = new URL(request.url, 'http://x').pathname;
            if (path.endsWith('/throw')) throw new Error('the reason');
            if (path.endsWith('/cut')) {
                let asked = 0;
                const pull = (stream) => {
                    if (asked++) throw new Error('lost half-way');
                    stream.enqueue(new TextEncoder().encode('the first half'));
                };
                return new Response(new ReadableStream({ pull }));
            }
            if (request.headers.get('authorization') !== 'Bearer own') return new Response('no', { status: 401 });
            return Response.json({ path, method: request.method, body: await request.text() });
        });
    }
";

fn folder(mut config: Value) -> Folder {
    config["plugins"] = json!([{ "name": "@ostler/echo" }, { "name": "./doors.js" }]);
    let folder = Folder::new(config);
    folder.write("doors.js", DOORS);
    folder
}

/// Status and body of a request to an address, with these headers.
async fn ask(daemon: &Daemon, at: &str, head: &str, headers: &str) -> (u16, String) {
    let request = format!("{head} HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n");
    let answer = crate::support::exchange(at, request.as_bytes()).await;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("{head} of {}: {answer:?}", daemon.url));
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn host(name: &str) -> String {
    format!("Host: {name}\r\nAuthorization: Bearer own\r\n")
}

#[tokio::test]
async fn a_route_is_on_the_daemons_own_port_whether_the_api_is_on_or_off() {
    for http in [false, true] {
        let folder = folder(json!({ "http": http, "connectionToken": "the-token" }));
        let daemon = folder.start();
        let at = daemon.address();
        let (status, body) = ask(&daemon, at, "POST /plugins/doors/a/b?c", &host(at)).await;
        assert_eq!(status, 200, "{body}");
        // The full path reaches it, with neither connection token nor Origin asked for.
        let seen: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&seen["path"], &seen["method"]), (&json!("/plugins/doors/a/b"), &json!("POST")));
        let foreign = format!("{}Origin: https://evil.org\r\n", host(at));
        assert_eq!(ask(&daemon, at, "GET /plugins/doors/", &foreign).await.0, 200);
        assert_eq!(
            ask(&daemon, at, "GET /plugins/doors/", &format!("Host: {at}\r\n")).await,
            (401, "no".to_owned())
        );
        assert_eq!(ask(&daemon, at, "GET /plugins/doorsy/", &host(at)).await.0, 404);
        // The API is as it was.
        let api = ask(
            &daemon,
            at,
            "GET /api/status",
            &format!("Host: {at}\r\nAuthorization: Bearer the-token\r\n"),
        )
        .await;
        assert_eq!(api.0, if http { 200 } else { 404 }, "{}", api.1);
        let refused = ask(&daemon, at, "GET /plugins/doors/", &host("evil.org")).await;
        assert_eq!(refused, (403, r#"{"message":"This route does not answer to evil.org"}"#.to_owned()));
        assert_eq!(ask(&daemon, at, "GET /plugins/doors/", &host("announced.example.org")).await.0, 200);
    }
}

#[tokio::test]
async fn a_route_that_throws_is_answered_500_and_the_daemon_goes_on() {
    let folder = folder(json!({}));
    let daemon = folder.start();
    let at = daemon.address();
    let (status, body) = ask(&daemon, at, "GET /plugins/doors/throw", &host(at)).await;
    let said = "The route plugin doors registered failed; its reason is in the daemon log";
    assert_eq!((status, body), (500, json!({ "message": said }).to_string()));
    let line = folder.wait_for_log("plugin doors failed at /plugins/doors/throw: ");
    assert!(line.contains("the reason"), "{line}");
    // Once the status is sent there is nothing left to answer with.
    let (status, body) = ask(&daemon, at, "GET /plugins/doors/cut", &host(at)).await;
    assert!(status == 200 && !body.ends_with("0\r\n\r\n"), "{status} {body}");
    let line = folder.wait_for_log("plugin doors failed at /plugins/doors/cut: ");
    assert!(line.ends_with("lost half-way"), "{line}");
    assert_eq!(ask(&daemon, at, "GET /plugins/doors/", &host(at)).await.0, 200);
}

#[tokio::test]
async fn a_listener_of_their_own_serves_routes_and_nothing_else() {
    let folder = folder(json!({
        "routes": { "port": 0 }, "origins": ["https://hooks.example.org"], "http": true, "connectionToken": "the-token",
    }));
    let daemon = folder.start();
    let mut announced = String::new();
    let mut daemon = daemon;
    std::io::BufRead::read_line(&mut daemon.out, &mut announced).unwrap();
    let routes =
        announced.trim().strip_prefix("routes on http://").unwrap().strip_suffix("/plugins/").unwrap();
    let at = daemon.address().to_owned();
    assert_ne!(routes, at);
    assert_eq!(ask(&daemon, routes, "GET /plugins/doors/", &host(routes)).await.0, 200);
    let port = routes.rsplit(':').next().unwrap();
    assert_eq!(ask(&daemon, routes, "GET /plugins/doors/", &host(&format!("localhost:{port}"))).await.0, 200);
    assert_eq!(ask(&daemon, routes, "GET /plugins/doors/", &host("hooks.example.org")).await.0, 200);
    for name in ["announced.example.org", "evil.org", "localhost", at.as_str()] {
        let (status, body) = ask(&daemon, routes, "GET /plugins/doors/", &host(name)).await;
        assert_eq!(
            (status, body),
            (403, json!({ "message": format!("This route does not answer to {name}") }).to_string())
        );
    }
    // Neither the API, nor the model proxy, nor the protocol is there.
    let token = format!("{}Authorization: Bearer the-token\r\n", format_args!("Host: {routes}\r\n"));
    let handshake = format!(
        "{token}Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    );
    for (head, headers) in [
        ("GET /api/status", &token),
        ("GET /v1/models", &token),
        ("GET /", &token),
        ("GET /", &handshake),
        ("GET /?tkn=the-token", &handshake),
    ] {
        assert_eq!(ask(&daemon, routes, head, headers).await.0, 404, "{head}");
    }
    // And no route is on the daemon's own port.
    let (status, body) = ask(&daemon, &at, "GET /plugins/doors/", &host(&at)).await;
    assert_eq!((status, body), (404, json!({ "message": "No plugin route at /plugins/doors/" }).to_string()));
    let api = format!("Host: {at}\r\nAuthorization: Bearer the-token\r\n");
    assert_eq!(ask(&daemon, &at, "GET /api/status", &api).await.0, 200);
}

#[test]
fn what_a_listener_of_their_own_cannot_be() {
    for (config, arguments, says) in [
        (
            json!({ "routes": { "port": 0 } }),
            &["--stdio"][..],
            "routes requires a listener, which --stdio does not have",
        ),
        (json!({ "routes": { "host": "127.0.0.1" } }), &[], "routes.host requires routes.port"),
        (json!({ "routes": { "port": 0, "host": "example.org" } }), &[], "invalid address example.org"),
    ] {
        let ended = folder(config).run(arguments);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains(says), "{ended:?}");
        assert_eq!(ended.out, "");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let ended = folder(json!({ "routes": { "port": address.port() } })).run(&[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains(&format!("cannot listen on {address}: ")), "{ended:?}");
}

/// Whoever parses such a URL finds a path outside the plugin's prefix.
#[tokio::test]
async fn no_path_that_leads_out_of_its_prefix_reaches_a_route() {
    let folder = folder(json!({}));
    let daemon = folder.start();
    let at = daemon.address();
    for path in [
        "/plugins/doors/../webhook/x",
        "/plugins/doors/a/../../../api/config",
        "/plugins/doors/%2e%2e/webhook/x",
        "/plugins/doors/%2E./webhook/x",
        "/plugins/doors/.%2e",
        "/plugins/doors/..?x",
        "/plugins/doors/..\\webhook/x",
        "/plugins/doors/\\..\\webhook/x",
        "/plugins/doors\\..\\webhook/x",
    ] {
        let (status, body) = ask(&daemon, at, &format!("GET {path}"), &host(at)).await;
        let shown = path.split('?').next().unwrap();
        let expected = json!({ "message": format!("No plugin route at {shown}") });
        assert_eq!((status, serde_json::from_str(&body).ok()), (404, Some(expected)), "{path}: {body}");
    }
    for path in [
        "/plugins/doors/a..b/...",
        "/plugins/doors/..a",
        "/plugins/doors/%2e%2ea",
        "/plugins/doors/x?to=/../..",
    ] {
        let (status, body) = ask(&daemon, at, &format!("GET {path}"), &host(at)).await;
        assert_eq!(status, 200, "{path}: {body}");
        let seen: Value = serde_json::from_str(&body).unwrap();
        assert!(seen["path"].as_str().unwrap().starts_with("/plugins/doors/"), "{path}: {seen}");
    }
}
