//! Policies: their evaluation before work starts, and the scheme in which they are edited.

use std::fmt::Display;
use std::sync::{Arc, Weak};

use ostler_contract::owner::Owner;
use ostler_contract::points::{
    Encoding, Policies, Reader, ResourceContent, ResourceFacts, ResourceProvider, ResourceWrite,
    ResourceWriter, SchemeDescription, SchemeProvider,
};
use ostler_contract::policy::check_policy;
use ostler_contract::problems::{Finding, ProblemKind};
use ostler_contract::{Call, JsonObject, Text, Thrown, Value, limit};
use ostler_engine_core::shared::Core;
use ostler_protocol::grants::{self, Grant};
use ostler_protocol::wire::commands::DirectoryEntry;
use ostler_protocol::{RpcError, json};

use crate::users::access::{Access, ChargedTo};

const SCHEME: &str = "policy";

/// What work uses.
#[derive(Debug, Clone, Copy, Default)]
pub struct Use<'a> {
    /// The harness.
    pub agent: &'a str,
    /// `<maker>/<name>`, if known.
    pub model: Option<&'a str>,
    /// The machine, or its template; absent for this host.
    pub computer: Option<&'a str>,
}

impl Use<'_> {
    /// Returns the value of a type, if the request has one.
    fn value(&self, r#type: &str) -> Option<&str> {
        match r#type {
            "agent" => Some(self.agent),
            "model" => self.model,
            "computer" => self.computer,
            _ => None,
        }
    }
}

impl std::fmt::Display for Use<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "agent {}", self.agent)?;
        self.model.map_or(Ok(()), |model| write!(formatter, " with model {model}"))?;
        self.computer.map_or(Ok(()), |computer| write!(formatter, " on {computer}"))
    }
}

impl Access {
    /// Returns whether policies restrict the work of an owner. They do not for the host itself, for work without an
    /// owner, without a users file, and if the operator has not enabled policies.
    pub fn asks_policies(&self, owner: Option<&str>) -> bool {
        self.restricted(owner).is_some()
    }

    fn restricted<'a>(&self, owner: Option<&'a str>) -> Option<&'a str> {
        let owner = owner.filter(|owner| !matches!(Owner::parse(owner), Some(Owner::Root(_))))?;
        let asks = self.gate.is_guarded()
            && self.core.options.check_policies
            && !self.may(owner, &Grant::of("*", "*"));
        asks.then_some(owner)
    }

    /// Rejects work that a policy denies or none allows. It waits for a store, so do not call it in a shared task.
    pub async fn may_use(
        &self,
        owner: Option<&str>,
        charged: &ChargedTo,
        wanted: Use<'_>,
    ) -> Result<(), RpcError> {
        self.may_all_use(&[(owner, wanted)], charged).await
    }

    /// Checks one start of work for several owners or uses, and reads the policies once. The policies of the team and the
    /// project that the work is charged to bind each of them.
    pub async fn may_all_use(
        &self,
        uses: &[(Option<&str>, Use<'_>)],
        charged: &ChargedTo,
    ) -> Result<(), RpcError> {
        let uses: Vec<_> =
            uses.iter().filter_map(|(owner, wanted)| Some((self.restricted(*owner)?, wanted))).collect();
        if uses.is_empty() {
            return Ok(());
        }
        let rows = self.policies().await.map_err(RpcError::permission_denied)?;
        let now = format!("{:.3}", self.core.clock.now());
        uses.into_iter().try_for_each(|(owner, wanted)| judge(&rows, (owner, charged), wanted, &now))
    }

    /// Lists, and logs once, why policies let no work start.
    pub async fn look_at_policies(&self) {
        let fix = "correct the policies, or set \"policies\": { \"check\": false } in the configuration";
        let found = self.unusable_policies().await.map(|why| Finding::error(why).fixed_by(fix));
        self.core.log.set_problems(ProblemKind::Policies, "policies", found.into_iter().collect());
    }

    /// Returns why policies let no work start, if they are enabled and none exists or one cannot be read.
    async fn unusable_policies(&self) -> Option<String> {
        if !self.core.options.check_policies || !self.gate.is_guarded() {
            return None;
        }
        match self.policies().await {
            Ok(rows) if rows.is_empty() => Some(
                "policy checks are on but no policy exists; all work except the host's own will be denied"
                    .to_owned(),
            ),
            Ok(_) => None,
            Err(why) => Some(why),
        }
    }

    async fn policies(&self) -> Result<Vec<JsonObject>, String> {
        let store = self.core.policies().ok_or_else(|| unreadable(&"there is no store"))?;
        let rows = store.list.read(limit::POLICIES, ()).await.known().map_err(|why| unreadable(&why))?;
        let rows = rows.into_iter().map(|row| check_policy(&Value::Object(row)));
        rows.collect::<Result<Vec<_>, _>>().map_err(|error| unreadable(&error.message))
    }
}

/// Returns whether policies allow work at a time, by its owner and the team and project that it is charged to.
fn judge(rows: &[JsonObject], work: (&str, &ChargedTo), wanted: &Use<'_>, now: &str) -> Result<(), RpcError> {
    let (mut allowed, mut machine) = (false, wanted.computer.is_none());
    for row in rows {
        let of_machine = wanted.computer.is_some() && is_of(row, "kind", "computer");
        if !(is_of(row, "kind", "agent") || of_machine) || !holds(row, work) || !active(row, now) {
            continue;
        }
        let denies = is_of(row, "effect", "deny");
        match (matches(row, wanted, denies), denies) {
            (true, true) => {
                let id = row.get("id").and_then(Value::as_str).unwrap_or_default();
                return Err(RpcError::permission_denied(format!("{id} refuses {wanted}")));
            }
            (true, false) if of_machine => machine = true,
            (true, false) => allowed = true,
            (false, _) => {}
        }
    }
    match (allowed, machine, wanted.computer) {
        (true, false, Some(computer)) => {
            Err(RpcError::permission_denied(format!("no policy allows computer {computer}")))
        }
        (true, ..) => Ok(()),
        (false, ..) => Err(RpcError::permission_denied(format!("no policy allows {wanted}"))),
    }
}

fn unreadable(why: &dyn Display) -> String {
    format!("cannot read the policies, so no work can start: {why}")
}

fn is_of(row: &JsonObject, field: &str, value: &str) -> bool {
    row.get(field).and_then(Value::as_str) == Some(value)
}

/// Returns whether a policy's scope includes work: `all`, its owner, and the team and project that it is charged to.
fn holds(row: &JsonObject, (owner, charged): (&str, &ChargedTo)) -> bool {
    let scope = row.get("scope").and_then(Value::as_str);
    scope.is_some_and(|scope| scope == "all" || scope == owner || charged.includes(scope))
}

/// Instants are texts that sort by time.
fn active(row: &JsonObject, now: &str) -> bool {
    let at = |field: &str| row.get(field).and_then(Value::as_str);
    at("from").is_none_or(|from| from <= now) && at("until").is_none_or(|until| now <= until)
}

/// Returns whether all types of a policy match. A type that the request does not have is ignored for `allow`, and
/// prevents a match for `deny`.
fn matches(row: &JsonObject, wanted: &Use<'_>, denies: bool) -> bool {
    let types = row.get("match").and_then(Value::as_object);
    types.into_iter().flatten().all(|(r#type, values)| match wanted.value(r#type) {
        None => !denies,
        Some(value) => {
            let mut patterns = values.as_array().into_iter().flatten().filter_map(Value::as_str);
            patterns.any(|pattern| fits(pattern, value))
        }
    })
}

/// Returns whether a value matches a pattern as a whole; `*` matches any characters.
fn fits(pattern: &str, value: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| value.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns the provider of the scheme for policies.
pub fn provider(core: Weak<Core>) -> SchemeProvider {
    let store = move || -> Result<Policies, Thrown> {
        let kept = core.upgrade().and_then(|core| core.policies().cloned());
        kept.ok_or_else(|| Thrown::from(RpcError::method_not_found("this host has no policies")))
    };
    let store = Arc::new(store);
    let (read, list, resolve, write, delete) =
        (store.clone(), store.clone(), store.clone(), store.clone(), store);
    let provider = ResourceProvider {
        read: Call::new(move |(uri, _): (String, Option<Reader>)| {
            let store = read();
            async move { Ok(ResourceContent::json(&Value::Object(row_of(&store?, &uri).await?))) }
        }),
        list: Some(Call::new(move |_| {
            let store = list();
            async move {
                let rows = store?.list.read(limit::POLICIES, ()).await.known()?;
                let ids = rows.iter().filter_map(|row| row.get("id").and_then(Value::as_str));
                Ok(ids.map(|id| DirectoryEntry { name: id.to_owned(), r#type: "file".to_owned() }).collect())
            }
        })),
        resolve: Some(Call::new(move |(uri, ..): (String, Option<Reader>, _)| {
            let store = resolve();
            async move {
                if uri.trim_end_matches('/').ends_with(':') {
                    return Ok(ResourceFacts { r#type: "directory".to_owned(), ..ResourceFacts::default() });
                }
                let content = ResourceContent::json(&Value::Object(row_of(&store?, &uri).await?));
                let size = i64::try_from(content.data.len()).ok();
                let content_type = content.content_type;
                Ok(ResourceFacts {
                    r#type: "file".to_owned(),
                    size,
                    content_type,
                    ..ResourceFacts::default()
                })
            }
        })),
        write: Some(Call::new(move |(uri, content, _): (String, ResourceWrite, ResourceWriter)| {
            let store = write();
            async move { put(&store?, &uri, content).await }
        })),
        delete: Some(Call::new(move |(uri, _, _): (String, bool, ResourceWriter)| {
            let store = delete();
            async move {
                let id = id_of(&uri)?;
                match store?.remove.within(limit::POLICIES, (id.clone(),)).await? {
                    true => Ok(()),
                    false => Err(missing(&id).into()),
                }
            }
        })),
        describe: Some(Call::now(|()| {
            let known = grants::subject(SCHEME);
            Ok(SchemeDescription {
                title: known.map(|known| known.title.to_owned()),
                description: known.map(|known| known.description.to_owned()),
                manifest: json!({ "type": "object", "required": ["scope", "kind", "effect"] })
                    .as_object()
                    .cloned(),
            })
        })),
        ..ResourceProvider::default()
    };
    SchemeProvider { scheme: Text::from(SCHEME), provider }
}

fn missing(id: &str) -> RpcError {
    RpcError::not_found(format!("unknown policy {id}"))
}

fn id_of(uri: &str) -> Result<String, RpcError> {
    let rest = uri.get(SCHEME.len()..).and_then(|rest| rest.strip_prefix("://")).unwrap_or_default();
    let id = rest.trim_end_matches('/');
    match id.is_empty() || id.contains('/') {
        true => Err(RpcError::not_found(format!("{uri} is not a policy URI: policy://<id>"))),
        false => Ok(id.to_owned()),
    }
}

async fn row_of(store: &Policies, uri: &str) -> Result<JsonObject, Thrown> {
    let id = id_of(uri)?;
    store.get.read(limit::POLICIES, (id.clone(),)).await.known()?.ok_or_else(|| missing(&id).into())
}

/// Stores a policy: an omitted field keeps its value, `null` removes it, and the id of the URI has priority over one in
/// the body.
async fn put(store: &Policies, uri: &str, content: ResourceWrite) -> Result<(), Thrown> {
    let id = id_of(uri)?;
    let held = store.get.read(limit::POLICIES, (id.clone(),)).await.known()?;
    if held.is_some() && content.create_only {
        return Err(RpcError::already_exists(format!("policy {id} already exists")).into());
    }
    let body = match serde_json::from_str(&content.data) {
        Ok(Value::Object(body)) if content.encoding != Some(Encoding::Base64) => body,
        _ => return Err(RpcError::invalid_params("the policy must be an object").into()),
    };
    let mut row = held.unwrap_or_default();
    for (field, value) in body {
        match value.is_null() {
            true => drop(row.shift_remove(&field)),
            false => drop(row.insert(field, value)),
        }
    }
    row.insert("id".to_owned(), id.into());
    store.put.within(limit::POLICIES, (check_policy(&Value::Object(row))?,)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(rows: &Value, wanted: &Use<'_>, now: &str) -> Result<(), String> {
        let rows: Vec<JsonObject> =
            rows.as_array().unwrap().iter().map(|row| check_policy(row).unwrap()).collect();
        judge(&rows, ("user:ben", &charged()), wanted, now).map_err(|refusal| refusal.message)
    }

    fn charged() -> ChargedTo {
        ChargedTo { team: Some("blue".to_owned()), project: Some("site".to_owned()) }
    }

    #[test]
    fn a_computer_needs_a_policy_of_its_own_and_a_denial_wins() {
        let now = "2026-06-01T00:00:00.000Z";
        let here = Use { agent: "echo", model: Some("maker/small"), computer: None };
        let there = Use { computer: Some("big"), ..here };
        let all = |kind: &str, effect: &str| json!({ "id": format!("{kind}-{effect}"), "scope": "all", "kind": kind, "effect": effect });
        let (agent, computer) = (all("agent", "allow"), all("computer", "allow"));
        assert_eq!(
            judged(&json!([]), &here, now),
            Err("no policy allows agent echo with model maker/small".to_owned())
        );
        assert_eq!(judged(&json!([agent]), &here, now), Ok(()));
        assert_eq!(judged(&json!([agent]), &there, now), Err("no policy allows computer big".to_owned()));
        assert_eq!(
            judged(&json!([computer]), &there, now),
            Err("no policy allows agent echo with model maker/small on big".to_owned())
        );
        assert_eq!(judged(&json!([agent, computer]), &there, now), Ok(()));
        // One of computers says nothing about work on this host.
        assert!(judged(&json!([computer]), &here, now).is_err());
        let no_computer = all("computer", "deny");
        assert_eq!(judged(&json!([agent, no_computer]), &here, now), Ok(()));
        assert_eq!(
            judged(&json!([agent, computer, no_computer]), &there, now),
            Err("computer-deny refuses agent echo with model maker/small on big".to_owned())
        );
        let mut other = computer.clone();
        other["match"] = json!({ "computer": ["small*"] });
        assert_eq!(
            judged(&json!([agent, other]), &there, now),
            Err("no policy allows computer big".to_owned())
        );
        other["match"] = json!({ "computer": ["b*"] });
        assert_eq!(judged(&json!([agent, other]), &there, now), Ok(()));
    }

    #[test]
    fn a_policy_is_of_its_scope_and_its_time() {
        let here = Use { agent: "echo", model: None, computer: None };
        let allow = |more: Value| {
            let mut row = json!({ "id": "a", "scope": "all", "kind": "agent", "effect": "allow" });
            row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!([row])
        };
        let now = "2026-06-01T00:00:00.000Z";
        assert!(judged(&allow(json!({ "scope": "user:ben" })), &here, now).is_ok());
        assert!(judged(&allow(json!({ "scope": "user:cy" })), &here, now).is_err());
        for scope in ["team:blue", "project:blue:site"] {
            assert!(judged(&allow(json!({ "scope": scope })), &here, now).is_ok(), "{scope}");
        }
        for scope in ["team:red", "project:blue:other", "project:red:site", "team:site"] {
            assert!(judged(&allow(json!({ "scope": scope })), &here, now).is_err(), "{scope}");
        }
        let day = json!({ "from": "2026-06-01T00:00:00.000Z", "until": "2026-06-01T00:00:00.000Z" });
        assert!(judged(&allow(day.clone()), &here, now).is_ok());
        assert!(judged(&allow(day.clone()), &here, "2026-06-01T00:00:00.001Z").is_err());
        assert!(judged(&allow(day), &here, "2026-05-31T23:59:59.999Z").is_err());
        // What the work does not have prevents a denial, not a permission.
        assert!(judged(&allow(json!({ "match": { "model": ["x"] } })), &here, now).is_ok());
        let deny = json!({ "id": "d", "scope": "all", "kind": "agent", "effect": "deny", "match": { "model": ["*"] } });
        let mut rows = allow(json!({}));
        rows.as_array_mut().unwrap().push(deny);
        assert!(judged(&rows, &here, now).is_ok());
        let named = Use { model: Some("x"), ..here };
        assert_eq!(judged(&rows, &named, now), Err("d refuses agent echo with model x".to_owned()));
    }

    #[test]
    fn a_uri_names_one_policy() {
        assert_eq!(id_of("policy://a").unwrap(), "a");
        assert_eq!(id_of("policy://a/").unwrap(), "a");
        for wrong in ["policy://", "policy://a/b", "policy:a", "notes://a"] {
            assert!(id_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_star_is_any_run_and_the_whole_value_is_meant() {
        for (pattern, value) in [
            ("*", ""),
            ("*", "a/b"),
            ("a/*", "a/b"),
            ("*/b", "a/b"),
            ("a*c", "abc"),
            ("a*c", "ac"),
            ("a", "a"),
            ("a*b*c", "a1b2c"),
            ("**", "x"),
            ("a*a", "aba"),
        ] {
            assert!(fits(pattern, value), "{pattern} {value}");
        }
        for (pattern, value) in [
            ("a", "ab"),
            ("a", "ba"),
            ("a*c", "ab"),
            ("a*a", "a"),
            ("", "a"),
            ("a.c", "abc"),
            ("A", "a"),
            ("*b*b*", "ab"),
        ] {
            assert!(!fits(pattern, value), "{pattern} {value}");
        }
    }
}
