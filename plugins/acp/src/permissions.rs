//! Approvals: converts the agent's options to those of the host, and the user's choice to that of the agent. An answer
//! never means more than the user said, and never the opposite.

use std::collections::HashMap;

use ostler_contract::{JsonObject, Value, json};
use serde::{Deserialize, Serialize};

use crate::agent_connection::Request;
use crate::limits;
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
    /// The agent's session that the request names.
    session: Option<String>,
    /// Whether it has more options than a user can be shown.
    too_many: bool,
    /// The subject of a standing answer.
    tool: String,
}

/// A standing answer, which is valid beyond its request.
#[derive(Debug, PartialEq)]
pub struct Always {
    pub tool: String,
    pub option: Choice,
}

/// What a user's answer meant to the agent.
#[derive(Debug, PartialEq)]
pub enum Decision {
    /// What the user said; with a standing answer if the user named one.
    Told(Option<Always>),
    /// The user approved without an option, and no option approves exactly once: the request was answered as cancelled.
    /// Contains the labels of the options that approve.
    Unclear(Vec<String>),
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
        let options = limits::APPROVALS.of(&request.params).into_iter().flatten();
        let mut choices: Vec<Choice> = Vec::new();
        for option in options {
            let Some(id) = member::<String>(option, "optionId") else { continue };
            let choice = Choice {
                label: member(option, "name").unwrap_or_else(|| id.clone()),
                kind: member(option, "kind").unwrap_or_default(),
                id,
            };
            // One that is offered twice is one option.
            if !choices.contains(&choice) {
                choices.push(choice);
            }
        }
        let session = member(&request.params, "sessionId");
        let too_many = limits::APPROVALS.is_exceeded(&request.params);
        request.release();
        Ok((call, Self { choices, request, session, too_many, tool: String::new() }))
    }

    /// Returns why no user can answer the request.
    pub fn flaw(&self) -> Option<&'static str> {
        let ambiguous =
            |(at, choice): (usize, &Choice)| self.choices[..at].iter().any(|earlier| earlier.id == choice.id);
        match self.choices.is_empty() {
            _ if self.too_many => Some("with more options than can be shown"),
            true => Some("without options"),
            false if self.choices.iter().enumerate().any(ambiguous) => {
                Some("with options that have the same id and cannot be told apart")
            }
            false => None,
        }
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

    /// Returns what clients and the host need to know about the options, as `_meta`: their kinds by id, if one of them
    /// creates a standing answer, and whether only a named option can approve.
    pub fn about_options(&self) -> JsonObject {
        let mut about = JsonObject::new();
        if self.choices.iter().any(Choice::always) {
            let kinds = self.choices.iter().map(|choice| (choice.id.clone(), choice.kind.as_str().into()));
            about.insert("ostler.optionKinds".to_owned(), Value::Object(kinds.collect()));
        }
        if self.unnamed(true).is_none() {
            about.insert("ostler.optionNeeded".to_owned(), true.into());
        }
        about
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

    /// Returns the option for an answer that names none: one that approves or denies this once. Of several that
    /// approve, each means something else.
    fn unnamed(&self, approved: bool) -> Option<&Choice> {
        let kind = if approved { "allow_once" } else { "reject_once" };
        let mut once = self.choices.iter().filter(|choice| choice.kind == kind);
        let first = once.next();
        first.filter(|_| !approved || once.next().is_none())
    }

    fn answer(self, approved: bool, option: Option<&str>) -> Decision {
        let chosen = match option {
            Some(id) => self.choices.iter().find(|choice| choice.id == id && choice.denies() != approved),
            None => self.unnamed(approved),
        };
        let Some(chosen) = chosen.cloned() else {
            let approving = self.choices.iter().filter(|choice| !choice.denies());
            let labels = approving.map(|choice| choice.label.clone()).collect();
            self.select(None);
            return match approved {
                true => Decision::Unclear(labels),
                false => Decision::Told(None),
            };
        };
        // Only an option that a user named becomes a standing answer.
        let always = option.is_some() && chosen.always();
        let always = always.then(|| Always { tool: self.tool.clone(), option: chosen.clone() });
        self.select(Some(&chosen));
        Decision::Told(always)
    }

    /// Answers that the turn was cancelled.
    pub fn cancel(self) {
        self.select(None);
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
    /// Adds a request until it is answered.
    pub fn add(&mut self, call: String, question: Question) {
        if let Some(earlier) = self.0.insert(call, question) {
            earlier.cancel();
        }
    }

    /// Answers the request about a call with the user's choice; `None` if no request waits.
    pub fn answer(&mut self, call: &str, approved: bool, option: Option<&str>) -> Option<Decision> {
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

    /// Cancels the requests that name another session, and returns their calls.
    pub fn cancel_all_but(&mut self, session: &str) -> Vec<String> {
        let is_other =
            |question: &Question| question.session.as_deref().is_some_and(|named| named != session);
        let others = self.0.extract_if(|_, question| is_other(question));
        others
            .map(|(call, question)| {
                question.cancel();
                call
            })
            .collect()
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
