//! Charges the usage of a session's turns.

use futures::FutureExt as _;
use futures::future::OptionFuture;
use ostler_contract::points::{UsageCost, UsageEntry};
use ostler_protocol::wire::state::{Message, UsageInfo};

use super::SessionEntry;
use super::actor::Actor;
use super::store_writes::kept;
use crate::sessions::Sessions;
use crate::usage::{Taken, UsagePer};
use crate::users::access::ChargedTo;

impl Actor {
    /// Records the usage of a chat's latest turn, if usage is recorded per turn.
    pub(super) fn charge_turn(&self, at: usize) -> impl Future<Output = ()> + Send + use<> {
        let turn = self.chats[at].state.turns.last();
        self.charge_whole(at, turn.map(|turn| (turn.id.as_str(), turn.usage.as_ref(), &turn.message)))
    }

    /// The same for a chat's running turn, which the end of the host breaks.
    pub(super) fn charge_running(&self, at: usize) -> impl Future<Output = ()> + Send + use<> {
        let turn = self.chats[at].state.active_turn.as_ref();
        self.charge_whole(at, turn.map(|turn| (turn.id.as_str(), turn.usage.as_ref(), &turn.message)))
    }

    fn charge_whole(
        &self,
        at: usize,
        turn: Option<(&str, Option<&UsageInfo>, &Message)>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let turn = turn.filter(|_| self.core.options.usage.per == UsagePer::Turn);
        let charged = turn.and_then(|(turn, usage, message)| {
            let usage = usage.filter(|usage| self.chats[at].charged.as_deref() != Some(*usage))?;
            self.log_implausible(usage);
            self.charge(at, turn, Taken::read(usage), message)
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
            // Work without an owner is charged to the host.
            owner: Some(
                self.entry.owner.clone().unwrap_or_else(|| format!("root:{}", self.core.options.host_name)),
            ),
            team,
            project,
            session: Some(self.entry.uri.clone()),
            chat: Some(self.chats[at].uri.clone()),
            turn: Some(turn.to_owned()),
            agent: Some(self.entry.provider.clone()),
            ..entry
        };
        let (sessions, uri) = (self.sessions.clone(), self.entry.uri.clone());
        Some(async move {
            let record = sessions.usage.record_use(entry);
            kept(&sessions.core.log, &format!("the usage of a turn of {uri}"), record).await;
        })
    }
}

impl Sessions {
    /// Returns the team and project that a session is charged to.
    pub(crate) fn charged_to(&self, entry: &SessionEntry) -> ChargedTo {
        self.access.charged_to(entry.owner.as_deref(), entry.scope.as_ref())
    }
}
