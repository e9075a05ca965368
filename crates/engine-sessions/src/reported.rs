//! What a backend reported about its session beside turns. It is stored, so that clients have it, and can act on it, while no
//! backend runs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ostler_contract::{JsonObject, Thrown, Value, limit};
use ostler_protocol::names;
use ostler_protocol::wire::actions::{SessionMetaChangedAction, StateAction};
use ostler_protocol::wire::state::{
    CanvasReference, Changeset, ChildCustomization, Customization, McpServerCustomization, McpServerState,
    McpServerStoppedState, SessionState, ToolDefinition,
};
use serde::{Deserialize, Serialize};

use super::actor::Actor;
use super::awake_limit::has_some;
use super::chat::Chat;
use super::deferred::DeferredPart;
use super::directory_facts::PULL_REQUEST;

/// The key of `_meta` with the artifacts and references of a session, which are stored apart and not listed.
pub(super) const ARTIFACTS: &str = "agentHost/sessionArtifacts";

/// What is stored of it. The members are those of the protocol's states.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Reported {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    customizations: Vec<Customization>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    server_tools: Vec<ToolDefinition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changesets: Vec<Changeset>,
    /// By the URI of the chat.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    chats: BTreeMap<String, ReportedChat>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReportedChat {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changesets: Vec<Changeset>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    canvases: Vec<CanvasReference>,
}

/// Whether an action changes what is stored here.
fn is_reported(action: &StateAction) -> bool {
    matches!(
        action,
        StateAction::SessionCustomizationsChanged(_)
            | StateAction::SessionCustomizationUpdated(_)
            | StateAction::SessionCustomizationRemoved(_)
            | StateAction::SessionCustomizationToggled(_)
            | StateAction::SessionMcpServerStateChanged(_)
            | StateAction::SessionMcpServerStartRequested(_)
            | StateAction::SessionMcpServerStopRequested(_)
            | StateAction::SessionMcpServerBackgroundRequested(_)
            | StateAction::SessionServerToolsChanged(_)
            | StateAction::ChatChangesetsChanged(_)
            | StateAction::ChatCanvasesChanged(_)
    )
}

/// Returns the `_meta` of a session that listings show.
pub(super) fn listed_meta(meta: Option<&JsonObject>) -> Option<JsonObject> {
    let mut meta = meta?.clone();
    meta.remove(ARTIFACTS);
    (!meta.is_empty()).then_some(meta)
}

impl Actor {
    /// Notes that a chat's action changes what is stored of its backend's reports.
    pub(super) fn note_report(&mut self, at: usize, action: &StateAction) {
        if is_reported(action) {
            self.deferred.add(DeferredPart::Reported);
        }
        if matches!(action, StateAction::ChatActivityChanged(_)) && self.chats[at].running().is_none() {
            self.store_activity(at);
        }
    }

    /// Notes that an action of the session changes what is stored of its backend's reports.
    pub(super) fn note_session_report(&mut self, action: &StateAction) {
        if is_reported(action) {
            self.deferred.add(DeferredPart::Reported);
        }
        if matches!(action, StateAction::SessionActivityChanged(_))
            && self.chats.iter().all(|chat| chat.running().is_none())
        {
            self.deferred.add(DeferredPart::Session);
        }
    }

    /// Stores what a chat's backend says it does. During a turn that changes often, so only the last one is stored.
    pub(super) fn store_activity(&mut self, at: usize) {
        let chat = &mut self.chats[at];
        if chat.stored_activity != chat.state.activity {
            chat.stored_activity.clone_from(&chat.state.activity);
            self.deferred.add(DeferredPart::Chats);
        }
    }

    /// Stores what the backend reported. The future returns whether the write succeeded.
    pub(super) fn keep_reported(&self) -> impl Future<Output = bool> + Send + use<> {
        let set = self.core.report_store().and_then(|store| store.set_reported.as_ref());
        let write = set.map(|set| {
            let reported = match serde_json::to_value(self.reported()) {
                Ok(Value::Object(reported)) => reported,
                _ => JsonObject::new(),
            };
            set.within(limit::STORE, (self.entry.id.clone(), reported))
        });
        let (write, entry) = (self.keeping(&self.entry.uri, write), self.entry.clone());
        async move {
            let is_stored = write.await;
            entry.lacks_reports.store(!is_stored, Ordering::Release);
            is_stored
        }
    }

    /// A client's plugins leave with it.
    fn reported(&self) -> Reported {
        let listed = self.state.customizations.iter().flatten();
        let chat = |chat: &Chat| {
            let reported = ReportedChat {
                changesets: chat.state.changesets.clone().unwrap_or_default(),
                canvases: chat.state.canvases.clone().unwrap_or_default(),
            };
            chat.has_reports().then(|| (chat.uri.clone(), reported))
        };
        Reported {
            customizations: listed.filter(|listed| !self.client_plugins.lists(listed)).cloned().collect(),
            server_tools: self.state.server_tools.clone().unwrap_or_default(),
            changesets: self.state.changesets.clone().filter(|_| self.reports_changesets).unwrap_or_default(),
            chats: self.chats.iter().filter_map(chat).collect(),
        }
    }

    /// Changes what the backend adds to the session's `_meta`; the host's own keys stay.
    pub(super) fn change_meta(&mut self, changed: SessionMetaChangedAction) {
        let owner = names::meta_key("owner");
        let facts = &self.facts;
        let is_own =
            |key: &str| key == owner || PULL_REQUEST.contains(&key) || facts.iter().any(|fact| fact == key);
        let before = self.state.meta.clone().unwrap_or_default();
        let mut reported = changed.meta.unwrap_or_default();
        reported.retain(|key, _| !is_own(key));
        let mut meta = before.clone();
        meta.retain(|key, _| is_own(key));
        meta.extend(reported.clone());
        let artifacts = reported.remove(ARTIFACTS).filter(is_list);
        if artifacts.is_none() {
            meta.remove(ARTIFACTS);
        }
        if before.get(ARTIFACTS) != artifacts.as_ref() {
            let write = self.keep_artifacts(artifacts);
            self.write_unwaited(write);
        }
        if self.entry.view().record.meta != reported {
            self.revise(|record| record.meta = reported);
            self.deferred.add(DeferredPart::Session);
        }
        let changed = SessionMetaChangedAction { meta: (!meta.is_empty()).then_some(meta) };
        self.apply_session(StateAction::SessionMetaChanged(changed), None);
    }

    fn keep_artifacts(&self, artifacts: Option<Value>) -> impl Future<Output = bool> + Send + use<> {
        let artifacts = match artifacts {
            Some(Value::Array(artifacts)) => artifacts,
            _ => Vec::new(),
        };
        let write = self
            .store()
            .map(|store| store.set_artifacts.within(limit::STORE, (self.entry.id.clone(), artifacts)));
        self.keeping(&self.entry.uri, write)
    }
}

impl Chat {
    /// Whether the chat has what is stored here.
    pub fn has_reports(&self) -> bool {
        has_some(self.state.changesets.as_deref()) || has_some(self.state.canvases.as_deref())
    }
}

impl Reported {
    /// Parses what is stored.
    pub(super) fn parse(stored: JsonObject) -> Result<Self, Thrown> {
        serde_json::from_value(Value::Object(stored))
            .map_err(|wrong| Thrown::new(format_args!("the reports of its backend are not valid: {wrong}")))
    }

    /// Returns the customizations as they are while no backend runs.
    pub(super) fn customizations(self) -> Option<Vec<Customization>> {
        let mut listed = self.customizations;
        servers_of(&mut listed, &mut |server| {
            if is_running(server) {
                server.state = McpServerState::Stopped(McpServerStoppedState {});
            }
        });
        (!listed.is_empty()).then_some(listed)
    }

    /// Adds it to the states of a session that wakes.
    pub(super) fn restore(mut self, state: &mut SessionState, chats: &mut [Chat]) {
        for chat in chats {
            if let Some(reported) = self.chats.remove(&chat.uri) {
                chat.state.changesets = some(reported.changesets);
                chat.state.canvases = some(reported.canvases);
            }
        }
        state.server_tools = some(std::mem::take(&mut self.server_tools));
        state.changesets = some(std::mem::take(&mut self.changesets));
        state.customizations = self.customizations();
    }
}

/// Whether a server of a list runs, which it does not while no backend does.
pub(super) fn any_runs(listed: Option<&[Customization]>) -> bool {
    let (mut listed, mut any) = (listed.unwrap_or_default().to_vec(), false);
    servers_of(&mut listed, &mut |server| any |= is_running(server));
    any
}

/// Whether a value is a list with items.
fn is_list(value: &Value) -> bool {
    value.as_array().is_some_and(|items| !items.is_empty())
}

fn is_running(server: &McpServerCustomization) -> bool {
    matches!(server.state, McpServerState::Starting(_) | McpServerState::Ready(_))
}

fn servers_of(listed: &mut [Customization], visit: &mut impl FnMut(&mut McpServerCustomization)) {
    for customization in listed {
        let children = match customization {
            Customization::McpServer(server) => {
                visit(server);
                continue;
            }
            Customization::Plugin(plugin) => &mut plugin.children,
            Customization::Directory(directory) => &mut directory.children,
            Customization::Unknown(_) => continue,
        };
        for child in children.iter_mut().flatten() {
            if let ChildCustomization::McpServer(server) = child {
                visit(server);
            }
        }
    }
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
