//! Actions of clients on terminals: opening, typing, resizing, claiming, naming, clearing and disposing of them.

use ostler_engine_core::fanout::Origin;
use ostler_engine_core::refusals::{does_not_belong, lacks_field, nothing_at};
use ostler_engine_core::titles::named;
use ostler_protocol::actions::{self, Action, Scope};
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::TerminalClaim;
use ostler_protocol::{RpcError, Value};

use super::{SIZE, SIZE_MAX, no_terminal};
use crate::Workspace;

impl Workspace {
    /// Handles an action of a client on a terminal, or returns why it is rejected.
    pub fn terminal_action(
        &self,
        uri: &str,
        row: &Action,
        action: &Value,
        origin: Origin,
    ) -> Result<(), String> {
        if row.scope != Scope::Terminal {
            return Err(does_not_belong(row.name, "a terminal"));
        }
        let open = self.terminals.get(uri).ok_or_else(|| no_terminal(uri).message)?;
        let read = actions::read(action).map_err(|_| lacks_field(row.name, action))?;
        match read {
            // It changes no state by itself; the result is output. An echo would show a password to all subscribers.
            StateAction::TerminalInput(typed) => open.input(typed.data).map_err(str::to_owned),
            StateAction::TerminalResized(resized) => {
                let cols = size("cols", Some(resized.cols), SIZE.0).map_err(|error| error.message)?;
                let rows = size("rows", Some(resized.rows), SIZE.1).map_err(|error| error.message)?;
                let mut screen = open.screen.lock();
                if (screen.state.cols, screen.state.rows) != (Some(resized.cols), Some(resized.rows)) {
                    screen.apply(&self.core.fanout, &StateAction::TerminalResized(resized), Some(origin));
                    drop(screen);
                    open.resize(cols, rows);
                }
                Ok(())
            }
            StateAction::TerminalClaimed(claimed) => {
                self.may_hold(&claimed.claim).map_err(|error| error.message)?;
                let held = open.screen.lock().state.claim.clone();
                if let TerminalClaim::Client(held) = held
                    && held.client_id != origin.client_id
                    && self.access.clients.is_connected(&held.client_id)
                {
                    return Err(format!(
                        "{} has claimed this terminal; only it can hand it over",
                        held.client_id
                    ));
                }
                let mut screen = open.screen.lock();
                let new = screen.state.claim != claimed.claim;
                if new {
                    screen.apply(&self.core.fanout, &StateAction::TerminalClaimed(claimed), Some(origin));
                }
                drop(screen);
                self.relist(&open, new);
                Ok(())
            }
            StateAction::TerminalTitleChanged(mut titled) => {
                titled.title = named(&titled.title)?;
                let mut screen = open.screen.lock();
                screen.named = true;
                let new = screen.state.title != titled.title;
                if new {
                    screen.apply(&self.core.fanout, &StateAction::TerminalTitleChanged(titled), Some(origin));
                }
                drop(screen);
                self.relist(&open, new);
                Ok(())
            }
            StateAction::TerminalCleared(cleared) => {
                open.screen.lock().apply(
                    &self.core.fanout,
                    &StateAction::TerminalCleared(cleared),
                    Some(origin),
                );
                Ok(())
            }
            _ => Err(lacks_field(row.name, action)),
        }
    }

    /// Checks that a claim is valid: a known client or an existing session.
    pub fn may_hold(&self, claim: &TerminalClaim) -> Result<(), RpcError> {
        match claim {
            TerminalClaim::Client(claim) if claim.client_id.trim().is_empty() => {
                Err(RpcError::invalid_params("claim.clientId must name a client"))
            }
            TerminalClaim::Client(_) => Ok(()),
            TerminalClaim::Session(claim) => match self.session(&claim.session) {
                Some(_) => Ok(()),
                None => Err(nothing_at(&claim.session)),
            },
        }
    }
}

pub fn size(field: &str, asked: Option<i64>, usual: u16) -> Result<u16, RpcError> {
    let Some(asked) = asked else { return Ok(usual) };
    let fits = u16::try_from(asked).ok().filter(|size| (1..=SIZE_MAX).contains(size));
    fits.ok_or_else(|| {
        RpcError::invalid_params(format!("{field} must be an integer between 1 and {SIZE_MAX}"))
    })
}
