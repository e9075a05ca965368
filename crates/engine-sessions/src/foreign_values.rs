//! Values of settings that clients chose for sessions of other hosts, whose words differ: VS Code sends the mode of its own agent
//! to every agent.

use ostler_contract::{JsonObject, Value};

/// What another host's word means here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning<'a> {
    Value(&'a str),
    /// What the agent does without a choice.
    Default,
    /// Less than the agent does without a choice, for which it has no word: the user is told.
    Missing,
}

/// Words for an agent as it is.
const AS_IT_IS: &[&str] = &["interactive", "agent"];
/// Words for an agent that only plans, and what agents call such a mode.
const PLANS: &[&str] = &["plan"];
const PLANNING: &[&str] = &["plan", "planmode", "readonly", "architect"];
/// Words for an agent that asks for no approval, and what agents call such a mode. One that also has more access is another.
const ASKS_NOTHING: &[&str] = &["autopilot", "approveall"];
const NOT_ASKING: &[&str] = &["autopilot", "approveall", "bypasspermissions", "yolo"];
/// The setting of VS Code for approvals, and its value for an agent that asks.
const APPROVALS: (&str, &str) = ("autoApprove", "default");

/// Returns what a chosen value means for a backend's setting that has the given choices, if it is a word of another host and none of
/// the choices. Any other text is for the backend to judge.
pub(super) fn meaning<'a>(chosen: &JsonObject, key: &str, property: &'a Value) -> Option<Meaning<'a>> {
    let word = chosen.get(key)?.as_str()?;
    // A list that can grow is for the backend to judge.
    let choices = property["enum"].as_array().filter(|_| property["enumDynamic"] != true)?;
    let mut choices = choices.iter().filter_map(Value::as_str);
    if choices.clone().any(|choice| choice == word) {
        return None;
    }
    let word = bare(word);
    let is_of = |words: &[&str]| words.contains(&&*word);
    let mut called =
        |names: &[&str]| choices.find(|choice| names.contains(&&*bare(choice))).map(Meaning::Value);
    if is_of(AS_IT_IS) {
        Some(Meaning::Default)
    } else if is_of(PLANS) {
        Some(called(PLANNING).unwrap_or(Meaning::Missing))
    } else if is_of(ASKS_NOTHING) {
        let asks = chosen.get(APPROVALS.0).is_some_and(|approvals| approvals == APPROVALS.1);
        Some(if asks { Meaning::Default } else { called(NOT_ASKING).unwrap_or(Meaning::Default) })
    } else {
        None
    }
}

/// A word without its case and separators; of a URI, the last part.
fn bare(word: &str) -> String {
    let last = word.rsplit(['#', '/', ':']).next().unwrap_or(word);
    last.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn means(chosen: Value, choices: &[&str]) -> String {
        let property = json!({ "type": "string", "enum": choices });
        match meaning(chosen.as_object().unwrap(), "mode", &property) {
            Some(Meaning::Value(value)) => value.to_owned(),
            Some(Meaning::Default) => "the default".to_owned(),
            Some(Meaning::Missing) => "the default, which is said".to_owned(),
            None => "as it is".to_owned(),
        }
    }

    #[test]
    fn words_of_other_hosts_are_the_nearest_of_an_agent_or_its_default() {
        let claude = ["default", "acceptEdits", "plan", "bypassPermissions"];
        let codex = ["read-only", "auto", "full-access"];
        let uris = ["https://plan.example/modes#no-plan", "https://plan.example/modes#plan"];
        let word = |word: &str, choices: &[&str]| means(json!({ "mode": word }), choices);
        assert_eq!(word("interactive", &claude), "the default");
        assert_eq!([word("plan", &claude), word("plan", &codex)], ["as it is", "read-only"]);
        assert_eq!([word("Plan", &claude), word("plan", &uris)], ["plan", uris[1]]);
        assert_eq!(word("plan", &["ask", "Explanatory"]), "the default, which is said");
        assert_eq!(word("autopilot", &claude), "bypassPermissions");
        // Nothing more than what was said, and nothing of a word that nobody knows.
        assert_eq!([word("approve-all", &codex), word("autopilot", &uris)], ["the default"; 2]);
        let approvals = json!({ "mode": "autopilot", "autoApprove": "default" });
        assert_eq!(means(approvals, &claude), "the default");
        assert_eq!([word("plna", &claude), word("read-only", &claude)], ["as it is"; 2]);
        assert_eq!(means(json!({ "mode": 5 }), &claude), "as it is");
        let open = json!({ "type": "string", "enum": ["a"], "enumDynamic": true });
        let chosen = json!({ "mode": "plan" });
        for property in [open, json!({ "type": "string" })] {
            assert_eq!(meaning(chosen.as_object().unwrap(), "mode", &property), None);
        }
    }
}
