//! The terminals that the root channel lists: those of this host, and those of the other hosts of its cluster. Hosts send
//! their own to each other.

use std::collections::{BTreeMap, HashSet};

use ostler_protocol::message::encode;
use ostler_protocol::wire::state::TerminalInfo;
use ostler_protocol::{json, uri};
use serde::Deserialize;

/// The notification, which only hosts receive.
const METHOD: &str = "ostler/terminals";

#[derive(Debug, Default)]
pub(super) struct TerminalLists {
    /// The terminals of this host.
    pub own: Vec<TerminalInfo>,
    /// The terminals of other hosts, by their runs.
    pub elsewhere: BTreeMap<String, Vec<TerminalInfo>>,
}

impl TerminalLists {
    /// Returns all terminals, those of this host first. Of those with the same URI the first one can be used.
    pub fn all(&self) -> Vec<TerminalInfo> {
        let mut seen = HashSet::new();
        let all = self.own.iter().chain(self.elsewhere.values().flatten());
        all.filter(|terminal| seen.insert(&terminal.resource)).cloned().collect()
    }

    /// Returns the notification of the terminals of this host.
    pub fn notification(&self) -> Option<String> {
        let params = json!({ "channel": uri::ROOT, "terminals": self.own });
        encode::notification(METHOD, &params).ok()
    }
}

#[derive(Deserialize)]
struct Notification {
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    terminals: Vec<TerminalInfo>,
}

/// Returns the terminals of another host if this is its notification of them.
pub fn read(frame: &str) -> Option<Vec<TerminalInfo>> {
    let named = frame.strip_prefix(r#"{"jsonrpc":"2.0","method":""#)?;
    let notification = named.starts_with(METHOD).then(|| serde_json::from_str::<Notification>(frame).ok());
    Some(notification??.params.terminals)
}
