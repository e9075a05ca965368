//! The limit of sessions in memory: idle ones sleep, and where none can, a new one is refused.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::Emit;
use ostler_contract::{Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::{MemoryHost, RawClient, Stage};

const MOST: usize = 8;

async fn host(dir: &tempfile::TempDir) -> MemoryHost {
    let db = StateDb::open(dir.path()).unwrap();
    let sessions =
        Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point();
    MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .sessions(sessions)
        .options(|options| {
            options.delta_window_ms = 0;
            options.limits.awake_sessions = MOST;
        })
        .start()
        .await
}

async fn create(client: &mut RawClient, at: usize) -> Result<Value, Value> {
    client.request("createSession", json!({ "channel": format!("echo:/s{at}"), "provider": "echo" })).await
}

async fn say(client: &mut RawClient, at: usize, text: &str) {
    let chat = ostler_protocol::uri::default_chat(&format!("echo:/s{at}"));
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": format!("t{at}"), "message": { "text": text } });
    client.dispatch(&chat, i64::try_from(at).unwrap(), turn).await;
    let name = if text == "/hang" { "chat/turnStarted" } else { "chat/turnComplete" };
    client.actions_until(name).await;
}

#[tokio::test]
async fn idle_sessions_beyond_the_limit_sleep_and_wake_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(&dir).await;
    let mut client = host.raw();
    client.initialize("c").await;
    create(&mut client, 0).await.unwrap();
    say(&mut client, 0, "remember me").await;
    let chat = ostler_protocol::uri::default_chat("echo:/s0");
    client.notify("unsubscribe", json!({ "channel": chat })).await;
    for at in 1..10 * MOST {
        create(&mut client, at).await.unwrap();
        assert!(host.host.sessions.awake() <= MOST, "{}", host.host.sessions.awake());
    }
    let subscribed = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turns = subscribed["snapshot"]["state"]["turns"].as_array().unwrap().clone();
    assert_eq!(turns[0]["message"]["text"], "remember me");
    say(&mut client, 10 * MOST - 1, "hello").await;
}

/// A server of a backend that was closed does not run, and a client that was away does not learn of that by an action.
#[tokio::test]
async fn who_has_more_of_a_session_than_it_wakes_with_is_not_resumed() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default());
    let db = StateDb::open(dir.path()).unwrap();
    let sessions =
        Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point();
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .sessions(sessions)
        .options(|options| options.limits.awake_sessions = MOST)
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("maker").await;
    let (rich, plain) = ("stage:/rich", "stage:/plain");
    for (number, session) in [rich, plain].into_iter().enumerate() {
        client.request("createSession", json!({ "channel": session })).await.unwrap();
        client.request("subscribe", json!({ "channel": session })).await.unwrap();
        let chat = ostler_protocol::uri::default_chat(session);
        client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "go" } });
        client.dispatch(&chat, 1, turn).await;
        client.actions_until("chat/turnStarted").await;
        while stage.started() <= number {
            tokio::task::yield_now().await;
        }
    }
    let kit = json!([{ "type": "mcpServer", "id": "kit", "uri": "file:///kit", "name": "Kit", "enabled": true,
        "state": { "kind": "ready" } }]);
    stage.emit(0, Emit::Session, json!({ "type": "session/customizationsChanged", "customizations": kit }));
    let told = client.actions_until("session/customizationsChanged").await;
    let mut seen = told.last().unwrap()["serverSeq"].as_u64().unwrap();
    for (number, session) in [rich, plain].into_iter().enumerate() {
        stage.emit(number, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 0 }));
        let told = client.actions_until("chat/turnComplete").await;
        seen = seen.max(told.last().unwrap()["serverSeq"].as_u64().unwrap());
        for channel in [session.to_owned(), ostler_protocol::uri::default_chat(session)] {
            client.notify("unsubscribe", json!({ "channel": channel })).await;
        }
    }
    for at in 0..2 * MOST {
        client.request("createSession", json!({ "channel": format!("stage:/{at}") })).await.unwrap();
    }
    let reconnected = async |session: &str| {
        let params = json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": seen,
            "subscriptions": [session] });
        host.raw().request("reconnect", params).await.unwrap()
    };
    assert_eq!(reconnected(plain).await["type"], "replay");
    let result = reconnected(rich).await;
    assert_eq!(result["type"], "snapshot", "{result}");
    let server = &result["snapshots"][0]["state"]["customizations"][0];
    assert_eq!((&server["id"], &server["state"]["kind"]), (&json!("kit"), &json!("stopped")), "{result}");
}

#[tokio::test]
async fn sessions_made_at_the_same_time_do_not_exceed_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(&dir).await;
    let makers = (0..4).map(|maker| {
        let mut client = host.raw();
        async move {
            client.initialize(&format!("c{maker}")).await;
            for at in 0..5 * MOST {
                create(&mut client, 1000 * (maker + 1) + at).await.unwrap();
            }
        }
    });
    let mut most = 0;
    let mut made = std::pin::pin!(futures::future::join_all(makers));
    while futures::poll!(&mut made).is_pending() {
        most = most.max(host.host.sessions.awake());
        tokio::task::yield_now().await;
    }
    assert_eq!(most, MOST);
}

#[tokio::test]
async fn where_every_session_is_at_work_a_new_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(&dir).await;
    let mut client = host.raw();
    client.initialize("c").await;
    for at in 0..MOST {
        create(&mut client, at).await.unwrap();
        say(&mut client, at, "/hang").await;
    }
    let refused = create(&mut client, MOST).await.unwrap_err();
    assert_eq!(
        refused["message"],
        "8 sessions are at work or watched, as many as limits.awakeSessions allows; end or leave one, then try again"
    );
    let listed = client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), MOST, "it leaves nothing behind");
    assert_eq!(host.host.sessions.awake(), MOST);
    client.request("disposeSession", json!({ "channel": "echo:/s0" })).await.unwrap();
    create(&mut client, MOST).await.unwrap();
}

#[tokio::test]
async fn watched_sessions_exceed_the_limit_by_a_quarter_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(&dir).await;
    let mut client = host.raw();
    client.initialize("c").await;
    for at in 0..3 * MOST {
        create(&mut client, at).await.unwrap();
    }
    let mut refused = 0;
    for at in 0..3 * MOST {
        let subscribed = client.request("subscribe", json!({ "channel": format!("echo:/s{at}") })).await;
        refused += usize::from(subscribed.is_err());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(refused >= MOST, "{refused}");
    assert!(host.host.sessions.awake() <= MOST + MOST / 4 + 1, "{}", host.host.sessions.awake());
}

#[tokio::test]
async fn nobody_is_refused_beside_sessions_that_are_about_to_sleep() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(&dir).await;
    let mut client = host.raw();
    client.initialize("c").await;
    for at in 0..4 * MOST {
        create(&mut client, at).await.unwrap();
    }
    // Sent without a pause: nobody sleeps before the last one is read.
    for at in 0..MOST {
        let chat = ostler_protocol::uri::default_chat(&format!("echo:/s{at}"));
        let params = json!({ "channel": chat });
        let ask = json!({ "jsonrpc": "2.0", "id": 1000 + at, "method": "subscribe", "params": params });
        client.send(&ask.to_string()).await;
        client.notify("unsubscribe", params).await;
    }
    for _ in 0..MOST {
        let answer = loop {
            let frame = client.next_frame().await.unwrap();
            if frame["id"].is_u64() {
                break frame;
            }
        };
        assert!(answer["error"].is_null(), "{answer}");
    }
}

/// Lets so much time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_session_sleeps_ten_minutes_after_its_last_subscriber_left() {
    let chat = ostler_protocol::uri::default_chat("echo:/s0");
    for disconnects in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let host = host(&dir).await;
        let mut other = host.raw();
        other.initialize("other").await;
        let mut client = host.raw();
        client.initialize("c").await;
        create(&mut client, 0).await.unwrap();
        say(&mut client, 0, "hello").await;
        pass(Duration::from_secs(3600)).await;
        other.request("ping", json!({ "channel": "ahp-root://" })).await.unwrap();
        assert_eq!(host.host.sessions.awake(), 1, "a session that is watched stays awake");
        match disconnects {
            true => drop(client),
            false => {
                client.notify("unsubscribe", json!({ "channel": chat })).await;
                client.request("ping", json!({ "channel": "ahp-root://" })).await.unwrap();
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        pass(Duration::from_secs(590)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(host.host.sessions.awake(), 1, "disconnects: {disconnects}");
        pass(Duration::from_secs(11)).await;
        let asleep = async {
            while host.host.sessions.awake() > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let asleep = tokio::time::timeout(Duration::from_secs(5), asleep).await;
        assert!(asleep.is_ok(), "disconnects: {disconnects}");
    }
}
