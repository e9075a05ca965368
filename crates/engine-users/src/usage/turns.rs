//! The usage of a turn, as its backend reports it.

use ostler_contract::points::{
    CostFrom, UsageCache, UsageCost, UsageEntry, UsageKind, UsageModel, UsageSource,
};
use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::names;
use ostler_protocol::wire::state::UsageInfo;

/// The usage of a turn so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Taken {
    model: Option<String>,
    /// Input, output, cache read, cache written.
    tokens: [Option<u64>; 4],
    cost: Option<UsageCost>,
}

impl Taken {
    /// Returns whether a report contains a cost that cannot be one, which is left out.
    pub fn is_implausible(usage: &UsageInfo) -> bool {
        let said = usage.meta.as_ref().and_then(|meta| meta.get(&names::meta_key("cost")));
        let amount = match said {
            Some(Value::Object(fields)) => fields.get("amount").and_then(Value::as_f64),
            said => said.and_then(Value::as_f64),
        };
        amount.is_some_and(|amount| !UsageCost::is_plausible(amount))
    }

    /// Parses a report.
    pub fn read(usage: &UsageInfo) -> Self {
        let said = |key: &str| usage.meta.as_ref()?.get(&names::meta_key(key));
        let count = |tokens: Option<i64>| tokens.and_then(|tokens| u64::try_from(tokens).ok());
        let written = said("cacheWriteTokens").and_then(Value::as_i64);
        Self {
            model: usage.model.clone(),
            tokens: [
                count(usage.input_tokens),
                count(usage.output_tokens),
                count(usage.cache_read_tokens),
                count(written),
            ],
            cost: said("cost").and_then(cost),
        }
    }

    /// Returns what this report adds to an earlier one of the same turn.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut added = self.clone();
        for (tokens, before) in added.tokens.iter_mut().zip(earlier.tokens) {
            *tokens = tokens
                .map(|tokens| tokens.saturating_sub(before.unwrap_or_default()))
                .filter(|&more| more > 0);
        }
        let same = |cost: &UsageCost| {
            earlier.cost.as_ref().filter(|before| before.currency == cost.currency).cloned()
        };
        if let Some((cost, before)) =
            added.cost.as_mut().and_then(|cost| same(cost).map(|before| (cost, before)))
        {
            let less = |now: Option<f64>, before: Option<f64>| {
                now.map(|now| (now - before.unwrap_or_default()).max(0.0))
            };
            cost.amount = (cost.amount - before.amount).max(0.0);
            cost.input = less(cost.input, before.input);
            cost.output = less(cost.output, before.output);
        }
        added
    }

    /// Returns what an entry charges.
    pub fn charged(entry: &UsageEntry) -> Self {
        let model = entry.model.as_ref();
        let cache = model.and_then(|model| model.cache.as_ref());
        Self {
            model: None,
            tokens: [
                model.and_then(|model| model.input),
                model.and_then(|model| model.output),
                cache.and_then(|cache| cache.read),
                cache.and_then(|cache| cache.write),
            ],
            cost: entry.cost.clone(),
        }
    }

    /// Adds another usage. Costs in another currency are left out.
    pub fn plus(mut self, other: Self) -> Self {
        for (tokens, more) in self.tokens.iter_mut().zip(other.tokens) {
            *tokens = added(*tokens, more, u64::saturating_add);
        }
        self.cost = match (self.cost, other.cost) {
            (Some(cost), Some(more)) if cost.currency == more.currency => Some(UsageCost {
                amount: cost.amount + more.amount,
                input: added(cost.input, more.input, |a, b| a + b),
                output: added(cost.output, more.output, |a, b| a + b),
                ..cost
            }),
            (cost, more) => cost.or(more),
        };
        self
    }

    /// Returns the larger of each measure.
    pub fn at_least(mut self, least: Self) -> Self {
        for (tokens, least) in self.tokens.iter_mut().zip(least.tokens) {
            *tokens = (*tokens).max(least);
        }
        self.cost = match (self.cost, least.cost) {
            (Some(cost), Some(least)) if cost.amount < least.amount => Some(least),
            (cost, least) => cost.or(least),
        };
        self
    }

    /// Adds what a turn used before it failed and was continued to a report of its backend, which counts from there on.
    pub fn add_earlier(report: &mut UsageInfo, earlier: &UsageInfo) {
        let tokens = |now: Option<i64>, before: Option<i64>| added(now, before, i64::saturating_add);
        report.input_tokens = tokens(report.input_tokens, earlier.input_tokens);
        report.output_tokens = tokens(report.output_tokens, earlier.output_tokens);
        report.cache_read_tokens = tokens(report.cache_read_tokens, earlier.cache_read_tokens);
        for name in ["cacheWriteTokens", "reasoningTokens"] {
            let key = names::meta_key(name);
            let count = |usage: &UsageInfo| usage.meta.as_ref()?.get(&key)?.as_i64();
            if let Some(before) = count(earlier) {
                let sum = count(report).unwrap_or_default().saturating_add(before);
                report.meta.get_or_insert_default().insert(key, sum.into());
            }
        }
        let key = names::meta_key("cost");
        let said = |usage: &UsageInfo| usage.meta.as_ref()?.get(&key).cloned();
        let Some(before) = said(earlier) else { return };
        let sum = match (said(report), cost(&before)) {
            (None, _) => before,
            (Some(now), Some(before)) => match cost(&now) {
                Some(more) if more.currency == before.currency => {
                    in_report(&now, Self::of(more).plus(Self::of(before)))
                }
                _ => now,
            },
            (Some(now), None) => now,
        };
        report.meta.get_or_insert_default().insert(key, sum);
    }

    fn of(cost: UsageCost) -> Self {
        Self { cost: Some(cost), ..Self::default() }
    }

    /// Returns its entry, unless it is empty.
    pub fn entry(self, model: impl FnOnce() -> String) -> Option<UsageEntry> {
        let [input, output, read, write] = self.tokens;
        let some_tokens = self.tokens.iter().flatten().any(|&tokens| tokens > 0);
        let cost = self.cost.filter(|cost| cost.amount > 0.0 || some_tokens);
        if !some_tokens && cost.is_none() {
            return None;
        }
        let cache = (read.is_some() || write.is_some()).then_some(UsageCache { read, write });
        let name = self.model.filter(|name| !name.is_empty()).unwrap_or_else(model);
        Some(UsageEntry {
            kind: UsageKind::Model,
            source: Some(UsageSource::Agent),
            model: Some(UsageModel { name, provider: None, input, output, cache }),
            cost,
            ..UsageEntry::default()
        })
    }
}

/// Adds two measures of which one or both can be absent.
fn added<T>(one: Option<T>, other: Option<T>, add: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(add(one, other)),
        (one, other) => one.or(other),
    }
}

/// Returns a cost in the form that a report has.
fn in_report(form: &Value, taken: Taken) -> Value {
    let Some(cost) = taken.cost else { return Value::Null };
    if form.is_number() {
        return cost.amount.into();
    }
    let mut said = json!({ "amount": cost.amount, "currency": cost.currency });
    for (part, amount) in [("input", cost.input), ("output", cost.output)] {
        if let Some(amount) = amount {
            said[part] = amount.into();
        }
    }
    said
}

/// Parses the cost that a backend reports: an amount in US dollars, or an amount and its currency.
fn cost(said: &Value) -> Option<UsageCost> {
    let plausible = |amount: &f64| UsageCost::is_plausible(*amount);
    let part = |fields: &JsonObject, key: &str| fields.get(key).and_then(Value::as_f64).filter(plausible);
    let dollars = || "USD".to_owned();
    let from = Some(CostFrom::Harness);
    match said {
        Value::Number(amount) => {
            let amount = amount.as_f64().filter(plausible)?;
            Some(UsageCost { amount, currency: dollars(), from, input: None, output: None })
        }
        Value::Object(fields) => Some(UsageCost {
            amount: part(fields, "amount")?,
            currency: fields.get("currency").and_then(Value::as_str).map_or_else(dollars, str::to_owned),
            from,
            input: part(fields, "input"),
            output: part(fields, "output"),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(usage: Value) -> Taken {
        Taken::read(&serde_json::from_value(usage).expect("a report"))
    }

    #[test]
    fn a_report_is_read_and_what_it_adds_is_told() {
        let first = taken(json!({ "inputTokens": 100, "outputTokens": 5, "model": "a/b" }));
        let second = taken(
            json!({ "inputTokens": 150, "outputTokens": 5, "cacheReadTokens": 7, "model": "a/b",
            "_meta": { "ostler.cacheWriteTokens": 3, "ostler.cost": { "amount": 0.5, "currency": "EUR", "input": 0.4 } } }),
        );
        let entry = second.since(&first).entry(String::new).expect("an entry");
        assert_eq!(
            serde_json::to_value(entry).expect("json"),
            json!({ "kind": "model", "source": "agent",
                "model": { "name": "a/b", "input": 50, "cache": { "read": 7, "write": 3 } },
                "cost": { "amount": 0.5, "currency": "EUR", "from": "harness", "input": 0.4 } })
        );
        assert_eq!(second.since(&second).entry(String::new), None, "nothing was added");
        let third = taken(
            json!({ "inputTokens": 160, "_meta": { "ostler.cost": { "amount": 0.75, "currency": "EUR" } } }),
        );
        let more = third.since(&second).entry(|| "of the session".to_owned()).expect("an entry");
        assert_eq!(more.cost.map(|cost| cost.amount), Some(0.25));
        assert_eq!(more.model.map(|model| model.name).as_deref(), Some("of the session"));
    }

    #[test]
    fn nothing_taken_is_no_entry_and_a_cost_of_nothing_is_left_off() {
        for nothing in [
            json!({}),
            json!({ "inputTokens": 0 }),
            json!({ "_meta": { "ostler.cost": 0 } }),
            json!({ "_meta": { "ostler.cost": 1e308 } }),
            json!({ "_meta": { "ostler.cost": { "amount": 1e10, "currency": "EUR" } } }),
            json!({ "_meta": { "ostler.cost": -1 } }),
            json!({ "inputTokens": -5, "_meta": { "ostler.cost": "much" } }),
        ] {
            assert_eq!(taken(nothing.clone()).entry(String::new), None, "{nothing}");
        }
        let dollars =
            taken(json!({ "_meta": { "ostler.cost": 0.02 } })).entry(String::new).expect("an entry");
        assert_eq!(dollars.cost.map(|cost| (cost.amount, cost.currency)), Some((0.02, "USD".to_owned())));
        assert_eq!(dollars.model.map(|model| model.name), Some(String::new()));
    }

    #[test]
    fn what_a_turn_used_before_it_went_on_is_in_its_reports() {
        let report = |usage: Value| serde_json::from_value::<UsageInfo>(usage).expect("a report");
        let sum = |now: Value, before: Value| {
            let mut now = report(now);
            Taken::add_earlier(&mut now, &report(before));
            serde_json::to_value(now).expect("json")
        };
        let meta = |cost: Value| json!({ "inputTokens": 1, "_meta": { "ostler.cost": cost } });
        let dollars = json!({ "amount": 0.5, "currency": "USD", "input": 0.25 });
        for (now, before, expected) in [
            (
                json!({ "inputTokens": 1, "outputTokens": 2, "model": "b", "_meta": { "ostler.context": 5 } }),
                json!({ "inputTokens": 10, "cacheReadTokens": 3, "model": "a", "_meta": { "ostler.context": 9,
                    "ostler.cacheWriteTokens": 7, "ostler.reasoningTokens": 4 } }),
                json!({ "inputTokens": 11, "outputTokens": 2, "cacheReadTokens": 3, "model": "b", "_meta": {
                    "ostler.context": 5, "ostler.cacheWriteTokens": 7, "ostler.reasoningTokens": 4 } }),
            ),
            (meta(json!(0.25)), json!({ "_meta": { "ostler.cost": 0.5 } }), meta(json!(0.75))),
            (meta(json!(0.25)), json!({}), meta(json!(0.25))),
            (json!({ "inputTokens": 1 }), json!({ "_meta": { "ostler.cost": 0.5 } }), meta(json!(0.5))),
            (
                meta(dollars.clone()),
                json!({ "_meta": { "ostler.cost": dollars } }),
                meta(json!({ "amount": 1.0, "currency": "USD", "input": 0.5 })),
            ),
            // Sums of two currencies mean nothing.
            (
                meta(json!({ "amount": 1, "currency": "EUR" })),
                json!({ "_meta": { "ostler.cost": 0.5 } }),
                meta(json!({ "amount": 1, "currency": "EUR" })),
            ),
        ] {
            assert_eq!(sum(now.clone(), before), expected, "{now}");
        }
    }

    #[test]
    fn the_entries_of_a_turn_are_what_was_charged_of_it() {
        let entry = |usage: Value| taken(usage).entry(String::new).expect("an entry");
        let first = entry(json!({ "inputTokens": 100, "_meta": { "ostler.cost": 0.5 } }));
        let second = entry(json!({ "inputTokens": 50, "outputTokens": 2 }));
        let all = [&first, &second].map(Taken::charged).into_iter().fold(Taken::default(), Taken::plus);
        let whole = taken(json!({ "inputTokens": 160, "outputTokens": 2, "_meta": { "ostler.cost": 0.75 } }));
        let owed = whole.since(&all).entry(String::new).expect("an entry");
        assert_eq!((owed.model.unwrap().input, owed.cost.unwrap().amount), (Some(10), 0.25));
        let known = taken(json!({ "inputTokens": 160, "outputTokens": 1, "_meta": { "ostler.cost": 0.75 } }));
        let owed = whole.since(&all.at_least(known)).entry(String::new);
        assert_eq!(owed, None);
    }
}
