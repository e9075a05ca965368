//! Dev-container commands.

use ostler_contract::points::Containers;
use ostler_contract::{Thrown, Value, limit};
use ostler_engine_core::responder::Responder;
use ostler_engine_core::tasks;
use ostler_protocol::RpcError;
use ostler_protocol::commands::{DevContainer, DevContainerConnect, DevContainerRelay, DevContainerSend};

use super::Requester;
use crate::front::connection::Connection;

/// Returns the provider of containers. Without one, the command was rejected before.
fn containers(connection: &Connection) -> Result<Containers, RpcError> {
    let containers = connection.front().workspace.containers().cloned();
    containers.ok_or_else(|| RpcError::method_not_found("this host cannot create dev containers"))
}

impl Requester {
    pub(super) async fn containers_available(&self) -> Result<bool, RpcError> {
        containers(&self.connection)?.available.within(limit::MACHINE, ()).await.map_err(Thrown::into_rpc)
    }

    pub(super) async fn connect_container(&self, params: DevContainerConnect) -> Result<Value, RpcError> {
        let key = (self.connection.id(), params.connection_id.clone());
        self.front().workspace.make_container(&containers(&self.connection)?, &key, params).await
    }

    pub(super) async fn end_container(&self, params: DevContainer, remove: bool, responder: Responder) {
        match self.front().workspace.end_container(&params, remove).await {
            Ok(()) => responder.done(),
            Err(error) => responder.fail(error),
        }
    }
}

impl Connection {
    /// Sends a frame to the host inside a container.
    pub(super) fn handle_relay_send(&self, params: DevContainerSend, responder: Responder) {
        let DevContainerSend { connection_id, data } = params;
        let containers = match containers(self) {
            Ok(containers) => containers,
            Err(error) => return responder.fail(error),
        };
        let found = self.front().workspace.relays.find(&(self.id(), connection_id.clone()));
        let Some((relay, container)) = found else {
            return responder.fail(no_relay(&connection_id));
        };
        // Called here, so that frames are sent in the order of their arrival.
        let written = containers.write.within(limit::RELAY, (container, relay, data));
        tasks::spawn(async move {
            responder.settle(written.await.map(|()| Value::Null).map_err(Thrown::into_rpc));
        });
    }

    pub(super) fn handle_relay_end(&self, params: DevContainerRelay, responder: Responder) {
        let key = (self.id(), params.connection_id);
        match self.front().workspace.end_relays(|of, _| *of == key).is_empty() {
            true => responder.fail(no_relay(&key.1)),
            false => responder.done(),
        }
    }
}

fn no_relay(name: &str) -> RpcError {
    RpcError::not_found(format!("No connection {name} to a container"))
}
