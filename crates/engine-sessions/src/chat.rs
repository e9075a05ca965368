//! One chat of a session: its state, the text gathered for its subscribers, and its backend.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ahp::reducers::{ReduceOutcome, apply_action_to_chat};
use ostler_contract::points::{KeptChat, KeptTurn, Lender, SessionFlags, StartingTurn};
use ostler_engine_core::clock::iso;
use ostler_engine_core::fanout::Audience;
use ostler_engine_core::long_work::long_work;
use ostler_engine_core::message::run_of;
use ostler_engine_users::usage::Taken;
use ostler_protocol::actions::{self, Class};
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{
    ChatInteractivity, ChatState, ChatSummary, PendingMessage, ResponsePart, SessionStatus,
    ToolResultSubagentContent, Turn, TurnState, UsageInfo,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Span;

use super::backend::Backend;
use super::size::Size;
use super::store_writes::HOST_STOPPED;
use super::stored_end::StoredEnd;
use super::storing::Before;
use super::summary::{ACTIVITY, flags_in, marks};
use super::text_length::text_in;

/// One chat of a session.
#[derive(Debug)]
pub(super) struct Chat {
    /// A number that stays the same while other chats are opened and closed.
    pub number: u64,
    /// The chat's URI as the host spells it.
    pub uri: String,
    channel: Arc<str>,
    /// The state that every subscriber's reducer arrives at.
    pub state: ChatState,
    /// The size of the state.
    pub size: Size,
    /// The size of each pending message, by its id; `None` stands for the draft.
    pub waiting: HashMap<Option<String>, usize>,
    /// The state that subscribers have while a change is being stored.
    pub unstored: Option<Before>,
    /// The modification time that the session last read from the chat's state.
    pub modified: Option<String>,
    /// The modification time in the chat's state, and the host's time when it changed to that.
    changed: (String, String),
    /// The chat's backend; `None` while it sleeps.
    pub backend: Option<Backend>,
    /// The running turn, once its backend was asked to cancel it.
    pub cancelled: Option<String>,
    /// Steering messages of clients that the backend has not accepted yet, each with the number of its call. A client may
    /// send several with one id.
    pub steering: Vec<(u64, PendingMessage)>,
    /// The queued message for which the policies are being evaluated.
    pub asking: Option<String>,
    /// The backend's own id, with which it is resumed.
    pub backend_id: Option<String>,
    /// Whether the title was set explicitly rather than derived.
    pub titled: bool,
    /// The sender of the latest turn.
    pub sender: Option<String>,
    /// The backend's names of turns, by turn, where it recorded one.
    pub recorded: HashMap<String, String>,
    /// The activity that is stored, or about to be.
    pub stored_activity: Option<String>,
    /// Whether the backend can continue failed turns.
    pub resumes: bool,
    /// Why the backend can no longer continue.
    pub ended: Option<String>,
    /// Whether the host ends while a turn runs.
    pub is_broken: bool,
    /// What the user of its first turn has to know about the session's settings.
    pub notes: Vec<String>,
    /// Whether the running turn was given to the backend by the host.
    pub is_given: bool,
    /// Whether the last turn is stored.
    pub end: StoredEnd,
    /// The usage already recorded for the running turn, if usage is recorded per report.
    pub counted: Option<Box<(String, Taken)>>,
    /// The usage of the running turn that was recorded when it failed before it was continued. Its backend reports what it uses
    /// from there on.
    pub charged: Option<Box<UsageInfo>>,
    /// When the running turn was last stored.
    pub kept_at: Instant,
    /// Whether the running turn changed since.
    pub unkept: bool,
    /// The chat's subscribers.
    pub audience: Arc<Audience>,
    /// Streamed text that is not published yet.
    pub gathered: Option<Gathered>,
    /// The part that last received streamed text, and when.
    streamed: Option<LastStreamed>,
    /// In a worker's chat: the number of the chat whose backend runs the worker.
    pub lead: Option<u64>,
    /// Whether the backend must continue from the remaining turns after a truncation.
    pub rewind: bool,
    /// The task that ends the previous backend; the next one waits for it.
    pub ending: Option<JoinHandle<()>>,
    /// Hidden context for the first turn of the chat's conversation.
    pub context: Option<String>,
    /// Whether the backend has received the context.
    pub told: bool,
    /// The customizations whose state the backend received since it started.
    pub toggled: BTreeSet<String>,
    /// The worker chats that tool calls of the running turn opened, by tool call.
    pub links: HashMap<String, Vec<ToolResultSubagentContent>>,
    /// The trace span of the running turn.
    pub span: Span,
    /// The queued message that a turn is being started with, and that turn, until both are stored.
    pub starting: Option<Box<StartingTurn>>,
    /// The client whose tokens the backend uses, if that is not the client that created the session.
    pub lender: Option<Box<Lender>>,
}

/// Streamed text of one part that is being coalesced into one action.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Boxed, because most chats gather nothing.
    action: Box<StateAction>,
    /// When the text must be published.
    pub due: Instant,
}

impl Gathered {
    fn add(&mut self, next: &StateAction) -> bool {
        match (&mut *self.action, next) {
            (StateAction::ChatDelta(held), StateAction::ChatDelta(next))
                if held.turn_id == next.turn_id
                    && held.part_id == next.part_id
                    && same(&held.meta, &next.meta) =>
            {
                held.content.push_str(&next.content);
                true
            }
            (StateAction::ChatReasoning(held), StateAction::ChatReasoning(next))
                if held.turn_id == next.turn_id
                    && held.part_id == next.part_id
                    && same(&held.meta, &next.meta) =>
            {
                held.content.push_str(&next.content);
                true
            }
            _ => false,
        }
    }
}

/// The part of a turn that streamed text belongs to.
#[derive(Debug)]
struct StreamedPart {
    turn: String,
    id: String,
    reasoning: bool,
}

impl StreamedPart {
    fn of(action: &StateAction) -> Option<Self> {
        let (turn, id, reasoning) = fields(action)?;
        Some(Self { turn: turn.to_owned(), id: id.to_owned(), reasoning })
    }

    fn has(&self, action: &StateAction) -> bool {
        fields(action) == Some((&self.turn, &self.id, self.reasoning))
    }
}

fn fields(action: &StateAction) -> Option<(&str, &str, bool)> {
    match action {
        StateAction::ChatDelta(delta) => Some((&delta.turn_id, &delta.part_id, false)),
        StateAction::ChatReasoning(delta) => Some((&delta.turn_id, &delta.part_id, true)),
        _ => None,
    }
}

/// The streamed text that was published last.
#[derive(Debug)]
pub(super) struct LastStreamed {
    part: StreamedPart,
    at: Instant,
}

fn same<T: PartialEq>(held: &Option<T>, next: &Option<T>) -> bool {
    held == next
}

/// What to do with a streamed action.
pub(super) enum Streamed {
    /// The action was added to the gathered text.
    Waits,
    /// Publish the action now.
    Now(StateAction),
    /// Text of another part is gathered: publish that first, then stream this action.
    Flush(StateAction),
}

impl Chat {
    pub fn new(number: u64, uri: String, title: &str, now: String, audience: Arc<Audience>) -> Self {
        let state = ChatState {
            resource: uri.clone(),
            title: title.to_owned(),
            status: SessionStatus::Idle.bits(),
            activity: None,
            modified_at: now.clone(),
            changes: None,
            origin: None,
            movable: None,
            interactivity: None,
            working_directories: None,
            changesets: None,
            background_work: None,
            canvases: None,
            turns: Vec::new(),
            turns_next_cursor: None,
            active_turn: None,
            steering_message: None,
            queued_messages: None,
            draft: None,
            meta: None,
        };
        Self {
            number,
            channel: uri.as_str().into(),
            uri,
            state,
            size: Size::default(),
            waiting: HashMap::new(),
            unstored: None,
            modified: None,
            changed: (now.clone(), now),
            backend: None,
            cancelled: None,
            steering: Vec::new(),
            asking: None,
            backend_id: None,
            titled: !title.is_empty(),
            sender: None,
            recorded: HashMap::new(),
            stored_activity: None,
            resumes: false,
            ended: None,
            is_broken: false,
            notes: Vec::new(),
            is_given: false,
            end: StoredEnd::default(),
            counted: None,
            charged: None,
            kept_at: Instant::now(),
            unkept: false,
            audience,
            gathered: None,
            streamed: None,
            lead: None,
            rewind: false,
            ending: None,
            context: None,
            told: false,
            toggled: BTreeSet::new(),
            links: HashMap::new(),
            span: Span::none(),
            starting: None,
            lender: None,
        }
    }

    /// Restores the chat from the store.
    pub fn restore(&mut self, kept: &KeptChat, turns: Vec<KeptTurn>) {
        let was_killed = turns.last().is_some_and(was_killed);
        for turn in &turns {
            self.record(&turn.turn.id, turn.transcript_id.as_deref());
        }
        let turns: Vec<Turn> = turns.into_iter().map(|turn| turn.turn).collect();
        if let Some(modified) = &kept.modified_at {
            self.state.modified_at.clone_from(modified);
            self.changed = (modified.clone(), modified.clone());
        }
        if let Some(title) = &kept.title {
            self.state.title.clone_from(title);
            self.titled = !kept.derived;
        }
        self.backend_id.clone_from(&kept.backend_id);
        self.state.origin = kept.origin.clone().and_then(|origin| serde_json::from_value(origin).ok());
        // A message whose turn is stored was accepted; one whose turn is not stored still waits.
        let untaken =
            kept.starting.as_ref().filter(|starting| !turns.iter().any(|turn| turn.id == starting.turn));
        let waits = untaken.map(|starting| &starting.queued).into_iter().chain(&kept.queued);
        let waits = waits.filter_map(|message| serde_json::from_value(message.clone()).ok());
        // A run whose message waited when the host stopped has failed, or sends it again.
        let queued: Vec<PendingMessage> =
            waits.filter(|waits: &PendingMessage| run_of(&waits.message).is_none()).collect();
        self.state.queued_messages = (!queued.is_empty()).then_some(queued);
        self.state.draft = kept.draft.clone().and_then(|draft| serde_json::from_value(draft).ok());
        self.state.working_directories.clone_from(&kept.working_directories);
        self.context.clone_from(&kept.context);
        self.told = kept.told && !turns.iter().all(|turn| turn.state == TurnState::Error);
        self.rewind = kept.rewind;
        self.lender = kept.lender.clone().map(Box::new);
        if let Some(ended) = turns.last().and_then(end_of) {
            // The time must not be later than the session's: an earlier version stored the clients' start times of turns.
            let listed: Option<jiff::Timestamp> = self.changed.1.parse().ok();
            if listed.is_none_or(|listed| ended <= listed) {
                self.state.modified_at = iso(ended);
                self.changed.0.clone_from(&self.state.modified_at);
            }
        }
        self.state.turns = turns;
        let failed = self.state.turns.last().is_some_and(|turn| turn.state == TurnState::Error);
        if failed && (kept.failed || was_killed) {
            self.state.status = SessionStatus::Error.bits();
        }
        self.state.status |= marks(kept.flags);
        // Nobody does what was going on when the host was killed.
        self.stored_activity = kept.activity.clone().filter(|_| !was_killed);
        self.state.activity.clone_from(&self.stored_activity);
    }

    /// Applies an action in the same way as every subscriber.
    pub fn reduce(&mut self, action: &StateAction) -> ReduceOutcome {
        if let Some(before) = &mut self.unstored {
            before.reduce(action);
        }
        long_work(text_in(action), || apply_action_to_chat(&mut self.state, action))
    }

    /// Returns the channel on which the chat's actions are published.
    pub fn channel(&self) -> Arc<str> {
        self.channel.clone()
    }

    /// Returns the id of the running turn.
    pub fn running(&self) -> Option<&str> {
        self.state.active_turn.as_ref().map(|turn| turn.id.as_str())
    }

    /// Returns the estimated length of the state as JSON, with only the newest turns if their number is given.
    pub fn length(&mut self, newest: Option<usize>) -> usize {
        let whole = self.size.at_most(&self.state).text;
        match newest.filter(|newest| *newest < self.state.turns.len()) {
            Some(newest) => self.share(whole, newest),
            None => whole,
        }
    }

    /// Returns the approximate length of a number of the chat's turns as JSON.
    pub fn page_length(&self, turns: usize) -> usize {
        self.share(self.size.last().text, turns.min(self.state.turns.len()))
    }

    fn share(&self, whole: usize, turns: usize) -> usize {
        whole / self.state.turns.len().max(1) * turns
    }

    fn record(&mut self, turn: &str, name: Option<&str>) {
        if let Some(name) = name {
            self.recorded.insert(turn.to_owned(), name.to_owned());
        }
    }

    /// Returns the backend's name of a turn, which is the turn's id unless it recorded another one.
    pub fn name_of(&self, turn: &str) -> String {
        self.recorded.get(turn).map_or(turn, String::as_str).to_owned()
    }

    /// Forgets the names of turns that the chat no longer has.
    pub fn forget_names(&mut self) {
        let turns = &self.state.turns;
        self.recorded.retain(|named, _| turns.iter().any(|turn| turn.id == *named));
    }

    /// Whether every turn of the chat failed.
    pub fn has_no_answer(&self) -> bool {
        self.state.turns.iter().all(|turn| turn.state == TurnState::Error)
    }

    /// Returns the hidden context that the backend has not received.
    pub fn untold_context(&self) -> Option<&str> {
        self.context.as_deref().filter(|_| !self.told)
    }

    /// Returns the hidden context that a backend has received.
    pub fn told_context(&self) -> Option<&str> {
        self.context.as_deref().filter(|_| self.told)
    }

    /// Returns a turn that has ended in its stored form.
    pub fn kept_turn(&self, turn: Turn, sender: Option<String>) -> KeptTurn {
        let transcript_id = self.recorded.get(&turn.id).cloned();
        let broken = is_broken_by_host(&turn);
        KeptTurn { sender, transcript_id, turn, unended: false, charged_usage: None, broken }
    }

    /// Adds a copy of another chat's turns up to one of them, as the backend names them, and of the hidden context that they have.
    pub fn copy_turns(&mut self, from: &Self, last: usize) {
        self.context.clone_from(&from.context);
        let copied = &from.state.turns[..=last];
        self.told = from.told && copied.iter().any(|turn| turn.state != TurnState::Error);
        self.state.turns = from.state.turns[..=last].to_vec();
        for turn in &from.state.turns[..=last] {
            self.record(&turn.id, from.recorded.get(&turn.id).map(String::as_str));
        }
    }

    pub fn is_worker(&self) -> bool {
        self.lead.is_some()
    }

    /// Whether clients may send messages to the chat.
    pub fn is_open(&self) -> bool {
        matches!(self.state.interactivity, None | Some(ChatInteractivity::Full))
    }

    /// Streams text. The first delta of a part is published immediately; deltas that follow within `window` ms of the
    /// last published one are coalesced. 0 disables coalescing.
    pub fn stream(&mut self, action: StateAction, window: u64) -> Streamed {
        if let Some(gathered) = &mut self.gathered {
            if gathered.add(&action) {
                return Streamed::Waits;
            }
            // The text belongs to another part: the caller flushes and calls again.
            return Streamed::Flush(action);
        }
        if window == 0 {
            return Streamed::Now(action);
        }
        let (now, wait) = (Instant::now(), Duration::from_millis(window));
        match self.streamed.take().filter(|last| last.part.has(&action)) {
            Some(last) if now < last.at + wait => {
                self.gathered = Some(Gathered { action: Box::new(action), due: last.at + wait });
                self.streamed = Some(last);
                Streamed::Waits
            }
            _ => {
                self.streamed = StreamedPart::of(&action).map(|part| LastStreamed { part, at: now });
                Streamed::Now(action)
            }
        }
    }

    /// Takes the gathered text.
    pub fn take_gathered(&mut self) -> Option<StateAction> {
        let action = *self.gathered.take()?.action;
        self.streamed = StreamedPart::of(&action).map(|part| LastStreamed { part, at: Instant::now() });
        Some(action)
    }

    /// Returns the summary of the chat that listings show.
    pub fn summary(&self) -> ChatSummary {
        ChatSummary { modified_at: self.changed.1.clone(), ..summary_of(&self.state) }
    }

    /// Returns whether the chat changed since the last call. The time may come from a client's clock, so only a
    /// difference counts, not its direction.
    pub fn take_modified(&mut self) -> bool {
        if self.modified.as_ref() == Some(&self.state.modified_at) {
            return false;
        }
        self.modified = Some(self.state.modified_at.clone());
        true
    }

    /// Returns when the chat last changed by the host's clock; that is now if its state has a new modification time.
    pub fn changed_at(&mut self, now: impl FnOnce() -> String) -> &str {
        if self.changed.0 != self.state.modified_at {
            self.changed = (self.state.modified_at.clone(), now());
        }
        &self.changed.1
    }

    /// Returns the modification time that listings show.
    pub fn listed_at(&self) -> &str {
        &self.changed.1
    }

    /// Returns the chat's own flags.
    pub fn flags(&self) -> SessionFlags {
        flags_in(self.state.status)
    }

    /// Whether an action would change one of the chat's flags.
    pub fn would_mark(&self, action: &StateAction) -> bool {
        let flags = self.flags();
        match action {
            StateAction::ChatIsReadChanged(changed) => flags.is_read != changed.is_read,
            StateAction::ChatIsArchivedChanged(changed) => flags.is_archived != changed.is_archived,
            _ => false,
        }
    }

    /// Whether the chat shows that its latest turn failed, which it does until another one or a truncation.
    pub fn has_failed(&self) -> bool {
        self.state.status & ACTIVITY == SessionStatus::Error.bits()
    }

    /// Returns the chat in its stored form; `lead` is the chat whose backend runs a worker.
    pub fn kept(&self, default: bool, lead: Option<&str>) -> KeptChat {
        KeptChat {
            uri: self.uri.clone(),
            backend_id: self.backend_id.clone(),
            title: (!self.state.title.is_empty()).then(|| self.state.title.clone()),
            derived: !self.titled,
            origin: self.state.origin.as_ref().and_then(|origin| serde_json::to_value(origin).ok()),
            default,
            closed: false,
            worker_of: lead.map(str::to_owned),
            activity: self.stored_activity.clone(),
            failed: self.has_failed() || self.is_broken,
            queued: self
                .state
                .queued_messages
                .iter()
                .flatten()
                .filter_map(|message| serde_json::to_value(message).ok())
                .collect(),
            draft: self.state.draft.as_ref().and_then(|draft| serde_json::to_value(draft).ok()),
            working_directories: self.state.working_directories.clone(),
            flags: self.flags(),
            context: self.context.clone(),
            told: self.told,
            rewind: self.rewind,
            starting: self.starting.as_deref().cloned(),
            lender: self.lender.as_deref().cloned(),
            modified_at: None,
        }
    }
}

/// Whether the host was killed while a turn ran, and no start has recorded that.
pub(super) fn was_killed(kept: &KeptTurn) -> bool {
    kept.unended || !kept.broken && is_broken_by_host(&kept.turn)
}

/// Whether the end of the host broke a turn.
fn is_broken_by_host(turn: &Turn) -> bool {
    let last = turn.response_parts.last().filter(|_| turn.state == TurnState::Error);
    matches!(last, Some(ResponsePart::Error(part)) if part.error.error_type == HOST_STOPPED)
}

/// Returns when a turn ended, computed as in the reducers.
fn end_of(turn: &Turn) -> Option<jiff::Timestamp> {
    let started: jiff::Timestamp = turn.started_at.as_ref()?.parse().ok()?;
    started.checked_add(jiff::SignedDuration::from_millis(turn.duration.unwrap_or_default().max(0))).ok()
}

fn summary_of(state: &ChatState) -> ChatSummary {
    ChatSummary {
        resource: state.resource.clone(),
        title: state.title.clone(),
        status: state.status,
        activity: state.activity.clone(),
        modified_at: state.modified_at.clone(),
        changes: state.changes.clone(),
        origin: state.origin.clone(),
        movable: state.movable,
        interactivity: state.interactivity,
        working_directories: state.working_directories.clone(),
    }
}

/// Whether an action is streamed text that may be gathered.
pub(super) fn is_streamed(action: &StateAction) -> bool {
    actions::row(action).is_some_and(|row| row.class == Class::Streamed)
}
