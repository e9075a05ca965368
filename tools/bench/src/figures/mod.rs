//! The benchmarks, one file each.

mod agents;
mod attacks;
mod automations;
mod busy;
mod cancel;
mod cluster;
mod connections;
mod create_session;
mod debian;
mod git;
// The tests of limits use the same attacks.
#[path = "../../../../crates/testkit/src/attacks.rs"]
mod kinds;
mod latency;
mod modules;
mod peaks;
mod plugins;
mod start;
mod stored;
mod sync;
mod terminal;
mod turn;
mod webhook;

use super::context::Context;
use super::failure::Result;
use super::figure::Figure;

/// A benchmark.
pub struct Group {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures.
    pub what: &'static str,
    /// Runs it.
    pub measure: fn(&Context) -> Result<Vec<Figure>>,
}

/// Every benchmark, in the order of execution.
pub const GROUPS: &[Group] = &[
    Group {
        name: "start",
        what: "from the spawn to the first connection, and the memory held then",
        measure: start::measure,
    },
    Group {
        name: "stored",
        what: "a start over 12,000 stored sessions, the memory written then, and pages of the listing",
        measure: stored::measure,
    },
    Group {
        name: "create-session",
        what: "sessions made and kept, one after the other",
        measure: create_session::measure,
    },
    Group {
        name: "latency",
        what: "one client's sessions, actions and first words, beside a Rust server that commits a row",
        measure: latency::measure,
    },
    Group {
        name: "cancel",
        what: "how long a client waits for the cancellation of a turn while sessions stream",
        measure: cancel::measure,
    },
    Group {
        name: "turn",
        what: "a turn of 1,000 deltas to 1, 10 and 100 subscribers",
        measure: turn::measure,
    },
    Group {
        name: "connections",
        what: "memory of connections that do nothing",
        measure: connections::measure,
    },
    Group {
        name: "peaks",
        what: "the most memory held while peers waste it, and what awake sessions cost",
        measure: peaks::measure,
    },
    Group {
        name: "automations",
        what: "webhook calls that match one of 10,000 automations, beside the same with that one alone",
        measure: automations::measure,
    },
    Group { name: "webhook", what: "webhook calls over 32 connections", measure: webhook::measure },
    Group {
        name: "sync",
        what: "webhook calls that wait for a bot's words, beside those that fire an automation",
        measure: sync::measure,
    },
    Group {
        name: "plugins",
        what: "JavaScript plugins, from the spawn until they are applied",
        measure: plugins::measure,
    },
    Group {
        name: "modules",
        what: "ten JavaScript plugins of ten modules each, from the spawn until they are applied",
        measure: modules::measure,
    },
    Group {
        name: "busy",
        what: "a JavaScript plugin's tool, route and channel under load",
        measure: busy::measure,
    },
    Group {
        name: "git",
        what: "the changes of a large repository beside git status, sessions in trees beside git worktree add",
        measure: git::measure,
    },
    Group {
        name: "agents",
        what: "agents of the Agent Client Protocol behind the daemon, beside the same agent driven directly",
        measure: agents::measure,
    },
    Group {
        name: "cluster",
        what: "hosts on PostgreSQL: beside SQLite, through another host, two and three hosts, beside a job queue",
        measure: cluster::measure,
    },
    Group {
        name: "terminal",
        what: "a terminal that prints 16 MiB to 1 and 20 subscribers",
        measure: terminal::measure,
    },
];
