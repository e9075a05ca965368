//! Terminals of backends: the host creates the URI and lists them, so that users can see them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use ostler_contract::points::{SessionTerminal, SessionTerminalRequest, SessionTerminals, TerminalRequest};
use ostler_contract::{HostFunction, Thrown};
use ostler_engine_core::titles::tidy_title;
use ostler_engine_core::weak::upgraded;
use ostler_protocol::uri;
use ostler_protocol::wire::state::{TerminalClaim, TerminalSessionClaim};

use super::{NewTerminal, Open, SIZE};
use crate::Workspace;

/// The session of a new terminal.
#[derive(Debug, Clone)]
pub struct Holder {
    pub session: String,
    pub chat: String,
    /// The session's first directory.
    pub directory: Option<String>,
    /// Variables of every terminal of the session.
    pub env: BTreeMap<String, String>,
    /// The owner of the work of the sender of a command line, by whom the terminal ends.
    pub opener: Option<String>,
}

impl Workspace {
    /// Returns the function with which a chat's backend opens terminals; `None` without a terminal store.
    pub fn session_terminals(self: &Arc<Self>, holder: Holder) -> Option<SessionTerminals> {
        self.terminal_store()?;
        let workspace = Arc::downgrade(self);
        let open = HostFunction::new(move |(request,): (SessionTerminalRequest,)| {
            let (workspace, holder) = (workspace.clone(), holder.clone());
            async move {
                let open = upgraded(&workspace)?.open_for(&holder, request).await?;
                Ok(handle(workspace, open))
            }
        });
        Some(SessionTerminals { open })
    }

    /// Opens a terminal that a chat claims.
    pub async fn open_for(
        self: &Arc<Self>,
        holder: &Holder,
        request: SessionTerminalRequest,
    ) -> Result<Arc<Open>, Thrown> {
        let claim = TerminalClaim::Session(TerminalSessionClaim {
            session: holder.session.clone(),
            chat: holder.chat.clone(),
            turn_id: request.turn_id,
            tool_call_id: request.tool_call_id,
        });
        let wanted = TerminalRequest {
            terminal: uri::terminal(&self.core.new_id()),
            cwd: request.cwd.or_else(|| holder.directory.clone()),
            command: request.command,
            args: request.args,
            shell: None,
            env: holder.env.clone().into_iter().chain(request.env.unwrap_or_default()).collect(),
            cols: SIZE.0,
            rows: SIZE.1,
        };
        let asked = NewTerminal {
            claim,
            opener: holder.opener.clone(),
            name: request.name.as_deref().and_then(tidy_title),
            request: wanted,
        };
        Ok(self.open_terminal(asked).await?)
    }
}

fn handle(workspace: Weak<Workspace>, open: Arc<Open>) -> SessionTerminal {
    let (output, wait, write) = (open.clone(), open.clone(), open.clone());
    let (resize, kill, resized_on) = (open.clone(), open.clone(), workspace.clone());
    SessionTerminal {
        uri: open.uri.clone(),
        output: HostFunction::now(move |()| Ok(output.output())),
        wait: HostFunction::new(move |()| {
            let open = wait.clone();
            async move { Ok(open.wait().await) }
        }),
        write: HostFunction::now(move |(data,): (String,)| write.input(data).map_err(Thrown::from)),
        resize: HostFunction::now(move |(cols, rows): (u16, u16)| {
            let workspace = upgraded(&resized_on)?;
            resize.resized(&workspace, cols, rows);
            Ok(())
        }),
        kill: HostFunction::new(move |()| {
            let open = kill.clone();
            async move { open.kill().await }
        }),
        release: HostFunction::new(move |()| {
            let (workspace, uri) = (workspace.clone(), open.uri.clone());
            async move {
                upgraded(&workspace)?.dispose_terminal(&uri).await;
                Ok(())
            }
        }),
    }
}
