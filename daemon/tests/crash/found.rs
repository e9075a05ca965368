//! Whether everything that was acknowledged is there after another start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::roads::{Caller, FILES, Outside, Road, TOKEN, connected};
use crate::support::{Client, Daemon, Folder, LIMIT, calls_in};
use crate::told::{Step, Thing, Told};

/// How many pages of runs are read at most.
const MOST_PAGES: u32 = 1_000;

/// What a started daemon has of what was told until `end`, compared with that.
pub async fn check(folder: &Folder, daemon: &Daemon, outside: &Outside, told: &Told, end: SystemTime) {
    let begun = SystemTime::now();
    let told = told.until(end);
    let mut client = connected(daemon, "checker").await;
    sessions(&mut client, &told).await;
    automations(&mut client, &told).await;
    runs(&mut client, daemon, &told).await;
    bots(&mut client, daemon, &told).await;
    names(daemon, &told).await;
    files(folder, &told);
    records(client, &told).await;
    callbacks(outside, &told, end, begun).await;
    let log = folder.read("log");
    assert!(!log.contains("could not be read"), "{log}");
}

/// Whether a thing has to be there, has to be gone, or may be either.
fn wanted(step: Step) -> Option<bool> {
    match step {
        Step::Stored => Some(true),
        Step::Removed => Some(false),
        Step::Asked | Step::RemovalAsked => None,
    }
}

/// Compares things of one kind by name.
fn compare<'a>(kind: &str, wanted_of: impl Iterator<Item = (&'a String, Step)>, there: &BTreeSet<String>) {
    for (name, step) in wanted_of {
        if let Some(wanted) = wanted(step) {
            assert_eq!(there.contains(name), wanted, "{kind} {name}: {step:?}, and this is there: {there:?}");
        }
    }
}

async fn sessions(client: &mut Client, told: &BTreeMap<Thing, Step>) {
    for (thing, step) in told {
        let Thing::Session(session) = thing else { continue };
        let Some(wanted) = wanted(*step) else { continue };
        let found = client.request("subscribe", json!({ "channel": session })).await;
        assert_eq!(found.is_ok(), wanted, "{session}: {step:?} {found:?}");
        if wanted {
            turns(client, session, told).await;
        }
    }
}

/// The messages of a session that is there, and the responses to them.
async fn turns(client: &mut Client, session: &str, told: &BTreeMap<Thing, Step>) {
    let chat = client.subscribe(&ostler_protocol::uri::default_chat(session)).await;
    let turns: Vec<&Value> =
        chat["turns"].as_array().into_iter().flatten().chain([&chat["activeTurn"]]).collect();
    let turn = |wanted: &str| turns.iter().find(|turn| turn["id"] == wanted);
    for (thing, step) in told {
        if *step != Step::Stored {
            continue;
        }
        match thing {
            Thing::Turn { session: of, id, text } if of == session => {
                let said = turn(id).map(|turn| &turn["message"]["text"]);
                assert_eq!(said, Some(&json!(text)), "{session} has lost its turn {id}: {chat}");
            }
            Thing::Response { session: of, id, text } if of == session => {
                let said = turn(id).map(|turn| &turn["responseParts"][0]["content"]);
                assert_eq!(said, Some(&json!(text)), "{session} has lost the response in {id}: {chat}");
            }
            Thing::Queued { session: of, id, text } if of == session => {
                let waits =
                    chat["queuedMessages"].as_array().into_iter().flatten().any(|queued| queued["id"] == *id);
                let sent = turns.iter().any(|turn| turn["message"]["text"] == *text);
                assert!(waits || sent, "{session} has lost its queued message {id}: {chat}");
            }
            _ => {}
        }
    }
}

async fn automations(client: &mut Client, told: &BTreeMap<Thing, Step>) {
    let catalogue = client.subscribe("ahp-automations://").await;
    let entries = catalogue["entries"].as_array().unwrap().iter();
    let there: BTreeSet<String> =
        entries.map(|entry| entry["resource"].as_str().unwrap().to_owned()).collect();
    assert!(there.contains("ahp-automation:/note"), "{catalogue}");
    let automations = told.iter().filter_map(|(thing, step)| match thing {
        Thing::Automation(uri) => Some((uri, *step)),
        _ => None,
    });
    compare("automation", automations, &there);
}

/// How many calls of a kind were acknowledged, and how many were sent.
fn calls(told: &BTreeMap<Thing, Step>, is: impl Fn(&Thing) -> bool) -> (usize, usize) {
    let of_kind = || told.iter().filter(|(thing, _)| is(thing));
    (of_kind().filter(|(_, step)| **step == Step::Stored).count(), of_kind().count())
}

async fn runs(client: &mut Client, daemon: &Daemon, told: &BTreeMap<Thing, Step>) {
    let (stored, sent) = calls(told, |thing| matches!(thing, Thing::Run(_)));
    let kept = all_runs(client, "ahp-automation:/note").await;
    assert!(kept >= stored, "{kept} runs of {stored} accepted calls");
    assert!(kept <= sent, "{kept} runs of {sent} calls");
    // One that was not answered may have stored its run and not its id, and runs once more when it is delivered again.
    let (stored, sent) = calls(told, |thing| matches!(thing, Thing::Delivery(_)));
    let most = sent + (sent - stored);
    let kept = all_runs(client, "ahp-automation:/once").await;
    assert!(
        kept >= stored && kept <= most,
        "{kept} runs of {sent} deliveries, {stored} of which were accepted"
    );
    let caller = Caller { address: daemon.address().to_owned(), told: Told::default(), round: 0 };
    for id in told.keys().filter_map(|thing| if let Thing::Delivery(id) = thing { Some(id) } else { None }) {
        assert_eq!(caller.redeliver(id).await, Some(202), "{id}");
    }
    let all = all_runs(client, "ahp-automation:/once").await;
    assert!(
        all >= sent && all <= most,
        "{all} runs of {sent} deliveries, {stored} of which were accepted; {kept} before"
    );
    assert_eq!(daemon.post("/plugins/webhook/in", Some("wrong"), "{}").await.0, 401);
}

/// How many runs the automation has had: those of the snapshot, and page after page of those before. A run that is listed
/// meanwhile takes the list back to its newest page.
async fn all_runs(client: &mut Client, automation: &str) -> usize {
    let mut seen = BTreeSet::new();
    for _ in 0..MOST_PAGES {
        let mut catalogue = client.subscribe("ahp-automations://").await;
        let entries = catalogue["entries"].as_array_mut().unwrap();
        let Some(entry) = entries.iter_mut().find(|entry| entry["resource"] == automation) else {
            return seen.len();
        };
        let listed = entry["runs"].as_array().into_iter().flatten();
        seen.extend(listed.map(|run| run["resource"].as_str().unwrap().to_owned()));
        let Some(cursor) = entry["runsNextCursor"].as_str() else { return seen.len() };
        let params = json!({ "channel": "ahp-automations://", "automation": automation, "cursor": cursor });
        client.request("fetchAutomationRuns", params).await.unwrap();
    }
    panic!("the list of runs of {automation} has no end after {} runs", seen.len())
}

/// Every call to a bot has to be found as a turn or as a message that waits for one.
async fn bots(client: &mut Client, daemon: &Daemon, told: &BTreeMap<Thing, Step>) {
    let mut held: BTreeMap<String, String> = BTreeMap::new();
    for session in others(daemon).await {
        let state = client.subscribe(&ostler_protocol::uri::default_chat(&session)).await;
        held.extend(calls_in(&state));
    }
    for thing in told.keys() {
        if let Thing::BotTurn(turn, text) = thing {
            assert_eq!(held.get(turn), Some(text), "the turn {turn} of a call is lost");
        }
    }
}

/// The sessions that neither a client nor a run created.
async fn others(daemon: &Daemon) -> Vec<String> {
    let mut found = Vec::new();
    let mut page = String::new();
    loop {
        let list = get(daemon, &format!("/api/sessions?limit=500{page}")).await;
        for session in list["sessions"].as_array().unwrap() {
            let uri = session["uri"].as_str().unwrap();
            let lanes = ["echo:/talk-", "echo:/queue-", "echo:/keep-", "echo:/checker"];
            if session.get("run").is_none() && !lanes.iter().any(|lane| uri.starts_with(lane)) {
                found.push(uri.to_owned());
            }
        }
        let Some(next) = list["next"].as_str() else { return found };
        page = format!("&cursor={next}");
    }
}

async fn get(daemon: &Daemon, path: &str) -> Value {
    let (status, body) =
        daemon.ask(&format!("GET {path}"), &format!("Authorization: Bearer {TOKEN}\r\n"), "").await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Secrets and users.
async fn names(daemon: &Daemon, told: &BTreeMap<Thing, Step>) {
    let secrets = text_of(&get(daemon, "/api/vault/list").await);
    let wanted = told.iter().filter_map(|(thing, step)| match thing {
        Thing::Secret(name) => Some((name, *step)),
        _ => None,
    });
    compare("secret", wanted, &secrets);
    let users = text_of(&get(daemon, "/api/user/list").await);
    let wanted = told.iter().filter_map(|(thing, step)| match thing {
        Thing::User(id) => Some((id, *step)),
        _ => None,
    });
    compare("user", wanted, &users);
}

/// Every text in a list of names or of objects.
fn text_of(value: &Value) -> BTreeSet<String> {
    match value {
        Value::String(text) => BTreeSet::from([text.clone()]),
        Value::Array(all) => all.iter().flat_map(text_of).collect(),
        Value::Object(all) => all.values().flat_map(text_of).collect(),
        _ => BTreeSet::new(),
    }
}

fn files(folder: &Folder, told: &BTreeMap<Thing, Step>) {
    for (thing, step) in told {
        let Thing::File(name) = thing else { continue };
        let Some(wanted) = wanted(*step) else { continue };
        let path = folder.path().join(FILES).join(name);
        assert_eq!(path.exists(), wanted, "{name}: {step:?}");
        if wanted && let Some((of, _)) = name.split_once('/') {
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{of}/first"), "{name}");
        }
    }
}

/// Asks the plugin which records it has.
async fn records(client: Client, told: &BTreeMap<Thing, Step>) {
    let mut client = client;
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let session = format!("echo:/checker-{at}");
    client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(&session);
    client.subscribe(&chat).await;
    let text = Road::checker(client).tool(&chat, "t", "kept {}").await.unwrap().unwrap();
    let kept: BTreeMap<String, String> =
        serde_json::from_str::<Vec<(String, String)>>(&text).unwrap().into_iter().collect();
    let there: BTreeSet<String> = kept.keys().cloned().collect();
    let wanted = told.iter().filter_map(|(thing, step)| match thing {
        Thing::Record(id) => Some((id, *step)),
        _ => None,
    });
    compare("record", wanted, &there);
    for (id, text) in &kept {
        let expected = match id.as_str() {
            "kept" => "Still here.\n".to_owned(),
            "edited" => continue,
            _ => format!("text of {id}\n"),
        };
        assert_eq!(text, &expected);
    }
    assert!(there.contains("kept"), "{there:?}");
}

/// Every call whose caller wants to know the end of its turn is told, before the daemon was gone or now.
async fn callbacks(outside: &Outside, told: &BTreeMap<Thing, Step>, end: SystemTime, begun: SystemTime) {
    let mut waiting: Vec<&String> = told
        .keys()
        .filter_map(|thing| if let Thing::Callback(turn) = thing { Some(turn) } else { None })
        .collect();
    let limit = tokio::time::Instant::now() + LIMIT;
    loop {
        waiting.retain(|turn| !outside.knows(turn, end, begun));
        if waiting.is_empty() {
            return;
        }
        assert!(tokio::time::Instant::now() < limit, "nobody was told the end of the turns {waiting:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
