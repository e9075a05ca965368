//! Messages that are command lines, such as `!ls`: the backend shows them, the host runs them in a terminal.

use ostler_contract::points::{MachineProcess, SessionComputer, SessionTerminalRequest};
use ostler_contract::{HostFunction, Thrown};
use ostler_engine_workspace::terminals::PREFIX;
use ostler_protocol::origins::Effect;
use ostler_protocol::wire::state::Message;

use super::actor::Actor;
use super::backend::Tell;
use super::senders::{sender_of, way_of, who};

/// The title of the terminal of a command line.
const COMMAND_TITLE: &str = "Terminal";
/// The shell that runs command lines in a machine, the one that every image with a shell has.
const MACHINE_SHELL: &str = "/bin/sh";

/// Returns the command of a text that looks like a command line.
pub(super) fn command_of(text: &str) -> Option<&str> {
    text.strip_prefix(PREFIX).map(str::trim).filter(|command| !command.is_empty())
}

impl Actor {
    /// Returns the backend call for a message that is a command line, which runs where the session runs.
    pub(super) fn run_of(&self, at: usize, turn: &str, message: &Message) -> Option<Tell> {
        let command = self.command_line_of(message)?;
        let sender = sender_of(message);
        let open = self.terminals_of(&self.chats[at], sender.clone())?.open;
        let (access, way) = (self.sessions.access.clone(), way_of(message)?);
        let (turn, line) = (turn.to_owned(), command.to_owned());
        let (of_turn, provider) = (turn.clone(), self.entry.provider.clone());
        let computer = self.computer_of(&self.paths_of(&self.chats[at]));
        let run = HostFunction::new(move |(tool_call_id,): (Option<String>,)| {
            let (open, computer, line) = (open.clone(), computer.clone(), line.clone());
            // The backend may have taken long to start.
            let allowed = access.require_effect((way, Effect::CommandLine), who(sender.as_deref()), None);
            let request = SessionTerminalRequest {
                name: Some(COMMAND_TITLE.to_owned()),
                turn_id: Some(of_turn.clone()),
                tool_call_id,
                ..SessionTerminalRequest::default()
            };
            async move {
                allowed?;
                let request = match computer {
                    Some(computer) => in_machine(&computer, line, request).await?,
                    None => SessionTerminalRequest { command: Some(line), ..request },
                };
                open.call((request,)).await
            }
        });
        let span = self.chats[at].span.clone();
        Some(Tell::Ran { turn, command: command.to_owned(), run, provider, span })
    }
}

/// Returns the terminal request for a command line that a shell in a machine runs.
async fn in_machine(
    computer: &SessionComputer,
    line: String,
    request: SessionTerminalRequest,
) -> Result<SessionTerminalRequest, Thrown> {
    let args = vec!["-c".to_owned(), line];
    let shell = MachineProcess { program: MACHINE_SHELL.to_owned(), args, ..MachineProcess::default() };
    let outside = computer.how.call((shell,)).await?;
    Ok(SessionTerminalRequest {
        command: Some(outside.program),
        args: Some(outside.args),
        cwd: outside.cwd.or(request.cwd),
        env: Some(outside.env),
        ..request
    })
}
