//! One run of the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ostler_contract::json;
use ostler_contract::points::KeptAutomation;
use ostler_contract::{Value, cluster::SessionOwner};
use parking_lot::Mutex;

use crate::checker;
use crate::client::{self, Client, World};
use crate::database::{Database, Faults};
use crate::history::History;
use crate::host::{Addresses, SimulatedHost};
use crate::ledger::{Failover, Ledger};
use crate::machine::Machine;
use crate::network::Network;
use crate::random::Random;
use crate::schedule::{Event, HEALED, QUIET, Schedule, schedule};

/// The time that passes on each computer before the next one continues.
const STEP: Duration = Duration::from_millis(20);
/// How long clients may take until they have the stored state, after everything works again.
const CONVERGENCE: Duration = Duration::from_secs(30);
/// How often that is looked at. The regular requests of clients must not be under way each time.
const LOOK: Duration = Duration::from_millis(540);
/// The names of the hosts.
const HOSTS: [&str; 3] = ["h1", "h2", "h3"];
/// How many clients there are.
const CLIENTS: usize = 3;
/// How many events are sent at most.
const EVENTS: u64 = 12;
/// How many senders of events there are.
const SENDERS: u64 = 2;
/// The memory of the thread of a simulation.
const STACK: usize = 32 << 20;

/// Returns the time of day at a time of the simulation.
pub fn time_at(passed: Duration) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:30Z".parse().expect("a time");
    start.checked_add(passed).expect("a time")
}

/// The end of a simulation.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What happened.
    pub history: Vec<String>,
    /// What must not have happened.
    pub failures: Vec<String>,
    /// Numbers of what was acknowledged, in words.
    pub summary: String,
}

/// Runs the simulation of a seed. To be the same each time, it has to be the first of its process.
pub fn run(seed: u64) -> Outcome {
    let (ledger, history) = (Ledger::default(), History::default());
    let panics = ledger.clone();
    std::panic::set_hook(Box::new(move |info| panics.fail(format!("a panic: {info}"))));
    let (entries, lines) = (ledger.clone(), history.clone());
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        crate::entropy::seed_thread(seed);
        Simulation::new(seed, history, entries).run()
    });
    let outcome = thread.expect("a thread").join();
    drop(std::panic::take_hook());
    outcome.unwrap_or_else(|_| Outcome {
        history: lines.lines(),
        failures: ledger.with(|entries| entries.failures.clone()),
        summary: String::new(),
    })
}

struct Slot {
    host: Option<SimulatedHost>,
    runs: u64,
    suspended: Option<Duration>,
    is_draining: bool,
    is_stopping: bool,
    skew: Duration,
}

struct Simulation {
    history: History,
    ledger: Ledger,
    addresses: Addresses,
    network: Network,
    database: Database,
    world: World,
    server: Machine,
    wires: Machine,
    users: Machine,
    slots: Vec<Slot>,
    schedule: Schedule,
    clients: Arc<Mutex<Vec<Client>>>,
    random: Random,
    seed: u64,
}

impl Simulation {
    fn new(seed: u64, history: History, ledger: Ledger) -> Self {
        let addresses = Addresses::default();
        let (server, wires, users) = (Machine::new(), Machine::new(), Machine::new());
        let network = Network::new(wires.handle(), Random::new(seed, 1));
        let database = Database::new(server.handle(), network.clone(), history.clone(), Random::new(seed, 2));
        let names: Arc<[String]> = HOSTS.iter().map(|name| (*name).to_owned()).collect();
        let schedule = schedule(Random::new(seed, 3), &names);
        let world = World {
            network: network.clone(),
            addresses: addresses.clone(),
            names,
            history: history.clone(),
            ledger: ledger.clone(),
            is_active: Arc::new(Mutex::new(true)),
        };
        let mut random = Random::new(seed, 4);
        let slots = HOSTS
            .iter()
            .map(|_| Slot {
                host: None,
                runs: 0,
                suspended: None,
                is_draining: false,
                is_stopping: false,
                skew: random.millis(0, 4000),
            })
            .collect();
        Self {
            history,
            ledger,
            addresses,
            network,
            database,
            world,
            server,
            wires,
            users,
            slots,
            schedule,
            clients: Arc::default(),
            random,
            seed,
        }
    }

    fn run(mut self) -> Outcome {
        for automation in automations() {
            self.database.tables().automations.insert(automation.id.clone(), automation);
        }
        for at in 0..HOSTS.len() {
            self.start(at);
        }
        for at in 0..CLIENTS {
            let random = Random::new(self.seed, 100 + at as u64);
            let client = Client::new(&self.world, &format!("c{at}"), at, random);
            self.clients.lock().push(client);
        }
        self.users.start(client::run(self.clients.clone()));
        for at in 0..SENDERS {
            let numbers = at * EVENTS..(at + 1) * EVENTS;
            let sender = client::send_events(self.world.clone(), Random::new(self.seed, 200 + at), numbers);
            self.users.start(sender);
        }
        let mut next = 0;
        let events: Vec<((Duration, usize), Event)> =
            std::mem::take(&mut self.schedule).into_iter().collect();
        while self.history.now() < QUIET + STEP {
            while let Some(((at, _), event)) =
                events.get(next).filter(|((at, _), _)| *at <= self.history.now())
            {
                // Everything works between these times, except what is lost then.
                let is_over = *at > HEALED && !matches!(event, Event::Lose | Event::Heal);
                if !is_over {
                    self.happen(event.clone());
                }
                next += 1;
            }
            self.step();
        }
        *self.world.is_active.lock() = false;
        let converged = self.converge();
        let summary = self.finish(converged);
        let failures = self.ledger.with(|entries| entries.failures.clone());
        Outcome { history: self.history.lines(), failures, summary }
    }

    fn step(&mut self) {
        self.history.set_now(self.history.now() + STEP);
        self.server.run_for(STEP);
        self.wires.run_for(STEP);
        let first = self.random.index(self.slots.len());
        for at in 0..self.slots.len() {
            let slot = &self.slots[(first + at) % self.slots.len()];
            if let Some(host) = slot.host.as_ref().filter(|_| slot.suspended.is_none()) {
                host.machine().run_for(STEP);
            }
        }
        for (at, name) in HOSTS.iter().enumerate() {
            if self.slots[at].host.as_ref().is_some_and(SimulatedHost::has_stopped) {
                self.history.note(name, "has stopped");
                self.crash(at);
            }
        }
        self.users.run_for(STEP);
    }

    fn start(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        if slot.host.is_some() {
            return;
        }
        slot.runs += 1;
        (slot.is_draining, slot.is_stopping) = (false, false);
        let parts = (&self.database, &self.network, &self.addresses);
        slot.host = Some(SimulatedHost::start(HOSTS[at], slot.runs, slot.skew, parts));
    }

    fn crash(&mut self, at: usize) {
        self.slots[at].suspended = None;
        if let Some(host) = self.slots[at].host.take() {
            host.crash();
        }
    }

    fn resume(&mut self, at: usize, is_clock_running: bool) {
        let Some(since) = self.slots[at].suspended.take() else { return };
        if let Some(host) = self.slots[at].host.as_ref().filter(|_| is_clock_running) {
            host.machine().skip(self.history.now() - since);
        }
    }

    fn happen(&mut self, event: Event) {
        self.history.note("schedule", format_args!("{event:?}"));
        match event {
            Event::Crash(at) => self.crash(at),
            Event::Start(at) => {
                self.kill_leaving(at);
                self.start(at);
            }
            Event::Suspend(at) => {
                let now = self.history.now();
                let slot = &mut self.slots[at];
                if slot.host.is_some() {
                    slot.suspended.get_or_insert(now);
                }
            }
            Event::Continue(at, is_clock_running) => self.resume(at, is_clock_running),
            Event::Way(one, other, way) => self.network.set(&one, &other, way),
            Event::Database(faults) => self.database.set_faults(faults),
            Event::Drain(at, is_draining) => {
                self.slots[at].is_draining = is_draining;
                if let Some(host) = &self.slots[at].host {
                    host.set_draining(is_draining);
                }
            }
            Event::Stop(at) => {
                self.slots[at].is_stopping = true;
                if let Some(host) = &self.slots[at].host {
                    host.stop();
                }
            }
            Event::Evict(at, other) => {
                if let Some(host) = &self.slots[at].host {
                    host.evict(HOSTS[other]);
                }
            }
            Event::Heal => self.heal(),
            Event::Lose => self.lose(),
        }
    }

    fn heal(&mut self) {
        self.network.heal();
        self.database.set_faults(Faults::default());
        for at in 0..self.slots.len() {
            self.resume(at, true);
            self.kill_leaving(at);
            self.start(at);
        }
    }

    /// Kills a host that drains or stops, which it does not finish in time.
    fn kill_leaving(&mut self, at: usize) {
        if self.slots[at].is_draining || self.slots[at].is_stopping {
            self.crash(at);
        }
    }

    /// Ends the host with the most sessions while everything else works, and asks others for some of them.
    fn lose(&mut self) {
        let owned_by = |at: usize| -> Vec<String> {
            let tables = self.database.tables();
            let me = tables.hosts.get(HOSTS[at]).map(|row| row.incarnation.clone()).unwrap_or_default();
            let begun = tables.sessions.stored().into_iter();
            let begun = begun.filter(|(_, row)| row.kept.as_ref().is_some_and(|kept| kept.draft.is_none()));
            let owned = begun.filter(|(id, _)| tables.owner(&me, id) == SessionOwner::Here);
            owned.filter_map(|(_, row)| Some(row.kept.as_ref()?.uri.clone())).collect()
        };
        let Some(at) = (0..HOSTS.len()).max_by_key(|at| owned_by(*at).len()) else { return };
        let (lost, channels) = (HOSTS[at], owned_by(at).into_iter().take(4));
        self.crash(at);
        for channel in channels {
            let number = self.ledger.with(|entries| {
                let failover = Failover { channel: channel.clone(), lost: self.history.now(), served: None };
                entries.failovers.push(failover);
                entries.failovers.len() - 1
            });
            self.users.start(client::probe(self.world.clone(), channel, lost.to_owned(), number));
        }
    }

    /// Waits until all clients have the state that a new client receives from their host; returns whether they do.
    fn converge(&mut self) -> Result<Duration, String> {
        let begun = self.history.now();
        let fresh: Vec<Arc<Mutex<Vec<Client>>>> = (0..HOSTS.len())
            .map(|at| {
                let random = Random::new(self.seed, 300 + at as u64);
                let client = Client::new(&self.world, &format!("new{at}"), at, random).staying();
                let fresh = Arc::new(Mutex::new(vec![client]));
                self.users.start(client::run(fresh.clone()));
                fresh
            })
            .collect();
        loop {
            let next = self.history.now() + LOOK;
            while self.history.now() < next {
                self.step();
            }
            let mut clients = self.clients.lock();
            let mut differences = Vec::new();
            for client in clients.iter_mut() {
                client.want_everything();
                let new: Vec<_> = fresh.iter().map(|new| new.lock()).collect();
                let same = new.iter().find(|new| new[0].host() == client.host());
                match same {
                    Some(new) => differences.extend(client.mirror().compare(new[0].mirror()).err()),
                    None => differences.push(format!("no new client is at {}", client.host())),
                }
            }
            // Sessions without a turn are not listed; those who created them follow them.
            let own: BTreeSet<String> =
                clients.iter().flat_map(|client| client.mirror().own().iter().cloned()).collect();
            for new in &fresh {
                new.lock()[0].follow(own.clone());
            }
            let tables = self.database.tables();
            if differences.is_empty() {
                differences.extend(
                    clients.iter().filter_map(|client| checker::stored(&tables, client.mirror()).err()),
                );
                differences.extend(checker::unfinished(&tables));
            }
            drop(tables);
            match differences.first() {
                None => return Ok(self.history.now() - begun),
                Some(first) if self.history.now() > begun + CONVERGENCE => return Err(first.clone()),
                Some(_) => {}
            }
        }
    }

    /// Checks what is stored, and describes the run.
    fn finish(&mut self, converged: Result<Duration, String>) -> String {
        let took = match converged {
            Ok(took) => took,
            Err(why) => {
                self.ledger.fail(format!("clients do not converge: {why}"));
                Duration::ZERO
            }
        };
        let tables = self.database.tables();
        let problems = self.ledger.with(|entries| checker::check(&tables, entries));
        problems.into_iter().for_each(|problem| self.ledger.fail(problem));
        let appends = tables.appends.len();
        let (runs, sessions) = (tables.runs.len(), tables.sessions.stored().len());
        drop(tables);
        for at in 0..self.slots.len() {
            self.crash(at);
        }
        let summary = self.ledger.with(|entries| {
            format!(
                "{} turns, {} titles and {} events acknowledged; {appends} appends to {sessions} sessions, {runs} runs; \
                 {} sessions failed over; equal after {took:?}",
                entries.turns.len(),
                entries.titles.len(),
                entries.events.values().filter(|is_acknowledged| **is_acknowledged).count(),
                entries.failovers.len(),
            )
        });
        self.history.note("end", &summary);
        summary
    }
}

/// The automations: one with a run for each event, one that merges events, and one with a schedule.
fn automations() -> Vec<KeptAutomation> {
    let on_event = json!([{ "id": "t", "kind": "event", "type": "build", "title": "A build",
        "events": [{ "id": "done", "title": "Done" }] }]);
    let clock = json!([{ "id": "clock", "kind": "schedule",
        "schedule": { "expression": "* * * * *", "timeZone": "UTC" } }]);
    let one = |id: &str, triggers: Value, own: Value| {
        let kept = json!({
            "id": id, "createdAt": "2026-01-01T00:00:00.000Z", "modifiedAt": "2026-01-01T00:00:00.000Z",
            "definition": {
                "title": id, "enabled": true, "session": { "provider": "echo" }, "triggers": triggers,
                "message": { "text": format!("Do {id} {{{{event.n}}}}."), "origin": { "kind": "automation" } },
                "_meta": { "ostler": own },
            },
        });
        serde_json::from_value(kept).expect("an automation")
    };
    vec![
        one("each", on_event.clone(), json!({ "overlap": "parallel", "hourlyCap": 1000 })),
        one("merged", on_event, json!({ "hourlyCap": 1000 })),
        one("clock", clock, json!({ "overlap": "parallel" })),
    ]
}
