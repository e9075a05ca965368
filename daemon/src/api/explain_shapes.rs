//! The shapes of a call of a webhook endpoint that is explained.

use ostler_contract::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A call of an endpoint, which is not made.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ExplainCall {
    /// The endpoint.
    #[schemars(length(min = 1), extend("examples" = ["deploy"]))]
    pub endpoint: String,
    /// Its headers, each as `Name: value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("examples" = [["X-GitHub-Event: push"]]))]
    pub headers: Vec<String>,
    /// The query of its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Its body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["{\"ref\":\"main\"}"]))]
    pub body: Option<String>,
}

/// What a call would do.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedCall {
    /// The endpoint.
    pub endpoint: String,
    /// `automation`, or the URI of its bot.
    pub target: String,
    /// The status that the caller would get.
    pub status: u16,
    /// Why it would be refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The sender that `verify` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// Whether the caller shows that it is the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// Whether the call only checks the endpoint, and starts nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checks_address: bool,
    /// The name of the event, where the sender has one.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub event: Value,
    /// The id of the delivery, where repeated ones are recognized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// The delivery whose answer it would get, because that has the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<String>,
    /// What the endpoint's `when` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<ExplainedWhen>,
    /// The message to the bot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot: Option<ExplainedBot>,
    /// The automations that the call is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub automations: Vec<ExplainedAutomation>,
    /// What the sender does with a call that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<String>,
    /// The same for people, a line each.
    #[serde(default)]
    pub said: Vec<String>,
}

/// An evaluated `when`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedWhen {
    /// The expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
    /// Its result; absent if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The values that it reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ReadValue>,
}

/// A value that an expression reads.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReadValue {
    /// Its path, as it is written.
    pub path: String,
    /// The value; `null` for none.
    pub value: Value,
}

/// A message to a bot.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedBot {
    /// Its thread.
    pub thread: String,
    /// Its text.
    pub text: String,
}

/// What an automation would do with the call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedAutomation {
    /// Its id.
    pub automation: String,
    /// Its trigger.
    pub trigger: String,
    /// Whether it would start a run, or add the call to one.
    pub starts: bool,
    /// Why it would not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the run would begin, such as `now`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<String>,
    /// Its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session in which it would continue; absent for a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The message that the agent would get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why the run would fail, as far as that is known now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fails: Option<String>,
}
