//! `elicitation/*`: questions of the agent as the host's, and users' answers as the agent's.

use std::collections::{BTreeMap, HashMap};

use ostler_contract::wire::state::ChatInputAnswer;
use ostler_contract::{Value, json};

use crate::protocol::member;
use crate::wire::{Failure, Request, Withdrawal};

/// A question that waits for a user.
#[derive(Debug)]
struct Form {
    request: Request,
    /// The type of each field.
    fields: BTreeMap<String, String>,
    /// The agent's name for it, where it is answered at an address.
    elicitation: Option<String>,
}

/// The questions of a conversation, by their ids.
#[derive(Debug, Default)]
pub struct Forms {
    open: HashMap<String, Form>,
    next: u64,
}

/// A question, as clients are shown it.
pub struct Shown {
    /// Its id.
    pub id: String,
    /// The `ChatInputRequest`.
    pub request: Value,
    /// A watch for the agent taking it back.
    pub withdrawal: Withdrawal,
}

impl Forms {
    /// Takes an `elicitation/create`.
    ///
    /// # Errors
    /// The request and why it is refused, where its mode is unknown.
    pub fn add(&mut self, request: Request, turn: &str) -> Result<Shown, (Request, Failure)> {
        let params = &request.params;
        let message: String = member(params, "message").unwrap_or_default();
        self.next += 1;
        let id = format!("{turn}-question-{}", self.next);
        let mut shown = json!({ "id": id, "message": message });
        let mut fields = BTreeMap::new();
        match params.get("mode").and_then(Value::as_str) {
            Some("url") => match member::<String>(params, "url") {
                Some(url) => shown["url"] = url.into(),
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
                    questions.push(question(name, property, &kind, required.contains(name)));
                    fields.insert(name.clone(), kind);
                }
                shown["questions"] = questions.into();
            }
            Some(mode) => {
                let why = Failure::bad_params(format!("there is no elicitation mode {mode:?}"));
                return Err((request, why));
            }
        }
        let (withdrawal, elicitation) = (request.withdrawal(), member(params, "elicitationId"));
        let mut request = request;
        request.release();
        self.open.insert(id.clone(), Form { request, fields, elicitation });
        Ok(Shown { id, request: shown, withdrawal })
    }

    /// Answers a question with `accept`, `decline` or `cancel`; `false` where none waits.
    pub fn answer(&mut self, id: &str, response: &str, answers: &BTreeMap<String, ChatInputAnswer>) -> bool {
        let Some(form) = self.open.remove(id) else { return false };
        let answer = match response {
            "accept" if form.fields.is_empty() => json!({ "action": "accept" }),
            "accept" => {
                let values = answers.iter().filter_map(|(name, answer)| {
                    Some((name.clone(), value(answer, form.fields.get(name).map(String::as_str))?))
                });
                json!({ "action": "accept", "content": values.collect::<serde_json::Map<_, _>>() })
            }
            "cancel" => json!({ "action": "cancel" }),
            _ => json!({ "action": "decline" }),
        };
        form.request.answer(Ok(answer));
        true
    }

    /// Removes a question; `false` where none waits.
    pub fn withdraw(&mut self, id: &str) -> bool {
        let form = self.open.remove(id);
        form.map(|form| form.request.answer(Ok(json!({ "action": "cancel" })))).is_some()
    }

    /// What was asked at an address is answered there: the id of its question.
    pub fn completed(&self, elicitation: &str) -> Option<String> {
        let open = self.open.iter().find(|(_, form)| form.elicitation.as_deref() == Some(elicitation));
        open.map(|(id, _)| id.clone())
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Cancels all, and answers their ids.
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

/// A user's answer as the value of a field; nothing for one that was skipped.
fn value(answer: &ChatInputAnswer, kind: Option<&str>) -> Option<Value> {
    let answer = serde_json::to_value(answer).ok()?;
    let value = answer.pointer("/value/value")?;
    Some(match (kind, value) {
        // Whole numbers of a client may come as 3.0.
        (Some("integer"), Value::Number(number)) => match number.as_f64() {
            #[allow(clippy::cast_possible_truncation)]
            Some(number) => json!(number.round() as i64),
            None => value.clone(),
        },
        _ => value.clone(),
    })
}

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
        assert_eq!(
            value(&submitted(json!({ "kind": "number", "value": 3.0 })), Some("integer")),
            Some(json!(3))
        );
        assert_eq!(
            value(&submitted(json!({ "kind": "selected-many", "value": ["a"] })), Some("array")),
            Some(json!(["a"]))
        );
        let skipped: ChatInputAnswer = serde_json::from_value(json!({ "state": "skipped" })).unwrap();
        assert_eq!(value(&skipped, Some("string")), None);
    }
}
