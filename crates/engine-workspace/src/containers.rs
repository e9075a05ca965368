//! Dev containers: a client requests one and communicates, through this host, with the host inside it. Served only if a
//! plugin provides containers.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use ostler_contract::points::{ContainerEvents, ContainerRequest, Containers};
use ostler_contract::{Func, JsonObject, Thrown, Value, limit};
use ostler_engine_core::file_uris::file_path;
use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::tasks;
use ostler_protocol::commands::{DevContainer, DevContainerConnect};
use ostler_protocol::message::encode;
use ostler_protocol::{RpcError, json};
use parking_lot::Mutex;

use crate::Workspace;

/// The key in `initialize` that announces containers.
pub const CAPABILITY: &str = "vscode.devContainers";
/// The maximum number of relays of a client.
const MOST: usize = 32;
const ADDRESS: &str = "devcontainer:";

/// The relays and their containers.
#[derive(Debug, Default)]
pub struct Relays {
    open: Mutex<HashMap<Key, Relay>>,
    /// The containers that this run of the host has created, which can be stopped and removed.
    made: Mutex<Vec<String>>,
}

/// A client's name for a relay is local: two connections can use the same.
pub type Key = (ConnectionId, String);

#[derive(Debug, Clone)]
pub struct Relay {
    /// The host's name for it.
    id: String,
    /// `None` while the container is created.
    container: Option<String>,
}

impl Relays {
    /// Returns the host's name for a relay, and its container once that is created.
    pub fn find(&self, key: &Key) -> Option<(String, String)> {
        let relay = self.open.lock().get(key).cloned()?;
        Some((relay.id, relay.container?))
    }
}

impl Workspace {
    /// Returns the provider of containers.
    pub fn containers(&self) -> Option<&Containers> {
        self.core.registry()?.port::<Containers>()
    }

    /// Ends the relays that match a predicate, here and in the containers.
    pub fn end_relays(&self, ends: impl Fn(&Key, &Relay) -> bool) -> Vec<Key> {
        let ended: Vec<(Key, Relay)> =
            self.relays.open.lock().extract_if(|key, relay| ends(key, relay)).collect();
        let disconnect = self.containers().and_then(|containers| containers.disconnect.clone());
        for (_, relay) in &ended {
            if let (Some(disconnect), Some(container)) = (&disconnect, &relay.container)
                && let Ok(runtime) = tokio::runtime::Handle::try_current()
            {
                runtime.spawn(disconnect.unbounded((container.clone(), relay.id.clone())));
            }
        }
        ended.into_iter().map(|(key, _)| key).collect()
    }

    /// Ends the relays of a closed connection; the containers continue to run.
    pub fn relays_left(&self, connection: ConnectionId) {
        if !self.relays.open.lock().is_empty() {
            self.end_relays(|(of, _), _| *of == connection);
        }
    }

    /// Sends a notification to a relay's client.
    fn tell_relay(&self, (connection, name): &Key, method: &str, data: Option<String>) {
        let Some(connection) = self.access.clients.get(*connection) else { return };
        let mut params = JsonObject::new();
        params.insert("connectionId".to_owned(), name.as_str().into());
        params.extend(data.map(|data| ("data".to_owned(), Value::from(data))));
        if let Ok(frame) = encode::notification(&format!("vscode/devContainers/{method}"), &params) {
            connection.outbox().send(frame);
        }
    }

    /// Returns the callbacks for the provider. An ended relay sends nothing more.
    fn relay_events(self: &Arc<Self>, key: &Key, id: &str) -> ContainerEvents {
        let workspace = Arc::downgrade(self);
        let live = |workspace: &Weak<Self>, key: &Key, id: &str| {
            let workspace = workspace.upgrade()?;
            let is = workspace.relays.open.lock().get(key).is_some_and(|relay| relay.id == id);
            is.then_some(workspace)
        };
        let says = |method: &'static str| {
            let (workspace, key, id) = (workspace.clone(), key.clone(), id.to_owned());
            Func::new(move |(data,): (String,)| {
                if let Some(workspace) = live(&workspace, &key, &id) {
                    workspace.tell_relay(&key, method, Some(data));
                }
                Ok(())
            })
        };
        let (message, output) = (says("relayMessage"), says("output"));
        let (key, id) = (key.clone(), id.to_owned());
        let closed = Func::new(move |()| {
            if let Some(workspace) = live(&workspace, &key, &id) {
                workspace.relays.open.lock().remove(&key);
                workspace.tell_relay(&key, "relayClose", None);
            }
            Ok(())
        });
        ContainerEvents { message, output, closed }
    }

    pub async fn make_container(
        self: &Arc<Self>,
        containers: &Containers,
        key: &Key,
        params: DevContainerConnect,
    ) -> Result<Value, RpcError> {
        if params.connection_id.is_empty() {
            return Err(RpcError::invalid_params("connectionId must name the connection"));
        }
        let workspace_folder = file_path(&params.workspace_folder);
        if !workspace_folder.starts_with('/') {
            let what = format!("workspaceFolder must be an absolute path, not {}", params.workspace_folder);
            return Err(RpcError::invalid_params(what));
        }
        let relay = Relay { id: self.core.new_id(), container: None };
        {
            let mut open = self.relays.open.lock();
            if open.contains_key(key) {
                return Err(RpcError::already_exists(format!("{} is connected already", key.1)));
            }
            if open.keys().filter(|(of, _)| *of == key.0).count() >= MOST {
                return Err(RpcError::internal(format!("{MOST} connections are open; end one")));
            }
            open.insert(key.clone(), relay.clone());
        }
        let request =
            ContainerRequest { connection: relay.id.clone(), workspace_folder, name: params.name.clone() };
        let made = containers.make.unbounded((request, self.relay_events(key, &relay.id))).await;
        let made = match made {
            Ok(made) => made,
            Err(why) => {
                self.relays.open.lock().remove(key);
                return Err(match why.rpc {
                    Some(_) => why.into_rpc(),
                    None => {
                        RpcError::internal(format!("the container could not be created: {}", why.message))
                    }
                });
            }
        };
        let mut containers_made = self.relays.made.lock();
        if !containers_made.contains(&made.id) {
            containers_made.push(made.id.clone());
        }
        drop(containers_made);
        match self.relays.open.lock().get_mut(key).filter(|open| open.id == relay.id) {
            Some(open) => open.container = Some(made.id.clone()),
            // The client left during the creation: the container stays, and the relay ends.
            None => {
                if let Some(disconnect) = &containers.disconnect {
                    tasks::spawn(disconnect.unbounded((made.id.clone(), relay.id)));
                }
                return Err(RpcError::internal(format!("{} ended before the container was created", key.1)));
            }
        }
        let mut result = json!({
            "connectionId": params.connection_id,
            "address": format!("{ADDRESS}{}", made.id),
            "name": made.name.or(params.name).unwrap_or_default(),
            "remoteWorkspaceFolder": made.remote_workspace_folder,
        });
        if let Some(folder) = made.host_workspace_folder {
            result["hostWorkspaceFolder"] = folder.into();
        }
        Ok(result)
    }

    /// Ends a container, and notifies the connected clients.
    pub async fn end_container(&self, params: &DevContainer, remove: bool) -> Result<(), RpcError> {
        let containers =
            self.containers().ok_or_else(|| RpcError::internal("this host cannot create dev containers"))?;
        let id = params.address.strip_prefix(ADDRESS).unwrap_or(&params.address).to_owned();
        if !self.relays.made.lock().contains(&id) {
            return Err(RpcError::not_found(format!("No container at {}", params.address)));
        }
        let end = if remove { &containers.remove } else { &containers.stop };
        end.within(limit::MACHINE_BUILD, (id.clone(),)).await.map_err(Thrown::into_rpc)?;
        let ended: Vec<(Key, Relay)> = {
            let mut open = self.relays.open.lock();
            open.extract_if(|_, relay| relay.container.as_deref() == Some(&id)).collect()
        };
        for (key, _) in ended {
            self.tell_relay(&key, "closeConnection", None);
        }
        if remove {
            self.relays.made.lock().retain(|made| *made != id);
        }
        Ok(())
    }
}
