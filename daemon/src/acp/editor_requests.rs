//! Converts a session's requests for input to requests to the editor, and the editor's answers to actions.

use ostler_contract::{JsonObject, Value, json};

use super::content::{call_fields, text_of};

const ALLOW: &str = "allow";
const DENY: &str = "deny";

/// The requests that the editor supports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Abilities {
    pub form: bool,
    /// URLs to open.
    pub url: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EditorRequest {
    pub method: &'static str,
    /// Its parameters.
    pub params: Value,
}

/// Converts an input request of the session; `None` if the editor does not support it, so that it stays open for other
/// clients.
pub fn ask(session: &str, request: &Value, abilities: Abilities) -> Option<EditorRequest> {
    match request["kind"].as_str()? {
        "toolConfirmation" => Some(EditorRequest {
            method: "session/request_permission",
            params: json!({ "sessionId": session, "toolCall": call_fields(&request["toolCall"]),
                "options": options(&request["toolCall"]) }),
        }),
        "chatInput" => question(session, &request["request"], abilities),
        _ => None,
    }
}

fn options(call: &Value) -> Value {
    let offered = call["options"].as_array().filter(|options| !options.is_empty());
    let Some(offered) = offered else {
        return json!([
            { "optionId": ALLOW, "name": "Allow", "kind": "allow_once" },
            { "optionId": DENY, "name": "Deny", "kind": "reject_once" },
        ]);
    };
    let option = |option: &Value| {
        let id = option["id"].as_str().unwrap_or_default();
        // The options of the protocol do not contain how long they are valid; those of `@ostler/acp` do, otherwise the
        // id may.
        let kind = call["_meta"]["ostler.optionKinds"][id].as_str();
        let always = match kind {
            Some(kind) => kind.ends_with("_always"),
            None => id.to_ascii_lowercase().contains("always"),
        };
        let kind = match (option["kind"] == "deny", always) {
            (false, false) => "allow_once",
            (false, true) => "allow_always",
            (true, false) => "reject_once",
            (true, true) => "reject_always",
        };
        json!({ "optionId": id, "name": option["label"], "kind": kind })
    };
    offered.iter().map(option).collect()
}

fn question(session: &str, request: &Value, abilities: Abilities) -> Option<EditorRequest> {
    let message = text_of(&request["message"]);
    let mut params = json!({ "sessionId": session, "message": message });
    match request["url"].as_str() {
        Some(url) if abilities.url => {
            params["mode"] = "url".into();
            params["url"] = url.into();
            params["elicitationId"] = request["id"].clone();
        }
        None if abilities.form => {
            let mut properties = JsonObject::new();
            let mut required = Vec::new();
            for question in request["questions"].as_array().into_iter().flatten() {
                let id = question["id"].as_str()?;
                properties.insert(id.to_owned(), property(question));
                if question["required"] == true {
                    required.push(id);
                }
            }
            params["mode"] = "form".into();
            params["requestedSchema"] =
                json!({ "type": "object", "properties": properties, "required": required });
        }
        _ => return None,
    }
    Some(EditorRequest { method: "elicitation/create", params })
}

fn property(question: &Value) -> Value {
    let mut property =
        json!({ "title": question["title"].as_str().or_else(|| question["message"].as_str()) });
    if question["title"].is_string() {
        property["description"] = question["message"].clone();
    }
    let choices: Vec<Value> = question["options"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|option| json!({ "const": option["id"], "title": option["label"] }))
        .collect();
    match question["kind"].as_str().unwrap_or_default() {
        "single-select" => {
            property["type"] = "string".into();
            property["oneOf"] = choices.into();
        }
        "multi-select" => {
            property["type"] = "array".into();
            property["items"] = json!({ "anyOf": choices });
        }
        kind @ ("number" | "integer" | "boolean") => property["type"] = kind.into(),
        _ => property["type"] = "string".into(),
    }
    property
}

/// Converts the editor's answer to an action on the chat. An answer without a decision, such as an error, denies or
/// cancels, because nothing else would end the turn. If other clients can decide (`shared`), it leaves the request to
/// them.
pub fn action(request: &Value, answer: Option<&Value>, shared: bool) -> Option<Value> {
    match (request["kind"].as_str()?, answer) {
        ("toolConfirmation", answer) => answer
            .and_then(|answer| confirmed(request, &answer["outcome"]))
            .or_else(|| (!shared).then(|| decided(request, false))),
        ("chatInput", Some(answer)) => Some(completed(&request["request"], answer)),
        ("chatInput", None) if !shared => Some(completed(&request["request"], &Value::Null)),
        // No action refuses a sign-in.
        ("toolAuthentication", None) if !shared => {
            Some(json!({ "type": "chat/turnCancelled", "turnId": request["turnId"], "duration": 0 }))
        }
        _ => None,
    }
}

fn confirmed(request: &Value, outcome: &Value) -> Option<Value> {
    if outcome["outcome"] != "selected" {
        return None;
    }
    let chosen = outcome["optionId"].as_str()?;
    let call = &request["toolCall"];
    let offered = call["options"].as_array().into_iter().flatten().find(|option| option["id"] == chosen);
    let offers_none = call["options"].as_array().is_none_or(Vec::is_empty);
    let approved = match (offered, chosen) {
        (Some(option), _) => option["kind"] != "deny",
        (None, ALLOW) if offers_none => true,
        (None, DENY) if offers_none => false,
        // What was not offered means nothing.
        (None, _) => return None,
    };
    let mut action = decided(request, approved);
    if offered.is_some() {
        action["selectedOptionId"] = chosen.into();
    }
    Some(action)
}

fn decided(request: &Value, approved: bool) -> Value {
    let mut action = json!({ "type": "chat/toolCallConfirmed", "turnId": request["turnId"],
        "toolCallId": request["toolCall"]["toolCallId"], "approved": approved });
    match approved {
        true => action["confirmed"] = "user-action".into(),
        false => action["reason"] = "denied".into(),
    }
    action
}

fn completed(request: &Value, answer: &Value) -> Value {
    let response = match answer["action"].as_str() {
        Some("accept") => "accept",
        Some("decline") => "decline",
        _ => "cancel",
    };
    let mut action =
        json!({ "type": "chat/inputCompleted", "requestId": request["id"], "response": response });
    if let Some(content) = answer["content"].as_object().filter(|_| response == "accept") {
        let questions = request["questions"].as_array();
        let selects = |id: &str| {
            let question = questions.into_iter().flatten().find(|question| question["id"] == id);
            question.and_then(|question| question["kind"].as_str()) == Some("single-select")
        };
        let answers: JsonObject = content
            .iter()
            .filter_map(|(id, value)| {
                let (kind, value) = match value {
                    Value::String(_) if selects(id) => ("selected", value.clone()),
                    Value::String(_) => ("text", value.clone()),
                    Value::Number(number) => ("number", json!(number.as_f64())),
                    Value::Bool(_) => ("boolean", value.clone()),
                    Value::Array(_) => ("selected-many", value.clone()),
                    _ => return None,
                };
                Some((id.clone(), json!({ "state": "submitted", "value": { "kind": kind, "value": value } })))
            })
            .collect();
        action["answers"] = answers.into();
    }
    action
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_the_backend_is_chosen_by_its_id() {
        let request = json!({ "kind": "toolConfirmation", "turnId": "t", "toolCall": { "toolCallId": "c", "status":
            "pending-confirmation", "toolName": "execute", "displayName": "Run", "options": [
                { "id": "no", "label": "Never", "kind": "deny" }, { "id": "always-tool", "label": "Trust", "kind": "approve" } ] } });
        let asked = ask("s", &request, Abilities::default()).unwrap();
        assert_eq!(
            asked.params["options"],
            json!([{ "optionId": "no", "name": "Never", "kind": "reject_once" },
                { "optionId": "always-tool", "name": "Trust", "kind": "allow_always" }])
        );
        let chosen = |id: &str| {
            action(&request, Some(&json!({ "outcome": { "outcome": "selected", "optionId": id } })), true)
        };
        let denied = chosen("no").unwrap();
        assert_eq!((&denied["approved"], &denied["selectedOptionId"]), (&json!(false), &json!("no")));
        assert_eq!(chosen("always-tool").unwrap()["approved"], true);
        for unoffered in [ALLOW, DENY, "other", ""] {
            assert_eq!(chosen(unoffered), None, "{unoffered}");
        }
        let cancelled = json!({ "outcome": { "outcome": "cancelled" } });
        for undecided in [Some(&cancelled), None] {
            assert_eq!(action(&request, undecided, true), None, "another client may decide");
            let denied = action(&request, undecided, false).unwrap();
            assert_eq!((&denied["approved"], denied.get("selectedOptionId")), (&json!(false), None));
        }
    }

    #[test]
    fn a_question_becomes_a_form_and_its_answers_come_back() {
        let request = json!({ "kind": "chatInput", "request": { "id": "q", "message": "Who?", "questions": [
            { "id": "name", "kind": "text", "message": "Name", "required": true },
            { "id": "colour", "kind": "single-select", "message": "Colour", "options": [{ "id": "red", "label": "Red" }] } ] } });
        assert_eq!(ask("s", &request, Abilities::default()), None);
        let asked = ask("s", &request, Abilities { form: true, url: false }).unwrap();
        let schema = &asked.params["requestedSchema"];
        assert_eq!(schema["required"], json!(["name"]));
        assert_eq!(schema["properties"]["colour"]["oneOf"], json!([{ "const": "red", "title": "Red" }]));
        let answer = json!({ "action": "accept", "content": { "name": "Ada", "colour": "red" } });
        assert_eq!(super::action(&request, None, true), None);
        assert_eq!(super::action(&request, None, false).unwrap()["response"], "cancel");
        let action = action(&request, Some(&answer), true).unwrap();
        assert_eq!(action["answers"]["name"]["value"], json!({ "kind": "text", "value": "Ada" }));
        assert_eq!(action["answers"]["colour"]["value"], json!({ "kind": "selected", "value": "red" }));
    }
}
