//! What a key controls, as it is observed from outside.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;

use crate::support::collector::Received;
use crate::support::{Client, Folder, ended, exchange, post, runs_of, wait_for};
use crate::{At, COLLECTORS, latest_day};

/// A backend, a tool, a route and a connection, each with something to observe.
const PROBE: &str = "
import { createServer } from 'node:net';
export const name = 'probe';
const listens = () => new Promise((resolve) => {
  const server = createServer().once('error', (error) => resolve(error.code));
  server.listen(0, '127.0.0.1', () => server.close(() => resolve('listens')));
});
export function apply(host, options) {
  host.on('listening', async () => {
    const peer = host.connect();
    await peer.request('initialize', { channel: 'ahp-root://', clientId: 'probe', protocolVersions: ['0.9.0'] });
    const listed = peer.request('listSessions', {}).then(() => 'listed', (error) => error.message);
    host.log(`outcome ${await listed}`);
  });
  host.registerTool({ definition: { name: 'advanced' }, advancedPermission: true, run: () => 'let through' });
  host.registerRoute(async (request) => {
    switch (new URL(request.url).search) {
      case '?busy': for (const end = Date.now() + 2000; Date.now() < end; );
      case '?memory': new Array(8e6).fill(0.5);
      case '?body': await request.text(); break;
      case '?listen': return new Response(await listens());
    }
    return Response.json(options);
  });
  host.registerAgent({
    provider: 'probe', displayName: 'Probe', schema: () => ({ type: 'object', properties: {} }), defaults: () => ({}),
    create: (start) => {
      host.log(`servers ${JSON.stringify(Object.keys(start.mcpServers ?? {}))}`);
      return {
        begin(turnId) {
          for (const inputTokens of [10, 25]) start.emit('chat', { type: 'chat/usage', turnId, usage: { inputTokens, model: 'm' } });
          start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
        },
        cancel() {}, close() {},
      };
    },
  });
}
";
const OTHER: &str = "export const name = 'other';
export function apply(host) { host.registerRoute(() => new Response('')); }
";
/// The tokens of two users, with the roles `admin` and `member`.
const ADA: &str = "ada's token";
const BEN: &str = "ben's token";
const RECORDINGS: &[&str] = &["one.jsonl", "two.jsonl", "wire/three.jsonl"];

/// Writes the files that configurations name.
pub fn prepare(folder: &Folder) {
    folder.write("probe.mjs", PROBE);
    folder.write("other.mjs", OTHER);
    folder.write("a/x", "");
    folder.write("b/x", "");
    folder.write("one.token", "one");
    folder.write("two.token", "two");
    let user = |id: &str, role: &str, token: &str| {
        let hash = hex::encode(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()));
        json!({ "id": id, "roles": [role], "token": format!("sha256:{hash}") })
    };
    let users = json!({ "users": [user("ada", "admin", ADA), user("ben", "member", BEN)] });
    folder.write("users.json", &users.to_string());
    let deny = json!([{ "id": "no-echo", "scope": "all", "kind": "agent", "effect": "deny", "match": { "agent": ["echo"] } }]);
    folder.write("policies.json", &deny.to_string());
}

fn url(at: &At, token: &str) -> String {
    let token = percent_encoding::utf8_percent_encode(token, percent_encoding::NON_ALPHANUMERIC);
    format!("{}/?tkn={token}", at.daemon().url)
}

/// The status of a GET at an address, for a host of this name.
async fn status_at(address: &str, path: &str, headers: &str) -> Value {
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    let answer = exchange(address, request.as_bytes()).await;
    answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).map_or(Value::Null, Value::from)
}

async fn status(at: &At, path: &str) -> Value {
    let address = at.daemon().address();
    status_at(address, path, &format!("Host: {address}\r\n")).await
}

async fn client(at: &At) -> Client {
    at.daemon().initialized("c").await
}

/// A client with a chat of a new session.
async fn chat(at: &At, provider: &str) -> (Client, String) {
    let mut client = client(at).await;
    let session = format!("{provider}:/1");
    client.request("createSession", json!({ "channel": session, "provider": provider })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(&session);
    client.subscribe(&chat).await;
    (client, chat)
}

/// Runs a turn; returns its actions.
async fn turn(client: &mut Client, chat: &str, text: &str) -> Vec<Value> {
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": text } });
    client.dispatch(chat, 1, turn).await;
    client.actions_until("chat/turnComplete").await
}

fn said(actions: &[Value]) -> String {
    let texts = actions.iter().filter_map(|seen| match seen["action"]["type"].as_str()? {
        "chat/delta" => seen["action"]["content"].as_str(),
        "chat/responsePart" => seen["action"]["part"]["content"].as_str(),
        _ => None,
    });
    texts.collect()
}

fn logged(at: &At, what: &str) -> String {
    at.folder.wait_for_log(what).split_once(what).unwrap().1.to_owned()
}

pub async fn port(at: &mut At) -> Value {
    let (_, port) = at.daemon().address().rsplit_once(':').unwrap();
    assert_eq!(status(at, "/").await, 426, "it listens there");
    json!(port.parse::<u16>().unwrap())
}

pub async fn address(at: &mut At) -> Value {
    assert_eq!(status(at, "/").await, 426, "it listens there");
    at.daemon().address().rsplit_once(':').unwrap().0.into()
}

pub async fn readable(at: &mut At) -> Value {
    let mut client = client(at).await;
    let mut readable = Vec::new();
    for folder in ["a", "b"] {
        let uri = format!("file://{}/{folder}/x", at.folder.path().canonicalize().unwrap().display());
        if client.request("resourceRead", json!({ "channel": "ahp-root://", "uri": uri })).await.is_ok() {
            readable.push(folder);
        }
    }
    json!(readable)
}

pub async fn tokens(at: &mut At) -> Value {
    let mut accepted = Vec::new();
    for token in ["", "one", "two"] {
        if connect_async(url(at, token)).await.is_ok() {
            accepted.push(token);
        }
    }
    json!(accepted)
}

pub async fn exit(at: &mut At) -> Value {
    let flags: Vec<&str> = at.flags.iter().map(String::as_str).collect();
    json!(ended(&mut at.folder.command(&flags)).code)
}

pub async fn list_without_user(at: &mut At) -> Value {
    let listed = client(at).await.request("listSessions", json!({})).await;
    listed.err().map_or(Value::Null, |error| error["code"].clone())
}

async fn sign_in(at: &At) -> Value {
    client(at).await.request("listSessions", json!({})).await.unwrap_err()["data"]["resources"][0].clone()
}

pub async fn sign_in_resource(at: &mut At) -> Value {
    sign_in(at).await["resource"].clone()
}

pub async fn sign_in_issuers(at: &mut At) -> Value {
    sign_in(at).await["authorization_servers"].clone()
}

pub async fn principal(at: &mut At) -> Value {
    let mut client = Client::connect(&url(at, ADA)).await;
    client.initialize("c").await;
    match client.request("subscribe", json!({ "channel": "ahp-root://" })).await {
        Ok(root) => root["snapshot"]["state"]["_meta"]["ostler.principal"].clone(),
        Err(_) => Value::Null,
    }
}

pub async fn automations(at: &mut At) -> Value {
    let catalogue = client(at).await.subscribe("ahp-automations://").await;
    json!(catalogue["entries"].as_array().unwrap().len())
}

/// What a call makes of an automation without an owner.
pub async fn call(at: &mut At) -> Value {
    assert_eq!(at.daemon().post("/plugins/webhook/in", Some("right"), "{}").await.0, 202);
    let mut client = client(at).await;
    loop {
        let catalogue = client.subscribe("ahp-automations://").await;
        if !runs_of(&catalogue, "note").is_empty() {
            return "a run".into();
        }
        if at.folder.read("log").contains("unownedAutomations is none") {
            return "a line".into();
        }
    }
}

pub async fn sessions_after_restart(at: &mut At) -> Value {
    let (mut before, chat) = chat(at, "echo").await;
    turn(&mut before, &chat, "Hello").await;
    at.restart();
    let listed = client(at).await.request("listSessions", json!({})).await.unwrap();
    json!(listed["items"].as_array().unwrap().len())
}

pub async fn tool_timeout(at: &mut At) -> Value {
    let (mut client, chat) = chat(at, "echo").await;
    client.subscribe("echo:/1").await;
    let active = json!({ "clientId": "c", "tools": [{ "name": "mine" }] });
    client.dispatch("echo:/1", 7, json!({ "type": "session/activeClientSet", "activeClient": active })).await;
    client.actions_until("session/activeClientSet").await;
    let turn = turn(&mut client, &chat, "/tool mine {}").await;
    let complete = turn.iter().find(|seen| seen["action"]["type"] == "chat/toolCallComplete").unwrap();
    complete["action"]["result"]["error"]["message"].clone()
}

pub async fn many_deltas(at: &mut At) -> Value {
    let (mut client, chat) = chat(at, "echo").await;
    let actions = turn(&mut client, &chat, "one two three four five six seven eight").await;
    let deltas = actions.iter().filter(|seen| seen["action"]["type"] == "chat/delta").count();
    json!(deltas > 3)
}

pub async fn advanced_tool(at: &mut At) -> Value {
    let (mut client, chat) = chat(at, "echo").await;
    said(&turn(&mut client, &chat, "/tool advanced {}").await).into()
}

pub async fn recordings(at: &mut At) -> Value {
    client(at).await.subscribe("ahp-root://").await;
    let recorded = || {
        RECORDINGS.iter().copied().filter(|file| at.folder.read(file).contains("\"c\"")).collect::<Vec<_>>()
    };
    let seen = wait_for(|| Some(recorded()).filter(|seen| !seen.is_empty()));
    let there = RECORDINGS.iter().filter(|file| !at.folder.read(file).is_empty()).collect::<Vec<_>>();
    assert!(seen.is_some_and(|seen| seen.len() == 1), "one file records this client");
    json!(there)
}

pub async fn mcp_servers(at: &mut At) -> Value {
    let _session = chat(at, "probe").await;
    serde_json::from_str(&logged(at, "servers ")).unwrap()
}

pub async fn status_by_name(at: &mut At) -> Value {
    status_at(at.daemon().address(), "/plugins/probe/", "Host: host.example\r\n").await
}

/// Where routes are served: `main`, or the address in the announcement, without a port that was free.
pub async fn routes(at: &mut At) -> Value {
    if status(at, "/plugins/probe/").await == 200 {
        return "main".into();
    }
    elsewhere(at, "routes", "/plugins/probe/").await
}

pub async fn api(at: &mut At) -> Value {
    if status(at, "/api/status").await != 404 {
        return "main".into();
    }
    elsewhere(at, "http", "/api/status").await
}

async fn elsewhere(at: &At, listener: &str, path: &str) -> Value {
    let mut config: Value = serde_json::from_str(&at.folder.read("config.json")).unwrap();
    let Some(configured) = config[listener]["port"].take().as_u64() else { return Value::Null };
    let address = match listener {
        "http" => at
            .daemon()
            .block
            .iter()
            .find_map(|line| line.strip_prefix("http on http://")?.strip_suffix("/api"))
            .unwrap()
            .to_owned(),
        _ => {
            let record =
                wait_for(|| serde_json::from_str::<Value>(&at.folder.read_state("daemon.json")).ok())
                    .unwrap();
            record["routes"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned()
        }
    };
    let served = status_at(&address, path, &format!("Host: {address}\r\n")).await;
    assert!(served == 200 || served == 401, "{address}{path} answers {served}");
    match configured {
        0 => address.rsplit_once(':').unwrap().0.into(),
        _ => address.into(),
    }
}

/// Why a user may not start work.
pub async fn create(at: &mut At) -> Value {
    let mut client = Client::connect(&url(at, BEN)).await;
    client.initialize("c").await;
    let session = json!({ "channel": "echo:/1", "provider": "echo" });
    let created = client.request("createSession", session).await;
    created.err().map_or(Value::Null, |error| error["message"].clone())
}

/// The entries that a turn with two reports makes.
pub async fn usage_entries(at: &mut At) -> Value {
    records(at, "records").await
}

/// Those of a turn now, of the day that has only begun where days begin first.
pub async fn usage_of_the_latest_day(at: &mut At) -> Value {
    records(at, &format!("records?from={}", latest_day())).await
}

async fn records(at: &mut At, what: &str) -> Value {
    let (mut before, chat) = chat(at, "probe").await;
    turn(&mut before, &chat, "Hello").await;
    // What the turn used is stored by then.
    at.restart();
    let mut client = client(at).await;
    let mut request = async |method: &str, uri: &str| {
        client.request(method, json!({ "channel": "ahp-root://", "uri": uri })).await.unwrap()
    };
    let pools = request("resourceList", "usage://").await;
    let pool = pools["entries"][0]["name"].as_str().unwrap_or_else(|| panic!("{pools}"));
    let read = request("resourceRead", &format!("usage://{pool}/{what}")).await;
    let entries: Vec<Value> = serde_json::from_str(read["data"].as_str().unwrap()).unwrap();
    json!(entries.len())
}

/// How many of four runs are there: one that ended ten days ago, one of yesterday and one of now, of more than half a MiB
/// each, and one small one after them.
pub async fn retained_runs(at: &mut At) -> Value {
    at.folder.write(
        "automations/note.md",
        "---\ntitle: Note\nenabled: true\nsession: {}\ntriggers: []\n---\nHello\n",
    );
    at.daemon.take().unwrap().stop();
    let db = rusqlite::Connection::open(at.folder.state_file("state.db")).unwrap();
    for days in [10, 1, 0] {
        let ended = Timestamp::now() - SignedDuration::from_hours(24 * days);
        let ended = ended.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
        let uri = format!("ahp-automation-run:/{days}");
        let run = json!({
            "resource": uri, "automation": "ahp-automation:/note", "origin": { "kind": "manual" }, "sessions": [],
            "lifecycle": {
                "status": "failed", "createdAt": ended, "startedAt": ended, "completedAt": ended,
                "error": { "errorType": "test", "message": "x".repeat(600 << 10) },
            },
        });
        let sql = "INSERT INTO automation_runs (uri, automation, ended, run) VALUES (?1, 'note', 1, ?2)";
        db.execute(sql, [uri, run.to_string()]).unwrap();
    }
    drop(db);
    at.restart();
    let ran = wait_for(|| {
        let ran = at.folder.run(&["automation", "run", "note", "--follow"]);
        (ran.code == Some(0)).then_some(ran)
    });
    ran.expect("the automation runs");
    // Clients that watch an automation keep what they have seen.
    at.restart();
    let listed = wait_for(|| {
        // The daemon says that it is up before others find it.
        let listed = at.folder.run(&["automation", "runs", "note", "--json"]);
        (listed.code == Some(0)).then_some(listed)
    });
    let listed = listed.expect("the runs are listed");
    let list: Value = serde_json::from_str(&listed.out).unwrap_or_else(|_| panic!("{listed:?}"));
    json!(list["runs"].as_array().map(Vec::len))
}

pub async fn busy(at: &mut At) -> Value {
    status(at, "/plugins/probe/?busy").await
}

pub async fn memory(at: &mut At) -> Value {
    status(at, "/plugins/probe/?memory").await
}

pub async fn body_status(at: &mut At) -> Value {
    let (status, _) =
        post(at.daemon().address(), "/plugins/probe/?body", None, &"x".repeat(1_200_000)).await.unwrap();
    json!(status)
}

/// The answer to a message of 1.5 MB.
pub async fn message(at: &mut At) -> Value {
    let mut client = client(at).await;
    let answer =
        client.try_request("ping", json!({ "channel": "ahp-root://", "x": "x".repeat(1_500_000) })).await;
    match answer {
        Some(Ok(_)) => "answered".into(),
        Some(Err(error)) => error["message"].clone(),
        None => "closed".into(),
    }
}

pub async fn second_session(at: &mut At) -> Value {
    let (mut client, chat) = chat(at, "echo").await;
    let hang = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "/hang" } });
    client.dispatch(&chat, 1, hang).await;
    client.actions_until("chat/turnStarted").await;
    let created = client.request("createSession", json!({ "channel": "echo:/2", "provider": "echo" })).await;
    created.err().map_or(Value::Null, |error| error["message"].clone())
}

/// Why a long draft of a second session is rejected.
pub async fn second_draft(at: &mut At) -> Value {
    let (mut client, chat) = chat(at, "echo").await;
    client.request("createSession", json!({ "channel": "echo:/2", "provider": "echo" })).await.unwrap();
    let other = ostler_protocol::uri::default_chat("echo:/2");
    client.subscribe(&other).await;
    let mut last = Value::Null;
    for (seq, chat) in [(1, chat), (2, other)] {
        let draft = json!({ "text": "x".repeat(2 << 20), "origin": { "kind": "user" } });
        client.dispatch(&chat, seq, json!({ "type": "chat/draftChanged", "draft": draft })).await;
        last = client.actions_until("chat/draftChanged").await.pop().unwrap();
    }
    last["rejectionReason"].clone()
}

/// The format of the log, and whether it has lines of the level `info`. They are written before the announcement.
pub async fn log_lines(at: &mut At) -> Value {
    let log = at.folder.read("log");
    let json = log.lines().next().is_some_and(|line| serde_json::from_str::<Value>(line).is_ok());
    json!([if json { "json" } else { "text" }, log.contains("plugin echo from bundled")])
}

/// The first request that exported metrics to the configured collector, and the collector's address.
fn exported(at: &mut At) -> (String, Received) {
    at.daemon.take().unwrap().stop();
    let config: Value = serde_json::from_str(&at.folder.read("config.json")).unwrap();
    let endpoint = config["otlp"]["endpoint"].as_str().unwrap();
    let collectors = COLLECTORS.lock().unwrap();
    let collector = collectors.iter().find(|collector| endpoint.contains(&collector.address)).unwrap();
    let is_metrics = |request: &Received| request.path.ends_with("/metrics");
    let request = collector.received().into_iter().rfind(is_metrics).expect("metrics were exported");
    (collector.address.clone(), request)
}

pub async fn export(at: &mut At) -> Value {
    let (address, request) = exported(at);
    json!([address, request.path])
}

/// The value of a configured header of an export.
pub async fn export_key(at: &mut At) -> Value {
    let (_, request) = exported(at);
    request.head.lines().find_map(|line| line.strip_prefix("x-api-key: ")).into()
}

/// The statuses of the routes of both plugins.
pub async fn plugins(at: &mut At) -> Value {
    json!([status(at, "/plugins/probe/").await, status(at, "/plugins/other/").await])
}

pub async fn plugin_options(at: &mut At) -> Value {
    let head = "GET /plugins/probe/";
    at.daemon().ask(head, "", "").await.1
}

pub async fn plugin_lists(at: &mut At) -> Value {
    logged(at, "outcome ").into()
}

/// Whether the plugin may open a listener.
pub async fn plugin_listens(at: &mut At) -> Value {
    at.daemon().ask("GET /plugins/probe/?listen", "", "").await.1
}
