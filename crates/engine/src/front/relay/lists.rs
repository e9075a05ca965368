//! The lists of a cluster. Each host sends the notifications of its root channel to the others, whose clients receive them
//! too. What a session does is not stored, so this is retained for listings until the link to its host ends.

use std::collections::HashMap;

use ostler_protocol::message::encode;
use ostler_protocol::wire::state::{
    ChangesSummary, SessionChatSummary, SessionStatus, SessionSummary,
};
use ostler_protocol::{JsonObject, Value, json, uri};
use parking_lot::Mutex;
use serde::Deserialize;

use super::{Link, Relay};
use crate::front::Front;
use crate::sessions::ACTIVITY;

/// What sessions of other hosts do.
#[derive(Debug, Default)]
pub(super) struct Lists(Mutex<HashMap<String, Live>>);

/// What a session of another host does, as its row in a listing shows it.
#[derive(Debug, Clone)]
struct Live {
    /// The run of its host.
    incarnation: String,
    status: u32,
    activity: Option<String>,
    chats: Option<Vec<SessionChatSummary>>,
    changes: Option<ChangesSummary>,
}

impl Live {
    fn of(incarnation: &str, summary: &SessionSummary) -> Self {
        Self {
            incarnation: incarnation.to_owned(),
            status: summary.status,
            activity: summary.activity.clone(),
            chats: summary.chats.clone(),
            changes: summary.changes.clone(),
        }
    }

    /// Returns whether the store has everything of the row.
    fn is_at_rest(&self) -> bool {
        let idle = |chat: &SessionChatSummary| chat.changes.is_none() && chat.status.is_none_or(is_idle);
        is_idle(self.status) && self.changes.is_none() && self.chats.iter().flatten().all(idle)
    }

    /// Applies the changed fields of a row.
    fn change(&mut self, changes: &JsonObject) {
        fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
            serde_json::from_value(value.clone()).ok()
        }
        for (name, value) in changes {
            match name.as_str() {
                "status" => self.status = read(value).unwrap_or(self.status),
                "activity" => self.activity = read(value),
                "chats" => self.chats = read(value),
                "changes" => self.changes = read(value),
                _ => {}
            }
        }
    }

    /// Ends what the session does.
    fn rest(&mut self) {
        self.status = at_rest(self.status);
        self.activity = None;
        for status in self.chats.iter_mut().flatten().filter_map(|chat| chat.status.as_mut()) {
            *status = at_rest(*status);
        }
    }

    /// Returns the notification of these fields.
    fn notification(&self, session: &str) -> Option<String> {
        let mut changes = json!({ "status": self.status, "activity": self.activity });
        if let Some(chats) = &self.chats {
            changes["chats"] = json!(chats);
        }
        if let Some(of_files) = &self.changes {
            changes["changes"] = json!(of_files);
        }
        let params = json!({ "channel": uri::ROOT, "session": session, "changes": changes });
        encode::notification("root/sessionSummaryChanged", &params).ok()
    }
}

fn is_idle(status: u32) -> bool {
    status & ACTIVITY == SessionStatus::Idle.bits()
}

fn at_rest(status: u32) -> u32 {
    status & !ACTIVITY | SessionStatus::Idle.bits()
}

/// A notification of a root channel.
#[derive(Deserialize)]
struct Notified {
    method: String,
    params: RootChange,
}

#[derive(Deserialize)]
struct RootChange {
    #[serde(default)]
    summary: Option<SessionSummary>,
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    changes: Option<JsonObject>,
}

/// Returns the notifications of what the sessions here do, for a host that begins to follow.
pub(super) fn busy_sessions(front: &Front) -> Vec<String> {
    let summaries = front.sessions.all().into_iter().map(|entry| entry.view().summary.clone());
    let live = summaries.map(|summary| (summary.resource.clone(), Live::of("", &summary)));
    live.filter(|(_, live)| !live.is_at_rest()).filter_map(|(session, live)| live.notification(&session)).collect()
}

impl Relay {
    /// Publishes a notification of the root channel of another host.
    pub(super) fn watched(&self, link: &Link, frame: &str) {
        // Its actions concern that host.
        if !frame.starts_with(r#"{"jsonrpc":"2.0","method":"root/session"#) {
            return;
        }
        let (Some(front), Ok(notified)) = (self.front.upgrade(), serde_json::from_str::<Notified>(frame)) else {
            return;
        };
        let core = &front.core;
        let RootChange { summary, session, changes } = notified.params;
        match (&*notified.method, summary, session) {
            ("root/sessionAdded", Some(summary), _) => {
                self.is_doing(&summary.resource, Live::of(&link.host.incarnation, &summary));
                front.sessions.counts_listed(true);
                core.feeds.sessions.put(|| std::sync::Arc::new(summary));
            }
            ("root/sessionRemoved", _, Some(session)) => {
                self.lists.0.lock().remove(&session);
                front.sessions.counts_listed(false);
                core.feeds.sessions.remove(&session);
            }
            ("root/sessionSummaryChanged", _, Some(session)) => {
                let known = self.lists.0.lock().remove(&session);
                let mut live = known.unwrap_or_else(|| Live {
                    incarnation: String::new(),
                    status: SessionStatus::Idle.bits(),
                    activity: None,
                    chats: None,
                    changes: None,
                });
                live.incarnation.clone_from(&link.host.incarnation);
                live.change(&changes.unwrap_or_default());
                self.is_doing(&session, live);
            }
            _ => {}
        }
        core.fanout.notify_clients(uri::ROOT, frame.to_owned());
        core.root.set_active_sessions(&core.fanout, front.sessions.count());
    }

    fn is_doing(&self, session: &str, live: Live) {
        if !live.is_at_rest() {
            self.lists.0.lock().insert(session.to_owned(), live);
        }
    }

    /// Reports that the sessions of a host do nothing any more, because the link to it ended.
    pub(super) fn forget_activities(&self, front: &Front, link: &Link) {
        let mut lost = Vec::new();
        self.lists.0.lock().retain(|session, live| {
            let stays = live.incarnation != link.host.incarnation;
            if !stays {
                lost.push((session.clone(), live.clone()));
            }
            stays
        });
        for (session, mut live) in lost {
            live.rest();
            if let Some(frame) = live.notification(&session) {
                front.core.fanout.notify_clients(uri::ROOT, frame);
            }
        }
    }

    /// Adds to the rows of a listing what sessions of other hosts do.
    pub(in crate::front) fn show_activities(&self, rows: &mut [SessionSummary]) {
        let lists = self.lists.0.lock();
        for row in rows {
            let Some(live) = lists.get(&row.resource) else { continue };
            row.status = row.status & !ACTIVITY | live.status & ACTIVITY;
            row.activity.clone_from(&live.activity);
            if live.chats.is_some() {
                row.chats.clone_from(&live.chats);
            }
            row.changes.clone_from(&live.changes);
        }
    }
}
