//! Whose an automation is: who may change and run it, as whom its runs act, and what its owner does not hear of.

use crate::support::{Kept, Yard, on_build, settle, statuses};
use ostler_contract::{Value, json};
use ostler_engine::Principal;
use ostler_engine::users::{People, UsersFile};
use ostler_protocol::uri;
use ostler_testkit::{RawClient, Stage};

const AUTOMATIONS: &str = "ahp-automations://";

/// `ada` may everything, `ann` and `ben` are of a team, `eve` holds every grant on automations and nothing else.
fn people() -> People {
    let handling = json!(["automation:read", "automation:write"]);
    let came = "2026-01-01T00:00:00Z";
    let file = json!({
        "teams": { "ops": {}, "web": {} },
        "projects": { "site": {} },
        "roles": { "handler": handling, "none": [] },
        "users": [
            { "id": "ada", "roles": ["admin"], "signedIn": came },
            { "id": "ann", "roles": ["handler", "member"], "memberships": ["ops"], "signedIn": came },
            { "id": "ben", "roles": ["handler", "member"], "memberships": ["ops:site"], "signedIn": came },
            { "id": "eve", "roles": ["handler"], "signedIn": came },
        ],
    });
    let people = People::new("https://inn.example", "inn");
    assert_eq!(people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap(), Vec::<String>::new());
    people
}

async fn yard(kept: &Kept) -> Yard {
    Yard::with(kept, Stage::default(), |builder| builder.people(people())).await
}

async fn client(yard: &Yard, id: &str) -> RawClient {
    let person = yard.host.host.access.gate.people().unwrap().now().person(id).unwrap();
    let mut client = yard.host.raw_as(Principal::Person(person));
    client.initialize(id).await;
    client.request("subscribe", json!({ "channel": AUTOMATIONS })).await.unwrap();
    client
}

/// What becomes of an action on an automation: the sentence where it is refused.
async fn dispatch(client: &mut RawClient, action: Value) -> Option<String> {
    settle().await;
    client.ready_frames().await;
    client.dispatch(AUTOMATIONS, 1, action).await;
    settle().await;
    let frames = client.ready_frames().await;
    let own = frames.iter().find(|frame| frame["params"]["origin"]["clientSeq"] == 1);
    let own = own.unwrap_or_else(|| panic!("no answer: {frames:?}"));
    own["params"]["rejectionReason"].as_str().map(str::to_owned)
}

fn update(id: &str, changes: Value) -> Value {
    json!({ "type": "automation/updateRequested", "resource": uri::automation(id), "changes": changes })
}

fn removal(id: &str) -> Value {
    json!({ "type": "automation/removed", "resource": uri::automation(id) })
}

async fn run(client: &mut RawClient, id: &str, request: &str) -> Result<Value, String> {
    let asked = json!({ "automation": uri::automation(id), "requestId": request });
    let answer = client.request("runAutomation", asked).await;
    settle().await;
    answer.map_err(|error| {
        assert_eq!(error["code"], -32009, "{error}");
        error["message"].as_str().unwrap().to_owned()
    })
}

fn only(id: &str, verb: &str) -> String {
    let of = uri::automation(id);
    format!("Only the owner of {of}, a member of its team or project, an admin or this host may {verb} it")
}

/// Who said the message of a run's first turn.
async fn sender(yard: &mut Yard, run: &Value) -> Value {
    let chat = uri::default_chat(run["primarySession"].as_str().unwrap());
    let asked = yard.client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = &asked["snapshot"]["state"]["activeTurn"];
    turn["message"]["_meta"]["ostler.sender"].clone()
}

#[tokio::test(start_paused = true)]
async fn who_is_not_of_its_owner_neither_changes_nor_runs_nor_removes_an_automation() {
    let kept = Kept::default();
    for (id, owner) in [
        ("roots", Some("root:inn")),
        ("adas", Some("user:ada")),
        ("anns", Some("user:ann")),
        ("teams", Some("team:ops")),
        ("sites", Some("project:ops:site")),
        ("nobodys", None),
    ] {
        kept.put_of(id, owner, on_build(json!({})));
    }
    let yard = yard(&kept).await;
    let change = json!({ "message": { "text": "Give eve a shell.", "origin": { "kind": "user" } } });
    for (who, theirs) in [("eve", &[][..]), ("ann", &["anns", "teams", "sites"]), ("ben", &["sites"])] {
        let mut client = client(&yard, who).await;
        for id in ["roots", "adas", "anns", "teams", "sites", "nobodys"] {
            let before = kept.definitions.lock().unwrap()[id].definition.clone();
            let of_theirs = theirs.contains(&id);
            for changes in [change.clone(), json!({ "enabled": false }), json!({ "enabled": true })] {
                let refused = dispatch(&mut client, update(id, changes)).await;
                assert_eq!(refused, (!of_theirs).then(|| only(id, "change")), "{who} {id}");
            }
            let ran = run(&mut client, id, who).await;
            match of_theirs {
                true => assert!(ran.unwrap()["resource"].is_string(), "{who} {id}"),
                false => {
                    assert_eq!(ran.unwrap_err(), only(id, "run"), "{who}");
                    assert_eq!(dispatch(&mut client, removal(id)).await, Some(only(id, "remove")), "{who}");
                    assert_eq!(kept.definitions.lock().unwrap()[id].definition, before, "{who} {id}");
                }
            }
        }
        if who == "eve" {
            assert_eq!(yard.host.host.sessions.count(), 0);
        }
    }
    let mut ada = client(&yard, "ada").await;
    for id in ["roots", "adas", "anns", "teams", "sites", "nobodys"] {
        assert_eq!(dispatch(&mut ada, update(id, json!({ "enabled": false }))).await, None, "{id}");
        run(&mut ada, id, "ada").await.unwrap();
        assert_eq!(dispatch(&mut ada, removal(id)).await, None, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_says_who_triggered_it_and_its_message_who_wrote_it() {
    let kept = Kept::default();
    kept.put_of("teams", Some("team:ops"), on_build(json!({ "overlap": "parallel" })));
    let mut yard = yard(&kept).await;
    let runs = || kept.runs_of("teams");
    yard.fire(1).await;
    assert_eq!(runs()[0]["_meta"]["ostler.triggeredBy"], "plugin:builds");
    assert_eq!(runs()[0]["_meta"]["ostler.owner"], "team:ops");
    assert_eq!(sender(&mut yard, &runs()[0]).await, "team:ops", "nobody known has changed it");
    yard.end(0, 0).await;

    // A client's own word for who changed it is not taken.
    let mut ann = client(&yard, "ann").await;
    let forged = json!({ "_meta": { "ostler": { "overlap": "parallel", "editor": "user:ada" }, "more": 1 } });
    assert_eq!(dispatch(&mut ann, update("teams", forged)).await, None);
    assert_eq!(
        kept.meta("teams"),
        json!({ "ostler": { "overlap": "parallel", "editor": "user:ann" }, "more": 1 })
    );
    let mut ada = client(&yard, "ada").await;
    run(&mut ada, "teams", "1").await.unwrap();
    assert_eq!(runs()[1]["_meta"]["ostler.triggeredBy"], "user:ada");
    assert_eq!(sender(&mut yard, &runs()[1]).await, "user:ann");
    let session = runs()[1]["primarySession"].as_str().unwrap().to_owned();
    assert_eq!(yard.host.host.sessions.by_uri(&session).unwrap().owner.as_deref(), Some("team:ops"));
    let shown = yard.entry("teams").await;
    assert_eq!(shown["runs"][0]["_meta"]["ostler.triggeredBy"], "user:ada");

    // A change that leaves its settings alone is a change, and what the host writes is none.
    assert_eq!(dispatch(&mut ada, update("teams", json!({ "title": "New" }))).await, None);
    assert_eq!(kept.meta("teams")["ostler"], json!({ "overlap": "parallel", "editor": "user:ada" }));
    let mut made = json!(kept.definitions.lock().unwrap()["teams"].definition);
    made["_meta"]["ostler"]["editor"] = "root:inn".into();
    let create = json!({ "type": "automation/createRequested", "resource": uri::automation("made"),
        "definition": made });
    assert_eq!(dispatch(&mut ann, create).await, None);
    assert_eq!(kept.meta("made")["ostler"], json!({ "overlap": "parallel" }));
    assert_eq!(kept.definitions.lock().unwrap()["made"].owner.as_deref(), Some("user:ann"));
    run(&mut ann, "made", "1").await.unwrap();
    assert_eq!(sender(&mut yard, &kept.runs_of("made")[0]).await, "user:ann");
}

#[tokio::test(start_paused = true)]
async fn what_a_team_or_a_project_owns_runs_as_a_member_and_hears_of_its_own_alone() {
    let kept = Kept::default();
    let watching = json!({ "triggers": [{ "id": "w", "kind": "event", "type": "session", "title": "W",
        "events": [{ "id": "turnCompleted", "title": "T" }] }] });
    for (id, owner) in [
        ("teams", "team:ops"),
        ("sites", "project:ops:site"),
        ("moons", "team:moon"),
        ("nowheres", "project:ops:moon"),
    ] {
        kept.put_of(id, Some(owner), on_build(json!({})));
    }
    kept.put_of("watch", Some("team:ops"), watching.clone());
    kept.put_of("site-watch", Some("project:ops:site"), watching);
    let yard = yard(&kept).await;
    assert_eq!(yard.fire(1).await.len(), 2);
    for (id, owner) in [("teams", "team:ops"), ("sites", "project:ops:site")] {
        let runs = kept.runs_of(id);
        assert_eq!(statuses(&runs), ["running"], "{runs:?}");
        let session = runs[0]["primarySession"].as_str().unwrap();
        assert_eq!(yard.host.host.sessions.by_uri(session).unwrap().owner.as_deref(), Some(owner));
    }
    // Nothing is dropped unsaid.
    for (id, owner) in [("moons", "team:moon"), ("nowheres", "project:ops:moon")] {
        assert_eq!(kept.runs_of(id).len(), 0);
        let of = uri::automation(id);
        let line =
            format!("{of}: its trigger t is not woken by the event done: {owner} may not session:state here");
        assert!(yard.host.log.has(&line), "{line}");
    }

    // Both end: of the team are both, of the project is one.
    yard.end(0, 0).await;
    yard.end(1, 1).await;
    assert_eq!(kept.runs_of("watch").len(), 2, "one runs and one waits");
    assert_eq!(kept.runs_of("site-watch").len(), 1);
    let watched = uri::automation("site-watch");
    let line = format!(
        "{watched}: its trigger w is not woken by the event turnCompleted: project:ops:site may only see its own \
         sessions, and this one belongs to team:ops"
    );
    assert!(yard.host.log.has(&line), "{line}");

    let mut ann = client(&yard, "ann").await;
    ann.request("createSession", json!({ "channel": "stage:/anns", "provider": "stage" })).await.unwrap();
    let begin = json!({ "type": "chat/turnStarted", "turnId": "a",
        "message": { "text": "Hi.", "origin": { "kind": "user" } } });
    ann.dispatch(&uri::default_chat("stage:/anns"), 2, begin).await;
    settle().await;
    let before = kept.runs_of("watch").len();
    let sessions = yard.begun().len();
    yard.emit(sessions - 1, json!({ "type": "chat/turnComplete", "turnId": "a", "duration": 1 }));
    settle().await;
    assert_eq!(kept.runs_of("watch").len(), before);
    let of_ann = "team:ops may only see its own sessions, and this one belongs to user:ann";
    assert!(yard.host.log.has(of_ann));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_wakes_nothing_for_a_missing_grant_is_logged() {
    let kept = Kept::default();
    kept.put_of("eves", Some("user:eve"), on_build(json!({})));
    kept.put("nobodys", on_build(json!({})));
    let yard = Yard::with(&kept, Stage::default(), |builder| {
        builder.people(people()).options(|options| options.unowned_automations = false)
    })
    .await;
    assert_eq!(yard.fire(1).await, Vec::<String>::new());
    for (id, why) in [
        ("eves", "user:eve may not session:state here"),
        ("nobodys", "it has no owner, and unownedAutomations is none"),
    ] {
        let of = uri::automation(id);
        let line = format!("{of}: its trigger t is not woken by the event done: {why}");
        assert!(yard.host.log.has(&line), "{line}");
    }
}
