//! Approvals: the agent's options as the host's, and the user's choice as the agent's.

use std::collections::HashMap;

use ostler_contract::{Value, json};

use crate::protocol::{ToolCallChange, member};
use crate::wire::Request;

/// One option of an approval.
#[derive(Debug, Clone, PartialEq)]
struct Choice {
    id: String,
    label: String,
    kind: String,
}

/// A question of the agent that waits for a user.
#[derive(Debug)]
pub struct Question {
    choices: Vec<Choice>,
    request: Request,
}

/// The questions that wait, by tool call.
#[derive(Debug, Default)]
pub struct Questions(HashMap<String, Question>);

impl Question {
    /// Reads a `session/request_permission`.
    ///
    /// # Errors
    /// The request, where it names no tool call.
    pub fn read(request: Request) -> Result<(ToolCallChange, Self), Request> {
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
        Ok((call, Self { choices, request }))
    }

    /// Every option, with its own label and in the agent's order: two of one kind may mean different things.
    pub fn options(&self) -> Value {
        let option = |choice: &Choice| {
            let denies = choice.denies();
            json!({ "id": choice.id, "label": choice.label, "kind": if denies { "deny" } else { "approve" },
                "group": i32::from(denies) })
        };
        self.choices.iter().map(option).collect()
    }

    /// A watch for the agent taking the question back.
    pub fn withdrawal(&self) -> crate::wire::Withdrawal {
        self.request.withdrawal()
    }

    fn answer(self, approved: bool, option: Option<&str>) {
        let named = option.and_then(|id| self.choices.iter().find(|choice| choice.id == id));
        // A client that names no option approves or denies this once, as far as the agent offers that.
        let of_kind = |kinds: &[&str]| {
            kinds.iter().find_map(|kind| self.choices.iter().find(|choice| choice.kind == *kind))
        };
        let chosen = named.filter(|choice| choice.denies() != approved).or_else(|| match approved {
            true => of_kind(&["allow_once", "allow_always"]),
            false => of_kind(&["reject_once", "reject_always"]),
        });
        let outcome = match chosen {
            Some(choice) => json!({ "outcome": "selected", "optionId": choice.id }),
            None => json!({ "outcome": "cancelled" }),
        };
        self.request.answer(Ok(json!({ "outcome": outcome })));
    }

    /// Answers that the turn was cancelled.
    pub fn cancel(self) {
        self.request.answer(Ok(json!({ "outcome": { "outcome": "cancelled" } })));
    }
}

impl Choice {
    fn denies(&self) -> bool {
        self.kind.starts_with("reject")
    }
}

impl Questions {
    /// Keeps a question until it is answered. An earlier one about the same call is cancelled.
    pub fn add(&mut self, call: String, question: Question) {
        if let Some(earlier) = self.0.insert(call, question) {
            earlier.cancel();
        }
    }

    /// Answers the question about a call with the user's choice; `false` where none waits.
    pub fn answer(&mut self, call: &str, approved: bool, option: Option<&str>) -> bool {
        match self.0.remove(call) {
            Some(question) => {
                question.answer(approved, option);
                true
            }
            None => false,
        }
    }

    /// Removes a question that the agent took back; `false` where none waits.
    pub fn withdraw(&mut self, call: &str) -> bool {
        self.0.remove(call).map(Question::cancel).is_some()
    }

    /// Cancels all, and answers which calls they were about.
    pub fn cancel_all(&mut self) -> Vec<String> {
        let all = self.0.drain();
        all.map(|(call, question)| {
            question.cancel();
            call
        })
        .collect()
    }
}
