//! What work cost, and where that is kept. Spec: *Usage entry*, *Policies, vault, usage stores*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use serde::{Deserialize, Serialize};

use super::PortValue;
use crate::call::Call;
use crate::cross::Mismatch;

/// Where use is kept. What was written is never changed.
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
    /// Keeps one entry. Once it resolves a crash does not lose it; a throw reaches whoever recorded it.
    pub record: Call<fn(entry: UsageEntry)>,
    /// What the entries asked for come to.
    pub total: Call<fn(query: UsageQuery) -> UsageTotal>,
    /// Every pool that was ever charged, in order.
    pub pools: Call<fn() -> Vec<String>>,
    /// The entries asked for, newest first.
    pub records: Call<fn(query: UsageQuery) -> Vec<UsageEntry>>,
    /// Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet.
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

/// What told of the use.
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

/// One entry of use. Keys beyond these are kept as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct UsageEntry {
    /// What was used.
    pub kind: UsageKind,
    /// The keys charged: the owner as written, `team:<team>`, `project:<team>:<project>`. Made of `owner`, `team` and
    /// `project` where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<String>>,
    /// When, as ISO 8601; now where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<UsageSource>,
    /// Whose work it was: `user:<id>`, `root:<host>`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The team it was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// The team's project it was for.
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
    /// For how long the machine was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The model and its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<UsageModel>,
    /// What is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<UsageCost>,
    /// What the provider said it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_cost: Option<UsageCost>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: JsonObject,
}

/// A model and what it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct UsageModel {
    /// `<maker>/<name>`, or as the backend calls it.
    pub name: String,
    /// Who serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Tokens it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Tokens it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Tokens of a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<UsageCache>,
}

/// Tokens of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct UsageCache {
    /// Read from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    /// Written to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<u64>,
}

/// An amount of money.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct UsageCost {
    /// How much.
    pub amount: f64,
    /// Of what, as `USD`.
    pub currency: String,
    /// Where the amount is from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<CostFrom>,
    /// The part of it that is for what the model was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<f64>,
    /// The part of it that is for what the model said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<f64>,
}

/// Where an amount is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum CostFrom {
    /// The backend said so.
    Harness,
    /// It was reckoned by a price list.
    Price,
}

/// Which entries are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct UsageQuery {
    /// Those that charged this pool; every one where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// From this instant on, ISO 8601 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Before this instant, ISO 8601 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// At most as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// What entries come to: the measures that were charged, and no others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct UsageTotal {
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// The dollars for what models were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_usd: Option<f64>,
    /// The dollars for what models said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_usd: Option<f64>,
    /// Every token: given, said, and of a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Tokens models were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Tokens models said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Tokens read from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Tokens written to a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Entries of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// For how long machines were used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl UsageTotal {
    /// Adds one entry. Only US dollars add up; another currency is in the entries.
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
    /// The pools the entry charges: the ones it names, or the ones of its owner, team and project.
    pub fn charged(&self) -> Vec<String> {
        if let Some(pools) = &self.pools {
            return pools.clone();
        }
        let team = self.team.as_ref();
        let project =
            team.zip(self.project.as_ref()).map(|(team, project)| format!("project:{team}:{project}"));
        self.owner.iter().cloned().chain(team.map(|team| format!("team:{team}"))).chain(project).collect()
    }

    /// Checks what the shapes cannot say of an entry.
    ///
    /// # Errors
    /// The member that does not hold.
    pub fn refuse(&self) -> Result<(), Mismatch> {
        for (at, pool) in self.pools.iter().flatten().enumerate() {
            if !is_pool(pool) {
                return Err(Mismatch::expected(OWNER_FORMS).at(at).within("pools"));
            }
        }
        if self.at.as_ref().is_some_and(|at| at.parse::<jiff::Timestamp>().is_err()) {
            return Err(Mismatch::expected("an ISO 8601 instant, as 2026-01-31T12:00:00Z").within("at"));
        }
        let amounts = [&self.cost, &self.provider_cost].into_iter().flatten();
        let amounts =
            amounts.flat_map(|cost| [Some(cost.amount), cost.input, cost.output]).chain([self.seconds]);
        if !amounts.flatten().all(|amount| amount.is_finite() && amount >= 0.0) {
            return Err(Mismatch::expected("a number of 0 or more").within("cost"));
        }
        if self.pools.is_none() && self.charged().iter().any(|pool| !is_pool(pool)) {
            let member =
                if self.owner.as_ref().is_some_and(|owner| !is_pool(owner)) { "owner" } else { "team" };
            return Err(Mismatch::expected(
                "whose work it is, as user:<id>, with a team and a project by their ids",
            )
            .within(member));
        }
        Ok(())
    }
}

/// How it is said whose something is: an owner, or a pool that is charged.
pub const OWNER_FORMS: &str = "user:<id>, root:<host>, plugin:<id>, team:<team> or project:<team>:<project>";

/// Whether a text names a pool.
pub fn is_pool(pool: &str) -> bool {
    let mut parts = pool.split(':');
    let words = match parts.next() {
        Some("user" | "root" | "plugin" | "team") => 1,
        Some("project") => 2,
        _ => return false,
    };
    let rest: Vec<&str> = parts.collect();
    let is_name = |word: &&str| {
        !word.trim().is_empty() && !word.contains(['/', '\\']) && !word.contains(char::is_control)
    };
    rest.len() == words && rest.iter().all(is_name)
}
