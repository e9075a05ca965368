//! The settings of a session: those of its backend and those that plugins contribute. A backend's own declaration of a
//! setting takes precedence.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{OptionFuture, join_all};
use ostler_contract::points::{Agent, SessionSetting, SettingAnswerer, SettingChoice, SettingQuery};
use ostler_contract::registry::Owned;
use ostler_contract::{JsonObject, Thrown, Value, json, limit};
use ostler_engine_core::file_uris::file_path;
use ostler_engine_core::refusals::no_provider;
use ostler_engine_workspace::{machines, worktrees};
use ostler_protocol::RpcError;
use ostler_protocol::wire::commands as c;
use ostler_protocol::wire::state::{SessionConfigPropertySchema, SessionConfigSchema, SessionConfigState};
use parking_lot::Mutex;

use crate::Sessions;
use crate::foreign_values::{Meaning, meaning};
use crate::shared::SharedSchemas;

/// A session's settings, and which of them plugins contributed.
struct Merged {
    config: SessionConfigState,
    written: Arc<ReadSchema>,
    contributed: Vec<Owned<SessionSetting>>,
}

/// The schemas of the sessions' settings.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    /// The schemas of the awake sessions.
    pub shared: SharedSchemas,
    /// The last schema that was parsed for each backend.
    parsed: Mutex<HashMap<String, Arc<ReadSchema>>>,
    /// The backends for which a conflict with a plugin's setting was logged, with the setting.
    conflicts: Mutex<HashSet<(String, String)>>,
}

/// The schema of a backend's settings.
#[derive(Debug)]
struct ReadSchema {
    /// The schema as the backend wrote it. It may have more fields than the protocol's, and may omit types.
    written: Value,
    /// The schema in the protocol's form.
    schema: SessionConfigSchema,
}

/// The initial settings of a session that is about to be created.
pub struct Chosen {
    /// The session's settings.
    pub config: SessionConfigState,
    /// The chosen values that the backend has to accept.
    pub asked: JsonObject,
    /// Keys that are not settings of the session, or whose values are of another host's vocabulary.
    pub left_out: Vec<String>,
    /// The values that are used in place of those of another host's vocabulary.
    pub translated: JsonObject,
    /// What the user has to know about them.
    pub notes: Vec<String>,
}

/// Values of another host's vocabulary.
#[derive(Debug, Default)]
struct Foreign {
    left_out: Vec<String>,
    translated: JsonObject,
    notes: Vec<String>,
    /// Lines for the log.
    said: Vec<String>,
}

impl ReadSchema {
    /// Translates the chosen values that are of another host's vocabulary, and removes those that mean what the agent does anyway,
    /// or what it has no word for.
    fn translate(&self, chosen: &mut JsonObject) -> Foreign {
        let mut foreign = Foreign::default();
        let sent = chosen.clone();
        for (key, property) in self.written["properties"].as_object().into_iter().flatten() {
            let Some(meaning) = meaning(&sent, key, property) else { continue };
            let value = sent[key].as_str().unwrap_or_default();
            if let Meaning::Value(now) = meaning {
                foreign.said.push(format!("{key} has no value {value:?}; {now:?} is used"));
                foreign.translated.insert(key.clone(), now.into());
                chosen.insert(key.clone(), now.into());
                continue;
            }
            foreign.said.push(format!("{key} has no value {value:?}; the agent's own is used"));
            foreign.left_out.push(key.clone());
            chosen.shift_remove(key);
            if meaning == Meaning::Missing {
                let title = property["title"].as_str().unwrap_or(key);
                foreign.notes.push(format!(
                    "Warning: this agent has no {title} = {value}, which was chosen for this session; it continues with its own."
                ));
            }
        }
        foreign
    }
}

/// Whether the host itself defines a setting of this name for some sessions.
fn is_of_host(key: &str) -> bool {
    key == machines::SETTING || worktrees::is_setting(key)
}

impl Sessions {
    /// Returns the schema of a backend's sessions and the initial values: the defaults, overridden by the chosen
    /// values.
    pub async fn session_settings(
        &self,
        agent: &Agent,
        chosen: &JsonObject,
    ) -> Result<SessionConfigState, Thrown> {
        let mut config = self.merged(agent, chosen).await?.config;
        self.workspace.offer_computers(agent, &mut config, false).await;
        Ok(config)
    }

    /// Returns the same for a session that is about to be created, after validation. Chosen values must match the
    /// schema of settings that plugins contributed and of those that are immutable afterwards. The backend is asked
    /// about the mutable ones once its session exists. Keys that are not settings of the session are dropped, and values of the
    /// backend's settings that are of another host's vocabulary are translated or dropped where `is_client`, because clients also
    /// send values that they chose for other hosts.
    pub async fn chosen_settings(
        &self,
        agent: &Agent,
        session: &str,
        chosen: &JsonObject,
        is_client: bool,
    ) -> Result<Chosen, Thrown> {
        let Merged { mut config, written, contributed } = self.merged(agent, &JsonObject::new()).await?;
        let mut asked = JsonObject::new();
        let mut chosen = chosen.clone();
        let mut foreign = Foreign::default();
        if is_client {
            foreign = written.translate(&mut chosen);
            for said in &foreign.said {
                self.core.log.warn(format_args!("{session}: {said}"));
            }
        }
        let mut left_out = foreign.left_out;
        let of_settings = left_out.len();
        for (key, value) in &chosen {
            let wrong = match (
                contributed.iter().find(|setting| *setting.key == **key),
                config.schema.properties.get(key),
            ) {
                (Some(setting), _) => refuses(setting, value),
                (None, Some(property)) if property.session_mutable == Some(false) => {
                    misfit(key, &written.written["properties"][key], value)
                }
                (None, Some(_)) => {
                    asked.insert(key.clone(), value.clone());
                    mistyped(key, &written.written["properties"][key], value)
                }
                (None, None) if is_of_host(key) => None,
                (None, None) => {
                    left_out.push(key.clone());
                    continue;
                }
            };
            if let Some(why) = wrong {
                return Err(RpcError::invalid_params(why).into());
            }
            config.values.insert(key.clone(), value.clone());
        }
        self.workspace.offer_computers(agent, &mut config, false).await;
        if let [first, more @ ..] = &left_out[of_settings..] {
            let more = more.len();
            let others = if more > 0 { format!(" (nor {more} more)") } else { String::new() };
            self.core
                .log
                .warn(format_args!("{session}: {first} is not a setting of this session{others}; left out"));
        }
        Ok(Chosen { config, asked, left_out, translated: foreign.translated, notes: foreign.notes })
    }

    /// Returns a schema as JSON, with its properties in the order in which the backend, plugins and the host declare them.
    pub(super) fn ordered_schema(&self, provider: &str, schema: &SessionConfigSchema) -> Value {
        let mut ordered = json!(schema);
        let written = self.schemas.parsed.lock().get(provider).cloned();
        let own = written.as_ref().and_then(|written| written.written["properties"].as_object());
        let own = own.into_iter().flatten().map(|(key, declared)| (key.as_str(), declared.get("properties")));
        let more = self.contributed_settings().iter();
        let more = more.map(|setting| (&*setting.key, setting.schema.get("properties")));
        arrange(&mut ordered, own.chain(more));
        ordered
    }

    /// Returns the plugin's setting that a property of a running session stands for, if any.
    pub fn contributed_setting(
        &self,
        key: &str,
        property: &SessionConfigPropertySchema,
    ) -> Option<&Owned<SessionSetting>> {
        let setting = self.contributed_settings().iter().find(|setting| *setting.key == *key)?;
        (setting.drawn().as_ref() == Some(property)).then_some(setting)
    }

    /// Returns why a value has another type than a backend's own setting, as the backend wrote it, or `None` if it has not.
    /// Nothing of a schema that the backend has changed since the session began.
    pub(super) fn mistyped_setting(
        &self,
        provider: &str,
        (key, property): (&str, &SessionConfigPropertySchema),
        value: &Value,
    ) -> Option<String> {
        let read = self.schemas.parsed.lock().get(provider).cloned()?;
        read.schema.properties.get(key).filter(|now| *now == property)?;
        mistyped(key, &read.written["properties"][key], value)
    }

    fn contributed_settings(&self) -> &[Owned<SessionSetting>] {
        self.core.registry().map(|registry| registry.all::<SessionSetting>()).unwrap_or_default()
    }

    async fn merged(&self, agent: &Agent, chosen: &JsonObject) -> Result<Merged, Thrown> {
        let (schema, defaults) = futures::join!(
            agent.schema.within(limit::BACKEND_FACTS, ()),
            agent.defaults.within(limit::BACKEND_FACTS, ())
        );
        let written = self
            .read_schema(agent, schema?)
            .ok_or_else(|| Thrown::new("its schema() is not a schema of settings: { properties: { … } }"))?;
        let mut schema = written.schema.clone();
        let mut values = JsonObject::new();
        let mut contributed = Vec::new();
        for setting in self.contributed_settings() {
            let key = setting.key.to_string();
            if schema.properties.contains_key(&key) {
                self.say_declared(agent, setting);
                continue;
            }
            let Some(property) = setting.drawn() else { continue };
            if let Some(default) = setting.schema.get("default") {
                values.insert(key.clone(), default.clone());
            }
            schema.properties.insert(key, property);
            contributed.push(setting.clone());
        }
        values.extend(defaults?);
        values.extend(chosen.iter().map(|(key, value)| (key.clone(), value.clone())));
        Ok(Merged { config: SessionConfigState { schema, values }, written, contributed })
    }

    /// Parses a backend's schema, or returns the cached one if it is unchanged.
    fn read_schema(&self, agent: &Agent, written: Value) -> Option<Arc<ReadSchema>> {
        let mut read = self.schemas.parsed.lock();
        if let Some(last) = read.get(&*agent.provider).filter(|last| last.written == written) {
            return Some(last.clone());
        }
        let schema = Agent::read_schema(written.clone())?;
        let now = Arc::new(ReadSchema { written, schema });
        read.insert(agent.provider.to_string(), now.clone());
        Some(now)
    }

    /// Logs once that a backend's own setting takes precedence over a plugin's.
    fn say_declared(&self, agent: &Agent, setting: &Owned<SessionSetting>) {
        let said = (agent.provider.to_string(), setting.key.to_string());
        if self.schemas.conflicts.lock().insert(said) {
            let (owner, key, backend) = (&setting.owner, &setting.key, &agent.provider);
            self.core.log.warn(format_args!(
                "{owner} registers session setting {key}, which a backend's own schema already declares: {backend}"
            ));
        }
    }

    fn agent_for_settings(&self, provider: Option<&str>) -> Result<Owned<Agent>, RpcError> {
        let agent = match provider {
            Some(provider) => self.core.listed_agent(provider),
            None => self.core.first_agent(),
        };
        agent.ok_or_else(|| no_provider(&self.core, provider.unwrap_or("default")))
    }

    /// Returns the settings of a session that is about to be created, with the initial choices of each picker.
    pub async fn resolve_settings(&self, params: c::ResolveSessionConfigParams) -> Result<Value, RpcError> {
        let agent = self.agent_for_settings(params.provider.as_deref())?;
        let chosen = params.config.unwrap_or_default();
        let Merged { mut config, written, contributed } =
            self.merged(&agent, &JsonObject::new()).await.map_err(Thrown::into_rpc)?;
        let mut shown = chosen.clone();
        written.translate(&mut shown);
        config.values.extend(shown);
        let asked = SettingQuery {
            query: String::new(),
            provider: params.provider,
            working_directory: params.working_directory.as_deref().map(file_path),
            others: chosen,
        };
        let seeds = contributed.iter().map(|setting| async {
            let rows = setting.completions.as_ref().filter(|_| !setting.schema.contains_key("enum"));
            let rows = rows.map(|answerer| self.picked(setting, answerer, &asked, limit::CHOICES));
            (&setting.key, OptionFuture::from(rows).await.flatten())
        });
        for (key, rows) in join_all(seeds).await {
            if let (Some(rows), Some(property)) = (rows, config.schema.properties.get_mut(&**key)) {
                seed(property, rows);
            }
        }
        self.workspace.offer_trees(&mut config, params.working_directory.as_deref()).await;
        self.workspace.offer_computers(&agent, &mut config, true).await;
        // Clients also send values that they chose for other hosts or another directory.
        config.values.retain(|key, _| config.schema.properties.contains_key(key));
        let schema = self.ordered_schema(&agent.provider, &config.schema);
        Ok(json!({ "schema": schema, "values": config.values }))
    }

    /// Returns the choices for a text typed into a picker; none if the setting has no answerer.
    pub async fn complete_setting(
        &self,
        params: c::SessionConfigCompletionsParams,
    ) -> Result<c::SessionConfigCompletionsResult, RpcError> {
        let agent = self.agent_for_settings(params.provider.as_deref())?;
        if let Some(items) = self.workspace.complete_computer(&agent, &params).await {
            return Ok(c::SessionConfigCompletionsResult { items });
        }
        let chosen = params.config.unwrap_or_default();
        let merged = self.merged(&agent, &chosen).await.map_err(Thrown::into_rpc)?;
        let setting = merged.contributed.iter().find(|setting| *setting.key == *params.property);
        let answered = setting.and_then(|setting| Some((setting, setting.completions.as_ref()?)));
        let Some((setting, answerer)) = answered else {
            let typed = params.query.as_deref().unwrap_or_default();
            let items = match merged.config.schema.properties.get(&params.property) {
                // A plugin registers an answerer for a setting that needs completion; a backend cannot.
                Some(_) if setting.is_some() => Vec::new(),
                Some(property) => listed(property, typed),
                None => {
                    let directory = params.working_directory.as_deref();
                    let branches = self.workspace.complete_branch(&params.property, directory, typed);
                    branches.await.unwrap_or_default()
                }
            };
            return Ok(c::SessionConfigCompletionsResult { items });
        };
        let asked = SettingQuery {
            query: params.query.unwrap_or_default(),
            provider: params.provider,
            working_directory: params.working_directory.as_deref().map(file_path),
            others: chosen,
        };
        let rows = self.picked(setting, answerer, &asked, limit::CHOICES_TYPED).await.unwrap_or_default();
        let item = |row: SettingChoice| c::SessionConfigValueItem {
            value: row.value,
            label: row.label,
            description: row.description,
        };
        Ok(c::SessionConfigCompletionsResult { items: rows.into_iter().map(item).collect() })
    }

    /// Returns the choices of an answerer; `None` if it fails.
    async fn picked(
        &self,
        setting: &Owned<SessionSetting>,
        answerer: &SettingAnswerer,
        asked: &SettingQuery,
        limit: Duration,
    ) -> Option<Vec<SettingChoice>> {
        let mut asked = asked.clone();
        // Only the other settings: not the setting itself, and no key that has a separate field in the query.
        for own in [&*setting.key, "query", "provider", "workingDirectory"] {
            asked.others.shift_remove(own);
        }
        match answerer.within(limit, (asked,)).await {
            Ok(rows) => Some(rows),
            Err(why) => {
                self.core.report_failed(&setting.owner, &format!("the answerer of {}", setting.key), &why);
                None
            }
        }
    }
}

/// Puts the properties of a schema into the order of their declarations, which are the keys with the properties declared within
/// them; all others follow by name.
fn arrange<'a>(schema: &mut Value, declared: impl Iterator<Item = (&'a str, Option<&'a Value>)>) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    let mut left = std::mem::take(properties);
    let mut add = |key: String, mut property: Value, within: Option<&Value>| {
        let within = within.and_then(Value::as_object).into_iter().flatten();
        let within: Vec<_> =
            within.map(|(key, declared)| (key.as_str(), declared.get("properties"))).collect();
        arrange(&mut property, &mut within.into_iter() as &mut dyn Iterator<Item = _>);
        properties.insert(key, property);
    };
    for (key, within) in declared {
        if let Some(property) = left.shift_remove(key) {
            add(key.to_owned(), property, within);
        }
    }
    let mut left: Vec<_> = left.into_iter().collect();
    left.sort_by(|one, other| one.0.cmp(&other.0));
    left.into_iter().for_each(|(key, property)| add(key, property, None));
}

/// Writes the initial choices of a picker into its property.
fn seed(property: &mut SessionConfigPropertySchema, rows: Vec<SettingChoice>) {
    property.r#enum = Some(rows.iter().map(|row| row.value.clone().into()).collect());
    property.enum_labels = Some(rows.iter().map(|row| row.label.clone()).collect());
    let descriptions = rows.into_iter().map(|row| row.description.unwrap_or_default());
    property.enum_descriptions = Some(descriptions.collect());
}

/// Returns why a value is invalid for a setting, or `None` if it is valid. The initial choices of a picker are not
/// exhaustive.
pub fn refuses(setting: &SessionSetting, value: &Value) -> Option<String> {
    let mut schema = setting.schema.clone();
    if setting.completions.is_some() {
        schema.shift_remove("enum");
    }
    unfit(&setting.key, &Value::Object(schema), value)
}

/// Returns the choices of a setting whose value or label contains the typed text, ignoring case.
fn listed(property: &SessionConfigPropertySchema, typed: &str) -> Vec<c::SessionConfigValueItem> {
    let typed = typed.to_lowercase();
    let of = |texts: &Option<Vec<String>>, at: usize| {
        texts.as_ref().and_then(|texts| texts.get(at)).filter(|text| !text.is_empty()).cloned()
    };
    let item = |(at, value): (usize, &Value)| {
        let value = value.as_str()?.to_owned();
        let label = of(&property.enum_labels, at).unwrap_or_else(|| value.clone());
        let fits = [&value, &label].iter().any(|text| text.to_lowercase().contains(&typed));
        let description = of(&property.enum_descriptions, at);
        fits.then_some(c::SessionConfigValueItem { value, label, description })
    };
    property.r#enum.iter().flatten().enumerate().filter_map(item).collect()
}

/// Returns why a value is invalid for a backend's own property, or `None` if it is valid.
fn misfit(key: &str, property: &Value, value: &Value) -> Option<String> {
    let mut schema = property.clone();
    if let (Value::Bool(true), Value::Object(schema)) = (&property["enumDynamic"], &mut schema) {
        schema.shift_remove("enum");
    }
    unfit(key, &schema, value)
}

/// Returns why a value has another type than a backend's own property, or `None` if it has not. What else the property asks for,
/// the backend decides.
fn mistyped(key: &str, property: &Value, value: &Value) -> Option<String> {
    let mut types = JsonObject::from_iter([("type".to_owned(), property.get("type")?.clone())]);
    if let Some(items) = property["items"].get("type") {
        types.insert("items".to_owned(), json!({ "type": items }));
    }
    unfit(key, &Value::Object(types), value)
}

fn unfit(key: &str, schema: &Value, value: &Value) -> Option<String> {
    let validator = jsonschema::validator_for(schema).ok()?;
    let error = validator.iter_errors(value).next()?;
    Some(format!("{key}{} does not fit: {error}", error.instance_path()))
}
