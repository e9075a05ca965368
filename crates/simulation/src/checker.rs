//! What must hold after every schedule.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ostler_protocol::uri;
use ostler_testkit::mirror::{Mirror, State};

use crate::database::tables::Tables;
use crate::ledger::Entries;

/// How long it may take until another host serves a session of a lost one.
const FAILOVER: Duration = Duration::from_secs(10);

/// Returns whatever does not hold.
pub fn check(tables: &Tables, entries: &Entries) -> Vec<String> {
    let mut problems = Vec::new();
    one_writer(tables, &mut problems);
    turns(tables, entries, &mut problems);
    for (session, title) in &entries.titles {
        if !tables.sessions.had_title(session, title) {
            problems.push(format!("the acknowledged title {title:?} of {session} was never stored"));
        }
    }
    runs(tables, entries, &mut problems);
    for failover in &entries.failovers {
        match failover.served {
            Some(served) if served - failover.lost <= FAILOVER => {}
            Some(served) => problems.push(format!(
                "{} was served {:?} after its host was lost",
                failover.channel,
                served - failover.lost
            )),
            None => problems.push(format!("{} was never served after its host was lost", failover.channel)),
        }
    }
    problems
}

/// Every epoch of a session has one writer, which had a lease for each append, and positions have no gap.
fn one_writer(tables: &Tables, problems: &mut Vec<String>) {
    let mut writers: BTreeMap<(&str, u64), &str> = BTreeMap::new();
    let mut last: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for append in &tables.appends {
        let place = format!("{} at {:?}", append.session, append.at);
        let writer = writers.entry((&append.session, append.epoch)).or_insert(&append.by);
        if *writer != append.by {
            problems.push(format!("{place}: {writer} and {} wrote in epoch {}", append.by, append.epoch));
        }
        if append.lease <= append.at {
            problems.push(format!("{place}: {} wrote without a lease", append.by));
        }
        let (epoch, position) = (append.epoch, append.position);
        if let Some((before, at)) = last.insert(&append.session, (epoch, position))
            && (epoch < before || position != at + 1)
        {
            problems.push(format!("{place}: {epoch}/{position} follows {before}/{at}"));
        }
        if append.ends {
            last.remove(append.session.as_str());
            writers.retain(|(session, _), _| *session != append.session);
        }
    }
}

/// Every acknowledged turn is stored once, and no turn twice.
fn turns(tables: &Tables, entries: &Entries, problems: &mut Vec<String>) {
    let mut stored: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, row) in tables.sessions.stored() {
        for kept in row.turns.values() {
            *stored.entry(&kept.turn.id).or_default() += 1;
        }
    }
    problems.extend(
        stored
            .iter()
            .filter(|(_, count)| **count > 1)
            .map(|(turn, count)| format!("turn {turn} is stored {count} times")),
    );
    for (chat, turn) in &entries.turns {
        if !stored.contains_key(turn.as_str()) {
            problems.push(format!("the acknowledged turn {turn} of {chat} is not stored"));
        }
    }
}

/// Every acknowledged event has one run, no cause has two, and no run was given to an agent twice.
fn runs(tables: &Tables, entries: &Entries, problems: &mut Vec<String>) {
    let mut causes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for row in tables.runs.values() {
        if let Some(cause) = &row.cause {
            *causes.entry((&row.automation, cause)).or_default() += 1;
        }
        let turns = row
            .run
            .sessions
            .iter()
            .filter_map(|session| tables.sessions.get(uri::session_id(session)?))
            .flat_map(|session| session.turns.values())
            // Clients say something in these sessions, too.
            .filter(|kept| !kept.turn.id.starts_with("tc"))
            .count();
        if row.automation == "each" && turns > 1 {
            problems.push(format!("{} has {turns} turns", row.run.resource));
        }
    }
    problems.extend(
        causes
            .iter()
            .filter(|(_, count)| **count > 1)
            .map(|(cause, count)| format!("{cause:?} has {count} runs")),
    );
    for (n, _) in entries.events.iter().filter(|(_, is_acknowledged)| **is_acknowledged) {
        if !causes.contains_key(&("each", format!("webhook:in:{n}").as_str())) {
            problems.push(format!("the acknowledged event {n} has no run"));
        }
        for collection in ["deliveries", "log"] {
            if !tables.records.contains_key(&(collection.to_owned(), format!("event-{n}"))) {
                problems.push(format!("the acknowledged event {n} has no record in {collection}"));
            }
        }
    }
}

/// Returns a run or a request for one that has not ended.
pub fn unfinished(tables: &Tables) -> Option<String> {
    let open = tables.runs.values().find(|row| !row.is_ended).map(|row| &row.run.resource);
    let waiting = tables.wakes.iter().find(|row| !row.is_done).map(|row| &row.wake.run.resource);
    open.or(waiting).map(|run| format!("{run} does not end"))
}

/// Compares the turns of a client with what is stored.
///
/// # Errors
/// The first difference.
pub fn stored(tables: &Tables, mirror: &Mirror) -> Result<(), String> {
    let begun = tables.sessions.stored().into_iter();
    let begun = begun.filter(|(_, row)| row.kept.as_ref().is_some_and(|kept| kept.draft.is_none()));
    for (id, row) in begun {
        let Some(kept) = &row.kept else { continue };
        let Some(State::Session(session)) = mirror.state(&kept.uri) else {
            return Err(format!("{} does not have session {id}", mirror.name()));
        };
        if session.title != kept.title {
            let why = format!("{} has the title {:?} of {id}", mirror.name(), session.title);
            return Err(format!("{why}, and the store has {:?}", kept.title));
        }
        let stored: BTreeSet<&str> = row.turns.values().map(|kept| kept.turn.id.as_str()).collect();
        let chats = session.chats.iter().filter_map(|chat| match mirror.state(&chat.resource) {
            Some(State::Chat(chat)) => Some(chat),
            _ => None,
        });
        let shown: BTreeSet<&str> =
            chats.flat_map(|chat| chat.turns.iter().map(|turn| turn.id.as_str())).collect();
        if stored != shown {
            let name = mirror.name();
            return Err(format!("{name} has the turns {shown:?} of {id}, and the store has {stored:?}"));
        }
    }
    Ok(())
}
