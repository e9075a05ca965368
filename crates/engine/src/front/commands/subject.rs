//! What a command is about: the channels of its sessions, and its order among the messages of its connection.

use ostler_protocol::commands::CreateTerminal;
use ostler_protocol::wire::commands::{ChatMoveDestination, MoveChatParams};
use ostler_protocol::wire::state::TerminalClaim;

use crate::front::order::Rank;

/// What a command is about. Its row in the table of commands contains it, so a command without one does not compile.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::front) struct Subject<'a> {
    /// The channels whose sessions must be in memory before the handler runs. The command is handled in their order.
    pub loaded: Vec<&'a str>,
    /// Further channels in whose order the command is handled.
    pub ordered: Vec<&'a str>,
    /// The channel whose host serves the command; without one, the host that received it does.
    pub served: Option<&'a str>,
    /// The messages of the connection that the command can overtake.
    pub rank: Rank,
    /// Whether the connection subscribes to the loaded channels.
    pub subscribes: bool,
}

impl<'a> Subject<'a> {
    /// The subject of a command that is about no session.
    pub fn none() -> Self {
        Self { loaded: Vec::new(), ordered: Vec::new(), served: None, rank: Rank::Session, subscribes: false }
    }

    /// The channel of a session or of a part of one, which must be in memory before the handler runs.
    pub fn session(channel: &'a str) -> Self {
        Self { loaded: vec![channel], served: Some(channel), ..Self::none() }
    }

    /// A channel to which the connection subscribes.
    pub fn subscription(channel: &'a str) -> Self {
        Self { subscribes: true, ..Self::session(channel) }
    }

    /// A channel that the handler looks up itself.
    pub fn channel(channel: &'a str) -> Self {
        Self { ordered: vec![channel], served: Some(channel), ..Self::none() }
    }

    /// The channel of a session that the command creates.
    pub fn new_session(channel: &'a str) -> Self {
        Self { rank: Rank::Creates, ..Self::channel(channel) }
    }

    /// A resource, which every host serves.
    pub fn resource(uri: &'a str) -> Self {
        Self { ordered: vec![uri], ..Self::none() }
    }

    /// The channels to which a connection subscribes when it is opened. Their hosts are determined for each of them.
    pub fn entry(channels: impl IntoIterator<Item = &'a String>) -> Self {
        let loaded = channels.into_iter().map(String::as_str).collect();
        Self { loaded, rank: Rank::Enter, subscribes: true, ..Self::none() }
    }

    /// The identity of the connection, on which all later messages depend.
    pub fn identity() -> Self {
        Self { rank: Rank::Alone, ..Self::none() }
    }

    /// A new terminal, and the session that claims it. A terminal without a session is opened where it was requested.
    pub fn terminal(params: &'a CreateTerminal) -> Self {
        let subject = match &params.claim {
            Some(TerminalClaim::Session(claim)) => Self::session(&claim.session),
            _ => Self::none(),
        };
        Self { ordered: vec![&params.channel], ..subject }
    }

    /// A chat, and the session to which it moves.
    pub fn moved_chat(params: &'a MoveChatParams) -> Self {
        match &params.destination {
            ChatMoveDestination::Session(to) => Self::session(&params.channel).and(&to.session),
            _ => Self::session(&params.channel),
        }
    }

    /// Adds a channel whose session must be in memory.
    #[must_use]
    pub fn and(mut self, channel: &'a str) -> Self {
        self.loaded.push(channel);
        self
    }

    /// Sets the order of a command that runs on a separate task.
    #[must_use]
    pub fn on_a_separate_task(self) -> Self {
        debug_assert!(
            self.rank == Rank::Session,
            "a command that opens, creates or identifies is not spawned"
        );
        Self { rank: Rank::Spawned, ..self }
    }

    /// Whether the command opens the connection.
    pub fn introduces(&self) -> bool {
        self.rank == Rank::Enter
    }

    /// Returns the channel of the session that the command creates.
    pub fn created(&self) -> Option<&'a str> {
        self.served.filter(|_| self.rank == Rank::Creates)
    }

    /// Returns the channels in whose order the command is handled.
    pub fn concerned(self) -> Vec<&'a str> {
        let Self { loaded: mut channels, ordered, .. } = self;
        channels.extend(ordered);
        channels
    }
}

#[cfg(test)]
mod tests {
    use ostler_protocol::commands::Command;
    use ostler_protocol::message::Params;
    use ostler_protocol::{Value, json};

    use super::*;
    use crate::front::commands::subject;

    const SESSION: &str = "ahp-session:/s";
    const CHAT: &str = "ahp-chat:/c";
    const TERMINAL: &str = "ahp-terminal:/t";

    fn command(method: &str, params: &Value) -> Command {
        Command::decode(method, &Params::from_value(params).unwrap()).unwrap()
    }

    /// The channels that are loaded, those that only order the command, the one that is served, and the rank.
    type Expected = (&'static [&'static str], &'static [&'static str], Option<&'static str>, Rank);

    #[test]
    fn special_commands_have_their_subjects() {
        let claimed = json!({ "kind": "session", "session": SESSION, "chat": CHAT });
        let initialize = json!({
            "channel": "ahp-root://", "protocolVersions": ["1.0.0"], "clientId": "a",
            "initialSubscriptions": [SESSION, CHAT],
        });
        let reconnect = json!({
            "channel": "ahp-root://", "clientId": "a", "lastSeenServerSeq": 1, "subscriptions": [SESSION, CHAT],
        });
        let authenticate = json!({ "channel": "ahp-root://", "resource": "https://a.example", "token": "b" });
        let to_session = json!({ "kind": "session", "session": "ahp-session:/other" });
        let to_new = json!({ "kind": "newSession" });
        let cases: [(&str, Value, Expected); 14] = [
            ("initialize", initialize, (&[SESSION, CHAT], &[], None, Rank::Enter)),
            ("reconnect", reconnect, (&[SESSION, CHAT], &[], None, Rank::Enter)),
            ("authenticate", authenticate, (&[], &[], None, Rank::Alone)),
            ("ping", json!({}), (&[], &[], None, Rank::Session)),
            ("subscribe", json!({ "channel": CHAT }), (&[CHAT], &[], Some(CHAT), Rank::Session)),
            (
                "createSession",
                json!({ "channel": SESSION, "provider": "echo" }),
                (&[], &[SESSION], Some(SESSION), Rank::Creates),
            ),
            (
                "createChat",
                json!({ "channel": SESSION, "chat": CHAT }),
                (&[SESSION, CHAT], &[], Some(SESSION), Rank::Session),
            ),
            (
                "moveChat",
                json!({ "channel": CHAT, "destination": to_session }),
                (&[CHAT, "ahp-session:/other"], &[], Some(CHAT), Rank::Session),
            ),
            (
                "moveChat",
                json!({ "channel": CHAT, "destination": to_new }),
                (&[CHAT], &[], Some(CHAT), Rank::Session),
            ),
            (
                "createTerminal",
                json!({ "channel": TERMINAL, "claim": claimed }),
                (&[SESSION], &[TERMINAL], Some(SESSION), Rank::Session),
            ),
            ("createTerminal", json!({ "channel": TERMINAL }), (&[], &[TERMINAL], None, Rank::Session)),
            (
                "disposeTerminal",
                json!({ "channel": TERMINAL }),
                (&[], &[TERMINAL], Some(TERMINAL), Rank::Session),
            ),
            (
                "vscode/createAgentHostDetachedWorktree",
                json!({ "session": SESSION }),
                (&[], &[SESSION], Some(SESSION), Rank::Spawned),
            ),
            (
                "resourceRead",
                json!({ "channel": "ahp-root://", "uri": "session-image:/s" }),
                (&[], &["session-image:/s"], None, Rank::Spawned),
            ),
        ];
        for (method, params, (loaded, ordered, served, rank)) in cases {
            let command = command(method, &params);
            let subscribes = ["initialize", "reconnect", "subscribe"].contains(&method);
            let expected =
                Subject { loaded: loaded.to_vec(), ordered: ordered.to_vec(), served, rank, subscribes };
            assert_eq!(subject(&command), expected, "{method} {params}");
            let concerned: Vec<_> = loaded.iter().chain(ordered).copied().collect();
            assert_eq!(subject(&command).concerned(), concerned, "{method} {params}");
        }
    }
}
