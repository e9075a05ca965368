//! The lists of a cluster. Each host sends the notifications of its root channel to the others, whose clients receive them
//! too. The row of a session in memory has more than the store, so it is retained for listings until the link to its host ends.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_protocol::message::encode;
use ostler_protocol::wire::state::SessionSummary;
use ostler_protocol::{JsonObject, Value, json, uri};
use parking_lot::Mutex;
use serde::Deserialize;

use super::{Link, Relay};
use crate::core::terminal_lists;
use crate::front::Front;

/// The maximum number of retained rows.
const ROWS_MAX: usize = 10_000;
/// The maximum number of rows that are read again when a host is lost.
const READ_AGAIN: usize = 1000;

/// The rows of sessions that other hosts have in memory, by URI.
#[derive(Debug, Default)]
pub(super) struct Lists(Mutex<HashMap<String, Live>>);

/// The row of a session in the memory of another host, as far as the host reported it. The store may not have everything.
#[derive(Debug, Clone)]
struct Live {
    /// The run of its host.
    incarnation: String,
    fields: JsonObject,
}

impl Live {
    /// Adds what differs from the stored row.
    fn show(&self, row: &mut SessionSummary) {
        let modified = self.fields.get("modifiedAt").and_then(Value::as_str);
        if modified.is_some_and(|modified| modified < row.modified_at.as_str()) {
            // Another host has changed it since.
            return;
        }
        let Ok(Value::Object(mut shown)) = serde_json::to_value(&*row) else { return };
        for (name, value) in &self.fields {
            match value {
                Value::Null => drop(shown.shift_remove(name)),
                value => drop(shown.insert(name.clone(), value.clone())),
            }
        }
        if let Ok(shown) = serde_json::from_value(Value::Object(shown)) {
            *row = shown;
        }
    }
}

/// Returns the fields of a row that can change.
fn fields_of(summary: &SessionSummary) -> JsonObject {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(summary) else { return JsonObject::new() };
    for constant in ["resource", "provider", "createdAt"] {
        fields.shift_remove(constant);
    }
    fields.entry("activity").or_insert(Value::Null);
    fields
}

/// Returns the id of a listed session.
fn id_of(session: &str) -> &str {
    uri::session_id(session).unwrap_or(session)
}

/// Returns the notification of changed fields of a row.
fn changed(session: &str, fields: &JsonObject) -> Option<String> {
    let params = json!({ "channel": uri::ROOT, "session": session, "changes": fields });
    encode::notification("root/sessionSummaryChanged", &params).ok()
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

/// Returns the notifications of the rows of sessions in memory here, for a host that begins to follow.
pub(super) fn rows_in_memory(front: &Front) -> Vec<String> {
    let listed = front.sessions.all().into_iter().filter(|entry| entry.view().record.draft.is_none());
    let summaries = listed.map(|entry| entry.view().summary.clone());
    summaries.filter_map(|summary| changed(&summary.resource, &fields_of(&summary))).collect()
}

impl Relay {
    /// Publishes a notification of the root channel of another host.
    pub(super) fn watched(self: &Arc<Self>, link: &Link, frame: &str) {
        if let (Some(front), Some(terminals)) = (self.front.upgrade(), terminal_lists::read(frame)) {
            let core = &front.core;
            return core.root.set_terminals_elsewhere(&core.fanout, &link.host.incarnation, terminals);
        }
        // Its actions concern that host.
        if !frame.starts_with(r#"{"jsonrpc":"2.0","method":"root/session"#) {
            return;
        }
        let (Some(front), Ok(notified)) = (self.front.upgrade(), serde_json::from_str::<Notified>(frame))
        else {
            return;
        };
        let core = &front.core;
        let RootChange { summary, session, changes } = notified.params;
        match (&*notified.method, summary, session) {
            ("root/sessionAdded", Some(summary), _) => {
                let fields = fields_of(&summary);
                self.has_row(link, &summary.resource, fields.clone());
                if !self.reports.record(id_of(&summary.resource), true) {
                    if let Some(frame) = changed(&summary.resource, &fields) {
                        core.fanout.notify_clients(uri::ROOT, frame);
                    }
                    return;
                }
                front.sessions.counts_listed(true);
                core.feeds.sessions.put(|| Arc::new(summary));
            }
            ("root/sessionRemoved", _, Some(session)) => {
                self.forget_row(&session);
                if !self.reports.record(id_of(&session), false) {
                    return;
                }
                front.sessions.counts_listed(false);
                core.feeds.sessions.remove(&session);
            }
            ("root/sessionSummaryChanged", _, Some(session)) => {
                self.has_row(link, &session, changes.unwrap_or_default());
                self.row_changed(&front, &session);
            }
            _ => {}
        }
        core.fanout.notify_clients(uri::ROOT, frame.to_owned());
        core.root.set_active_sessions(&core.fanout, front.sessions.count());
    }

    pub(super) fn forget_row(&self, session: &str) {
        self.lists.0.lock().remove(session);
    }

    fn has_row(self: &Arc<Self>, link: &Link, session: &str, fields: JsonObject) {
        let mut lists = self.lists.0.lock();
        if lists.len() >= ROWS_MAX {
            lists.clear();
        }
        let incarnation = &link.host.incarnation;
        match lists.get_mut(session) {
            Some(live) if live.incarnation == *incarnation => live.fields.extend(fields),
            former => {
                let had_other = former.is_some();
                lists.insert(session.to_owned(), Live { incarnation: incarnation.clone(), fields });
                drop(lists);
                if had_other {
                    // It reports what changes there, not what the former host has reported and is no longer so.
                    let (relay, session) = (self.clone(), session.to_owned());
                    tokio::spawn(async move { relay.report_row(&session).await });
                }
            }
        }
    }

    /// Reports the whole row of a session whose host is another one now: the stored row with what that host has reported.
    async fn report_row(&self, session: &str) {
        let (Some(front), Some(id)) = (self.front.upgrade(), uri::session_id(session)) else { return };
        // Without an answer, the row changes with the next change of the session.
        let Ok(Some(mut row)) = front.sessions.stored_row(id).await else { return };
        // Locked until it is sent, so that it does not follow what its host reports later.
        let lists = self.lists.0.lock();
        // If this host has taken it over, that alone changed nothing that it would report.
        let here = front.sessions.get(id).map(|entry| entry.view().summary.clone());
        if let (None, Some(live)) = (&here, lists.get(session)) {
            live.show(&mut row);
        }
        if let Some(frame) = changed(session, &fields_of(here.as_deref().unwrap_or(&row))) {
            front.core.fanout.notify_clients(uri::ROOT, frame);
        }
    }

    /// Reports the rows of the sessions of a host, because the link to it ended: what it reported last may be missing.
    pub(super) fn forget_rows(self: &Arc<Self>, link: &Link) {
        let mut lost = Vec::new();
        self.lists.0.lock().retain(|session, live| {
            let stays = live.incarnation != link.host.incarnation;
            if !stays && lost.len() < READ_AGAIN {
                lost.push(session.clone());
            }
            stays
        });
        let relay = self.clone();
        tokio::spawn(async move {
            for session in lost {
                relay.report_row(&session).await;
            }
        });
    }

    /// Adds to the rows of a listing what other hosts reported.
    pub(in crate::front) fn show_rows(&self, front: &Front, rows: &mut [SessionSummary]) {
        let mut lists = self.lists.0.lock();
        for row in rows {
            if !lists.contains_key(&row.resource) {
                continue;
            }
            match front.sessions.by_uri(&row.resource) {
                // This host has taken it over.
                Some(_) => drop(lists.remove(&row.resource)),
                None => lists[&row.resource].show(row),
            }
        }
    }
}
