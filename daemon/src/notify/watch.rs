//! Follows the requests of sessions. After the time that a rule allows for an answer, a message is sent. It is retried
//! until the target accepts it, the request is answered, or its link expires.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::owner::Owner;
use ostler_contract::points::RecordStore;
use ostler_contract::read::Read;
use ostler_engine::Principal;
use ostler_engine::sessions::InputChange;
use ostler_protocol::grants::Grant;
use ostler_protocol::origins::WayIn;
use ostler_protocol::uri;
use ostler_protocol::wire::state::SessionStatus;
use ostler_telemetry::printable::one_line;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::client::Client;
use super::links::{Answerer, Bound, State};
use super::request::Request;
use super::rules::{Facts, Rule, Rules};
use super::send::Message;
use super::{Notify, PATH};

/// A session and the id of a request in it.
pub(super) type Key = (String, String);

/// Maximum number of requests that are followed.
/// The pauses before the bots of a session are read again.
const READ_AGAIN: &[Duration] = &[Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];
const MOST: usize = 1_000;
/// The interval at which requests of ended sessions are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Maximum number of attempts to send a message.
const TRIES: u32 = 10;
/// The delay after the first failure; it doubles after each further one.
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// The longest delay between two attempts.
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// A pending request.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The ids of the rules that send a message about it.
    rules: HashSet<String>,
    /// Since when it is followed.
    since: Instant,
    /// Closed when the request no longer waits.
    alive: watch::Sender<()>,
}

/// Closed when the request no longer waits; until then a message may be sent.
type Alive = watch::Receiver<()>;

async fn ended(alive: &mut Alive) {
    while alive.changed().await.is_ok() {}
}

/// How a pause ended.
enum Paused {
    /// The time is over.
    Over,
    /// The request no longer waits.
    Withdrawn,
    /// The rule was edited or removed.
    Edited,
}

/// What came of a message.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It was sent, or the request no longer waits.
    Done,
    /// It was not sent, and an edited rule may still send one.
    Unsent,
    /// Its rule was edited or removed before it was sent.
    Edited,
}

/// Follows the requests of sessions for as long as the host runs.
pub(super) async fn follow(
    notify: Arc<Notify>,
    mut changes: Receiver<InputChange>,
    mut edits: watch::Receiver<Arc<Rules>>,
) {
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            change = changes.recv() => match change {
                Ok(InputChange::Asked { session, id }) => notify.asked(session, id),
                Ok(InputChange::Withdrawn { session, id }) => notify.withdrawn(session, id),
                // Some changes were missed, so all pending requests are read again.
                Err(RecvError::Lagged(_)) => drop(tokio::spawn(scan(notify.clone()))),
                Err(RecvError::Closed) => return,
            },
            Ok(()) = edits.changed() => drop(tokio::spawn(scan(notify.clone()))),
            _ = sweep.tick() => notify.sweep(),
        }
    }
}

/// Reads the requests of every session that waits for input.
async fn scan(notify: Arc<Notify>) {
    if notify.rules().0.is_empty() {
        return;
    }
    let waits = |status: u32| status & SessionStatus::InputNeeded.bits() == SessionStatus::InputNeeded.bits();
    let sessions = notify.host.sessions.all().into_iter();
    let sessions: Vec<String> = sessions
        .filter(|entry| entry.is_awake() && waits(entry.view().summary.status))
        .map(|entry| entry.uri.clone())
        .collect();
    for session in sessions {
        let root = notify.host.access.gate.root();
        let Ok(mut client) = Client::open(&notify.host.front, root, WayIn::NotificationLink).await else {
            return;
        };
        let Ok(now) = client.session(&session).await else { continue };
        for request in now.requests {
            notify.asked(session.clone(), request.id);
        }
    }
}

impl Notify {
    /// Handles a new request of a session.
    fn asked(self: &Arc<Self>, session: String, id: String) {
        if self.rules().0.is_empty() {
            return;
        }
        let (alive, since) = {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= MOST && !waiting.contains_key(&(session.clone(), id.clone())) {
                self.log().warn(format_args!(
                    "no message is sent about a request of {session}: {MOST} others wait for answers"
                ));
                return;
            }
            let entry = waiting.entry((session.clone(), id.clone())).or_insert_with(|| Waiting {
                rules: HashSet::new(),
                since: Instant::now(),
                alive: watch::Sender::new(()),
            });
            (entry.alive.subscribe(), entry.since)
        };
        let notify = self.clone();
        tokio::spawn(async move { notify.match_rules((session, id), since, alive).await });
    }

    /// Handles a request that no longer waits.
    fn withdrawn(self: &Arc<Self>, session: String, id: String) {
        self.waiting.lock().remove(&(session.clone(), id.clone()));
        for link in self.links.open_of(&session, &id) {
            let notify = self.clone();
            tokio::spawn(async move {
                if let Err(why) = notify.change(&link, State::Open, State::Elsewhere).await {
                    let rule = &link.bound.rule;
                    notify.log().warn(format_args!(
                        "notify rule {rule}: that a link is over could not be stored: {why}"
                    ));
                }
            });
        }
    }

    /// Removes the requests of sessions that have ended.
    fn sweep(self: &Arc<Self>) {
        let keys: Vec<Key> = self.waiting.lock().keys().cloned().collect();
        for (session, id) in keys {
            let awake = self.host.sessions.by_uri(&session).is_some_and(|entry| entry.is_awake());
            if !awake {
                self.withdrawn(session, id);
            }
        }
    }

    /// Sends a message about a request for each matching rule that has sent none yet.
    async fn match_rules(self: &Arc<Self>, (session, id): Key, since: Instant, alive: Alive) {
        let Some((facts, run)) = self.facts(&session).await else { return };
        let rules = self.rules();
        for rule in rules.about(&facts) {
            let first = {
                let mut waiting = self.waiting.lock();
                let entry = waiting.get_mut(&(session.clone(), id.clone()));
                entry.is_some_and(|entry| entry.rules.insert(rule.id.to_string()))
            };
            if first {
                let (notify, rule, facts, run) = (self.clone(), rule.clone(), facts.clone(), run.clone());
                let (key, mut alive) = ((session.clone(), id.clone()), alive.clone());
                tokio::spawn(async move {
                    let outcome = notify.notify(&rule, key.clone(), (facts, run), since, &mut alive).await;
                    if let Err(why) = &outcome {
                        notify.log().warn(format_args!("notify rule {}: {why}", rule.id));
                    }
                    if outcome == Ok(Outcome::Done) {
                        return;
                    }
                    let waits =
                        notify.waiting.lock().get_mut(&key).map(|entry| entry.rules.remove(&*rule.id));
                    if waits.is_some() && outcome == Ok(Outcome::Edited) {
                        let (session, id) = key;
                        notify.asked(session, id);
                    }
                });
            }
        }
    }

    /// Returns the facts by which rules select a session, and the run that started it.
    async fn facts(&self, session: &str) -> Option<(Facts, Option<String>)> {
        let entry = self.host.sessions.by_uri(session)?;
        let origin = |name: &str| entry.origin.as_ref()?.get(name)?.as_str().map(str::to_owned);
        let automation =
            origin("automation").map(|name| uri::automation_id(&name).unwrap_or(&name).to_owned());
        let bots = match (self.rules().name_bots(), self.host.core.record_store()) {
            (true, Some(store)) => self.bots_of(store, session).await,
            _ => Vec::new(),
        };
        Some((Facts { owner: entry.owner.clone(), automation, bots }, origin("run")))
    }

    /// Reads the bots of a session. A message that a rule for a bot would send must not be lost to a store that is away
    /// for a moment.
    async fn bots_of(&self, store: &RecordStore, session: &str) -> Vec<String> {
        for pause in READ_AGAIN {
            if let Read::Known(bots) = ostler_plugin_bot::bots_of(store, session).await {
                return bots;
            }
            tokio::time::sleep(*pause).await;
        }
        let bots = ostler_plugin_bot::bots_of(store, session).await;
        bots.or_assume(Vec::new(), "the rules that name no bot still apply", |why| {
            let log = &self.host.core.log;
            log.warn(format_args!(
                "{session}: its bots could not be read, so that rules for bots do not apply: {why}"
            ));
        })
    }

    /// Waits for a time, as long as the request waits and the rule is in force.
    async fn pause(&self, rule: &Rule, alive: &mut Alive, time: Duration) -> Paused {
        let mut rules = self.rules.subscribe();
        let is_edited = |rules: &Arc<Rules>| rules.get(&rule.id).is_none_or(|now| **now != *rule);
        tokio::select! {
            biased;
            () = ended(alive) => Paused::Withdrawn,
            Ok(_) = rules.wait_for(is_edited) => Paused::Edited,
            () = tokio::time::sleep(time) => Paused::Over,
        }
    }

    /// Waits for an answer to a request that is followed since a time, and then sends a message about it.
    async fn notify(
        self: &Arc<Self>,
        rule: &Rule,
        (session, id): Key,
        (facts, run): (Facts, Option<String>),
        since: Instant,
        alive: &mut Alive,
    ) -> Result<Outcome, String> {
        match self.pause(rule, alive, rule.after.saturating_sub(since.elapsed())).await {
            Paused::Over => {}
            Paused::Withdrawn => return Ok(Outcome::Done),
            Paused::Edited => return Ok(Outcome::Edited),
        }
        let found = self.request(&session, &id).await;
        let Some((title, request)) = found.filter(|(_, request)| rule.kinds.contains(&request.kind())) else {
            return Ok(Outcome::Unsent);
        };
        let answerer = self.answerer(rule, facts.owner.as_deref(), &session)?;
        let now = self.now();
        let until = now.checked_add(rule.expires).unwrap_or(now);
        let bound = Bound {
            rule: rule.id.to_string(),
            session: session.clone(),
            chat: request.chat.clone(),
            request: id,
            answerer: answerer.clone(),
        };
        let made = self.links.make(self.store().map_err(|why| why.message)?, bound, (now, until)).await?;
        let message = Message {
            id: made.link.id.clone(),
            rule: rule.id.to_string(),
            now: now.as_second(),
            is_test: false,
            title: if title.is_empty() { session.clone() } else { one_line(&title) },
            chat: request.chat.clone(),
            kind: request.kind(),
            asks: request.line(),
            request: request.id,
            facts,
            run,
            user: match answerer {
                Answerer::User(user) => Some(user),
                Answerer::Host | Answerer::Nobody => None,
            },
            link: format!("{}{PATH}/{}", self.base, made.path.reveal()),
            expires: until,
            session,
        };
        let outcome = self.deliver(rule, message, alive).await;
        if outcome == Outcome::Edited {
            self.links.forget(self.store().map_err(|why| why.message)?, &made.link).await;
        }
        Ok(outcome)
    }

    /// Returns the current request with its session's title, or `None` if it no longer waits.
    async fn request(&self, session: &str, id: &str) -> Option<(String, Request)> {
        let root = self.host.access.gate.root();
        let mut client = Client::open(&self.host.front, root, WayIn::NotificationLink).await.ok()?;
        let now = client.session(session).await.ok()?;
        let request = now.requests.into_iter().find(|request| request.id == id)?;
        Some((now.title, request))
    }

    /// Returns the principal that a link answers as.
    fn answerer(&self, rule: &Rule, owner: Option<&str>, session: &str) -> Result<Answerer, String> {
        let gate = &self.host.access.gate;
        let Some(people) = gate.people() else { return Ok(Answerer::Nobody) };
        let user = match (&rule.user, owner.map(Owner::parse)) {
            (Some(user), _) => user.clone(),
            (None, Some(Some(Owner::User(user)))) => user.to_owned(),
            (None, Some(Some(Owner::Root(_)))) => return Ok(Answerer::Host),
            (None, None) => {
                return Err(format!("no message about {session}: it has no owner; set user in the rule"));
            }
            (None, Some(_)) => {
                return Err(format!(
                    "no message about {session}: it belongs to {}, which is not a user; set user in the rule",
                    owner.unwrap_or_default()
                ));
            }
        };
        let person = people
            .now()
            .person(&user)
            .ok_or_else(|| format!("no message about {session}: the users file has no user {user}"))?;
        let person = Principal::Person(person);
        for grant in [Grant::of("session", "state"), Grant::of("chat", "answer")] {
            gate.require(&person, &grant)
                .map_err(|why| format!("no message about {session}: {}", why.message))?;
        }
        Ok(Answerer::User(user))
    }

    /// Sends a message until the target accepts it, the message is no longer needed, or the rule is edited.
    async fn deliver(&self, rule: &Rule, mut message: Message, alive: &mut Alive) -> Outcome {
        let Some(vault) = self.host.core.vault() else {
            self.log().warn(format_args!("notify rule {}: this host has no vault", rule.id));
            return Outcome::Unsent;
        };
        let mut wait = FIRST_RETRY;
        for tried in 1..=TRIES {
            message.now = self.now().as_second();
            let sent = {
                let _place = self.sending.acquire().await;
                // The request may have been answered during the wait for a free slot.
                if alive.has_changed().is_err() {
                    return Outcome::Done;
                }
                self.sender.send(vault, rule, &message).await
            };
            let session = &message.session;
            let Err(why) = sent else {
                self.log().info(format_args!("notify rule {}: sent a message about {session}", rule.id));
                return Outcome::Done;
            };
            if tried == TRIES || self.now() >= message.expires {
                self.log().warn(format_args!(
                    "notify rule {}: the message about {session} was not sent: {why}",
                    rule.id
                ));
                return Outcome::Unsent;
            }
            self.log().warn(format_args!(
                "notify rule {}: the message about {session} was not sent: {why}; retrying in {} seconds",
                rule.id,
                wait.as_secs()
            ));
            match self.pause(rule, alive, wait).await {
                Paused::Over => {}
                Paused::Withdrawn => return Outcome::Done,
                Paused::Edited => return Outcome::Edited,
            }
            wait = (2 * wait).min(LONGEST_RETRY);
        }
        Outcome::Unsent
    }
}
