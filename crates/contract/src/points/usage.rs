//! Usage and its store. Spec: *Usage entry*, *Policies, vault, usage stores*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::Call;
use crate::cross::Mismatch;
use crate::owner::Owner;

/// The store of usage. Entries never change.
///
/// ```
/// use ostler_contract::{Call, points::{Usage, UsageTotal}};
///
/// let nowhere = Usage {
///     record: Call::now(|_| Ok(())),
///     total: Call::now(|_| Ok(UsageTotal::default())),
///     pools: Call::now(|()| Ok(vec![])),
///     records: Call::now(|_| Ok(vec![])),
///     ..Usage::default()
/// };
/// # assert!(ostler_contract::Cross::check(&nowhere).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Usage {
    /// Stores one entry. When it resolves, the entry is durable; an error is thrown at the recorder.
    pub record: Call<fn(entry: UsageEntry)>,
    /// The sum of the matching entries.
    pub total: Call<fn(query: UsageQuery) -> UsageTotal>,
    /// All pools that were ever charged, in order.
    pub pools: Call<fn() -> Vec<String>>,
    /// The matching entries, newest first.
    pub records: Call<fn(query: UsageQuery) -> Vec<UsageEntry>>,
    /// Called once when the host closes, after its sessions and the plugins' close functions: writes pending data.
    pub close: Option<Call<fn()>>,
}

impl PortValue for Usage {
    const NAME: &'static str = "usage";
}

/// What was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum UsageKind {
    /// A model.
    #[default]
    Model,
    /// A machine.
    Computer,
}

/// The source of a usage entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum UsageSource {
    /// A call through a model proxy.
    Proxy,
    /// A turn of a backend.
    Agent,
    /// A machine.
    Computer,
}

/// A usage entry. Other keys are stored unchanged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct UsageEntry {
    /// What was used.
    pub kind: UsageKind,
    /// The pools charged: the owner, `team:<team>`, `project:<team>:<project>`. Default: derived from `owner`, `team`
    /// and `project`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<String>>,
    /// Time, ISO 8601. Default: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Source of the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<UsageSource>,
    /// Owner of the work: `user:<id>`, `root:<host>`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Team of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Project of that team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The session's URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The chat's URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// The turn's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computer: Option<String>,
    /// Seconds for which the machine was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The model and its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<UsageModel>,
    /// Cost that is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<UsageCost>,
    /// Cost that the provider reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_cost: Option<UsageCost>,
    /// All other keys.
    #[serde(flatten)]
    pub rest: JsonObject,
}

/// A model and its tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct UsageModel {
    /// `<maker>/<name>`, or the backend's name for it.
    pub name: String,
    /// Provider of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Input tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Cached tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<UsageCache>,
}

/// Cached tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct UsageCache {
    /// Tokens read from the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    /// Tokens written to the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<u64>,
}

/// An amount of money.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct UsageCost {
    /// Amount.
    pub amount: f64,
    /// Currency, such as `USD`.
    pub currency: String,
    /// Origin of the amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<CostFrom>,
    /// The part for input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<f64>,
    /// The part for output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<f64>,
}

impl UsageCost {
    /// The largest amount of one entry, in any currency. A larger one is a mistake, which would be in every sum for good.
    pub const MOST: f64 = 1e9;

    /// Returns whether an amount can be what a turn, a call or a session cost.
    pub fn is_plausible(amount: f64) -> bool {
        (0.0..=Self::MOST).contains(&amount)
    }
}

/// The origin of an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum CostFrom {
    /// Reported by the backend.
    Harness,
    /// Computed from a price list.
    Price,
}

/// A filter of entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct UsageQuery {
    /// The pool they charged. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Start of the period, ISO 8601 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// End of the period (exclusive), ISO 8601 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Maximum number of entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// The sum of entries; only charged measures are present.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct UsageTotal {
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// US dollars for input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_usd: Option<f64>,
    /// US dollars for output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_usd: Option<f64>,
    /// All tokens: input, output and cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Input tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Tokens read from caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Tokens written to caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Number of model entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Seconds for which machines were used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl UsageTotal {
    /// Adds an entry. Only US dollars are summed; the entries contain other currencies.
    pub fn add(&mut self, entry: &UsageEntry) {
        let money = |sum: &mut Option<f64>, add: Option<f64>| {
            if let Some(add) = add {
                *sum = Some(sum.unwrap_or_default() + add);
            }
        };
        let count = |sum: &mut Option<u64>, add: Option<u64>| {
            if let Some(add) = add {
                *sum = Some(sum.unwrap_or_default().saturating_add(add));
            }
        };
        if let Some(cost) = entry.cost.as_ref().filter(|cost| cost.currency.eq_ignore_ascii_case("usd")) {
            money(&mut self.usd, Some(cost.amount));
            money(&mut self.input_usd, cost.input);
            money(&mut self.output_usd, cost.output);
        }
        if let Some(model) = &entry.model {
            let cache = model.cache.unwrap_or_default();
            for (sum, tokens) in [
                (&mut self.input, model.input),
                (&mut self.output, model.output),
                (&mut self.cache_read, cache.read),
                (&mut self.cache_write, cache.write),
            ] {
                count(sum, tokens);
                count(&mut self.tokens, tokens);
            }
        }
        match entry.kind {
            UsageKind::Model => count(&mut self.calls, Some(1)),
            UsageKind::Computer => money(&mut self.seconds, entry.seconds),
        }
    }
}

impl UsageEntry {
    /// Returns the pools an entry charges: its `pools`, or those of its owner, team and project.
    pub fn charged(&self) -> Vec<String> {
        if let Some(pools) = &self.pools {
            return pools.clone();
        }
        let team = self.team.as_ref();
        let project =
            team.zip(self.project.as_ref()).map(|(team, project)| format!("project:{team}:{project}"));
        self.owner.iter().cloned().chain(team.map(|team| format!("team:{team}"))).chain(project).collect()
    }

    /// Validates an entry beyond its shape.
    ///
    /// # Errors
    /// An invalid member.
    pub fn refuse(&self) -> Result<(), Mismatch> {
        for (at, pool) in self.pools.iter().flatten().enumerate() {
            if Owner::parse(pool).is_none() {
                return Err(Mismatch::expected(Owner::FORMS).at(at).within("pools"));
            }
        }
        if self.at.as_ref().is_some_and(|at| at.parse::<jiff::Timestamp>().is_err()) {
            return Err(Mismatch::expected("an ISO 8601 instant, as 2026-01-31T12:00:00Z").within("at"));
        }
        let amounts = [&self.cost, &self.provider_cost].into_iter().flatten();
        let amounts =
            amounts.flat_map(|cost| [Some(cost.amount), cost.input, cost.output]).chain([self.seconds]);
        if !amounts.flatten().all(UsageCost::is_plausible) {
            return Err(Mismatch::expected("a number of 0 to 1,000,000,000").within("cost"));
        }
        if self.pools.is_none() && self.charged().iter().any(|pool| Owner::parse(pool).is_none()) {
            let member = if self.owner.as_ref().is_some_and(|owner| Owner::parse(owner).is_none()) {
                "owner"
            } else {
                "team"
            };
            return Err(Mismatch::expected(
                "whose work it is, as user:<id>, with a team and a project by their ids",
            )
            .within(member));
        }
        Ok(())
    }
}
