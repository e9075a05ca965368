//! The tables of the model, and the statements that say who may write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ostler_contract::JsonObject;
use ostler_contract::Thrown;
use ostler_contract::cluster::{ClusterEvent, ClusterHost, SessionOwner};
use ostler_contract::points::{AutomationProgress, KeptAutomation, KeptSession};
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::shared_runs::Wake;

use super::rows::SessionRows;

/// How long a lease is valid, by the clock of the database.
const LENGTH: Duration = Duration::from_secs(8);

/// The lease of a host.
#[derive(Debug, Clone)]
pub struct HostRow {
    /// The run of the host.
    pub incarnation: String,
    /// Until when the lease is valid.
    pub expires_at: Duration,
    url: Option<String>,
    version: String,
    is_member: bool,
    /// Whether the host drains.
    pub is_draining: bool,
    /// The number of its last transaction.
    batch: u64,
}

/// Who may append to a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeadRow {
    /// The run of the host that owns it.
    pub owner: Option<String>,
    /// The stable name of that host, or of the last one.
    pub owner_id: Option<String>,
    /// Changes with the owner.
    pub epoch: u64,
    /// The number of appends.
    pub head: u64,
    /// The host whose files it needs.
    pub bound_to: Option<String>,
}

/// The position of a session, as a writer knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The epoch.
    pub epoch: u64,
    /// The number of appends.
    pub position: u64,
}

/// One append to a session, for the checks at the end.
#[derive(Debug, Clone)]
pub struct Append {
    /// When it was committed.
    pub at: Duration,
    /// The session.
    pub session: String,
    /// Its epoch.
    pub epoch: u64,
    /// The position of the append.
    pub position: u64,
    /// The run of the host that wrote it.
    pub by: String,
    /// Until when the lease of that host was valid.
    pub lease: Duration,
    /// Whether it removed the session. Another one with the same name begins with epoch 1.
    pub ends: bool,
}

/// The owner of the runs of an automation.
#[derive(Debug, Clone, Default)]
pub struct RunsOwner {
    /// The run of the host.
    pub owner: Option<String>,
    /// Its id.
    pub host: Option<String>,
    /// The id of the host before it.
    pub previous: Option<String>,
}

/// A run.
#[derive(Debug, Clone)]
pub struct RunRow {
    /// The order of runs.
    pub number: u64,
    /// The automation.
    pub automation: String,
    /// What must start only one run.
    pub cause: Option<String>,
    /// Whether it has ended.
    pub is_ended: bool,
    /// The run.
    pub run: AutomationRunState,
}

/// A request for a run.
#[derive(Debug, Clone)]
pub struct WakeRow {
    /// The automation.
    pub automation: String,
    /// What must start only one run.
    pub cause: String,
    /// The request.
    pub wake: Wake,
    /// Whether it is decided.
    pub is_done: bool,
    /// The run that it became or was merged into.
    pub outcome: Option<String>,
}

/// Why a transaction is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The host has no lease.
    NoLease,
    /// The transaction of this number was committed already.
    Committed,
}

/// The tables.
#[derive(Debug, Default)]
pub struct Tables {
    /// The clock of the database.
    pub now: Duration,
    /// Hosts by their stable names.
    pub hosts: BTreeMap<String, HostRow>,
    /// Owners of sessions.
    pub heads: BTreeMap<String, HeadRow>,
    /// Sessions.
    pub sessions: SessionRows,
    /// Automations.
    pub automations: BTreeMap<String, KeptAutomation>,
    /// Progress of their schedules.
    pub progress: BTreeMap<String, AutomationProgress>,
    /// Owners of automations.
    pub owners: BTreeMap<String, RunsOwner>,
    /// Runs by their URI.
    pub runs: BTreeMap<String, RunRow>,
    /// Requests for runs, in their order.
    pub wakes: Vec<WakeRow>,
    /// Records by collection and id.
    pub records: BTreeMap<(String, String), JsonObject>,
    /// The number of the last run.
    pub last_run: u64,
    /// What other hosts are told of, with the run of the host that did it.
    pub changes: Vec<(String, ClusterEvent)>,
    /// Every append.
    pub appends: Vec<Append>,
}

impl Tables {
    /// Returns whether a run of a host has a valid lease.
    pub fn is_alive(&self, incarnation: &str) -> bool {
        self.row_of(incarnation).is_some_and(|(_, row)| row.expires_at > self.now)
    }

    /// Returns whether a run of a host drains and leaves its work to another host.
    pub fn hands_over(&self, me: &str) -> bool {
        let takes = |row: &HostRow| row.is_member && !row.is_draining && row.expires_at > self.now;
        self.row_of(me).is_some_and(|(_, row)| row.is_draining) && self.hosts.values().any(takes)
    }

    fn row_of(&self, incarnation: &str) -> Option<(&String, &HostRow)> {
        self.hosts.iter().find(|(_, row)| row.incarnation == incarnation)
    }

    fn row_mut(&mut self, incarnation: &str) -> Option<&mut HostRow> {
        self.hosts.values_mut().find(|row| row.incarnation == incarnation)
    }

    /// Takes the lease of a host, or returns how long another run of it has it.
    ///
    /// # Errors
    /// Until the lease of the earlier run expires, or of any host if not both are in a cluster.
    pub fn take(
        &mut self,
        (id, version): (&str, &str),
        incarnation: &str,
        is_member: bool,
        is_draining: bool,
    ) -> Result<(), Duration> {
        let now = self.now;
        let prevents = |(name, row): (&String, &HostRow)| {
            (row.expires_at > now && !(row.is_member && is_member && *name != id))
                .then(|| row.expires_at - now)
        };
        if let Some(rest) = self.hosts.iter().find_map(prevents) {
            return Err(rest);
        }
        if !is_member {
            self.hosts.clear();
        }
        let row = HostRow {
            incarnation: incarnation.to_owned(),
            expires_at: now + LENGTH,
            url: None,
            version: version.to_owned(),
            is_member,
            is_draining,
            batch: 0,
        };
        self.hosts.insert(id.to_owned(), row);
        Ok(())
    }

    /// Removes the row of a run of a host.
    pub fn remove_host(&mut self, incarnation: &str) {
        self.hosts.retain(|_, row| row.incarnation != incarnation);
    }

    /// Gives up the lease of a host that stops, with its sessions.
    pub fn give_up(&mut self, incarnation: &str) {
        for head in self.heads.values_mut().filter(|head| head.owner.as_deref() == Some(incarnation)) {
            head.owner = None;
        }
        self.remove_host(incarnation);
    }

    /// Renews a lease; returns the hosts of the cluster if it was valid.
    pub fn renew(&mut self, incarnation: &str, url: Option<&String>) -> Option<Vec<ClusterHost>> {
        let now = self.now;
        let row = self.row_mut(incarnation).filter(|row| !row.is_member || row.expires_at > now)?;
        row.expires_at = now + LENGTH;
        row.url = url.cloned();
        Some(self.cluster_hosts())
    }

    /// Returns the hosts of the cluster.
    pub fn cluster_hosts(&self) -> Vec<ClusterHost> {
        self.hosts.iter().map(|(id, row)| self.host_of(id, row)).collect()
    }

    fn host_of(&self, id: &str, row: &HostRow) -> ClusterHost {
        ClusterHost {
            id: id.to_owned(),
            incarnation: row.incarnation.clone(),
            url: row.url.clone(),
            version: row.version.clone(),
            is_draining: row.is_draining,
            is_alive: row.expires_at > self.now,
        }
    }

    fn lost(&self, id: &str, incarnation: String) -> ClusterHost {
        let row = self.hosts.get(id);
        ClusterHost {
            id: id.to_owned(),
            incarnation,
            url: row.and_then(|row| row.url.clone()),
            version: row.map(|row| row.version.clone()).unwrap_or_default(),
            is_draining: false,
            is_alive: false,
        }
    }

    /// Returns the owner of a session, as a run of a host sees it.
    pub fn owner(&self, me: &str, session: &str) -> SessionOwner {
        let Some(head) = self.heads.get(session) else { return SessionOwner::Nobody { last: None } };
        if head.owner.as_deref() == Some(me) {
            return SessionOwner::Here;
        }
        let found = head.owner.as_deref().and_then(|owner| self.row_of(owner));
        match found.map(|(id, row)| self.host_of(id, row)) {
            Some(host) if host.is_alive => SessionOwner::Elsewhere(host),
            Some(host) => SessionOwner::Nobody { last: Some(host) },
            None => {
                let last = head.owner_id.as_ref();
                let last = last.map(|id| self.lost(id, head.owner.clone().unwrap_or_default()));
                SessionOwner::Nobody { last }
            }
        }
    }

    /// Returns the host whose files a session needs.
    pub fn bound_to(&self, session: &str) -> Option<ClusterHost> {
        let id = self.heads.get(session)?.bound_to.as_ref()?;
        Some(match self.hosts.get(id) {
            Some(row) => self.host_of(id, row),
            None => self.lost(id, String::new()),
        })
    }

    /// Claims a session that no living host owns; returns whether this host owns it afterwards.
    pub fn claim(&mut self, me: &str, my_id: Option<&str>, session: &str) -> bool {
        let head = self.heads.get(session).cloned().unwrap_or_default();
        let is_mine = head.owner.as_deref() == Some(me);
        if !is_mine && head.owner.as_deref().is_some_and(|owner| self.is_alive(owner)) {
            return false;
        }
        let claimed = HeadRow {
            owner: Some(me.to_owned()),
            owner_id: my_id.map(str::to_owned).or(head.owner_id),
            epoch: if head.epoch == 0 { 1 } else { head.epoch + u64::from(!is_mine) },
            ..head
        };
        self.heads.insert(session.to_owned(), claimed);
        true
    }

    /// Releases a session. Nothing remains of one that was never stored.
    pub fn release(&mut self, me: &str, session: &str) {
        let is_stored = self.sessions.is_stored(session);
        let Some(head) = self.heads.get_mut(session).filter(|head| head.owner.as_deref() == Some(me)) else {
            return;
        };
        head.owner = None;
        if head.head == 0 && !is_stored {
            self.heads.remove(session);
        }
    }

    /// Begins a transaction of a host.
    ///
    /// # Errors
    /// The host has no lease, or the transaction was committed already.
    pub fn begin(&mut self, me: &str, number: u64) -> Result<(), Refused> {
        let now = self.now;
        let row = self.row_mut(me).filter(|row| row.expires_at > now).ok_or(Refused::NoLease)?;
        if row.batch + 1 != number {
            return Err(Refused::Committed);
        }
        row.batch = number;
        Ok(())
    }

    /// Returns the number of the last transaction of a host that has a row.
    pub fn last_committed(&self, me: &str) -> Option<u64> {
        self.row_of(me).map(|(_, row)| row.batch)
    }

    /// Returns the position of a session that a host owns. A host that is alone claims it.
    pub fn find(&mut self, me: &str, is_member: bool, session: &str) -> Option<Head> {
        if !is_member {
            self.claim(me, None, session);
        }
        let head = self.heads.get(session).filter(|head| head.owner.as_deref() == Some(me))?;
        Some(Head { epoch: head.epoch, position: head.head })
    }

    /// Appends to a session at a position; returns whether the host may.
    pub fn append(&mut self, me: &str, session: &str, at: Head, ends: bool) -> bool {
        let lease = self.row_of(me).map(|(_, row)| row.expires_at).unwrap_or_default();
        let Some(head) = self.heads.get_mut(session) else { return false };
        let is_own = head.owner.as_deref() == Some(me) && head.epoch == at.epoch && head.head == at.position;
        if !is_own {
            return false;
        }
        head.head += 1;
        self.appends.push(Append {
            at: self.now,
            session: session.to_owned(),
            epoch: at.epoch,
            position: at.position,
            by: me.to_owned(),
            lease,
            ends,
        });
        if ends {
            self.heads.remove(session);
        }
        true
    }

    /// Returns the automations with something to do that no living host owns, unless this host drains.
    pub fn unowned(&self, me: &str) -> BTreeSet<String> {
        if self.row_of(me).is_some_and(|(_, row)| row.is_draining) {
            return BTreeSet::new();
        }
        let open = self.runs.values().filter(|row| !row.is_ended).map(|row| &row.automation);
        let waiting = self.wakes.iter().filter(|row| !row.is_done).map(|row| &row.automation);
        let is_unowned = |id: &&String| {
            let owner = self.owners.get(*id).and_then(|row| row.owner.as_deref());
            owner != Some(me) && !owner.is_some_and(|owner| self.is_alive(owner))
        };
        open.chain(waiting).filter(is_unowned).cloned().collect()
    }

    /// Takes over such automations.
    pub fn claim_automations(&mut self, me: &str, my_id: &str) -> Vec<(String, Option<String>)> {
        let mut claimed = Vec::new();
        for id in self.unowned(me) {
            let row = self.owners.entry(id.clone()).or_default();
            row.previous = row.host.take();
            row.owner = Some(me.to_owned());
            row.host = Some(my_id.to_owned());
            claimed.push((id, row.previous.clone()));
        }
        claimed
    }

    /// Returns whether a host owns an automation.
    pub fn owns_runs(&self, me: &str, automation: &str) -> bool {
        self.owners.get(automation).is_some_and(|row| row.owner.as_deref() == Some(me))
    }

    /// Stores a run.
    ///
    /// # Errors
    /// Its cause has another run.
    pub fn keep_run(&mut self, by: &str, row: RunRow) -> Result<(), Thrown> {
        let uri = row.run.resource.clone();
        let is_taken = |other: &RunRow| {
            row.cause.is_some()
                && other.cause == row.cause
                && other.automation == row.automation
                && other.run.resource != uri
        };
        if self.runs.values().any(is_taken) {
            return Err(ostler_contract::RpcError::already_exists(format!(
                "a run of {} has this cause already",
                row.automation
            ))
            .into());
        }
        let known = self.runs.get(&uri).map(|row| row.number);
        let number = known.unwrap_or(self.last_run + 1);
        self.last_run = self.last_run.max(number);
        let event = ClusterEvent::RunsChanged { automation: row.automation.clone() };
        self.changes.push((by.to_owned(), event));
        self.runs.insert(uri, RunRow { number, ..row });
        Ok(())
    }

    /// Decides a wake, unless it is decided.
    pub fn decide(&mut self, wake: &str, run: Option<String>) {
        let row = self.wakes.iter_mut().find(|row| row.wake.run.resource == wake && !row.is_done);
        if let Some(row) = row {
            row.is_done = true;
            row.outcome = run;
        }
    }

    /// Removes everything of an automation except its definition.
    pub fn forget_automation(&mut self, id: &str) {
        self.runs.retain(|_, row| row.automation != id);
        self.wakes.retain(|row| row.automation != id);
        self.progress.remove(id);
        self.owners.remove(id);
    }

    /// Records that listings of sessions have changed.
    pub fn changed_session(&mut self, by: &str, id: &str) {
        let event = ClusterEvent::SessionChanged { id: id.to_owned(), by: by.to_owned() };
        self.changes.push((by.to_owned(), event));
    }

    /// Stores a session.
    pub fn keep_session(&mut self, by: &str, id: &str, kept: KeptSession) {
        let is_new = self.listed(id).is_none();
        self.sessions.set_kept(id, kept);
        if is_new && self.listed(id).is_some() {
            self.changes.push((by.to_owned(), ClusterEvent::SessionAdded { id: id.to_owned() }));
        }
        self.changed_session(by, id);
    }

    /// Removes a session.
    pub fn remove_session(&mut self, by: &str, id: &str) {
        let listed = self.listed(id);
        self.sessions.remove(id);
        self.changes.push((by.to_owned(), ClusterEvent::SessionRemoved { id: id.to_owned(), listed }));
    }

    /// The URI of a session, if it is listed.
    fn listed(&self, id: &str) -> Option<String> {
        let kept = self.sessions.get(id)?.kept.as_ref()?;
        kept.draft.is_none().then(|| kept.uri.clone())
    }
}
