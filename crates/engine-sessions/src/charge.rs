//! Charges the usage of a session's turns.

use futures::FutureExt as _;
use futures::future::OptionFuture;
use jiff::{SignedDuration, Timestamp};
use ostler_contract::limit;
use ostler_contract::points::{KeptTurn, UsageCost, UsageEntry, UsageQuery};
use ostler_engine_core::clock::iso;
use ostler_engine_users::usage::{Taken, UsagePer};
use ostler_engine_users::users::access::ChargedTo;
use ostler_protocol::wire::state::{Message, UsageInfo};

use super::SessionEntry;
use super::actor::Actor;
use super::store_writes::kept;
use crate::Sessions;

/// How many of the latest entries are searched for those of a broken turn. Sessions with such turns wake after the start of the host.
const LATEST_ENTRIES: u64 = 10_000;
/// By how much the clock may have been set back since the turn started.
const SET_BACK: SignedDuration = SignedDuration::from_hours(1);

impl Actor {
    /// Records the usage of a chat's latest turn, if usage is recorded per turn.
    pub(super) fn charge_turn(&self, at: usize) -> impl Future<Output = ()> + Send + use<> {
        let turn = self.chats[at].state.turns.last();
        self.charge_whole(at, turn.map(|turn| (turn.id.as_str(), turn.usage.as_ref(), &turn.message)), None)
    }

    /// The same for a turn that a kill of the host broke, of which something may have been charged.
    pub(super) fn charge_broken(
        &self,
        at: usize,
        charged: &Taken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let turn = self.chats[at].state.turns.last();
        let turn = turn.map(|turn| (turn.id.as_str(), turn.usage.as_ref(), &turn.message));
        self.charge_whole(at, turn, Some(charged.clone()))
    }

    /// The same for a chat's running turn, which the end of the host breaks.
    pub(super) fn charge_running(&self, at: usize) -> impl Future<Output = ()> + Send + use<> {
        let turn = self.chats[at].state.active_turn.as_ref();
        self.charge_whole(at, turn.map(|turn| (turn.id.as_str(), turn.usage.as_ref(), &turn.message)), None)
    }

    fn charge_whole(
        &self,
        at: usize,
        turn: Option<(&str, Option<&UsageInfo>, &Message)>,
        before: Option<Taken>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let turn = turn.filter(|_| self.core.options.usage.per == UsagePer::Turn);
        let charged = turn.and_then(|(turn, usage, message)| {
            let usage = usage?;
            self.log_implausible(usage);
            let taken = Taken::read(usage);
            let added = match before.or_else(|| self.chats[at].charged.as_deref().map(Taken::read)) {
                Some(before) => taken.since(&before),
                None => taken,
            };
            self.charge(at, turn, added, message)
        });
        OptionFuture::from(charged).map(drop)
    }

    /// Records the usage that a report of the running turn adds, if usage is recorded per report.
    pub(super) async fn charge_report(&mut self, at: usize, usage: &UsageInfo) {
        if self.core.options.usage.per != UsagePer::Report {
            return;
        }
        let Some(active) = &self.chats[at].state.active_turn else { return };
        let (turn, message) = (active.id.clone(), active.message.clone());
        self.log_implausible(usage);
        let taken = Taken::read(usage);
        let before = self.chats[at].counted.take().filter(|before| before.0 == turn).map(|before| before.1);
        let added = taken.since(&before.unwrap_or_default());
        self.chats[at].counted = Some(Box::new((turn.clone(), taken)));
        if let Some(charged) = self.charge(at, &turn, added, &message) {
            self.stored(charged).await;
        }
    }

    fn log_implausible(&self, usage: &UsageInfo) {
        if Taken::is_implausible(usage) {
            self.core.log.warn(format_args!(
                "{}: backend {} reported a cost that is negative or more than {:e}; it is not recorded",
                self.entry.uri,
                self.entry.provider,
                UsageCost::MOST
            ));
        }
    }

    fn charge(
        &self,
        at: usize,
        turn: &str,
        taken: Taken,
        message: &Message,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.sessions.usage.usage_store()?;
        let model = || message.model.as_ref().map_or_else(|| "default".to_owned(), |model| model.id.clone());
        let entry = taken.entry(model)?;
        let ChargedTo { team, project } = self.sessions.charged_to(&self.entry);
        let entry = UsageEntry {
            owner: Some(self.sessions.pays_for(&self.entry)),
            team,
            project,
            session: Some(self.entry.uri.clone()),
            chat: Some(self.chats[at].uri.clone()),
            turn: Some(turn.to_owned()),
            agent: Some(self.entry.provider.clone()),
            ..entry
        };
        let (sessions, uri) = (self.sessions.clone(), self.entry.uri.clone());
        // Before what the caller stores next.
        let record = sessions.usage.record_use(entry);
        Some(async move {
            kept(&sessions.core.log, &format!("the usage of a turn of {uri}"), record).await;
        })
    }
}

impl Sessions {
    /// Returns what was charged of a turn that a kill of the host broke. Its charge and its end are two writes, so the host can
    /// have been killed between them.
    pub(super) async fn charged_before(&self, entry: &SessionEntry, chat: &str, broken: &KeptTurn) -> Taken {
        let known = broken.charged_usage.as_ref().map(Taken::read).unwrap_or_default();
        if broken.turn.usage.is_none() || self.core.options.usage.per != UsagePer::Turn {
            return known;
        }
        let Some(store) = self.usage.usage_store() else { return known };
        let started = broken.turn.started_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
        let query = UsageQuery {
            pool: Some(self.pays_for(entry)),
            from: started.and_then(|at| at.checked_sub(SET_BACK).ok()).map(iso),
            until: None,
            limit: Some(LATEST_ENTRIES),
        };
        let entries = store.records.read(limit::STORE, (query,)).await.or_assume(
            Vec::new(),
            "a store that cannot be read rarely takes the charge either",
            |why| {
                let uri = &entry.uri;
                self.core.log.warn(format_args!(
                    "{uri}: whether a turn that a stop of the host broke is charged could not be read, so it may be charged twice: {why}"
                ));
            },
        );
        let of_turn = entries.iter().filter(|entry| {
            entry.turn.as_ref() == Some(&broken.turn.id) && entry.chat.as_deref() == Some(chat)
        });
        of_turn.map(Taken::charged).fold(Taken::default(), Taken::plus).at_least(known)
    }

    /// Returns who is charged for a session's work: its owner, or the host.
    fn pays_for(&self, entry: &SessionEntry) -> String {
        entry.owner.clone().unwrap_or_else(|| format!("root:{}", self.core.options.host_name))
    }

    /// Returns the team and project that a session is charged to.
    pub fn charged_to(&self, entry: &SessionEntry) -> ChargedTo {
        self.access.charged_to(entry.owner.as_deref(), entry.scope.as_ref())
    }
}
