//! A pending request of a session: its content for a page, and the action that answers it.

use std::collections::HashMap;

use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::names;
use ostler_protocol::wire::common::StringOrMarkdown;
use ostler_protocol::wire::state::{
    ChatInputQuestion, ChatInputRequest, ConfirmationOptionKind, SessionInputRequest, SessionState,
    ToolCallConfirmationState, ToolCallPendingConfirmationState, ToolInput,
};
use ostler_telemetry::printable::one_line;
use ring::digest::{SHA256, digest};

use super::elsewhere::Elsewhere;

/// The longest line in a message, in characters.
const LONGEST_LINE: usize = 300;
/// The longest text on a page, in bytes.
const LONGEST_SHOWN: usize = 256 * 1024;

/// The kind of a tool call that needs approval.
pub const APPROVAL: &str = "approval";
/// The kind of questions.
pub const QUESTION: &str = "question";
/// The kind of a sign-in that a tool needs.
pub const SIGN_IN: &str = "signIn";
/// The kind of a tool that a client runs.
pub const CLIENT_TOOL: &str = "clientTool";
/// Every kind of request.
pub const KINDS: &[&str] = &[APPROVAL, QUESTION, SIGN_IN, CLIENT_TOOL];

/// A pending request of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Its id in the session.
    pub id: String,
    /// The chat that receives the answer.
    pub chat: String,
    /// The content of the request.
    pub asks: Asks,
    /// A digest that changes with the content.
    pub digest: String,
}

/// The content of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Asks {
    /// Approval of a tool call.
    Approval(Approval),
    /// Answers to questions.
    Questions(Questions),
    /// A step that only a client can perform.
    Elsewhere(Elsewhere),
}

/// A tool call that needs approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    turn: String,
    call: String,
    /// The name of the tool.
    pub tool: String,
    /// The title of the request, if it has one that says more than the message.
    pub title: Option<String>,
    /// What the call will do.
    pub message: String,
    /// The purpose of the call.
    pub intention: Option<String>,
    /// The input as text for a reader.
    pub input: Option<String>,
    /// The files it will change.
    pub files: Vec<String>,
    /// The options; without any, the call is approved or denied.
    pub options: Vec<Choice>,
    /// Whether only an option approves the call.
    pub needs_option: bool,
}

/// An option to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub id: String,
    pub label: String,
    pub description: Option<String>,
    /// Whether it approves the call; for a question, whether it is recommended.
    pub favoured: bool,
}

/// A set of questions.
#[derive(Debug, Clone, PartialEq)]
pub struct Questions {
    request: String,
    /// The text before the questions.
    pub message: Option<String>,
    /// The URL to open or review.
    pub url: Option<String>,
    pub questions: Vec<Question>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub id: String,
    pub title: Option<String>,
    /// The text of the question.
    pub message: String,
    /// Whether it has to be answered.
    pub required: bool,
    /// The type of its answer.
    pub kind: Kind,
}

/// The type of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Text {
        /// The initial text.
        default: Option<String>,
        /// The minimum and maximum length, in characters.
        length: (Option<usize>, Option<usize>),
    },
    Number {
        /// Whether it must be an integer.
        whole: bool,
        /// The initial number.
        default: Option<f64>,
        /// The minimum and the maximum.
        range: (Option<f64>, Option<f64>),
    },
    /// Yes or no.
    Boolean {
        /// The initial choice.
        default: Option<bool>,
    },
    /// One choice.
    One {
        choices: Vec<Choice>,
        /// Whether text may be entered instead.
        free: bool,
    },
    /// Several choices.
    Many {
        choices: Vec<Choice>,
        /// Whether text may be entered in addition.
        free: bool,
        /// The minimum and maximum number of choices.
        count: (Option<usize>, Option<usize>),
    },
}

/// The fields of a submitted form, each with its values.
pub type Form = HashMap<String, Vec<String>>;

/// The form field with the answer.
pub const ANSWER: &str = "answer";
/// The form field with the digest of the displayed request.
pub const SHOWN: &str = "shown";

/// Returns the name of a question's field.
pub fn field(at: usize) -> String {
    format!("q{at}")
}

/// Returns the name of the field for text in addition to a question's choices.
pub fn free_field(at: usize) -> String {
    format!("q{at}text")
}

/// Returns the form's answer that selects an option.
pub fn option_answer(id: &str) -> String {
    format!("option:{id}")
}

impl Request {
    /// Returns the pending requests of a session.
    pub fn all(state: &SessionState) -> impl Iterator<Item = Self> {
        state.input_needed.iter().flatten().filter_map(Self::read)
    }

    /// Reads a request; of a kind that this host does not know, `None`.
    pub fn read(request: &SessionInputRequest) -> Option<Self> {
        let mut content = serde_json::to_value(request).ok()?;
        // Drafts of answers are not what is asked.
        if let Some(asked) = content.get_mut("request").and_then(Value::as_object_mut) {
            asked.shift_remove("answers");
        }
        let digest = hex::encode(&digest(&SHA256, content.to_string().as_bytes()).as_ref()[..16]);
        let (id, chat, asks) = match request {
            SessionInputRequest::ToolConfirmation(asked) => {
                let ToolCallConfirmationState::PendingConfirmation(call) = &asked.tool_call else {
                    return None;
                };
                let approval = Approval::of(&asked.turn_id, call);
                (&asked.id, &asked.chat, Asks::Approval(approval))
            }
            SessionInputRequest::ChatInput(asked) => {
                let questions = Questions::of(&asked.request);
                (&asked.id, &asked.chat, Asks::Questions(questions))
            }
            SessionInputRequest::ToolAuthentication(asked) => {
                (&asked.id, &asked.chat, Asks::Elsewhere(Elsewhere::sign_in(asked)))
            }
            SessionInputRequest::ToolClientExecution(asked) => {
                (&asked.id, &asked.chat, Asks::Elsewhere(Elsewhere::client_tool(asked)))
            }
            SessionInputRequest::Unknown(_) => return None,
        };
        Some(Self { id: id.clone(), chat: chat.clone(), asks, digest })
    }

    /// Returns whether an id names the request: its own, or that of its call or of its questions.
    pub fn is_named(&self, id: &str) -> bool {
        self.id == id
            || match &self.asks {
                Asks::Approval(approval) => approval.call == id,
                Asks::Questions(questions) => questions.request == id,
                Asks::Elsewhere(_) => false,
            }
    }

    /// Returns the kind of the request, one of [`KINDS`].
    pub fn kind(&self) -> &'static str {
        match &self.asks {
            Asks::Approval(_) => APPROVAL,
            Asks::Questions(_) => QUESTION,
            Asks::Elsewhere(elsewhere) => elsewhere.kind,
        }
    }

    pub fn line(&self) -> String {
        let text = match &self.asks {
            Asks::Approval(approval) => match &approval.title {
                Some(title) => format!("{title}: {}", approval.message),
                None => approval.message.clone(),
            },
            Asks::Questions(Questions { message: Some(message), .. }) => message.clone(),
            Asks::Questions(questions) => {
                questions.questions.first().map(|question| question.message.clone()).unwrap_or_default()
            }
            Asks::Elsewhere(elsewhere) => elsewhere.line(),
        };
        let line = one_line(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        match line.char_indices().nth(LONGEST_LINE) {
            Some((at, _)) => format!("{}…", &line[..at]),
            None => line,
        }
    }

    /// Returns the action for a submitted form.
    ///
    /// # Errors
    /// What is missing or invalid in the form.
    pub fn action(&self, form: &Form) -> Result<Value, String> {
        let answer = first(form, ANSWER).unwrap_or_default();
        match &self.asks {
            Asks::Approval(approval) => approval.action(answer),
            Asks::Questions(questions) => questions.action(answer, form),
            Asks::Elsewhere(elsewhere) => Err(elsewhere.advice()),
        }
    }
}

impl Approval {
    /// Reads a pending call of a turn.
    pub fn of(turn: &str, call: &ToolCallPendingConfirmationState) -> Self {
        let files = call.edits.as_ref().and_then(|edits| serde_json::to_value(edits).ok());
        let options = call.options.iter().flatten().map(|option| Choice {
            id: option.id.clone(),
            label: option.label.clone(),
            description: None,
            favoured: option.kind != ConfirmationOptionKind::Deny,
        });
        let message = plain(&call.invocation_message);
        Self {
            turn: turn.to_owned(),
            call: call.tool_call_id.clone(),
            tool: call.display_name.clone(),
            // Many agents have one title for both.
            title: call.confirmation_title.as_ref().map(plain).filter(|title| *title != message),
            message,
            intention: call.intention.clone(),
            input: call.tool_input.as_ref().map(input),
            files: files.as_ref().map(file_names).unwrap_or_default(),
            options: options.collect(),
            needs_option: call
                .meta
                .as_ref()
                .and_then(|meta| meta.get(&names::meta_key("optionNeeded")))
                .is_some_and(|needed| *needed == true),
        }
    }

    fn action(&self, answer: &str) -> Result<Value, String> {
        let option = answer.strip_prefix("option:");
        let option = match option {
            Some(id) => Some(
                self.options
                    .iter()
                    .find(|option| option.id == id)
                    .ok_or_else(|| "This option is not offered. Choose another one.".to_owned())?,
            ),
            None => None,
        };
        let approved = match (option, answer) {
            (Some(option), _) => option.favoured,
            (None, "approve") => true,
            (None, "deny") => false,
            _ => return Err("Choose an answer.".to_owned()),
        };
        let mut action = json!({
            "type": "chat/toolCallConfirmed", "turnId": self.turn, "toolCallId": self.call, "approved": approved,
        });
        match approved {
            true => action["confirmed"] = "user-action".into(),
            false => action["reason"] = "denied".into(),
        }
        if let Some(option) = option {
            action["selectedOptionId"] = option.id.as_str().into();
        }
        Ok(action)
    }
}

impl Questions {
    /// Reads a request for answers.
    pub fn of(request: &ChatInputRequest) -> Self {
        Self {
            request: request.id.clone(),
            message: request.message.clone(),
            url: request.url.clone(),
            questions: request.questions.iter().flatten().filter_map(question).collect(),
        }
    }

    fn action(&self, answer: &str, form: &Form) -> Result<Value, String> {
        let mut action = json!({ "type": "chat/inputCompleted", "requestId": self.request });
        match answer {
            "decline" | "cancel" => action["response"] = answer.into(),
            "accept" => {
                action["response"] = answer.into();
                let mut answers = JsonObject::new();
                for (at, question) in self.questions.iter().enumerate() {
                    let value = question.answer(at, form).map_err(|why| {
                        format!("{}: {why}.", question.title.as_ref().unwrap_or(&question.message))
                    })?;
                    if let Some(value) = value {
                        answers.insert(question.id.clone(), json!({ "state": "submitted", "value": value }));
                    }
                }
                action["answers"] = Value::Object(answers);
            }
            _ => return Err("Choose an answer.".to_owned()),
        }
        Ok(action)
    }
}

impl Question {
    /// Returns the value of the question in a form, or `None` if an optional answer is omitted.
    fn answer(&self, at: usize, form: &Form) -> Result<Option<Value>, String> {
        let given = first(form, &field(at)).filter(|text| !text.trim().is_empty());
        let free = first(form, &free_field(at)).map(str::trim).filter(|text| !text.is_empty());
        let value = match &self.kind {
            Kind::Text { length: (least, most), .. } => match given {
                None => None,
                // Browsers send CRLF line ends.
                Some(text) => {
                    let text = text.replace("\r\n", "\n");
                    let count = text.chars().count();
                    if least.is_some_and(|least| count < least) || most.is_some_and(|most| count > most) {
                        return Err(format!("enter {} characters", between(least, most)));
                    }
                    Some(json!({ "kind": "text", "value": text }))
                }
            },
            Kind::Number { whole, range: (least, most), .. } => match given {
                None => None,
                Some(text) => {
                    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
                    let number = number.filter(|number| !whole || number.fract() == 0.0);
                    let what = if *whole { "a whole number" } else { "a number" };
                    let number = number.ok_or_else(|| format!("enter {what}"))?;
                    if least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most) {
                        return Err(format!("enter {what} of {}", between(least, most)));
                    }
                    Some(json!({ "kind": "number", "value": number }))
                }
            },
            Kind::Boolean { .. } => match given {
                Some("yes") => Some(json!({ "kind": "boolean", "value": true })),
                Some("no") => Some(json!({ "kind": "boolean", "value": false })),
                None => None,
                Some(_) => return Err("choose yes or no".to_owned()),
            },
            Kind::One { choices, free: may } => match (given, free.filter(|_| *may)) {
                (_, Some(text)) => Some(json!({ "kind": "selected", "value": "", "freeformValues": [text] })),
                (Some(id), None) if choices.iter().any(|choice| choice.id == id) => {
                    Some(json!({ "kind": "selected", "value": id }))
                }
                (Some(_), None) => return Err("choose one of the options".to_owned()),
                (None, None) => None,
            },
            Kind::Many { choices, free: may, count: (least, most) } => {
                let chosen = form.get(&field(at)).map(Vec::as_slice).unwrap_or_default();
                if chosen.iter().any(|id| !choices.iter().any(|choice| choice.id == *id)) {
                    return Err("choose from the options".to_owned());
                }
                let texts = form.get(&free_field(at)).filter(|_| *may).into_iter().flatten();
                let texts: Vec<&str> =
                    texts.map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
                let number = chosen.len() + texts.len();
                let few = least.is_some_and(|least| number < least) && (self.required || number > 0);
                if few || most.is_some_and(|most| number > most) {
                    return Err(format!("choose {} options", between(least, most)));
                }
                match (number, texts.is_empty()) {
                    (0, _) => None,
                    (_, true) => Some(json!({ "kind": "selected-many", "value": chosen })),
                    (_, false) => {
                        Some(json!({ "kind": "selected-many", "value": chosen, "freeformValues": texts }))
                    }
                }
            }
        };
        match value {
            None if self.required => Err("an answer is needed".to_owned()),
            value => Ok(value),
        }
    }
}

fn between<T: std::fmt::Display>(least: &Option<T>, most: &Option<T>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => "any number of".to_owned(),
    }
}

fn first<'a>(form: &'a Form, name: &str) -> Option<&'a str> {
    form.get(name).and_then(|values| values.first()).map(String::as_str)
}

fn question(question: &ChatInputQuestion) -> Option<Question> {
    let size = |value: Option<i64>| value.and_then(|value| usize::try_from(value).ok());
    let choices = |options: &[ostler_protocol::wire::state::ChatInputOption]| {
        let choice = |option: &ostler_protocol::wire::state::ChatInputOption| Choice {
            id: option.id.clone(),
            label: option.label.clone(),
            description: option.description.clone(),
            favoured: option.recommended == Some(true),
        };
        options.iter().map(choice).collect::<Vec<_>>()
    };
    let (id, title, message, required, kind) = match question {
        ChatInputQuestion::Text(text) => {
            let kind =
                Kind::Text { default: text.default_value.clone(), length: (size(text.min), size(text.max)) };
            (&text.id, &text.title, &text.message, text.required, kind)
        }
        ChatInputQuestion::Number(number) | ChatInputQuestion::Integer(number) => {
            let whole = matches!(question, ChatInputQuestion::Integer(_));
            let kind = Kind::Number { whole, default: number.default_value, range: (number.min, number.max) };
            (&number.id, &number.title, &number.message, number.required, kind)
        }
        ChatInputQuestion::Boolean(boolean) => {
            let kind = Kind::Boolean { default: boolean.default_value };
            (&boolean.id, &boolean.title, &boolean.message, boolean.required, kind)
        }
        ChatInputQuestion::SingleSelect(one) => {
            let free = one.allow_freeform_input == Some(true);
            let kind = Kind::One { choices: choices(&one.options), free };
            (&one.id, &one.title, &one.message, one.required, kind)
        }
        ChatInputQuestion::MultiSelect(many) => {
            let kind = Kind::Many {
                choices: choices(&many.options),
                free: many.allow_freeform_input == Some(true),
                count: (size(many.min), size(many.max)),
            };
            (&many.id, &many.title, &many.message, many.required, kind)
        }
        ChatInputQuestion::Unknown(_) => return None,
    };
    Some(Question {
        id: id.clone(),
        title: title.clone(),
        message: message.clone(),
        required: required == Some(true),
        kind,
    })
}

pub(super) fn plain(text: &StringOrMarkdown) -> String {
    match text {
        StringOrMarkdown::Plain(text) | StringOrMarkdown::Markdown { markdown: text } => text.clone(),
    }
}

/// Returns the input of a call as text: JSON is indented, anything else is unchanged.
fn input(input: &ToolInput) -> String {
    let text = match input {
        ToolInput::Inline(text) => match serde_json::from_str::<Value>(text) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => {
                serde_json::to_string_pretty(&value).unwrap_or_else(|_| text.clone())
            }
            _ => text.clone(),
        },
        ToolInput::ContentRef(reference) => {
            format!("The input is large. Open the session to see it: {}", reference.uri)
        }
    };
    if text.len() <= LONGEST_SHOWN {
        return text;
    }
    let end = text.floor_char_boundary(LONGEST_SHOWN);
    let left = text.len() - end;
    format!("{}\n… {left} more bytes; open the session to see all of it", &text[..end])
}

/// Returns the URIs in a collection of edits without duplicates.
fn file_names(edits: &Value) -> Vec<String> {
    fn collect(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(uri) = fields.get("uri").and_then(Value::as_str)
                    && !into.iter().any(|known| known == uri)
                {
                    into.push(uri.to_owned());
                }
                fields.values().for_each(|value| collect(value, into));
            }
            Value::Array(entries) => entries.iter().for_each(|value| collect(value, into)),
            _ => {}
        }
    }
    let mut names = Vec::new();
    collect(edits, &mut names);
    names.truncate(100);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(request: Value) -> Request {
        Request::read(&serde_json::from_value(request).unwrap()).unwrap()
    }

    fn approval() -> Request {
        request(json!({
            "kind": "toolConfirmation", "id": "c1", "chat": "echo:/s/chat", "turnId": "t1", "toolCall": {
                "status": "pending-confirmation", "toolCallId": "c1", "toolName": "run", "displayName": "Run",
                "invocationMessage": { "markdown": "Runs\n`ls`" }, "toolInput": "{\"a\":1}", "confirmationTitle": "Run it",
                "options": [
                    { "id": "always", "label": "Always", "kind": "approve" }, { "id": "no", "label": "No", "kind": "deny" },
                ],
            },
        }))
    }

    fn form(fields: &[(&str, &str)]) -> Form {
        let mut form = Form::new();
        for (name, value) in fields {
            form.entry((*name).to_owned()).or_default().push((*value).to_owned());
        }
        form
    }

    #[test]
    fn a_call_is_approved_or_denied_with_what_is_offered() {
        let approval = approval();
        assert_eq!(approval.line(), "Run it: Runs `ls`");
        let Asks::Approval(asks) = &approval.asks else { panic!("{approval:?}") };
        assert_eq!(asks.input.as_deref(), Some("{\n  \"a\": 1\n}"));
        let answer = |answer: &str| approval.action(&form(&[("answer", answer)]));
        let approved = answer("approve").unwrap();
        assert_eq!((&approved["approved"], &approved["turnId"]), (&json!(true), &json!("t1")));
        assert_eq!(answer("deny").unwrap()["approved"], false);
        let always = answer("option:always").unwrap();
        assert_eq!((&always["approved"], &always["selectedOptionId"]), (&json!(true), &json!("always")));
        assert_eq!(answer("option:no").unwrap()["approved"], false);
        assert!(answer("option:other").is_err());
        assert!(answer("").is_err() && approval.action(&Form::new()).is_err());
    }

    #[test]
    fn a_title_that_is_the_message_is_said_once() {
        let mut asked = json!({
            "kind": "toolConfirmation", "id": "c1", "chat": "echo:/s/chat", "turnId": "t1", "toolCall": {
                "status": "pending-confirmation", "toolCallId": "c1", "toolName": "run", "displayName": "Run",
                "invocationMessage": { "markdown": "echo x; ls" }, "confirmationTitle": "echo x; ls",
            },
        });
        assert_eq!(request(asked.clone()).line(), "echo x; ls");
        asked["toolCall"]["confirmationTitle"] = "Run it?".into();
        assert_eq!(request(asked).line(), "Run it?: echo x; ls");
    }

    #[test]
    fn the_digest_is_of_what_is_asked() {
        let (one, other) = (
            approval(),
            request(json!({
                "kind": "chatInput", "id": "c1", "chat": "echo:/s/chat", "request": { "id": "r1", "message": "Which?" },
            })),
        );
        assert_eq!(one.digest, approval().digest);
        assert_ne!(one.digest, other.digest);
        assert_eq!(other.line(), "Which?");
    }

    #[test]
    fn the_answers_of_a_form_are_those_of_its_questions() {
        let asked = request(json!({
            "kind": "chatInput", "id": "i", "chat": "echo:/s/chat", "request": { "id": "r1", "questions": [
                { "kind": "text", "id": "name", "message": "Name?", "required": true, "max": 5 },
                { "kind": "integer", "id": "count", "message": "Count?", "min": 1.0, "max": 9.0 },
                { "kind": "boolean", "id": "sure", "message": "Sure?" },
                { "kind": "single-select", "id": "one", "message": "One?", "allowFreeformInput": true,
                  "options": [{ "id": "a", "label": "A" }] },
                { "kind": "multi-select", "id": "many", "message": "Many?", "min": 1, "max": 2,
                  "options": [{ "id": "x", "label": "X" }, { "id": "y", "label": "Y" }, { "id": "z", "label": "Z" }] },
            ] },
        }));
        let all = [
            ("answer", "accept"),
            ("q0", "Ada"),
            ("q1", "3"),
            ("q2", "no"),
            ("q3", "a"),
            ("q4", "x"),
            ("q4", "y"),
        ];
        let action = asked.action(&form(&all)).unwrap();
        assert_eq!((&action["type"], &action["requestId"]), (&json!("chat/inputCompleted"), &json!("r1")));
        let value = |action: &Value, id: &str| action["answers"][id]["value"]["value"].clone();
        assert_eq!(value(&action, "name"), "Ada");
        assert_eq!(value(&action, "count"), 3.0);
        assert_eq!(value(&action, "sure"), false);
        assert_eq!(value(&action, "one"), "a");
        assert_eq!(value(&action, "many"), json!(["x", "y"]));
        assert_eq!(action["answers"]["name"]["state"], "submitted");

        let least = asked.action(&form(&[("answer", "accept"), ("q0", "Ada"), ("q3text", "other")])).unwrap();
        assert_eq!(least["answers"]["one"]["value"]["freeformValues"], json!(["other"]));
        assert_eq!(least["answers"].as_object().unwrap().len(), 2);
        for (field, given, says) in [
            ("q0", "", "Name?: an answer is needed"),
            ("q0", "too long", "enter at most 5 characters"),
            ("q1", "2.5", "enter a whole number"),
            ("q1", "10", "a whole number of 1 to 9"),
            ("q2", "maybe", "choose yes or no"),
            ("q3", "b", "choose one of the options"),
            ("q4", "w", "choose from the options"),
        ] {
            let mut fields = form(&[("answer", "accept"), ("q0", "Ada")]);
            fields.insert(field.to_owned(), vec![given.to_owned()]);
            let why = asked.action(&fields).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
        assert_eq!(asked.action(&form(&[("answer", "decline")])).unwrap()["response"], "decline");
    }

    #[test]
    fn what_a_client_runs_or_signs_in_to_is_explained_and_not_answered() {
        let running = request(json!({
            "kind": "toolClientExecution", "id": "c1", "chat": "echo:/s/chat", "turnId": "t1", "clientId": "vs", "toolCall": {
                "status": "running", "toolCallId": "c1", "toolName": "run", "displayName": "Run", "invocationMessage": "Runs",
                "confirmed": "not-needed",
            },
        }));
        assert_eq!(
            (running.kind(), &*running.line()),
            (CLIENT_TOOL, "Run waits for the client vs to run it")
        );
        let sign_in = request(json!({
            "kind": "toolAuthentication", "id": "c2", "chat": "echo:/s/chat", "turnId": "t1", "toolCall": {
                "status": "auth-required", "toolCallId": "c2", "toolName": "issues", "displayName": "List issues",
                "invocationMessage": "Lists issues", "confirmed": "not-needed",
                "auth": { "reason": "required", "resource": { "resource": "https://tracker.example/mcp" } },
            },
        }));
        assert_eq!(
            (sign_in.kind(), &*sign_in.line()),
            (SIGN_IN, "List issues needs a sign-in to https://tracker.example/mcp")
        );
        for asked in [running, sign_in] {
            let why = asked.action(&form(&[(ANSWER, "approve")])).unwrap_err();
            assert!(why.starts_with("A link cannot "), "{why}");
        }
    }
}
