//! The recorded history of a cluster under faults, and its checker.
//!
//! Clients record what was acknowledged to them, and triggers of the database each owner, epoch and position of a session. At the
//! end, everything that was acknowledged has to be stored exactly once, in order; no session may have had two writers in one
//! epoch; and each client has to have the stored state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ostler_testkit::postgres::Postgres;
use parking_lot::Mutex;

use super::hosts::{id_of, takeover_limit};

/// Something that a client observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A turn was acknowledged as complete.
    Turn { session: String, id: String },
    /// A call of a webhook was accepted.
    Call { number: usize },
    /// The sessions of a lost host were served again.
    Takeover { after: Duration },
}

/// The events of one test, in order.
#[derive(Debug, Default)]
pub struct History(Mutex<Vec<Event>>);

impl History {
    pub fn add(&self, event: Event) {
        self.0.lock().push(event);
    }

    /// The number of acknowledged turns and calls.
    pub fn acknowledged(&self) -> usize {
        self.0.lock().iter().filter(|event| !matches!(event, Event::Takeover { .. })).count()
    }

    /// The acknowledged turns of each session.
    fn turns(&self) -> BTreeMap<String, Vec<String>> {
        let mut turns: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in self.0.lock().iter() {
            if let Event::Turn { session, id } = event {
                turns.entry(session.clone()).or_default().push(id.clone());
            }
        }
        turns
    }

    fn calls(&self) -> BTreeSet<usize> {
        let events = self.0.lock();
        let calls = events.iter().filter_map(|event| match event {
            Event::Call { number } => Some(*number),
            _ => None,
        });
        calls.collect()
    }

    /// The times of the takeovers, ascending.
    pub fn takeovers(&self) -> Vec<Duration> {
        let events = self.0.lock();
        let mut times: Vec<Duration> = events
            .iter()
            .filter_map(|event| match event {
                Event::Takeover { after } => Some(*after),
                _ => None,
            })
            .collect();
        times.sort_unstable();
        times
    }

    /// Checks the history against the database. The caller has checked the clients.
    pub fn check(&self, server: &Postgres) {
        check_owners(server);
        for (session, acknowledged) in self.turns() {
            let stored = stored_turns(server, &session);
            for id in &acknowledged {
                let found: Vec<_> = stored.iter().filter(|(one, _)| one == id).collect();
                assert!(
                    matches!(found[..], [(_, state)] if state == "complete"),
                    "{session}: turn {id} was acknowledged and is {found:?} of {stored:?}"
                );
            }
            let order: Vec<_> =
                stored.iter().map(|(id, _)| id).filter(|id| acknowledged.contains(id)).collect();
            assert!(order.iter().zip(&acknowledged).all(|(one, id)| *one == id), "{session}: {order:?}");
        }
        let runs = runs_of_calls(server);
        for number in self.calls() {
            assert!(runs.contains_key(&number), "call {number} was accepted and has no run");
        }
        assert!(runs.values().all(|count| *count == 1), "a call has several runs: {runs:?}");
        let late: Vec<_> = self.takeovers().into_iter().filter(|after| *after >= takeover_limit()).collect();
        assert!(late.is_empty(), "takeovers after {late:?}");
    }
}

/// The ids and the states of the stored turns of a session, in order.
pub fn stored_turns(server: &Postgres, session: &str) -> Vec<(String, String)> {
    let sql = format!(
        "SELECT kept::json -> 'turn' ->> 'id', kept::json -> 'turn' ->> 'state' FROM ostler.turns
         WHERE session = '{}' ORDER BY place",
        id_of(session)
    );
    let rows = server.psql("ostler", &sql);
    let pair = |line: &str| line.split_once('|').map(|(id, state)| (id.to_owned(), state.to_owned()));
    rows.lines().filter_map(pair).collect()
}

/// How many runs each call has.
fn runs_of_calls(server: &Postgres) -> BTreeMap<usize, usize> {
    let sql = "SELECT run::json #>> '{origin,event,n}', count(*) FROM ostler.automation_runs
        WHERE run::json #>> '{origin,event,n}' IS NOT NULL GROUP BY 1";
    let rows = server.psql("ostler", sql);
    let pair = |line: &str| {
        let (number, count) = line.split_once('|')?;
        Some((number.parse().ok()?, count.parse().ok()?))
    };
    rows.lines().filter_map(pair).collect()
}

/// Records every owner, epoch and position that sessions have from now on.
pub fn record_owners(server: &Postgres) {
    server.psql(
        "ostler",
        "CREATE TABLE ostler.histories (at bigserial, session text, owner text, epoch bigint, head bigint);
         CREATE FUNCTION ostler.note_history() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO ostler.histories (session, owner, epoch, head) VALUES (NEW.session, NEW.owner, NEW.epoch, NEW.head);
             RETURN NULL;
         END $$;
         CREATE TRIGGER history AFTER INSERT OR UPDATE ON ostler.session_heads FOR EACH ROW
             EXECUTE FUNCTION ostler.note_history();",
    );
}

/// Checks that each epoch of a session had one writer, and that each write was one position after the last.
pub fn check_owners(server: &Postgres) {
    let rows = server
        .psql("ostler", "SELECT session, coalesce(owner, ''), epoch, head FROM ostler.histories ORDER BY at");
    let mut writers: BTreeMap<(String, i64), BTreeSet<String>> = BTreeMap::new();
    let mut last: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let mut writes = 0;
    for row in rows.lines() {
        let [session, owner, epoch, head]: [&str; 4] = row.split('|').collect::<Vec<_>>().try_into().unwrap();
        let (epoch, head): (i64, i64) = (epoch.parse().unwrap(), head.parse().unwrap());
        if let Some((epoch_before, head_before)) = last.insert(session.to_owned(), (epoch, head)) {
            assert!(epoch >= epoch_before && (head == head_before || head == head_before + 1), "{row}");
            if head > head_before {
                assert_eq!(epoch, epoch_before, "{row}: a write is no change of the owner");
                assert!(!owner.is_empty(), "{row}: a write without an owner");
                writes += 1;
            }
        }
        if !owner.is_empty() {
            writers.entry((session.to_owned(), epoch)).or_default().insert(owner.to_owned());
        }
    }
    assert!(writes > 0, "{rows}");
    for (epoch, owners) in writers {
        assert_eq!(owners.len(), 1, "{epoch:?}: {owners:?}");
    }
}
