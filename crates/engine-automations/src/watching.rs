//! Compares session events with the rules of automations.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::events::TurnStatus;
use ostler_contract::read::Read;
use ostler_contract::{JsonObject, Value, json};
use ostler_engine_core::file_uris::file_path;
use ostler_engine_core::tasks;
use ostler_engine_sessions::{Happened, Happening, SessionEntry};
use ostler_protocol::uri;
use ostler_protocol::wire::state::{AutomationDefinition, AutomationTrigger};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::rule::{Filter, Kind, Rule, SESSION, Then, WATCH};
use super::wake_event::WakeEvent;
use crate::Automations;

/// How many different inputs of one session a rule distinguishes.
const INPUTS: usize = 256;

/// Whether a trigger's type is one of the host's own.
pub(super) fn is_watched_type(r#type: &str) -> bool {
    r#type == SESSION || r#type == WATCH
}

/// Returns the kinds of event that a rule can name for what happened.
fn kinds_of(what: &Happened) -> &'static [Kind] {
    match what {
        Happened::Ended(TurnStatus::Complete) => &[Kind::TurnCompleted],
        Happened::Ended(TurnStatus::Error) => &[Kind::TurnFailed],
        Happened::Ended(TurnStatus::Cancelled) => &[Kind::TurnCancelled],
        Happened::Tool { failed: false, .. } => &[Kind::ToolCalled],
        Happened::Tool { failed: true, .. } => &[Kind::ToolCalled, Kind::ToolFailed],
        Happened::Queued => &[Kind::MessageQueued],
        Happened::Quiet => &[Kind::Idle],
        Happened::Child(_) => &[Kind::ChildFinished],
        Happened::Began | Happened::Stirred | Happened::Gone => &[],
    }
}

/// The rules, and their memory of each session.
#[derive(Debug, Default)]
pub(super) struct Watching {
    /// Whether there is any rule; without one, no event is examined.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By automation.
    rules: HashMap<String, Vec<Arc<Watched>>>,
    sessions: HashMap<String, Session>,
    /// The parent of a session that was created by a tool.
    parents: HashMap<String, String>,
    next: u64,
}

/// One trigger.
#[derive(Debug)]
struct Watched {
    number: u64,
    automation: String,
    trigger: String,
    /// The name of the event in the trigger.
    event: String,
    rule: Rule,
    pinned: Option<String>,
}

#[derive(Debug)]
struct Session {
    /// When its turn was last active.
    stirred: Instant,
    running: bool,
    /// The number of its turns.
    turn: u64,
    /// By the trigger's number.
    memory: HashMap<u64, Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    /// The times of the event, by the tool and input that must be the same.
    hits: HashMap<Option<(String, u64)>, VecDeque<Instant>>,
    armed: Option<Armed>,
}

/// A rule whose first event has happened.
#[derive(Debug)]
struct Armed {
    serial: u64,
    until: Option<Instant>,
    facts: JsonObject,
    count: u64,
}

/// A wake to carry out after all locks are released.
#[derive(Debug)]
struct Fire {
    watched: Arc<Watched>,
    facts: JsonObject,
    count: u64,
}

/// A check to make later.
#[derive(Debug)]
struct Later {
    watched: Arc<Watched>,
    session: Arc<SessionEntry>,
    at: Instant,
    what: Awaited,
}

#[derive(Debug, Clone, Copy)]
enum Awaited {
    /// Whether a turn stayed silent.
    Silence { turn: u64, after: Duration },
    /// Whether the rule is still armed with this number.
    Armed(u64),
}

impl Watching {
    /// Replaces an automation's rules.
    pub fn set(&self, id: &str, definition: &AutomationDefinition) {
        let mut state = self.state.lock();
        state.forget(id);
        let pinned = super::settings::AutomationSettings::of(definition).pinned_session;
        let mut rules = Vec::new();
        for trigger in definition.triggers.iter().filter(|_| definition.enabled) {
            let AutomationTrigger::Event(trigger) = trigger else { continue };
            if !is_watched_type(&trigger.r#type) {
                continue;
            }
            // An invalid rule was already logged.
            let Ok(rule) = Rule::read(trigger) else { continue };
            state.next += 1;
            rules.push(Arc::new(Watched {
                number: state.next,
                automation: id.to_owned(),
                trigger: trigger.id.clone(),
                event: trigger.events.first().map(|event| event.id.clone()).unwrap_or_default(),
                rule,
                pinned: pinned.clone(),
            }));
        }
        if !rules.is_empty() {
            state.rules.insert(id.to_owned(), rules);
        }
        self.any.store(!state.rules.is_empty(), Ordering::Relaxed);
    }

    pub fn remove(&self, id: &str) {
        let mut state = self.state.lock();
        state.forget(id);
        self.any.store(!state.rules.is_empty(), Ordering::Relaxed);
    }
}

impl State {
    fn forget(&mut self, id: &str) {
        for watched in self.rules.remove(id).unwrap_or_default() {
            for session in self.sessions.values_mut() {
                session.memory.remove(&watched.number);
            }
        }
        if self.rules.is_empty() {
            self.sessions.clear();
        }
    }
}

impl super::Automations {
    /// Whether any rule needs session events.
    pub fn watches(&self) -> bool {
        self.watching.any.load(Ordering::Relaxed)
    }

    /// Remembers which session created another.
    pub fn made_by(&self, child: &str, parent: &str) {
        self.watching.state.lock().parents.insert(child.to_owned(), parent.to_owned());
    }
}

impl Automations {
    /// Compares a session event with the rules.
    pub fn happened(self: &Arc<Self>, happening: Happening) {
        let (what, session) = (happening.what.clone(), happening.session.clone());
        if matches!(what, Happened::Gone) {
            self.forget_session_of_value(&session);
        }
        if self.watches() {
            self.look_at(happening);
        }
        if !matches!(what, Happened::Quiet | Happened::Gone) {
            return;
        }
        let parent = {
            let mut state = self.watching.state.lock();
            match what {
                Happened::Gone => {
                    state.sessions.remove(&session.uri);
                    state.parents.remove(&session.uri)
                }
                _ => state.parents.get(&session.uri).cloned(),
            }
        };
        let Some(parent) = parent.filter(|_| self.watches()) else { return };
        match self.sessions.by_uri(&parent) {
            Some(parent) => self.child_quiet(parent, &session.uri),
            None => {
                // The parent is asleep, but rules may still need its events.
                let automations = self.clone();
                tasks::spawn(async move {
                    // A failure is logged where it happened; no rule fires for a parent that cannot be read.
                    if let Read::Known(Some(parent)) = automations.sessions.session_at_here(&parent).await {
                        automations.child_quiet(parent, &session.uri);
                    }
                });
            }
        }
    }

    /// Compares with the rules that a session's child has become idle.
    fn child_quiet(self: &Arc<Self>, parent: Arc<SessionEntry>, child: &str) {
        let state = self.watching.state.lock();
        let running = state.sessions.get(&parent.uri).is_some_and(|session| session.running);
        drop(state);
        let what = Happened::Child(child.to_owned());
        self.look_at(Happening { session: parent, what, running, queued: 0, tool_calls: 0 });
    }

    fn look_at(self: &Arc<Self>, happening: Happening) {
        let now = Instant::now();
        let (mut fires, mut laters) = (Vec::new(), Vec::new());
        {
            let mut state = self.watching.state.lock();
            let state = &mut *state;
            let session = state.sessions.entry(happening.session.uri.clone()).or_insert_with(|| Session {
                stirred: now,
                running: happening.running,
                turn: 0,
                memory: HashMap::new(),
            });
            session.running = happening.running;
            match happening.what {
                Happened::Stirred => return session.stirred = now,
                Happened::Began => {
                    session.stirred = now;
                    session.turn += 1;
                }
                Happened::Tool { .. } => session.stirred = now,
                _ => {}
            }
            for watched in state.rules.values().flatten() {
                let mut looker =
                    Looker { automations: self, watched, happening: &happening, now, next: &mut state.next };
                looker.look(session, &mut fires, &mut laters);
            }
        }
        fires.into_iter().for_each(|fire| self.wake_by_rule(fire));
        for later in laters {
            tasks::spawn(look_later(Arc::downgrade(self), later));
        }
    }

    fn wake_by_rule(self: &Arc<Self>, fire: Fire) {
        let Fire { watched, mut facts, count } = fire;
        facts.insert("event".to_owned(), watched.event.as_str().into());
        facts.insert("count".to_owned(), count.into());
        facts.insert("at".to_owned(), self.core.clock.iso().into());
        let owner = facts.get("owner").and_then(Value::as_str).map(str::to_owned);
        let happened = WakeEvent {
            trigger: &watched.trigger,
            event: &watched.event,
            own_field: false,
            by: None,
            of_session: Some(owner.as_deref()),
            order: None,
        };
        // No caller waits for the run; a failure to store it is logged.
        drop(self.wake_by_event(&watched.automation, &happened, facts.into(), count));
    }

    /// Returns the facts about a session at the time of an event.
    fn facts_of(&self, happening: &Happening) -> JsonObject {
        let view = happening.session.view();
        let mut facts = JsonObject::new();
        facts.insert("session".to_owned(), happening.session.uri.as_str().into());
        facts.insert("sessionTitle".to_owned(), view.summary.title.as_str().into());
        facts.insert("provider".to_owned(), happening.session.provider.as_str().into());
        if let Some(owner) = &happening.session.owner {
            facts.insert("owner".to_owned(), owner.as_str().into());
        }
        if let Some(project) = &view.summary.project {
            facts.insert("project".to_owned(), project.uri.as_str().into());
        }
        facts.insert(
            "folders".to_owned(),
            json!(view.summary.working_directories.clone().unwrap_or_default()),
        );
        facts.insert("automated".to_owned(), maker(&happening.session.origin).is_some().into());
        facts.insert("running".to_owned(), happening.running.into());
        facts.insert("queued".to_owned(), happening.queued.into());
        facts.insert("toolCalls".to_owned(), happening.tool_calls.into());
        match &happening.what {
            Happened::Tool { name, input, .. } => {
                facts.insert("tool".to_owned(), name.as_str().into());
                facts.insert("input".to_owned(), format!("{input:016x}").into());
            }
            Happened::Child(child) => drop(facts.insert("child".to_owned(), child.as_str().into())),
            _ => {}
        }
        facts
    }

    /// Whether a rule applies to a session. Sessions that an automation started never wake it.
    fn is_about(&self, watched: &Watched, session: &SessionEntry) -> bool {
        let view = session.view();
        let own = maker(&session.origin) == Some(uri::automation(&watched.automation).as_str());
        if own || watched.pinned.as_deref() == Some(session.uri.as_str()) {
            return false;
        }
        let Filter { sessions, providers, owners, projects, folders, automated } = &watched.rule.filter;
        let among = |wanted: &Option<Vec<String>>, is: &[&str]| {
            wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| is.contains(&one.as_str())))
        };
        let project = view.summary.project.as_ref();
        let in_folder = folders.as_ref().is_none_or(|wanted| {
            let held = view.summary.working_directories.iter().flatten().map(|folder| file_path(folder));
            held.into_iter().any(|folder| {
                wanted.iter().any(|wanted| std::path::Path::new(&folder).starts_with(file_path(wanted)))
            })
        });
        among(sessions, &[&session.uri])
            && among(providers, &[&session.provider])
            && among(owners, &session.owner.as_deref().into_iter().collect::<Vec<_>>())
            && among(projects, &project.map_or(vec![], |project| vec![&*project.uri, &*project.display_name]))
            && in_folder
            && automated.is_none_or(|wanted| wanted == maker(&session.origin).is_some())
    }
}

/// Returns the automation that created a session.
fn maker(origin: &Option<Value>) -> Option<&str> {
    let origin = origin.as_ref()?;
    (origin["kind"] == "automation").then(|| origin["automation"].as_str()).flatten()
}

/// One rule and one event to compare.
struct Looker<'a> {
    automations: &'a Arc<Automations>,
    watched: &'a Arc<Watched>,
    happening: &'a Happening,
    now: Instant,
    next: &'a mut u64,
}

impl Looker<'_> {
    fn look(&mut self, session: &mut Session, fires: &mut Vec<Fire>, laters: &mut Vec<Later>) {
        let rule = &self.watched.rule;
        if let Some(after) = rule.is_silence() {
            if self.happening.what == Happened::Began && self.is_about() {
                let what = Awaited::Silence { turn: session.turn, after };
                laters.push(self.later(self.now + after, what));
            }
            return;
        }
        let kinds = kinds_of(&self.happening.what);
        let number = self.watched.number;
        if let Some(memory) = session.memory.get_mut(&number) {
            self.follow(memory, kinds, fires, laters);
            let broken = rule.count.consecutive && kinds.iter().any(|kind| kind.is_kin(rule.event));
            if broken && !kinds.contains(&rule.event) {
                memory.hits.clear();
            }
        }
        if !kinds.contains(&rule.event) || !self.is_about() {
            return;
        }
        let (stirred, running) = (session.stirred, session.running);
        let memory = session.memory.entry(number).or_default();
        if !self.counted(memory) || !self.holds(stirred, running) {
            return;
        }
        let facts = self.automations.facts_of(self.happening);
        let count = rule.count.n;
        let Some(then) = &rule.then else {
            return fires.push(Fire { watched: self.watched.clone(), facts, count });
        };
        *self.next += 1;
        let serial = *self.next;
        let until = match then {
            Then::Event(_, within) => within.map(|within| self.now + within),
            Then::Absent(_, after) => {
                laters.push(self.later(self.now + *after, Awaited::Armed(serial)));
                None
            }
            Then::Idle(after) => {
                // A session that still runs starts to be idle only when its turn ends.
                if self.happening.what == Happened::Quiet {
                    laters.push(self.later(self.now + *after, Awaited::Armed(serial)));
                }
                None
            }
        };
        memory.armed = Some(Armed { serial, until, facts, count });
    }

    /// Handles an event that fulfils or cancels an armed rule.
    fn follow(
        &mut self,
        memory: &mut Memory,
        kinds: &[Kind],
        fires: &mut Vec<Fire>,
        laters: &mut Vec<Later>,
    ) {
        let (Some(then), Some(armed)) = (&self.watched.rule.then, &mut memory.armed) else { return };
        match then {
            Then::Event(kind, _) if kinds.contains(kind) => {
                let in_time = armed.until.is_none_or(|until| self.now <= until);
                if let Some(armed) = memory.armed.take().filter(|_| in_time) {
                    fires.push(Fire {
                        watched: self.watched.clone(),
                        facts: armed.facts,
                        count: armed.count,
                    });
                }
            }
            Then::Absent(kind, _) if kinds.contains(kind) => memory.armed = None,
            Then::Idle(_) if self.happening.what == Happened::Began => memory.armed = None,
            Then::Idle(after) if self.happening.what == Happened::Quiet => {
                *self.next += 1;
                armed.serial = *self.next;
                let serial = armed.serial;
                laters.push(self.later(self.now + *after, Awaited::Armed(serial)));
            }
            _ => {}
        }
    }

    /// Counts the event. Returns whether the count reaches the rule's number.
    fn counted(&self, memory: &mut Memory) -> bool {
        let count = &self.watched.rule.count;
        let key = match &self.happening.what {
            Happened::Tool { name, input, .. } if count.same_input => Some((name.clone(), *input)),
            _ => None,
        };
        if count.consecutive {
            memory.hits.retain(|held, _| *held == key);
        }
        if memory.hits.len() >= INPUTS && !memory.hits.contains_key(&key) {
            memory.hits.clear();
        }
        let hits = memory.hits.entry(key.clone()).or_default();
        if let Some(within) = count.within {
            while hits.front().is_some_and(|at| self.now.duration_since(*at) > within) {
                hits.pop_front();
            }
        }
        hits.push_back(self.now);
        let enough = hits.len() as u64 >= count.n;
        if enough {
            memory.hits.remove(&key);
        }
        enough
    }

    fn holds(&self, stirred: Instant, running: bool) -> bool {
        let when = &self.watched.rule.when;
        let at_least = |wanted: Option<u64>, is: usize| wanted.is_none_or(|wanted| is as u64 >= wanted);
        let ended = self.watched.rule.event.ends_turn();
        when.running.is_none_or(|wanted| wanted == running)
            && at_least(when.queued_at_least, self.happening.queued)
            && at_least(when.tool_calls_at_least, self.happening.tool_calls)
            && when
                .turn_longer_than
                .is_none_or(|longer| (running || ended) && self.now.duration_since(stirred) >= longer)
    }

    fn is_about(&self) -> bool {
        self.automations.is_about(self.watched, &self.happening.session)
    }

    fn later(&self, at: Instant, what: Awaited) -> Later {
        Later { watched: self.watched.clone(), session: self.happening.session.clone(), at, what }
    }
}

/// Checks a rule's condition at the scheduled time.
async fn look_later(automations: Weak<Automations>, mut later: Later) {
    loop {
        tokio::time::sleep_until(later.at).await;
        let Some(automations) = automations.upgrade().filter(|automations| !automations.core.is_stopping())
        else {
            return;
        };
        let fire = {
            let mut state = automations.watching.state.lock();
            let known = state.rules.get(&later.watched.automation);
            if !known.is_some_and(|rules| rules.iter().any(|one| one.number == later.watched.number)) {
                return;
            }
            let Some(session) = state.sessions.get_mut(&later.session.uri) else { return };
            match later.what {
                Awaited::Silence { turn, after } => {
                    if session.turn != turn || !session.running {
                        return;
                    }
                    let due = session.stirred + after;
                    if due > Instant::now() {
                        later.at = due;
                        continue;
                    }
                    let happening = Happening {
                        session: later.session.clone(),
                        what: Happened::Stirred,
                        running: true,
                        queued: 0,
                        tool_calls: 0,
                    };
                    Fire { watched: later.watched.clone(), facts: automations.facts_of(&happening), count: 1 }
                }
                Awaited::Armed(serial) => {
                    let Some(memory) = session.memory.get_mut(&later.watched.number) else { return };
                    let Some(armed) = memory.armed.take_if(|armed| armed.serial == serial) else { return };
                    Fire { watched: later.watched.clone(), facts: armed.facts, count: armed.count }
                }
            }
        };
        return automations.wake_by_rule(fire);
    }
}
