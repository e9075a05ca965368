//! The terminal store: what opens shells. Spec: *Registration methods*.

use std::collections::BTreeMap;

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::{Call, Func};

/// What opens terminals. The host lists each one, keeps what it said last, and serves it to whoever watches.
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
    /// Opens a terminal. What its process says, from the first moment on, goes to `events`. A directory that is
    /// not there is a shell that failed: its reason is output, and it exits with 127.
    pub create: Call<fn(request: TerminalRequest, events: TerminalEvents) -> Terminal>,
    /// Called once when the host closes, after its terminals have ended.
    pub close: Option<Call<fn()>>,
}

impl PortValue for TerminalStore {
    const NAME: &'static str = "terminals";
}

/// A terminal asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct TerminalRequest {
    /// Its URI, as the host lists it.
    pub terminal: String,
    /// A path; the host's first directory where nobody named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What to run instead of a shell: with `args` a program, without them a line for the shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program's arguments, each of them one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// The shell the asking person prefers; the store's own choice where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Variables beside the host's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Width in columns.
    pub cols: u16,
    /// Height in rows.
    pub rows: u16,
}

/// What a terminal says, to be called by the store that opened it.
#[derive(Debug, Clone, Cross)]
pub struct TerminalEvents {
    /// Output. Of a pseudoterminal, marks of shell integration (OSC 133, 633 and 7) are read and taken out by the
    /// host, which reports commands and directories by them.
    pub data: Func<fn(data: String)>,
    /// The process has ended and everything it said was said. Once; what comes later is dropped.
    pub exited: Func<fn(exit_code: Option<i64>)>,
    /// The process changed its title.
    pub title: Func<fn(title: String)>,
    /// The process works somewhere else now: a path.
    pub cwd: Func<fn(cwd: String)>,
}

/// A terminal opened.
#[derive(Debug, Clone, Default, Cross)]
pub struct Terminal {
    /// What it is called where nobody named it: its shell, say.
    pub title: Option<String>,
    /// Where it works, where that is not what was asked: a path.
    pub cwd: Option<String>,
    /// Whether a pseudoterminal stands behind it; plain pipes do where it does not say.
    pub is_pty: Option<bool>,
    /// Takes what was typed.
    pub input: Call<fn(data: String)>,
    /// Takes another size. The host only writes it down where it is left out.
    pub resize: Option<Call<fn(cols: u16, rows: u16)>>,
    /// Ends its processes: `SIGTERM` where no signal is named. The terminal stays listed, with what it said.
    pub kill: Option<Call<fn(signal: Option<String>)>>,
    /// Ends its processes and lets go of everything.
    pub dispose: Call<fn()>,
}

/// How a backend opens terminals that the host lists and people can watch.
#[derive(Debug, Clone, Cross)]
pub struct SessionTerminals {
    /// Opens one, claimed by this chat.
    pub open: Call<fn(request: SessionTerminalRequest) -> SessionTerminal>,
}

/// A terminal a backend asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct SessionTerminalRequest {
    /// What to run instead of a shell: with `args` a program, without them a line for the shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program's arguments, each of them one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// A path; the session's first directory when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables beside the host's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The turn it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The tool call it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// A terminal a backend opened.
#[derive(Debug, Clone, Cross)]
pub struct SessionTerminal {
    /// Its URI, to be linked in a tool call's content.
    pub uri: String,
    /// What it has said, as far as the host keeps it.
    pub output: Call<fn() -> String>,
    /// Resolves once its process has ended: the exit code, where there was one.
    pub wait: Call<fn() -> Option<i64>>,
    /// Types into it.
    pub write: Call<fn(data: String)>,
    /// Gives it another size.
    pub resize: Call<fn(cols: u16, rows: u16)>,
    /// Ends its process. The terminal stays listed, with what it said.
    pub kill: Call<fn()>,
    /// Ends its process and takes it off the list.
    pub release: Call<fn()>,
}
