//! Commands of plugins: found by name, authorized by their grant, answered by the plugin.

use std::sync::Arc;

use ostler_contract::points::NamedMethod;
use ostler_contract::registry::Owned;
use ostler_contract::{JsonObject, Value, limit};
use ostler_engine_core::refusals::before_initialize;
use ostler_engine_core::responder::Responder;
use ostler_engine_core::tasks;
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::RpcError;
use ostler_protocol::message::Params;

use crate::front::Front;
use crate::front::connection::Connection;

impl Front {
    /// Returns the plugin command of that name.
    pub(crate) fn plugin_command(&self, name: &str) -> Option<Owned<NamedMethod>> {
        let commands = self.core.registry()?.all::<NamedMethod>();
        commands.iter().find(|command| *command.name == *name).cloned()
    }
}

/// A call of a plugin's command.
struct Call {
    command: Owned<NamedMethod>,
    params: JsonObject,
    principal: Principal,
    client: String,
}

impl Connection {
    /// Answers a plugin's command. Authorized calls reach the plugin in order.
    pub(crate) fn handle_plugin_command(
        self: &Arc<Self>,
        command: Owned<NamedMethod>,
        params: &Params,
        responder: Responder,
    ) {
        let Some(client) = self.client_id() else {
            return responder.fail(before_initialize(&command.name));
        };
        let params = match params.decode(&command.name) {
            Ok(params) => params,
            Err(error) => return responder.fail(error),
        };
        let (front, principal) = (self.front().clone(), self.principal());
        let call = Call { command, params, principal, client };
        match front.access.require_named(&call.principal, &call.command.method.grant) {
            Ok(()) => answer(front, call, responder),
            Err(refusal) => drop(tasks::spawn(async move {
                let Call { command, params, principal, .. } = &call;
                let authorize = command.method.authorize.clone();
                let asked = params.clone();
                let ask = authorize
                    .map(|authorize| move |reader| authorize.within(limit::AUTHORIZE, (asked, reader)));
                match front.access.authorized(&command.owner, &command.name, principal, ask).await {
                    true => answer(front, call, responder),
                    false => responder.fail(refusal),
                }
            })),
        }
    }
}

/// Begins the call now; answers it later.
fn answer(front: Arc<Front>, call: Call, responder: Responder) {
    let Call { command, params, principal, client } = call;
    let reader = front.access.reader_known(&principal);
    let owner = principal.owner(&front.core.options.host_name).filter(|_| front.access.gate.is_guarded());
    let answered = command.method.handle.within(limit::COMMAND, (params, reader, client, owner));
    tasks::spawn(async move {
        let outcome: Result<Value, RpcError> = answered.await.map_err(|why| {
            if why.rpc.is_none() {
                front.core.report_failed(&command.owner, &format!("its command {}", command.name), &why);
            }
            why.into_rpc()
        });
        responder.settle(outcome);
    });
}
