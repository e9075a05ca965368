//! Random conversations under disturbances: whatever was said, set and reported, a session that slept, and one whose host was
//! stopped, killed, lost or replaced, is the one that its clients had, and its backend begins with what they see. A step is an action of the protocol's table, by a client or a backend, or a
//! command. Each dispatched action is answered at most once, and exactly once if it changed something. What a failure does not
//! need is removed from its conversation before it is shown.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ostler_contract::points::{Emit, Worker, WorkerRequest};
use ostler_contract::{Value, json};
use ostler_protocol::actions::{ACTIONS, Scope};
use ostler_protocol::uri;
use ostler_testkit::{Stage, action};

use super::shrink::shrink;
use super::world::{Disturbance, Home, SESSION, World};

/// Steps between two disturbances.
const STEPS: u64 = 25;
/// Disturbances of a conversation.
const DISTURBANCES: u64 = 4;
/// Conversations of each run; `OSTLER_CONVERSATIONS` asks for more, and `OSTLER_SEED` for a single one.
const CONVERSATIONS: u64 = 24;

/// How long and how often a failed conversation is repeated with less of it.
const SHRINKING: Duration = Duration::from_secs(60);
const MOST_REPEATS: usize = 300;

/// Actions that no step makes, with the reason.
const NOT_MADE: &[(&str, &str)] = &[
    ("session/ready", "of the host, at the creation"),
    ("session/creationFailed", "no session is left"),
    ("session/chatAdded", "of the host: createChat and workers"),
    ("session/chatRemoved", "of the host: disposeChat and truncation"),
    ("session/chatUpdated", "of the host, at each change of a chat"),
    ("session/chatsReordered", "of the host: moveChat"),
    ("session/defaultChatChanged", "of the host: disposeChat"),
    ("chat/movableChanged", "of the host"),
    ("chat/turnsLoaded", "of clients alone, at a page of turns"),
];

/// A small generator of numbers, the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn any<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(of.len().max(1) as u64);
        of.get(usize::try_from(at).unwrap())
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A client dispatches.
    Dispatch(String, Value),
    /// The backend of a chat emits.
    Emit(String, bool, Value),
    /// A client sends a command.
    Command(&'static str, Value),
    /// The backend of a chat opens a worker for a call.
    Worker(String, String),
}

struct Talk {
    world: World,
    home: Home,
    random: Random,
    number: u64,
    /// The first start of a backend since the last disturbance; earlier ones have ended.
    first: usize,
    workers: HashMap<String, Worker>,
    made: BTreeSet<String>,
    log: Vec<String>,
    /// What was chosen, for another talk that repeats it.
    chosen: Chosen,
}

/// What a talk chose until it failed.
type Chosen = Arc<Mutex<Vec<Event>>>;

#[derive(Debug, Clone)]
enum Event {
    Step(Step),
    Disturbance(Disturbance),
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn user(words: &str) -> Value {
    json!({ "text": words, "origin": { "kind": "user" } })
}

impl Talk {
    async fn new(seed: u64, made: BTreeSet<String>, chosen: Chosen) -> Self {
        let stage =
            Stage::default().with_chats().in_many_folders().naming_conversations().resuming().recording();
        let stage = if seed.is_multiple_of(2) { stage.steering() } else { stage };
        let homes = [Home::Memory, Home::Cluster, Home::Files, Home::Cluster];
        let home = homes[usize::try_from(seed / 2 % 4).unwrap()];
        let world = World::at(home, stage).await;
        let workers = HashMap::new();
        Self {
            world,
            home,
            random: Random(seed),
            number: 0,
            first: 0,
            workers,
            made,
            log: Vec::new(),
            chosen,
        }
    }

    fn id(&mut self, of: &str) -> String {
        self.number += 1;
        format!("{of}{}", self.number)
    }

    async fn read(&mut self, channel: &str) -> Value {
        let subscribed = self.world.client.request("subscribe", json!({ "channel": channel })).await;
        subscribed.map(|subscribed| subscribed["snapshot"]["state"].clone()).unwrap_or_default()
    }

    /// The states of the session, of its annotations and of its chats.
    async fn states(&mut self) -> (Value, Value, Vec<Value>) {
        let session = self.read(SESSION).await;
        let notes = self.read(&uri::annotations(SESSION)).await;
        let mut chats = Vec::new();
        for chat in list(&session["chats"]) {
            chats.push(self.read(&text(&chat["resource"])).await);
        }
        (session, notes, chats)
    }

    /// The number of the latest start of a chat's backend.
    fn backend(&self, chat: &str) -> Option<usize> {
        let stage = &self.world.stage;
        (self.first..stage.started()).rev().find(|at| stage.start(*at).chat_uri == chat)
    }

    /// Makes a step of the given name, if the states have what it needs.
    #[expect(clippy::too_many_lines, reason = "one row for each action of the table")]
    fn make(&mut self, name: &str, (session, notes, chats): &(Value, Value, Vec<Value>)) -> Option<Step> {
        let chat = self.random.any(chats)?.clone();
        let at = text(&chat["resource"]);
        let open = chat["interactivity"] != "read-only";
        let turn = chat["activeTurn"]["id"].as_str().map(str::to_owned);
        let parts = list(&chat["activeTurn"]["responseParts"]);
        let calls: Vec<Value> = parts
            .iter()
            .filter(|part| part["kind"] == "toolCall")
            .map(|part| part["toolCall"].clone())
            .collect();
        let in_state = |states: &[&str]| -> Vec<String> {
            let known = |call: &&Value| states.iter().any(|state| call["status"] == *state);
            calls.iter().filter(known).map(|call| text(&call["toolCallId"])).collect()
        };
        let questions: Vec<String> = parts
            .iter()
            .filter(|part| part["kind"] == "inputRequest" && part.get("response").is_none())
            .map(|part| text(&part["request"]["id"]))
            .collect();
        let customizations: Vec<String> =
            list(&session["customizations"]).iter().map(|one| text(&one["id"])).collect();
        let queued: Vec<String> = list(&chat["queuedMessages"]).iter().map(|one| text(&one["id"])).collect();
        let turns: Vec<String> = list(&chat["turns"]).iter().map(|one| text(&one["id"])).collect();
        let annotations = list(&notes["annotations"]);
        let flip = self.random.flip();
        let folder = format!("file:///srv/{}", self.random.any(&["a", "b", "c"])?);
        let words = self.id("words ");
        let dispatch = |to: &str, mut action: Value| {
            action["type"] = name.into();
            Some(Step::Dispatch(to.to_owned(), action))
        };
        let emits = |in_session: bool, mut action: Value| {
            action["type"] = name.into();
            Some(Step::Emit(at.clone(), in_session, action))
        };
        let mut call = |states: &[&str]| self.random.any(&in_state(states)).cloned();
        let in_turn = json!({ "turnId": turn });
        let with = |mut base: Value, more: Value| {
            base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            base
        };
        match name {
            "session/titleChanged" => dispatch(SESSION, json!({ "title": words })),
            "session/activeClientSet" => {
                let tool =
                    json!({ "name": "shout", "description": words, "inputSchema": { "type": "object" } });
                dispatch(SESSION, json!({ "activeClient": { "clientId": "c", "tools": [tool] } }))
            }
            "session/activeClientRemoved" => dispatch(SESSION, json!({ "clientId": "c" })),
            "session/workingDirectorySet" | "session/workingDirectoryRemoved" => {
                dispatch(SESSION, json!({ "directory": folder }))
            }
            "session/workingDirectoryReplaced" => {
                let directory = list(&session["workingDirectories"]).first()?.clone();
                dispatch(SESSION, json!({ "directory": directory, "replacement": folder }))
            }
            "session/customizationToggled" => {
                let id = self.random.any(&customizations)?;
                let decision = json!([{ "kind": "session", "enabled": flip }]);
                dispatch(SESSION, json!({ "id": id, "enablement": decision }))
            }
            "session/mcpServerStartRequested"
            | "session/mcpServerStopRequested"
            | "session/mcpServerBackgroundRequested" => {
                dispatch(SESSION, json!({ "id": self.random.any(&["server", "kit"])? }))
            }
            "session/isReadChanged" => dispatch(SESSION, json!({ "isRead": flip })),
            "session/isArchivedChanged" => dispatch(SESSION, json!({ "isArchived": flip })),
            "session/configChanged" => dispatch(SESSION, json!({ "config": { "mood": words } })),
            "session/inputNeededSet" => {
                let request = json!({ "kind": "chatInput", "id": words, "chat": at, "request": { "id": words, "message": words } });
                turn.as_ref().and_then(|_| emits(true, json!({ "request": request })))
            }
            "session/inputNeededRemoved" => {
                let id = list(&session["inputNeeded"]).first()?["id"].clone();
                emits(true, json!({ "id": id }))
            }
            "session/customizationsChanged" => {
                let server = json!({ "type": "mcpServer", "id": "server", "uri": "file:///mcp.json", "name": words,
                    "enabled": flip, "state": { "kind": "stopped" } });
                let kit = json!({ "type": "plugin", "id": "kit", "uri": "file:///kit", "name": words,
                    "children": [{ "type": "skill", "id": "braid", "uri": "file:///kit/braid", "name": "braid" }] });
                emits(true, json!({ "customizations": [server, kit] }))
            }
            "session/customizationUpdated" => {
                let kit = json!({ "type": "plugin", "id": "more", "uri": "file:///more", "name": words });
                emits(true, json!({ "customization": kit }))
            }
            "session/customizationRemoved" => emits(true, json!({ "id": self.random.any(&customizations)? })),
            "session/mcpServerStateChanged" => {
                let state = json!({ "kind": "error", "error": { "errorType": "x", "message": words } });
                emits(true, json!({ "id": "server", "state": state }))
            }
            "session/serverToolsChanged" => {
                let tool =
                    json!({ "name": "rake", "description": words, "inputSchema": { "type": "object" } });
                emits(true, json!({ "tools": [tool] }))
            }
            "session/activityChanged" => {
                emits(true, if flip { json!({ "activity": words }) } else { json!({}) })
            }
            "session/changesetsChanged" => {
                let changes =
                    json!([{ "label": words, "uriTemplate": "ahp-changeset:/x", "changeKind": "custom" }]);
                emits(true, json!({ "changesets": changes }))
            }
            "session/metaChanged" => {
                emits(true, json!({ "_meta": { "farm.herd": words, "agentHost/sessionArtifacts": [words] } }))
            }
            "chat/turnStarted" if open && turn.is_none() => {
                dispatch(&at, json!({ "turnId": self.id("t"), "message": user(&words) }))
            }
            "chat/turnCancelled" => dispatch(&at, with(json!({ "turnId": turn? }), json!({ "duration": 1 }))),
            "chat/turnResume" => dispatch(&at, json!({ "turnId": turns.last()? })),
            "chat/delta" | "chat/reasoning" => {
                let kind = if name == "chat/delta" { "markdown" } else { "reasoning" };
                let part = parts.iter().find(|part| part["kind"] == kind)?["id"].clone();
                emits(false, with(in_turn, json!({ "partId": part, "content": words })))
            }
            "chat/responsePart" => {
                turn?;
                let kind = if flip { "markdown" } else { "reasoning" };
                emits(
                    false,
                    with(in_turn, json!({ "part": { "kind": kind, "id": self.id("p"), "content": words } })),
                )
            }
            "chat/toolCallStart" => {
                turn?;
                let mut start =
                    json!({ "toolCallId": self.id("call"), "toolName": "dig", "displayName": words });
                start["contributor"] = match flip {
                    true => json!({ "kind": "client", "clientId": "c" }),
                    false => json!({ "kind": "mcp", "customizationId": "server" }),
                };
                emits(false, with(in_turn, start))
            }
            "chat/toolCallDelta" => {
                emits(false, with(in_turn, json!({ "toolCallId": call(&["streaming"])?, "content": words })))
            }
            "chat/toolCallReady" => {
                let mut ready = json!({ "toolCallId": call(&["streaming"])?, "invocationMessage": words });
                if flip {
                    ready["confirmed"] = "not-needed".into();
                }
                emits(false, with(in_turn, ready))
            }
            "chat/toolCallConfirmed" => {
                let confirmed = json!({ "toolCallId": call(&["pending-confirmation"])?, "approved": flip,
                    "confirmed": "user-action", "reason": "denied" });
                dispatch(&at, with(in_turn, confirmed))
            }
            "chat/toolCallAuthRequired" => {
                let auth =
                    json!({ "reason": "required", "resource": { "resource": "https://barn.example" } });
                emits(false, with(in_turn, json!({ "toolCallId": call(&["running"])?, "auth": auth })))
            }
            "chat/toolCallAuthResolved" => {
                emits(false, with(in_turn, json!({ "toolCallId": call(&["auth-required"])? })))
            }
            "chat/toolCallContentChanged" => {
                let content = json!([{ "type": "text", "text": words }]);
                let changed = with(in_turn, json!({ "toolCallId": call(&["running"])?, "content": content }));
                if flip { emits(false, changed) } else { dispatch(&at, changed) }
            }
            "chat/toolCallComplete" => {
                let result = json!({ "success": flip, "pastTenseMessage": words });
                let confirms = self.random.flip();
                let id = self.random.any(&in_state(&["running"]))?.clone();
                let complete =
                    json!({ "toolCallId": id, "result": result, "requiresResultConfirmation": confirms });
                let complete = with(in_turn, complete);
                if flip { emits(false, complete) } else { dispatch(&at, complete) }
            }
            "chat/toolCallResultConfirmed" => {
                let confirmed =
                    json!({ "toolCallId": call(&["pending-result-confirmation"])?, "approved": flip });
                dispatch(&at, with(in_turn, confirmed))
            }
            "chat/turnComplete" => emits(false, json!({ "turnId": turn?, "duration": 1 })),
            "chat/error" => {
                let part = json!({ "kind": "error", "error": { "errorType": "x", "message": words }, "resumable": flip });
                emits(false, json!({ "turnId": turn?, "duration": 1, "part": part }))
            }
            "chat/activityChanged" => {
                emits(false, if flip { json!({ "activity": words }) } else { json!({}) })
            }
            "chat/backgroundWorkSet" => {
                let work = json!({ "kind": "shell", "id": "w", "label": words, "command": "make", "startedAt": "2026-01-01T00:00:00Z" });
                emits(false, json!({ "work": work }))
            }
            "chat/backgroundWorkRemoved" => emits(false, json!({ "id": "w" })),
            "chat/changesetsChanged" => {
                let changes =
                    json!([{ "label": words, "uriTemplate": "ahp-changeset:/y", "changeKind": "custom" }]);
                emits(false, json!({ "changesets": changes }))
            }
            "chat/canvasesChanged" => {
                emits(false, json!({ "canvases": [{ "resource": format!("ahp-canvas:/{}", self.number) }] }))
            }
            "chat/usage" => {
                let usage = json!({ "inputTokens": self.random.below(100), "outputTokens": 3 });
                emits(false, json!({ "turnId": turn?, "usage": usage }))
            }
            "chat/workingDirectorySet" | "chat/workingDirectoryRemoved" => {
                dispatch(&at, json!({ "directory": folder }))
            }
            "chat/pendingMessageSet" => {
                let kind = if flip { "queued" } else { "steering" };
                dispatch(&at, json!({ "kind": kind, "id": self.id("q"), "message": user(&words) }))
            }
            "chat/pendingMessageRemoved" => {
                dispatch(&at, json!({ "kind": "queued", "id": self.random.any(&queued)? }))
            }
            "chat/queuedMessagesReordered" => {
                let order: Vec<_> = queued.iter().rev().collect();
                dispatch(&at, json!({ "order": order }))
            }
            "chat/draftChanged" => {
                dispatch(&at, if flip { json!({ "draft": user(&words) }) } else { json!({}) })
            }
            "chat/isReadChanged" => dispatch(&at, json!({ "isRead": flip })),
            "chat/isArchivedChanged" => dispatch(&at, json!({ "isArchived": flip })),
            "chat/inputRequested" => {
                turn?;
                let question = json!({ "kind": "text", "id": "why", "message": words });
                emits(
                    false,
                    json!({ "request": { "id": self.id("ask"), "message": words, "questions": [question] } }),
                )
            }
            "chat/inputAnswerChanged" => {
                let answer = json!({ "state": "draft", "value": { "kind": "text", "value": words } });
                dispatch(
                    &at,
                    json!({ "requestId": self.random.any(&questions)?, "questionId": "why", "answer": answer }),
                )
            }
            "chat/inputCompleted" => {
                let response = if flip { "accept" } else { "decline" };
                dispatch(&at, json!({ "requestId": self.random.any(&questions)?, "response": response }))
            }
            "chat/truncated" if self.random.below(4) == 0 => {
                dispatch(&at, if flip { json!({ "turnId": self.random.any(&turns)? }) } else { json!({}) })
            }
            "annotations/set" => {
                let (id, entry) = (self.id("note"), self.id("entry"));
                let entries = json!([{ "id": entry, "text": words }]);
                let annotation = json!({ "id": id, "origin": { "session": SESSION }, "resource": "file:///srv/a",
                    "resolved": flip, "entries": entries });
                dispatch(&uri::annotations(SESSION), json!({ "annotation": annotation }))
            }
            _ if name.starts_with("annotations/") => {
                let annotation = self.random.any(&annotations)?.clone();
                let entry = list(&annotation["entries"]).first()?.clone();
                let action = match name {
                    "annotations/updated" => json!({ "annotationId": annotation["id"], "resolved": flip }),
                    "annotations/removed" => json!({ "annotationId": annotation["id"] }),
                    "annotations/entrySet" => {
                        json!({ "annotationId": annotation["id"], "entry": { "id": self.id("entry"), "text": words } })
                    }
                    _ => json!({ "annotationId": annotation["id"], "entryId": entry["id"] }),
                };
                dispatch(&uri::annotations(SESSION), action)
            }
            "createChat" if chats.len() < 5 => {
                let mut params = json!({ "channel": SESSION, "chat": format!("ahp-chat:/{}", self.id("c")) });
                if let Some(turn) = turns.last().filter(|_| open) {
                    let kind = if flip { "fork" } else { "sideChat" };
                    params["source"] = json!({ "kind": kind, "chat": at, "turnId": turn });
                } else if flip {
                    params["initialMessage"] = user(&words);
                }
                Some(Step::Command("createChat", params))
            }
            "disposeChat" if chats.len() > 2 && open && self.random.below(4) == 0 => {
                Some(Step::Command("disposeChat", json!({ "channel": at })))
            }
            "moveChat" if chats.len() > 1 => {
                let destination = json!({ "kind": "session", "session": SESSION });
                Some(Step::Command("moveChat", json!({ "channel": at, "destination": destination })))
            }
            "worker" if open && chats.len() < 6 => {
                Some(Step::Worker(at, self.random.any(&in_state(&["running"]))?.clone()))
            }
            _ => None,
        }
    }

    /// Takes a step, and checks how a dispatched action was answered.
    async fn take(&mut self, step: Step) {
        self.log.push(format!("{step:?}"));
        match step {
            Step::Dispatch(channel, action) => {
                self.made.insert(text(&action["type"]));
                let before = self.states().await;
                self.world.client.ready_frames().await;
                self.world.seq += 1;
                let seq = self.world.seq;
                self.world.client.dispatch(&channel, seq, action.clone()).await;
                // The answer to a later request of each channel comes after that to the action, and whatever was prepared is done.
                tokio::time::sleep(Duration::from_millis(200)).await;
                let after = self.states().await;
                let own = |frame: &Value| {
                    frame["params"]["origin"]["clientSeq"] == seq
                        && frame["params"]["origin"]["clientId"] == "c"
                };
                let frames = self.world.client.ready_frames().await;
                let answers: Vec<_> = frames.iter().filter(|frame| own(frame)).collect();
                // The default chat has two names, and is watched under both.
                let channels: BTreeSet<_> =
                    answers.iter().map(|frame| text(&frame["params"]["channel"])).collect();
                assert_eq!(channels.len(), answers.len(), "{answers:?}\n{}", self.story());
                if before != after {
                    assert!(!answers.is_empty(), "not answered: {action}\n{}", self.story());
                }
            }
            Step::Emit(chat, in_session, value) => {
                self.made.insert(text(&value["type"]));
                let channel = if in_session { Emit::Session } else { Emit::Chat };
                if let Some(worker) = self.workers.get(&chat).filter(|_| !in_session) {
                    let _ = worker.emit.call((action(value),));
                } else if let Some(number) = self.backend(&chat) {
                    let _ = self.world.stage.start(number).emit.call((channel, action(value)));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Step::Command(method, params) => {
                self.made.insert(method.to_owned());
                let _ = self.world.client.request(method, params).await;
            }
            Step::Worker(chat, call) => {
                self.made.insert("worker".to_owned());
                let request: WorkerRequest =
                    serde_json::from_value(json!({ "title": call, "prompt": "Dig." })).unwrap();
                let Some(number) = self.backend(&chat) else { return };
                let opened = self.world.stage.start(number).subagent.unwrap().call((call, request)).await;
                if let Ok(worker) = opened {
                    self.workers.insert(worker.uri.clone(), worker);
                }
            }
        }
    }

    /// Ends what runs: what a disturbance breaks is another test's.
    async fn settle(&mut self) {
        for _ in 0..60 {
            let (session, _, chats) = self.states().await;
            let mut is_quiet = true;
            for chat in &chats {
                let at = text(&chat["resource"]);
                for work in list(&chat["backgroundWork"]) {
                    self.take(Step::Emit(
                        at.clone(),
                        false,
                        json!({ "type": "chat/backgroundWorkRemoved", "id": work["id"] }),
                    ))
                    .await;
                    is_quiet = false;
                }
                if let Some(turn) = chat["activeTurn"]["id"].as_str() {
                    self.take(Step::Emit(
                        at,
                        false,
                        json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 1 }),
                    ))
                    .await;
                    is_quiet = false;
                }
            }
            for needed in list(&session["inputNeeded"]) {
                let at = self.world.chat.clone();
                self.take(Step::Emit(
                    at,
                    true,
                    json!({ "type": "session/inputNeededRemoved", "id": needed["id"] }),
                ))
                .await;
            }
            // Time is paused, as everywhere in these conversations.
            tokio::time::sleep(Duration::from_secs(6)).await;
            if is_quiet {
                return;
            }
        }
        panic!("it does not come to rest\n{}", self.story());
    }

    /// Makes a call of an MCP server that asks for a token and runs, which random steps rarely do.
    async fn begin_call(&mut self) {
        let (turn, call, chat) = (self.id("t"), self.id("call"), self.world.chat.clone());
        let begin = json!({ "type": "chat/turnStarted", "turnId": turn, "message": user("Dig.") });
        self.choose(Step::Dispatch(chat.clone(), begin)).await;
        let auth = json!({ "reason": "required", "resource": { "resource": "https://barn.example" } });
        for mut step in [
            json!({ "type": "chat/toolCallStart", "toolName": "dig", "displayName": "Dig",
                "contributor": { "kind": "mcp", "customizationId": "server" } }),
            json!({ "type": "chat/toolCallReady", "invocationMessage": "Digging", "confirmed": "not-needed" }),
            json!({ "type": "chat/toolCallAuthRequired", "auth": auth }),
            json!({ "type": "chat/toolCallAuthResolved" }),
        ] {
            step["turnId"] = turn.as_str().into();
            step["toolCallId"] = call.as_str().into();
            self.choose(Step::Emit(chat.clone(), false, step)).await;
        }
    }

    fn story(&self) -> String {
        self.log.join("\n")
    }

    async fn hold(&mut self) {
        let mut names: Vec<&str> = vec!["createChat", "disposeChat", "moveChat", "worker"];
        let of = |scope: Scope| matches!(scope, Scope::Session | Scope::Chat | Scope::Annotations);
        names.extend(ACTIONS.iter().filter(|action| of(action.scope)).map(|action| action.name));
        // What makes the others possible comes more often.
        names.extend(["chat/turnStarted"; 8]);
        names.extend([
            "chat/toolCallStart",
            "chat/toolCallReady",
            "chat/responsePart",
            "session/customizationsChanged",
        ]);
        let of_calls = [
            "Ready",
            "Confirmed",
            "Complete",
            "ResultConfirmed",
            "ContentChanged",
            "AuthRequired",
            "AuthResolved",
        ];
        let often: Vec<&str> = ACTIONS
            .iter()
            .map(|action| action.name)
            .filter(|name| {
                let call = name.strip_prefix("chat/toolCall");
                call.is_some_and(|call| of_calls.contains(&call)) || name.starts_with("chat/input")
            })
            .collect();
        for _ in 0..5 {
            names.extend(&often);
            names.extend([
                "chat/toolCallAuthRequired",
                "chat/toolCallAuthResolved",
                "chat/toolCallAuthResolved",
            ]);
        }
        for _ in 0..DISTURBANCES {
            self.begin_call().await;
            for _ in 0..STEPS {
                let states = self.states().await;
                // What no conversation has made yet is preferred.
                let rare: Vec<&str> = match self.random.below(3) {
                    0 => names.iter().copied().filter(|name| !self.made.contains(*name)).collect(),
                    _ => Vec::new(),
                };
                for number in 0..20 {
                    let from = if number < 10 && !rare.is_empty() { &rare } else { &names };
                    let name = *self.random.any(from).unwrap();
                    if let Some(step) = self.make(name, &states) {
                        self.choose(step).await;
                        break;
                    }
                }
            }
            let how = *self.random.any(&self.home.disturbances()).unwrap();
            self.chosen.lock().unwrap().push(Event::Disturbance(how));
            self.disturb(how).await;
        }
    }

    /// Takes a step that another talk may leave out.
    async fn choose(&mut self, step: Step) {
        self.chosen.lock().unwrap().push(Event::Step(step.clone()));
        self.take(step).await;
    }

    /// Repeats what another talk chose.
    async fn repeat(&mut self, events: &[Event]) {
        // Its own ids are others than those in the steps.
        self.number = 1 << 32;
        for event in events {
            match event.clone() {
                Event::Step(step) => self.take(step).await,
                Event::Disturbance(how) => self.disturb(how).await,
            }
        }
    }

    /// Disturbs the conversation once it is at rest, and compares it with what it was.
    async fn disturb(&mut self, how: Disturbance) {
        self.settle().await;
        let (row, seen) = (self.world.row().await, self.seen().await);
        self.log.push(format!("{how:?}"));
        self.world.disturb(how).await;
        self.workers.clear();
        self.first = self.world.stage.started();
        assert_eq!(self.world.row().await, row, "the row after {how:?}\n{}", self.story());
        let again = self.seen().await;
        for (part, before) in &seen {
            assert_eq!(again.get(part), Some(before), "{part} after {how:?}\n{}", self.story());
        }
        assert_eq!(again.len(), seen.len(), "{:?}\n{}", again.keys(), self.story());
        self.world.watch().await;
        self.check_next_start().await;
    }

    /// What the backend of the default chat is given at its next start agrees with what clients see.
    async fn check_next_start(&mut self) {
        let (session, _, chats) = self.states().await;
        let default = text(&session["defaultChat"]);
        let chat = chats.iter().find(|chat| chat["resource"] == default).unwrap();
        let (turn, starts) = (self.id("t"), self.world.stage.started());
        let begin = json!({ "type": "chat/turnStarted", "turnId": turn, "message": user("Again.") });
        self.take(Step::Dispatch(default.clone(), begin)).await;
        let number =
            (starts..self.world.stage.started()).find(|at| self.world.stage.start(*at).chat_uri == default);
        let number = number.unwrap_or_else(|| panic!("no backend starts\n{}", self.story()));
        let start = self.world.stage.start(number);
        let seed: Vec<Value> =
            start.seed.iter().flatten().map(|turn| serde_json::to_value(turn).unwrap()).collect();
        assert_eq!(Value::Array(seed), Value::Array(list(&chat["turns"])), "the turns\n{}", self.story());
        let settings = serde_json::to_value(&start.settings).unwrap();
        assert_eq!(settings, session["config"]["values"], "the settings\n{}", self.story());
        let directories = [&chat["workingDirectories"], &session["workingDirectories"]];
        let directories: Vec<String> = directories
            .into_iter()
            .find(|of| of.is_array())
            .map(list)
            .unwrap_or_default()
            .iter()
            .map(text)
            .collect();
        let given = start.working_directory.iter().chain(start.additional.iter().flatten());
        let given: Vec<String> = given.map(|path| format!("file://{path}")).collect();
        assert_eq!(given, directories, "the directories\n{}", self.story());
        let tools: BTreeSet<String> =
            start.tools.iter().flatten().map(|tool| tool.definition.name.clone()).collect();
        let brought = list(&session["activeClients"]).iter().any(|client| !list(&client["tools"]).is_empty());
        assert_eq!(tools.contains("c__shout"), brought, "{tools:?}\n{}", self.story());
        let is_new = list(&chat["turns"]).is_empty();
        assert!(is_new || start.resume.is_some(), "it resumes\n{}", self.story());
        self.settle().await;
    }

    /// What clients see, by channel and field.
    async fn seen(&mut self) -> BTreeMap<String, Value> {
        let seen = self.world.seen().await;
        let mut parts = BTreeMap::new();
        let mut add = |channel: &str, state: &Value| {
            for (field, value) in state.as_object().unwrap() {
                parts.insert(format!("{channel} {field}"), at_rest(value.clone()));
            }
        };
        add("session", &seen["session"]);
        for chat in list(&seen["chats"]) {
            add(chat["resource"].as_str().unwrap(), &chat);
        }
        let notes = self.read(&uri::annotations(SESSION)).await;
        add("annotations", &notes);
        let root = self.read("ahp-root://").await;
        add("root", &root);
        parts
    }
}

/// What a disturbance ends: the processes of MCP servers.
fn at_rest(mut value: Value) -> Value {
    for listed in value.as_array_mut().into_iter().flatten() {
        if listed["type"] == "mcpServer"
            && ["starting", "ready"].iter().any(|kind| listed["state"]["kind"] == *kind)
        {
            listed["state"] = json!({ "kind": "stopped" });
        }
    }
    value
}

/// Runs a talk in paused time. Returns how it panicked, if it did.
fn held<T, F: Future<Output = T>>(talk: impl FnOnce() -> F) -> std::thread::Result<T> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(talk())))
}

/// Returns the least of a failed conversation that fails.
fn least_of(seed: u64, chosen: Chosen) -> String {
    let repeat = |events: &[Event]| {
        let repeated = held(|| async {
            let mut talk = Talk::new(seed, BTreeSet::new(), Chosen::default()).await;
            talk.repeat(events).await;
        });
        repeated.is_err()
    };
    let chosen = std::mem::take(&mut *chosen.lock().unwrap());
    let (all, end) = (chosen.len(), Instant::now() + SHRINKING);
    // What the repetitions say is not shown, but what other tests say meanwhile.
    let (shown, own) = (Arc::new(take_hook()), std::thread::current().id());
    let others = shown.clone();
    set_hook(Box::new(move |panic| {
        if std::thread::current().id() != own {
            others(panic);
        }
    }));
    let least = shrink(chosen, MOST_REPEATS, |events| Instant::now() < end && repeat(events));
    set_hook(Box::new(move |panic| shown(panic)));
    let steps: String = least.iter().map(|event| format!("    {event:?}\n")).collect();
    format!("{} of the {all} steps of OSTLER_SEED={seed} are enough:\n{steps}", least.len())
}

#[test]
fn a_random_conversation_is_the_same_after_each_disturbance() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let seeds = match (number("OSTLER_SEED"), number("OSTLER_CONVERSATIONS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, many) => 0..many.unwrap_or(CONVERSATIONS),
    };
    let (mut made, all) = (BTreeSet::new(), seeds.end - seeds.start >= CONVERSATIONS);
    for seed in seeds {
        // Printed where the test fails.
        eprintln!("OSTLER_SEED={seed}");
        let chosen = Chosen::default();
        let held = {
            let (made, chosen) = (made.clone(), chosen.clone());
            held(move || async move {
                let mut talk = Talk::new(seed, made, chosen).await;
                talk.hold().await;
                talk.made
            })
        };
        made = match held {
            Ok(made) => made,
            Err(panic) => {
                eprintln!("\n{}", least_of(seed, chosen));
                std::panic::resume_unwind(panic);
            }
        };
    }
    if all {
        let of = |scope: Scope| matches!(scope, Scope::Session | Scope::Chat | Scope::Annotations);
        let missing: Vec<_> = ACTIONS
            .iter()
            .filter(|action| of(action.scope) && !made.contains(action.name))
            .map(|action| action.name)
            .filter(|name| NOT_MADE.iter().all(|(not, _)| not != name))
            .collect();
        assert_eq!(missing, [""; 0], "no step makes these actions; add it, or say why in NOT_MADE");
    }
}
