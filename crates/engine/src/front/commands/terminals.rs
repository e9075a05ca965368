//! Commands for terminals: opening and disposing of them.

use std::sync::Arc;

use ostler_contract::points::TerminalRequest;
use ostler_engine_core::file_uris::file_path;
use ostler_engine_core::responder::Responder;
use ostler_engine_core::tasks;
use ostler_engine_core::titles::tidy_title;
use ostler_engine_workspace::terminals::{NewTerminal, SIZE, is_terminal, no_terminal, size};
use ostler_protocol::commands::CreateTerminal;
use ostler_protocol::wire::state::{TerminalClaim, TerminalClientClaim};
use ostler_protocol::{RpcError, Value};

use crate::front::Front;
use crate::front::connection::Connection;

impl Connection {
    pub(crate) fn handle_create_terminal(self: &Arc<Self>, params: CreateTerminal, responder: Responder) {
        let front = self.front().clone();
        let asked = match self.terminal_asked(&front, params) {
            Ok(asked) => asked,
            Err(error) => return responder.fail(error),
        };
        tasks::spawn(async move {
            match front.workspace.open_terminal(asked).await {
                Ok(_) => responder.done(),
                Err(error) => responder.fail(error),
            }
        });
    }

    fn terminal_asked(&self, front: &Front, params: CreateTerminal) -> Result<NewTerminal, RpcError> {
        if !is_terminal(&params.channel) {
            let error = format!("{} is not a terminal URI: ahp-terminal:/<id>", params.channel);
            return Err(RpcError::invalid_params(error));
        }
        let claim = params.claim.unwrap_or_else(|| {
            TerminalClaim::Client(TerminalClientClaim { client_id: self.client_id().unwrap_or_default() })
        });
        front.workspace.may_hold(&claim)?;
        let cwd = match params.cwd {
            Some(cwd) if cwd.starts_with("file:") => Some(file_path(&cwd)),
            Some(cwd) => {
                return Err(RpcError::invalid_params(format!("cwd must be a file: URI, not {cwd}")));
            }
            None => None,
        };
        let shell = front.core.root.own_value(self.id(), "defaultShell");
        let request = TerminalRequest {
            terminal: params.channel,
            cwd,
            shell: shell
                .as_ref()
                .and_then(Value::as_str)
                .filter(|shell| !shell.is_empty())
                .map(str::to_owned),
            cols: size("cols", params.cols, SIZE.0)?,
            rows: size("rows", params.rows, SIZE.1)?,
            ..TerminalRequest::default()
        };
        Ok(NewTerminal {
            claim,
            opener: self.owner(),
            name: params.name.as_deref().and_then(tidy_title),
            request,
        })
    }

    pub(crate) fn handle_dispose_terminal(self: &Arc<Self>, uri: String, responder: Responder) {
        let front = self.front().clone();
        if front.workspace.terminals.get(&uri).is_none() {
            return responder.fail(no_terminal(&uri));
        }
        tasks::spawn(async move {
            match front.workspace.dispose_terminal(&uri).await {
                true => responder.done(),
                false => responder.fail(no_terminal(&uri)),
            }
        });
    }
}
