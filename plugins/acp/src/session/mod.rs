//! One chat's conversation: a task that owns the agent's process, its ACP session and the running turn.

mod client_tools;
mod lifecycle;
mod messages;
mod setting_changes;
mod tool_list;
mod turns;
mod workers;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use ostler_contract::points::{BoundTool, ClientPlugin, Start, ToolsServer};
use ostler_contract::wire::state::{ChatInputAnswer, ModelSelection, ResponsePart};
use ostler_contract::{JsonObject, PluginHost, Value};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use self::client_tools::ClientCall;
use self::setting_changes::{Change, Chooser};
use self::tool_list::ToolList;
use self::workers::Child;
use crate::agent::Running;
use crate::agent_connection::{Failure, Incoming, Request};
use crate::buffers::Buffers;
use crate::command_turn::CommandTurns;
use crate::elicitation::{Forms, Misfit};
use crate::emitter::Emitter;
use crate::errors::AgentError;
use crate::files::Files;
use crate::opening::{Opened, Unopened};
use crate::options::{AgentOptions, Runtime, Unstable};
use crate::permissions::Questions;
use crate::prompt::Message;
use crate::settings::{CONTINUES, Catalogue, Setting};
use crate::standing::Standing;
use crate::stored::Stored;
use crate::terminals::Terminals;
use crate::transcript::Transcript;
use crate::updates::Turn;

/// A user's answers, by question.
pub type Answers = BTreeMap<String, ChatInputAnswer>;

/// A request to a conversation.
pub enum Command {
    /// Runs a turn. `begun` resolves once the agent's session is open, or the turn failed.
    Begin { turn: String, message: Message, model: Option<ModelSelection>, begun: oneshot::Sender<()> },
    /// Repeats the latest turn, which failed.
    Resume { turn: String, begun: oneshot::Sender<bool> },
    /// Stops a turn.
    Cancel { turn: String },
    /// Stops a subagent.
    StopWorker { call: String },
    /// Returns the position at which a turn is forked.
    ForkPoint { turn: String, done: oneshot::Sender<String> },
    /// Answers an approval.
    Confirm { call: String, approved: bool, option: Option<String> },
    /// Answers a question.
    Answer { id: String, answers: Answers, response: String, done: oneshot::Sender<bool> },
    /// Updates the tools of the session.
    Tools(Vec<BoundTool>),
    /// The plugins of clients. `done` resolves once no agent with earlier ones runs.
    Plugins { plugins: Vec<ClientPlugin>, done: oneshot::Sender<()> },
    /// Makes a client run a tool that it contributed.
    RunByClient { name: String, input: Value, done: oneshot::Sender<Result<Value, String>> },
    /// A client ran a tool.
    Completed { call: String, result: Value, done: oneshot::Sender<bool> },
    /// Stores a token from the client that created the chat.
    Lent { resource: String, token: String },
    /// A user named the session.
    Renamed,
    /// Changes a setting.
    Set { key: String, value: Value, done: oneshot::Sender<Result<(), String>> },
    /// Ends the conversation.
    Close { removing: bool, done: oneshot::Sender<()> },
}

/// Shared state of the conversations of one agent.
#[derive(Clone)]
pub struct Shared {
    pub host: PluginHost,
    pub agent: Arc<AgentOptions>,
    /// What all agents share.
    pub runtime: Arc<Runtime>,
    /// The known settings of the agent.
    pub catalogue: Arc<Catalogue>,
    /// Standing answers in its sessions.
    pub standing: Arc<Standing>,
    /// Sessions of the agent that were deleted with their conversation, until the host requests their deletion.
    pub deleted: Arc<Mutex<HashSet<String>>>,
    /// Clients with files open.
    pub buffers: Buffers,
    /// Whether the agent was seen to send parts after a turn had ended.
    pub sends_late: Arc<AtomicBool>,
    /// Validates users' answers to questions of agents.
    pub misfit: Misfit,
}

pub struct Conversation {
    shared: Shared,
    start: Start,
    emit: Emitter,
    terminals: Terminals,
    files: Files,
    cwd: PathBuf,
    /// The agent's session.
    stored: Arc<Mutex<Stored>>,
    /// Whether the session of the host is new.
    is_new: bool,
    /// The agent's id of a session that is continued and was never a session of the host.
    imported: Option<String>,
    commands: mpsc::UnboundedReceiver<Command>,
    live: Option<Live>,
    opening: Option<BoxFuture<'static, Result<Opened, Unopened>>>,
    /// Requests of the agent while its session is opened.
    asked_while_opening: Option<mpsc::Receiver<Request>>,
    prompting: Option<BoxFuture<'static, Result<Value, Failure>>>,
    /// Queued changes of settings, after the one that was sent to the agent.
    changes: VecDeque<Change>,
    changing: Option<BoxFuture<'static, (Change, Result<Value, Failure>)>>,
    turn: Option<Turn>,
    /// The message that waits for the agent.
    waiting: Option<Waiting>,
    latest: Message,
    /// The model that it named.
    latest_model: Option<ModelSelection>,
    /// How often the latest turn was continued after it had failed.
    rounds: usize,
    questions: Questions,
    forms: Forms,
    withdrawals: FuturesUnordered<BoxFuture<'static, String>>,
    tools: Vec<BoundTool>,
    tool_list: ToolList,
    /// The agent's subagents, by their sessions.
    children: HashMap<String, Child>,
    client_calls: Vec<ClientCall>,
    client_calls_made: u64,
    /// The sender to itself, for its separate tasks.
    own: mpsc::WeakUnboundedSender<Command>,
    /// The session from which the agent's session will be forked, until that was tried.
    fork: Option<String>,
    latest_turn: Option<String>,
    /// The settings that are not left to the agent: chosen by users, changed by the agent itself in this session, or
    /// written by an administrator.
    chosen: JsonObject,
    transcript: Transcript,
    /// The hidden context of the chat, until a prompt with it was answered.
    context: Option<String>,
    /// The commands that users ran in terminals.
    in_terminals: CommandTurns,
    /// The latest one in the prompt.
    told_commands: u64,
    endpoint: Option<ToolsServer>,
    /// Whether the token or the plugins of the running agent are outdated.
    outdated: bool,
    /// Waiters for the end of an agent with earlier plugins.
    leaving: Vec<oneshot::Sender<()>>,
    /// How often the agent was started for the running turn.
    starts: u32,
    /// Why it has to be started again in it.
    ended_by: Option<AgentError>,
    /// Requests to continue its session that failed since a session was open.
    failed_at: Vec<&'static str>,
    settling: Option<Settling>,
    /// Whether messages without a prompt are the agent's own, because its latest turn succeeded.
    speaks: bool,
    /// How many turns the agent began.
    own_turns: u64,
    /// The size of the agent's text in the running turn, in bytes.
    turn_output: usize,
    /// The first message, from which the host derives a title.
    first: Option<String>,
    /// Whether the agent has named the session.
    named: bool,
    /// Slots for requests with large answers.
    serving: Arc<Semaphore>,
    /// Logged lines about what is left out.
    left_out: HashSet<String>,
    /// The reported cost of the agent's session so far, and before the running turn.
    cost: Option<f64>,
    cost_before: Option<f64>,
    /// When a cancelled prompt that was not answered stops the agent.
    cancel_by: Option<Instant>,
    idle_since: Instant,
    /// When the agent's memory is checked next.
    memory_at: Instant,
}

/// The prefix of a fork point at the latest turn.
const LATEST: &str = "latest:";

/// Returns the latest message that the host knows of, which runs again if its turn is continued.
fn latest_of(seed: &[ostler_contract::wire::state::Turn]) -> Message {
    let message = seed.last().map(|turn| turn.message.clone());
    message.map_or_else(Message::default, |message| Message {
        text: message.text,
        attachments: message.attachments.unwrap_or_default(),
        context: None,
    })
}

/// Returns how often the latest turn that the host knows of was continued: each of its failures but the last.
fn rounds_of(seed: &[ostler_contract::wire::state::Turn]) -> usize {
    let parts = seed.last().into_iter().flat_map(|turn| &turn.response_parts);
    parts.filter(|part| matches!(part, ResponsePart::Error(_))).count().saturating_sub(1)
}

/// The agent's session from which a new one is forked.
fn forked_from(runtime: &Runtime, start: &Start) -> Option<String> {
    let latest = start.fork_at.as_ref().is_some_and(|point| point.starts_with(LATEST));
    let source = Stored::read(start.resume.as_deref());
    source.id.filter(|_| latest && !source.untold && runtime.uses(Unstable::Fork))
}

/// The maximum number of concurrent requests with large answers.
const SERVED: usize = 4;
/// How often the memory of an agent with a limit is checked.
const MEMORY_EVERY: Duration = Duration::from_secs(2);

/// An agent with an open session.
struct Live {
    running: Running,
    incoming: mpsc::Receiver<Incoming>,
    early: VecDeque<Incoming>,
    session: String,
    settings: Vec<Setting>,
    exited: Option<BoxFuture<'static, ExitStatus>>,
    closed: bool,
}

struct Waiting {
    message: Message,
    model: Option<ModelSelection>,
    begun: Option<oneshot::Sender<()>>,
}

/// A turn whose prompt is answered.
struct Settling {
    answer: Value,
    /// Whether the agent began the turn, so that no prompt was answered and it can still wait for a user.
    own: bool,
    /// The time without messages after which it ends.
    quiet: Duration,
    until: Instant,
    at_most: Instant,
}

enum Next {
    Command(Option<Command>),
    Agent(FromAgent),
    Asked(Option<Request>),
    Opened(Result<Opened, Unopened>),
    Answered(Result<Value, Failure>),
    Changed(Change, Result<Value, Failure>),
    Withdrawn(String),
    Deadline,
}

/// An event of a running agent.
enum FromAgent {
    /// It sent a message, or closed its output.
    Message(Option<Incoming>),
    /// Its process ended.
    Exited,
}

/// Waits once for an optional future.
async fn filled<T>(slot: &mut Option<BoxFuture<'static, T>>) -> T {
    let Some(future) = slot else { return std::future::pending().await };
    let outcome = future.await;
    *slot = None;
    outcome
}

/// Returns the next request while a session is opened.
async fn asked(questions: &mut Option<mpsc::Receiver<Request>>) -> Option<Request> {
    match questions {
        Some(questions) => questions.recv().await,
        None => std::future::pending().await,
    }
}

async fn from_agent(live: &mut Option<Live>) -> FromAgent {
    let Some(Live { incoming, early, exited, closed, .. }) = live else {
        return std::future::pending().await;
    };
    if let Some(message) = early.pop_front() {
        return FromAgent::Message(Some(message));
    }
    tokio::select! {
        biased;
        message = incoming.recv(), if !*closed => FromAgent::Message(message),
        _ = filled(exited) => FromAgent::Exited,
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl Conversation {
    /// Creates a conversation whose agent starts with its first turn.
    pub fn new(
        shared: Shared,
        start: Start,
        stored: Arc<Mutex<Stored>>,
        in_terminals: CommandTurns,
        (own, commands): (mpsc::WeakUnboundedSender<Command>, mpsc::UnboundedReceiver<Command>),
    ) -> Self {
        let cwd = start.working_directory.clone().map(PathBuf::from);
        let cwd = cwd
            .or_else(|| shared.host.facts().paths.first().map(PathBuf::from))
            .unwrap_or_else(|| "/".into());
        let named = start.settings.get(CONTINUES).and_then(Value::as_str).filter(|named| !named.is_empty());
        let new = start.resume.is_none() && start.fork_at.is_none() && start.rewind_at.is_none();
        // Only the first chat of a session continues it.
        let is_new = new && start.chat_id.is_none();
        let imported = named.filter(|_| is_new).map(str::to_owned);
        let mut chosen = shared.catalogue.written_defaults();
        chosen.extend(start.chosen_settings.clone());
        let more = start.additional.iter().flatten().map(PathBuf::from);
        let directories: Vec<PathBuf> = std::iter::once(cwd.clone()).chain(more).collect();
        Self {
            emit: Emitter::of(&start),
            forms: Forms::new(shared.misfit),
            terminals: Terminals::of(&start, &cwd, directories.clone(), &shared),
            files: Files::within(directories).with(shared.buffers.of(&start.uri, start.read.clone())),
            transcript: Transcript::of(start.seed.as_deref().unwrap_or_default(), start.seed_context.clone()),
            context: start.context.clone(),
            in_terminals,
            told_commands: 0,
            tools: start.tools.clone().unwrap_or_default(),
            tool_list: ToolList::new(),
            chosen,
            is_new,
            imported,
            fork: forked_from(&shared.runtime, &start),
            latest_turn: start.seed.iter().flatten().last().map(|turn| turn.id.clone()),
            shared,
            cwd,
            stored,
            commands,
            live: None,
            opening: None,
            asked_while_opening: None,
            prompting: None,
            changes: VecDeque::new(),
            changing: None,
            turn: None,
            waiting: None,
            latest: latest_of(start.seed.as_deref().unwrap_or_default()),
            latest_model: start.seed.iter().flatten().last().and_then(|turn| turn.message.model.clone()),
            rounds: rounds_of(start.seed.as_deref().unwrap_or_default()),
            questions: Questions::default(),
            children: HashMap::new(),
            client_calls: Vec::new(),
            client_calls_made: 0,
            own,
            withdrawals: FuturesUnordered::new(),
            endpoint: None,
            outdated: false,
            leaving: Vec::new(),
            starts: 0,
            ended_by: None,
            failed_at: Vec::new(),
            settling: None,
            speaks: false,
            own_turns: 0,
            turn_output: 0,
            first: start.seed.iter().flatten().next().map(|turn| turn.message.text.clone()),
            named: false,
            serving: Arc::new(Semaphore::new(SERVED)),
            left_out: HashSet::new(),
            cost: None,
            cost_before: None,
            cancel_by: None,
            idle_since: Instant::now(),
            memory_at: Instant::now() + MEMORY_EVERY,
            start,
        }
    }

    /// Runs until the conversation is closed.
    pub async fn run(mut self) {
        if self.is_new {
            // Those of an earlier session with this URI, which was removed while no conversation of it ran.
            self.shared.standing.forget(&self.start.uri).await;
        }
        if self.fork.is_some() {
            // The other conversation continues; its current state is forked.
            self.open().await;
        }
        loop {
            let deadline = self.deadline();
            let next = {
                let Self {
                    commands,
                    live,
                    opening,
                    asked_while_opening,
                    prompting,
                    changing,
                    withdrawals,
                    ..
                } = &mut self;
                tokio::select! {
                    biased;
                    command = commands.recv() => Next::Command(command),
                    from = from_agent(live) => Next::Agent(from),
                    asked = asked(asked_while_opening) => Next::Asked(asked),
                    opened = filled(opening) => Next::Opened(opened),
                    answer = filled(prompting) => Next::Answered(answer),
                    (change, answer) = filled(changing) => Next::Changed(change, answer),
                    Some(call) = withdrawals.next() => Next::Withdrawn(call),
                    () = at(deadline) => Next::Deadline,
                }
            };
            match next {
                Next::Command(None) => return self.close(false).await,
                Next::Command(Some(command)) => {
                    if self.command(command).await.is_break() {
                        return;
                    }
                }
                Next::Agent(FromAgent::Message(Some(message))) => self.message(message).await,
                Next::Agent(FromAgent::Message(None)) => self.hung_up().await,
                Next::Agent(FromAgent::Exited) => self.exited(),
                Next::Asked(Some(request)) => self.request(request).await,
                Next::Asked(None) => self.asked_while_opening = None,
                Next::Opened(opened) => self.opened(opened).await,
                Next::Answered(answer) => self.answered(answer).await,
                Next::Changed(change, answer) => self.changed_setting(change, answer).await,
                Next::Withdrawn(call) => self.withdrawn(&call).await,
                Next::Deadline => self.deadline_passed().await,
            }
            self.let_go().await;
        }
    }

    async fn command(&mut self, command: Command) -> ControlFlow<()> {
        match command {
            Command::Begin { turn, message, model, begun } => self.begin(turn, message, model, begun).await,
            Command::Resume { turn, begun } => self.resume(turn, begun).await,
            Command::Cancel { turn } => self.cancel(&turn).await,
            Command::StopWorker { call } => self.stop_worker(&call).await,
            Command::ForkPoint { turn, done } => {
                let _ = done.send(self.fork_point(turn));
            }
            Command::Confirm { call, approved, option } => {
                self.confirm(&call, approved, option.as_deref()).await
            }
            Command::Answer { id, answers, response, done } => {
                let _ = done.send(self.answer(&id, &response, &answers).await);
            }
            Command::Tools(tools) => self.take_tools(tools),
            Command::Plugins { plugins, done } => self.take_plugins(plugins, done),
            Command::RunByClient { name, input, done } => self.run_by_client(&name, &input, done).await,
            Command::Completed { call, result, done } => {
                let _ = done.send(self.completed_by_client(&call, result).await);
            }
            Command::Renamed => self.named = false,
            Command::Lent { resource, token } => self.take_token(resource, token),
            Command::Set { key, value, done } => self.set(key, value, Chooser::User(done)).await,
            Command::Close { removing, done } => {
                self.close(removing).await;
                let _ = done.send(());
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the next time at which work is due without a message.
    fn deadline(&self) -> Option<Instant> {
        let settled = self.settles_at();
        let busy = self.turn.is_some() || self.prompting.is_some() || self.opening.is_some();
        let idle = self
            .shared
            .runtime
            .idle
            .filter(|_| !busy && self.live.is_some())
            .map(|idle| self.idle_since + idle);
        let limited = self.shared.agent.memory_limit.is_some() && self.live.is_some();
        let memory = limited.then_some(self.memory_at);
        [settled, self.cancel_by, idle, memory, self.looks_at_tools()].into_iter().flatten().min()
    }

    async fn deadline_passed(&mut self) {
        let now = Instant::now();
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if passed(self.settles_at()) {
            return self.settled().await;
        }
        if passed(self.cancel_by) {
            return self.cancel_timed_out().await;
        }
        if self.memory_at <= now {
            self.memory_at = now + MEMORY_EVERY;
            self.check_memory().await;
        }
        if passed(self.looks_at_tools()) {
            return self.advance().await;
        }
        let idle = self.shared.runtime.idle.map(|idle| self.idle_since + idle);
        if passed(idle) && self.turn.is_none() && self.prompting.is_none() && self.opening.is_none() {
            self.sleep();
        }
    }

    /// Returns the position at which a turn is forked. The agent can only fork its session as a whole.
    fn fork_point(&self, turn: String) -> String {
        let latest = self.turn.is_none() && self.latest_turn.as_ref() == Some(&turn);
        match latest && self.shared.runtime.uses(Unstable::Fork) {
            true => format!("{LATEST}{turn}"),
            false => turn,
        }
    }

    fn log(&self, line: impl std::fmt::Display) {
        self.logger()(line.to_string());
    }

    /// Returns what logs a line of this conversation.
    fn logger(&self) -> impl Fn(String) + Send + 'static {
        let (shared, uri) = (self.shared.clone(), self.start.uri.clone());
        move |line| {
            let line = shared.agent.masks.secrets().hide(&line);
            let _ = shared.host.log(format!("{uri}: {}: {line}", shared.agent.provider));
        }
    }

    fn sentence(&self, why: &AgentError) -> String {
        why.sentence(&self.shared.agent)
    }
}
