//! Attacks on the memory of a daemon: which there are, and what peers send. The tests that attack a daemon make them, and so
//! does `cargo xtask bench peaks`, which includes this file.

use serde_json::{Value, json};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident $what:literal,)+) => {
        /// An attack.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// What the figures about it are called: the most memory a daemon takes, and how long others wait.
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
    /// A large file is read again and again, and no answer is taken.
    Reads "3,000 reads of 30 MiB by peers that read nothing",
    /// Pings, whose answers are not taken.
    Pings "pings of a peer that reads nothing",
    /// Messages of many JSON values, and messages whose last byte never comes.
    Values "messages of 8 million values and messages that never end",
    /// Bodies of senders the host does not know, which never end.
    Unverified "1,200 unverified bodies that never end",
    /// The same, for a route in JavaScript.
    Route "1,200 bodies for a route in JavaScript that never end",
    /// Long JSON of authenticated callers.
    Calls "40 authenticated calls of 24 MiB of JSON",
    /// Sessions, as fast as they are made.
    Sessions "sessions created as fast as it goes",
    /// Prompts as long as one may be and longer, whose answers are not taken.
    Prompts "20 prompts of 4 and 16 MiB by clients that read nothing",
    /// Snapshots of a long chat, which are not taken.
    Snapshots "9,000 snapshots of 20 MB for peers that read nothing",
    /// Pages of a long chat, which are not taken.
    Pages "9,000 pages of 20 MB for peers that read nothing",
    /// Lists and completions, which are not taken.
    Lists "900 lists of 20,000 files and 200 sessions for peers that read nothing",
    /// Tools that a client brings to many sessions.
    Tools "60 sessions to which a client brings 4 MB of tools",
    /// Long messages that wait in chats.
    Queued "80 queued messages of 3.9 MiB",
    /// Long drafts of many sessions.
    Drafts "drafts of 3.9 MiB in 48 sessions",
    /// Requests whose heads never end.
    Heads "2,000 requests whose heads never end",
}

/// How often a peer asks for a file.
pub const READS: usize = 3000;
/// How often each of the peers that take no answers asks.
pub const ASKS: usize = 300;
/// The peers that ask for snapshots or pages.
pub const ASKERS: usize = 30;
/// Bytes of a file that is read.
pub const LARGE: usize = 30 << 20;
/// Bytes of a body that never ends.
pub const BODY: usize = 24 << 20;
/// Values of a message of many.
pub const VALUES: usize = 8_000_000;
/// The longest text of a message, in bytes.
pub const LONGEST: usize = 4 << 20;
/// Text that a chat takes a few of.
pub const LONG: usize = 3900 * 1024;

/// A WebSocket frame of a client; the mask is of zeros.
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

/// A message as a text frame.
pub fn message(message: &Value) -> Vec<u8> {
    frame(0x81, message.to_string().as_bytes())
}

/// Requests, with the ids that follow from 0.
pub fn requests<'a>(requests: impl Iterator<Item = (&'a str, &'a Value)>) -> Vec<u8> {
    let numbered = requests.enumerate();
    numbered
        .flat_map(|(id, (method, params))| {
            message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
        })
        .collect()
}

/// What a client says first.
pub fn introduction(client: &str) -> Value {
    json!({ "channel": "ahp-root://", "clientId": client, "protocolVersions": ["1.0.0"] })
}

/// The frames of a client that comes in, may subscribe, and asks the same thing again and again.
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

/// What a client watches before it asks for pages: none of the chat's turns are in that snapshot.
pub fn watching(chat: &str) -> Value {
    json!({ "channel": chat, "view": { "turns": 0 } })
}

/// What a client asks for pages with; the page before the first turn would be empty.
pub fn page(chat: &str) -> Value {
    json!({ "channel": chat, "cursor": "turn-5" })
}

/// An action that nothing takes, of many values.
pub fn many_values() -> Vec<u8> {
    let values = "{},".repeat(VALUES);
    let action = format!(
        r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":{{"channel":"echo:/a","clientSeq":1,"action":{{"x":[{values}1]}}}}}}"#
    );
    frame(0x81, action.as_bytes())
}

/// A frame without its last byte.
pub fn never_ended() -> Vec<u8> {
    let mut whole = frame(0x81, &vec![b' '; LARGE]);
    whole.pop();
    whole
}

/// Pings, one after the other.
pub fn pings() -> Vec<u8> {
    frame(0x89, &[7; 125]).repeat(8000)
}

/// The head of a request whose body is long.
pub fn head(request: &str, host: &str, headers: &str) -> String {
    format!("{request} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {BODY}\r\n\r\n")
}

/// A head that is signed by nobody.
pub fn wrong_signature() -> String {
    format!("X-Hub-Signature-256: sha256={}\r\n", "0".repeat(64))
}

/// A request without the end of its head.
pub const UNENDED_HEAD: &str = "GET / HTTP/1.1\r\nX-Long: ";

/// JSON of many values and what is read of it.
pub fn long_json() -> String {
    format!(r#"{{"x":[{}1],"note":"hello"}}"#, "{},".repeat(VALUES))
}

fn said(text: &str) -> Value {
    json!({ "text": text, "origin": { "kind": "user" } })
}

/// Says something in a chat.
pub fn prompt(text: &str) -> Value {
    json!({ "type": "chat/turnStarted", "turnId": "t", "message": said(text) })
}

/// Has a message wait in a chat.
pub fn queued(nth: i64, text: &str) -> Value {
    json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": format!("q{nth}"), "message": said(text) })
}

/// Leaves a draft in a chat.
pub fn draft(text: &str) -> Value {
    json!({ "type": "chat/draftChanged", "draft": said(text) })
}

/// A client that brings 4 MB of tools.
pub fn with_tools(client: &str) -> Value {
    let tool = |at: usize| json!({ "name": format!("t{at}"), "description": "t".repeat(390_000), "inputSchema": { "type": "object" } });
    json!({ "clientId": client, "tools": (0..10).map(tool).collect::<Vec<_>>() })
}

/// The names of files that make a long list.
pub fn long_names() -> impl Iterator<Item = String> {
    (0..20_000).map(|at| format!("{at:-<180}"))
}

/// The URI of a session, which a list is long with.
pub fn long_uri(at: i64) -> String {
    format!("echo:/{at}{}", "s".repeat(2000))
}

/// What is asked for lists: of the files, of the sessions, and of what completes a message in the session `echo:/typed`.
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

/// A plugin whose route answers how long a body is, read as `?way` says, and where the tools of its backend's last
/// session are.
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
/// Where the route of [`COLLECT`] takes a body whole, and in pieces.
pub const COLLECTS: [&str; 2] = ["POST /plugins/collect/", "POST /plugins/collect/?pieces"];
