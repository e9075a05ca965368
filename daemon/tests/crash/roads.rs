//! Everything that can be acknowledged, asked for again and again until the daemon is gone.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::{self, Client, Daemon, Folder};
use crate::told::{Step, Thing, Told};

pub const TOKEN: &str = "the-token";
/// The client's own files, in the configuration folder so that what happens to them is recorded with it.
pub const FILES: &str = "files";
const ALL_AUTOMATIONS: &str = "ahp-automations://";
/// After an answer that says no: what refuses is asked again, and not as fast as it can refuse.
const PAUSE: Duration = Duration::from_millis(10);

/// A plugin whose tools keep and forget a record of its own, and say which are kept.
const NOTES: &str = "
export const name = 'notes';
export function apply(host) {
  const notes = host.records('notes', { body: 'text' });
  const tool = (name, run) => host.registerTool({ definition: { name, description: name }, run });
  tool('keep', async ({ id, text }) => { await notes.put({ id, text }); return 'kept'; });
  tool('forget', async ({ id }) => { await notes.remove(id); return 'forgotten'; });
  tool('kept', async () => JSON.stringify((await notes.list()).map(({ id, text }) => [id, text])));
}
";

/// A program at the other end of callbacks, which has the turns it was told the end of and when.
pub struct Outside {
    pub url: String,
    told: Arc<Mutex<Vec<(SystemTime, String)>>>,
}

impl Outside {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let told = Arc::new(Mutex::new(Vec::new()));
        let noted = told.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let noted = noted.clone();
                tokio::spawn(async move {
                    let mut read = Vec::new();
                    // A daemon that is killed closes in the middle.
                    while stream.read_buf(&mut read).await.is_ok_and(|read| read > 0) {
                        let text = String::from_utf8_lossy(&read);
                        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                        let Ok(body) = serde_json::from_str::<Value>(body) else { continue };
                        let turn = body["turn"].as_str().unwrap().to_owned();
                        noted.lock().unwrap().push((SystemTime::now(), turn));
                        let _ = stream
                            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                            .await;
                        return;
                    }
                });
            }
        });
        Self { url, told }
    }

    /// Whether it was told of a turn before `end` or after `begun`.
    pub fn knows(&self, turn: &str, end: SystemTime, begun: SystemTime) -> bool {
        let told = self.told.lock().unwrap();
        told.iter().any(|(at, of)| of == turn && (*at <= end || *at >= begun))
    }
}

/// A configuration folder that everything is asked of.
pub fn folder(outside: &Outside) -> Folder {
    let folder = Folder::with_webhook("run {{event.n}}");
    let grants = ["bot:get", "bot:chat", "session:read", "session:create", "session:write"];
    let plugins = json!([
        { "name": "@ostler/echo" },
        { "name": "@ostler/bot", "options": { "root": folder.path().join("bots-folders") } },
        { "name": "@ostler/webhook", "grants": grants },
        { "name": "./notes.mjs" },
    ]);
    let config = json!({
        "port": 0, "deltaWindowMs": 0, "http": true, "connectionToken": TOKEN, "users": "users.json", "plugins": plugins,
        "paths": [folder.path().join(FILES)],
    });
    folder.write("config.json", &config.to_string());
    folder.write("users.json", "{}");
    folder.write("notes.mjs", NOTES);
    folder.write("notes/kept.md", "---\nid: kept\n---\nStill here.\n");
    folder.write("bots/echo.md", "---\nid: echo\nname: Echo\nharness: echo\nanswers: true\n---\n");
    for (id, fields) in [
        ("once", "automation: true\ndedupe: X-Id".to_owned()),
        ("loud", "bot: bot://echo\nreply: none".to_owned()),
        (
            "back",
            format!("bot: bot://echo\nretry: {{ times: 9, first: 1s }}\ncallbackPrefix: {}", outside.url),
        ),
    ] {
        folder
            .write(&format!("webhooks/{id}.md"), &format!("---\nid: {id}\nsecret: host:in\n{fields}\n---\n"));
    }
    let once = folder.read("automations/note.md").replace("endpoint: in", "endpoint: once");
    folder.write("automations/once.md", &once);
    std::fs::create_dir(folder.path().join(FILES)).unwrap();
    // Secrets are nobody else's.
    let secrets = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.path().join("vault.json"), secrets).unwrap();
    folder
}

pub async fn connected(daemon: &Daemon, name: &str) -> Client {
    let mut client = Client::connect(&format!("{}/?tkn={TOKEN}", daemon.url)).await;
    client.initialize(name).await;
    client
}

/// The URI of a file of the clients.
pub fn file_uri(folder: &Folder, name: &str) -> String {
    format!("file://{}", folder.path().canonicalize().unwrap().join(FILES).join(name).display())
}

/// Starts all lanes. They end with the daemon; what they ask for has names of this round.
pub async fn begin(
    folder: &Folder,
    daemon: &Daemon,
    outside: &Outside,
    told: &Told,
    round: u32,
) -> JoinSet<()> {
    let mut lanes = JoinSet::new();
    let names = ["talker", "queuer", "keeper", "maker", "writer"];
    let mut clients = Vec::new();
    for name in names {
        let client = connected(daemon, name).await;
        clients.push(Road { client, told: told.clone(), round, seq: 0 });
    }
    let [talker, queuer, keeper, maker, writer] = clients.try_into().ok().unwrap();
    lanes.spawn(ended(talker.talk()));
    lanes.spawn(ended(queuer.queue()));
    lanes.spawn(ended(keeper.keep()));
    lanes.spawn(ended(maker.automate()));
    lanes.spawn(ended(writer.write(file_uri(folder, ""))));
    let caller = Caller { address: daemon.address().to_owned(), told: told.clone(), round };
    lanes.spawn(ended(caller.clone().run()));
    lanes.spawn(ended(caller.clone().deliver()));
    lanes.spawn(ended(caller.clone().ask()));
    lanes.spawn(ended(caller.clone().ask_back(outside.url.clone())));
    lanes.spawn(ended(caller.clone().hide()));
    lanes.spawn(ended(caller.admit()));
    lanes
}

async fn ended(lane: impl Future<Output = Option<()>>) {
    let _ = lane.await;
}

/// A client. Its functions return at the end of its connection.
pub struct Road {
    client: Client,
    told: Told,
    round: u32,
    seq: i64,
}

impl Road {
    pub fn checker(client: Client) -> Self {
        Self { client, told: Told::default(), round: 0, seq: 0 }
    }

    async fn dispatch(&mut self, channel: &str, action: Value) -> Option<()> {
        self.seq += 1;
        self.client.try_dispatch(channel, self.seq, action).await.then_some(())
    }

    /// Waits for the echo of its own action of a type: the action, or nothing where the host refuses it.
    async fn echo(&mut self, name: &str) -> Option<Option<Value>> {
        loop {
            let frame = self.client.next_frame().await?;
            let params = &frame["params"];
            if params["origin"]["clientSeq"] == json!(self.seq) {
                if params.get("rejectionReason").is_some() {
                    tokio::time::sleep(PAUSE).await;
                    return Some(None);
                }
                if params["action"]["type"] == name {
                    return Some(Some(params["action"].clone()));
                }
            }
        }
    }

    async fn until(&mut self, name: &str) -> Option<Value> {
        loop {
            let frame = self.client.next_frame().await?;
            if frame["params"]["action"]["type"] == name {
                return Some(frame["params"]["action"].clone());
            }
        }
    }

    /// A request; nothing where the host refuses it.
    async fn request(&mut self, method: &str, params: Value) -> Option<Option<Value>> {
        let answer = self.client.try_request(method, params).await?;
        if answer.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
        Some(answer.ok())
    }

    /// Creates a session and subscribes to its chat, whose URI it returns.
    async fn session(&mut self, session: &str) -> Option<Option<String>> {
        let created = Thing::Session(session.to_owned());
        self.told.note(created.clone(), Step::Asked);
        let create = json!({ "channel": session, "provider": "echo" });
        if self.request("createSession", create).await?.is_none() {
            return Some(None);
        }
        self.told.note(created, Step::Stored);
        let chat = ostler_protocol::uri::default_chat(session);
        Some(self.request("subscribe", json!({ "channel": chat })).await?.map(|_| chat))
    }

    /// Calls a tool of the plugin; what it says.
    pub async fn tool(&mut self, chat: &str, turn: &str, call: &str) -> Option<Option<String>> {
        let turn = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": format!("/tool {call}") } });
        self.dispatch(chat, turn).await?;
        if self.echo("chat/turnStarted").await?.is_none() {
            return Some(None);
        }
        let mut said = None;
        loop {
            let frame = self.client.next_frame().await?;
            let action = &frame["params"]["action"];
            match action["type"].as_str() {
                Some("chat/toolCallComplete") if action["result"]["success"] == true => {
                    said = action["result"]["content"][0]["text"].as_str().map(str::to_owned);
                }
                Some("chat/turnComplete" | "chat/error") => return Some(said),
                _ => {}
            }
        }
    }

    /// Sessions, turns in them, and the removal of every third session.
    async fn talk(mut self) -> Option<()> {
        for at in 0.. {
            let session = format!("echo:/talk-{}-{at}", self.round);
            let Some(chat) = self.session(&session).await? else { continue };
            for turn in 0..2 {
                let (id, text) = (format!("t{turn}"), format!("say {at} {turn}"));
                let sent = Thing::Turn { session: session.clone(), id: id.clone(), text: text.clone() };
                self.told.note(sent.clone(), Step::Asked);
                let action = json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": text } });
                self.dispatch(&chat, action).await?;
                if self.echo("chat/turnStarted").await?.is_none() {
                    break;
                }
                self.told.note(sent, Step::Stored);
                self.until("chat/turnComplete").await?;
                self.told.note(Thing::Response { session: session.clone(), id, text }, Step::Stored);
            }
            if at % 3 == 2 {
                let created = Thing::Session(session.clone());
                self.told.note(created.clone(), Step::RemovalAsked);
                if self.request("disposeSession", json!({ "channel": session })).await?.is_some() {
                    self.told.note(created, Step::Removed);
                }
            }
        }
        None
    }

    /// Messages in the queue behind a turn that does not end.
    async fn queue(mut self) -> Option<()> {
        for at in 0.. {
            let session = format!("echo:/queue-{}-{at}", self.round);
            let Some(chat) = self.session(&session).await? else { continue };
            let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "/hang" } });
            self.dispatch(&chat, turn).await?;
            if self.echo("chat/turnStarted").await?.is_none() {
                continue;
            }
            for message in 0..3 {
                let (id, text) = (format!("q{message}"), format!("later {at} {message}"));
                let queued = Thing::Queued { session: session.clone(), id: id.clone(), text: text.clone() };
                self.told.note(queued.clone(), Step::Asked);
                let message = json!({ "text": text, "origin": { "kind": "user" } });
                let action = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message });
                self.dispatch(&chat, action).await?;
                if self.echo("chat/pendingMessageSet").await?.is_some() {
                    self.told.note(queued, Step::Stored);
                }
            }
            self.dispatch(&chat, json!({ "type": "chat/turnCancelled", "turnId": "t" })).await?;
            self.echo("chat/turnCancelled").await?;
        }
        None
    }

    /// Records of a plugin, and the removal of every third one.
    async fn keep(mut self) -> Option<()> {
        let session = format!("echo:/keep-{}", self.round);
        let chat = loop {
            if let Some(chat) = self.session(&session).await? {
                break chat;
            }
        };
        for at in 0.. {
            let id = format!("r{}-{at}", self.round);
            let record = Thing::Record(id.clone());
            self.told.note(record.clone(), Step::Asked);
            let call = format!("keep {}", json!({ "id": id, "text": format!("text of {id}\n") }));
            if self.tool(&chat, &format!("k{at}"), &call).await?.as_deref() != Some("kept") {
                continue;
            }
            self.told.note(record.clone(), Step::Stored);
            if at % 3 == 2 {
                self.told.note(record.clone(), Step::RemovalAsked);
                let call = format!("forget {}", json!({ "id": id }));
                if self.tool(&chat, &format!("f{at}"), &call).await?.as_deref() == Some("forgotten") {
                    self.told.note(record, Step::Removed);
                }
            }
        }
        None
    }

    /// Automations, each changed once, and the removal of every third one.
    async fn automate(mut self) -> Option<()> {
        self.request("subscribe", json!({ "channel": ALL_AUTOMATIONS })).await??;
        for at in 0.. {
            let uri = format!("ahp-automation:/a{}-{at}", self.round);
            let made = Thing::Automation(uri.clone());
            let definition = json!({ "title": "Made", "message": { "text": "x", "origin": { "kind": "automation" } },
                "session": { "provider": "echo" }, "enabled": true, "triggers": [] });
            let create =
                json!({ "type": "automation/createRequested", "resource": uri, "definition": definition });
            let update = json!({ "type": "automation/updateRequested", "resource": uri, "changes": { "enabled": false } });
            self.told.note(made.clone(), Step::Asked);
            for action in [create, update] {
                self.dispatch(ALL_AUTOMATIONS, action).await?;
                if self.set(&uri).await? {
                    self.told.note(made.clone(), Step::Stored);
                }
            }
            if at % 3 == 2 {
                self.told.note(made.clone(), Step::RemovalAsked);
                self.dispatch(ALL_AUTOMATIONS, json!({ "type": "automation/removed", "resource": uri }))
                    .await?;
                if self.echo("automation/removed").await?.is_some() {
                    self.told.note(made, Step::Removed);
                }
            }
        }
        None
    }

    /// Whether the host shows the automation, or refuses what was asked of it.
    async fn set(&mut self, uri: &str) -> Option<bool> {
        loop {
            let frame = self.client.next_frame().await?;
            let params = &frame["params"];
            if params.get("rejectionReason").is_some() && params["origin"]["clientSeq"] == json!(self.seq) {
                tokio::time::sleep(PAUSE).await;
                return Some(false);
            }
            if params["action"]["type"] == "automation/set"
                && params["action"]["automation"]["resource"] == uri
            {
                return Some(true);
            }
        }
    }

    /// Files, written, moved, copied and deleted, in folders of their own.
    async fn write(mut self, files: String) -> Option<()> {
        let root = "ahp-root://";
        for at in 0.. {
            let folder = format!("{}-{at}", self.round);
            let [first, moved, copied] = ["first", "moved", "copied"].map(|name| format!("{folder}/{name}"));
            let uri = |path: &str| format!("{files}{path}");
            let file = |path: &str| Thing::File(path.to_owned());
            self.told.note(file(&folder), Step::Asked);
            if self.request("resourceMkdir", json!({ "channel": root, "uri": uri(&folder) })).await?.is_none()
            {
                continue;
            }
            self.told.note(file(&folder), Step::Stored);
            self.told.note(file(&first), Step::Asked);
            let write = json!({ "channel": root, "uri": uri(&first), "data": first, "encoding": "utf-8" });
            if self.request("resourceWrite", write).await?.is_none() {
                continue;
            }
            self.told.note(file(&first), Step::Stored);
            self.told.note(file(&copied), Step::Asked);
            let both = json!({ "channel": root, "source": uri(&first), "destination": uri(&copied) });
            if self.request("resourceCopy", both).await?.is_some() {
                self.told.note(file(&copied), Step::Stored);
            }
            self.told.note(file(&first), Step::RemovalAsked);
            self.told.note(file(&moved), Step::Asked);
            let both = json!({ "channel": root, "source": uri(&first), "destination": uri(&moved) });
            if self.request("resourceMove", both).await?.is_some() {
                self.told.note(file(&first), Step::Removed);
                self.told.note(file(&moved), Step::Stored);
            }
            self.told.note(file(&copied), Step::RemovalAsked);
            if self
                .request("resourceDelete", json!({ "channel": root, "uri": uri(&copied) }))
                .await?
                .is_some()
            {
                self.told.note(file(&copied), Step::Removed);
            }
        }
        None
    }
}

/// A program that calls over HTTP.
#[derive(Clone)]
pub struct Caller {
    pub address: String,
    pub told: Told,
    pub round: u32,
}

impl Caller {
    /// Posts JSON with a bearer token and another header: the status and the body; nothing where the daemon is gone.
    pub async fn post(&self, path: &str, token: &str, header: &str, body: &Value) -> Option<(u16, Value)> {
        let (address, body) = (&self.address, body.to_string());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n{header}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = support::exchange(address, request.as_bytes()).await;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        let body = answer.split_once("\r\n\r\n")?.1;
        if status >= 400 {
            tokio::time::sleep(PAUSE).await;
        }
        // What is cut in the middle was not answered.
        Some((status, serde_json::from_str(body).ok()?))
    }

    async fn call(&self, endpoint: &str, header: &str, body: Value) -> Option<(u16, Value)> {
        self.post(&format!("/plugins/webhook/{endpoint}"), "right", header, &body).await
    }

    async fn run(self) -> Option<()> {
        for at in 0.. {
            let number = u64::from(self.round) * 1_000_000 + at;
            self.told.note(Thing::Run(number), Step::Asked);
            if self.call("in", "", json!({ "n": number })).await?.0 == 202 {
                self.told.note(Thing::Run(number), Step::Stored);
            }
        }
        None
    }

    async fn deliver(self) -> Option<()> {
        for at in 0.. {
            let id = format!("d{}-{at}", self.round);
            self.told.note(Thing::Delivery(id.clone()), Step::Asked);
            if self.redeliver(&id).await? == 202 {
                self.told.note(Thing::Delivery(id), Step::Stored);
            }
        }
        None
    }

    /// Calls with a delivery id; the status.
    pub async fn redeliver(&self, id: &str) -> Option<u16> {
        Some(self.call("once", &format!("X-Id: {id}\r\n"), json!({ "n": id })).await?.0)
    }

    async fn ask(self) -> Option<()> {
        for at in 0.. {
            let text = format!("ask {} {at}", self.round);
            let (status, answer) = self.call("loud", "", json!({ "thread": "t", "text": text })).await?;
            if status == 202 {
                let turn = answer["turn"].as_str().unwrap().to_owned();
                self.told.note(Thing::BotTurn(turn, text), Step::Stored);
            }
        }
        None
    }

    async fn ask_back(self, url: String) -> Option<()> {
        for at in 0.. {
            let text = format!("ask back {} {at}", self.round);
            let body = json!({ "thread": "t", "text": text, "callback": format!("{url}x") });
            let (status, answer) = self.call("back", "", body).await?;
            if status == 202 {
                let turn = answer["turn"].as_str().unwrap().to_owned();
                self.told.note(Thing::BotTurn(turn.clone(), text), Step::Stored);
                self.told.note(Thing::Callback(turn), Step::Stored);
            }
        }
        None
    }

    /// Secrets, and the removal of every third one.
    async fn hide(self) -> Option<()> {
        for at in 0.. {
            let name = format!("host:s{}-{at}", self.round);
            let (set, delete) = (format!("/api/vault/set/{name}"), format!("/api/vault/delete/{name}"));
            let bodies = (json!({ "value": "hidden" }), json!({}));
            self.add(Thing::Secret(name), (&set, &bodies.0), (at % 3 == 2).then_some((&*delete, &bodies.1)))
                .await?;
        }
        None
    }

    /// Users, and the removal of every third one.
    async fn admit(self) -> Option<()> {
        for at in 0.. {
            let id = format!("u{}-{at}", self.round);
            let body = json!({ "id": id });
            let rm = (at % 3 == 2).then_some(("/api/user/rm", &body));
            self.add(Thing::User(id), ("/api/user/add", &body), rm).await?;
        }
        None
    }

    /// Adds a thing by a path of the API and a body, and removes it by others.
    async fn add(&self, thing: Thing, add: (&str, &Value), remove: Option<(&str, &Value)>) -> Option<()> {
        self.told.note(thing.clone(), Step::Asked);
        if self.post(add.0, TOKEN, "", add.1).await?.0 != 200 {
            return Some(());
        }
        self.told.note(thing.clone(), Step::Stored);
        if let Some((path, body)) = remove {
            self.told.note(thing.clone(), Step::RemovalAsked);
            if self.post(path, TOKEN, "", body).await?.0 == 200 {
                self.told.note(thing, Step::Removed);
            }
        }
        Some(())
    }
}
