//! Attacks on the memory of a daemon: their kinds, and the bytes that peers send. The tests that attack a daemon use
//! them, and so does `cargo benchmarks run peaks`, which includes this file.

use serde_json::{Value, json};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident $what:literal,)+) => {
        /// A kind of attack.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// Returns the names of its two figures: the daemon's peak memory, and the latency of another client.
            pub const fn figures(self) -> [&'static str; 2] {
                match self {
                    $(Self::$kind => [
                        concat!("most memory, ", $what),
                        concat!("another client during it, p99: ", $what),
                    ],)+
                }
            }
        }
    };
}

kinds! {
    /// Many reads of a large file by peers that do not receive the answers.
    Reads "3,000 reads of 30 MiB by peers that read nothing",
    /// Many reads of a long attachment by peers that do not receive the answers.
    Attachments "9,000 reads of an attachment of 22 MiB by peers that read nothing",
    /// Many reads of a long resource of a client by peers that do not receive the answers.
    Published "4,500 reads of 15 MiB of a client by peers that read nothing",
    /// Pings of a peer that does not receive the answers.
    Pings "pings of a peer that reads nothing",
    /// Messages of many JSON values, and messages whose last byte is never sent.
    Values "messages of 8 million values and messages that never end",
    /// Bodies of unverified senders that never end.
    Unverified "1,200 unverified bodies that never end",
    /// The same for a route in JavaScript.
    Route "1,200 bodies for a route in JavaScript that never end",
    /// Long JSON from authenticated callers.
    Calls "40 authenticated calls of 24 MiB of JSON",
    /// Sessions created as fast as possible.
    Sessions "sessions created as fast as it goes",
    /// Prompts at and above the maximum length, by clients that do not receive the answers.
    Prompts "20 prompts of 4 and 16 MiB by clients that read nothing",
    /// Snapshots of a long chat that are not received.
    Snapshots "9,000 snapshots of 20 MB for peers that read nothing",
    /// Pages of a long chat that are not received.
    Pages "9,000 pages of 20 MB for peers that read nothing",
    /// Lists and completions that are not received.
    Lists "900 lists of 20,000 files and 200 sessions for peers that read nothing",
    /// Tools that a client contributes to many sessions.
    Tools "60 sessions to which a client brings 4 MB of tools",
    /// Long queued messages.
    Queued "80 queued messages of 3.9 MiB",
    /// Long drafts in many sessions.
    Drafts "drafts of 3.9 MiB in 48 sessions",
    /// Requests whose heads never end.
    Heads "2,000 requests whose heads never end",
}

/// How often a peer requests a file.
pub const READS: usize = 3000;
/// How many requests each peer sends that does not receive the answers.
pub const ASKS: usize = 300;
/// How many peers request snapshots or pages.
pub const ASKERS: usize = 30;
/// Size of the file that is read, in bytes.
pub const LARGE: usize = 30 << 20;
/// Size of an attachment, in bytes: with its base64, nearly the longest message.
pub const ATTACHED: usize = 22 << 20;
/// Size of the content that a client publishes, in bytes: nearly the longest that is read.
pub const PUBLISHED: usize = 15 << 20;
/// How many peers read it: the host has few requests at a time for its client.
pub const PUBLISHED_TO: usize = 15;
/// The URI of the content that the client `publisher` publishes.
pub const PUBLISHED_URI: &str = "memory://publisher/long";
/// Size of a body that never ends, in bytes.
pub const BODY: usize = 24 << 20;
/// Number of values in a message of many values.
pub const VALUES: usize = 8_000_000;
/// The longest text of a message, in bytes.
pub const LONGEST: usize = 4 << 20;
/// Size of a text of which a chat accepts a few, in bytes.
pub const LONG: usize = 3900 * 1024;

/// Returns a client's WebSocket frame with a mask of zeros.
pub fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    match u8::try_from(payload.len()) {
        Ok(short @ 0..126) => frame.push(0x80 | short),
        _ => {
            frame.push(0xff);
            frame.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// Returns a message as a text frame.
pub fn message(message: &Value) -> Vec<u8> {
    frame(0x81, message.to_string().as_bytes())
}

/// Returns requests with ids that count from 0.
pub fn requests<'a>(requests: impl Iterator<Item = (&'a str, &'a Value)>) -> Vec<u8> {
    let numbered = requests.enumerate();
    numbered
        .flat_map(|(id, (method, params))| {
            message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
        })
        .collect()
}

/// Returns the params of `initialize`.
pub fn introduction(client: &str) -> Value {
    json!({ "channel": "ahp-root://", "clientId": client, "protocolVersions": ["1.0.0"] })
}

/// Returns the frames of a client that connects, optionally subscribes, and repeats one request.
pub fn asking(
    client: usize,
    watching: Option<&Value>,
    method: &str,
    params: &Value,
    times: usize,
) -> Vec<u8> {
    let initialize = introduction(&format!("greedy {client}"));
    let first = [("initialize", &initialize)].into_iter();
    let first = first.chain(watching.map(|watching| ("subscribe", watching)));
    requests(first.chain(std::iter::repeat_n((method, params), times)))
}

/// Returns the params with which a client subscribes before it requests pages: the snapshot contains no turns.
pub fn watching(chat: &str) -> Value {
    json!({ "channel": chat, "view": { "turns": 0 } })
}

/// Returns the params for a page of turns. The cursor is not at the first turn, whose earlier page would be empty.
pub fn page(chat: &str) -> Value {
    json!({ "channel": chat, "cursor": "turn-5" })
}

/// Returns a frame with an action of many values, which nothing accepts.
pub fn many_values() -> Vec<u8> {
    let values = "{},".repeat(VALUES);
    let action = format!(
        r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":{{"channel":"echo:/a","clientSeq":1,"action":{{"x":[{values}1]}}}}}}"#
    );
    frame(0x81, action.as_bytes())
}

/// Returns a frame without its last byte.
pub fn never_ended() -> Vec<u8> {
    let mut whole = frame(0x81, &vec![b' '; LARGE]);
    whole.pop();
    whole
}

/// Returns a sequence of pings.
pub fn pings() -> Vec<u8> {
    frame(0x89, &[7; 125]).repeat(8000)
}

/// Returns the head of a request with a long body.
pub fn head(request: &str, host: &str, headers: &str) -> String {
    format!("{request} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {BODY}\r\n\r\n")
}

/// Returns a header with an invalid signature.
pub fn wrong_signature() -> String {
    format!("X-Hub-Signature-256: sha256={}\r\n", "0".repeat(64))
}

/// The beginning of a request whose head does not end.
pub const UNENDED_HEAD: &str = "GET / HTTP/1.1\r\nX-Long: ";

/// Returns JSON with many values, and one field that is read.
pub fn long_json() -> String {
    format!(r#"{{"x":[{}1],"note":"hello"}}"#, "{},".repeat(VALUES))
}

fn said(text: &str) -> Value {
    json!({ "text": text, "origin": { "kind": "user" } })
}

/// Returns the action that sends a message to a chat.
pub fn prompt(text: &str) -> Value {
    json!({ "type": "chat/turnStarted", "turnId": "t", "message": said(text) })
}

/// Returns the action that sends a message with a long attachment to a chat, of bytes that are zero.
pub fn attaching() -> Value {
    let mut started = prompt("look");
    let data = "A".repeat(ATTACHED / 3 * 4);
    started["message"]["attachments"] =
        json!([{ "type": "embeddedResource", "label": "a.png", "contentType": "image/png", "data": data }]);
    started
}

/// Returns the params that read a resource.
pub fn reading(uri: &str) -> Value {
    json!({ "channel": "ahp-root://", "uri": uri })
}

/// Returns the answer of a client to a read with this id.
pub fn published(id: &Value) -> String {
    let data = "x".repeat(PUBLISHED);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"data":"{data}","encoding":"utf-8"}}}}"#)
}

/// Returns the action that queues a message in a chat.
pub fn queued(nth: i64, text: &str) -> Value {
    json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": format!("q{nth}"), "message": said(text) })
}

/// Returns the action that sets a chat's draft.
pub fn draft(text: &str) -> Value {
    json!({ "type": "chat/draftChanged", "draft": said(text) })
}

/// Returns an active client that contributes 4 MB of tools.
pub fn with_tools(client: &str) -> Value {
    let tool = |at: usize| json!({ "name": format!("t{at}"), "description": "t".repeat(390_000), "inputSchema": { "type": "object" } });
    json!({ "clientId": client, "tools": (0..10).map(tool).collect::<Vec<_>>() })
}

/// Returns the names of files for a long list.
pub fn long_names() -> impl Iterator<Item = String> {
    (0..20_000).map(|at| format!("{at:-<180}"))
}

/// Returns the URI of a session, long enough to make a list of sessions long.
pub fn long_uri(at: i64) -> String {
    format!("echo:/{at}{}", "s".repeat(2000))
}

/// Returns requests for lists: of files, of sessions, and of completions in the session `echo:/typed`.
pub fn lists(files: &str) -> [(&'static str, Value); 3] {
    [
        ("resourceList", json!({ "channel": "ahp-root://", "uri": files })),
        ("listSessions", json!({ "channel": "ahp-root://" })),
        (
            "completions",
            json!({ "channel": "echo:/typed", "kind": "userMessage", "text": "@zz", "offset": 3 }),
        ),
    ]
}

/// A plugin whose route returns the length of a body, read as `?way` says, and the address of the tools of its
/// backend's last session.
pub const COLLECT: &str = "
export const name = 'collect';
export function apply(host) {
  let server;
  host.registerRoute(async (request) => {
    if (request.method === 'GET') return Response.json([server.url, server.token]);
    if (new URL(request.url).search !== '?pieces') return Response.json((await request.text()).length);
    const pieces = [];
    for await (const piece of request.body) pieces.push(piece);
    return Response.json(Buffer.concat(pieces).length);
  });
  host.registerAgent({
    provider: 'agent', displayName: 'Agent',
    schema: () => ({ type: 'object', properties: {} }), defaults: () => ({}),
    async create(start) {
      server = await start.toolsServer();
      return { begin() {}, cancel() {}, close() {} };
    },
  });
}
";
/// The request lines that make the route of [`COLLECT`] read a body as a whole, and in pieces.
pub const COLLECTS: [&str; 2] = ["POST /plugins/collect/", "POST /plugins/collect/?pieces"];
