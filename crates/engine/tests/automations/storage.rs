//! While nothing can be stored, runs wait: none fails, and none starts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::support::{Kept, Yard, on_build, pass, settle, statuses};
use ostler_contract::call::Signature;
use ostler_contract::points::{AutomationStore, SessionStore};
use ostler_contract::{Call, Thrown, json, limit};
use ostler_engine::Host;
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::cases::at_once;
use ostler_testkit::wrapped_store::{Away, WrapCall, wrapped_store};
use ostler_testkit::{Builder, Stage};

const FULL: &str = "the disk is full";

/// A disk that a host finds full when it writes.
#[derive(Clone, Default)]
struct Disk {
    is_full: Arc<AtomicBool>,
    host: Arc<OnceLock<Weak<Host>>>,
}

impl Disk {
    /// Whether a write fails, which the host is told before it fails.
    fn fails(&self) -> bool {
        let fails = self.is_full.load(Ordering::SeqCst);
        if let (true, Some(host)) = (fails, self.host.get().and_then(Weak::upgrade)) {
            host.core.set_lost_storage(Some(FULL.to_owned()));
        }
        fails
    }

    fn fill(&self) {
        self.is_full.store(true, Ordering::SeqCst);
    }

    /// Makes room, and waits until the host goes on.
    async fn clear(&self, yard: &Yard) {
        self.is_full.store(false, Ordering::SeqCst);
        yard.host.host.core.set_lost_storage(None);
        pass(2).await;
    }

    fn sessions(&self) -> SessionStore {
        let db = StateDb::memory().unwrap();
        let store = Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}"))))
            .into_point();
        wrapped_store(&at_once(store), self)
    }

    fn automations(&self, kept: &Kept) -> AutomationStore {
        let store = kept.store();
        AutomationStore { run: self.wrap(&store.run, true), ..store }
    }

    async fn yard(&self, kept: &Kept) -> Yard {
        let more = |builder: Builder| builder.sessions(self.sessions()).automations(self.automations(kept));
        let yard = Yard::with(kept, Stage::default(), more).await;
        self.host.set(Arc::downgrade(&yard.host.host)).unwrap();
        yard
    }
}

impl WrapCall for Disk {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (call, disk) = (call.clone(), self.clone());
        Call::new(move |arguments| {
            let (fails, call) = (writes && disk.fails(), call.clone());
            async move {
                match fails {
                    true => Err(Thrown::new(FULL)),
                    false => call.unbounded(arguments).await,
                }
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_accepted_begins_once_it_can_be_stored() {
    let (kept, disk) = (Kept::default(), Disk::default());
    kept.put("a", on_build(json!({ "overlap": "queue" })));
    let yard = disk.yard(&kept).await;
    yard.fire(1).await;
    yard.fire(2).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["running", "pending"]);
    yard.host.host.core.set_lost_storage(Some(FULL.to_owned()));
    yard.end(0, 0).await;
    pass(600).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "pending"]);
    assert_eq!(yard.begun().len(), 1);
    disk.clear(&yard).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "running"]);
    yard.end(1, 1).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_start_finds_the_full_disk_waits() {
    let (kept, disk) = (Kept::default(), Disk::default());
    kept.put("a", on_build(json!({ "overlap": "queue" })));
    let yard = disk.yard(&kept).await;
    yard.fire(1).await;
    yard.fire(2).await;
    disk.fill();
    // The end of the first run is not stored, and the next one begins after it.
    yard.end(0, 0).await;
    pass(600).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["running", "pending"]);
    disk.clear(&yard).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "running"]);
    yard.end(1, 1).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_session_or_turn_cannot_be_stored_is_tried_again() {
    let (kept, disk) = (Kept::default(), Disk::default());
    kept.put("a", on_build(json!({ "overlap": "parallel" })));
    // Runs are stored elsewhere, so that only what they start fails.
    let more = |builder: Builder| builder.sessions(disk.sessions());
    let yard = Yard::with(&kept, Stage::default(), more).await;
    disk.host.set(Arc::downgrade(&yard.host.host)).unwrap();
    disk.fill();
    yard.fire(1).await;
    pass(600).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["pending"], "{:?}", yard.host.log.all());
    assert!(yard.host.log.has("waits until it can be stored"));
    disk.clear(&yard).await;
    settle().await;
    assert_eq!(statuses(&kept.runs_of("a")), ["running"]);
    yard.end(yard.stage.started() - 1, 0).await;
    let runs = kept.runs_of("a");
    assert_eq!(statuses(&runs), ["completed"], "{runs:?} {:?} {:?}", yard.begun(), yard.host.log.all());
}

#[tokio::test(start_paused = true)]
async fn schedules_that_are_due_while_nothing_can_be_stored_are_caught_up_with() {
    let (kept, disk) = (Kept::default(), Disk::default());
    kept.put(
        "clock",
        json!({ "triggers": [{ "id": "t", "kind": "schedule",
            "schedule": { "expression": "0 * * * *", "timeZone": "UTC" } }] }),
    );
    let yard = disk.yard(&kept).await;
    disk.fill();
    yard.host.host.core.set_lost_storage(Some(FULL.to_owned()));
    pass(3 * 3600).await;
    assert!(kept.runs_of("clock").is_empty());
    disk.clear(&yard).await;
    assert_eq!(statuses(&kept.runs_of("clock")), ["running"]);
    assert_eq!(kept.runs_of("clock")[0]["origin"]["scheduledFor"], "2026-01-01T03:00:00.000Z");
}

/// An accepted run does not fail because the store is away for a moment: it starts in the session that it continues.
#[tokio::test(start_paused = true)]
async fn a_run_whose_session_cannot_be_read_is_tried_again() {
    for is_late in [false, true] {
        let (kept, away) = (Kept::default(), Away::default());
        let sessions = Disk::default().sessions();
        kept.put("a", on_build(json!({ "session": "pinned" })));
        let more = |builder: Builder| builder.sessions(wrapped_store(&sessions, &away));
        let first = Yard::with(&kept, Stage::default(), more).await;
        first.fire(1).await;
        first.end(0, 0).await;
        first.host.host.stop().await;
        first.host.host.close().await;
        let more = |builder: Builder| builder.sessions(wrapped_store(&sessions, &away));
        let yard = Yard::with(&kept, Stage::default(), more).await;
        let hide = |hides: bool| match is_late {
            false => away.set(hides),
            true => away.delay(if hides { limit::STORE * 2 } else { Duration::ZERO }),
        };
        hide(true);
        yard.fire(2).await;
        pass(15).await;
        assert_eq!(statuses(&kept.runs_of("a")), ["completed", "pending"], "{:?}", yard.host.log.all());
        assert!(yard.host.log.has("its session could not be read: "), "{:?}", yard.host.log.all());
        hide(false);
        pass(60).await;
        let runs = kept.runs_of("a");
        assert_eq!(statuses(&runs), ["completed", "running"], "{:?}", yard.host.log.all());
        assert_eq!(runs[0]["primarySession"], runs[1]["primarySession"]);
        yard.end(0, 0).await;
        // One that stays away for longer fails, with the reason.
        yard.host.host.stop().await;
        yard.host.host.close().await;
        let more = |builder: Builder| builder.sessions(wrapped_store(&sessions, &away));
        let yard = Yard::with(&kept, Stage::default(), more).await;
        hide(true);
        yard.fire(3).await;
        pass(600).await;
        let runs = kept.runs_of("a");
        assert_eq!(statuses(&runs), ["completed", "completed", "failed"]);
        let why = runs[2]["lifecycle"]["error"]["message"].as_str().unwrap();
        assert!(why.starts_with("its session could not be read: "), "{why}");
    }
}
