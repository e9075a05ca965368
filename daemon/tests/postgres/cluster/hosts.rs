//! The hosts of a cluster and their clients.

use std::time::{Duration, Instant};

use ostler_testkit::postgres::Postgres;
use ostler_testkit::proxy::Proxy;
use serde_json::{Value, json};

use crate::support::{Client, Daemon, Folder, LIMIT};

pub const TOKEN: &str = "the-token";
/// The limit of a takeover. The lease of a lost host expires after 8 seconds. What follows takes longer on a computer that does other
/// work, so only the long check, which has the computer for itself, requires 10 seconds.
pub fn takeover_limit() -> Duration {
    Duration::from_secs(if std::env::var_os("OSTLER_FAULT_RECORD").is_some() { 10 } else { 20 })
}

/// Options of `@ostler/postgres` for a host of the cluster.
pub fn options(server: &Postgres, id: &str, shared: &[&str]) -> Value {
    let token = server.password_file().with_file_name("cluster.token");
    if !token.exists() {
        std::fs::write(&token, "of-the-cluster").unwrap();
    }
    json!({
        "url": server.url(), "passwordFile": server.password_file(), "vaultKeyFile": server.key_file(),
        "cluster": { "url": "ws://127.0.0.1:0", "tokenFile": token, "id": id, "sharedPaths": shared },
    })
}

/// A folder with a host that has these options.
pub fn folder_with(options: &Value) -> Folder {
    let plugins = json!([
        { "name": "@ostler/postgres", "options": options }, { "name": "@ostler/echo" }, { "name": "@ostler/webhook" },
        { "name": "@ostler/console" },
    ]);
    Folder::new(json!({ "http": true, "connectionToken": TOKEN, "plugins": plugins }))
}

/// The folder of a host whose files every host has.
pub fn folder(server: &Postgres, id: &str) -> Folder {
    folder_with(&options(server, id, &["/"]))
}

/// Adds a plugin to the configuration of a host that does not run yet.
pub fn add_plugin(folder: &Folder, plugin: Value) {
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["plugins"].as_array_mut().unwrap().push(plugin);
    folder.write("config.json", &config.to_string());
}

/// The folder of a host with bots, which webhooks can call.
pub fn folder_with_bots(server: &Postgres, id: &str) -> Folder {
    let folder = folder(server, id);
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    let plugins = config["plugins"].as_array_mut().unwrap();
    for plugin in plugins.iter_mut().filter(|plugin| plugin["name"] == "@ostler/webhook") {
        plugin["grants"] = json!(["bot:get", "bot:chat", "session:read", "session:create", "session:write"]);
    }
    folder.write("config.json", &config.to_string());
    let bots = server.password_file().with_file_name("bots");
    add_plugin(&folder, json!({ "name": "@ostler/bot", "options": { "root": bots } }));
    folder
}

/// Adds the bot `echo` and its endpoint `ask`, which answers with the reply.
pub async fn add_bot(server: &Postgres, daemon: &Daemon) {
    let secret = json!({ "value": "right" }).to_string();
    assert_eq!(daemon.post("/api/vault/set/host%3Ain", Some(TOKEN), &secret).await.0, 200);
    for (collection, id, record) in [
        ("bots", "echo", json!({ "id": "echo", "name": "Echo", "harness": "echo", "answers": true })),
        (
            "webhooks",
            "ask",
            json!({ "id": "ask", "bot": "bot://echo", "secret": "host:in", "reply": "sync" }),
        ),
    ] {
        let insert = format!(
            "INSERT INTO ostler.records (collection, id, record) VALUES ('{collection}', '{id}', '{record}')"
        );
        server.psql("ostler", &insert);
    }
}

/// A host whose connections to the database, to its clients and from the other hosts pass proxies.
pub struct Host {
    pub id: &'static str,
    pub folder: Folder,
    pub daemon: Option<Daemon>,
    pub database: Proxy,
    pub links: Proxy,
    pub clients: Proxy,
    /// Variables of the environment of the daemon.
    pub variables: Vec<(&'static str, std::path::PathBuf)>,
}

impl Host {
    /// Creates a host, which does not run yet.
    pub async fn new(server: &Postgres, id: &'static str) -> Self {
        let (database, links, clients) =
            (Proxy::start(Some(server.port)).await, Proxy::start(None).await, Proxy::start(None).await);
        let mut options = options(server, id, &["/"]);
        options["url"] = format!("postgresql://ostler@127.0.0.1:{}/ostler", database.port).into();
        options["cluster"]["url"] = format!("ws://127.0.0.1:{}", links.port).into();
        let folder = folder_with(&options);
        Self { id, folder, daemon: None, database, links, clients, variables: Vec::new() }
    }

    /// Creates a host and starts it.
    pub async fn started(server: &Postgres, id: &'static str) -> Self {
        let mut host = Self::new(server, id).await;
        host.start();
        host
    }

    pub fn start(&mut self) {
        let mut command = self.folder.command(&[]);
        command.envs(self.variables.iter().map(|(name, path)| (name, path)));
        let daemon = self.folder.started(command);
        let port = daemon.address().rsplit_once(':').unwrap().1.parse().unwrap();
        self.links.lead_to(port);
        self.clients.lead_to(port);
        self.daemon = Some(daemon);
    }

    /// Ends the process without a chance to do anything more.
    pub fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    pub fn running(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// The address for clients.
    pub fn url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.clients.port)
    }

    pub fn log(&self) -> String {
        self.folder.read("log")
    }
}

/// A connection to a daemon, unless it does not accept it.
pub async fn opened(url: &str) -> Option<Client> {
    let connecting = tokio_tungstenite::connect_async(format!("{url}/?tkn={TOKEN}"));
    let (socket, _) = tokio::time::timeout(Duration::from_secs(5), connecting).await.ok()?.ok()?;
    Some(Client::of(socket))
}

/// A client, unless the daemon does not accept it.
pub async fn connected(url: &str, name: &str) -> Option<Client> {
    let mut client = opened(url).await?;
    let hello = json!({ "channel": "ahp-root://", "clientId": name, "protocolVersions": ["1.0.0"] });
    client.try_request("initialize", hello).await?.ok()?;
    Some(client)
}

pub async fn client(daemon: &Daemon, name: &str) -> Client {
    connected(&daemon.url, name).await.expect("the daemon accepts clients")
}

pub fn chat_of(session: &str) -> String {
    ostler_protocol::uri::default_chat(session)
}

/// Creates a session and subscribes to its chat.
pub async fn create(client: &mut Client, session: &str) -> String {
    client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
    client.subscribe(&chat_of(session)).await;
    chat_of(session)
}

/// Starts a turn in a chat; returns whether the message was sent.
pub async fn start_turn(client: &mut Client, chat: &str, id: &str, text: &str) -> bool {
    let action = json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": text } });
    client.try_dispatch(chat, 1, action).await
}

/// Runs a turn in a chat that the client subscribes to; returns whether it completed, or `None` if the connection ended.
pub async fn run_turn(client: &mut Client, chat: &str, id: &str, text: &str) -> Option<bool> {
    start_turn(client, chat, id, text).await.then_some(())?;
    loop {
        let frame = client.next_frame().await?;
        let action = &frame["params"]["action"];
        match action["type"].as_str() {
            _ if frame["method"] != "action" => {}
            _ if frame["params"].get("rejectionReason").is_some() => return Some(false),
            _ if action["turnId"] != id => {}
            Some("chat/turnComplete") => return Some(true),
            Some("chat/error") => return Some(false),
            _ => {}
        }
    }
}

/// Runs a turn of a session through a host; the error is why it did not complete.
pub async fn through(url: &str, session: &str, id: &str) -> Result<(), String> {
    let mut client = connected(url, id).await.ok_or("no connection")?;
    let chat = chat_of(session);
    let subscribed = client.try_request("subscribe", json!({ "channel": chat })).await;
    subscribed.ok_or("the connection ended")?.map_err(|why| why.to_string())?;
    match run_turn(&mut client, &chat, id, id).await {
        Some(true) => Ok(()),
        Some(false) => Err("the turn failed".to_owned()),
        None => Err("the connection ended during the turn".to_owned()),
    }
}

/// Repeats until it succeeds; returns how long that took.
pub async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T, String>) -> (T, Duration) {
    let begun = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return (done, begun.elapsed()),
            Err(why) => assert!(begun.elapsed() < LIMIT, "{what}: {why}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a condition holds.
pub async fn until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The texts and the states of the turns of a chat, as its subscribers see them.
pub async fn turns(client: &mut Client, chat: &str) -> Vec<(String, String)> {
    let state = client.subscribe(chat).await;
    let turns = state["turns"].as_array().unwrap().iter();
    turns
        .map(|turn| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&turn["message"]["text"]), text(&turn["state"]))
        })
        .collect()
}

pub async fn get(daemon: &Daemon, path: &str) -> (u16, Value) {
    daemon.ask(&format!("GET {path}"), &format!("Authorization: Bearer {TOKEN}\r\n"), "").await
}

/// The id of a session in the database.
pub fn id_of(session: &str) -> &str {
    session.split_once(":/").unwrap().1
}

/// The name of the host that owns a session; empty if none does.
pub fn owner(server: &Postgres, session: &str) -> String {
    let id = id_of(session);
    server.psql(
        "ostler",
        &format!("SELECT owner_id FROM ostler.session_heads WHERE session = '{id}' AND owner IS NOT NULL"),
    )
}

/// Adds an endpoint `in`, which recognizes repeated deliveries, and its automation `note` with these settings, and waits until
/// every host has them.
pub async fn add_webhook(server: &Postgres, daemons: &[&Daemon], message: &str, own: Value) {
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    let value = json!({ "value": "right" }).to_string();
    let (status, answer) = daemons[0].ask("POST /api/vault/set/host%3Ain", &headers, &value).await;
    assert_eq!(status, 200, "{answer}");
    let endpoint = json!({ "id": "in", "automation": true, "secret": "host:in", "dedupe": "x-id" });
    let definition = json!({
        "title": "Note", "enabled": true, "message": { "text": message, "origin": { "kind": "automation" } },
        "session": { "provider": "echo" },
        "triggers": [{ "kind": "event", "id": "called", "type": "webhook", "title": "Called",
            "events": [{ "id": "call", "title": "Call" }], "config": { "endpoint": "in" } }],
        "_meta": { "ostler": { "hourlyCap": 1_000_000, "overlap": "parallel" } },
    });
    let insert = |definition: &Value| {
        server.psql(
            "ostler",
            &format!(
                "INSERT INTO ostler.automations VALUES ('note', '{definition}', NULL, '2026-01-01T00:00:00Z',
                     '2026-01-01T00:00:00Z')
                 ON CONFLICT (id) DO UPDATE SET definition = excluded.definition"
            ),
        )
    };
    insert(&definition);
    server.psql(
        "ostler",
        &format!(
            "INSERT INTO ostler.records (collection, id, record) VALUES ('webhooks', 'in', '{endpoint}')"
        ),
    );
    for (at, daemon) in daemons.iter().enumerate() {
        let end = Instant::now() + LIMIT;
        let sql = format!(
            "SELECT count(*) FROM ostler.automation_runs WHERE run::json #>> '{{origin,event,probe}}' = '{at}'"
        );
        while server.psql("ostler", &sql) == "0" {
            daemon
                .post("/plugins/webhook/in", Some("right"), &json!({ "probe": at.to_string() }).to_string())
                .await;
            assert!(Instant::now() < end, "no call of host {at} starts a run");
        }
    }
    until(LIMIT, "the first runs end", || unfinished_runs(server) == 0).await;
    let mut definition = definition;
    definition["_meta"]["ostler"] = own;
    insert(&definition);
    // Edits arrive with a notification.
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// How many runs have not ended.
pub fn unfinished_runs(server: &Postgres) -> usize {
    let count = "SELECT count(*) FROM ostler.automation_runs WHERE NOT ended";
    server.psql("ostler", count).parse().unwrap()
}

/// Calls the endpoint of a host at an address, which can be that of a proxy; returns the status, 0 without one, and the whole
/// answer.
pub async fn call(address: &str, host: &str, id: &str, body: &Value) -> (u16, String) {
    let body = body.to_string();
    let request = format!(
        "POST /plugins/webhook/in HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer right\r\n\
         X-Id: {id}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = crate::support::exchange(address, request.as_bytes()).await;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer)
}
