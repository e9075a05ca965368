//! Authority ends when it ends: everything that lives by a sign-in, a token or a grant, after each way in which a user
//! can lose it. What a browser, the HTTP API, a bot's endpoint and a notification's link hold is tried on a daemon, in
//! `daemon/tests/host/authority.rs`.

use std::path::Path;
use std::sync::Arc;

use ostler_contract::host::SessionRequest;
use ostler_contract::points::{Emit, Terminal, TerminalEvents, TerminalRequest, TerminalStore};
use ostler_contract::{Call, Plugin, Value, json};
use ostler_engine::users::{Ends, Living, UsersFile, hash_of};
use ostler_engine::{People, Principal};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_protocol::grants::Grant;
use ostler_protocol::uri;
use ostler_testkit::{MemoryHost, RawClient, SIGN_IN, Stage, action};
use parking_lot::Mutex;
use tempfile::TempDir;

const SESSION: &str = "stage:/1";
/// The session in which the agent works by itself.
const ALONE: &str = "stage:/2";
const SHELL: &str = "ahp-terminal:/ben";
pub const DAN: &str = "dan's";
/// A resource that the agent takes tokens for.
const MODELS: &str = "https://models.example";

/// A way in which ben loses what he had, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    /// The user is removed.
    Removed,
    /// The user's role is another one, without grants.
    Demoted,
    /// The role loses its grants.
    RoleEmptied,
    /// The role is removed.
    RoleRemoved,
    /// The role loses the grants to send messages, and keeps that to create sessions.
    SendLost,
    /// The role loses the grant to create sessions, and keeps that to send messages.
    CreateLost,
    /// The role keeps the grants of terminals only.
    SessionsLost,
    /// The role keeps the grants of sessions only.
    TerminalsLost,
    /// The user leaves the team that gave a part of the grants.
    TeamLeft,
    /// The user has another personal token.
    TokenReplaced,
    /// The client takes its token back.
    SignedOut,
    /// Something about another user changes.
    Unrelated,
}

const CHANGES: [Change; 12] = [
    Change::Removed,
    Change::Demoted,
    Change::RoleEmptied,
    Change::RoleRemoved,
    Change::SendLost,
    Change::CreateLost,
    Change::SessionsLost,
    Change::TerminalsLost,
    Change::TeamLeft,
    Change::TokenReplaced,
    Change::SignedOut,
    Change::Unrelated,
];

impl Change {
    /// Whether ben, the user, may do nothing with sessions afterwards, whoever asks in his name.
    fn takes_sessions(self) -> bool {
        match self {
            Self::Removed | Self::Demoted | Self::RoleEmptied | Self::RoleRemoved | Self::SessionsLost => {
                true
            }
            Self::SendLost
            | Self::CreateLost
            | Self::TerminalsLost
            | Self::TeamLeft
            | Self::TokenReplaced
            | Self::SignedOut
            | Self::Unrelated => false,
        }
    }

    /// Whether ben may send no messages afterwards.
    fn takes_send(self) -> bool {
        self == Self::SendLost || self.takes_sessions()
    }

    /// Whether nobody may work in ben's name afterwards.
    fn takes_create(self) -> bool {
        self == Self::CreateLost || self.takes_sessions()
    }

    /// Whether ben may do nothing with terminals afterwards.
    fn takes_terminals(self) -> bool {
        match self {
            Self::SessionsLost => false,
            Self::TerminalsLost => true,
            _ => self.takes_sessions(),
        }
    }

    /// Whether the connection is no longer ben's.
    fn takes_identity(self) -> bool {
        matches!(self, Self::Removed | Self::TokenReplaced | Self::SignedOut)
    }

    async fn make(self, host: &MemoryHost, ben: &mut RawClient) {
        let mut users = file();
        match self {
            Self::Removed => drop(users["users"].as_array_mut().unwrap().remove(0)),
            Self::Demoted => users["users"][0]["roles"] = json!(["none"]),
            Self::RoleEmptied => users["roles"]["works"] = json!([]),
            Self::SendLost => {
                users["roles"]["works"] = json!(["session:read", "session:create", "terminal:*"]);
            }
            Self::CreateLost => users["roles"]["works"] = json!(["session:read", "chat:send", "terminal:*"]),
            Self::SessionsLost => users["roles"]["works"] = json!(["terminal:*"]),
            Self::TerminalsLost => users["roles"]["works"] = json!(["session:*"]),
            Self::RoleRemoved => drop(users["roles"].as_object_mut().unwrap().shift_remove("works")),
            Self::TeamLeft => users["users"][0]["memberships"] = json!([]),
            Self::TokenReplaced => users["users"][0]["token"] = json!(hash_of("new")),
            Self::SignedOut => {
                ben.request("authenticate", json!({ "resource": SIGN_IN, "token": "" })).await.unwrap();
            }
            Self::Unrelated => {
                users["users"].as_array_mut().unwrap().push(json!({ "id": "eve", "roles": ["works"] }));
            }
        }
        set(host, &users);
    }
}

pub fn file() -> Value {
    json!({
        "teams": { "core": { "title": "Core" } },
        "projects": { "site": { "title": "Site" } },
        "roles": { "works": ["session:*", "terminal:*"], "none": [] },
        "users": [
            { "id": "ben", "roles": ["works"], "token": hash_of("ben's"), "memberships": ["core"] },
            { "id": "dan", "roles": ["admin"], "token": hash_of(DAN) },
        ]
    })
}

pub fn set(host: &MemoryHost, file: &Value) {
    host.host.access.gate.people().unwrap().set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    host.host.review_authority();
}

/// Everything that ben has on a host before he loses it.
struct Work {
    host: MemoryHost,
    stage: Stage,
    ben: RawClient,
    dan: RawClient,
    chat: String,
    /// The chat in which a bot of ben has accepted a call.
    called: String,
    closed: Arc<Mutex<Vec<String>>>,
}

pub async fn client(host: &MemoryHost, name: &str, token: &str) -> RawClient {
    let mut client = host.raw();
    client.initialize(name).await;
    client.request("authenticate", json!({ "resource": SIGN_IN, "token": token })).await.unwrap();
    client.request("subscribe", json!({ "channel": uri::ROOT })).await.unwrap();
    client
}

async fn work() -> Work {
    let stage = Stage::default();
    let closed: Arc<Mutex<Vec<String>>> = Arc::default();
    let terminals = closed.clone();
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .plugin(Plugin::new("@test/caller", |_, _| Box::pin(async { Ok(()) })), json!({}))
        .session_tools()
        .own(move |host| {
            let create = Call::now(move |(request, _): (TerminalRequest, TerminalEvents)| {
                let closed = terminals.clone();
                Ok(Terminal {
                    input: Call::now(|_| Ok(())),
                    dispose: Call::now(move |()| {
                        closed.lock().push(request.terminal.clone());
                        Ok(())
                    }),
                    ..Terminal::default()
                })
            });
            host.register_terminals(TerminalStore { create, ..TerminalStore::default() }, None)
        })
        .people(People::new(SIGN_IN, "inn"))
        .start()
        .await;
    set(&host, &file());
    let mut ben = client(&host, "ben", "ben's").await;
    let dan = client(&host, "dan", DAN).await;
    ben.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let chat = uri::default_chat(SESSION);
    for channel in [SESSION, &chat] {
        ben.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    let claim = json!({ "kind": "client", "clientId": "ben" });
    ben.request("createTerminal", json!({ "channel": SHELL, "claim": claim })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Go." } });
    ben.dispatch(&chat, 1, turn).await;
    ben.actions_until("chat/turnStarted").await;
    stage.wait_told("begin").await;
    let queued = |id: &str, text: &str| {
        let message = json!({ "text": text });
        json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message })
    };
    for (id, text) in [("q1", "And on."), ("q2", "!and a command")] {
        ben.dispatch(&chat, 2, queued(id, text)).await;
        ben.actions_until("chat/pendingMessageSet").await;
    }
    // As the webhook of a bot does.
    let grants = ["chat:send", "chat:read"].map(|grant| Grant::parse(grant).unwrap());
    let mut caller = host.raw_as(Principal::Plugin { id: "caller".to_owned(), grants: grants.into() });
    caller.initialize("caller").await;
    caller.dispatch(&chat, 1, queued("q3", "By plugin.")).await;
    ben.actions_until("chat/pendingMessageSet").await;
    // As a bot of ben does for whoever calls it.
    let request = SessionRequest {
        owner: "root:localhost".to_owned(),
        provider: Some("stage".to_owned()),
        works_for: Some("user:ben".to_owned()),
        ..SessionRequest::default()
    };
    let called = uri::default_chat(&host.plugin("caller").start_session(request).await.unwrap());
    caller.request("subscribe", json!({ "channel": called })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "c1", "message": { "text": "A call." } });
    caller.dispatch(&called, 2, turn).await;
    caller.actions_until("chat/turnStarted").await;
    ben.request("createSession", json!({ "channel": ALONE })).await.unwrap();
    let alone = uri::default_chat(ALONE);
    ben.request("subscribe", json!({ "channel": alone })).await.unwrap();
    let work = json!({ "kind": "shell", "id": "w", "label": "Build", "command": "make", "startedAt": "2026-01-01T00:00:00Z" });
    stage.emit(2, Emit::Chat, json!({ "type": "chat/backgroundWorkSet", "work": work }));
    stage.emit(2, Emit::Chat, own_turn("By itself."));
    ben.actions_until("chat/turnStarted").await;
    ben.dispatch(&alone, 3, queued("q", "Then this.")).await;
    ben.actions_until("chat/pendingMessageSet").await;
    Work { host, stage, ben, dan, chat, called, closed }
}

/// A turn that the agent begins, in which it says that dan had sent the message.
fn own_turn(text: &str) -> Value {
    let message =
        json!({ "text": text, "origin": { "kind": "user" }, "_meta": { "ostler.sender": "user:dan" } });
    json!({ "type": "chat/turnStarted", "turnId": text, "startedAt": "", "message": message })
}

impl Work {
    /// The turns of the chat as an administrator sees them: each message, with how its turn ended.
    async fn turns(&mut self) -> Vec<(String, Option<String>)> {
        let chat = self.chat.clone();
        self.turns_of(&chat).await
    }

    async fn turns_of(&mut self, chat: &str) -> Vec<(String, Option<String>)> {
        let state = self.dan.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let state = &state["snapshot"]["state"];
        let error = |turn: &Value| {
            let parts = turn["responseParts"].as_array().cloned().unwrap_or_default();
            parts.iter().find_map(|part| part["error"]["errorType"].as_str().map(str::to_owned))
        };
        let ended = state["turns"].as_array().into_iter().flatten();
        ended.map(|turn| (turn["message"]["text"].as_str().unwrap().to_owned(), error(turn))).collect()
    }

    /// Ends the running turn as the agent does, and waits until what was queued has run or was refused.
    async fn finish(&mut self) {
        let last = json!({ "type": "session/titleChanged", "title": "The end" });
        for turn in 0..8 {
            let state = self.dan.request("subscribe", json!({ "channel": self.chat })).await.unwrap();
            if let Some(running) = state["snapshot"]["state"]["activeTurn"]["id"].as_str() {
                let end = json!({ "type": "chat/turnComplete", "turnId": running, "duration": 1 });
                self.stage.start(0).emit.call((ostler_contract::points::Emit::Chat, action(end))).unwrap();
            }
            // Handled after everything that the end of the turn has set off. One that is refused ends by itself.
            self.dan.dispatch(&self.chat, turn, last.clone()).await;
            self.dan.actions_until("session/titleChanged").await;
        }
    }

    /// Whether a kind of thing goes on after a change.
    async fn goes_on(&mut self, living: Living, change: Change) -> Option<bool> {
        Some(match living {
            Living::Connection => self.ben.request("listSessions", json!({})).await.is_ok(),
            Living::Subscription => {
                self.ben.ready_frames().await;
                // A title is an action on the session, and a notification of the root channel.
                let title = json!({ "type": "session/titleChanged", "title": "Seen" });
                self.dan.dispatch(SESSION, 9, title).await;
                self.dan.request("ping", json!({})).await.unwrap();
                self.ben.request("ping", json!({})).await.unwrap();
                let seen = json!(self.ben.ready_frames().await).to_string();
                let (notified, followed) =
                    (seen.contains("root/sessionSummaryChanged"), seen.contains("session/titleChanged"));
                assert_eq!(notified, followed, "{seen}");
                followed
            }
            Living::RunningTurn => {
                self.dan.request("ping", json!({})).await.unwrap();
                let cancelled = self.stage.told().iter().any(|told| told["cancel"] == "t1");
                let failed = self.turns().await.contains(&("Go.".to_owned(), Some("permission".to_owned())));
                assert_eq!(cancelled, failed);
                !failed
            }
            Living::AgentWork => {
                let alone = uri::default_chat(ALONE);
                let refused = |text: &str| (text.to_owned(), Some("permission".to_owned()));
                if !self.turns_of(&alone).await.contains(&refused("By itself.")) {
                    return Some(true);
                }
                if !change.takes_send() {
                    // The agent has the message that waited, which is ben's own.
                    return Some(false);
                }
                self.stage.emit(2, Emit::Chat, own_turn("Again."));
                // The review that the turn causes follows it, and that which ends the agent follows the queue.
                for _ in 0..1000 {
                    let turns = self.turns_of(&alone).await;
                    let state = self.dan.request("subscribe", json!({ "channel": alone })).await.unwrap();
                    let works = !state["snapshot"]["state"]["backgroundWork"]
                        .as_array()
                        .unwrap_or(&vec![])
                        .is_empty();
                    if turns.contains(&refused("Then this.")) && turns.contains(&refused("Again.")) && !works
                    {
                        return Some(false);
                    }
                }
                panic!("the agent goes on by itself")
            }
            Living::BotCall => {
                let called = self.called.clone();
                let turns = self.turns_of(&called).await;
                !turns.contains(&("A call.".to_owned(), Some("permission".to_owned())))
            }
            Living::QueuedMessage => {
                self.finish().await;
                let turns = self.turns().await;
                let of = |text: &str| turns.iter().find(|(said, _)| said == text).unwrap().1.clone();
                let refused = |text: &str| of(text).as_deref() == Some("permission");
                let is_command_refused = change.takes_send() || change.takes_terminals();
                assert_eq!(refused("!and a command"), is_command_refused, "{turns:?}");
                assert_eq!(refused("By plugin."), change.takes_create(), "{turns:?}");
                !refused("And on.")
            }
            Living::Terminal => {
                self.dan.request("ping", json!({})).await.unwrap();
                !self.closed.lock().contains(&SHELL.to_owned())
            }
            Living::ToolsEndpoint => {
                let start = self.stage.start(0);
                let tool = start.tools.iter().flatten().find(|tool| tool.definition.name == "createChat");
                let run = tool.unwrap().run.clone().unwrap();
                // This backend has one chat, so the call fails in any case.
                let why = run.call((json!({ "prompt": "Go." }), None)).await.unwrap_err();
                why.message != "user:ben may not session:create here"
            }
            Living::Bot => {
                let may = self.host.plugin("caller").may_work_for("user:ben".to_owned());
                may.map_err(|why| assert_eq!(why.message, "user:ben may not session:create here")).is_ok()
            }
            Living::EventStream
            | Living::SignIn
            | Living::NotificationLink
            | Living::PluginConnection
            | Living::LentToken
            | Living::SteeringMessage
            | Living::Schedule => return None,
        })
    }
}

/// Whether a kind of thing may go on after a change.
fn may_go_on(living: Living, change: Change) -> bool {
    match living {
        Living::Connection | Living::Subscription => !change.takes_sessions() && !change.takes_identity(),
        Living::Terminal => !change.takes_terminals(),
        Living::RunningTurn | Living::QueuedMessage => !change.takes_send(),
        _ => !change.takes_create(),
    }
}

#[tokio::test]
async fn everything_ends_with_the_authority_that_it_lives_by() {
    for change in CHANGES {
        let mut work = work().await;
        change.make(&work.host, &mut work.ben).await;
        for living in Living::ALL {
            let Some(goes_on) = work.goes_on(*living, change).await else { continue };
            assert_eq!(goes_on, may_go_on(*living, change), "{living:?} after {change:?}");
        }
    }
}

/// A host in which one session at a time is awake, and the folder of its sessions.
pub async fn host_of_one(stage: &Stage) -> (MemoryHost, TempDir) {
    let state = tempfile::tempdir().unwrap();
    let db = StateDb::open(state.path()).unwrap();
    let sessions =
        Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point();
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .sessions(sessions)
        .options(|options| options.limits.awake_sessions = 1)
        .people(People::new(SIGN_IN, "inn"))
        .start()
        .await;
    set(&host, &file());
    (host, state)
}

#[tokio::test]
async fn an_agent_gets_no_token_of_a_user_who_has_no_grants() {
    for change in CHANGES {
        let stage = Stage::default().asking_for(MODELS);
        let (host, _state) = host_of_one(&stage).await;
        let mut ben = client(&host, "ben", "ben's").await;
        let mut dan = client(&host, "dan", DAN).await;
        ben.request("authenticate", json!({ "resource": MODELS, "token": "lent" })).await.unwrap();
        // The second one puts the first one to sleep.
        for session in [SESSION, "stage:/2"] {
            ben.request("createSession", json!({ "channel": session })).await.unwrap();
        }
        let lent = |number: usize| stage.start(number).credentials.unwrap_or_default().contains_key(MODELS);
        assert!(lent(0) && stage.started() == 2);

        change.make(&host, &mut ben).await;
        let chat = uri::default_chat(SESSION);
        dan.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
        dan.dispatch(&chat, 1, turn).await;
        dan.actions_until("chat/turnStarted").await;
        stage.wait_told("begin").await;
        assert_eq!(lent(2), may_go_on(Living::LentToken, change), "after {change:?}");
    }
}

#[tokio::test]
async fn a_client_is_told_that_its_token_has_ended() {
    for change in [Change::Removed, Change::TokenReplaced] {
        let mut work = work().await;
        work.ben.ready_frames().await;
        change.make(&work.host, &mut work.ben).await;
        loop {
            let frame = work.ben.next_frame().await.unwrap();
            if frame["method"] == "auth/required" {
                assert_eq!(frame["params"]["resource"]["resource"], SIGN_IN);
                assert_eq!(frame["params"]["reason"], "expired");
                break;
            }
        }
    }
}

/// A bot of a team or a project works as long as that is there, whoever its members are.
#[tokio::test]
async fn what_works_for_a_team_or_a_project_ends_with_it() {
    const OWNERS: [&str; 3] = ["user:ben", "team:core", "project:core:site"];
    let mut work = work().await;
    let works =
        |work: &Work| OWNERS.map(|owner| work.host.plugin("caller").may_work_for(owner.to_owned()).is_ok());
    assert_eq!(works(&work), [true, true, true]);
    Change::TeamLeft.make(&work.host, &mut work.ben).await;
    assert_eq!(works(&work), [true, true, true]);
    let mut users = file();
    users["projects"] = json!({});
    set(&work.host, &users);
    assert_eq!(works(&work), [true, true, false]);
    users["users"][0]["memberships"] = json!([]);
    users["teams"] = json!({});
    set(&work.host, &users);
    assert_eq!(works(&work), [true, false, false]);
}

/// The test of a kind that this one does not drive: its file and its name. Nothing ends the connection of a plugin.
fn elsewhere(living: Living) -> Option<(&'static str, &'static str)> {
    match living {
        Living::EventStream => {
            Some(("daemon/tests/host/authority.rs", "what_a_credential_opened_ends_with_it"))
        }
        Living::SignIn => Some(("daemon/tests/host/console.rs", "a_sign_in_ends_with_its_token")),
        Living::NotificationLink => {
            Some(("daemon/tests/notifications/main.rs", "what_the_user_may_decides_when_the_link_is_used"))
        }
        Living::LentToken => Some((
            "crates/engine/tests/people/authority.rs",
            "an_agent_gets_no_token_of_a_user_who_has_no_grants",
        )),
        Living::SteeringMessage => Some((
            "crates/engine/tests/people/steering.rs",
            "a_message_for_a_turn_is_not_delivered_after_its_sender_is_removed",
        )),
        Living::Schedule => Some((
            "crates/engine/tests/automations/owners.rs",
            "an_event_that_wakes_nothing_for_a_missing_grant_is_logged",
        )),
        _ => None,
    }
}

#[tokio::test]
async fn each_kind_that_ends_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut work = work().await;
    for living in Living::ALL.iter().filter(|living| living.ends() != Ends::WithTheDaemon) {
        if work.goes_on(*living, Change::Unrelated).await.is_some() {
            continue;
        }
        let (file, test) = elsewhere(*living).unwrap_or_else(|| panic!("nothing drives {living:?}"));
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}");
    }
}
