use std::fmt::Debug;

use ostler_contract::points::{
    AutomationStore, KeptSession, KeptTurn, Policies, RunPage, RunQuery, SessionStore, Usage, UsageQuery,
    UsageTotal,
};
use ostler_contract::protocol::error::code;
use ostler_contract::protocol::wire::state::{AutomationRunState, Turn};
use ostler_contract::{Thrown, json};

/// Texts that a database can refuse, or confuse with each other.
const TEXTS: [&str; 6] = ["\0", "a\0b\0", "\u{ffff}0", "\u{ffff}\0", "\\u0000", "\\\0"];

fn same<T: Debug + PartialEq>(answer: Result<T, Thrown>, wanted: T, what: &str) {
    assert_eq!(answer, Ok(wanted), "{what}");
}

fn run(uri: &str, cause: usize, text: &str, status: &str) -> AutomationRunState {
    let at = "2026-01-01T00:00:00.000Z";
    let lifecycle = match status {
        "pending" => json!({ "status": status, "createdAt": at }),
        _ => json!({ "status": status, "createdAt": at, "startedAt": at, "completedAt": at }),
    };
    serde_json::from_value(json!({
        "resource": uri, "automation": "ahp-automation:/nul",
        "origin": { "kind": "trigger", "triggerId": "call", "event": { "text": text, text: 1 } },
        "lifecycle": lifecycle, "sessions": [],
        "_meta": { "ostler.cause": format!("webhook:in:{cause}{text}"), "ostler.owner": format!("user:{text}") },
    }))
    .unwrap()
}

/// Tests that texts with U+0000 find nothing where nothing has them, and are stored like others where they are values.
pub async fn nul_conformance(
    sessions: &SessionStore,
    automations: &AutomationStore,
    policies: &Policies,
    usage: &Usage,
) {
    for text in TEXTS {
        finds_nothing(sessions, automations, policies, usage, text).await;
    }
    for (number, text) in TEXTS.into_iter().enumerate() {
        keeps_values(sessions, automations, number, text).await;
    }
}

async fn finds_nothing(
    sessions: &SessionStore,
    automations: &AutomationStore,
    policies: &Policies,
    usage: &Usage,
    text: &str,
) {
    let id = || text.to_owned();
    same(sessions.config.unbounded((id(),)).await, None, text);
    same(sessions.flags.unbounded((id(),)).await, None, text);
    same(sessions.chats.unbounded((id(),)).await, vec![], text);
    same(sessions.chat_title.unbounded((id(), id())).await, None, text);
    if let Some(of_chat) = &sessions.session_of_chat {
        same(of_chat.unbounded((id(),)).await, None, text);
    }
    if let Some(turns) = &sessions.turns {
        same(turns.unbounded((id(), id())).await, vec![], text);
    }
    if let Some(attachment) = &sessions.attachment {
        same(attachment.unbounded((id(),)).await, None, text);
    }
    same(automations.get.unbounded((id(),)).await, None, text);
    same(automations.run_of.unbounded((format!("ahp-automation-run:/{text}"),)).await, None, text);
    same(automations.runs.unbounded((id(), None)).await, RunPage::default(), text);
    if let Some(find) = &automations.find_runs {
        let query = || RunQuery { limit: 9, ..RunQuery::default() };
        for query in [
            RunQuery { owner: Some(id()), ..query() },
            RunQuery { automation: Some(id()), ..query() },
            RunQuery { text: Some(format!("x{text}")), ..query() },
        ] {
            same(find.unbounded((query.clone(),)).await, RunPage::default(), &format!("{query:?}"));
        }
    }
    same(policies.get.unbounded((id(),)).await, None, text);
    same(policies.remove.unbounded((id(),)).await, false, text);
    let query = UsageQuery { pool: Some(id()), ..UsageQuery::default() };
    same(usage.total.unbounded((query.clone(),)).await, UsageTotal::default(), text);
    same(usage.records.unbounded((query,)).await, vec![], text);
}

async fn keeps_values(sessions: &SessionStore, automations: &AutomationStore, number: usize, text: &str) {
    let id = format!("nul-{number}");
    let kept = KeptSession { uri: format!("echo:/{id}"), title: text.into(), ..KeptSession::default() };
    sessions.set_config.unbounded((id.clone(), kept.clone())).await.unwrap();
    same(sessions.config.unbounded((id.clone(),)).await, Some(kept), text);
    sessions.set_chat_title.unbounded((id.clone(), "c".into(), Some(text.into()))).await.unwrap();
    same(sessions.chat_title.unbounded((id.clone(), "c".into())).await, Some(text.to_owned()), text);
    if let (Some(set_turn), Some(turns)) = (&sessions.set_turn, &sessions.turns) {
        let turn: Turn = serde_json::from_value(json!({
            "id": "t", "state": "complete", "responseParts": [],
            "message": { "text": text, "origin": { "kind": "user" } },
        }))
        .unwrap();
        let kept = KeptTurn {
            turn,
            unended: false,
            charged_usage: None,
            broken: false,
            sender: None,
            transcript_id: Some(text.into()),
        };
        set_turn.unbounded((id.clone(), "c".into(), 0, kept.clone())).await.unwrap();
        same(turns.unbounded((id.clone(), "c".into())).await, vec![kept], text);
    }
    let uri = format!("ahp-automation-run:/{id}");
    for status in ["pending", "completed"] {
        let run = run(&uri, number, text, status);
        automations.run.unbounded((run.clone(),)).await.unwrap();
        same(automations.run_of.unbounded((uri.clone(),)).await, Some(run), text);
    }
    // A store that starts one run for a cause recognizes the cause.
    let again = automations.run.unbounded((run(&format!("{uri}-again"), number, text, "completed"),)).await;
    if let Err(refused) = again {
        assert_eq!(refused.into_rpc().code, code::ALREADY_EXISTS, "{text:?}");
    }
}
