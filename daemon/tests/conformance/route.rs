//! `registerRoute`: a handler behind the host's own listener.

use std::net::SocketAddr;

use ostler_contract::http::{self, HeaderValue, Request, Response, StatusCode, header};
use ostler_contract::points::Agent;
use ostler_contract::{Call, Options, PluginHost, Thrown, Value, json};
use ostler_server::{HostNames, Listener, Server, plugin_routes};
use ostler_testkit::MemoryHost;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::side::{Both, Side, object};

const PLUGIN: Both = Both { spec: "@conformance/route", native, javascript: "route.mjs", dress: None };

both! { PLUGIN:
    a_route_is_handed_the_whole_request,
    a_route_answers_status_headers_and_body,
    a_route_refuses_before_it_reads_the_body,
    a_route_that_throws_costs_one_answer,
    a_route_is_reached_under_its_own_prefix_alone,
    what_a_route_does_is_gated_by_its_plugins_grants,
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let own = host.clone();
    host.register_route(Call::new(move |(request,): (Request,)| respond(own.clone(), request)))
}

async fn respond(own: PluginHost, request: Request) -> Result<Response, Thrown> {
    let uri = request.uri().clone();
    match uri.path().rsplit('/').next().unwrap() {
        "open" => {
            let peer = own.connect()?;
            let ask =
                |method: &str, params: Value| peer.request.call((method.to_owned(), Some(object(params))));
            let hello =
                json!({ "channel": "ahp-root://", "clientId": "route", "protocolVersions": ["1.0.0"] });
            ask("initialize", hello).await?;
            match ask("createSession", json!({ "channel": "echo:/by-route" })).await {
                Ok(_) => Ok(Response::new("made".into())),
                Err(thrown) => Ok(http::message(StatusCode::FORBIDDEN, &thrown.message)),
            }
        }
        "throw" => Err(Thrown::new("the reason")),
        "unread" => Ok(http::message(StatusCode::UNAUTHORIZED, "who are you?")),
        "made" => {
            let mut response = Response::new("made".into());
            *response.status_mut() = StatusCode::CREATED;
            response.headers_mut().insert("x-made", HeaderValue::from_static("yes"));
            response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/there"));
            Ok(response)
        }
        _ => {
            let header = |name| {
                request
                    .headers()
                    .get(name)
                    .and_then(|value: &HeaderValue| value.to_str().ok().map(str::to_owned))
            };
            let (host, asked, method) = (header("host"), header("x-asked"), request.method().to_string());
            let query = uri.query().and_then(|query| query.strip_prefix("q=")).map(str::to_owned);
            let body = request.into_body().read(1024).await.map_err(Thrown::new)?;
            let body = String::from_utf8_lossy(&body);
            Ok(http::json(StatusCode::OK, &json!([method, "http:", host, uri.path(), query, asked, body])))
        }
    }
}

struct Served {
    host: MemoryHost,
    address: SocketAddr,
    _stop: watch::Sender<bool>,
}

async fn serve(side: Side) -> Served {
    serve_on(side.host_with_echo().start().await).await
}

async fn serve_on(host: MemoryHost) -> Served {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address();
    let mount = plugin_routes(
        host.registry(),
        HostNames::of(address),
        host.host.core.log.clone(),
        host.host.core.bodies.clone(),
    );
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(Server::new(vec![mount]).serve(listener, stopped));
    Served { host, address, _stop }
}

impl Served {
    /// Sends a request line, headers and a body; answers head and body.
    async fn ask(&self, line: &str, headers: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head =
            format!("{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n{body}", self.address);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), body.to_owned())
    }
}

async fn a_route_is_handed_the_whole_request(side: Side) {
    let served = serve(side).await;
    let at = served.address.to_string();
    let headers = "X-Asked: yes\r\nContent-Length: 4\r\n";
    for line in [
        "POST /plugins/route/a/b?q=c".to_owned(),
        "POST http://elsewhere.example/plugins/route/a/b?q=c".to_owned(),
    ] {
        let (head, body) = served.ask(&line, headers, "body").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let said: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(said, json!(["POST", "http:", at, "/plugins/route/a/b", "c", "yes", "body"]));
    }
}

async fn a_route_answers_status_headers_and_body(side: Side) {
    let (head, body) = serve(side).await.ask("GET /plugins/route/made", "", "").await;
    assert!(head.starts_with("http/1.1 201"), "{head}");
    assert!(head.contains("x-made: yes") && head.contains("location: /there"), "{head}");
    assert_eq!(body, "made");
}

async fn a_route_refuses_before_it_reads_the_body(side: Side) {
    // Of the body that was announced nothing is ever sent.
    let (head, body) =
        serve(side).await.ask("POST /plugins/route/unread", "Content-Length: 1000\r\n", "").await;
    assert!(head.starts_with("http/1.1 401"), "{head}");
    assert_eq!(body, r#"{"message":"who are you?"}"#);
}

async fn a_route_that_throws_costs_one_answer(side: Side) {
    let served = serve(side).await;
    let (head, body) = served.ask("GET /plugins/route/throw", "", "").await;
    assert!(head.starts_with("http/1.1 500"), "{head}");
    assert_eq!(
        body,
        r#"{"message":"The route plugin route registered failed; its reason is in the daemon log"}"#
    );
    let line = served.host.log.wait_for("the reason").await;
    assert!(line.starts_with("plugin route failed at /plugins/route/throw: the reason"), "{line}");
    assert!(served.ask("GET /plugins/route/made", "", "").await.0.starts_with("http/1.1 201"));
    assert_eq!(served.host.registry().all::<Agent>().len(), 1);
}

async fn a_route_is_reached_under_its_own_prefix_alone(side: Side) {
    let served = serve(side).await;
    for path in ["/plugins/routey/made", "/plugins/rout/made", "/plugins/made", "/route/made"] {
        assert!(served.ask(&format!("GET {path}"), "", "").await.0.starts_with("http/1.1 404"), "{path}");
    }
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let foreign = "GET /plugins/route/made HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    stream.write_all(foreign.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(!answer.contains("made"), "{answer}");
}

async fn what_a_route_does_is_gated_by_its_plugins_grants(side: Side) {
    for (grants, guarded, made) in
        [(&["session:create"][..], true, true), (&["session:read"][..], true, false), (&[][..], false, true)]
    {
        let builder = side.host_with_echo().grants(grants);
        let builder = if guarded { builder.guarded() } else { builder };
        let served = serve_on(builder.start().await).await;
        let (head, body) = served.ask("POST /plugins/route/open", "Content-Length: 0\r\n", "").await;
        match made {
            true => assert!(head.starts_with("http/1.1 200") && body == "made", "{head} {body}"),
            false => {
                assert!(head.starts_with("http/1.1 403"), "{head}");
                assert_eq!(body, r#"{"message":"plugin:route may not session:create here"}"#);
            }
        }
        let owner = served.host.plugin("route").session_owner("echo:/by-route".to_owned()).await.unwrap();
        assert_eq!(owner.as_deref(), made.then_some("plugin:route"));
    }
}
