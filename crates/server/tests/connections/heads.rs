//! Heads of HTTP requests as no program sends them, over a real socket, against the routes of the webhook
//! plugin: the status is always one of its table.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::{JsonObject, Value, json};
use ostler_ports::{FileVault, MemoryAutomations, memory_records};
use ostler_server::{HostNames, Listener, Server, plugin_routes};
use ostler_testkit::MemoryHost;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// *Webhook statuses*, as far as an automation endpoint meets them.
const TABLE: [u16; 6] = [202, 400, 401, 404, 405, 409];
/// What is said before a route is asked: of the `Host`, of a path that is no route, of a head that is none.
const BEFORE: [u16; 6] = [400, 403, 404, 414, 426, 431];

struct Running {
    address: SocketAddr,
    _host: MemoryHost,
    _stop: watch::Sender<bool>,
    _vault: tempfile::TempDir,
}

async fn start() -> Running {
    let dir = tempfile::tempdir().unwrap();
    let vault = Arc::new(FileVault::new(dir.path(), ostler_ports::Report::quiet()).unwrap()).into_point();
    vault.set.unbounded(("host:in".into(), "right".into())).await.unwrap();
    vault.set.unbounded(("host:other".into(), "another".into())).await.unwrap();
    let records = memory_records();
    let endpoints = records.collection.unbounded(("webhooks".into(), Default::default())).await.unwrap();
    for record in [
        json!({ "id": "in", "automation": true, "secret": "host:in" }),
        json!({ "id": "other", "automation": true, "secret": "host:other" }),
        json!({ "id": "bare", "automation": true, "secret": "host:none" }),
        json!({ "id": "bot", "bot": "bot://helper", "secret": "host:in", "reply": "none" }),
        json!({ "id": "odd", "automation": [], "secret": "host:in" }),
    ] {
        let record: JsonObject = record.as_object().cloned().unwrap();
        endpoints.put.unbounded((record,)).await.unwrap();
    }
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .plugin(ostler_plugin_webhook::plugin(), json!({}))
        .automations(Arc::new(MemoryAutomations::new(ostler_ports::Report::quiet()).unwrap()).into_point())
        .records(records)
        .vault(vault)
        .start()
        .await;
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address();
    let names = HostNames::of(address);
    let mount = plugin_routes(
        host.host.core.registry().unwrap(),
        names.clone(),
        host.host.core.log.clone(),
        host.host.core.bodies.clone(),
    );
    let server = Server::new(vec![mount]).with_protocol(host.host.clone(), None, names);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(server.serve(listener, stopped));
    Running { address, _host: host, _stop: stop, _vault: dir }
}

#[derive(Debug, Clone)]
struct Head {
    method: String,
    path: String,
    headers: Vec<String>,
    body: String,
    /// What is put somewhere into the finished head.
    spoilt: Option<(prop::sample::Index, Vec<u8>)>,
}

fn head() -> impl Strategy<Value = Head> {
    let method = prop_oneof![
        6 => Just("POST".to_owned()),
        2 => select(vec!["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "post", "BREW"]).prop_map(str::to_owned),
        1 => "[A-Z]{1,8}",
    ];
    let path = prop_oneof![
        4 => select(vec!["/plugins/webhook/in", "/plugins/webhook/bare", "/plugins/webhook/bot", "/plugins/webhook/odd"]).prop_map(str::to_owned),
        3 => "/plugins/webhook(/|%2f|//|/\\.\\.|/%2e%2e|/%zz|/%00|\\?|;|%|/in|/[a-z0-9-]{0,45}){0,4}",
        2 => "/plugins/webhook/[!-\"$->@-~]{0,20}",
        1 => "/(plugins|PLUGINS|plugins/[a-z.%]{0,6})?(/[a-z.%2f]{0,8}){0,3}",
    ];
    let header = prop_oneof![
        6 => Just("Authorization: Bearer right".to_owned()),
        3 => select(vec![
            "Authorization: Bearer wrong",
            "Authorization: Basic right",
            "authorization:bearer right",
            "Authorization: Bearer",
            "Expect: 100-continue",
            "Content-Type: application/json",
            "Content-Type: ;;;",
            "Accept-Encoding: \u{e4}",
            "X: ",
        ]).prop_map(str::to_owned),
        1 => "[A-Za-z-]{1,10}: [ -~]{0,20}",
    ];
    let body = prop_oneof![
        3 => Just("{}".to_owned()),
        1 => Just("[]".to_owned()),
        1 => "[{}\\[\\]\":,a-z0-9]{0,12}",
    ];
    let spoilt =
        prop::option::weighted(0.3, (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..4)));
    (method, path, prop::collection::vec(header, 0..4), body, spoilt)
        .prop_map(|(method, path, headers, body, spoilt)| Head { method, path, headers, body, spoilt })
}

impl Head {
    fn bytes(&self, address: SocketAddr) -> Vec<u8> {
        let mut text =
            format!("{} {} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n", self.method, self.path);
        for header in &self.headers {
            text.push_str(header);
            text.push_str("\r\n");
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        let mut bytes = text.into_bytes();
        if let Some((at, put)) = &self.spoilt {
            let at = at.index(bytes.len());
            bytes.splice(at..at, put.iter().copied());
        }
        bytes.extend_from_slice(self.body.as_bytes());
        bytes
    }

    /// Whether it can be read, and leads to the plugin's route.
    fn is_a_call(&self) -> bool {
        let path = self.path.split('?').next().unwrap_or_default();
        self.spoilt.is_none() && path.starts_with("/plugins/webhook/")
    }
}

/// The status a request is answered with; none where the connection is closed without one.
async fn ask(address: SocketAddr, bytes: &[u8]) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(20), read).await.expect("an answer in time");
    let text = String::from_utf8_lossy(&answer).into_owned();
    let text = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&text);
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn every_call_is_answered_by_the_table(heads in prop::collection::vec(head(), 64)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let running = start().await;
            for head in heads {
                let answer = ask(running.address, &head.bytes(running.address)).await;
                let shown = || format!("{head:?}: {answer:?}");
                match &answer {
                    // Closed over what is no HTTP.
                    None => assert!(!head.is_a_call(), "{}", shown()),
                    Some((status, _)) if head.is_a_call() => assert!(TABLE.contains(status), "{}", shown()),
                    Some((status, _)) => {
                        assert!(TABLE.contains(status) || BEFORE.contains(status), "{}", shown());
                    }
                }
                if let Some((status, body)) = &answer
                    && matches!(status, 401 | 404 | 405 | 409)
                    && head.is_a_call()
                    && head.method != "HEAD"
                {
                    let body: Value = serde_json::from_str(body).unwrap_or_default();
                    assert!(body["message"].is_string(), "{}", shown());
                }
            }
            // Whatever came before; and one endpoint's secret is not another's.
            for (id, status) in [("in", 202), ("other", 401)] {
                let good = Head {
                    method: "POST".into(),
                    path: format!("/plugins/webhook/{id}"),
                    headers: vec!["Authorization: Bearer right".into()],
                    body: "{}".into(),
                    spoilt: None,
                };
                let answer = ask(running.address, &good.bytes(running.address)).await;
                assert_eq!(answer.map(|(status, _)| status), Some(status), "{id}");
            }
        });
    }
}
