//! A backend without behaviour of its own: the test makes it emit actions and reads the calls that it received.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{Agent, AgentSession, ChatAbilities, Emit, Offered, OfferedModel, Start};
use ostler_contract::wire::StateAction;
use ostler_contract::wire::state::{ChatInputAnswer, MessageAttachment};
use ostler_contract::{Call, Frozen, Func, JsonObject, Plugin, Thrown, Value, json};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// The backend `stage`.
#[derive(Debug, Clone, Default)]
pub struct Stage {
    shared: Arc<Shared>,
    without_stop_worker: bool,
    never_closes: bool,
    steers: bool,
    never_steers: bool,
    chats: Option<ChatAbilities>,
    forks_at: Option<Value>,
    many_folders: bool,
    names_itself: bool,
    waits_to_start: bool,
    resumes: bool,
    records: bool,
    protected_resources: Value,
}

#[derive(Debug)]
struct Shared {
    /// How many more sessions may start, where they wait.
    may_start: Semaphore,
    starts: Mutex<Vec<Start>>,
    told: Mutex<Vec<Value>>,
    name: Mutex<Option<String>>,
    /// Why its sessions can no longer continue.
    ended: Mutex<Option<String>>,
    /// How many more starts fail.
    failing: Mutex<usize>,
    /// What it offers.
    offered: Mutex<Offered>,
    /// How often it was asked for that.
    probes: Mutex<usize>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            may_start: Semaphore::new(0),
            starts: Mutex::default(),
            told: Mutex::default(),
            name: Mutex::default(),
            ended: Mutex::default(),
            failing: Mutex::default(),
            offered: Mutex::default(),
            probes: Mutex::default(),
        }
    }
}

/// Parses an action from JSON.
///
/// # Panics
/// If the value is not an action.
pub fn action(value: Value) -> StateAction {
    serde_json::from_value(value).expect("an action of the protocol")
}

impl Stage {
    /// A backend whose sessions cannot stop a single worker.
    #[must_use]
    pub fn without_stop_worker(self) -> Self {
        Self { without_stop_worker: true, ..self }
    }

    /// A backend whose sessions never close.
    #[must_use]
    pub fn never_closing(self) -> Self {
        Self { never_closes: true, ..self }
    }

    /// A backend whose running turns accept messages.
    #[must_use]
    pub fn steering(self) -> Self {
        Self { steers: true, ..self }
    }

    /// A backend whose running turns receive messages to steer by and never answer, but for `Later.`, which they accept
    /// after 4.5 seconds.
    #[must_use]
    pub fn never_steering(self) -> Self {
        Self { steers: true, never_steers: true, ..self }
    }

    /// A backend with several chats in a session, forks and side chats.
    #[must_use]
    pub fn with_chats(self) -> Self {
        Self { chats: Some(ChatAbilities { fork: true, side_chat: true }), ..self }
    }

    /// A backend with several chats in a session that cannot create one from another.
    #[must_use]
    pub fn with_plain_chats(self) -> Self {
        Self { chats: Some(ChatAbilities::default()), ..self }
    }

    /// A backend that declares where it can fork, or that it cannot, by turn in a JSON object.
    #[must_use]
    pub fn forking_at(self, points: Value) -> Self {
        Self { forks_at: Some(points), ..self }
    }

    /// A backend that works in more than one folder.
    #[must_use]
    pub fn in_many_folders(self) -> Self {
        Self { many_folders: true, ..self }
    }

    /// A backend that stores each conversation under its own name, `own-<number>` counted by starts, and deletes it on
    /// request.
    #[must_use]
    pub fn naming_conversations(self) -> Self {
        Self { names_itself: true, ..self }
    }

    /// A backend whose sessions wait with their start for [`Self::let_start`].
    #[must_use]
    pub fn waiting_to_start(self) -> Self {
        Self { waits_to_start: true, ..self }
    }

    /// A backend that continues failed turns.
    #[must_use]
    pub fn resuming(self) -> Self {
        Self { resumes: true, ..self }
    }

    /// A backend that records a name of its own, `own-<turn>`, for each turn that it receives.
    #[must_use]
    pub fn recording(self) -> Self {
        Self { records: true, ..self }
    }

    /// Sets why its sessions can no longer continue.
    pub fn end_with(&self, why: &str) {
        *self.shared.ended.lock() = Some(why.to_owned());
    }

    /// Lets the next starts fail.
    pub fn fail_starts(&self, number: usize) {
        *self.shared.failing.lock() = number;
    }

    /// Sets the models that it offers from now on.
    pub fn offer_models(&self, ids: &[&str]) {
        let model = |id: &&str| OfferedModel {
            id: (*id).to_owned(),
            name: (*id).to_owned(),
            ..OfferedModel::default()
        };
        self.shared.offered.lock().models = ids.iter().map(model).collect();
    }

    /// Returns how often it was asked for what it offers.
    pub fn probes(&self) -> usize {
        *self.shared.probes.lock()
    }

    /// Lets one more session start.
    pub fn let_start(&self) {
        self.shared.may_start.add_permits(1);
    }

    /// A backend that accepts tokens for a resource.
    #[must_use]
    pub fn asking_for(self, resource: &str) -> Self {
        Self { protected_resources: json!([{ "resource": resource, "required": false }]), ..self }
    }

    /// A backend that needs a token for a resource.
    #[must_use]
    pub fn needing(self, resource: &str) -> Self {
        Self { protected_resources: json!([{ "resource": resource }]), ..self }
    }

    /// Returns the plugin that registers the backend.
    pub fn plugin(&self) -> Plugin {
        let stage = self.clone();
        Plugin::new("@test/stage", move |host, _| {
            let stage = stage.clone();
            Box::pin(async move { host.register_agent(stage.agent()) })
        })
    }

    fn agent(self) -> Agent {
        let resources = serde_json::from_value(self.protected_resources.clone()).ok();
        Agent {
            provider: "stage".into(),
            display_name: "Stage".into(),
            schema: Call::now(|()| {
                Ok(json!({ "properties": { "mood": { "type": "string", "title": "Mood" } } }))
            }),
            defaults: Call::now(|()| Ok(JsonObject::new())),
            probe: Some({
                let shared = self.shared.clone();
                Call::now(move |()| {
                    *shared.probes.lock() += 1;
                    Ok(shared.offered.lock().clone())
                })
            }),
            protected_resources: resources,
            chats: self.chats,
            multiple_directories: self.many_folders.then_some(true),
            delete: self.names_itself.then(|| {
                let shared = self.shared.clone();
                Call::now(move |(id, _): (String, Option<String>)| {
                    shared.told.lock().push(json!({ "delete": id }));
                    Ok(())
                })
            }),
            create: Call::new(move |(start,): (Frozen<Start>,)| {
                let resumed = start.0.resume.clone();
                let recorded = self.records.then(|| start.0.on_turn_recorded.clone());
                self.shared.starts.lock().push(start.0);
                let name = resumed.unwrap_or_else(|| format!("own-{}", self.started() - 1));
                let (shared, waiting) =
                    (self.shared.clone(), self.waits_to_start.then(|| self.shared.clone()));
                let agent_id = self.names_itself.then(|| {
                    Call::now(move |()| Ok(shared.name.lock().clone().or_else(|| Some(name.clone()))))
                });
                let session = AgentSession { agent_id, ..self.session(recorded) };
                let fails = {
                    let mut failing = self.shared.failing.lock();
                    let fails = *failing > 0;
                    *failing = failing.saturating_sub(1);
                    fails
                };
                async move {
                    if fails {
                        return Err(Thrown::new("the stage does not start"));
                    }
                    if let Some(shared) = waiting {
                        shared.may_start.acquire().await.map_err(Thrown::new)?.forget();
                    }
                    Ok(session)
                }
            }),
            ..Agent::default()
        }
    }

    fn session(&self, recorded: Option<Func<fn(turn_id: String, transcript_id: String)>>) -> AgentSession {
        let told = |name: &'static str| {
            let shared = self.shared.clone();
            move |what: Value| shared.told.lock().push(json!({ name: what }))
        };
        let (begin, cancel, close) = (told("begin"), told("cancel"), told("close"));
        let (confirm, answer, stop) = (told("confirm"), told("answer"), told("stopWorker"));
        let start_server = told("startMcpServer");
        let (steer, customization, resume) = (told("steer"), told("customization"), told("resume"));
        let never_closes = self.never_closes;
        AgentSession {
            begin: Call::now(move |(turn, text, model, ..): (String, String, Option<_>, _, _)| {
                let model = serde_json::to_value(model).map_err(Thrown::new)?;
                if let Some(recorded) = &recorded {
                    recorded.call((turn.clone(), format!("own-{turn}")))?;
                }
                begin(json!([turn, text, model]));
                Ok(())
            }),
            cancel: Call::now(move |(turn,): (String,)| {
                cancel(turn.into());
                Ok(())
            }),
            close: Call::new(move |(removing,): (Option<bool>,)| {
                close(json!(removing));
                async move {
                    match never_closes {
                        true => std::future::pending().await,
                        false => Ok(()),
                    }
                }
            }),
            confirm: Some(Call::now(move |(call, approved, option): (String, bool, Option<String>)| {
                confirm(json!([call, approved, option]));
                Ok(())
            })),
            answer: Some(Call::now(
                move |(request, accepted, answers, _): (
                    String,
                    bool,
                    BTreeMap<String, ChatInputAnswer>,
                    String,
                )| {
                    answer(json!([request, accepted, answers]));
                    Ok(true)
                },
            )),
            steer: self.steers.then(|| {
                let never = self.never_steers;
                Call::new(move |(_, text, _): (String, String, Option<Vec<MessageAttachment>>)| {
                    let is_later = text == "Later.";
                    steer(text.into());
                    async move {
                        match (never, is_later) {
                            (true, false) => std::future::pending().await,
                            (true, true) => {
                                // The test that says this pauses time.
                                tokio::time::sleep(Duration::from_millis(4500)).await;
                                Ok(true)
                            }
                            (false, _) => Ok(true),
                        }
                    }
                })
            }),
            set_customization_enabled: Some(Call::now(move |(id, on): (String, bool)| {
                customization(json!([id, on]));
                Ok(())
            })),
            ended: Some({
                let shared = self.shared.clone();
                Call::now(move |()| Ok(shared.ended.lock().clone()))
            }),
            start_mcp_server: Some(Call::now(move |(id,): (String,)| {
                start_server(id.into());
                Ok(())
            })),
            stop_worker: (!self.without_stop_worker).then(|| {
                Call::now(move |(call,): (String,)| {
                    stop(call.into());
                    Ok(())
                })
            }),
            resume: self.resumes.then(|| {
                Call::now(move |(turn,): (String,)| {
                    resume(turn.into());
                    Ok(true)
                })
            }),
            fork_point: self.forks_at.clone().map(|points| {
                Call::now(move |(turn,): (String,)| Ok(points[turn].as_str().map(str::to_owned)))
            }),
            ..AgentSession::default()
        }
    }

    /// Whether its sessions can stop a single worker.
    pub fn stops_workers(&self) -> bool {
        !self.without_stop_worker
    }

    /// Returns the arguments that started its session `number`.
    ///
    /// # Panics
    /// If there is no such session.
    pub fn start(&self, number: usize) -> Start {
        self.shared.starts.lock().get(number).cloned().expect("a session was started")
    }

    /// Sets the name of every conversation from now on.
    pub fn rename_conversations(&self, name: &str) {
        *self.shared.name.lock() = Some(name.to_owned());
    }

    /// Returns how many sessions were started.
    pub fn started(&self) -> usize {
        self.shared.starts.lock().len()
    }

    /// Emits on the chat of its session `number`.
    ///
    /// # Panics
    /// If the host rejects it.
    pub fn emit(&self, number: usize, channel: Emit, value: Value) {
        self.start(number).emit.call((channel, action(value))).expect("the host takes it");
    }

    /// Returns every call that its sessions have received so far.
    pub fn told(&self) -> Vec<Value> {
        self.shared.told.lock().clone()
    }

    /// Waits until a session receives a turn.
    ///
    /// # Panics
    /// If the turn does not arrive for a long time.
    pub async fn wait_begun(&self, turn: &str) {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while !self.told().iter().any(|told| told["begin"][0] == turn) {
            assert!(std::time::Instant::now() < end, "turn {turn} did not begin: {:?}", self.told());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until a session receives a call with this name, and returns its value.
    ///
    /// # Panics
    /// If no such call arrives for a long time.
    pub async fn wait_told(&self, name: &str) -> Value {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(told) =
                self.told().into_iter().find_map(|mut told| told.get_mut(name).map(Value::take))
            {
                return told;
            }
            assert!(std::time::Instant::now() < end, "nobody was told to {name}: {:?}", self.told());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
