//! The root channel: the backends, the number of sessions, and the host's settings.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use ostler_protocol::wire::actions::{
    RootActiveSessionsChangedAction, RootAgentsChangedAction, RootTerminalsChangedAction, StateAction,
};
use ostler_protocol::wire::state::{
    AgentInfo, ConfigSchema, ProtectedResourceMetadata, RootConfigState, RootState, TerminalInfo,
};
use ostler_protocol::{JsonObject, Value, Version, json, uri};
use parking_lot::Mutex;

use crate::editor_settings::{self, is_ignored, is_own, is_shown, too_much, wrong_value};
use crate::fanout::{Fanout, Origin, Outgoing, Overlaid, Overlay, Subscriber};
use crate::ids::ConnectionId;
use crate::refusals::no_setting;
use crate::terminal_lists::TerminalLists;

/// The setting of the host that approves all tool calls.
pub const AUTO_APPROVE: &str = "globalAutoApproveEnabled";

/// The root channel's state.
#[derive(Debug)]
pub struct Root {
    state: Mutex<RootState>,
    terminals: Mutex<TerminalLists>,
    own: Arc<Mutex<HashMap<ConnectionId, JsonObject>>>,
    /// Connections that are signed in.
    known: Arc<Mutex<HashSet<ConnectionId>>>,
    /// The resource to which users sign in, if the host has a users file.
    sign_in: OnceLock<ProtectedResourceMetadata>,
    /// The resources for which the host itself accepts tokens.
    offered: OnceLock<ProtectedResourceMetadata>,
}

impl Root {
    /// Creates a root channel without backends.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(RootState {
                agents: Vec::new(),
                active_sessions: Some(0),
                terminals: None,
                config: Some(RootConfigState { schema: host_schema(), values: JsonObject::new() }),
                meta: None,
            }),
            terminals: Mutex::default(),
            own: Arc::default(),
            known: Arc::default(),
            sign_in: OnceLock::new(),
            offered: OnceLock::new(),
        }
    }

    /// Adds the resource for signing in to every backend. Call it before [`Root::fill`].
    pub fn ask_for(&self, sign_in: ProtectedResourceMetadata) {
        let _ = self.sign_in.set(sign_in);
    }

    /// Adds the resources for which the host itself accepts tokens to every backend. Call it before [`Root::fill`].
    pub fn offer(&self, resource: ProtectedResourceMetadata) {
        let _ = self.offered.set(resource);
    }

    /// Records whether a connection is signed in.
    pub fn knows(&self, connection: ConnectionId, known: bool) {
        let mut connections = self.known.lock();
        match known {
            true => connections.insert(connection),
            false => connections.remove(&connection),
        };
    }

    /// Sets the backends and facts before connections are accepted.
    pub fn fill(&self, mut agents: Vec<AgentInfo>, meta: JsonObject) {
        for resource in self.sign_in.get().into_iter().chain(self.offered.get()) {
            for agent in &mut agents {
                agent.protected_resources.get_or_insert_default().push(resource.clone());
            }
        }
        let mut state = self.state.lock();
        state.agents = agents;
        state.meta = (!meta.is_empty()).then_some(meta);
    }

    /// Returns the backends as clients see them.
    pub fn agents(&self) -> Vec<AgentInfo> {
        self.state.lock().agents.clone()
    }

    /// Subscribes a connection; returns the state it sees and the number of the snapshot.
    pub fn subscribe(&self, fanout: &Fanout, subscriber: Subscriber) -> (Value, u64) {
        let state = self.state.lock();
        let mut seen = serde_json::to_value(&*state).unwrap_or_default();
        let own = self.shown_own(subscriber.connection);
        if !own.is_empty()
            && let Some(values) = seen.pointer_mut("/config/values").and_then(Value::as_object_mut)
        {
            values.extend(own);
        }
        if self.known.lock().contains(&subscriber.connection) {
            self.signed_in(&mut seen);
        }
        (seen, fanout.subscribe(uri::ROOT, subscriber))
    }

    /// Replaces the list of backends.
    pub fn set_agents(&self, fanout: &Fanout, agents: Vec<AgentInfo>) {
        let action = StateAction::RootAgentsChanged(RootAgentsChangedAction { agents });
        let mut known = serde_json::to_value(&action).unwrap_or_default();
        self.signed_in(&mut known);
        let (connections, known) = (self.known.clone(), known.to_string());
        let overlay = self.sign_in.get().map(|_| {
            Overlay::new(move |connection| match connections.lock().contains(&connection) {
                true => Overlaid::Other(known.clone()),
                false => Overlaid::Same,
            })
        });
        self.apply(fanout, action, overlay);
    }

    /// A signed-in connection is not asked to sign in.
    fn signed_in(&self, seen: &mut Value) {
        let Some(sign_in) = self.sign_in.get() else { return };
        let agents = seen.get_mut("agents").and_then(Value::as_array_mut);
        for agent in agents.into_iter().flatten() {
            let asked = agent.get_mut("protectedResources").and_then(Value::as_array_mut);
            for record in asked.into_iter().flatten() {
                if record["resource"] == *sign_in.resource {
                    record["required"] = false.into();
                }
            }
        }
    }

    /// Publishes the number of sessions.
    pub fn set_active_sessions(&self, fanout: &Fanout, count: usize) {
        let active_sessions = i64::try_from(count).unwrap_or(i64::MAX);
        if self.state.lock().active_sessions == Some(active_sessions) {
            return;
        }
        let action = RootActiveSessionsChangedAction { active_sessions };
        self.apply(fanout, StateAction::RootActiveSessionsChanged(action), None);
    }

    /// Enables the list of terminals, which is empty. Call it before connections are accepted.
    pub fn serve_terminals(&self) {
        self.state.lock().terminals = Some(Vec::new());
    }

    /// Replaces the list of the terminals of this host.
    pub fn set_terminals(&self, fanout: &Fanout, terminals: Vec<TerminalInfo>) {
        // Locked until all is sent, so that an older list never follows a newer one.
        let mut lists = self.terminals.lock();
        lists.own = terminals;
        if self.list_terminals(fanout, &lists)
            && let Some(frame) = lists.notification()
        {
            fanout.notify_hosts(uri::ROOT, frame);
        }
    }

    /// Replaces the list of the terminals of another host, by its run.
    pub fn set_terminals_elsewhere(&self, fanout: &Fanout, incarnation: &str, terminals: Vec<TerminalInfo>) {
        let mut lists = self.terminals.lock();
        match terminals.is_empty() {
            true => drop(lists.elsewhere.remove(incarnation)),
            false => drop(lists.elsewhere.insert(incarnation.to_owned(), terminals)),
        }
        self.list_terminals(fanout, &lists);
    }

    /// Returns the run of the host that has a terminal, if it is another one.
    pub fn host_of_terminal(&self, terminal: &str) -> Option<String> {
        let lists = self.terminals.lock();
        let has = |list: &[TerminalInfo]| list.iter().any(|one| one.resource == terminal);
        let (host, _) = lists.elsewhere.iter().find(|(_, list)| has(list)).filter(|_| !has(&lists.own))?;
        Some(host.clone())
    }

    /// Sends the notification of the terminals of this host to another one that has begun to follow, if there are any.
    pub fn send_terminals(&self, send: impl FnOnce(String)) {
        // Locked until it is sent, so that an older list never follows a newer one.
        let lists = self.terminals.lock();
        if !lists.own.is_empty()
            && let Some(frame) = lists.notification()
        {
            send(frame);
        }
    }

    /// Publishes all terminals; returns whether the list has changed.
    fn list_terminals(&self, fanout: &Fanout, lists: &TerminalLists) -> bool {
        let terminals = lists.all();
        if self.state.lock().terminals.as_ref().is_none_or(|listed| *listed == terminals) {
            return false;
        }
        let action = RootTerminalsChangedAction { terminals };
        self.apply(fanout, StateAction::RootTerminalsChanged(action), None);
        true
    }

    /// Returns a setting of a connection.
    pub fn own_value(&self, connection: ConnectionId, key: &str) -> Option<Value> {
        self.own.lock().get(&connection)?.get(key).cloned()
    }

    /// Returns all settings of a connection.
    pub fn own_values(&self, connection: ConnectionId) -> JsonObject {
        self.own.lock().get(&connection).cloned().unwrap_or_default()
    }

    /// Sets all settings of a connection, whose client another host serves.
    pub fn set_own_values(&self, connection: ConnectionId, values: JsonObject) {
        self.own.lock().insert(connection, values);
    }

    /// Returns the settings of a connection that its states contain.
    fn shown_own(&self, connection: ConnectionId) -> JsonObject {
        let mut own = self.own_values(connection);
        own.retain(|key, _| is_shown(key));
        own
    }

    /// Returns the values of these settings for a connection.
    pub fn values(&self, connection: ConnectionId, keys: &[String]) -> JsonObject {
        let state = self.state.lock();
        let shared = state.config.as_ref().map(|config| &config.values);
        let value = |key: &String| {
            let own = is_own(key).then(|| self.own_value(connection, key));
            own.unwrap_or_else(|| shared.and_then(|shared| shared.get(key).cloned()))
        };
        keys.iter().filter_map(|key| Some((key.clone(), value(key)?))).collect()
    }

    /// Removes settings that no one declared from a change with others. Editors send all their settings in one action,
    /// and later releases have more. A change of only unknown settings stays and is rejected.
    pub fn drop_unknown(&self, config: &mut JsonObject, owns: impl Fn(&str) -> bool) {
        let state = self.state.lock();
        let declared = state.config.as_ref().map(|config| &config.schema.properties);
        let known =
            |key: &str| is_own(key) || owns(key) || declared.is_some_and(|known| known.contains_key(key));
        if config.keys().any(|key| known(key)) {
            config.retain(|key, _| known(key));
        }
    }

    /// Returns whether a setting has this value, set or by default.
    pub fn is_in_force(&self, key: &str, value: &Value) -> bool {
        let state = self.state.lock();
        let Some(config) = &state.config else { return false };
        let default = || config.schema.properties.get(key).and_then(|property| property.default.as_ref());
        config.values.get(key).or_else(default) == Some(value)
    }

    /// Applies a change of settings. Settings of a connection are not visible to others; unknown keys are rejected with
    /// a reason.
    pub fn set_config(
        &self,
        fanout: &Fanout,
        from: ConnectionId,
        origin: Option<Origin>,
        config: JsonObject,
        replace: bool,
    ) -> Result<(), String> {
        let state = self.state.lock();
        let declared = state.config.as_ref().map(|config| &config.schema.properties);
        if let Some(unknown) = config
            .keys()
            .find(|key| !is_ignored(key) && !declared.is_some_and(|known| known.contains_key(*key)))
        {
            return Err(no_setting(unknown));
        }
        if let Some(wrong) = config.iter().find_map(|(key, value)| wrong_type(key, value)) {
            return Err(wrong);
        }
        drop(state);
        let (own, shared): (JsonObject, JsonObject) = config.into_iter().partition(|(key, _)| is_own(key));
        let unchanged = {
            let mut kept = self.own.lock();
            let mine = kept.entry(from).or_default();
            let state = self.state.lock();
            let values = state.config.as_ref().map(|config| &config.values);
            let same = !replace
                && own.iter().all(|(key, value)| mine.get(key) == Some(value))
                && shared.iter().all(|(key, value)| values.and_then(|values| values.get(key)) == Some(value));
            let mut next = if replace { JsonObject::new() } else { mine.clone() };
            next.extend(own.clone());
            if let Some(why) = too_much(&next) {
                return Err(why);
            }
            *mine = next;
            same
        };
        if unchanged {
            return Ok(());
        }
        let mut whole = shared.clone();
        whole.extend(own);
        self.publish_config(fanout, from, origin, &whole, shared, replace);
        Ok(())
    }

    /// Removes the settings of a connection.
    pub fn forget(&self, connection: ConnectionId) {
        self.own.lock().remove(&connection);
        self.known.lock().remove(&connection);
    }

    fn publish_config(
        &self,
        fanout: &Fanout,
        from: ConnectionId,
        origin: Option<Origin>,
        whole: &JsonObject,
        shared: JsonObject,
        replace: bool,
    ) {
        let mut state = self.state.lock();
        if let Some(config) = &mut state.config {
            if replace {
                config.values.clear();
            }
            config.values.extend(shared.clone());
        }
        let action = move |config: &JsonObject| match replace {
            true => json!({ "type": "root/configChanged", "config": config, "replace": true }).to_string(),
            false => json!({ "type": "root/configChanged", "config": config }).to_string(),
        };
        let own = self.own.clone();
        let overlay = move |connection: ConnectionId| {
            if connection == from {
                return Overlaid::Same;
            }
            let mut seen = shared.clone();
            if replace && let Some(own) = own.lock().get(&connection) {
                seen.extend(own.clone());
            }
            Overlaid::Other(action(&seen))
        };
        let overlay = Some(Overlay::new(overlay));
        let outgoing = Outgoing { origin, overlay, ..Outgoing::host(action(whole), Version::V0_9) };
        fanout.publish(uri::ROOT, vec![outgoing]);
    }

    fn apply(&self, fanout: &Fanout, action: StateAction, overlay: Option<Overlay>) {
        let mut state = self.state.lock();
        ahp::reducers::apply_action_to_root(&mut state, &action);
        let Ok(text) = serde_json::to_string(&action) else { return };
        fanout.publish(uri::ROOT, vec![Outgoing { overlay, ..Outgoing::host(text, Version::V0_9) }]);
    }
}

impl Default for Root {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the schema of the settings for clients. `workspaceTrust` and `defaultShell` belong to the connection that
/// set them.
fn host_schema() -> ConfigSchema {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "defaultShell": { "type": "string", "title": "Default shell" },
            "workspaceTrust": {
                "type": "object", "title": "Trusted folders", "readOnly": true,
                "properties": {
                    "enabled": { "type": "boolean", "title": "Whether trust is asked" },
                    "trustedUris": { "type": "array", "title": "Folders", "items": { "type": "string", "title": "Folder" } }
                }
            },
            "artifactToolsCompactPrompts": { "type": "boolean", "title": "Compact prompts of artifact tools", "default": false },
            "deferredTitleGeneration": { "type": "boolean", "title": "Titles are made later", "default": false },
            (AUTO_APPROVE): { "type": "boolean", "title": "Tool calls are approved everywhere", "default": false }
        }
    });
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.extend(editor_settings::schema());
    }
    serde_json::from_value(schema).unwrap_or(ConfigSchema {
        r#type: "object".to_owned(),
        properties: HashMap::new(),
        required: None,
    })
}

fn wrong_type(key: &str, value: &Value) -> Option<String> {
    if is_own(key) {
        return wrong_value(key, value);
    }
    (!value.is_boolean() && !value.is_null()).then(|| format!("{key} must be true or false"))
}
