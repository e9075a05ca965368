//! What a session waits for, and the answers, as commands and the HTTP API have them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request of a session for input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingRequest {
    /// The id.
    pub id: String,
    /// A digest of the request, for `shown` of its answer.
    pub digest: String,
    /// What it asks for: a sign-in and a tool of a client are for clients of the protocol.
    #[schemars(extend("enum" = ["approval", "question", "signIn", "clientTool"]))]
    pub kind: String,
    /// The chat whose turn waits.
    pub chat: String,
    /// The tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the call will do, or the text before the questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why the call is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intention: Option<String>,
    /// The input of the call; of more than 256 KiB, the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// URIs of the files that the call will change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The options of an approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<RequestOption>,
    /// The URL to open before the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The questions, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<RequestQuestion>,
}

/// An option of an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestOption {
    /// The id.
    pub id: String,
    /// The label.
    pub label: String,
    /// Whether it approves the call.
    pub approves: bool,
}

/// A question of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestQuestion {
    /// The id.
    pub id: String,
    /// The title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The text.
    pub message: String,
    /// Whether it has to be answered.
    pub required: bool,
    /// What an answer is: of `choices`, several answers may be given.
    #[schemars(extend("enum" = ["text", "number", "integer", "boolean", "choice", "choices"]))]
    pub answer: String,
    /// The choices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<RequestChoice>,
    /// Whether other text than a choice is accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text_allowed: bool,
}

/// A choice of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestChoice {
    /// The id.
    pub id: String,
    /// The label.
    pub label: String,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Approves a tool call.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ApproveRequest {
    /// Id of the request; may be absent with `shown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub request: Option<String>,
    /// `digest` of the request as it was shown; the answer is refused if the session waits for something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub shown: Option<String>,
    /// Id of an option that approves the call; absent for this call only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub option: Option<String>,
}

/// Rejects a tool call, or declines questions.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct RejectRequest {
    /// Id of the request; may be absent with `shown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub request: Option<String>,
    /// `digest` of the request as it was shown; the answer is refused if the session waits for something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub shown: Option<String>,
    /// Id of an option that rejects the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub option: Option<String>,
    /// Why a call is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub reason: Option<String>,
}

/// Answers questions.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct AnswerRequest {
    /// Id of the request; may be absent with `shown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub request: Option<String>,
    /// `digest` of the request as it was shown; the answer is refused if the session waits for something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub shown: Option<String>,
    /// The answers: `<question>=<answer>`, or only the answer if there is one question. An answer is text, a number, `yes` or
    /// `no`, or the id or the label of a choice.
    #[serde(default)]
    pub answers: Vec<String>,
}

/// Cancels a turn.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct CancelTurn {
    /// Id of the turn, which is not cancelled if another one is running; absent for the running turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub turn: Option<String>,
}

/// A request was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnsweredRequest {
    /// URI of the session.
    pub session: String,
    /// Id of the request.
    pub request: String,
    /// What it asked for, in one line.
    pub asked: String,
    /// The answer.
    #[schemars(extend("enum" = ["approved", "rejected", "answered", "declined"]))]
    pub answer: String,
}

/// A turn was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelledTurn {
    /// URI of the session.
    pub session: String,
    /// Id of the turn.
    pub turn: String,
    /// True.
    pub cancelled: bool,
}
