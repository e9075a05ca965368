//! What a plugin may listen to. Spec: *Listener events*.

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::cross::Frozen;
use crate::host::PluginContext;

/// How a turn ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum TurnStatus {
    /// It said what it had to say.
    #[default]
    Complete,
    /// Somebody stopped it.
    Cancelled,
    /// It failed.
    Error,
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:literal $variant:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)* })+) => {
        /// Something that happened. Listeners are told after it did and cannot refuse or rewrite it.
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
            /// Its name.
            pub fn name(&self) -> EventName {
                match self { $(Self::$variant { .. } => EventName::$variant,)+ }
            }
        }
    };
}

/// Fields that are left out rather than sent as `null`.
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
    /// A session is announced: at once, or with its first turn where a client created it over `createSession`.
    "session_start" SessionStart {
        /// Its URI.
        session: String,
        /// Its backend.
        provider: String,
        /// The client of this host that made it, if one did.
        client: Option<String>,
    }
    /// An announced session is gone.
    "session_end" SessionEnd {
        /// Its URI.
        session: String,
        /// Why, in a word: `disposed`, `failed`, `closing`.
        reason: String,
    }
    /// A client looks at a session, which may not be announced yet.
    "session_opened" SessionOpened {
        /// Its URI.
        session: String,
        /// The client.
        client: String,
    }
    /// A turn began.
    "turn_start" TurnStart {
        /// The session's URI.
        session: String,
        /// The chat's URI.
        chat: String,
        /// The turn's id.
        turn: String,
        /// `user:<id>`, `root:<host>` or `plugin:<id>`, when the host knows who sent it.
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
        /// How.
        status: TurnStatus,
        /// Who had sent it.
        sender: Option<String>,
    }
    /// Somebody said something.
    "message" Message {
        /// The session's URI.
        session: String,
        /// The chat's URI.
        chat: String,
        /// The turn's id.
        turn: String,
        /// What was said.
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
        /// Whether it went well.
        ok: bool,
        /// What it failed with.
        error: Option<String>,
    }
    /// A session waits for somebody.
    "input_needed_set" InputNeededSet {
        /// The session's URI.
        session: String,
        /// The chat's URI.
        chat: String,
        /// The request's id.
        id: String,
        /// `chatInput`, `toolConfirmation`, `toolClientExecution`, `toolAuthentication`
        kind: String,
    }
    /// It waits no more.
    "input_needed_removed" InputNeededRemoved {
        /// The session's URI.
        session: String,
        /// The request's id.
        id: String,
    }
    /// A client introduced itself.
    "client_connect" ClientConnect {
        /// Its id.
        client: String,
    }
    /// A connection ended.
    "client_disconnect" ClientDisconnect {
        /// The client's id; `anonymous` when it never introduced itself.
        client: String,
    }
    /// A connection said who it is.
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
        /// What runs the host.
        runtime: String,
        /// The address it listens on; `stdio` where that is its only connection.
        host: String,
        /// The port it got; 0 over stdio.
        port: u16,
        /// Whether a connection needs a token or a sign-in.
        guarded: bool,
    }
    /// The host is about to close.
    "stopping" Stopping {}
    /// A line went to the log.
    "log" Log {
        /// The line.
        line: String,
    }
}

/// What `on` takes: called with the event and the context `apply` received. Its answer is ignored.
pub type Handler = Call<fn(event: Frozen<Event>, context: Frozen<PluginContext>)>;
