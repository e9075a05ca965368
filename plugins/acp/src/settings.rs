//! The agent's modes, models and configuration options as settings of the host's sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{Collection, Offered, OfferedCommand, OfferedModel};
use ostler_contract::{JsonObject, Slug, Thrown, Value, json};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as AsyncMutex, OnceCell};

use crate::agent::AgentFacts;
use crate::limits;
use crate::options::{AgentOptions, Model};
use crate::protocol::{Choice, Command, ConfigOption, ConfigValue, member};

/// The setting with the agent's model.
pub const MODEL: &str = "model";
/// The model that is offered as long as no other is known, which means the agent's default.
pub const OWN_MODEL: &str = "default";
/// The setting with the agent's mode, if that is not a configuration option.
pub const MODE: &str = "mode";

/// The setting with a session that the agent stores, for a session of the host that continues it.
pub const CONTINUES: &str = "agentSession";
/// The largest plausible context of a model, in tokens.
const LARGEST_CONTEXT: u64 = 1_000_000_000;
/// The limit for reading what an administrator wrote.
const STORE_LIMIT: Duration = Duration::from_secs(1);

/// One setting of an agent's session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The agent's description of it.
    pub option: ConfigOption,
    /// The request that changes it.
    pub via: Via,
}

/// The request that changes a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Via {
    /// `session/set_config_option`.
    Option,
    /// `session/set_mode`.
    Mode,
    /// `session/set_model`, for agents without configuration options.
    Model,
}

/// Parses the settings of an answer to `session/new`, `session/load` or `session/resume`: the configuration options,
/// supplemented from the older members.
pub fn read(answer: &Value) -> Vec<Setting> {
    let options = ConfigOption::read_all(answer).unwrap_or_default();
    let mut settings: Vec<Setting> =
        options.into_iter().map(|option| Setting::new(option, Via::Option)).collect();
    let older = [
        ("modes", &limits::MODES, "id", "currentModeId", MODE, "Mode", Via::Mode),
        ("models", &limits::MODELS, "modelId", "currentModelId", MODEL, "Model", Via::Model),
    ];
    for (name, list, key, current, id, title, via) in older {
        let Some(state) = answer.get(name).filter(|state| state.is_object()) else { continue };
        if settings.iter().any(|setting| setting.is(id)) {
            continue;
        }
        let Some(current) = member::<String>(state, current) else { continue };
        let option = ConfigOption {
            id: id.to_owned(),
            name: title.to_owned(),
            description: None,
            category: Some(id.to_owned()),
            value: ConfigValue::Select { current, choices: Choice::read_all(state, list, key) },
        };
        settings.push(Setting::new(option, via));
    }
    settings
}

/// Returns the agent's mode or model among its settings. Of several of the category, such as a model and its provider, it is the
/// one with that id, and otherwise the first.
pub fn find<'a>(settings: &'a [Setting], category: &str) -> Option<&'a Setting> {
    let by_id = settings.iter().find(|setting| setting.option.id == category);
    by_id.or_else(|| settings.iter().find(|setting| setting.is(category)))
}

/// The maximum number of values of a setting that the agent does not list.
const UNLISTED: usize = 16;

impl Setting {
    /// Creates it as an agent reports it. Its value is one of the choices, even if the agent does not list it.
    pub fn new(option: ConfigOption, via: Via) -> Self {
        let mut setting = Self { option, via };
        setting.list_value();
        setting
    }

    /// Adds the current value to the choices, if the agent lists some and this is not one of them.
    fn list_value(&mut self) {
        let ConfigValue::Select { current, .. } = &self.option.value else { return };
        let id = current.clone();
        self.list(Choice { name: id.clone(), id, description: None, is_unlisted: true });
    }

    fn list(&mut self, choice: Choice) {
        let ConfigValue::Select { choices, .. } = &mut self.option.value else { return };
        let is_known = choices.iter().any(|known| known.id == choice.id);
        let unlisted = choices.iter().filter(|choice| choice.is_unlisted).count();
        if !choices.is_empty() && !choice.id.is_empty() && !is_known && unlisted < UNLISTED {
            choices.push(choice);
        }
    }

    /// Returns the values that the agent had without listing them.
    fn unlisted(&self) -> impl Iterator<Item = &Choice> {
        let choices = match &self.option.value {
            ConfigValue::Select { choices, .. } => choices.as_slice(),
            ConfigValue::Boolean(_) => &[],
        };
        choices.iter().filter(|choice| choice.is_unlisted)
    }

    /// Adds the unlisted values of another report of it, which stay choices.
    pub fn list_unlisted(&mut self, other: &Self) {
        for choice in other.unlisted() {
            self.list(choice.clone());
        }
    }

    /// Returns whether it is the same setting in place of one from the older members.
    pub fn replaces(&self, older: &Self) -> bool {
        let is_same = |of: &&str| self.is(of) && older.is(of);
        self.option.id == older.option.id || [MODE, MODEL].iter().any(is_same)
    }

    /// Returns whether it is the agent's mode or model.
    pub fn is(&self, category: &str) -> bool {
        self.option.category.as_deref() == Some(category) || self.option.id == category
    }

    /// Returns its possible values, if known.
    pub fn choices(&self) -> Vec<String> {
        match &self.option.value {
            ConfigValue::Select { choices, .. } => choices.iter().map(|choice| choice.id.clone()).collect(),
            ConfigValue::Boolean(_) => Vec::new(),
        }
    }

    pub fn value(&self) -> Value {
        match &self.option.value {
            ConfigValue::Select { current, .. } => current.as_str().into(),
            ConfigValue::Boolean(on) => (*on).into(),
        }
    }

    /// Validates a value; `None` if it is the current one.
    ///
    /// # Errors
    /// The reason why the value is invalid.
    pub fn accept(&self, value: &Value) -> Result<Option<Value>, String> {
        let name = &self.option.id;
        match (&self.option.value, value) {
            (ConfigValue::Boolean(_), Value::Bool(_)) => {}
            (ConfigValue::Boolean(_), _) => return Err(format!("{name} must be true or false")),
            (ConfigValue::Select { choices, .. }, Value::String(chosen)) => {
                if !choices.is_empty() && !choices.iter().any(|choice| choice.id == *chosen) {
                    let ids: Vec<&str> = choices.iter().map(|choice| choice.id.as_str()).take(20).collect();
                    return Err(format!("{name} has no value {chosen:?}; it takes {}", ids.join(", ")));
                }
            }
            (ConfigValue::Select { .. }, _) => return Err(format!("{name} must be a string")),
        }
        Ok((self.value() != *value).then(|| value.clone()))
    }

    /// Returns whether a value is among the choices.
    pub fn offers(&self, value: &str) -> bool {
        match &self.option.value {
            ConfigValue::Select { choices, .. } => choices.iter().any(|choice| choice.id == value),
            ConfigValue::Boolean(_) => false,
        }
    }

    /// Sets the current value.
    pub fn set(&mut self, value: &Value) {
        match (&mut self.option.value, value) {
            (ConfigValue::Select { current, .. }, Value::String(value)) => current.clone_from(value),
            (ConfigValue::Boolean(on), Value::Bool(value)) => *on = *value,
            _ => {}
        }
        self.list_value();
    }

    /// Returns the method and parameters that change it.
    pub fn change(&self, session: &str, value: &Value) -> (&'static str, Value) {
        match self.via {
            Via::Option => {
                let mut params = json!({ "sessionId": session, "configId": self.option.id, "value": value });
                if value.is_boolean() {
                    params["type"] = "boolean".into();
                }
                ("session/set_config_option", params)
            }
            Via::Mode => ("session/set_mode", json!({ "sessionId": session, "modeId": value })),
            Via::Model => ("session/set_model", json!({ "sessionId": session, "modelId": value })),
        }
    }

    /// Returns it without the value of any session, as the catalogue stores it.
    fn without_value(&self) -> Self {
        let mut setting = self.clone();
        match &mut setting.option.value {
            ConfigValue::Select { current, .. } => current.clear(),
            ConfigValue::Boolean(on) => *on = false,
        }
        setting
    }

    fn property(&self) -> Value {
        let mut property = json!({ "title": self.option.name, "sessionMutable": true });
        if let Some(description) = &self.option.description {
            property["description"] = description.as_str().into();
        }
        match &self.option.value {
            ConfigValue::Boolean(_) => property["type"] = "boolean".into(),
            ConfigValue::Select { choices, .. } => {
                property["type"] = "string".into();
                if !choices.is_empty() {
                    let list = |of: fn(&Choice) -> Value| choices.iter().map(of).collect::<Value>();
                    property["enum"] = list(|choice| choice.id.as_str().into());
                    property["enumLabels"] = list(|choice| choice.name.as_str().into());
                    property["enumDescriptions"] =
                        list(|choice| choice.description.as_deref().unwrap_or_default().into());
                }
            }
        }
        property
    }
}

/// The known settings and commands of an agent before one of its sessions is opened. They are stored, so that no agent
/// has to be started for them. What a session has chosen is not among them: a value is either the agent's own default,
/// which it reports for a new session, or one that an administrator wrote into the record.
pub struct Catalogue {
    loaded: OnceCell<()>,
    shared: Arc<Shared>,
}

struct Shared {
    /// The id of the record; `None` if the provider is not a valid id.
    id: Option<String>,
    stored: Collection,
    known: Mutex<StoredCatalogue>,
    /// The defaults that an administrator wrote into the record, over the agent's own.
    defaults: Mutex<JsonObject>,
    /// The content of the record, as last read or written, without the administrator's part.
    written: AsyncMutex<StoredCatalogue>,
}

/// The member of a record that only administrators write.
const DEFAULTS: &str = "defaults";

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredCatalogue {
    /// The settings without values.
    settings: Vec<Setting>,
    /// The agent's own defaults: the values in its latest answer to `session/new`. A record of an earlier version has
    /// none: its settings had the values of the latest session.
    own_defaults: JsonObject,
    commands: Vec<Command>,
    /// The sizes of the context by model, in tokens, which agents report of the current model only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    context_sizes: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<About>,
}

/// The capabilities that an agent reported at its start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct About {
    /// Its command line, because another one can start another version.
    launch: String,
    facts: AgentFacts,
}

impl Catalogue {
    /// Creates it for a provider, stored in the collection.
    pub fn stored(provider: &str, stored: Collection) -> Self {
        let id = Slug::parse(provider).map(|slug| slug.to_string());
        let (known, defaults, written) = (Mutex::default(), Mutex::default(), AsyncMutex::default());
        Self { loaded: OnceCell::new(), shared: Arc::new(Shared { id, stored, known, defaults, written }) }
    }

    /// Reads the stored record, once. Later reports of the agent have priority.
    pub async fn load(&self) {
        let load = async {
            let Ok(Some(record)) = self.shared.read().await else { return };
            let Ok(mut known) = serde_json::from_value::<StoredCatalogue>(Value::Object(record)) else {
                return;
            };
            known.settings = known.settings.iter().map(Setting::without_value).collect();
            self.shared.written.lock().await.clone_from(&known);
            let mut current = self.shared.known.lock();
            if *current == StoredCatalogue::default() {
                *current = known;
            }
        };
        self.loaded.get_or_init(|| load).await;
    }

    /// Reads what an administrator has written into the record since it was loaded. If the store does not answer in
    /// time, the earlier values apply.
    pub async fn reread_defaults(&self) {
        self.load().await;
        let _ = tokio::time::timeout(STORE_LIMIT, self.shared.read()).await;
    }

    /// Stores the agent's capabilities. Drops the settings and commands of another version.
    pub fn learn_facts(&self, agent: &AgentOptions, facts: &AgentFacts) {
        let about = About { launch: agent.command_line(), facts: facts.clone() };
        self.change(|known| {
            if known.about.as_ref().is_some_and(|before| before.facts.version != facts.version) {
                *known = StoredCatalogue::default();
            }
            known.about = Some(about);
        });
    }

    /// Returns the agent's capabilities at its last start with this command line.
    pub fn facts(&self, agent: &AgentOptions) -> Option<AgentFacts> {
        let known = self.shared.known.lock();
        let about = known.about.as_ref().filter(|about| about.launch == agent.command_line());
        about.map(|about| about.facts.clone())
    }

    /// Returns the settings of its sessions.
    pub fn settings(&self) -> Vec<Setting> {
        self.shared.known.lock().settings.clone()
    }

    /// Stores the settings in the answer to `session/new`, whose values are the agent's own defaults. An agent that
    /// reports its settings only later has those of its earlier sessions, without defaults.
    pub fn learn_defaults(&self, settings: &[Setting]) {
        self.change(|known| {
            if !settings.is_empty() {
                known.settings = settings.iter().map(Setting::without_value).collect();
            }
            known.own_defaults = values_of(settings);
        });
    }

    /// Stores settings of a session that are not known yet, without their values, which are the session's own.
    pub fn learn_more(&self, settings: &[Setting]) {
        let is_new = |known: &StoredCatalogue, setting: &Setting| {
            known.settings.iter().all(|known| known.option.id != setting.option.id)
        };
        let replaced = |known: &Setting| {
            known.via != Via::Option
                && settings.iter().any(|setting| setting.via == Via::Option && setting.replaces(known))
        };
        let lacks_values = |known: &Setting| {
            let same = settings.iter().find(|setting| setting.option.id == known.option.id);
            same.is_some_and(|setting| setting.unlisted().any(|choice| !known.offers(&choice.id)))
        };
        let (has_room, is_older) = {
            let known = self.shared.known.lock();
            let has_room = known.settings.len() < limits::OPTIONS.most();
            (has_room, known.settings.iter().any(|known| replaced(known) || lacks_values(known)))
        };
        if is_older || has_room && settings.iter().any(|setting| is_new(&self.shared.known.lock(), setting)) {
            self.change(|known| {
                known.settings.retain(|known| !replaced(known));
                for known in &mut known.settings {
                    if let Some(same) = settings.iter().find(|setting| setting.option.id == known.option.id) {
                        known.list_unlisted(same);
                    }
                }
                let new: Vec<Setting> = settings
                    .iter()
                    .filter(|setting| is_new(known, setting))
                    .map(Setting::without_value)
                    .collect();
                let room = limits::OPTIONS.most().saturating_sub(known.settings.len());
                known.settings.extend(new.into_iter().take(room));
            });
        }
    }

    /// Stores the slash commands.
    pub fn learn_commands(&self, commands: &[Command]) {
        self.change(|known| known.commands = commands.to_vec());
    }

    /// Stores the size of a model's context, in tokens. `None` is the model of an agent without models.
    pub fn learn_context(&self, model: Option<&str>, size: u64) {
        let model = model.unwrap_or(OWN_MODEL);
        let is_plausible = (1..=LARGEST_CONTEXT).contains(&size);
        let (is_known, has_room) = {
            let known = self.shared.known.lock();
            let sizes = &known.context_sizes;
            (
                sizes.get(model) == Some(&size),
                sizes.contains_key(model) || sizes.len() < limits::MODELS.most(),
            )
        };
        if is_plausible && has_room && !is_known {
            self.change(|known| {
                known.context_sizes.insert(model.to_owned(), size);
            });
        }
    }

    fn change(&self, change: impl FnOnce(&mut StoredCatalogue)) {
        change(&mut self.shared.known.lock());
        let shared = self.shared.clone();
        // The next session reports again what was not stored.
        tokio::spawn(async move { shared.store().await });
    }

    /// Waits until everything is stored.
    pub async fn store(&self) {
        self.shared.store().await;
    }

    /// Returns the schema of a session's settings.
    pub fn schema(&self) -> Value {
        let known = self.shared.known.lock();
        let mut properties: JsonObject =
            known.settings.iter().map(|setting| (setting.option.id.clone(), setting.property())).collect();
        let facts = known.about.as_ref().map(|about| &about.facts);
        if facts.is_some_and(|facts| facts.list && (facts.load || facts.resume)) {
            let description =
                "Id of a session of the agent that this session continues; ostler agent sessions lists them.";
            let property = json!({ "type": "string", "title": "Continued session", "description": description,
                "sessionMutable": false });
            properties.entry(CONTINUES).or_insert(property);
        }
        json!({ "type": "object", "properties": properties })
    }

    /// Returns the initial values of a session: the agent's own defaults, overridden by those of an administrator.
    pub fn defaults(&self) -> JsonObject {
        let (known, written) = (self.shared.known.lock(), self.shared.defaults.lock());
        let value = |setting: &Setting| {
            let id = &setting.option.id;
            let value = written.get(id).or_else(|| known.own_defaults.get(id))?;
            Some((id.clone(), value.clone()))
        };
        known.settings.iter().filter_map(value).collect()
    }

    /// Returns the defaults that an administrator wrote, which the agent receives at the start of a session.
    pub fn written_defaults(&self) -> JsonObject {
        self.shared.defaults.lock().clone()
    }

    /// Returns a setting by its id.
    pub fn setting(&self, id: &str) -> Option<Setting> {
        self.shared.known.lock().settings.iter().find(|setting| setting.option.id == id).cloned()
    }

    /// Returns the models of the agent: reported or configured ones. An agent without either has one model, its
    /// default, because VS Code disables agents without models.
    pub fn offered(&self, configured: &[Model]) -> Offered {
        let known = self.shared.known.lock();
        // Agents say for themselves, not for each model, what a prompt may have.
        let supports_vision = known.about.as_ref().map(|about| about.facts.image);
        let model = |id: &str, name: &str| OfferedModel {
            id: id.to_owned(),
            name: name.to_owned(),
            max_context_window: known.context_sizes.get(id).and_then(|size| i64::try_from(*size).ok()),
            supports_vision,
            ..OfferedModel::default()
        };
        let reported = find(&known.settings, MODEL).map(|setting| &setting.option.value);
        let models = match reported {
            Some(ConfigValue::Select { choices, .. }) => {
                choices.iter().map(|choice| model(&choice.id, &choice.name)).collect()
            }
            _ if configured.is_empty() => vec![model(OWN_MODEL, "Default")],
            _ => configured.iter().map(|of| model(&of.id, of.name.as_ref().unwrap_or(&of.id))).collect(),
        };
        let command = |command: &Command| OfferedCommand {
            name: command.name.clone(),
            description: Some(command.description.clone()).filter(|description| !description.is_empty()),
        };
        Offered { models, commands: known.commands.iter().map(command).collect(), customizations: None }
    }
}

impl Shared {
    /// Reads the record, and the administrator's part of it.
    async fn read(&self) -> Result<Option<JsonObject>, Thrown> {
        let Some(id) = self.id.clone() else { return Ok(None) };
        let record = self.stored.get.read((id,)).await.known()?;
        let defaults = record.as_ref().and_then(|record| record.get(DEFAULTS)?.as_object().cloned());
        *self.defaults.lock() = defaults.unwrap_or_default();
        Ok(record)
    }

    /// Writes the record if it has changed, except for the administrator's part. One write at a time, always with the
    /// current state.
    async fn store(&self) {
        let mut written = self.written.lock().await;
        let Some(id) = self.id.clone().filter(|_| *written != *self.known.lock()) else { return };
        let Ok(before) = self.read().await else { return };
        let now = self.known.lock().clone();
        let Ok(Value::Object(mut record)) = serde_json::to_value(&now) else { return };
        record.insert("id".to_owned(), id.into());
        if let Some(defaults) = before.and_then(|mut before| before.remove(DEFAULTS)) {
            record.insert(DEFAULTS.to_owned(), defaults);
        }
        if self.stored.put.call((record,)).await.is_ok() {
            *written = now;
        }
    }
}

/// Returns the values of settings by id.
fn values_of(settings: &[Setting]) -> JsonObject {
    settings.iter().map(|setting| (setting.option.id.clone(), setting.value())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_options_come_before_older_members() {
        let answer = json!({
            "configOptions": [{ "id": "llm", "name": "LLM", "category": "model", "type": "select", "currentValue": "a",
                "options": [{ "value": "a", "name": "A" }] }],
            "models": { "currentModelId": "old", "availableModels": [{ "modelId": "old", "name": "Old" }] },
            "modes": { "currentModeId": "https://x/plan", "availableModes": [{ "id": "https://x/plan", "name": "Plan" }] },
        });
        let settings = read(&answer);
        let shown: Vec<_> = settings
            .iter()
            .map(|setting| (setting.option.id.as_str(), setting.via, setting.value()))
            .collect();
        assert_eq!(shown, [("llm", Via::Option, json!("a")), ("mode", Via::Mode, json!("https://x/plan"))]);
    }

    #[test]
    fn a_value_the_agent_does_not_know_is_refused_with_those_it_does() {
        let settings = read(&json!({ "models": { "currentModelId": "a", "availableModels": [
            { "modelId": "a", "name": "A" }, { "modelId": "$runtime|openai|m(openai)", "name": "M" }
        ] } }));
        let model = &settings[0];
        assert_eq!(
            model.accept(&json!("b")),
            Err("model has no value \"b\"; it takes a, $runtime|openai|m(openai)".into())
        );
        assert_eq!(model.accept(&json!("a")), Ok(None));
        let chosen = json!("$runtime|openai|m(openai)");
        assert_eq!(model.accept(&chosen), Ok(Some(chosen.clone())));
        assert_eq!(
            model.change("s", &chosen),
            ("session/set_model", json!({ "sessionId": "s", "modelId": chosen }))
        );
    }
}
