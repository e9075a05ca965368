//! Two and three hosts of a cluster, beside a cluster of one: webhook calls, runs and turns over all of them, and the CPU time
//! that each takes.

use std::time::{Duration, Instant};

use super::super::super::context::Context;
use super::super::super::failure::Result;
use super::super::super::figure::Figure;
use super::super::super::net::http_load::{Calls, Until, load};
use super::super::super::net::talk::Talk;
use super::super::super::net::turns::Turns;
use super::super::super::postgres::Postgres;
use super::super::super::rounds::{Bounds, Column, Side, alternate};
use super::hosts::{CONNECTIONS, Hosts, Runs};

/// The duration of a warm-up.
const BEFORE: Duration = Duration::from_millis(300);
/// The duration of a measurement.
const DURING: Duration = Duration::from_millis(1200);
/// Runs that start and end.
const RUNS: u64 = 400;
/// Sessions with a client each, in which one turn follows the other.
const SESSIONS: usize = 12;
/// What the clients say: a turn of some deltas.
const SAID: &str = "/words 20";

/// The columns of a number of hosts.
macro_rules! columns {
    ($hosts:literal) => {
        [
            (concat!($hosts, ", beside 1: webhook calls at the owner, run stored"), "k calls/s", None),
            (concat!($hosts, ": CPU time of the hosts per such call"), "µs", None),
            (concat!($hosts, ": CPU time of PostgreSQL per such call"), "µs", None),
            (concat!($hosts, ", beside 1: webhook calls at any host, run stored"), "k calls/s", None),
            (concat!($hosts, ", beside 1: runs fired at the owner and ended"), "runs/s", None),
            (concat!($hosts, ": CPU time of the hosts per run"), "µs", None),
            (concat!($hosts, ": CPU time of PostgreSQL per run"), "µs", None),
            (concat!($hosts, ", beside 1: turns of 20 deltas in 12 sessions"), "turns/s", None),
            (concat!($hosts, ": CPU time of the hosts per turn"), "µs", None),
            (concat!($hosts, ": CPU time of PostgreSQL per turn"), "µs", None),
        ]
    };
}

const TWO: [Column; 10] = columns!("2 hosts");
const THREE: [Column; 10] = columns!("3 hosts");

pub fn measure(context: &Context, server: &Postgres) -> Result<Vec<Figure>> {
    let bounds = Bounds { floor: true, ..context.bounds(2, Duration::from_secs(75)) };
    alternate(bounds, &[TWO, THREE].concat(), |side| match side {
        Side::Ostler => Ok([of(context, server, 2)?, of(context, server, 3)?].concat()),
        Side::Floor => Ok(of(context, server, 1)?.repeat(2)),
    })
}

/// What was done in an interval, and the CPU time that it took.
struct Work {
    count: u64,
    took: Duration,
    hosts: Duration,
    database: Duration,
}

impl Work {
    /// Does something that returns how often it was done.
    fn measure(hosts: &Hosts, server: &Postgres, work: impl FnOnce() -> Result<u64>) -> Result<Self> {
        let before = (hosts.processor_time()?, server.processor_time()?);
        let begun = Instant::now();
        let count = work()?;
        let took = begun.elapsed();
        let after = (hosts.processor_time()?, server.processor_time()?);
        // Processes of the database that end at the same moment may be counted late.
        let (hosts, database) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        Ok(Self { count, took, hosts, database })
    }

    fn per_second(&self) -> f64 {
        self.count as f64 / self.took.as_secs_f64()
    }

    /// Returns the CPU time of one, in microseconds: of the hosts, and of the database.
    fn each(&self) -> [f64; 2] {
        [self.hosts, self.database].map(|time| time.as_secs_f64() * 1e6 / self.count as f64)
    }
}

fn of(context: &Context, server: &Postgres, count: usize) -> Result<Vec<f64>> {
    let hosts = Hosts::cluster(context, server, count)?;
    // The first calls of each automation determine its owner.
    load(&hosts.calls(Runs::Wait), 202, Until::Time(BEFORE))?;
    load(&hosts.calls(Runs::End), 202, Until::Answers(2 * CONNECTIONS as u64))?;
    hosts.until_runs_end(server)?;
    server.analyze()?;
    let at_owner = calls(&hosts, server, &hosts.calls_at_owner(server, Runs::Wait)?)?;
    let at_any = calls(&hosts, server, &hosts.calls_at_any(Runs::Wait))?;
    let at_owner_too = hosts.calls_at_owner(server, Runs::End)?;
    let runs = Work::measure(&hosts, server, || {
        load(&at_owner_too, 202, Until::Answers(RUNS))?;
        hosts.until_runs_end(server)?;
        Ok(RUNS)
    })?;
    let turns = turns(&hosts, server)?;
    let mut values = vec![at_owner.per_second() / 1000.0];
    values.extend(at_owner.each());
    values.push(at_any.per_second() / 1000.0);
    for work in [runs, turns] {
        values.push(work.per_second());
        values.extend(work.each());
    }
    Ok(values)
}

fn calls(hosts: &Hosts, server: &Postgres, calls: &[Calls]) -> Result<Work> {
    load(calls, 202, Until::Time(BEFORE))?;
    Work::measure(hosts, server, || Ok(load(calls, 202, Until::Time(DURING))?.answered))
}

/// Every host owns the sessions that are created at it.
fn turns(hosts: &Hosts, server: &Postgres) -> Result<Work> {
    let talks = (0..SESSIONS).map(|at| {
        let talk = Talk::create(hosts.host(at).address, &format!("echo:/turns-{at}"))?;
        Ok(talk.into_parts())
    });
    let mut turns = Turns::begin(talks.collect::<Result<_>>()?, SAID)?;
    turns.run(BEFORE)?;
    Work::measure(hosts, server, || Ok(turns.run(DURING)?.answered))
}
