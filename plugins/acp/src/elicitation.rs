//! `elicitation/*`: converts questions of the agent to input requests, and users' answers to those of the agent.

use std::collections::{BTreeMap, HashMap};

use ostler_contract::wire::state::ChatInputAnswer;
use ostler_contract::{Budget, Charge, JsonObject, Value, json};

use crate::agent_connection::{Failure, Request, Withdrawal, weight};
use crate::protocol::member;

/// Returns the requirement of a member that does not fit an object's schema, or what is wrong with the schema.
pub type Misfit = fn(schema: &Value, member: &JsonObject) -> Result<Option<String>, String>;

/// The maximum memory of a conversation's waiting questions, in bytes.
const WAITING: usize = 4 << 20;
/// How often a question is repeated after invalid answers.
const ASKED: u32 = 10;

/// A question that waits for a user.
#[derive(Debug)]
struct Form {
    request: Request,
    /// The agent's session that the request names; a question about a request names none.
    session: Option<String>,
    turn: String,
    /// The question in the form for clients, without its id.
    shown: Value,
    /// The fields, by name.
    fields: BTreeMap<String, Field>,
    /// The agent's name for it, if it is answered at a URL.
    elicitation: Option<String>,
    /// How often it was asked.
    asked: u32,
    _charge: Charge,
}

#[derive(Debug)]
struct Field {
    /// Its type.
    kind: String,
    title: String,
    /// The schema of its value.
    schema: JsonObject,
    required: bool,
}

/// The questions of a conversation, by their ids.
#[derive(Debug)]
pub struct Forms {
    open: HashMap<String, Form>,
    next: u64,
    memory: Budget,
    misfit: Misfit,
}

/// The result of an answer.
pub enum Answered {
    /// It was sent to the agent.
    Sent,
    /// The question does not exist.
    Unknown,
    /// It does not fit the form: the user is asked again.
    Again(Box<PublishedQuestion>),
    /// It does not fit the form again: the question is cancelled.
    TooOften,
}

/// A question in the form that clients receive.
pub struct PublishedQuestion {
    pub id: String,
    /// The `ChatInputRequest`.
    pub request: Value,
    /// Resolves when the agent withdraws it.
    pub withdrawal: Withdrawal,
}

impl Forms {
    /// No questions yet.
    pub fn new(misfit: Misfit) -> Self {
        Self { open: HashMap::new(), next: 0, memory: Budget::new(WAITING), misfit }
    }

    /// Takes an `elicitation/create`.
    ///
    /// # Errors
    /// The request and why it is rejected: its mode is unknown, or too many questions wait.
    pub fn add(&mut self, request: Request, turn: &str) -> Result<PublishedQuestion, (Request, Failure)> {
        let params = &request.params;
        let message: String = member(params, "message").unwrap_or_default();
        let mut shown = json!({ "message": message });
        let mut elicitation = None;
        let mut fields = BTreeMap::new();
        match params.get("mode").and_then(Value::as_str) {
            Some("url") => match member::<String>(params, "url") {
                Some(url) => {
                    shown["url"] = url.into();
                    elicitation = member(params, "elicitationId");
                }
                None => return Err((request, Failure::bad_params("url is missing"))),
            },
            Some("form") | None => {
                let schema = params.get("requestedSchema").unwrap_or(&Value::Null);
                let required: Vec<String> = member(schema, "required").unwrap_or_default();
                let mut questions = Vec::new();
                for (name, property) in
                    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
                {
                    let kind: String = member(property, "type").unwrap_or_else(|| "string".to_owned());
                    let required = required.contains(name);
                    questions.push(question(name, property, &kind, required));
                    let title = member(property, "title").unwrap_or_else(|| name.clone());
                    fields.insert(name.clone(), Field { kind, title, schema: checked(property), required });
                }
                shown["questions"] = questions.into();
            }
            Some(mode) => {
                let why = Failure::bad_params(format!("there is no elicitation mode {mode:?}"));
                return Err((request, why));
            }
        }
        // The form for clients, and about the same for the fields.
        let Some(charge) = self.memory.try_take(2 * weight(&shown)) else {
            let why = format!("the questions that wait for a user take more than {} MiB", WAITING >> 20);
            return Err((request, Failure::internal(why)));
        };
        let session = member(params, "sessionId");
        let mut request = request;
        request.release();
        let turn = turn.to_owned();
        let form = Form { request, session, turn, shown, fields, elicitation, asked: 0, _charge: charge };
        Ok(self.ask(form, None))
    }

    /// Publishes a question, after the reason why its latest answer is invalid.
    fn ask(&mut self, mut form: Form, problem: Option<&str>) -> PublishedQuestion {
        self.next += 1;
        form.asked += 1;
        let id = format!("{}-question-{}", form.turn, self.next);
        let (mut shown, withdrawal) = (form.shown.clone(), form.request.withdrawal());
        shown["id"] = id.as_str().into();
        if let (Some(problem), Some(message)) = (problem, form.shown["message"].as_str()) {
            shown["message"] = format!("{message}\n\nThe answer was not sent: {problem}").into();
        }
        self.open.insert(id.clone(), form);
        PublishedQuestion { id, request: shown, withdrawal }
    }

    /// Answers a question with `accept`, `decline` or `cancel`.
    pub fn answer(
        &mut self,
        id: &str,
        response: &str,
        answers: &BTreeMap<String, ChatInputAnswer>,
    ) -> Answered {
        let Some(form) = self.open.remove(id) else { return Answered::Unknown };
        let answer = match response {
            "accept" if form.fields.is_empty() => json!({ "action": "accept" }),
            "accept" => match content(&form.fields, answers, self.misfit) {
                Ok(content) => json!({ "action": "accept", "content": content }),
                Err(problem) if form.asked < ASKED => {
                    return Answered::Again(Box::new(self.ask(form, Some(&problem))));
                }
                Err(_) => {
                    form.request.answer(Ok(json!({ "action": "cancel" })));
                    return Answered::TooOften;
                }
            },
            "cancel" => json!({ "action": "cancel" }),
            _ => json!({ "action": "decline" }),
        };
        form.request.answer(Ok(answer));
        Answered::Sent
    }

    /// Removes a question; returns `false` if it does not exist.
    pub fn withdraw(&mut self, id: &str) -> bool {
        let form = self.open.remove(id);
        form.map(|form| form.request.answer(Ok(json!({ "action": "cancel" })))).is_some()
    }

    /// Returns the id of a question that was answered at its URL.
    pub fn completed(&self, elicitation: &str) -> Option<String> {
        let open = self.open.iter().find(|(_, form)| form.elicitation.as_deref() == Some(elicitation));
        open.map(|(id, _)| id.clone())
    }

    /// Returns whether none waits.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Cancels the questions that name another session, and returns their ids.
    pub fn cancel_all_but(&mut self, session: &str) -> Vec<String> {
        let is_other = |form: &Form| form.session.as_deref().is_some_and(|named| named != session);
        let ids = self.open.iter().filter(|(_, form)| is_other(form)).map(|(id, _)| id.clone());
        let ids: Vec<String> = ids.collect();
        for id in &ids {
            self.withdraw(id);
        }
        ids
    }

    /// Cancels all, and returns their ids.
    pub fn cancel_all(&mut self) -> Vec<String> {
        let ids: Vec<String> = self.open.keys().cloned().collect();
        for id in &ids {
            self.withdraw(id);
        }
        ids
    }
}

fn question(name: &str, property: &Value, kind: &str, required: bool) -> Value {
    let text = |key: &str| member::<String>(property, key);
    let title = text("title");
    let message = text("description").or_else(|| title.clone()).unwrap_or_else(|| name.to_owned());
    let mut question = json!({ "id": name, "message": message, "required": required });
    if let Some(title) = title {
        question["title"] = title.into();
    }
    let mut copy = |from: &str, to: &str| {
        if let Some(value) = property.get(from).filter(|value| !value.is_null()) {
            question[to] = value.clone();
        }
    };
    let choices = choices(property).or_else(|| property.get("items").and_then(choices));
    match (kind, choices) {
        ("array", choices) => {
            copy("minItems", "min");
            copy("maxItems", "max");
            question["kind"] = "multi-select".into();
            question["options"] = choices.unwrap_or_default().into();
        }
        (_, Some(choices)) => {
            question["kind"] = "single-select".into();
            question["options"] = choices.into();
        }
        ("boolean", None) => {
            copy("default", "defaultValue");
            question["kind"] = "boolean".into();
        }
        ("number" | "integer", None) => {
            copy("minimum", "min");
            copy("maximum", "max");
            copy("default", "defaultValue");
            question["kind"] = kind.into();
        }
        _ => {
            copy("minLength", "min");
            copy("maxLength", "max");
            copy("format", "format");
            copy("default", "defaultValue");
            question["kind"] = "text".into();
        }
    }
    question
}

/// The values a field is limited to, plain or with titles.
fn choices(property: &Value) -> Option<Vec<Value>> {
    if let Some(values) = member::<Vec<String>>(property, "enum") {
        return Some(values.into_iter().map(|value| json!({ "id": value, "label": value })).collect());
    }
    let titled = property.get("oneOf").or_else(|| property.get("anyOf"))?.as_array()?;
    let choice = |option: &Value| {
        let id: String = member(option, "const")?;
        let mut choice =
            json!({ "label": member::<String>(option, "title").unwrap_or_else(|| id.clone()), "id": id });
        if let Some(description) = member::<String>(option, "description") {
            choice["description"] = description.into();
        }
        Some(choice)
    };
    Some(titled.iter().filter_map(choice).collect())
}

/// Returns the schema of a field as far as the protocol's forms support it. Unsupported parts are omitted.
fn checked(property: &Value) -> JsonObject {
    let mut schema = JsonObject::new();
    let mut copy = |name: &str, fits: fn(&Value) -> bool| {
        if let Some(value) = property.get(name).filter(|value| fits(value)) {
            schema.insert(name.to_owned(), value.clone());
        }
    };
    copy("type", |kind| {
        kind.as_str().is_some_and(|kind| ["string", "number", "integer", "boolean", "array"].contains(&kind))
    });
    for limit in ["minLength", "maxLength", "minItems", "maxItems"] {
        copy(limit, Value::is_u64);
    }
    for limit in ["minimum", "maximum"] {
        copy(limit, Value::is_number);
    }
    copy("pattern", Value::is_string);
    copy("format", |format| {
        format.as_str().is_some_and(|format| ["email", "uri", "date", "date-time"].contains(&format))
    });
    if let Some(values) = choices(property).filter(|values| !values.is_empty()) {
        schema.insert("enum".to_owned(), values.iter().map(|choice| choice["id"].clone()).collect());
    }
    if let Some(items) = property.get("items") {
        schema.insert("items".to_owned(), Value::Object(checked(items)));
    }
    schema
}

/// The values of a form's fields.
///
/// # Errors
/// Returns the requirement of the first answer that does not fit.
fn content(
    fields: &BTreeMap<String, Field>,
    answers: &BTreeMap<String, ChatInputAnswer>,
    misfit: Misfit,
) -> Result<JsonObject, String> {
    let mut content = JsonObject::new();
    for (name, field) in fields {
        let given = answers.get(name).and_then(|answer| value(answer, &field.kind));
        let problem = match &given {
            Some(value) => field.problem(name, value, misfit),
            None => field.required.then(|| "be given".to_owned()),
        };
        if let Some(problem) = problem {
            return Err(format!("{} must {problem}", field.title));
        }
        content.extend(given.map(|value| (name.clone(), value)));
    }
    Ok(content)
}

impl Field {
    /// Returns the requirement of a value that does not fit.
    fn problem(&self, name: &str, value: &Value, misfit: Misfit) -> Option<String> {
        let member = JsonObject::from_iter([(name.to_owned(), value.clone())]);
        let of = |schema: &JsonObject| json!({ "properties": { name: schema } });
        let judged = misfit(&of(&self.schema), &member).or_else(|_| {
            // An invalid pattern.
            let mut schema = self.schema.clone();
            schema.remove("pattern");
            misfit(&of(&schema), &member)
        });
        judged.ok().flatten()
    }
}

/// Converts a user's answer to the value of a field; `None` for a skipped one.
fn value(answer: &ChatInputAnswer, kind: &str) -> Option<Value> {
    let answer = serde_json::to_value(answer).ok()?;
    let value = answer.pointer("/value/value")?;
    // Clients can send integers as 3.0.
    let whole =
        value.as_f64().filter(|number| kind == "integer" && number.fract() == 0.0 && number.abs() < EXACT);
    #[allow(clippy::cast_possible_truncation)]
    Some(whole.map_or_else(|| value.clone(), |number| json!(number as i64)))
}

/// The largest exact integer of a client.
const EXACT: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_a_question_of_its_kind() {
        let kinds = |property: Value| {
            let kind = property["type"].as_str().unwrap_or("string").to_owned();
            question("f", &property, &kind, true)
        };
        assert_eq!(kinds(json!({ "type": "string", "minLength": 2 }))["min"], 2);
        assert_eq!(
            kinds(json!({ "type": "string", "enum": ["a"] }))["options"],
            json!([{ "id": "a", "label": "a" }])
        );
        let titled = kinds(
            json!({ "type": "string", "oneOf": [{ "const": "a", "title": "A", "description": "first" }] }),
        );
        assert_eq!((&titled["kind"], &titled["options"][0]["label"]), (&json!("single-select"), &json!("A")));
        let many = kinds(
            json!({ "type": "array", "items": { "anyOf": [{ "const": "a", "title": "A" }] }, "maxItems": 1 }),
        );
        assert_eq!(
            (&many["kind"], &many["max"], &many["options"][0]["id"]),
            (&json!("multi-select"), &json!(1), &json!("a"))
        );
        assert_eq!(kinds(json!({ "type": "integer", "minimum": 1 }))["kind"], "integer");
        assert_eq!(kinds(json!({ "type": "boolean", "default": true }))["defaultValue"], true);
    }

    #[test]
    fn an_answer_is_the_value_of_its_field() {
        let submitted =
            |value: Value| serde_json::from_value(json!({ "state": "submitted", "value": value })).unwrap();
        assert_eq!(value(&submitted(json!({ "kind": "number", "value": 3.0 })), "integer"), Some(json!(3)));
        assert_eq!(
            value(&submitted(json!({ "kind": "selected-many", "value": ["a"] })), "array"),
            Some(json!(["a"]))
        );
        let skipped: ChatInputAnswer = serde_json::from_value(json!({ "state": "skipped" })).unwrap();
        assert_eq!(value(&skipped, "string"), None);
    }
}
