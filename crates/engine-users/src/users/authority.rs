//! What lives by a sign-in, a token or a grant, and when it ends.
//!
//! [`Living`] is the registry: everything that can outlast the check that let it in. A new kind does not compile until
//! [`ends`] says when it ends and [`Host::review_authority`](crate::Host::review_authority) does it.

use std::fmt;
use std::sync::Arc;

/// A kind of thing that lives by a sign-in, a token or a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Living {
    /// A connection of the protocol, however it was opened.
    Connection,
    /// A subscription of a connection, and the notifications of the root channel.
    Subscription,
    /// An event stream of the HTTP API.
    EventStream,
    /// The cookie of a page's sign-in.
    SignIn,
    NotificationLink,
    PluginConnection,
    QueuedMessage,
    RunningTurn,
    /// A message for a running turn that the agent has not received.
    SteeringMessage,
    /// What an agent does by itself: a turn that it begins, work in the background.
    AgentWork,
    /// A terminal that a client opened.
    Terminal,
    /// The tools endpoint of a session.
    ToolsEndpoint,
    /// A token that a client lent to a session or a chat.
    LentToken,
    /// A bot, which answers in its owner's name.
    Bot,
    /// A call that a bot has accepted.
    BotCall,
    /// An automation, which starts by itself in its owner's name.
    Schedule,
}

/// When a kind of thing ends after its authority ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Within a second: the host looks at all of them after each change of users and each sign-out.
    AtOnce,
    /// Its next use or its next start is refused, with the reason.
    AtItsNextUse,
    /// Never while the daemon runs, because nothing can take its authority away.
    WithTheDaemon,
}

impl Living {
    pub const ALL: &[Self] = &[
        Self::Connection,
        Self::Subscription,
        Self::EventStream,
        Self::SignIn,
        Self::NotificationLink,
        Self::PluginConnection,
        Self::QueuedMessage,
        Self::RunningTurn,
        Self::SteeringMessage,
        Self::AgentWork,
        Self::Terminal,
        Self::ToolsEndpoint,
        Self::LentToken,
        Self::Bot,
        Self::BotCall,
        Self::Schedule,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "a connection, by the credential that opened it",
            Self::Subscription => "a subscription, and the notifications of the root channel",
            Self::EventStream => "an event stream of the HTTP API",
            Self::SignIn => "the cookie of a page's sign-in",
            Self::NotificationLink => "the link of a notification",
            Self::PluginConnection => "the connection of a plugin",
            Self::QueuedMessage => "a message in a queue",
            Self::RunningTurn => "a running turn",
            Self::SteeringMessage => "a message for a running turn that the agent has not received",
            Self::AgentWork => "what an agent does by itself: a turn that it begins, work in the background",
            Self::Terminal => "a terminal that a client opened",
            Self::ToolsEndpoint => "the tools endpoint of a session",
            Self::LentToken => "a token that a client lent to the agent of a session or a chat",
            Self::Bot => "a bot, which answers in its owner's name",
            Self::BotCall => "a call that a bot has accepted",
            Self::Schedule => "an automation, which starts in its owner's name",
        }
    }

    /// Returns what its holder sees when it ends.
    pub const fn seen(self) -> &'static str {
        match self {
            Self::Connection => {
                "it is closed with code 1008; one that signed in with `authenticate` becomes anonymous and is sent `auth/required`"
            }
            Self::Subscription => "no further actions and notifications; commands are refused",
            Self::EventStream => "the stream ends, and the next request is 401 or 403",
            Self::SignIn => {
                "401: the console asks to sign in; a page's connections and streams end within a second"
            }
            Self::NotificationLink => "its page says that the user may not answer",
            Self::PluginConnection => "its grants are those of the configuration at the start of the daemon",
            Self::QueuedMessage => {
                "its turn fails with `permission` and the reason, and neither agent nor shell receives it"
            }
            Self::RunningTurn => "it is cancelled at the agent and fails with `permission` and the reason",
            Self::SteeringMessage => {
                "the agent does not receive it; it is queued, and its turn fails with `permission` and the reason"
            }
            Self::AgentWork => {
                "its turns end as a running turn does; an agent without turns of other users ends"
            }
            Self::Terminal => "its processes end, and it leaves the list",
            Self::ToolsEndpoint => {
                "`initialize` and `tools/list` stay as they are; each call is answered as a failed call with the reason"
            }
            Self::LentToken => {
                "no agent that starts later receives it; the host cannot take it from one that runs"
            }
            Self::Bot => "its endpoints answer 409 with the reason",
            Self::BotCall => {
                "its turn ends as a running turn does, or fails as that of a message in a queue, and its callback says so"
            }
            Self::Schedule => {
                "its next run is refused with the reason, which the log and the list of runs show"
            }
        }
    }

    /// Returns when it ends.
    pub const fn ends(self) -> Ends {
        match self {
            Self::Connection
            | Self::Subscription
            | Self::EventStream
            | Self::RunningTurn
            | Self::AgentWork
            | Self::BotCall
            | Self::Terminal
            | Self::LentToken => Ends::AtOnce,
            Self::SignIn
            | Self::NotificationLink
            | Self::QueuedMessage
            | Self::SteeringMessage
            | Self::ToolsEndpoint
            | Self::Bot
            | Self::Schedule => Ends::AtItsNextUse,
            // Its grants are those of the configuration that was read at the start.
            Self::PluginConnection => Ends::WithTheDaemon,
        }
    }
}

/// What let a connection or a request in, which can lose its validity while that continues.
#[derive(Clone, Default)]
pub struct Credential(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Credential {
    /// One that is valid as long as `is_valid` says.
    pub fn new(is_valid: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_valid)))
    }

    /// Returns whether it is still valid. Nothing can end the validity of the default one.
    pub fn is_valid(&self) -> bool {
        self.0.as_ref().is_none_or(|is_valid| is_valid())
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credential")
    }
}
