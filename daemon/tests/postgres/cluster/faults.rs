//! Faults of the network, of clocks, disks and hosts under load. Every test ends with the checker of [`super::history`].
//!
//! `cargo xtask verify --long cluster` runs more kills (`OSTLER_FAULT_KILLS`) and a longer random schedule (`OSTLER_FAULT_ROUNDS`,
//! `OSTLER_FAULT_SEED`), and records the times of takeovers (`OSTLER_FAULT_RECORD`).

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_testkit::postgres::Postgres;

use super::clock::Clock;
use super::hosts::{Host, owner, until};
use super::load::{Load, session};
use crate::support::disk::Disk;
use crate::support::{LIMIT, Signal};

/// When other hosts have the sessions of one that was suspended.
const LOST_AFTER: Duration = Duration::from_secs(12);
/// When a link or a connection to the database that does not answer is replaced.
const SILENT: Duration = Duration::from_secs(6);
const HOSTS: [&str; 3] = ["first", "second", "third"];

async fn three(server: &Postgres) -> Vec<Host> {
    let mut hosts = Vec::new();
    for id in HOSTS {
        hosts.push(Host::started(server, id).await);
    }
    hosts
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// The indexes of the host that owns a session and of another one.
async fn owner_of(server: &Postgres, hosts: &[Host], session: &str) -> (usize, usize) {
    let found = || hosts.iter().position(|host| host.id == owner(server, session));
    until(LIMIT, "a host owns the session", || found().is_some()).await;
    let at = found().unwrap_or_default();
    (at, (at + 1) % hosts.len())
}

/// Locks the table of turns for a time.
fn lock_turns(server: &Postgres, seconds: u64) {
    let sql = format!("BEGIN; LOCK ostler.turns; SELECT pg_sleep({seconds}); COMMIT");
    let mut locking = server.psql_command("ostler", &sql);
    let mut locking =
        locking.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::spawn(move || locking.wait());
}

async fn restart_server(server: &Arc<Postgres>) {
    let server = server.clone();
    tokio::task::spawn_blocking(move || server.restart_immediately()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn cut_and_stalled_connections_lose_nothing() {
    let server = Postgres::start();
    let hosts = three(&server).await;
    let load = Load::start(&server, &hosts).await;
    for host in &hosts {
        host.clients.cut();
        load.progresses("after the connections of clients were cut").await;
        host.database.cut();
        load.progresses("after the connections to the database were cut").await;
        host.links.cut();
        load.progresses("after the links were cut").await;
    }
    hosts[0].clients.stall();
    hosts[1].links.stall();
    // The other processes notice silence by their own clocks.
    tokio::time::sleep(SILENT).await;
    hosts[0].clients.restore();
    hosts[1].links.restore();
    load.progresses("after clients and links were stalled").await;
    hosts[2].database.forget();
    // New connections work, so the host renews its lease in this time.
    tokio::time::sleep(SILENT).await;
    load.progresses("after connections to the database were forgotten").await;
    assert!(!hosts[2].log().contains("has lost its lease"), "{}", hosts[2].log());

    let (lost, other) = owner_of(&server, &hosts, &session(0)).await;
    let begun = Instant::now();
    hosts[lost].database.stall();
    load.takeover(&session(0), &hosts[other], begun).await;
    hosts[lost].database.restore();
    let again = || hosts[lost].log().contains("the host has joined the cluster again");
    until(LIMIT, "the host joins again", again).await;
    load.progresses("after the database was stalled").await;
    load.check(&server, &hosts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn suspended_hosts_and_a_server_that_is_killed_lose_nothing() {
    let server = Arc::new(Postgres::start());
    let hosts = three(&server).await;
    let load = Load::start(&server, &hosts).await;
    hosts[1].running().signal(Signal::STOP);
    // It continues after others have taken its sessions over.
    tokio::time::sleep(LOST_AFTER).await;
    load.progresses("without a host").await;
    hosts[1].running().signal(Signal::CONT);
    load.progresses("after a host continues").await;
    restart_server(&server).await;
    load.progresses("after the server was restarted").await;
    load.check(&server, &hosts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn wrong_and_jumping_clocks_of_hosts_change_nothing() {
    let server = Postgres::start();
    let clocks = [3600, -3600, 0].map(|ahead| {
        let clock = Clock::new();
        clock.set(ahead);
        clock
    });
    let mut hosts = Vec::new();
    for (id, clock) in HOSTS.into_iter().zip(&clocks) {
        let mut host = Host::new(&server, id).await;
        host.variables = clock.variables();
        host.start();
        hosts.push(host);
    }
    let load = Load::start(&server, &hosts).await;
    for ahead in [86_400, -86_400, 40] {
        clocks[2].set(ahead);
        clocks[0].set(-ahead);
        load.progresses("after clocks jumped").await;
    }
    for host in &hosts {
        assert!(!host.log().contains("has lost its lease"), "{}", host.log());
    }
    let (lost, other) = owner_of(&server, &hosts, &session(0)).await;
    let killed = Instant::now();
    hosts[lost].kill();
    load.takeover(&session(0), &hosts[other], killed).await;
    hosts[lost].start();
    load.hosts_changed(&hosts);
    load.progresses("after a host was killed").await;
    load.check(&server, &hosts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn slow_and_locked_queries_lose_nothing() {
    let server = Postgres::start();
    let hosts = three(&server).await;
    let load = Load::start(&server, &hosts).await;
    hosts[0].database.delay(Duration::from_millis(150));
    load.progresses("with a slow connection to the database").await;
    hosts[0].database.restore();
    lock_turns(&server, 12);
    // Longer than the limit of a statement and that of a call of the store.
    tokio::time::sleep(Duration::from_secs(12)).await;
    load.progresses("after turns were locked").await;
    for host in &hosts {
        assert!(!host.log().contains("has lost its lease"), "{}", host.log());
    }
    load.check(&server, &hosts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL and root: .ci/postgres"]
async fn full_disks_lose_nothing() {
    let folder = tempfile::Builder::new().prefix("ostler-disk").tempdir_in("/tmp").unwrap();
    let disk = Disk::mount(folder.path(), 192);
    let server = Postgres::start_in(disk.path());
    let mut hosts = Vec::new();
    let mut host = Host::new(&server, HOSTS[0]).await;
    let state = Disk::mount(&host.folder.state_home(), 16);
    host.start();
    hosts.push(host);
    hosts.push(Host::started(&server, HOSTS[1]).await);
    let load = Load::start(&server, &hosts).await;
    state.fill();
    load.progresses("with a full disk of a host").await;
    disk.fill();
    let full = || hosts.iter().all(|host| host.log().contains("the disk of the database is full"));
    until(LIMIT, "both hosts report the full disk", full).await;
    // The server writes for a while and finds the disk full again and again, which it logs only once.
    tokio::time::sleep(Duration::from_secs(2)).await;
    disk.clear();
    server.start_unless_running();
    load.progresses("after the disk of the database has room again").await;
    load.check(&server, &hosts).await;
    drop(hosts);
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn another_host_takes_over_after_each_kill() {
    let server = Postgres::start();
    let mut hosts = three(&server).await;
    let load = Load::start_slow(&server, &hosts).await;
    for kill in 0..number("OSTLER_FAULT_KILLS", 5) {
        let of = session(usize::try_from(kill).unwrap() % 3);
        let (lost, other) = owner_of(&server, &hosts, &of).await;
        let killed = Instant::now();
        hosts[lost].kill();
        load.takeover(&of, &hosts[other], killed).await;
        // After each, so that the times of a failed run are known, too.
        record(&load);
        hosts[lost].start();
        load.hosts_changed(&hosts);
    }
    load.check(&server, &hosts).await;
}

/// Writes the distribution of the times of takeovers to the file that is asked for.
fn record(load: &Load) {
    let Some(path) = std::env::var_os("OSTLER_FAULT_RECORD") else { return };
    let times = load.history.takeovers();
    // A measured time, of which this share of all times is not longer.
    let at = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1].as_secs_f64();
    let line = format!(
        "{} kills: takeover after {:.2} s at least, {:.2} s in the median, {:.2} s at p95, {:.2} s at most",
        times.len(),
        at(0),
        at(50),
        at(95),
        at(100)
    );
    std::fs::write(path, line).unwrap();
}

macro_rules! faults {
    ($($fault:ident,)+) => {
        /// A fault of a random schedule.
        #[derive(Debug, Clone, Copy)]
        enum Fault {
            $($fault,)+
        }

        const FAULTS: &[Fault] = &[$(Fault::$fault,)+];
    };
}

faults! {
    Kill,
    Suspend,
    CutClients,
    CutLinks,
    CutDatabase,
    StallClients,
    StallLinks,
    StallDatabase,
    ForgetLinks,
    ForgetDatabase,
    DelayDatabase,
    RestartServer,
    LockTurns,
    TurnClock,
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 24) % sides
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn random_faults_lose_nothing() {
    let server = Arc::new(Postgres::start());
    let clocks = HOSTS.map(|_| Clock::new());
    let mut hosts = Vec::new();
    for (id, clock) in HOSTS.into_iter().zip(&clocks) {
        let mut host = Host::new(&server, id).await;
        host.variables = clock.variables();
        host.start();
        hosts.push(host);
    }
    let (seed, rounds) = (number("OSTLER_FAULT_SEED", 7), number("OSTLER_FAULT_ROUNDS", 3));
    // Each call makes a session that a follower of each host watches, and a host has a maximum of those.
    let load = match rounds > 10 {
        true => Load::start_slow(&server, &hosts).await,
        false => Load::start(&server, &hosts).await,
    };
    let mut dice = Dice(seed | 1);
    for round in 0..rounds {
        let fault = FAULTS[usize::try_from(dice.roll(FAULTS.len() as u64)).unwrap()];
        let at = usize::try_from(dice.roll(hosts.len() as u64)).unwrap();
        let time = Duration::from_millis(500 + dice.roll(11_000));
        inject(fault, &server, &mut hosts[at], &clocks[at], time).await;
        load.hosts_changed(&hosts);
        load.progresses(&format!("seed {seed}, round {round}: {fault:?} of {at} for {time:?}")).await;
    }
    load.check(&server, &hosts).await;
}

/// Injects a fault and ends it.
async fn inject(fault: Fault, server: &Arc<Postgres>, host: &mut Host, clock: &Clock, time: Duration) {
    // As long as the dice say: the other processes run on the real clock.
    let lasts = tokio::time::sleep(time);
    match fault {
        Fault::Kill => {
            host.kill();
            lasts.await;
            host.start();
        }
        Fault::Suspend => {
            host.running().signal(Signal::STOP);
            lasts.await;
            host.running().signal(Signal::CONT);
        }
        Fault::CutClients => host.clients.cut(),
        Fault::CutLinks => {
            host.links.refuse();
            lasts.await;
            host.links.restore();
        }
        Fault::CutDatabase => {
            host.database.refuse();
            lasts.await;
            host.database.restore();
        }
        Fault::StallClients => {
            host.clients.stall();
            lasts.await;
            host.clients.restore();
        }
        Fault::StallLinks => {
            host.links.stall();
            lasts.await;
            host.links.restore();
        }
        Fault::StallDatabase => {
            host.database.stall();
            lasts.await;
            host.database.restore();
        }
        Fault::ForgetLinks => host.links.forget(),
        Fault::ForgetDatabase => host.database.forget(),
        Fault::DelayDatabase => {
            host.database.delay(time / 40);
            lasts.await;
            host.database.restore();
        }
        Fault::RestartServer => restart_server(server).await,
        Fault::LockTurns => lock_turns(server, time.as_secs()),
        Fault::TurnClock => clock.set(i64::try_from(time.as_millis()).unwrap() - 6000),
    }
}
