//! Notifications: when a session waits for input, rules of `notify.yaml` send a message with a link that shows the request
//! and takes the answer of one user, once.
//!
//! `rules` reads the file and `file` follows it, `watch` follows what sessions wait for and sends messages (`send/`), `links`
//! has the links, and `serve` serves their pages (`page`). `client` reads and answers requests as any other client would.

mod client;
mod elsewhere;
mod file;
mod links;
mod page;
mod request;
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
use parking_lot::{Mutex, RwLock};
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

/// The file of the rules, in the configuration folder.
pub const FILE: &str = "notify.yaml";
/// Where links are served.
pub const PATH: &str = "/notify";

/// The last part of the link of a test message.
const TEST: &str = "test";
/// How many messages are sent at the same time.
const AT_ONCE: usize = 8;
/// How many requests for links that do not exist are answered in each period, for all callers together.
const MOST_GUESSES: u32 = 30;
/// The period in which such requests are counted.
const GUESSES_WITHIN: Duration = Duration::from_secs(60);

/// The notifications of a host.
pub struct Notify {
    host: Arc<Host>,
    links: Links,
    rules: RwLock<Arc<Rules>>,
    /// What was wrong with the file when it was read last.
    failed: Mutex<Option<String>>,
    /// The rules changed.
    changed: tokio::sync::Notify,
    /// What sessions wait for.
    waiting: Mutex<HashMap<watch::Key, watch::Waiting>>,
    /// The URL that links begin with.
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
    /// The notifications of a host, whose rules are in a folder and whose links begin with `base`. The links of an earlier
    /// start say that it ended.
    pub async fn start(host: Arc<Host>, folder: &Path, base: &str) -> Arc<Self> {
        let notify = Arc::new(Self {
            links: Links::default(),
            rules: RwLock::default(),
            failed: Mutex::default(),
            changed: tokio::sync::Notify::new(),
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
            notify.log().line(format_args!("the links of earlier messages could not be read: {why}"));
        }
        let seen = file::first(&notify, folder).await;
        // From before the first session can wait for something.
        let changes = notify.host.sessions.follow_input();
        tokio::spawn(file::follow(notify.clone(), folder.to_owned(), seen));
        tokio::spawn(watch::follow(notify.clone(), changes));
        notify
    }

    fn log(&self) -> &Log {
        &self.host.core.log
    }

    fn now(&self) -> Timestamp {
        self.host.core.clock.now()
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }

    fn set_rules(&self, rules: Rules) {
        *self.rules.write() = Arc::new(rules);
        self.changed.notify_one();
    }

    fn store(&self) -> Result<&RecordStore, Thrown> {
        self.host.core.record_store().ok_or_else(|| Thrown::new("this host has no record store"))
    }

    /// Says what became of a link; `false` where it was not `from`.
    async fn change(&self, link: &Arc<Link>, from: State, to: State) -> Result<bool, Thrown> {
        self.links.change(self.store()?, link, from, to).await
    }

    /// A request was answered with a link.
    fn answered(&self, link: &Link) {
        let links::Bound { rule, session, answerer, .. } = &link.bound;
        let by = match answerer {
            links::Answerer::User(user) => format!("user {user}"),
            links::Answerer::Host => "the host".to_owned(),
            links::Answerer::Nobody => "somebody".to_owned(),
        };
        self.log()
            .line(format_args!("notify rule {rule}: {by} answered a request of {session} with its link"));
    }
}

/// The URL that links begin with. `listens` is the URL of a daemon that runs.
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
    /// The secrets.
    pub vault: &'a Vault,
    /// What links begin with.
    pub base: &'a str,
}

impl Tester<'_> {
    /// Sends a test message as a rule says.
    ///
    /// # Errors
    /// Exit 2 where there is no such rule, 1 where the message was not taken.
    pub async fn test(&self, id: &str) -> Result<TestedRule, Exit> {
        let rules = read(self.folder).map_err(Exit::usage)?;
        let rule = rules.get(id).ok_or_else(|| {
            let hint = did_you_mean(id, rules.0.iter().map(|rule| &*rule.id));
            Exit::usage(format!("unknown rule {id} in {}{hint}", self.folder.join(FILE).display()))
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

/// How often what is no link was opened lately.
#[derive(Debug, Default)]
struct Guesses(Mutex<Option<(Instant, u32)>>);

impl Guesses {
    /// Counts one; answers whether there are too many.
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
