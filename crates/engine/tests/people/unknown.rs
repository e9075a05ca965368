//! Failure is not absence: each command, and each message that reaches something stored, while the stores answer no read, or too
//! late. Nothing is said to be missing, and everything is there again afterwards.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{AutomationStore, KeptChat, KeptSession, SessionStore};
use ostler_contract::{Value, json, limit};
use ostler_engine::Principal;
use ostler_ports::{MemoryAutomations, SqliteSessions, StateDb};
use ostler_protocol::error::code;
use ostler_protocol::uri;
use ostler_testkit::cases::at_once;
use ostler_testkit::wrapped_store::{Away, wrapped_automations, wrapped_store};
use ostler_testkit::{MemoryHost, RawClient};

use super::grants::{builder, rows};

const SESSION: &str = "stage:/1";

/// What an earlier start of the host has left, in stores whose reads can fail.
struct Left {
    host: MemoryHost,
    away: Away,
}

fn stores() -> (SessionStore, AutomationStore) {
    let report = ostler_ports::Report::new(|line| panic!("{line}"));
    let sessions = SqliteSessions::new(StateDb::memory().unwrap(), report.clone());
    let automations = MemoryAutomations::new(report).unwrap();
    (at_once(Arc::new(sessions).into_point()), Arc::new(automations).into_point())
}

async fn client(host: &MemoryHost) -> RawClient {
    let mut client = host.raw_as(Principal::Root);
    client.initialize("c").await;
    client
}

async fn make_automation(maker: &mut RawClient) {
    let definition = json!({
        "title": "a", "enabled": true, "triggers": [], "message": { "text": "Go.", "origin": { "kind": "automation" } },
        "session": { "provider": "stage" },
    });
    let create = json!({ "type": "automation/createRequested", "resource": "ahp-automation:/a", "definition": definition });
    maker.request("subscribe", json!({ "channel": "ahp-automations://" })).await.unwrap();
    maker.dispatch("ahp-automations://", 1, create).await;
    maker.actions_until("automation/set").await;
    maker.request("ping", json!({})).await.unwrap();
}

/// A host whose sessions are all in the store.
async fn left() -> Left {
    let (sessions, automations) = stores();
    let first = builder().sessions(sessions.clone()).automations(automations.clone()).start().await;
    let mut maker = client(&first).await;
    let session = KeptSession {
        uri: SESSION.into(),
        provider: "stage".into(),
        title: "Kept".into(),
        created_at: "2026-01-01T00:00:00.000Z".into(),
        modified_at: "2026-01-01T00:00:00.000Z".into(),
        ..KeptSession::default()
    };
    let chats = vec![KeptChat { uri: uri::default_chat(SESSION), default: true, ..KeptChat::default() }];
    sessions.set_config.unbounded(("1".into(), session)).await.unwrap();
    sessions.set_chats.unbounded(("1".into(), chats)).await.unwrap();
    make_automation(&mut maker).await;
    drop(maker);
    first.host.close().await;
    drop(first);
    let away = Away::default();
    let host = builder()
        .sessions(wrapped_store(&sessions, &away))
        .automations(wrapped_automations(&automations, &away))
        .start()
        .await;
    Left { host, away }
}

/// How a request ended: nothing, or its error's code.
fn outcome(answer: &Result<Value, Value>) -> Option<i64> {
    answer.as_ref().err().map(|error| error["code"].as_i64().unwrap())
}

/// The requests that are tried: each command of the table, and those of sessions and chats that are only stored.
fn requests() -> Vec<(&'static str, Value)> {
    let mut all: Vec<_> = rows().into_iter().map(|row| (row.name, row.params)).collect();
    let default_chat = uri::default_chat(SESSION);
    for channel in [SESSION, &default_chat, "ahp-automations://", "stage:/1/changeset/session"] {
        all.push(("subscribe", json!({ "channel": channel })));
    }
    all.push(("createSession", json!({ "channel": SESSION })));
    let channels = json!([SESSION, default_chat]);
    all.push(("reconnect", json!({ "clientId": "c", "lastSeenServerSeq": 0, "subscriptions": channels })));
    all.push((
        "initialize",
        json!({ "clientId": "d", "protocolVersions": ["1.0.0"], "initialSubscriptions": channels }),
    ));
    all
}

/// How reads end while stores are away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    Fail,
    /// After the time for which the host waits.
    AreLate,
    /// Before that.
    AreSlow,
}

impl Reads {
    /// Lets the reads of stores be like this, or as usual again.
    fn apply(self, away: &Away, applies: bool) {
        match self {
            Self::Fail => away.set(applies),
            _ if !applies => away.delay(Duration::ZERO),
            Self::AreLate => away.delay(limit::STORE_SCAN * 2),
            Self::AreSlow => away.delay(Duration::from_millis(20)),
        }
    }
}

#[tokio::test]
async fn no_command_takes_a_store_that_fails_for_one_that_has_nothing() {
    let ways = [Reads::Fail, Reads::AreLate, Reads::AreSlow];
    for (how, (name, params)) in
        ways.into_iter().flat_map(|how| requests().into_iter().map(move |one| (how, one)))
    {
        let left = left().await;
        let fresh = async |host: &MemoryHost| match name {
            "initialize" | "reconnect" => host.raw_as(Principal::Root),
            _ => client(host).await,
        };
        how.apply(&left.away, true);
        if how == Reads::AreLate {
            tokio::time::pause();
        }
        let failed = fresh(&left.host).await.request(name, params.clone()).await;
        if how == Reads::AreLate {
            tokio::time::resume();
        }
        how.apply(&left.away, false);
        // What took effect cannot be repeated.
        if failed.is_ok() && matches!(name, "createSession" | "createChat") {
            continue;
        }
        // What took effect is not repeated.
        let after = match how {
            Reads::AreSlow => failed.clone(),
            _ => fresh(&left.host).await.request(name, params.clone()).await,
        };
        let untouched = self::left().await;
        let usual = fresh(&untouched.host).await.request(name, params.clone()).await;
        assert_eq!(
            outcome(&after),
            outcome(&usual),
            "{how:?}: {name} {params}: {after:?}, without a failure {usual:?}"
        );
        if let Err(error) = &failed {
            let is_usual = outcome(&failed) == outcome(&usual);
            let is_retryable = error["code"] == code::INTERNAL_ERROR && error["data"]["retryable"] == true;
            assert!(is_usual || is_retryable, "{how:?}: {name} {params}: {error}");
            continue;
        }
        // It did not need what is stored, so that its answer is the usual one.
        let missing = |answer: &Result<Value, Value>| answer.as_ref().unwrap().get("missing").cloned();
        assert!(usual.is_ok() && missing(&failed) == missing(&usual), "{how:?}: {name} {params}: {failed:?}");
        if name == "initialize" {
            let snapshots = |answer: &Result<Value, Value>| {
                answer.as_ref().unwrap()["snapshots"].as_array().map(Vec::len)
            };
            assert_eq!(snapshots(&failed), snapshots(&usual), "{how:?}: {params}");
        }
    }
}

#[tokio::test]
async fn an_action_on_a_session_that_cannot_be_read_is_rejected_and_can_be_repeated() {
    let left = left().await;
    let mut client = client(&left.host).await;
    let title = json!({ "type": "session/titleChanged", "title": "Later" });
    left.away.set(true);
    client.dispatch(SESSION, 1, title.clone()).await;
    let rejected = client.actions_until("session/titleChanged").await.pop().unwrap();
    let why = rejected["rejectionReason"].as_str().unwrap();
    assert_eq!(why, "stage:/1 could not be read from the store, try again: the store is away");
    left.away.set(false);
    client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    client.dispatch(SESSION, 2, title).await;
    let taken = client.actions_until("session/titleChanged").await.pop().unwrap();
    assert_eq!(taken.get("rejectionReason"), None, "{taken}");
}

/// Without its runs, it could repeat one.
#[tokio::test]
async fn automations_are_listed_once_their_history_is_known() {
    let (sessions, automations) = stores();
    let first = builder().sessions(sessions.clone()).automations(automations.clone()).start().await;
    make_automation(&mut client(&first).await).await;
    first.host.close().await;
    drop(first);

    let away = Away::default();
    away.set(true);
    let automations = AutomationStore {
        // Only what belongs to it fails.
        list: automations.list.clone(),
        ..wrapped_automations(&automations, &away)
    };
    let host = builder().sessions(sessions).automations(automations).start().await;
    let mut client = client(&host).await;
    let listed = async |client: &mut RawClient| {
        let answer = client.request("subscribe", json!({ "channel": "ahp-automations://" })).await.unwrap();
        answer["snapshot"]["state"]["entries"].as_array().unwrap().len()
    };
    assert_eq!(listed(&mut client).await, 0);
    host.log.wait_for("the automations could not be read: the store is away; trying again").await;
    away.set(false);
    host.log.wait_for("the automations and their unfinished runs were read").await;
    assert_eq!(listed(&mut client).await, 1);
}
