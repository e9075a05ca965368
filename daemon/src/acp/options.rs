//! The settings and commands of a session in the form of ACP.

use ostler_contract::{Value, json};
use ostler_protocol::wire::state::{AgentInfo, SessionState};

/// The option that selects a model if the backend has several models and no setting for them.
pub const MODEL: &str = "model";
/// The setting that is the session's mode.
pub const MODE: &str = "mode";

/// The configuration options: every setting of the session that can be changed and has choices.
pub fn config_options(
    session: &SessionState,
    backend: Option<&AgentInfo>,
    model: Option<&str>,
    booleans: bool,
) -> Vec<Value> {
    let mut options = Vec::new();
    if let Some(config) = &session.config {
        let mut properties: Vec<_> = config.schema.properties.iter().collect();
        properties.sort_by_key(|(id, _)| (rank(id), id.as_str()));
        for (id, property) in properties {
            if property.session_mutable != Some(true) || property.read_only == Some(true) {
                continue;
            }
            let current = config.values.get(id).or(property.default.as_ref());
            let mut option = json!({ "id": id, "name": property.title });
            if let Some(description) = &property.description {
                option["description"] = description.as_str().into();
            }
            if let Some(category) = category(id) {
                option["category"] = category.into();
            }
            let choices = property.r#enum.as_deref().unwrap_or_default();
            let labels = property.enum_labels.as_deref().unwrap_or_default();
            let details = property.enum_descriptions.as_deref().unwrap_or_default();
            match property.r#type.as_str() {
                "boolean" if booleans => {
                    option["type"] = "boolean".into();
                    option["currentValue"] = current.and_then(Value::as_bool).unwrap_or_default().into();
                }
                "string" if !choices.is_empty() => {
                    let values = choices.iter().enumerate().filter_map(|(at, value)| {
                        let value = value.as_str()?;
                        let mut choice =
                            json!({ "value": value, "name": labels.get(at).map_or(value, String::as_str) });
                        if let Some(detail) = details.get(at).filter(|detail| !detail.is_empty()) {
                            choice["description"] = detail.as_str().into();
                        }
                        Some(choice)
                    });
                    option["type"] = "select".into();
                    option["options"] = values.collect();
                    let first = choices.first().and_then(Value::as_str).unwrap_or_default();
                    option["currentValue"] = current.and_then(Value::as_str).unwrap_or(first).into();
                }
                _ => continue,
            }
            options.push(option);
        }
    }
    let models = backend.map(|backend| backend.models.as_slice()).unwrap_or_default();
    let has_setting = options.iter().any(|option| option["id"] == MODEL);
    if let Some(first) = models.first().filter(|_| models.len() > 1 && !has_setting) {
        let choices: Vec<Value> =
            models.iter().map(|model| json!({ "value": model.id, "name": model.name })).collect();
        options.push(json!({ "id": MODEL, "name": "Model", "category": "model", "type": "select",
            "currentValue": model.unwrap_or(&first.id), "options": choices }));
    }
    options
}

/// The modes, for editors from before configuration options.
pub fn modes(options: &[Value]) -> Option<Value> {
    let mode = options.iter().find(|option| option["id"] == MODE && option["type"] == "select")?;
    let available = mode["options"].as_array().into_iter().flatten().map(|choice| {
        let mut shown = json!({ "id": choice["value"], "name": choice["name"] });
        if choice["description"].is_string() {
            shown["description"] = choice["description"].clone();
        }
        shown
    });
    Some(json!({ "currentModeId": mode["currentValue"], "availableModes": available.collect::<Vec<_>>() }))
}

fn rank(id: &str) -> usize {
    [MODE, MODEL].iter().position(|known| *known == id).unwrap_or(2)
}

fn category(id: &str) -> Option<&'static str> {
    match id {
        MODE => Some("mode"),
        MODEL => Some("model"),
        _ => None,
    }
}

/// The slash commands: the prompts among the session's customizations.
pub fn commands(session: &SessionState) -> Vec<Value> {
    let customizations = serde_json::to_value(&session.customizations).unwrap_or_default();
    let mut commands = Vec::new();
    for customization in customizations.as_array().into_iter().flatten() {
        for child in customization["children"].as_array().into_iter().flatten() {
            if child["type"] == "prompt"
                && let Some(name) = child["name"].as_str()
            {
                let description = child["description"].as_str().unwrap_or_default();
                commands.push(json!({ "name": name, "description": description }));
            }
        }
    }
    commands
}
