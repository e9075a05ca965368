//! Approvals: converts the agent's options to those of the host, and the user's choice to that of the agent.

use std::collections::HashMap;

use ostler_contract::{Value, json};
use serde::{Deserialize, Serialize};

use crate::agent_connection::Request;
use crate::protocol::{ToolCallChange, member};

/// One option of an approval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    id: String,
    label: String,
    kind: String,
}

/// A request for approval that waits for a user.
#[derive(Debug)]
pub struct Question {
    choices: Vec<Choice>,
    request: Request,
    /// The subject of a standing answer.
    tool: String,
}

/// A standing answer, which is valid beyond its request.
#[derive(Debug, PartialEq)]
pub struct Always {
    /// The tool.
    pub tool: String,
    /// The option.
    pub option: Choice,
}

/// The waiting requests, by tool call.
#[derive(Debug, Default)]
pub struct Questions(HashMap<String, Question>);

impl Question {
    /// Parses a `session/request_permission`.
    ///
    /// # Errors
    /// The request, if it contains no tool call.
    pub fn read(mut request: Request) -> Result<(ToolCallChange, Self), Request> {
        let Some(call) = request.params.get("toolCall").and_then(ToolCallChange::read) else {
            return Err(request);
        };
        let options = request.params.get("options").and_then(Value::as_array).into_iter().flatten();
        let choices = options
            .filter_map(|option| {
                let id: String = member(option, "optionId")?;
                Some(Choice {
                    label: member(option, "name").unwrap_or_else(|| id.clone()),
                    kind: member(option, "kind").unwrap_or_default(),
                    id,
                })
            })
            .collect();
        request.release();
        Ok((call, Self { choices, request, tool: String::new() }))
    }

    /// Returns all options with their labels, in the agent's order, because two of the same kind can have different
    /// meanings.
    pub fn options(&self) -> Value {
        let option = |choice: &Choice| {
            let denies = choice.denies();
            json!({ "id": choice.id, "label": choice.label, "kind": if denies { "deny" } else { "approve" },
                "group": i32::from(denies) })
        };
        self.choices.iter().map(option).collect()
    }

    /// The kinds of the options by id, if one of them creates a standing answer.
    pub fn kinds(&self) -> Option<Value> {
        let kinds =
            || self.choices.iter().map(|choice| (choice.id.clone(), choice.kind.as_str().into())).collect();
        self.choices.iter().any(Choice::always).then(kinds).map(Value::Object)
    }

    /// Resolves when the agent withdraws the request.
    pub fn withdrawal(&self) -> crate::agent_connection::Withdrawal {
        self.request.withdrawal()
    }

    /// The options.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// Sets the tool of the request.
    pub fn about(&mut self, tool: String) {
        self.tool = tool;
    }

    /// Answers with a standing answer.
    pub fn settle(self, option: &Choice) {
        self.select(Some(option));
    }

    fn select(self, option: Option<&Choice>) {
        let outcome = match option {
            Some(choice) => json!({ "outcome": "selected", "optionId": choice.id }),
            None => json!({ "outcome": "cancelled" }),
        };
        self.request.answer(Ok(json!({ "outcome": outcome })));
    }

    fn answer(self, approved: bool, option: Option<&str>) -> Option<Always> {
        let named = option.and_then(|id| self.choices.iter().find(|choice| choice.id == id));
        // A client that names no option approves or denies this once, as far as the agent offers that.
        let of_kind = |kinds: &[&str]| {
            kinds.iter().find_map(|kind| self.choices.iter().find(|choice| choice.kind == *kind))
        };
        let named = named.filter(|choice| choice.denies() != approved);
        let chosen = named.or_else(|| match approved {
            true => of_kind(&["allow_once", "allow_always"]),
            false => of_kind(&["reject_once", "reject_always"]),
        });
        // Only an option that a user named becomes a standing answer.
        let always = named.filter(|choice| choice.always());
        let always = always.map(|option| Always { tool: self.tool.clone(), option: option.clone() });
        let chosen = chosen.cloned();
        self.select(chosen.as_ref());
        always
    }

    /// Answers that the turn was cancelled.
    pub fn cancel(self) {
        self.request.answer(Ok(json!({ "outcome": { "outcome": "cancelled" } })));
    }
}

impl Choice {
    /// Returns whether it denies the call.
    pub fn denies(&self) -> bool {
        self.kind.starts_with("reject")
    }

    fn always(&self) -> bool {
        self.kind.ends_with("_always")
    }
}

impl Questions {
    /// Adds a request until it is answered. An earlier one about the same call is cancelled.
    pub fn add(&mut self, call: String, question: Question) {
        if let Some(earlier) = self.0.insert(call, question) {
            earlier.cancel();
        }
    }

    /// Answers the request about a call with the user's choice, and returns the standing answer, if any; `None` if no
    /// request waits.
    pub fn answer(&mut self, call: &str, approved: bool, option: Option<&str>) -> Option<Option<Always>> {
        self.0.remove(call).map(|question| question.answer(approved, option))
    }

    /// Removes a withdrawn request; returns `false` if none waits.
    pub fn withdraw(&mut self, call: &str) -> bool {
        self.0.remove(call).map(Question::cancel).is_some()
    }

    /// Returns whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Cancels all, and returns their calls.
    pub fn cancel_all(&mut self) -> Vec<String> {
        let all = self.0.drain();
        all.map(|(call, question)| {
            question.cancel();
            call
        })
        .collect()
    }
}
