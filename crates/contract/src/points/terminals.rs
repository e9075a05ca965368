//! The terminal store, which opens shells. Spec: *Registration methods*.

use std::collections::BTreeMap;

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::{Call, Func, HostFunction};

/// The terminal store. The host lists terminals, stores their recent output and serves it to subscribers.
///
/// ```
/// use ostler_contract::{Call, points::{Terminal, TerminalEvents, TerminalRequest, TerminalStore}};
///
/// let parrots = TerminalStore {
///     create: Call::now(|(_request, events): (TerminalRequest, TerminalEvents)| {
///         let (said, ended) = (events.clone(), events);
///         Ok(Terminal {
///             title: Some("parrot".into()),
///             input: Call::now(move |(data,): (String,)| said.data.call((data,))),
///             dispose: Call::now(move |()| ended.exited.call((Some(0),))),
///             ..Terminal::default()
///         })
///     }),
///     ..TerminalStore::default()
/// };
/// # assert!(ostler_contract::Cross::check(&parrots).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct TerminalStore {
    /// Opens a terminal. Output of its process goes to `events` from the start. For a missing directory, the shell
    /// fails: the reason is output, and the exit code is 127.
    pub create: Call<fn(request: TerminalRequest, events: TerminalEvents) -> Terminal>,
    /// Called once when the host closes, after its terminals have ended.
    pub close: Option<Call<fn()>>,
}

impl PortValue for TerminalStore {
    const NAME: &'static str = "terminals";
}

/// A request for a terminal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct TerminalRequest {
    /// Its URI, as the host lists it.
    pub terminal: String,
    /// Working directory, a path. Default: the host's first directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// A command instead of a shell: a program with `args`, a shell line without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Arguments of the program, one word each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// The user's preferred shell, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Environment variables in addition to the host's.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Width in columns.
    pub cols: u16,
    /// Height in rows.
    pub rows: u16,
}

/// Callbacks for the store that opened the terminal.
#[derive(Debug, Clone, Cross)]
pub struct TerminalEvents {
    /// Output. For a pseudoterminal, the host parses and removes shell integration marks (OSC 133, 633 and 7) and
    /// reports commands and directories from them.
    pub data: Func<fn(data: String)>,
    /// The process has ended and all its output was reported. Called once; later calls are ignored.
    pub exited: Func<fn(exit_code: Option<i64>)>,
    /// The process changed its title.
    pub title: Func<fn(title: String)>,
    /// The process changed its working directory, a path.
    pub cwd: Func<fn(cwd: String)>,
    /// Resolves when subscribers can take more output, and in any case soon. A store that awaits it before it reads more
    /// output loses less for them; the host sends those who do not keep up the stored output in place of what they missed.
    pub ready: HostFunction<fn()>,
}

/// An open terminal.
#[derive(Debug, Clone, Default, Cross)]
pub struct Terminal {
    /// Title if no user set one, such as the shell's name.
    pub title: Option<String>,
    /// Working directory if it differs from the requested one, a path.
    pub cwd: Option<String>,
    /// Whether it is a pseudoterminal. Default: `false`, plain pipes.
    pub is_pty: Option<bool>,
    /// Receives typed input.
    pub input: Call<fn(data: String)>,
    /// Changes the size. Without it, the host only records the size.
    pub resize: Option<Call<fn(cols: u16, rows: u16)>>,
    /// Ends its processes, by default with `SIGTERM`. The terminal stays listed with its output.
    pub kill: Option<Call<fn(signal: Option<String>)>>,
    /// Ends its processes and releases all resources.
    pub dispose: Call<fn()>,
}

/// How a backend opens terminals that the host lists and users can see.
#[derive(Debug, Clone, Cross)]
pub struct SessionTerminals {
    /// Opens a terminal, claimed by this chat.
    pub open: HostFunction<fn(request: SessionTerminalRequest) -> SessionTerminal>,
}

/// A backend's request for a terminal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct SessionTerminalRequest {
    /// A command instead of a shell: a program with `args`, a shell line without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Arguments of the program, one word each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Working directory, a path. Default: the session's first directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables in addition to the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The turn that uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The tool call that uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// A terminal of a backend.
#[derive(Debug, Clone, Cross)]
pub struct SessionTerminal {
    /// Its URI, for links in the content of tool calls.
    pub uri: String,
    /// The output that the host has stored.
    pub output: HostFunction<fn() -> String>,
    /// Resolves when its process has ended, with the exit code if there is one.
    pub wait: HostFunction<fn() -> Option<i64>>,
    /// Writes input.
    pub write: HostFunction<fn(data: String)>,
    /// Changes the size.
    pub resize: HostFunction<fn(cols: u16, rows: u16)>,
    /// Ends its process. The terminal stays listed with its output.
    pub kill: HostFunction<fn()>,
    /// Ends its process and removes it from the list.
    pub release: HostFunction<fn()>,
}
