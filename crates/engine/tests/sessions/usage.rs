//! What work cost: what turns put down, and who may read it.

use std::sync::Arc;

use ostler_contract::points::{Emit, SessionStore, Usage, UsageEntry, UsageQuery};
use ostler_contract::{Call, Value, json};
use ostler_engine::usage::UsagePer;
use ostler_engine::users::UsersFile;
use ostler_engine::{People, Principal};
use ostler_ports::{SqliteSessions, SqliteUsage, StateDb};
use ostler_protocol::error::code;
use ostler_protocol::uri;
use ostler_testkit::{Builder, MemoryHost, RawClient, SIGN_IN, Stage};

fn store() -> Usage {
    Arc::new(SqliteUsage::new(StateDb::memory().unwrap(), ostler_ports::Report::quiet())).into_point()
}

fn builder(stage: &Stage, usage: &Usage) -> Builder {
    let usage = usage.clone();
    MemoryHost::builder().plugin(stage.plugin(), json!({})).own(move |host| host.register_usage(usage, None))
}

fn people() -> People {
    let people = People::new(SIGN_IN, "inn");
    let file = json!({
        "roles": { "book": ["usage:read"] },
        "teams": { "web": { "title": "The web team" } },
        "projects": { "shop": { "title": "The shop" } },
        "users": [
            { "id": "ada", "roles": ["member"], "memberships": ["web:shop"], "primary": "web:shop" },
            { "id": "ben", "roles": ["member"] },
            { "id": "kim", "roles": ["book"] }
        ]
    });
    people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    people
}

async fn person(host: &MemoryHost, id: &str) -> RawClient {
    let person = host.host.access.gate.people().unwrap().now().person(id).unwrap();
    let mut client = host.raw_as(Principal::Person(person));
    client.initialize(id).await;
    client
}

async fn anyone(host: &MemoryHost) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    client
}

/// Runs one turn that reports these one after the other.
async fn turn(client: &mut RawClient, stage: &Stage, nth: usize, id: &str, reports: &[Value]) {
    let session = format!("stage:/{id}");
    client.request("createSession", json!({ "channel": session })).await.unwrap();
    let chat = uri::default_chat(&session);
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let begin = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "go", "model": { "id": "m" } } });
    client.dispatch(&chat, 1, begin).await;
    client.actions_until("chat/turnStarted").await;
    for usage in reports {
        stage.emit(nth, Emit::Chat, json!({ "type": "chat/usage", "turnId": "t", "usage": usage }));
    }
    stage.emit(nth, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
    client.actions_until("chat/turnComplete").await;
}

/// Creates a session and begins a turn in it; returns its chat.
async fn begin(client: &mut RawClient) -> String {
    client.request("createSession", json!({ "channel": "stage:/1" })).await.unwrap();
    let chat = uri::default_chat("stage:/1");
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let begin = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "go" } });
    client.dispatch(&chat, 1, begin).await;
    chat
}

/// The turn fails and can go on.
fn fails() -> Value {
    let error = json!({ "errorType": "x", "message": "No." });
    let part = json!({ "kind": "error", "error": error, "resumable": true });
    json!({ "type": "chat/error", "turnId": "t", "duration": 1, "part": part })
}

async fn records(usage: &Usage) -> Vec<UsageEntry> {
    usage.records.unbounded((UsageQuery::default(),)).await.unwrap()
}

async fn read(client: &mut RawClient, uri: &str) -> Result<Value, Value> {
    let read = client.request("resourceRead", json!({ "uri": uri })).await?;
    Ok(serde_json::from_str(read["data"].as_str().unwrap()).unwrap())
}

#[tokio::test]
async fn a_turn_is_put_down_once_under_whom_it_is_charged_to() {
    let (stage, usage) = (Stage::default(), store());
    let host = builder(&stage, &usage).people(people()).start().await;
    let mut ada = person(&host, "ada").await;
    let first = json!({ "inputTokens": 100, "outputTokens": 1 });
    let last =
        json!({ "inputTokens": 150, "outputTokens": 20, "model": "a/b", "_meta": { "ostler.cost": 0.5 } });
    turn(&mut ada, &stage, 0, "1", &[first, last]).await;
    let mut ben = person(&host, "ben").await;
    turn(&mut ben, &stage, 1, "2", &[json!({ "inputTokens": 1 })]).await;
    turn(&mut ben, &stage, 2, "3", &[]).await;
    let kept = records(&usage).await;
    let [of_ben, of_ada] = &kept[..] else { panic!("{kept:?}") };
    let mut of_ada = serde_json::to_value(of_ada).unwrap();
    assert!(of_ada["at"].take().is_string());
    assert_eq!(
        of_ada,
        json!({
            "kind": "model", "source": "agent", "at": null, "owner": "user:ada", "team": "web", "project": "shop",
            "pools": ["user:ada", "team:web", "project:web:shop"],
            "session": "stage:/1", "chat": uri::default_chat("stage:/1"), "turn": "t", "agent": "stage",
            "model": { "name": "a/b", "input": 150, "output": 20 },
            "cost": { "amount": 0.5, "currency": "USD", "from": "harness" }
        })
    );
    assert_eq!(of_ben.charged(), ["user:ben"]);
    assert_eq!(
        of_ben.model.as_ref().unwrap().name,
        "m",
        "what the turn was asked of, where the backend does not say"
    );
}

#[tokio::test]
async fn each_report_is_put_down_where_that_is_asked() {
    let (stage, usage) = (Stage::default(), store());
    let host = builder(&stage, &usage).options(|options| options.usage.per = UsagePer::Report).start().await;
    let report = |input: u32| json!({ "inputTokens": input, "model": "a/b" });
    turn(&mut anyone(&host).await, &stage, 0, "1", &[report(10), report(10), report(25)]).await;
    let kept = records(&usage).await;
    let added: Vec<_> = kept.iter().map(|entry| entry.model.as_ref().unwrap().input.unwrap()).collect();
    assert_eq!(added, [15, 10], "each by what it adds");
    assert_eq!(kept[0].charged(), ["root:localhost"], "what nobody started as themselves is the host's");
}

#[tokio::test]
async fn a_turn_that_goes_on_is_put_down_by_what_it_uses_from_there_on() {
    for per in [UsagePer::Turn, UsagePer::Report] {
        let (stage, usage) = (Stage::default().resuming(), store());
        let host = builder(&stage, &usage).options(|options| options.usage.per = per).start().await;
        let mut client = anyone(&host).await;
        let chat = begin(&mut client).await;
        client.actions_until("chat/turnStarted").await;
        let report = |input: u32| json!({ "type": "chat/usage", "turnId": "t", "usage": { "inputTokens": input, "model": "m" } });
        stage.emit(0, Emit::Chat, report(30));
        stage.emit(0, Emit::Chat, fails());
        client.actions_until("chat/error").await;
        client.dispatch(&chat, 2, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
        client.actions_until("chat/turnResume").await;
        stage.emit(0, Emit::Chat, report(10));
        let seen = client.actions_until("chat/usage").await.pop().unwrap();
        assert_eq!(seen["action"]["usage"]["inputTokens"], 40, "clients see all that the turn used: {seen}");
        stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
        client.actions_until("chat/turnComplete").await;
        let kept = records(&usage).await;
        let added: Vec<_> = kept.iter().map(|entry| entry.model.as_ref().unwrap().input.unwrap()).collect();
        assert_eq!(added, [10, 30], "{per:?}");
    }
}

/// Nothing was reported since it goes on, and the host is killed again.
#[tokio::test]
async fn a_turn_that_two_kills_break_is_put_down_once() {
    let (stage, usage) = (Stage::default().naming_conversations().resuming(), store());
    let sessions =
        SqliteSessions::new(StateDb::memory().unwrap(), ostler_ports::Report::new(|line| panic!("{line}")));
    let sessions = Arc::new(sessions).into_point();
    let turns =
        || sessions.turns.as_ref().unwrap().unbounded(("1".to_owned(), uri::default_chat("stage:/1")));
    let mut hosts = vec![builder(&stage, &usage).sessions(sessions.clone()).start().await];
    let mut client = anyone(&hosts[0]).await;
    let chat = begin(&mut client).await;
    stage.wait_begun("t").await;
    let tokens = json!({ "inputTokens": 100 });
    stage.emit(0, Emit::Chat, json!({ "type": "chat/usage", "turnId": "t", "usage": tokens }));
    stage.emit(0, Emit::Chat, fails());
    client.actions_until("chat/error").await;
    until("the failed turn is put down", async || records(&usage).await.len() == 1).await;
    client.dispatch(&chat, 2, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
    stage.wait_told("resume").await;
    until("it is stored that it runs", async || turns().await.unwrap()[0].unended).await;
    hosts.push(builder(&stage, &usage).sessions(sessions.clone()).start().await);
    until("it has ended", async || !turns().await.unwrap()[0].unended).await;
    let mut client = anyone(&hosts[1]).await;
    let state = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    assert_eq!(state["snapshot"]["state"]["turns"][0]["state"], "error");
    // Another turn, which is put down after whatever was put down of this one.
    client
        .dispatch(&chat, 3, json!({ "type": "chat/turnStarted", "turnId": "u", "message": { "text": "go" } }))
        .await;
    stage.wait_begun("u").await;
    let latest = stage.started() - 1;
    let tokens = json!({ "inputTokens": 7 });
    stage.emit(latest, Emit::Chat, json!({ "type": "chat/usage", "turnId": "u", "usage": tokens }));
    stage.emit(latest, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "u", "duration": 1 }));
    client.actions_until("chat/turnComplete").await;
    until("the later turn is put down", async || {
        records(&usage).await.iter().any(|entry| entry.turn.as_deref() == Some("u"))
    })
    .await;
    let put_down: Vec<_> = records(&usage).await.into_iter().filter_map(|entry| entry.turn).collect();
    assert_eq!(put_down.iter().filter(|turn| *turn == "t").count(), 1, "{put_down:?}");
}

#[tokio::test]
async fn a_store_that_refuses_costs_a_line_and_not_the_turn() {
    let stage = Stage::default();
    let usage = Usage { record: Call::new(|_| async { Err("the books are closed".into()) }), ..store() };
    let host = builder(&stage, &usage).start().await;
    turn(&mut anyone(&host).await, &stage, 0, "1", &[json!({ "inputTokens": 1 })]).await;
    assert!(host.log.has("the usage of a turn of stage:/1 could not be stored: the books are closed"));
}

#[tokio::test]
async fn a_host_that_keeps_no_use_serves_none() {
    let stage = Stage::default();
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).start().await;
    let mut client = anyone(&host).await;
    turn(&mut client, &stage, 0, "1", &[json!({ "inputTokens": 1 })]).await;
    let refused = client.request("x-ostler/usage/totals", json!({})).await.unwrap_err();
    assert_eq!(refused["code"], code::METHOD_NOT_FOUND);
    assert_eq!(refused["message"], "this host has no usage store");
    let refused = read(&mut client, "usage://").await.unwrap_err();
    assert_eq!(refused["message"], "nothing here serves usage:");
}

async fn with_use() -> (MemoryHost, Usage) {
    let (stage, usage) = (Stage::default(), store());
    let host = builder(&stage, &usage)
        .people(people())
        .started("2026-01-15T12:00:00Z".parse().unwrap())
        .start()
        .await;
    for (at, owner, team, usd) in [
        ("2026-01-15T08:00:00Z", "user:ada", Some("web"), 1.0),
        ("2026-01-12T00:00:00Z", "user:ada", Some("web"), 2.0),
        ("2026-01-01T00:00:00Z", "user:ben", Some("web"), 4.0),
        ("2025-12-31T23:59:59Z", "user:ada", None, 8.0),
    ] {
        let entry = json!({ "kind": "model", "at": at, "owner": owner, "team": team, "project": team.map(|_| "shop"),
            "cost": { "amount": usd, "currency": "USD" } });
        let entry: UsageEntry = serde_json::from_value(entry).unwrap();
        host.plugin("stage").record_usage(entry).await.unwrap();
    }
    (host, usage)
}

#[tokio::test]
async fn totals_are_told_of_own_pools_and_of_all_to_who_may_read_them() {
    let (host, _usage) = with_use().await;
    let mut ada = person(&host, "ada").await;
    let dollars = |usd: f64| json!({ "usd": usd, "calls": if usd == 1.0 { 1 } else { 2 } });
    let row = json!({ "pool": "user:ada", "kind": "user", "name": "ada", "day": dollars(1.0), "week": dollars(3.0),
        "month": dollars(3.0) });
    let totals = ada.request("x-ostler/usage/totals", json!({})).await.unwrap();
    let pools: Vec<_> = totals["totals"].as_array().unwrap().iter().map(|row| row["pool"].clone()).collect();
    assert_eq!(pools, ["project:web:shop", "team:web", "user:ada"]);
    assert_eq!(totals["totals"][2], row);
    assert_eq!(totals["totals"][0]["name"], "The web team / The shop");
    assert_eq!(read(&mut ada, "usage://user%3Aada").await.unwrap(), row, "the command and the scheme agree");
    let ranged = json!({ "pools": ["user:ada"], "from": "2025-12-31", "until": "2026-01-12" });
    let ranged = ada.request("x-ostler/usage/totals", ranged).await.unwrap();
    assert_eq!(ranged["totals"][0]["range"], json!({ "usd": 10.0, "calls": 2 }));

    let foreign = json!({ "pools": ["user:ada", "user:ben"] });
    let refused = ada.request("x-ostler/usage/totals", foreign.clone()).await.unwrap_err();
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (&json!(code::PERMISSION_DENIED), &json!("ada may not usage:get here"))
    );
    let refused = ada.request("x-ostler/usage/records", json!({ "pool": "user:ben" })).await.unwrap_err();
    assert_eq!(refused["message"], "ada may not usage:get here");
    let mut kim = person(&host, "kim").await;
    assert_eq!(
        kim.request("x-ostler/usage/totals", foreign).await.unwrap()["totals"][1]["month"]["usd"],
        4.0
    );
    let mut root = host.raw_as(Principal::Root);
    root.initialize("r").await;
    assert_eq!(
        root.request("x-ostler/usage/totals", json!({})).await.unwrap()["totals"].as_array().unwrap().len(),
        4
    );
    let mut nobody = anyone(&host).await;
    for command in ["totals", "records", "groups"] {
        let params = json!({ "pool": "user:ada", "by": "user" });
        let refused = nobody.request(&format!("x-ostler/usage/{command}"), params).await.unwrap_err();
        assert_eq!(refused["code"], code::AUTH_REQUIRED, "{command}");
    }
    let mut early = host.raw_as(Principal::Root);
    let refused = early.request("x-ostler/usage/totals", json!({})).await.unwrap_err();
    assert_eq!(refused["message"], "x-ostler/usage/totals was received before initialize");
}

#[tokio::test]
async fn entries_and_groups_are_told_of_what_may_be_read() {
    let (host, _usage) = with_use().await;
    let mut ada = person(&host, "ada").await;
    let own = ada
        .request("x-ostler/usage/records", json!({ "pool": "user:ada", "from": "2025-01-01" }))
        .await
        .unwrap();
    let amounts: Vec<_> =
        own["records"].as_array().unwrap().iter().map(|entry| entry["cost"]["amount"].clone()).collect();
    assert_eq!(amounts, [1.0, 2.0, 8.0], "newest first");
    let groups = json!({ "by": "user,project", "from": "2026-01-01" });
    let told = ada.request("x-ostler/usage/groups", groups.clone()).await.unwrap();
    let expected = json!([
        { "keys": { "user": "ada", "project": "shop" }, "names": { "user": "ada", "project": "The shop" },
          "total": { "usd": 3.0, "calls": 2 } },
        { "keys": { "user": "ben", "project": "shop" }, "names": { "user": "ben", "project": "The shop" },
          "total": { "usd": 4.0, "calls": 1 } }
    ]);
    assert_eq!(told["groups"], expected, "ben's work was for a project of ada's");
    assert_eq!(read(&mut ada, "usage://groups?by=user,project&from=2026-01-01").await.unwrap(), expected);
    let mut ben = person(&host, "ben").await;
    let told = ben.request("x-ostler/usage/groups", groups).await.unwrap();
    assert_eq!(told["groups"].as_array().unwrap().len(), 1, "{told}");
    for (params, why) in [
        (
            json!({ "by": "planet" }),
            "by must be a comma-separated list of user, team and project, not planet",
        ),
        (json!({ "by": "user", "from": "1900-01-01" }), "from and until are more than 3660 days apart"),
    ] {
        let refused = ben.request("x-ostler/usage/groups", params).await.unwrap_err();
        assert_eq!((&refused["code"], &refused["message"]), (&json!(code::INVALID_PARAMS), &json!(why)));
    }
}

#[tokio::test]
async fn the_scheme_is_read_and_never_written() {
    let (host, _usage) = with_use().await;
    let mut ada = person(&host, "ada").await;
    let listed = ada.request("resourceList", json!({ "uri": "usage://" })).await.unwrap();
    let names: Vec<_> =
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(names, ["project%3Aweb%3Ashop", "team%3Aweb", "user%3Aada"]);
    assert_eq!(read(&mut ada, "usage://user%3Aada/week").await.unwrap()["usd"], 3.0);
    assert_eq!(
        read(&mut ada, "usage://user%3Aada/range?from=2025-12-01&until=2026-01-12").await.unwrap()["usd"],
        10.0
    );
    assert_eq!(read(&mut ada, "usage://user%3Aada/records").await.unwrap().as_array().unwrap().len(), 2);
    for (uri, code) in [
        ("usage://user%3Aben", code::PERMISSION_DENIED),
        ("usage://user%3Aben/records", code::PERMISSION_DENIED),
        ("usage://user%3Aada/range?from=soon", code::INVALID_PARAMS),
    ] {
        assert_eq!(read(&mut ada, uri).await.unwrap_err()["code"], code, "{uri}");
    }
    let mut root = host.raw_as(Principal::Root);
    root.initialize("r").await;
    assert_eq!(read(&mut root, "usage://user%3Aada/year").await.unwrap_err()["code"], code::NOT_FOUND);
    let write = json!({ "uri": "usage://user%3Aada", "data": "0", "encoding": "utf-8" });
    assert_eq!(root.request("resourceWrite", write).await.unwrap_err()["message"], "usage: cannot write");
}

/// A turn that the end of the host breaks is put down once: at the stop, or when its session wakes after a kill, and not again when
/// it goes on without another report.
#[tokio::test]
async fn a_turn_that_the_end_of_the_host_breaks_is_put_down_once() {
    for kills in [false, true] {
        let (stage, usage) = (Stage::default().naming_conversations().resuming(), store());
        let sessions = SqliteSessions::new(
            StateDb::memory().unwrap(),
            ostler_ports::Report::new(|line| panic!("{line}")),
        );
        let sessions = Arc::new(sessions).into_point();
        let first = builder(&stage, &usage).sessions(sessions.clone()).start().await;
        let mut client = anyone(&first).await;
        let chat = begin(&mut client).await;
        stage.wait_begun("t").await;
        let tokens = json!({ "inputTokens": 100 });
        stage.emit(0, Emit::Chat, json!({ "type": "chat/usage", "turnId": "t", "usage": tokens }));
        client.actions_until("chat/usage").await;
        if kills {
            // The running turn is stored from time to time.
            tokio::time::pause();
            tokio::time::sleep(std::time::Duration::from_secs(6)).await;
            tokio::time::resume();
            until("the running turn is stored", async || stored_usage(&sessions, &chat).await).await;
        } else {
            first.host.stop().await;
            first.host.close().await;
        }
        let second = builder(&stage, &usage).sessions(sessions.clone()).start().await;
        let mut client = anyone(&second).await;
        client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        until("the broken turn is put down", async || !records(&usage).await.is_empty()).await;
        client.dispatch(&chat, 2, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
        stage.wait_told("resume").await;
        let latest = stage.started() - 1;
        stage.emit(latest, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
        client.actions_until("chat/turnComplete").await;
        // A later turn, whose usage is put down after that.
        let begin = json!({ "type": "chat/turnStarted", "turnId": "u", "message": { "text": "go" } });
        client.dispatch(&chat, 3, begin).await;
        stage.wait_begun("u").await;
        stage.emit(
            latest,
            Emit::Chat,
            json!({ "type": "chat/usage", "turnId": "u", "usage": { "inputTokens": 7 } }),
        );
        stage.emit(latest, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "u", "duration": 1 }));
        client.actions_until("chat/turnComplete").await;
        until("the later turn is put down", async || {
            records(&usage).await.iter().any(|entry| entry.turn.as_deref() == Some("u"))
        })
        .await;
        let turns: Vec<_> = records(&usage).await.into_iter().filter_map(|entry| entry.turn).collect();
        assert_eq!(turns.iter().filter(|turn| *turn == "t").count(), 1, "kills: {kills}: {turns:?}");
        drop(first);
    }
}

/// A start that is killed between the charge and the end of a broken turn leaves the turn as it was: what the next start finds is
/// stored again here.
#[tokio::test]
async fn a_turn_that_a_kill_broke_is_put_down_once_if_the_start_after_it_is_killed_too() {
    let stage = Stage::default().naming_conversations().resuming();
    let db = StateDb::memory().unwrap();
    let usage = Arc::new(SqliteUsage::new(db.clone(), ostler_ports::Report::quiet())).into_point();
    let report = ostler_ports::Report::new(|line| panic!("{line}"));
    let sessions = Arc::new(SqliteSessions::new(db, report)).into_point();
    let chat = uri::default_chat("stage:/1");
    let turn = async || {
        let turns = sessions.turns.as_ref().unwrap().unbounded(("1".to_owned(), chat.clone()));
        turns.await.unwrap().remove(0)
    };
    let put_down = async || {
        let of_turn = |entry: &UsageEntry| entry.model.as_ref().unwrap().input.unwrap();
        // Each host begins at the same time, so they are in no order.
        let mut all: Vec<_> = records(&usage).await.iter().map(of_turn).collect();
        all.sort_unstable();
        all
    };
    let mut hosts = vec![builder(&stage, &usage).sessions(sessions.clone()).start().await];
    let mut client = anyone(&hosts[0]).await;
    begin(&mut client).await;
    stage.wait_begun("t").await;
    // The second time, it goes on after it was charged.
    for (tokens, whole, expected) in [(100, 100, vec![100]), (30, 130, vec![30, 100])] {
        let told = json!({ "type": "chat/usage", "turnId": "t", "usage": { "inputTokens": tokens } });
        stage.emit(stage.started() - 1, Emit::Chat, told);
        client.actions_until("chat/usage").await;
        // The running turn is stored from time to time.
        tokio::time::pause();
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        tokio::time::resume();
        let is_stored = |usage: &ostler_contract::wire::state::UsageInfo| usage.input_tokens == Some(whole);
        until("the running turn is stored", async || turn().await.turn.usage.as_ref().is_some_and(is_stored))
            .await;
        let running = turn().await;
        for _ in 0..2 {
            hosts.push(builder(&stage, &usage).sessions(sessions.clone()).start().await);
            until("it has ended", async || !turn().await.unended).await;
            assert_eq!(put_down().await, expected);
            let set_turn = sessions.set_turn.as_ref().unwrap();
            set_turn.unbounded(("1".into(), chat.clone(), 0, running.clone())).await.unwrap();
        }
        hosts.push(builder(&stage, &usage).sessions(sessions.clone()).start().await);
        until("it has ended", async || !turn().await.unended).await;
        client = anyone(hosts.last().unwrap()).await;
        client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        client.dispatch(&chat, 2, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
        client.actions_until("chat/turnResume").await;
        assert_eq!(put_down().await, expected);
        until("its backend runs", async || stage.told().iter().any(|told| told.get("resume").is_some()))
            .await;
    }
}

async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is().await {
        assert!(std::time::Instant::now() < end, "{what}");
        tokio::task::yield_now().await;
    }
}

async fn stored_usage(sessions: &SessionStore, chat: &str) -> bool {
    let turns = sessions.turns.as_ref().unwrap().unbounded(("1".to_owned(), chat.to_owned())).await.unwrap();
    turns.last().is_some_and(|kept| kept.turn.usage.is_some())
}
