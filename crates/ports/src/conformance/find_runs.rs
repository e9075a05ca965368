//! Runs found by their facts and words, compared with a search through all of them.

use ostler_contract::points::{AutomationStore, RunQuery};
use ostler_contract::protocol::error::code;
use ostler_contract::protocol::wire::state::{AutomationDefinition, AutomationRunState};
use ostler_contract::{Value, json};

const MANY: usize = 1500;
const STATES: [&str; 5] = ["completed", "failed", "cancelled", "running", "pending"];
const REASONS: [&str; 3] = ["Disk Full on node-7", "timeout after 30s", "Überlauf der Warteschlange"];

/// A run with facts that follow from its number: most of a few kinds, and some that are rare.
pub fn numbered_run(number: usize) -> Value {
    let state = if number < MANY - 40 { STATES[number % 7 % 3] } else { STATES[number % 5] };
    let at = jiff::Timestamp::new(1_790_000_000 + number as i64 * 60, 0).unwrap();
    let at = at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
    let mut lifecycle = json!({ "status": state, "createdAt": at });
    if state != "pending" {
        lifecycle["startedAt"] = at.as_str().into();
    }
    if !matches!(state, "pending" | "running") {
        lifecycle["completedAt"] = at.as_str().into();
    }
    if state == "failed" {
        lifecycle["error"] = json!({ "errorType": "x", "message": REASONS[number % 3] });
    }
    let mut run = json!({
        "resource": format!("ahp-automation-run:/r{number}"),
        "automation": format!("ahp-automation:/{}", if number % 50 == 1 { "rare" } else { "common" }),
        "origin": { "kind": "trigger", "triggerId": "call", "event": { "issue": { "number": number, "title": "Broken build" } } },
        "lifecycle": lifecycle, "sessions": [],
    });
    if number.is_multiple_of(3) {
        run["_meta"] =
            json!({ "ostler.owner": if number.is_multiple_of(300) { "user:ada" } else { "team:ops" } });
    }
    run
}

fn words(run: &Value) -> String {
    let title = if run["automation"] == "ahp-automation:/rare" { "Seldom Needed" } else { "Every Night" };
    format!("{run} {title}").to_lowercase()
}

/// Whether a run is asked for, told apart from the store's way.
fn fits(run: &Value, query: &RunQuery) -> bool {
    let is = |wanted: &Option<String>, value: &Value| wanted.is_none() || wanted.as_deref() == value.as_str();
    let automation = query.automation.as_ref().map(|id| format!("ahp-automation:/{id}"));
    let at = run["lifecycle"]["createdAt"].as_str().unwrap();
    let has = |word: &str| {
        let words = words(run);
        let mut all = words.split(|char: char| !char.is_alphanumeric());
        match word.strip_suffix('*') {
            Some(beginning) => all.any(|one| one.starts_with(beginning)),
            None => all.any(|one| one == word),
        }
    };
    is(&automation, &run["automation"])
        && is(&query.state, &run["lifecycle"]["status"])
        && is(&query.owner, &run["_meta"]["ostler.owner"])
        && query.since.as_deref().is_none_or(|since| at >= since)
        && query.until.as_deref().is_none_or(|until| at < until)
        && query.text.as_ref().is_none_or(|text| text.to_lowercase().split_whitespace().all(has))
}

async fn fill(store: &AutomationStore) {
    for (id, title) in [("common", "Every Night"), ("rare", "Seldom Needed")] {
        let definition = json!({
            "title": title, "enabled": false, "message": { "text": "", "origin": { "kind": "automation" } }, "session": {},
            "triggers": [],
        });
        let definition: AutomationDefinition = serde_json::from_value(definition).unwrap();
        store.create.unbounded((id.into(), definition, None)).await.unwrap();
    }
    let stored = (0..MANY).map(|number| {
        let run: AutomationRunState = serde_json::from_value(numbered_run(number)).unwrap();
        store.run.unbounded((run,))
    });
    for stored in stored.collect::<Vec<_>>() {
        stored.await.unwrap();
    }
}

/// Every page of a query, as numbers of runs.
pub async fn found_runs(store: &AutomationStore, query: &RunQuery) -> Vec<usize> {
    let (mut numbers, mut cursor) = (Vec::new(), None);
    loop {
        let asked = RunQuery { cursor, ..query.clone() };
        let page = store.find_runs.as_ref().unwrap().unbounded((asked,)).await.unwrap();
        assert!(page.runs.len() as u64 <= query.limit.max(1));
        let number =
            |run: &AutomationRunState| run.resource.rsplit_once("/r").unwrap().1.parse::<usize>().unwrap();
        numbers.extend(page.runs.iter().map(number));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return numbers;
        }
    }
}

fn queries() -> Vec<RunQuery> {
    let text = |value: &str| Some(value.to_owned());
    let all = |limit| RunQuery { limit, ..RunQuery::default() };
    let mut queries = vec![all(500), all(7)];
    for state in STATES {
        queries.push(RunQuery { state: text(state), ..all(33) });
        queries.push(RunQuery { state: text(state), automation: text("rare"), ..all(3) });
        queries.push(RunQuery { state: text(state), owner: text("user:ada"), ..all(50) });
        queries.push(RunQuery { state: text(state), text: text("broken"), ..all(100) });
    }
    for automation in ["rare", "common", "none"] {
        queries.push(RunQuery { automation: text(automation), ..all(100) });
        queries.push(RunQuery { automation: text(automation), owner: text("team:ops"), ..all(100) });
    }
    for owner in ["user:ada", "team:ops", "nobody"] {
        queries.push(RunQuery { owner: text(owner), ..all(20) });
    }
    let (early, late) = ("2026-09-21T16:00:00.000Z", "2026-09-22T00:00:00.000Z");
    for (since, until) in
        [(Some(early), None), (None, Some(late)), (Some(early), Some(late)), (Some(late), Some(early))]
    {
        let (since, until) = (since.map(str::to_owned), until.map(str::to_owned));
        queries.push(RunQuery { since: since.clone(), until: until.clone(), ..all(90) });
        queries.push(RunQuery { since, until, state: text("failed"), text: text("disk"), ..all(9) });
    }
    // The beginning of many words, of runs that an index selects.
    queries.push(RunQuery { state: text("failed"), text: text("r*"), ..all(40) });
    queries.push(RunQuery { automation: text("rare"), text: text("r1*"), ..all(3) });
    for words in [
        "disk",
        "FULL disk",
        "node",
        "seldom",
        "every night",
        "1234",
        "überlauf",
        "bro*",
        "disk timeout",
        "BUI* full",
        "!?",
        "r14*",
        "r*",
        "r1* disk",
        "r14* bro*",
        "seld* r*",
        "zz* build",
    ] {
        queries.push(RunQuery { text: text(words), ..all(60) });
    }
    queries
}

/// Tests the search of runs of an empty store that retains all runs.
pub async fn find_runs_conformance(store: &AutomationStore) {
    fill(store).await;
    let all: Vec<Value> = (0..MANY).map(numbered_run).collect();
    let (mut none, queries) = (0, queries());
    let half = queries.len() / 2;
    for mut query in queries {
        let answer = found_runs(store, &query).await;
        // Only marks: there is no word to look for.
        query.text = query.text.filter(|text| text != "!?");
        let expected: Vec<usize> = (0..MANY).rev().filter(|number| fits(&all[*number], &query)).collect();
        assert_eq!(answer, expected, "{query:?}");
        none += usize::from(expected.is_empty());
    }
    assert!(none < half, "{none} queries find nothing");
    for (query, says) in [
        (RunQuery { cursor: Some("nonsense".into()), ..RunQuery::default() }, "Unrecognised cursor nonsense"),
        (RunQuery { since: Some("soon".into()), ..RunQuery::default() }, "since must be a time"),
    ] {
        let refused = store.find_runs.as_ref().unwrap().unbounded((query,)).await.unwrap_err().into_rpc();
        assert_eq!(refused.code, code::INVALID_PARAMS);
        assert!(refused.message.starts_with(says), "{}", refused.message);
    }
    // What is stored later begins no page anew; what is removed leaves its words, too.
    let query = RunQuery { text: Some("disk".into()), limit: 5, ..RunQuery::default() };
    let find = store.find_runs.as_ref().unwrap();
    let first = find.unbounded((query.clone(),)).await.unwrap();
    let mut again = first.runs[0].clone();
    again.resource = "ahp-automation-run:/r9999".into();
    store.run.unbounded((again,)).await.unwrap();
    let second = find.unbounded((RunQuery { cursor: first.next_cursor, ..query.clone() },)).await.unwrap();
    assert!(
        second
            .runs
            .iter()
            .all(|run| !first.runs.contains(run) && run.resource != "ahp-automation-run:/r9999")
    );
    for id in ["common", "rare"] {
        assert!(store.remove.unbounded((id.into(),)).await.unwrap());
    }
    assert_eq!(found_runs(store, &query).await, [0; 0]);
    assert_eq!(found_runs(store, &RunQuery { limit: 1, ..RunQuery::default() }).await, [0; 0]);
}
