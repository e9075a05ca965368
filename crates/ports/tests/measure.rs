//! What the stores take. Run with `OSTLER_MEASURE=100000 cargo test --release -p ostler-ports --test measure
//! -- --nocapture --test-threads=1` for figures; otherwise a small round that only keeps this working.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_contract::points::{
    CollectionOptions, KeptChat, KeptSession, RunQuery, SessionStore, StoredCollection,
};
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::{JsonObject, Value, json};
use ostler_ports::conformance::Heard;
use ostler_ports::{FileAutomations, FileRecords, FileVault, RunRetention, SqliteSessions, StateDb};

fn many() -> usize {
    std::env::var("OSTLER_MEASURE").ok().and_then(|many| many.parse().ok()).unwrap_or(300)
}

/// Prints the middle and the slow end of what some calls took.
fn say(what: &str, mut took: Vec<Duration>) {
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!("{what}: p50 {:?}, p99 {:?}, max {:?} of {}", at(0.5), at(0.99), at(1.0), took.len());
}

async fn timed<T>(times: usize, mut call: impl AsyncFnMut(usize) -> T) -> Vec<Duration> {
    let mut took = Vec::with_capacity(times);
    for time in 0..times {
        let start = Instant::now();
        call(time).await;
        took.push(start.elapsed());
    }
    took
}

/// What the process holds, in MiB; 0 where that cannot be told.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next())
        .and_then(|size| size.parse::<usize>().ok())
        .unwrap_or(0)
        >> 10
}

fn record(number: usize) -> JsonObject {
    let value = json!({
        "id": format!("t{number}"), "endpoint": format!("e{}", number % 10), "thread": format!("ticket-{number}"),
        "session": format!("ahp-session:/6f1c{number:08}"), "chat": format!("ahp-chat:/6f1c{number:08}"),
        "createdAt": "2026-01-01T00:00:00.000Z", "count": number, "open": number.is_multiple_of(2),
    });
    match value {
        Value::Object(record) => record,
        _ => JsonObject::new(),
    }
}

async fn open(folder: &tempfile::TempDir) -> StoredCollection {
    let store =
        Arc::new(FileRecords::new(folder.path(), ostler_ports::Report::new(|line| println!("said: {line}"))))
            .into_point();
    store.collection.unbounded(("threads".into(), CollectionOptions::default())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records() {
    let many = many();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("threads")).unwrap();
    for number in 0..many {
        let mut text = "---\n".to_owned();
        for (key, value) in record(number) {
            text.push_str(&format!("{key}: {value}\n"));
        }
        fs::write(folder.path().join(format!("threads/t{number}.md")), text + "---\n").unwrap();
    }
    let before = resident();
    let start = Instant::now();
    let threads = open(&folder).await;
    println!("{many} records read in {:?}", start.elapsed());
    let heard = Heard::default();
    threads.watch.unbounded((heard.listener(),)).await.unwrap();
    println!("memory: {} MiB more", resident() - before);

    let calls = many.min(2000);
    let any = |time: usize| (time * 7919) % many;
    let took = timed(calls, async |time| {
        threads.get.unbounded((format!("t{}", any(time)),)).await.unwrap().unwrap()
    })
    .await;
    say("get", took);
    let find = async |time: usize| {
        let mut wanted = JsonObject::new();
        wanted.insert("endpoint".into(), format!("e{}", any(time) % 10).into());
        wanted.insert("thread".into(), format!("ticket-{}", any(time)).into());
        assert_eq!(threads.find.unbounded((wanted,)).await.unwrap().len(), 1);
    };
    say("find, the first time", timed(1, find).await);
    say("find one by two fields", timed(calls, find).await);
    println!("memory with two fields indexed: {} MiB more", resident() - before);
    let wanted: JsonObject = [("endpoint".to_owned(), "e1".into())].into_iter().collect();
    say("find a tenth", timed(5, async |_| threads.find.unbounded((wanted.clone(),)).await.unwrap()).await);
    say("list", timed(5, async |_| threads.list.unbounded(()).await.unwrap().len()).await);
    println!("memory after lists: {} MiB more", resident() - before);

    let put = async |time: usize| threads.put.unbounded((record(many + time),)).await.unwrap();
    say("put, one after the other", timed(calls.min(500), put).await);
    let start = Instant::now();
    let puts: Vec<_> = (0..calls).map(|time| threads.put.unbounded((record(2 * many + time),))).collect();
    for put in puts {
        put.await.unwrap();
    }
    println!("put, {calls} at once: {:?} each", start.elapsed() / calls as u32);
    let changed = |time: usize| {
        let mut changed = record(any(time));
        changed.insert("count".into(), (many + time).into());
        changed
    };
    say(
        "put a change",
        timed(calls.min(500), async |time| threads.put.unbounded((changed(time),)).await.unwrap()).await,
    );

    while heard.unheard().pop().is_some() {}
    let edit = async |time: usize| {
        let id = format!("h{time}");
        fs::write(folder.path().join(format!("threads/{id}.md")), "---\nby: hand\n---\n").unwrap();
        while heard.next().await.id != id {}
    };
    say("an edit by hand is told", timed(5, edit).await);
    let start = Instant::now();
    for time in 0..calls {
        fs::write(folder.path().join(format!("threads/g{time}.md")), "---\nby: hand\n---\n").unwrap();
    }
    for _ in 0..calls {
        heard.next().await;
    }
    println!("{calls} edits at once are told in {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vault() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Arc::new(FileVault::new(folder.path(), ostler_ports::Report::quiet()).unwrap()).into_point();
    for number in 0..100 {
        vault.set.unbounded((format!("host:key{number}"), "value".into())).await.unwrap();
    }
    let get = async |time: usize| vault.get.unbounded((format!("host:key{}", time % 100),)).await.unwrap();
    say("vault get", timed(many().min(20_000), get).await);
}

async fn make_session(store: &SessionStore, id: String) {
    let kept = KeptSession { uri: format!("echo:/{id}"), provider: "echo".into(), ..KeptSession::default() };
    let chats = vec![KeptChat { uri: format!("ahp-chat:/{id}"), default: true, ..KeptChat::default() }];
    let made =
        tokio::join!(store.set_config.unbounded((id.clone(), kept)), store.set_chats.unbounded((id, chats)));
    made.0.and(made.1).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions() {
    let folder = tempfile::tempdir().unwrap();
    let db = StateDb::open(folder.path()).unwrap();
    let store = Arc::new(Arc::new(SqliteSessions::new(db, ostler_ports::Report::quiet())).into_point());
    let calls = many().min(5000);
    let took = timed(calls, async |time| make_session(&store, format!("one-{time}")).await).await;
    say("a session made, two writes joined", took);

    let start = Instant::now();
    let makers: Vec<_> = (0..50)
        .map(|maker| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut took = Vec::new();
                for time in 0..calls / 50 {
                    let start = Instant::now();
                    make_session(&store, format!("{maker}-{time}")).await;
                    took.push(start.elapsed());
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for maker in makers {
        took.extend(maker.await.unwrap());
    }
    println!(
        "sessions made by 50 at once: {:.0} a second",
        took.len() as f64 / start.elapsed().as_secs_f64()
    );
    say("a session made among 50", took);

    let writing = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (busy, writes) = (writing.clone(), store.clone());
    let writer = tokio::spawn(async move {
        while busy.load(std::sync::atomic::Ordering::Relaxed) {
            make_session(&writes, "again".into()).await;
        }
    });
    let took =
        timed(calls, async |time| store.config.unbounded((format!("one-{time}"),)).await.unwrap().unwrap())
            .await;
    say("a session read while others are written", took);
    writing.store(false, std::sync::atomic::Ordering::Relaxed);
    writer.await.unwrap();
    let all = store.all.as_ref().unwrap();
    say("every session", timed(5, async |_| all.unbounded(()).await.unwrap().len()).await);
}

/// The run of a webhook call, ended, with an event of usual length.
fn ended_run(number: usize) -> AutomationRunState {
    let at = jiff::Timestamp::new(1_790_000_000 + number as i64, 0).unwrap();
    let at = at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
    let failed = number.is_multiple_of(50);
    let mut lifecycle = json!({
        "status": if failed { "failed" } else { "completed" }, "createdAt": at, "startedAt": at, "completedAt": at,
    });
    if failed {
        lifecycle["error"] = json!({ "errorType": "automation", "message": format!("its turn failed: exit status {}", number % 97) });
    }
    let session = format!("echo:/{number:032x}");
    serde_json::from_value(json!({
        "resource": format!("ahp-automation-run:/{number:032x}"), "automation": format!("ahp-automation:/a{}", number % 20),
        "origin": { "kind": "trigger", "triggerId": "call", "event": {
            "endpoint": "ci", "repository": { "full_name": format!("team/project-{}", number % 500) },
            "issue": { "number": number, "title": "The build is broken since the last merge" },
        } },
        "lifecycle": lifecycle, "sessions": [session], "primarySession": session,
        "_meta": { "ostler.owner": format!("user:u{}", number % 1000), "ostler.triggeredBy": "plugin:webhook" },
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs() {
    let many = many();
    let folder = tempfile::tempdir().unwrap();
    let all = RunRetention { count: 10_000_000, ..RunRetention::default() };
    let db = StateDb::open(folder.path()).unwrap();
    let open = async |rules: RunRetention| {
        let store =
            FileAutomations::open(folder.path(), db.clone(), ostler_ports::Report::quiet()).await.unwrap();
        Arc::new(store.retaining(rules)).into_point()
    };
    let store = open(all).await;
    let start = Instant::now();
    for chunk in (0..many).collect::<Vec<_>>().chunks(256) {
        let stored: Vec<_> = chunk.iter().map(|number| store.run.unbounded((ended_run(*number),))).collect();
        for stored in stored {
            stored.await.unwrap();
        }
    }
    println!("{many} runs stored in {:?}", start.elapsed());
    let size = |name: &str| fs::metadata(folder.path().join(name)).map_or(0, |file| file.len() >> 20);
    println!("database {} MiB, log {} MiB", size("state.db"), size("state.db-wal"));
    let one = async |time: usize| store.run.unbounded((ended_run(many + time),)).await.unwrap();
    say("an end stored", timed(many.min(500), one).await);

    let text = |text: &str| Some(text.to_owned());
    let page = |query: RunQuery| RunQuery { limit: 50, ..query };
    let at = |number: usize| {
        let at = jiff::Timestamp::new(1_790_000_000 + number as i64, 0).unwrap();
        Some(at.to_string())
    };
    let queries = [
        ("newest", RunQuery::default()),
        ("of one automation", RunQuery { automation: text("a7"), ..RunQuery::default() }),
        ("failed", RunQuery { state: text("failed"), ..RunQuery::default() }),
        (
            "failed of one automation",
            RunQuery { state: text("failed"), automation: text("a10"), ..RunQuery::default() },
        ),
        ("running", RunQuery { state: text("running"), ..RunQuery::default() }),
        ("of one owner", RunQuery { owner: text("user:u7"), ..RunQuery::default() }),
        (
            "an hour in the middle",
            RunQuery { since: at(many / 2), until: at(many / 2 + 3600), ..RunQuery::default() },
        ),
        ("one word that all have", RunQuery { text: text("build"), ..RunQuery::default() }),
        ("the beginning of such a word", RunQuery { text: text("bui*"), ..RunQuery::default() }),
        ("one letter", RunQuery { text: text("b*"), ..RunQuery::default() }),
        ("a word that few have", RunQuery { text: text(&format!("{}", many / 3)), ..RunQuery::default() }),
        ("three words", RunQuery { text: text("broken project 42"), ..RunQuery::default() }),
        ("no such word", RunQuery { text: text("absent"), ..RunQuery::default() }),
        ("an error", RunQuery { text: text("exit status 13"), ..RunQuery::default() }),
        (
            "failed with a word",
            RunQuery { text: text("project-450"), state: text("failed"), ..RunQuery::default() },
        ),
    ];
    let find = store.find_runs.as_ref().unwrap();
    for (what, query) in queries {
        let mut runs = 0;
        let took = timed(20, async |_| {
            runs = find.unbounded((page(query.clone()),)).await.unwrap().runs.len();
        })
        .await;
        say(&format!("{what}, {runs} runs a page"), took);
    }
    let mut cursor = None;
    let took = timed(100, async |_| {
        let query = RunQuery { cursor: cursor.take(), ..page(RunQuery::default()) };
        cursor = find.unbounded((query,)).await.unwrap().next_cursor;
    })
    .await;
    say("each of a hundred pages", took);

    let left = many / 20 / 2;
    let start = Instant::now();
    let stricter = open(RunRetention { count: u32::try_from(left).unwrap().max(1), ..all }).await;
    let mut waited = Vec::new();
    loop {
        let write = Instant::now();
        stricter.run.unbounded((ended_run(2 * many + waited.len()),)).await.unwrap();
        waited.push(write.elapsed());
        let asked = RunQuery { until: at(many / 4), limit: 1, ..RunQuery::default() };
        if find.unbounded((asked,)).await.unwrap().runs.is_empty() {
            break;
        }
    }
    println!("half of the runs removed in {:?}", start.elapsed());
    say("an end stored meanwhile", waited);
}
