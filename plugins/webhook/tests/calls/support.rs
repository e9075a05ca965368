//! A host with the webhook and bot plugins in memory, and the outside that calls it.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::collections::VecDeque;
use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::http::{Body, HeaderValue, Method, Request, Response, StatusCode, header::HeaderName};
use ostler_contract::points::{RecordStore, Route, RouteHandler};
use ostler_contract::{JsonObject, Thrown, Value, json};
use ostler_engine::Outbound;
use ostler_ports::{FileAutomations, FileRecords, FileVault, SqliteSessions, StateDb};
use ostler_testkit::{Builder, MemoryHost, RawClient};
use parking_lot::Mutex;
use tempfile::TempDir;

/// The secret of every endpoint, unless a test says otherwise.
pub const SECRET: &str = "s3cret";

/// How the outside answers a callback.
#[derive(Debug, Clone, Copy)]
pub enum Outside {
    Status(u16),
    Fails,
    Hangs,
}

/// What the outside was posted.
#[derive(Clone, Default)]
pub struct Posts {
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    answers: Arc<Mutex<VecDeque<Outside>>>,
}

impl Posts {
    /// Answers the next callbacks so; 200 after those.
    pub fn answer(&self, answers: &[Outside]) {
        self.answers.lock().extend(answers);
    }

    pub fn all(&self) -> Vec<(String, Value)> {
        self.seen.lock().clone()
    }

    /// Waits for so many.
    pub async fn wait_for(&self, count: usize) -> Vec<(String, Value)> {
        until(async || (self.all().len() >= count).then(|| self.all())).await
    }

    fn outbound(&self) -> Outbound {
        let posts = self.clone();
        Outbound::new(move |request| {
            let posts = posts.clone();
            Box::pin(async move {
                let (head, body) = request.into_parts();
                assert_eq!(
                    (head.method, &head.headers["content-type"]),
                    (Method::POST, &HeaderValue::from_static("application/json"))
                );
                let body = serde_json::from_slice(&body.read(1 << 20).await.unwrap()).unwrap();
                posts.seen.lock().push((head.uri.to_string(), body));
                let answer = posts.answers.lock().pop_front().unwrap_or(Outside::Status(200));
                match answer {
                    Outside::Status(status) => {
                        let mut response = Response::new(Body::Empty);
                        *response.status_mut() = StatusCode::from_u16(status).unwrap();
                        response
                            .headers_mut()
                            .insert("location", HeaderValue::from_static("https://evil.example/"));
                        Ok(response)
                    }
                    Outside::Fails => Err(Thrown::new("connection refused")),
                    Outside::Hangs => pending().await,
                }
            })
        })
    }
}

/// A host, its folder and the outside.
pub struct World {
    pub dir: Arc<TempDir>,
    pub host: MemoryHost,
    pub posts: Posts,
    route: RouteHandler,
}

/// A folder with a bot `helper` that does not answer and one `echo` that does.
pub fn folder() -> Arc<TempDir> {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "bots/helper.md", "---\nid: helper\nname: Helper\n---\n");
    write(dir.path(), "bots/echo.md", "---\nid: echo\nname: Echo\nharness: echo\nanswers: true\n---\n");
    let vault = json!({ "host:hook": SECRET, "host:empty": "" });
    write(dir.path(), "vault.json", &vault.to_string());
    Arc::new(dir)
}

pub fn write(dir: &Path, file: &str, text: &str) {
    let path = dir.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// An endpoint record as a person writes it.
pub fn endpoint(dir: &Path, id: &str, fields: &str) {
    let secret = if fields.contains("secret:") { "" } else { "secret: host:hook\n" };
    write(dir, &format!("webhooks/{id}.md"), &format!("---\nid: {id}\n{secret}{fields}\n---\n"));
}

/// An automation that a call to an endpoint fires.
pub fn automation(dir: &Path, endpoint: &str) {
    write(
        dir,
        &format!("automations/{endpoint}.md"),
        &format!(
            "---\ntitle: Hook\nenabled: true\nsession: {{ provider: echo }}\ntriggers:\n  - {{ id: t, kind: event, type: webhook, \
             title: T, events: [{{ id: call }}], config: {{ endpoint: {endpoint} }} }}\n\
             _meta: {{ ostler: {{ overlap: parallel, hourlyCap: 1000000 }} }}\n---\ngot {{{{event.what}}}}\n"
        ),
    );
}

/// The stores and plugins of a host on a folder.
pub async fn builder(dir: &Path) -> Builder {
    let quiet = ostler_ports::Report::quiet();
    let db = StateDb::open(dir).unwrap();
    let automations = FileAutomations::open(dir, db.clone(), quiet.clone()).await.unwrap();
    MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .plugin(ostler_plugin_bot::plugin(), json!({ "root": dir.join("root") }))
        .plugin(ostler_plugin_webhook::plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .sessions(Arc::new(SqliteSessions::new(db, quiet.clone())).into_point())
        .automations(Arc::new(automations).into_point())
        .records(records(dir))
        .vault(Arc::new(FileVault::new(dir, quiet).unwrap()).into_point())
}

pub fn records(dir: &Path) -> RecordStore {
    Arc::new(FileRecords::new(dir, ostler_ports::Report::quiet())).into_point()
}

impl World {
    pub async fn start(dir: &Arc<TempDir>) -> Self {
        Self::of(dir, builder(dir.path()).await).await
    }

    pub async fn of(dir: &Arc<TempDir>, builder: Builder) -> Self {
        Self::with(dir, builder.start().await)
    }

    /// The same with a host that has started.
    pub fn with(dir: &Arc<TempDir>, host: MemoryHost) -> Self {
        let posts = Posts::default();
        host.host.core.set_outbound(posts.outbound());
        let route = host.host.core.registry().unwrap().all::<Route>()[0].handler.clone();
        Self { dir: dir.clone(), host, posts, route }
    }

    /// Ends this host and starts the next one in its folder.
    pub async fn again(self) -> Self {
        self.again_with(&[]).await
    }

    /// The same; the outside answers the next callbacks so.
    pub async fn again_with(self, answers: &[Outside]) -> Self {
        self.host.host.close().await;
        let dir = self.dir.clone();
        drop(self);
        let next = Self::start(&dir).await;
        next.posts.answer(answers);
        next.listening().await;
        next
    }

    pub async fn listening(&self) {
        let listening = ostler_contract::events::Event::Listening {
            runtime: "test".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 1,
            guarded: false,
        };
        self.host.host.core.events.raise_and_wait(listening).await;
    }

    /// Sends a request; answers status, headers and JSON body.
    pub async fn send(&self, request: Request) -> Response {
        self.route.unbounded((request,)).await.unwrap()
    }

    /// Posts to an endpoint with the secret.
    pub async fn post(&self, path: &str, body: impl Into<Body>) -> (u16, Value) {
        self.post_with(
            path,
            body,
            &[("authorization", &format!("Bearer {SECRET}")), ("content-type", "application/json")],
        )
        .await
    }

    pub async fn post_with(
        &self,
        path: &str,
        body: impl Into<Body>,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        read(self.send(request(path, body, headers)).await).await
    }

    /// Talks to an endpoint in a thread.
    pub async fn say(&self, endpoint: &str, thread: &str, text: &str) -> (u16, Value) {
        self.post(endpoint, json!({ "thread": thread, "text": text }).to_string()).await
    }

    /// The same with a callback.
    pub async fn say_back(&self, endpoint: &str, thread: &str, text: &str, callback: &str) -> (u16, Value) {
        self.post(endpoint, json!({ "thread": thread, "text": text, "callback": callback }).to_string()).await
    }

    pub async fn client(&self) -> RawClient {
        let mut client = self.host.raw();
        client.initialize("tester").await;
        client
    }

    /// The records of a collection, as the host holds them.
    pub async fn kept(&self, collection: &str) -> Vec<JsonObject> {
        let store = self.host.host.core.record_store().unwrap().clone();
        let options = if collection == ostler_plugin_webhook::BODIES {
            ostler_plugin_webhook::bodies_options()
        } else {
            Default::default()
        };
        let opened = store.collection.unbounded((collection.to_owned(), options)).await.unwrap();
        let mut records = opened.list.unbounded(()).await.unwrap();
        records.sort_by_key(|record| record["id"].as_str().unwrap().to_owned());
        records
    }

    /// The chat of an endpoint's threads.
    pub async fn chat_of(&self, endpoint: &str) -> String {
        let threads = self.kept("webhook-threads").await;
        let of_endpoint = threads.iter().find(|thread| thread["endpoint"] == endpoint).expect("a thread");
        of_endpoint["chat"].as_str().unwrap().to_owned()
    }

    pub async fn chat(&self, uri: &str) -> Value {
        let mut client = self.client().await;
        client.request("subscribe", json!({ "channel": uri })).await.unwrap()["snapshot"]["state"].clone()
    }

    /// The runs of the automation of an endpoint.
    pub async fn runs(&self, endpoint: &str) -> usize {
        let state = self.chat("ahp-automations://").await;
        let entries = state["entries"].as_array().unwrap().clone();
        let entry =
            entries.iter().find(|entry| entry["resource"].as_str().unwrap().ends_with(endpoint)).unwrap();
        entry["runs"].as_array().unwrap().len()
    }

    /// The deliveries put down for an endpoint.
    pub async fn deliveries(&self, endpoint: &str, count: usize) -> Vec<Value> {
        self.rows("deliveries", endpoint, count).await
    }

    /// The rejected calls of an endpoint in its log.
    pub async fn refused(&self, endpoint: &str, count: usize) -> Vec<Value> {
        self.rows("refused", endpoint, count).await
    }

    async fn rows(&self, kind: &str, endpoint: &str, count: usize) -> Vec<Value> {
        until(async || {
            let kept = self.kept("webhook-deliveries").await;
            let record = kept.iter().find(|record| record["id"] == endpoint)?;
            let rows = record[kind].as_array()?.clone();
            (rows.len() >= count).then_some(rows)
        })
        .await
    }
}

pub fn request(path: &str, body: impl Into<Body>, headers: &[(&str, &str)]) -> Request {
    let mut request = Request::new(body.into());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = format!("/plugins/webhook/{path}").parse().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    request
}

pub async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    let body = response.into_body().read(1 << 20).await.unwrap();
    let body = match kind.as_deref() {
        Some("application/json") => serde_json::from_slice(&body).unwrap(),
        Some("text/plain") => Value::from(std::str::from_utf8(&body).unwrap()),
        kind => {
            assert!(kind.is_none() && body.is_empty(), "{kind:?}");
            Value::Null
        }
    };
    (status, body)
}

/// Waits until something holds, for what other threads do.
pub async fn until<T>(mut what: impl AsyncFnMut() -> Option<T>) -> T {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = what().await {
            return found;
        }
        assert!(std::time::Instant::now() < end, "it did not come about");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
