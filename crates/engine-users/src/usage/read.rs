//! Queries of usage: totals, entries and groups, with their authorization.

use std::collections::BTreeMap;

use jiff::Zoned;
use ostler_contract::owner::Owner;
use ostler_contract::points::{Reader, UsageEntry, UsageQuery, UsageTotal};
use ostler_contract::{JsonObject, RpcError, Thrown, Value, json, limit};
use ostler_engine_core::clock::iso;
use ostler_protocol::grants::Grant;
use ostler_protocol::own::{UsageGroupsParams, UsageRecordsParams, UsageTotalsParams};

use super::period::{Period, Running, range};
use crate::usage::Ledger;
use crate::users::Kind;

/// The maximum number of entries in an answer.
const ENTRIES: u64 = 200;
/// The maximum length of a grouped range.
const DAYS: usize = 3660;

/// Returns whether a reader can read the charges of a pool: without a grant their own, and those of their teams and
/// projects. The host itself, and everyone on a host without a users file, can read all.
pub(super) fn may_read(reader: Option<&Reader>, pool: &str) -> bool {
    let Some(reader) = reader else { return true };
    if holds(reader, "get") || reader.id == pool {
        return true;
    }
    let mut memberships = reader.memberships.iter().filter_map(|text| Owner::from_membership(text));
    match Owner::parse(pool) {
        Some(Owner::Team(team)) => memberships.any(|membership| membership.team() == Some(team)),
        Some(Owner::Project { team, project }) => memberships.any(|membership| {
            let is_in = |named| named == "*" || named == project;
            membership.team() == Some(team) && membership.project().is_some_and(is_in)
        }),
        _ => false,
    }
}

fn holds(reader: &Reader, operation: &'static str) -> bool {
    reader.holds(&Grant::of(super::scheme::SCHEME, operation))
}

impl Ledger {
    fn now_here(&self) -> Zoned {
        self.core.clock.now().to_zoned(self.core.options.usage.timezone.clone())
    }

    /// Returns the charged pools that the reader can read.
    pub(super) async fn charged_pools(&self, reader: Option<&Reader>) -> Result<Vec<String>, Thrown> {
        let pools = self.use_kept()?.pools.read(limit::STORE, ()).await.known()?;
        Ok(pools.into_iter().filter(|pool| may_read(reader, pool)).collect())
    }

    fn total_of(
        &self,
        pool: &str,
        period: Period,
    ) -> impl Future<Output = Result<UsageTotal, Thrown>> + use<> {
        let query = query(Some(pool), period, None);
        let total = self.use_kept().map(|store| store.total.read(limit::STORE, (query,)));
        async move { Ok(total?.await.known()?) }
    }

    /// Returns a pool with its charges of today, this week and this month.
    pub(super) async fn pool_row(&self, pool: &str) -> Result<JsonObject, Thrown> {
        let now = self.now_here();
        let totals = Running::ALL.map(|(running, _)| self.total_of(pool, running.period(&now)));
        let totals = futures::future::try_join_all(totals).await?;
        let (kind, name) = self.pool_name(pool);
        let mut row = JsonObject::new();
        row.insert("pool".to_owned(), pool.into());
        row.insert("kind".to_owned(), kind.into());
        row.insert("name".to_owned(), name.into());
        for ((_, word), total) in Running::ALL.iter().zip(totals) {
            row.insert((*word).to_owned(), written(&total));
        }
        Ok(row)
    }

    /// Returns the total of a current period.
    pub(super) async fn running_total(&self, pool: &str, running: Running) -> Result<Value, Thrown> {
        Ok(written(&self.total_of(pool, running.period(&self.now_here())).await?))
    }

    pub(super) async fn range_total(
        &self,
        pool: &str,
        from: Option<&str>,
        until: Option<&str>,
    ) -> Result<Value, Thrown> {
        Ok(written(&self.total_of(pool, range(from, until, &self.now_here())?).await?))
    }

    /// Returns the entries of a pool, newest first.
    pub(super) async fn pool_records(
        &self,
        pool: &str,
        from: Option<&str>,
        until: Option<&str>,
    ) -> Result<Vec<UsageEntry>, Thrown> {
        let period = range(from, until, &self.now_here())?;
        let records =
            self.use_kept()?.records.read(limit::STORE, (query(Some(pool), period, Some(ENTRIES)),));
        Ok(records.await.known()?)
    }

    /// Returns the charges of a range by users, teams and projects. An entry counts once if the reader can read any
    /// pool it charged.
    pub(super) async fn groups(
        &self,
        asked: &UsageGroupsParams,
        reader: Option<&Reader>,
    ) -> Result<Value, Thrown> {
        let by = asked.by.split(',').map(str::trim).map(Key::read).collect::<Result<Vec<_>, _>>()?;
        let zone = &self.core.options.usage.timezone;
        let period = range(asked.from.as_deref(), asked.until.as_deref(), &self.now_here())?;
        let store = self.use_kept()?;
        let mut groups: BTreeMap<Vec<Option<String>>, UsageTotal> = BTreeMap::new();
        for (nth, day) in period.days(zone).enumerate() {
            if nth == DAYS {
                let why = format!("from and until are more than {DAYS} days apart");
                return Err(RpcError::invalid_params(why).into());
            }
            for entry in store.records.read(limit::STORE, (query(None, day, None),)).await.known()? {
                if entry.charged().iter().any(|pool| may_read(reader, pool)) {
                    let keys = by.iter().map(|key| key.of(&entry)).collect();
                    groups.entry(keys).or_default().add(&entry);
                }
            }
        }
        let rows = groups.into_iter().map(|(keys, total)| {
            let named = |name: &dyn Fn(Key, &str) -> String| -> JsonObject {
                let given = by.iter().zip(&keys);
                given
                    .filter_map(|(key, id)| Some((key.word().to_owned(), name(*key, id.as_ref()?).into())))
                    .collect()
            };
            let ids = named(&|_, id| id.to_owned());
            let names = named(&|key, id| self.title(key.kind(), id));
            json!({ "keys": ids, "names": names, "total": written(&total) })
        });
        Ok(rows.collect())
    }

    /// `x-ostler/usage/totals`: each pool as in the scheme, with the requested range.
    ///
    /// # Errors
    /// A pool that the reader cannot read, an invalid range, or an error of the store.
    pub async fn usage_totals(
        &self,
        asked: UsageTotalsParams,
        reader: Option<&Reader>,
    ) -> Result<Value, RpcError> {
        let told = async {
            let ranged = asked.from.is_some() || asked.until.is_some();
            let pools = match asked.pools {
                None => self.charged_pools(reader).await?,
                Some(pools) => {
                    pools.iter().try_for_each(|pool| refuse_foreign(reader, pool))?;
                    pools
                }
            };
            let mut totals = Vec::new();
            for pool in pools {
                let mut row = self.pool_row(&pool).await?;
                if ranged {
                    let total =
                        self.range_total(&pool, asked.from.as_deref(), asked.until.as_deref()).await?;
                    row.insert("range".to_owned(), total);
                }
                totals.push(Value::Object(row));
            }
            Ok(json!({ "totals": totals }))
        };
        told.await.map_err(|why| self.use_failed(why))
    }

    /// `x-ostler/usage/records`.
    pub async fn usage_records(
        &self,
        asked: UsageRecordsParams,
        reader: Option<&Reader>,
    ) -> Result<Value, RpcError> {
        refuse_foreign(reader, &asked.pool).map_err(Thrown::into_rpc)?;
        let records = self.pool_records(&asked.pool, asked.from.as_deref(), asked.until.as_deref()).await;
        records.map(|records| json!({ "records": records })).map_err(|why| self.use_failed(why))
    }

    /// `x-ostler/usage/groups`.
    pub async fn usage_groups(
        &self,
        asked: UsageGroupsParams,
        reader: Option<&Reader>,
    ) -> Result<Value, RpcError> {
        let groups = self.groups(&asked, reader).await;
        groups.map(|groups| json!({ "groups": groups })).map_err(|why| self.use_failed(why))
    }

    /// Returns the kind and the name of a pool's owner.
    fn pool_name(&self, pool: &str) -> (String, String) {
        let Some(owner) = Owner::parse(pool) else { return (String::new(), pool.to_owned()) };
        let name = match owner {
            Owner::Team(team) => self.title(Kind::Team, team),
            Owner::Project { team, project } => {
                format!("{} / {}", self.title(Kind::Team, team), self.title(Kind::Project, project))
            }
            Owner::User(id) | Owner::Root(id) | Owner::Plugin(id) => id.to_owned(),
        };
        (owner.kind().to_owned(), name)
    }

    /// Returns the title of a team or a project, by default its id.
    fn title(&self, kind: Kind, id: &str) -> String {
        let body = self.access.gate.people().and_then(|people| people.file().body(kind, id));
        let title = body.as_ref().and_then(|body| body.get("title")).and_then(Value::as_str);
        title.filter(|title| !title.is_empty()).unwrap_or(id).to_owned()
    }
}

/// Rejects a pool that the reader cannot read, with the error of a missing grant.
fn refuse_foreign(reader: Option<&Reader>, pool: &str) -> Result<(), Thrown> {
    match reader {
        Some(reader) if !may_read(Some(reader), pool) => {
            let name = Owner::parse(&reader.id).and_then(Owner::user).unwrap_or(&reader.id);
            let asked = Grant::of(super::scheme::SCHEME, "get");
            Err(RpcError::permission_denied(format!("{name} may not {asked} here")).into())
        }
        _ => Ok(()),
    }
}

fn query(pool: Option<&str>, period: Period, limit: Option<u64>) -> UsageQuery {
    UsageQuery {
        pool: pool.map(str::to_owned),
        from: Some(iso(period.from)),
        until: Some(iso(period.until)),
        limit,
    }
}

fn written(total: &UsageTotal) -> Value {
    serde_json::to_value(total).unwrap_or_default()
}

/// The groupings of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    User,
    Team,
    Project,
}

impl Key {
    fn read(word: &str) -> Result<Self, RpcError> {
        match word {
            "user" => Ok(Self::User),
            "team" => Ok(Self::Team),
            "project" => Ok(Self::Project),
            other => {
                let why = format!("by must be a comma-separated list of user, team and project, not {other}");
                Err(RpcError::invalid_params(why))
            }
        }
    }

    fn word(self) -> &'static str {
        self.kind().name()
    }

    fn kind(self) -> Kind {
        match self {
            Self::User => Kind::User,
            Self::Team => Kind::Team,
            Self::Project => Kind::Project,
        }
    }

    fn of(self, entry: &UsageEntry) -> Option<String> {
        match self {
            Self::User => Owner::parse(entry.owner.as_deref()?)?.user().map(str::to_owned),
            Self::Team => entry.team.clone(),
            Self::Project => entry.project.clone(),
        }
    }
}
