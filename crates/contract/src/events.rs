//! The events of the host. Spec: *Listener events*.

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::cross::Frozen;
use crate::host::PluginContext;

/// The status of an ended turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum TurnStatus {
    /// Completed.
    #[default]
    Complete,
    /// Cancelled.
    Cancelled,
    /// Failed.
    Error,
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:literal $variant:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)* })+) => {
        /// An event. Listeners receive it after the fact and cannot reject or change it.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Cross)]
        #[serde(tag = "type")]
        pub enum Event {
            $(
                $(#[$doc])*
                #[serde(rename = $name, rename_all = "camelCase")]
                $variant { $($(#[$field_doc])* #[serde(default, skip_serializing_if = "Blank::is_blank")] $field: $ty,)* },
            )+
        }

        /// The name of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Cross)]
        pub enum EventName {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)+
        }

        impl Event {
            /// Returns its name.
            pub fn name(&self) -> EventName {
                match self { $(Self::$variant { .. } => EventName::$variant,)+ }
            }
        }
    };
}

/// Fields that are omitted instead of sent as `null`.
trait Blank {
    fn is_blank(&self) -> bool {
        false
    }
}

impl<T> Blank for Option<T> {
    fn is_blank(&self) -> bool {
        self.is_none()
    }
}
impl Blank for String {}
impl Blank for bool {}
impl Blank for u16 {}
impl Blank for TurnStatus {}

events! {
    /// A session is announced: immediately, or with its first turn if a client created it with `createSession`.
    "session_start" SessionStart {
        /// Its URI.
        session: String,
        /// Its backend.
        provider: String,
        /// The client of this host that created it, if any.
        client: Option<String>,
    }
    /// An announced session has ended.
    "session_end" SessionEnd {
        /// Its URI.
        session: String,
        /// The reason: `disposed`, `failed` or `closing`.
        reason: String,
    }
    /// A client subscribed to a session, which may not be announced yet.
    "session_opened" SessionOpened {
        /// Its URI.
        session: String,
        /// The client.
        client: String,
    }
    /// A turn started.
    "turn_start" TurnStart {
        /// The session's URI.
        session: String,
        /// The chat's URI.
        chat: String,
        /// The turn's id.
        turn: String,
        /// `user:<id>`, `root:<host>` or `plugin:<id>`, if the sender is known.
        sender: Option<String>,
    }
    /// A turn ended.
    "turn_end" TurnEnd {
        /// The session's URI.
        session: String,
        /// The chat's URI.
        chat: String,
        /// The turn's id.
        turn: String,
        /// Its status.
        status: TurnStatus,
        /// Its sender.
        sender: Option<String>,
    }
    /// A message was sent.
    "message" Message {
        /// The session's URI.
        session: String,
        /// The chat's URI.
        chat: String,
        /// The turn's id.
        turn: String,
        /// The text.
        text: String,
    }
    /// A host tool was called.
    "tool_call" ToolCall {
        /// The session's URI.
        session: String,
        /// The chat's URI.
        chat: String,
        /// The tool's name.
        tool: String,
        /// Whether it succeeded.
        ok: bool,
        /// The error message.
        error: Option<String>,
    }
    /// A session needs input.
    "input_needed_set" InputNeededSet {
        /// The session's URI.
        session: String,
        /// The chat's URI.
        chat: String,
        /// The request's id.
        id: String,
        /// `chatInput`, `toolConfirmation`, `toolClientExecution` or `toolAuthentication`.
        kind: String,
    }
    /// A session no longer needs that input.
    "input_needed_removed" InputNeededRemoved {
        /// The session's URI.
        session: String,
        /// The request's id.
        id: String,
    }
    /// A client sent `initialize`.
    "client_connect" ClientConnect {
        /// Its id.
        client: String,
    }
    /// A connection ended.
    "client_disconnect" ClientDisconnect {
        /// The client's id; `anonymous` without `initialize`.
        client: String,
    }
    /// A connection signed in.
    "authenticated" Authenticated {
        /// The client's id.
        client: String,
        /// The resource it signed in to.
        resource: String,
    }
    /// An automation started a run.
    "automation_fire" AutomationFire {
        /// The automation's URI.
        automation: String,
        /// The run's URI.
        run: String,
    }
    /// A client wrote a resource.
    "resource_write" ResourceWrite {
        /// Its URI.
        uri: String,
    }
    /// A terminal was opened.
    "terminal_open" TerminalOpen {
        /// Its URI.
        terminal: String,
        /// Its working directory.
        cwd: String,
    }
    /// The host accepts connections.
    "listening" Listening {
        /// Name and version of the host program.
        runtime: String,
        /// The listening address; `stdio` if that is the only connection.
        host: String,
        /// The port; 0 over stdio.
        port: u16,
        /// Whether connections need a token or a sign-in.
        guarded: bool,
    }
    /// The host is about to close.
    "stopping" Stopping {}
    /// A line was logged.
    "log" Log {
        /// The line.
        line: String,
    }
}

/// A listener function, called with the event and the context of `apply`. Its result is ignored.
pub type Handler = Call<fn(event: Frozen<Event>, context: Frozen<PluginContext>)>;
