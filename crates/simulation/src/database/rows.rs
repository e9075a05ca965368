//! The rows of sessions.

use std::collections::{BTreeMap, BTreeSet};

use ostler_contract::points::{
    KeptAttachment, KeptChat, KeptSession, KeptTurn, ListedPlace, SessionFlags, StoredSession,
};
use ostler_contract::{JsonObject, Value};

/// Default chats with the host's URI, which are not looked up by it.
const DEFAULT_CHAT: &str = "ahp-chat://default/";

/// What is stored of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionRow {
    number: u64,
    /// Its record.
    pub kept: Option<KeptSession>,
    /// Its marks.
    pub flags: Option<SessionFlags>,
    /// Its artifacts.
    pub artifacts: Vec<Value>,
    /// Its pull requests.
    pub pull_requests: JsonObject,
    /// Titles of its chats.
    pub titles: BTreeMap<String, String>,
    /// Its chats.
    pub chats: Vec<KeptChat>,
    /// Its turns by chat and place.
    pub turns: BTreeMap<(String, u64), KeptTurn>,
    /// Its annotations.
    pub annotations: Vec<Value>,
    /// What its backend reported.
    pub reported: JsonObject,
    /// Its attachments.
    pub attachments: BTreeMap<String, KeptAttachment>,
}

/// All sessions.
#[derive(Debug, Default)]
pub struct SessionRows {
    rows: BTreeMap<String, SessionRow>,
    last: u64,
    /// Every title that was stored, by the URI of its session.
    titles: BTreeSet<(String, String)>,
}

impl SessionRows {
    /// Returns a session, which may have no record.
    pub fn get(&self, id: &str) -> Option<&SessionRow> {
        self.rows.get(id)
    }

    /// Returns a session; creates it if there is none.
    pub fn of(&mut self, id: &str) -> &mut SessionRow {
        self.rows.entry(id.to_owned()).or_default()
    }

    /// Stores the record of a session.
    pub fn set_kept(&mut self, id: &str, kept: KeptSession) {
        self.last += 1;
        self.titles.insert((kept.uri.clone(), kept.title.clone()));
        let number = self.last;
        let row = self.of(id);
        if row.kept.is_none() {
            row.number = number;
        }
        row.kept = Some(kept);
    }

    /// Removes a session.
    pub fn remove(&mut self, id: &str) {
        self.rows.remove(id);
    }

    /// Returns whether a session ever had a title.
    pub fn had_title(&self, session: &str, title: &str) -> bool {
        self.titles.contains(&(session.to_owned(), title.to_owned()))
    }

    /// Returns whether a session has a record.
    pub fn is_stored(&self, id: &str) -> bool {
        self.rows.get(id).is_some_and(|row| row.kept.is_some())
    }

    /// Returns the sessions with a record in the order in which they were stored first.
    pub fn stored(&self) -> Vec<(&String, &SessionRow)> {
        let mut stored: Vec<_> = self.rows.iter().filter(|(_, row)| row.kept.is_some()).collect();
        stored.sort_by_key(|(_, row)| row.number);
        stored
    }

    /// Returns a page of the listing.
    pub fn page(&self, limit: u64, after: Option<&ListedPlace>) -> Vec<StoredSession> {
        let mut listed: Vec<StoredSession> =
            self.stored().into_iter().map(|(id, row)| row.listed(id)).collect();
        listed.retain(|one| one.session.draft.is_none());
        listed.sort_by(|one, other| {
            let times = other.session.modified_at.cmp(&one.session.modified_at);
            times.then_with(|| one.session.uri.cmp(&other.session.uri))
        });
        listed.retain(|one| {
            after.is_none_or(|after| {
                one.session.modified_at < after.modified_at
                    || one.session.modified_at == after.modified_at && one.session.uri > after.uri
            })
        });
        listed.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        listed
    }

    /// Returns the first session with an open chat.
    pub fn of_chat(&self, chat: &str) -> Option<String> {
        let has = |row: &SessionRow| {
            row.chats.iter().any(|one| !one.closed && one.uri == chat && !one.uri.starts_with(DEFAULT_CHAT))
        };
        self.stored().into_iter().find(|(_, row)| has(row)).map(|(id, _)| id.clone())
    }

    /// Returns an attachment of any session.
    pub fn attachment(&self, id: &str) -> Option<KeptAttachment> {
        self.rows.values().find_map(|row| row.attachments.get(id).cloned())
    }
}

impl SessionRow {
    /// Returns the session as listings contain it.
    pub fn listed(&self, id: &str) -> StoredSession {
        StoredSession {
            id: id.to_owned(),
            session: self.kept.clone().unwrap_or_default(),
            flags: self.flags.unwrap_or_default(),
            chats: Some(self.chats.clone()),
        }
    }
}
