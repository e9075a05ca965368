//! Dev-container commands.

use std::sync::Arc;

use ostler_contract::{Thrown, Value};
use ostler_protocol::RpcError;
use ostler_protocol::commands::{Command, DevContainerRelay, DevContainerSend};

use crate::core::responder::Responder;
use crate::front::connection::Connection;

impl Connection {
    /// Serves a dev-container command.
    pub(crate) fn handle_dev_container(self: &Arc<Self>, command: Command, responder: Responder) {
        let front = self.front().clone();
        let Some(containers) = front.workspace.containers().cloned() else {
            return responder.fail(RpcError::method_not_found("nothing here makes containers"));
        };
        let me = self.id();
        match command {
            Command::DevContainersAvailable(_) => {
                let available = containers.available.call(());
                tokio::spawn(async move { responder.settle(available.await.map_err(Thrown::into_rpc)) });
            }
            Command::DevContainersConnect(params) => {
                let key = (me, params.connection_id.clone());
                tokio::spawn(async move {
                    responder.settle(front.workspace.make_container(&containers, &key, params).await);
                });
            }
            Command::DevContainersRelaySend(DevContainerSend { connection_id, data }) => {
                let Some((relay, container)) = front.workspace.relays.find(&(me, connection_id.clone()))
                else {
                    return responder.fail(no_relay(&connection_id));
                };
                // Called here, so that frames go in the order they came.
                let written = containers.write.call((container, relay, data));
                tokio::spawn(async move {
                    responder.settle(written.await.map(|()| Value::Null).map_err(Thrown::into_rpc));
                });
            }
            Command::DevContainersDisconnect(DevContainerRelay { connection_id }) => {
                let key = (me, connection_id);
                match front.workspace.end_relays(|of, _| *of == key).is_empty() {
                    true => responder.fail(no_relay(&key.1)),
                    false => responder.done(),
                }
            }
            Command::DevContainersStop(params) => {
                tokio::spawn(async move {
                    settle(responder, front.workspace.end_container(&params, false).await)
                });
            }
            Command::DevContainersRemove(params) => {
                tokio::spawn(
                    async move { settle(responder, front.workspace.end_container(&params, true).await) },
                );
            }
            other => {
                let error = format!("{} is not about a container", other.name());
                responder.fail(RpcError::method_not_found(error));
            }
        }
    }
}

fn settle(responder: Responder, outcome: Result<(), RpcError>) {
    match outcome {
        Ok(()) => responder.done(),
        Err(error) => responder.fail(error),
    }
}

fn no_relay(name: &str) -> RpcError {
    RpcError::not_found(format!("No connection {name} to a container"))
}
