//! The lists of a cluster. Each host sends the notifications of its root channel to the others, whose clients receive them
//! too. What a session does is not stored, so this is retained for listings until the link to its host ends.

use std::collections::HashMap;

use ostler_protocol::message::encode;
use ostler_protocol::wire::state::{SessionStatus, SessionSummary};
use ostler_protocol::{JsonObject, Value, json, uri};
use parking_lot::Mutex;
use serde::Deserialize;

use super::{Link, Relay};
use crate::front::Front;
use crate::sessions::ACTIVITY;

/// The activities of sessions of other hosts.
#[derive(Debug, Default)]
pub(super) struct Lists(Mutex<HashMap<String, Live>>);

/// What a session of another host does.
#[derive(Debug, Clone)]
struct Live {
    /// The run of its host.
    incarnation: String,
    status: u32,
    activity: Option<String>,
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

/// Returns the notification that a session has this status and activity.
fn changed(session: &str, status: u32, activity: Option<&str>) -> Option<String> {
    let params = json!({ "channel": uri::ROOT, "session": session,
        "changes": { "status": status, "activity": activity } });
    encode::notification("root/sessionSummaryChanged", &params).ok()
}

fn is_idle(status: u32) -> bool {
    status & ACTIVITY == SessionStatus::Idle.bits()
}

/// Returns the notifications of the sessions here that are doing something, for a host that begins to follow.
pub(super) fn busy_sessions(front: &Front) -> Vec<String> {
    let views = front.sessions.all().into_iter().filter(|entry| entry.is_awake());
    let summaries = views.map(|entry| entry.view().summary.clone());
    let busy = summaries.filter(|summary| !is_idle(summary.status));
    busy.filter_map(|summary| changed(&summary.resource, summary.status, summary.activity.as_deref())).collect()
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
                self.sets_activity(link, &summary.resource, Some(summary.status), Some(summary.activity.clone()));
                front.sessions.counts_elsewhere(true);
                core.feeds.sessions.put(|| std::sync::Arc::new(summary));
            }
            ("root/sessionRemoved", _, Some(session)) => {
                self.lists.0.lock().remove(&session);
                front.sessions.counts_elsewhere(false);
                core.feeds.sessions.remove(&session);
            }
            ("root/sessionSummaryChanged", _, Some(session)) => {
                let changes = changes.unwrap_or_default();
                let status = changes.get("status").and_then(Value::as_u64);
                let status = status.and_then(|status| u32::try_from(status).ok());
                let activity = changes.get("activity").map(|activity| activity.as_str().map(str::to_owned));
                self.sets_activity(link, &session, status, activity);
            }
            _ => {}
        }
        core.fanout.notify_clients(uri::ROOT, frame.to_owned());
        core.root.set_active_sessions(&core.fanout, front.sessions.count());
    }

    fn sets_activity(
        &self,
        link: &Link,
        session: &str,
        status: Option<u32>,
        activity: Option<Option<String>>,
    ) {
        let mut lists = self.lists.0.lock();
        let known = lists.remove(session);
        let status = status.or_else(|| known.as_ref().map(|live| live.status));
        let Some(status) = status.filter(|status| !is_idle(*status)) else { return };
        let activity = activity.unwrap_or_else(|| known.and_then(|live| live.activity));
        let incarnation = link.host.incarnation.clone();
        lists.insert(session.to_owned(), Live { incarnation, status, activity });
    }

    /// Reports that the sessions of a host do nothing any more, because the link to it ended.
    pub(super) fn forget_activities(&self, front: &Front, link: &Link) {
        let mut lost = Vec::new();
        self.lists.0.lock().retain(|session, live| {
            let stays = live.incarnation != link.host.incarnation;
            if !stays {
                lost.push((session.clone(), live.status));
            }
            stays
        });
        for (session, status) in lost {
            let idle = status & !ACTIVITY | SessionStatus::Idle.bits();
            if let Some(frame) = changed(&session, idle, None) {
                front.core.fanout.notify_clients(uri::ROOT, frame);
            }
        }
    }

    /// Adds to the rows of a listing what sessions of other hosts do.
    pub(in crate::front) fn show_activities(&self, rows: &mut [SessionSummary]) {
        let lists = self.lists.0.lock();
        for row in rows {
            if let Some(live) = lists.get(&row.resource) {
                row.status = row.status & !ACTIVITY | live.status & ACTIVITY;
                row.activity.clone_from(&live.activity);
            }
        }
    }
}
