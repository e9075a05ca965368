//! The links in messages. A link is a random token of which only a hash is stored; it answers one request as one user,
//! once, and expires. The final state of a link is stored for some time, so that its page can show it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ostler_contract::points::{RecordStore, StoredCollection};
use ostler_contract::{JsonObject, Secret, Thrown, Value, json, limit};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;
use tokio::sync::OnceCell;

/// The host's collection of links.
pub const COLLECTION: &str = "notify-links";
/// Maximum number of stored links.
pub const MOST: usize = 2_000;
/// How long an expired or finished link stays stored.
const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The length of a token, in bytes.
const TOKEN: usize = 32;

/// The principal that a link answers as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answerer {
    /// A user of the users file.
    User(String),
    /// The host itself, which owns the session.
    Host,
    /// No user, on a host without a users file.
    Nobody,
}

/// The request that a link answers, and the answerer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The rule that sent it.
    pub rule: String,
    /// The session's URI.
    pub session: String,
    /// The chat's URI.
    pub chat: String,
    /// The request's id in the session.
    pub request: String,
    /// The principal it answers as.
    pub answerer: Answerer,
}

/// The state of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It waits for an answer.
    Open,
    /// It was used.
    Used,
    /// The request was answered elsewhere, or its turn ended.
    Elsewhere,
    /// The host restarted, which ended the turn.
    Ended,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Used => "used",
            Self::Elsewhere => "elsewhere",
            Self::Ended => "ended",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Open, Self::Used, Self::Elsewhere, Self::Ended].into_iter().find(|state| state.word() == word)
    }
}

/// A link to one request.
#[derive(Debug)]
pub struct Link {
    /// Its id, the first part of its path.
    pub id: String,
    /// The request that it answers.
    pub bound: Bound,
    /// When it expires.
    pub until: Timestamp,
    hash: [u8; 32],
    state: Mutex<State>,
    /// Locked during an answer.
    pub answering: tokio::sync::Mutex<()>,
}

impl Link {
    pub fn state(&self) -> State {
        *self.state.lock()
    }

    pub fn has_expired(&self, now: Timestamp) -> bool {
        now >= self.until
    }

    /// Whether a token belongs to this link, compared in constant time.
    fn is(&self, token: &str) -> bool {
        hash(token).ct_eq(&self.hash).into()
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.state() != State::Open || self.has_expired(now)
    }

    fn record(&self) -> JsonObject {
        let Bound { rule, session, chat, request, answerer } = &self.bound;
        let user = match answerer {
            Answerer::User(user) => json!({ "user": user }),
            Answerer::Host => "host".into(),
            Answerer::Nobody => Value::Null,
        };
        let record = json!({
            "id": self.id, "rule": rule, "session": session, "chat": chat, "request": request, "as": user,
            "hash": hex::encode(self.hash), "until": self.until.to_string(), "state": self.state().word(),
        });
        match record {
            Value::Object(record) => record,
            _ => JsonObject::new(),
        }
    }

    fn read(record: &JsonObject) -> Option<Self> {
        let text = |field: &str| record.get(field).and_then(Value::as_str).map(str::to_owned);
        let answerer = match record.get("as") {
            Some(Value::Object(of)) => Answerer::User(of.get("user")?.as_str()?.to_owned()),
            Some(Value::String(_)) => Answerer::Host,
            _ => Answerer::Nobody,
        };
        let state = State::of(&text("state")?)?;
        Some(Self {
            id: text("id")?,
            bound: Bound {
                rule: text("rule")?,
                session: text("session")?,
                chat: text("chat")?,
                request: text("request")?,
                answerer,
            },
            until: text("until")?.parse().ok()?,
            hash: bytes(&text("hash")?)?,
            // A turn, and with it its requests, ends with the host that ran it.
            state: Mutex::new(if state == State::Open { State::Ended } else { state }),
            answering: tokio::sync::Mutex::default(),
        })
    }
}

/// A new link with its token.
#[derive(Debug)]
pub struct Made {
    pub link: Arc<Link>,
    /// Its path below [`super::PATH`].
    pub path: Secret<String>,
}

#[derive(Debug, Default)]
pub struct Links {
    known: Mutex<HashMap<String, Arc<Link>>>,
    stored: OnceCell<StoredCollection>,
}

impl Links {
    /// Loads the links of an earlier start.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn load(&self, store: &RecordStore) -> Result<(), Thrown> {
        let stored = self.collection(store).await?;
        let records = stored.list.read(limit::STORE_SCAN, ()).await.known()?;
        let mut known = self.known.lock();
        for link in records.iter().filter_map(Link::read) {
            known.entry(link.id.clone()).or_insert_with(|| Arc::new(link));
        }
        Ok(())
    }

    async fn collection(&self, store: &RecordStore) -> Result<&StoredCollection, Thrown> {
        let asked = || (COLLECTION.to_owned(), Default::default());
        let open = || async { store.collection.read(limit::STORE, asked()).await.known() };
        Ok(self.stored.get_or_try_init(open).await?)
    }

    /// Creates and stores a link; the store receives no token.
    ///
    /// # Errors
    /// There are too many open links, or the link cannot be stored.
    pub async fn make(
        &self,
        store: &RecordStore,
        bound: Bound,
        (now, until): (Timestamp, Timestamp),
    ) -> Result<Made, String> {
        self.make_room(store, now).await?;
        let mut token = [0; TOKEN];
        SystemRandom::new().fill(&mut token).map_err(|_| "the system has no random numbers".to_owned())?;
        let token = URL_SAFE_NO_PAD.encode(token);
        let link = Arc::new(Link {
            id: format!("n{}", uuid::Uuid::new_v4().simple()),
            bound,
            until,
            hash: hash(&token),
            state: Mutex::new(State::Open),
            answering: tokio::sync::Mutex::default(),
        });
        self.known.lock().insert(link.id.clone(), link.clone());
        if let Err(why) = self.store(store, &link).await {
            self.known.lock().remove(&link.id);
            return Err(format!("the link could not be stored: {}", why.message));
        }
        let path = Secret::new(format!("{}/{token}", link.id));
        Ok(Made { link, path })
    }

    /// Removes links that ended long ago and, if there are still too many, the oldest of the ended ones.
    async fn make_room(&self, store: &RecordStore, now: Timestamp) -> Result<(), String> {
        let old = now.checked_sub(REMEMBERED).unwrap_or(now);
        let removed: Vec<String> = {
            let mut known = self.known.lock();
            let mut over: Vec<(Timestamp, String)> = known
                .values()
                .filter(|link| link.is_over(now))
                .map(|link| (link.until, link.id.clone()))
                .collect();
            over.sort();
            let surplus = (known.len() + 1).saturating_sub(MOST);
            let removed = over.into_iter().enumerate();
            let removed: Vec<String> = removed
                .filter(|(at, (until, _))| *at < surplus || *until < old)
                .map(|(_, (_, id))| id)
                .collect();
            removed.iter().for_each(|id| drop(known.remove(id)));
            if known.len() >= MOST {
                return Err(format!("{MOST} links wait for answers already"));
            }
            removed
        };
        for id in removed {
            if let Ok(stored) = self.collection(store).await {
                let _ = stored.remove.within(limit::STORE, (id,)).await;
            }
        }
        Ok(())
    }

    /// Removes a link that is in no message. One that cannot be removed from the store ends with the host.
    pub async fn forget(&self, store: &RecordStore, link: &Link) {
        self.known.lock().remove(&link.id);
        if let Ok(stored) = self.collection(store).await {
            let _ = stored.remove.within(limit::STORE, (link.id.clone(),)).await;
        }
    }

    /// Returns the link of a path: `<id>/<token>`.
    pub fn find(&self, path: &str) -> Option<Arc<Link>> {
        let (id, token) = path.split_once('/')?;
        let link = self.known.lock().get(id).cloned();
        link.filter(|link| link.is(token))
    }

    /// Returns the open links of a request.
    pub fn open_of(&self, session: &str, request: &str) -> Vec<Arc<Link>> {
        let known = self.known.lock();
        let of = |link: &&Arc<Link>| {
            link.bound.session == session && link.bound.request == request && link.state() == State::Open
        };
        known.values().filter(of).cloned().collect()
    }

    /// Changes the state of a link and stores it. Returns `false` if the link is not in the state `from`; a link that
    /// has ended stays so.
    ///
    /// # Errors
    /// The change could not be stored; the link has its previous state.
    pub async fn change(
        &self,
        store: &RecordStore,
        link: &Arc<Link>,
        from: State,
        to: State,
    ) -> Result<bool, Thrown> {
        {
            let mut state = link.state.lock();
            if *state != from {
                return Ok(false);
            }
            *state = to;
        }
        match self.store(store, link).await {
            Ok(()) => Ok(true),
            Err(why) => {
                *link.state.lock() = from;
                Err(why)
            }
        }
    }

    async fn store(&self, store: &RecordStore, link: &Link) -> Result<(), Thrown> {
        self.collection(store).await?.put.within(limit::STORE, (link.record(),)).await
    }
}

fn hash(token: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

fn bytes(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(request: &str) -> Bound {
        Bound {
            rule: "one".to_owned(),
            session: "echo:/s".to_owned(),
            chat: "echo:/s/chat".to_owned(),
            request: request.to_owned(),
            answerer: Answerer::User("ada".to_owned()),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[tokio::test]
    async fn a_link_is_stored_without_its_token_and_found_with_it_alone() {
        let store = ostler_ports::memory_records();
        let links = Links::default();
        let made = links.make(&store, bound("r"), (at(0), at(60))).await.unwrap();
        let path = made.path.reveal().clone();
        let (id, token) = path.split_once('/').unwrap();
        assert!(token.len() >= 43 && links.find(&path).is_some());
        for wrong in [id, token, &format!("{id}/"), &format!("{id}/x{token}"), &format!("x/{token}"), ""] {
            assert!(links.find(wrong).is_none(), "{wrong}");
        }
        let collection = links.collection(&store).await.unwrap();
        let records = collection.list.read(limit::STORE, ()).await.known().unwrap();
        assert_eq!(records.len(), 1);
        assert!(!json!(records).to_string().contains(token));
        assert!(!format!("{made:?} {links:?}").contains(token));

        // After a restart the turn has ended, and the link has that state.
        let again = Links::default();
        again.load(&store).await.unwrap();
        let link = again.find(&path).unwrap();
        assert_eq!((link.state(), &link.bound), (State::Ended, &bound("r")));
    }

    #[tokio::test]
    async fn a_link_changes_once() {
        let store = ostler_ports::memory_records();
        let links = Links::default();
        let made = links.make(&store, bound("r"), (at(0), at(60))).await.unwrap();
        let change = |to| links.change(&store, &made.link, State::Open, to);
        let (one, two) = tokio::join!(change(State::Used), change(State::Elsewhere));
        assert_eq!((one.unwrap(), two.unwrap()), (true, false));
        assert!(links.open_of("echo:/s", "r").is_empty());
        assert!(made.link.has_expired(at(60)) && !made.link.has_expired(at(59)));
    }

    #[tokio::test]
    async fn links_that_are_over_make_room_and_those_that_wait_do_not() {
        let store = ostler_ports::memory_records();
        let links = Links::default();
        let first = links.make(&store, bound("first"), (at(0), at(1))).await.unwrap();
        for number in 1..MOST {
            links.make(&store, bound(&number.to_string()), (at(0), at(600))).await.unwrap();
        }
        assert!(links.make(&store, bound("x"), (at(0), at(600))).await.unwrap_err().contains("2000 links"));
        assert!(links.find(first.path.reveal()).is_some());
        links.make(&store, bound("x"), (at(2), at(600))).await.unwrap();
        assert!(links.find(first.path.reveal()).is_none());
    }
}
