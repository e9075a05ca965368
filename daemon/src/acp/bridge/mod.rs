//! The bridge: one task that owns the sessions an editor opened. It follows their channels, reports what happens as
//! updates, and turns the editor's requests into the host's actions.

mod events;
mod opening;
mod prompting;
mod questions;
mod returning;
mod settings;
mod unsaved;

use std::collections::HashMap;
use std::sync::Arc;

use ahp::ClientEventStream;
use ostler_contract::{Value, json};
use ostler_protocol::uri;
use ostler_protocol::wire::state::{ChatState, RootState, SessionState, SnapshotState};
use tokio::sync::{mpsc, oneshot};

use self::settings::PendingSetting;
use crate::acp::editor_connection::{Cancellation, Failure, Incoming, PROTOCOL_VERSION, Request, Wire};
use crate::acp::editor_requests::Abilities;
use crate::acp::reconnect;
use crate::acp::{content, options};
use crate::client::Connection;
use crate::exit::Exit;
use crate::place::Place;

/// How many turns of a session are replayed at most when it is loaded.
const REPLAYED: usize = 500;

/// The capabilities of an editor.
#[derive(Debug, Clone, Copy, Default)]
struct Editor {
    notices: bool,
    booleans: bool,
    /// Reads files with their unsaved text.
    files: bool,
    abilities: Abilities,
}

/// An event from a task of the bridge.
enum TaskEvent {
    /// A session was created, or could not be.
    Created { request: Request, session: String, outcome: Result<(), Exit> },
    /// The editor withdrew a prompt.
    Withdrawn { session: String, prompt: u64 },
    /// The editor answered a request for input; `None` for an error.
    Answered { session: String, id: String, number: u64, answer: Option<Value> },
    /// A session requests input in a way that the editor does not support.
    Unsupported { session: String },
    /// The time for the confirmation of a changed setting has passed.
    SettingExpired { number: u64 },
}

/// What a dispatched action waits for.
enum Sent {
    /// The turn that a prompt starts, by its id.
    Prompt { session: String, id: String },
    /// A changed setting, by its number.
    Setting { number: u64 },
    /// The editor's answer to a request for input.
    Answer { session: String, id: String },
    /// Nothing.
    Other,
}

/// An unanswered prompt.
struct Prompt {
    /// Its number, because the id of its turn can differ from the dispatched one.
    number: u64,
    /// Ends the watch for its withdrawal.
    _watched: oneshot::Sender<()>,
    request: Request,
    message: Value,
    waits: Waits,
    /// Whether the editor cancelled it.
    cancelled: bool,
}

/// What a prompt waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// The end of its turn, which was dispatched or runs.
    ForTurn,
    /// The end of another client's turn, after which the host starts its own.
    InQueue,
}

/// A session that the editor opened.
struct Open {
    session: Box<SessionState>,
    session_from: u64,
    chat_uri: String,
    chat: Box<ChatState>,
    chat_from: u64,
    /// The unanswered prompts, by turn or queued message.
    prompts: HashMap<String, Prompt>,
    /// The open requests to the editor, by input request, each with its number, because they are repeated after a
    /// reconnect.
    asked: HashMap<String, (u64, Cancellation)>,
    /// The request that waits for older turns.
    loading: Option<Request>,
    /// The model of the next turns, if the backend has no setting for it.
    model: Option<String>,
}

/// The bridge between an editor and the daemon.
pub struct Bridge {
    daemon: Arc<Connection>,
    events: ClientEventStream,
    wire: Wire,
    provider: Option<String>,
    place: Place,
    editor: Editor,
    root: Option<Box<RootState>>,
    open: HashMap<String, Open>,
    /// Sessions by their default chats.
    chats: HashMap<String, String>,
    sent: HashMap<i64, Sent>,
    /// The changed settings that are not confirmed yet, by number.
    settings: HashMap<u64, PendingSetting>,
    /// The number of changed settings so far.
    changed_settings: u64,
    /// The number of prompts so far.
    prompted: u64,
    /// The number of requests to the editor so far.
    asked: u64,
    task_event_sender: mpsc::UnboundedSender<TaskEvent>,
    task_events: mpsc::UnboundedReceiver<TaskEvent>,
}

impl Bridge {
    /// Creates the bridge between a daemon and an editor. New sessions use this backend.
    pub fn new(daemon: Connection, wire: Wire, provider: Option<String>, place: Place) -> Self {
        let events = daemon.client().events();
        let (task_event_sender, task_events) = mpsc::unbounded_channel();
        Self {
            daemon: Arc::new(daemon),
            events,
            wire,
            provider,
            place,
            editor: Editor::default(),
            root: None,
            open: HashMap::new(),
            chats: HashMap::new(),
            sent: HashMap::new(),
            settings: HashMap::new(),
            changed_settings: 0,
            prompted: 0,
            asked: 0,
            task_event_sender,
            task_events,
        }
    }

    /// Runs until the editor closes its end. Its turns continue. When the daemon closes the connection, it continues
    /// with the next one.
    ///
    /// # Errors
    /// Exit 1 if no daemon returns.
    pub async fn run(mut self, mut incoming: mpsc::Receiver<Incoming>) -> Result<(), Exit> {
        if let SnapshotState::Root(root) = self.subscribe(uri::ROOT).await?.0 {
            self.root = Some(root);
        }
        loop {
            tokio::select! {
                biased;
                Some(event) = self.task_events.recv() => self.handle_task_event(event).await,
                event = self.events.recv() => match event {
                    Some(event) => self.event(event).await,
                    None => tokio::select! {
                        back = reconnect(&self.place, &self.wire) => self.returned(back?).await?,
                        () = self.wire.closed() => return Ok(()),
                    },
                },
                message = incoming.recv() => match message {
                    Some(Incoming::Request(request)) => self.request(request).await,
                    Some(Incoming::Notification { method, params }) => self.notification(&method, &params).await,
                    None => return Ok(()),
                },
            }
        }
    }

    pub(super) async fn subscribe(&self, channel: &str) -> Result<(SnapshotState, u64), Exit> {
        let subscribed = self.daemon.client().subscribe(channel.to_owned()).await;
        let (subscribed, _) = subscribed.map_err(crate::client::exit)?;
        let snapshot = subscribed.snapshot.ok_or_else(|| Exit::machine(format!("{channel} has no state")))?;
        Ok((snapshot.state, u64::try_from(snapshot.from_seq).unwrap_or_default()))
    }

    pub(super) fn update(&self, session: &str, update: &Value) {
        self.wire.notify("session/update", json!({ "sessionId": session, "update": update }));
    }

    async fn notification(&mut self, method: &str, params: &Value) {
        if method == "session/cancel"
            && let Some(session) = params["sessionId"].as_str().map(str::to_owned)
        {
            self.cancel(&session, |_| true).await;
        }
    }

    async fn request(&mut self, request: Request) {
        let session = request.params["sessionId"].as_str().unwrap_or_default().to_owned();
        match request.method.as_str() {
            "initialize" => {
                let answer = self.initialize(&request.params);
                request.answer(Ok(answer));
            }
            // None are offered.
            "authenticate" => {
                let method = request.params["methodId"].as_str().unwrap_or_default().to_owned();
                request.answer(Err(Failure::bad_params(format!("{method:?} is not a method to sign in"))));
            }
            "session/new" => self.create(request),
            "session/load" => self.open(request, &session, true).await,
            "session/resume" => self.open(request, &session, false).await,
            "session/list" => {
                let daemon = self.daemon.clone();
                tokio::spawn(async move {
                    let listed = list(&daemon, &request.params).await;
                    request.answer(listed.map_err(|why| Failure::internal(why.to_string())));
                });
            }
            "session/close" => {
                self.close(&session).await;
                request.answer(Ok(json!({})));
            }
            "session/delete" => {
                self.close(&session).await;
                let daemon = self.daemon.clone();
                tokio::spawn(async move {
                    let outcome = daemon.request("disposeSession", json!({ "channel": session })).await;
                    let outcome =
                        outcome.map(|_| json!({})).map_err(|why| Failure::not_found(why.to_string()));
                    request.answer(outcome);
                });
            }
            "session/prompt" => self.prompt(request, &session).await,
            "session/set_mode" => {
                let value = request.params["modeId"].clone();
                self.set(request, &session, options::MODE.to_owned(), value).await;
            }
            "session/set_config_option" => {
                let id = request.params["configId"].as_str().unwrap_or_default().to_owned();
                let value = request.params["value"].clone();
                self.set(request, &session, id, value).await;
            }
            method => {
                let failure = Failure::unknown_method(method);
                request.answer(Err(failure));
            }
        }
    }

    fn initialize(&mut self, params: &Value) -> Value {
        let capabilities = &params["clientCapabilities"];
        let has =
            |pointer: &str| capabilities.pointer(pointer).is_some_and(|has| has.is_object() || has == true);
        self.editor = Editor {
            notices: has("/session/notices"),
            files: has("/fs/readTextFile"),
            booleans: has("/session/configOptions/boolean"),
            abilities: Abilities { form: has("/elicitation/form"), url: has("/elicitation/url") },
        };
        json!({
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": { "name": "ostler", "title": "ostler", "version": env!("CARGO_PKG_VERSION") },
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": { "image": true, "audio": true, "embeddedContext": true },
                "mcpCapabilities": { "http": false, "sse": false },
                "sessionCapabilities": { "list": {}, "resume": {}, "close": {}, "delete": {}, "additionalDirectories": {} },
            },
            "authMethods": [],
        })
    }
}

/// A page of the host's sessions, most recently changed first.
async fn list(daemon: &Connection, params: &Value) -> Result<Value, Exit> {
    let mut asked = json!({ "channel": uri::ROOT, "limit": 100 });
    if params["cursor"].is_string() {
        asked["cursor"] = params["cursor"].clone();
    }
    let page = daemon.request("listSessions", asked).await?;
    let cwd = params["cwd"].as_str();
    let rows = page["items"].as_array().into_iter().flatten().filter_map(|row| {
        let mut directories = row["workingDirectories"].as_array().into_iter().flatten();
        let directory = directories.next().and_then(Value::as_str).and_then(content::file_path);
        // The protocol requires a directory, so an editor cannot open a session without one.
        let directory = directory.unwrap_or_else(|| "/".to_owned());
        if cwd.is_some_and(|cwd| cwd.trim_end_matches('/') != directory.trim_end_matches('/')) {
            return None;
        }
        let mut shown = json!({ "sessionId": row["resource"], "cwd": directory, "title": row["title"],
            "updatedAt": row["modifiedAt"] });
        let more: Vec<String> =
            directories.filter_map(Value::as_str).filter_map(content::file_path).collect();
        if !more.is_empty() {
            shown["additionalDirectories"] = more.into();
        }
        Some(shown)
    });
    let mut answer = json!({ "sessions": rows.collect::<Vec<_>>() });
    if page["nextCursor"].is_string() {
        answer["nextCursor"] = page["nextCursor"].clone();
    }
    Ok(answer)
}
