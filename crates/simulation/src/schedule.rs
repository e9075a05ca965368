//! Which faults happen when.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client;
use crate::database::{self, Faults};
use crate::network::Way;
use crate::random::Random;

/// When faults begin.
const BEGIN: Duration = Duration::from_secs(4);
/// When the last random fault begins.
const LAST: Duration = Duration::from_secs(32);
/// When everything works again.
pub const HEALED: Duration = Duration::from_secs(36);
/// When a host is lost while everything else works.
const LOSS: Duration = Duration::from_secs(48);
/// When clients change nothing more.
pub const QUIET: Duration = Duration::from_secs(61);

/// Something that happens to the cluster. Hosts are numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The process of a host ends at once.
    Crash(usize),
    /// The process of a host starts, if it does not run.
    Start(usize),
    /// Nothing of a host runs.
    Suspend(usize),
    /// A host continues; whether its clock has continued meanwhile.
    Continue(usize, bool),
    /// The way between two parties changes.
    Way(String, String, Way),
    /// The server of the database changes.
    Database(Faults),
    /// A host starts to drain, or takes sessions again.
    Drain(usize, bool),
    /// A host stops in order.
    Stop(usize),
    /// A host ends the lease of another one.
    Evict(usize, usize),
    /// Everything works again.
    Heal,
    /// The host with the most sessions is lost while everything else works, and others are asked for its sessions.
    Lose,
}

/// What happens, by the time and the order.
pub type Schedule = BTreeMap<(Duration, usize), Event>;

/// Returns the schedule of a seed for these hosts.
pub fn schedule(mut random: Random, hosts: &[String]) -> Schedule {
    let mut schedule = Schedule::new();
    let mut add = |at: Duration, event: Event| {
        let order = schedule.len();
        schedule.insert((at, order), event);
    };
    let mut at = BEGIN;
    while at < LAST {
        let host = random.index(hosts.len());
        let other = (host + 1 + random.index(hosts.len() - 1)) % hosts.len();
        let name = |host: usize| hosts[host].clone();
        let way = if random.chance(50) { Way::Cut } else { Way::Held };
        let mut block = |one: String, other: String, end: Duration| {
            add(at, Event::Way(one.clone(), other.clone(), way));
            add(end, Event::Way(one, other, Way::Open));
        };
        match random.below(12) {
            0 | 1 => {
                add(at, Event::Crash(host));
                add(at + random.millis(10, 14_000), Event::Start(host));
            }
            2 | 3 => {
                add(at, Event::Suspend(host));
                let end = at + random.millis(100, 20_000);
                add(end, Event::Continue(host, random.chance(75)));
            }
            4 => block(name(host), name(other), at + random.millis(100, 9000)),
            5 | 6 => block(name(host), database::PARTY.to_owned(), at + random.millis(100, 12_000)),
            7 => block(name(host), client::PARTY.to_owned(), at + random.millis(50, 5000)),
            8 => {
                let faults = match random.below(3) {
                    0 => Faults { delay: random.millis(50, 3500), ..Faults::default() },
                    1 => Faults { loses_answers: 40, ..Faults::default() },
                    _ => Faults { loses_answers: 20, loses_requests: 20, ..Faults::default() },
                };
                add(at, Event::Database(faults));
                add(at + random.millis(500, 6000), Event::Database(Faults::default()));
            }
            9 => {
                add(at, Event::Database(Faults { is_down: true, ..Faults::default() }));
                add(at + random.millis(20, 5000), Event::Database(Faults::default()));
            }
            10 => {
                add(at, Event::Drain(host, true));
                let end = at + random.millis(500, 6000);
                match random.chance(50) {
                    true => add(end, Event::Drain(host, false)),
                    false => {
                        add(end, Event::Stop(host));
                        add(end + random.millis(3000, 8000), Event::Start(host));
                    }
                }
            }
            _ => add(at, Event::Evict(host, other)),
        }
        at += random.millis(200, 5000);
    }
    add(HEALED, Event::Heal);
    add(LOSS, Event::Lose);
    add(QUIET, Event::Heal);
    schedule
}
