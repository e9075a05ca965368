use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_contract::cluster::{Cluster, ClusterEvent, SessionOwner};
use ostler_contract::points::{AutomationStore, KeptDraft, KeptSession, SessionStore};
use ostler_contract::protocol::wire::state::{AutomationDefinition, AutomationRunState};
use ostler_contract::shared_runs::{Decision, NewRecord, Sent, SharedRuns, Wake, WakeKind};
use ostler_contract::{JsonObject, Value, json};

/// A host of a cluster, as far as it concerns its stores.
#[derive(Clone)]
pub struct ClusterMember {
    /// Hosts and owners.
    pub cluster: Arc<dyn Cluster>,
    /// The session store.
    pub sessions: SessionStore,
    /// The automation store.
    pub automations: AutomationStore,
    /// The runs that hosts share.
    pub runs: Arc<dyn SharedRuns>,
}

/// The events that a host received.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<ClusterEvent>>>);

impl Events {
    fn of(member: &ClusterMember) -> Self {
        let events = Self::default();
        let heard = events.clone();
        member.cluster.listen(Arc::new(move |event| heard.0.lock().unwrap().push(event)));
        events
    }

    fn has(&self, event: &ClusterEvent) -> bool {
        self.count(event) > 0
    }

    fn count(&self, event: &ClusterEvent) -> usize {
        self.0.lock().unwrap().iter().filter(|heard| *heard == event).count()
    }
}

/// Tests the ownership of sessions and of automations, and the runs that hosts share, with two hosts of an empty cluster.
pub async fn cluster_conformance(one: ClusterMember, other: ClusterMember) {
    let heard = [Events::of(&one), Events::of(&other)];
    knows_its_hosts(&one, &other).await;
    a_session_has_one_owner(&one, &other, &heard).await;
    a_session_needs_files(&one, &other).await;
    a_cause_has_one_wake(&one, &other).await;
    the_owner_decides(&one, &other).await;
    a_lost_host_writes_nothing(&one, &other, &heard[0]).await;
    a_draining_host_decides_nothing(&one, &other).await;
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(tokio::time::Instant::now() < end, "{what} does not come true");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn id(member: &ClusterMember) -> String {
    member.cluster.id()
}

async fn owner(member: &ClusterMember, session: &str) -> Option<String> {
    match member.cluster.owner(session.to_owned()).await.unwrap() {
        SessionOwner::Here => Some(id(member)),
        SessionOwner::Elsewhere(host) => {
            assert!(host.is_alive, "{host:?}");
            Some(host.id)
        }
        SessionOwner::Nobody { .. } => None,
    }
}

async fn claim(member: &ClusterMember, session: &str) -> bool {
    member.cluster.claim(session.to_owned()).await.unwrap() == SessionOwner::Here
}

async fn store(member: &ClusterMember, session: &str, title: &str) -> bool {
    let kept = KeptSession { uri: format!("echo:/{session}"), title: title.into(), ..KeptSession::default() };
    member.sessions.set_config.unbounded((session.to_owned(), kept)).await.is_ok()
}

async fn store_draft(member: &ClusterMember, session: &str) -> bool {
    let kept = KeptSession {
        uri: format!("echo:/{session}"),
        draft: Some(KeptDraft::default()),
        ..KeptSession::default()
    };
    member.sessions.set_config.unbounded((session.to_owned(), kept)).await.is_ok()
}

async fn title(member: &ClusterMember, session: &str) -> Option<String> {
    let kept = member.sessions.config.unbounded((session.to_owned(),)).await.unwrap();
    kept.map(|kept| kept.title)
}

async fn knows_its_hosts(one: &ClusterMember, other: &ClusterMember) {
    for member in [one, other] {
        let hosts = member.cluster.hosts().await.unwrap();
        let mut ids: Vec<String> =
            hosts.iter().filter(|host| host.is_alive).map(|host| host.id.clone()).collect();
        ids.sort();
        let mut expected = vec![id(one), id(other)];
        expected.sort();
        assert_eq!(ids, expected);
        let own = hosts.into_iter().find(|host| host.id == id(member)).unwrap();
        assert_eq!(own.incarnation, member.cluster.incarnation());
        assert!(!own.is_draining);
    }
    one.cluster.set_draining(true).await.unwrap();
    let hosts = other.cluster.hosts().await.unwrap();
    assert!(hosts.iter().all(|host| host.is_draining == (host.id == id(one))), "{hosts:?}");
    one.cluster.set_draining(false).await.unwrap();
}

async fn a_session_has_one_owner(one: &ClusterMember, other: &ClusterMember, heard: &[Events; 2]) {
    assert_eq!(one.cluster.owner("s".into()).await, Ok(SessionOwner::Nobody { last: None }));
    assert!(!store(one, "s", "unclaimed").await, "nobody writes a session without claiming it");
    assert!(claim(one, "s").await && claim(one, "s").await);
    assert!(!claim(other, "s").await);
    for member in [one, other] {
        assert_eq!(owner(member, "s").await, Some(id(one)));
    }
    assert!(store(one, "s", "first").await);
    assert!(!store(other, "s", "foreign").await);
    assert_eq!(title(other, "s").await.as_deref(), Some("first"));
    let changed = ClusterEvent::SessionChanged { id: "s".into(), by: one.cluster.incarnation() };
    until("the other host is told of the change", async || heard[1].has(&changed)).await;
    assert!(!heard[0].has(&changed), "a host is not told of its own changes");
    let added = ClusterEvent::SessionAdded { id: "s".into() };
    assert_eq!(heard.each_ref().map(|heard| heard.count(&added)), [0, 1], "before the change itself");

    // A release follows the writes before it, and precedes later claims.
    let written = one.sessions.set_config.unbounded((
        "s".into(),
        KeptSession { uri: "echo:/s".into(), title: "second".into(), ..KeptSession::default() },
    ));
    let released = one.cluster.release("s".into());
    let (written, released) = tokio::join!(written, released);
    assert_eq!((written, released), (Ok(()), Ok(())));
    assert_eq!(owner(other, "s").await, None);
    assert!(!store(one, "s", "released").await);
    assert!(claim(other, "s").await);
    assert!(store(other, "s", "third").await);
    assert!(!store(one, "s", "former").await);
    assert_eq!(title(one, "s").await.as_deref(), Some("third"));
    // Of what the former owner releases nothing is released.
    one.cluster.release("s".into()).await.unwrap();
    assert_eq!(owner(one, "s").await, Some(id(other)));

    assert!(claim(one, "unborn").await);
    one.cluster.release("unborn".into()).await.unwrap();
    assert_eq!(other.cluster.owner("unborn".into()).await, Ok(SessionOwner::Nobody { last: None }));
    assert!(claim(one, "gone").await && store(one, "gone", "x").await);
    one.sessions.forget.unbounded(("gone".into(),)).await.unwrap();
    let removed = ClusterEvent::SessionRemoved { id: "gone".into(), listed: Some("echo:/gone".into()) };
    until("the other host is told of the end", async || heard[1].has(&removed)).await;
    assert_eq!(owner(other, "gone").await, None);

    // A draft is listed once it is a session.
    for session in ["draft", "used"] {
        assert!(claim(one, session).await && store_draft(one, session).await);
    }
    assert!(store(one, "used", "x").await && store(one, "used", "y").await);
    for session in ["draft", "used"] {
        one.sessions.forget.unbounded((session.into(),)).await.unwrap();
    }
    let removed = ClusterEvent::SessionRemoved { id: "used".into(), listed: Some("echo:/used".into()) };
    until("the other host is told of the end", async || heard[1].has(&removed)).await;
    let removed = ClusterEvent::SessionRemoved { id: "draft".into(), listed: None };
    assert!(heard[1].has(&removed), "a draft was never listed");
    let added = |id: &str| heard[1].count(&ClusterEvent::SessionAdded { id: id.into() });
    assert_eq!((added("draft"), added("used"), added("s")), (0, 1, 1));

    // Both at once.
    for number in 0..8 {
        let session = format!("raced-{number}");
        let (first, second) = tokio::join!(claim(one, &session), claim(other, &session));
        assert!(first != second, "{first} {second}");
    }
}

async fn a_session_needs_files(one: &ClusterMember, other: &ClusterMember) {
    assert_eq!(other.cluster.bound_to("s".into()).await, Ok(None));
    other.cluster.bind("s".into()).await.unwrap();
    // Only the owner binds it.
    one.cluster.bind("s".into()).await.unwrap();
    let bound = one.cluster.bound_to("s".into()).await.unwrap().unwrap();
    assert_eq!((bound.id, bound.is_alive), (id(other), true));
}

fn automation() -> AutomationDefinition {
    let message = json!({ "text": "Go.", "origin": { "kind": "automation" } });
    let automation =
        json!({ "title": "A", "enabled": true, "message": message, "session": {}, "triggers": [] });
    serde_json::from_value(automation).unwrap()
}

fn run(name: &str, cause: &str, status: &str) -> AutomationRunState {
    let at = "2026-01-01T00:00:00.000Z";
    let lifecycle = match status {
        "pending" => json!({ "status": status, "createdAt": at }),
        _ => json!({ "status": status, "createdAt": at, "startedAt": at, "completedAt": at }),
    };
    serde_json::from_value(json!({
        "resource": format!("ahp-automation-run:/{name}"), "automation": "ahp-automation:/a",
        "origin": { "kind": "trigger", "triggerId": "t" }, "lifecycle": lifecycle, "sessions": [],
        "_meta": { "ostler.cause": cause },
    }))
    .unwrap()
}

fn wake(name: &str, cause: &str) -> Wake {
    Wake { run: run(name, cause, "pending"), kind: WakeKind::Event }
}

fn uri(name: &str) -> String {
    format!("ahp-automation-run:/{name}")
}

fn record(id: &str) -> NewRecord {
    record_in("deliveries", id)
}

fn record_in(collection: &str, id: &str) -> NewRecord {
    let record: JsonObject = [("id".to_owned(), Value::from(id))].into_iter().collect();
    NewRecord { collection: collection.into(), record }
}

/// Returns whether a log entry is stored. It is afterwards.
async fn is_logged(member: &ClusterMember, id: &str) -> bool {
    member.runs.send(vec![], Some(record_in("log", id)), None).await.unwrap() == Sent::Repeated
}

async fn a_cause_has_one_wake(one: &ClusterMember, other: &ClusterMember) {
    one.automations.create.unbounded(("a".into(), automation(), None)).await.unwrap();
    let log = |id: &str| Some(record_in("log", id));
    let sent = one.runs.send(vec![wake("r1", "x")], Some(record("x")), log("first")).await.unwrap();
    assert_eq!(sent, Sent::Stored(vec![uri("r1")]));
    let again = other.runs.send(vec![wake("r2", "x")], Some(record("x")), log("again"));
    assert_eq!(again.await, Ok(Sent::Repeated));
    let merged = other.runs.send(vec![wake("r2", "x")], None, log("merged")).await;
    assert_eq!(merged, Ok(Sent::Stored(vec![uri("r1")])));
    assert_eq!(one.runs.send(vec![], None, log("alone")).await, Ok(Sent::Stored(vec![])));
    for (id, is_stored) in [("first", true), ("again", false), ("merged", true), ("alone", true)] {
        assert_eq!(is_logged(other, id).await, is_stored, "{id}");
    }
    let both = tokio::join!(
        one.runs.send(vec![wake("r3", "y")], Some(record("y")), None),
        other.runs.send(vec![wake("r4", "y")], Some(record("y")), None),
    );
    assert!(
        matches!(
            &both,
            (Ok(Sent::Stored(_)), Ok(Sent::Repeated)) | (Ok(Sent::Repeated), Ok(Sent::Stored(_)))
        ),
        "{both:?}"
    );
    assert!(one.runs.outcomes(vec![uri("r1")]).await.unwrap().is_empty());
}

async fn the_owner_decides(one: &ClusterMember, other: &ClusterMember) {
    let first = run("r1", "x", "pending");
    assert!(one.automations.run.unbounded((first.clone(),)).await.is_err(), "nobody has the runs yet");
    let work = one.runs.take(Some(vec![]), vec![], vec![]).await.unwrap();
    assert_eq!(work.acquired.iter().map(|of| of.automation.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!((work.acquired[0].previous.clone(), work.acquired[0].unfinished.len()), (None, 0));
    assert_eq!((work.wakes.len(), &work.wakes[0]), (2, &wake("r1", "x")));
    let none = other.runs.take(Some(vec!["a".into()]), vec![], vec![]).await.unwrap();
    assert!(none.acquired.is_empty() && none.wakes.is_empty(), "{none:?}");
    assert_eq!(none.lost, ["a"]);
    assert!(other.automations.run.unbounded((first.clone(),)).await.is_err());
    one.automations.run.unbounded((first.clone(),)).await.unwrap();
    let second = work.wakes[1].run.resource.clone();
    let held = one.runs.take(Some(vec!["a".into()]), vec![second.clone()], vec![]).await.unwrap();
    assert_eq!(held, ostler_contract::shared_runs::Work::default(), "everything is decided or being decided");
    assert!(one.runs.take(None, vec![], vec!["a".into()]).await.unwrap().wakes.is_empty());
    // It is merged into the first one, which counts it: both are stored, or neither is.
    let merged = vec![Decision { wake: second.clone(), run: Some(uri("r1")) }];
    assert!(other.runs.store_with(first.clone(), merged.clone()).await.is_err(), "only the owner does so");
    other.runs.settle(second.clone(), None).await.unwrap();
    assert!(
        other.runs.outcomes(vec![second.clone()]).await.unwrap().is_empty(),
        "nor does another host decide"
    );
    let mut first = first;
    first.meta.get_or_insert_default().insert("ostler.count".to_owned(), 2.into());
    for _ in 0..2 {
        // A host whose answer was lost does so again.
        one.runs.store_with(first.clone(), merged.clone()).await.unwrap();
    }
    one.runs.settle(second.clone(), None).await.unwrap();
    let outcomes = other.runs.outcomes(vec![uri("r1"), second.clone(), uri("nobody")]).await.unwrap();
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes.values().all(|run| *run == Some(uri("r1"))), "{outcomes:?}");
    assert_eq!(other.runs.send(vec![wake("r5", "x")], None, None).await, Ok(Sent::Stored(vec![uri("r1")])));
    let duplicate = one.automations.run.unbounded((run("r6", "x", "pending"),)).await;
    assert!(duplicate.is_err(), "a cause has one run");
    assert_eq!(one.automations.unfinished.as_ref().unwrap().unbounded(()).await, Ok(vec![first]));
    // One that is dropped is counted, too.
    let sent = one.runs.send(vec![wake("r7", "z")], None, None).await;
    assert_eq!(sent, Ok(Sent::Stored(vec![uri("r7")])));
    let dropped = vec![Decision { wake: uri("r7"), run: None }];
    one.runs.store_with(run("r1", "x", "pending"), dropped).await.unwrap();
    assert_eq!(other.runs.outcomes(vec![uri("r7")]).await.unwrap(), [(uri("r7"), None)].into());
}

async fn a_lost_host_writes_nothing(one: &ClusterMember, other: &ClusterMember, heard: &Events) {
    assert!(claim(one, "lost").await && store(one, "lost", "before").await);
    let before = one.cluster.incarnation();
    assert_eq!(other.cluster.evict(id(one)).await, Ok(true));
    assert!(!store(one, "lost", "after").await, "a host without a lease writes nothing");
    let last = other.cluster.owner("lost".into()).await.unwrap();
    assert!(matches!(&last, SessionOwner::Nobody { last: Some(host) } if host.id == id(one)), "{last:?}");
    assert!(claim(other, "lost").await && store(other, "lost", "taken over").await);
    let work = other.runs.take(Some(vec![]), vec![], vec![]).await.unwrap();
    let acquired = &work.acquired[0];
    assert_eq!(
        (acquired.previous.clone(), acquired.unfinished.clone()),
        (Some(id(one)), vec![run("r1", "x", "pending")])
    );

    // It joins again under another name of its run, once its sessions have left memory.
    until("the host is told", async || heard.has(&ClusterEvent::LeaseLost)).await;
    assert!(one.cluster.claim("new".into()).await.is_err());
    one.cluster.emptied();
    until("the host joins again", async || heard.has(&ClusterEvent::LeaseRegained)).await;
    assert_ne!(one.cluster.incarnation(), before);
    assert!(!store(one, "lost", "again").await, "what it owned before it no longer owns");
    assert!(one.automations.run.unbounded((run("r1", "x", "completed"),)).await.is_err());
    assert_eq!(title(one, "lost").await.as_deref(), Some("taken over"));
    other.automations.run.unbounded((run("r1", "x", "completed"),)).await.unwrap();
    assert!(claim(one, "new").await && store(one, "new", "x").await);
}

/// The second host owns the automation, and leaves it to the first one.
async fn a_draining_host_decides_nothing(one: &ClusterMember, other: &ClusterMember) {
    let take = async |member: &ClusterMember, held: &[&str]| {
        let held = held.iter().map(|id| (*id).to_owned()).collect();
        member.runs.take(Some(held), vec![], vec![]).await.unwrap()
    };
    other.automations.run.unbounded((run("r9", "v", "pending"),)).await.unwrap();
    other.cluster.set_draining(true).await.unwrap();
    assert_eq!(one.runs.send(vec![wake("r10", "u")], None, None).await, Ok(Sent::Stored(vec![uri("r10")])));
    let work = take(other, &["a"]).await;
    assert!(work.wakes.is_empty() && work.lost.is_empty(), "a run of it has not ended: {work:?}");
    assert!(take(one, &[]).await.acquired.is_empty());
    other.automations.run.unbounded((run("r9", "v", "completed"),)).await.unwrap();
    assert_eq!(take(other, &["a"]).await.lost, ["a"]);
    let work = take(one, &[]).await;
    assert_eq!(work.acquired.iter().map(|of| of.automation.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(work.wakes, [wake("r10", "u")]);

    // Nobody else would decide.
    one.cluster.set_draining(true).await.unwrap();
    let work = take(one, &["a"]).await;
    assert!(work.lost.is_empty() && work.wakes == [wake("r10", "u")], "{work:?}");
    for member in [one, other] {
        member.cluster.set_draining(false).await.unwrap();
    }
    one.runs.settle(uri("r10"), None).await.unwrap();
}
