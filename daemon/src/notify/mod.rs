//! Notifications: when a session waits for input, rules of `notify.yaml` send a message with a link that shows the
//! request and accepts the answer of one user, once.
//!
//! `rules` reads the file and `file` follows its changes, `watch` follows the requests of sessions and sends messages
//! (`send/`), `links` stores the links, and `serve` serves their pages (`page`). `client` reads and answers requests as
//! any other client would.

pub(crate) mod client;
pub(crate) mod elsewhere;
mod file;
mod links;
mod page;
pub(crate) mod request;
pub mod rules;
pub mod send;
mod serve;
mod watch;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ostler_contract::Thrown;
use ostler_contract::points::{RecordStore, Vault};
use ostler_engine::{Host, Log};
use ostler_protocol::nearest::did_you_mean;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use file::read;
pub use serve::mount;

use links::{Link, Links, State};
use rules::{Rules, Target};
use send::{Message, Sender};

use crate::api::page_shapes::TestedRule;
use crate::exit::Exit;
use crate::settings::Settings;

/// The name of the rules file in the configuration folder.
pub const FILE: &str = "notify.yaml";
/// The path under which links are served.
pub const PATH: &str = "/notify";

/// The last part of the link in a test message.
const TEST: &str = "test";
/// How many messages are sent concurrently.
const AT_ONCE: usize = 8;
/// How many requests for links that do not exist are answered in each period, for all callers together.
const MOST_GUESSES: u32 = 30;
/// The length of that period.
const GUESSES_WITHIN: Duration = Duration::from_secs(60);

/// The notifications of a host.
pub struct Notify {
    host: Arc<Host>,
    links: Links,
    rules: tokio::sync::watch::Sender<Arc<Rules>>,
    /// The error of the last read of the file.
    failed: Mutex<Option<String>>,
    /// The pending requests of sessions.
    waiting: Mutex<HashMap<watch::Key, watch::Waiting>>,
    /// The base URL of links.
    base: String,
    sender: Sender,
    sending: Semaphore,
    guesses: Guesses,
}

impl std::fmt::Debug for Notify {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Notify")
    }
}

impl Notify {
    /// Starts the notifications of a host. The rules are in `folder`, and links begin with `base`. Links of an earlier
    /// start have ended.
    pub async fn start(host: Arc<Host>, folder: &Path, base: &str) -> Arc<Self> {
        let notify = Arc::new(Self {
            links: Links::default(),
            rules: tokio::sync::watch::Sender::default(),
            failed: Mutex::default(),
            waiting: Mutex::default(),
            base: base.trim_end_matches('/').to_owned(),
            sender: Sender::default(),
            sending: Semaphore::new(AT_ONCE),
            guesses: Guesses::default(),
            host,
        });
        if let Some(store) = notify.host.core.record_store()
            && let Err(why) = notify.links.load(store).await
        {
            notify.log().warn(format_args!("the links of earlier messages could not be read: {why}"));
        }
        let edits = notify.rules.subscribe();
        let seen = file::first(&notify, folder).await;
        // Subscribe before the first session can wait for input.
        let changes = notify.host.sessions.follow_input();
        tokio::spawn(file::follow(notify.clone(), folder.to_owned(), seen));
        tokio::spawn(watch::follow(notify.clone(), changes, edits));
        notify
    }

    fn log(&self) -> &Log {
        &self.host.core.log
    }

    fn now(&self) -> Timestamp {
        self.host.core.clock.now()
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.borrow().clone()
    }

    fn set_rules(&self, rules: Rules) {
        self.rules.send_replace(Arc::new(rules));
    }

    fn store(&self) -> Result<&RecordStore, Thrown> {
        self.host.core.record_store().ok_or_else(|| Thrown::new("this host has no record store"))
    }

    /// Changes the state of a link; returns `false` if it is not in the state `from`.
    async fn change(&self, link: &Arc<Link>, from: State, to: State) -> Result<bool, Thrown> {
        self.links.change(self.store()?, link, from, to).await
    }

    /// Logs that a link answered a request.
    fn answered(&self, link: &Link) {
        let links::Bound { rule, session, answerer, .. } = &link.bound;
        let by = match answerer {
            links::Answerer::User(user) => format!("user {user}"),
            links::Answerer::Host => "the host".to_owned(),
            links::Answerer::Nobody => "somebody".to_owned(),
        };
        self.log()
            .info(format_args!("notify rule {rule}: {by} answered a request of {session} with its link"));
    }
}

/// Returns the base URL of links. `listens` is the URL of a running daemon.
pub fn base(settings: &Settings, listens: Option<&str>) -> Option<String> {
    let listens = listens.and_then(|url| url.strip_prefix("ws")).map(|rest| format!("http{rest}"));
    let base = settings.public_url.clone().or(listens).or_else(|| settings.base_url());
    base.map(|base| base.trim_end_matches('/').to_owned())
}

/// Sends test messages.
#[derive(Debug)]
pub struct Tester<'a> {
    /// The configuration folder.
    pub folder: &'a Path,
    /// The vault with the secrets.
    pub vault: &'a Vault,
    /// The base URL of links.
    pub base: &'a str,
}

impl Tester<'_> {
    /// Sends a test message according to a rule.
    ///
    /// # Errors
    /// Exit 2 if there is no such rule, 1 if the message was not accepted.
    pub async fn test(&self, id: &str) -> Result<TestedRule, Exit> {
        let rules = read(self.folder).map_err(Exit::usage)?;
        let rule = rules.get(id).ok_or_else(|| {
            let hint = did_you_mean(id, rules.0.iter().map(|rule| &*rule.id));
            let file = self.folder.join(FILE);
            let known: Vec<&str> = rules.0.iter().map(|rule| &*rule.id).collect();
            let known = match known.as_slice() {
                [] => "; it has no rules yet".to_owned(),
                ids if hint.is_empty() => format!("; the rules are {}", ids.join(", ")),
                _ => hint,
            };
            Exit::usage(format!("unknown rule {id} in {}{known}", file.display()))
        })?;
        let link = format!("{}{PATH}/{TEST}", self.base);
        let message = Message::test(rule, Timestamp::now(), link.clone());
        let sent = Sender::default().send(self.vault, rule, &message).await;
        sent.map_err(|why| Exit::machine(format!("rule {id}: the message was not sent: {why}")))?;
        let by = match rule.target {
            Target::Webhook { .. } => "webhook",
            Target::Slack { .. } => "slack",
            Target::Email(_) => "email",
        };
        Ok(TestedRule { rule: id.to_owned(), by: by.to_owned(), link })
    }
}

/// How many requests for links that do not exist arrived in the current period.
#[derive(Debug, Default)]
struct Guesses(Mutex<Option<(Instant, u32)>>);

impl Guesses {
    /// Counts a request. Returns whether the limit is reached.
    fn is_over(&self) -> bool {
        let now = Instant::now();
        let mut last = self.0.lock();
        let (since, count) = last.filter(|(since, _)| now - *since < GUESSES_WITHIN).unwrap_or((now, 0));
        *last = Some((since, count.saturating_add(1)));
        count >= MOST_GUESSES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn guesses_are_counted_for_a_minute() {
        let guesses = Guesses::default();
        assert!((0..MOST_GUESSES).all(|_| !guesses.is_over()));
        assert!(guesses.is_over());
        tokio::time::advance(GUESSES_WITHIN).await;
        assert!(!guesses.is_over());
    }
}
