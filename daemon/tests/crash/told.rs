//! What clients and callers asked for and were told, each with its time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// What can be stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    Session(String),
    /// A message that a client sent to the default chat of a session.
    Turn {
        session: String,
        id: String,
        text: String,
    },
    /// The response in it.
    Response {
        session: String,
        id: String,
        text: String,
    },
    /// A message in the queue of the session's default chat.
    Queued {
        session: String,
        id: String,
        text: String,
    },
    /// A call that fires an automation, by its number.
    Run(u64),
    /// A call that fires another one, by its delivery id.
    Delivery(String),
    /// A call that talks to a bot, by its turn and its text.
    BotTurn(String, String),
    /// A call that talks to a bot and is told the end of its turn.
    Callback(String),
    Record(String),
    Automation(String),
    Secret(String),
    User(String),
    /// A file that a client wrote, by its path.
    File(String),
}

/// How many kinds [`Thing::kind`] tells apart.
const KINDS: usize = 13;

impl Thing {
    /// A new kind is counted in [`KINDS`], and then has to be stored in each test.
    fn kind(&self) -> &'static str {
        match self {
            Self::Session(_) => "session",
            Self::Turn { .. } => "turn",
            Self::Response { .. } => "response",
            Self::Queued { .. } => "queued message",
            Self::Run(_) => "run",
            Self::Delivery(_) => "delivery",
            Self::BotTurn(..) => "turn of a bot",
            Self::Callback(_) => "callback",
            Self::Record(_) => "record",
            Self::Automation(_) => "automation",
            Self::Secret(_) => "secret",
            Self::User(_) => "user",
            Self::File(_) => "file",
        }
    }
}

/// How far something has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It may be there.
    Asked,
    /// It has to be there.
    Stored,
    /// It may be gone.
    RemovalAsked,
    /// It has to be gone.
    Removed,
}

#[derive(Debug, Clone, Default)]
pub struct Told(Arc<Mutex<Vec<(SystemTime, Thing, Step)>>>);

impl Told {
    /// Notes a step that was just taken.
    pub fn note(&self, thing: Thing, step: Step) {
        self.0.lock().unwrap().push((SystemTime::now(), thing, step));
    }

    /// Whether there is something of every kind that could be lost, and something that was removed.
    pub fn of_every_kind(&self) -> bool {
        let told = self.0.lock().unwrap();
        let stored = told.iter().filter(|(_, _, step)| *step == Step::Stored);
        let kinds: BTreeSet<&str> = stored.map(|(_, thing, _)| thing.kind()).collect();
        kinds.len() == KINDS && told.iter().any(|(_, _, step)| *step == Step::Removed)
    }

    /// The times of everything that was acknowledged, oldest first.
    pub fn acknowledged(&self) -> Vec<SystemTime> {
        let told = self.0.lock().unwrap();
        told.iter()
            .filter(|(_, _, step)| matches!(step, Step::Stored | Step::Removed))
            .map(|(at, ..)| *at)
            .collect()
    }

    /// How far everything had come at a time.
    pub fn until(&self, end: SystemTime) -> BTreeMap<Thing, Step> {
        let told = self.0.lock().unwrap();
        told.iter().filter(|(at, ..)| *at <= end).map(|(_, thing, step)| (thing.clone(), *step)).collect()
    }

    /// How much of each kind of step there is, in words.
    pub fn figures(&self) -> String {
        let told = self.0.lock().unwrap();
        let count = |wanted| told.iter().filter(|(_, _, step)| *step == wanted).count();
        format!("{} stored, {} removed", count(Step::Stored), count(Step::Removed))
    }
}
