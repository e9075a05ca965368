//! Validated endpoint records. Spec: *Webhook endpoint record*.

use std::time::Duration;

use ostler_contract::{JsonObject, Slug, Value, VaultName};
use url::Url;

use crate::extras::{self, Extras, Format};
use crate::{BODY_LIMIT, TEXT_LIMIT, cloudevents, condition, token};

/// The target of calls to an endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Target {
    /// Talks to a bot.
    Bot(BotTarget),
    /// Fires the `webhook` trigger.
    Automation,
}

/// The settings of calls to a bot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BotTarget {
    /// `bot://<slug>`
    pub bot: String,
    /// The kind of the reply.
    pub reply: ReplyMode,
    /// The required prefix of callback URLs.
    pub callback_prefix: Option<Url>,
    /// The limit of a `sync` call.
    pub sync_timeout: Option<Duration>,
}

/// The kind of the reply to a bot call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    Callback,
    Sync,
    None,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Endpoint {
    pub id: Slug,
    pub target: Target,
    /// The vault name of the secret that callers send, or sign with.
    pub secret: String,
    /// Its settings beyond the specification.
    pub extras: Extras,
}

const FIELDS: &[&str] =
    &["id", "bot", "automation", "secret", "reply", "callbackPrefix", "syncTimeoutSeconds"];

impl Endpoint {
    /// Returns the maximum size of its bodies.
    pub fn body_limit(&self) -> usize {
        let sender = self.extras.verify.as_ref().map_or(BODY_LIMIT, |verify| verify.sender.body_limit);
        let format = match self.extras.format {
            Some(Format::CloudEvents) => cloudevents::BODY_LIMIT,
            None => BODY_LIMIT,
        };
        match self.target {
            Target::Automation if self.extras.when.is_some() => sender.min(format).min(condition::BODY_LIMIT),
            Target::Automation => sender.min(format),
            Target::Bot(_) => sender.min(format).min(TEXT_LIMIT),
        }
    }

    /// Returns why a secret is invalid for its sender.
    pub fn unusable(&self, secret: &str) -> Option<&'static str> {
        match &self.extras.verify {
            Some(verify) => verify.scheme.unusable(secret),
            None => token::unusable(secret),
        }
    }

    /// Validates a record; returns the endpoint and its harmless problems.
    ///
    /// # Errors
    /// Why it is not an endpoint.
    pub fn read(record: &JsonObject) -> Result<(Self, Vec<String>), String> {
        let id = text(record, "id")?.and_then(Slug::parse).ok_or("id must be a slug")?;
        let secret = text(record, "secret")?
            .ok_or("secret must be the vault name of the endpoint's secret, host:<name>")?;
        match VaultName::parse(secret) {
            Ok(VaultName::Host(_)) => {}
            Ok(_) => {
                return Err("secret must be a host: name; an endpoint belongs to no team or user".to_owned());
            }
            // The value is not repeated, because it may be the secret itself.
            Err(why) => return Err(format!("secret must be a vault name: {why}")),
        }
        let bot = text(record, "bot")?;
        let automation = match record.get("automation") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(fires)) => Some(*fires),
            Some(_) => return Err("automation must be true or false".to_owned()),
        };
        let answers = Answers::read(record)?;
        let target = match (bot, automation) {
            (Some(_), Some(true)) => return Err("set either bot or automation, not both".to_owned()),
            (None, Some(true)) => Target::Automation,
            (Some(bot), _) => Target::Bot(bot_target(bot, answers)?),
            (None, _) => return Err("set bot, or automation: true".to_owned()),
        };
        if let (Target::Bot(_), Some(field)) = (&target, extras::of_automations(record)) {
            return Err(format!(
                "{field} requires automation: true; a bot's calls have one chat and an order already"
            ));
        }
        let extras = Extras::read(record)?;
        if extras.when.is_some() && target != Target::Automation {
            return Err("when needs automation: true; calls to a bot are not filtered".to_owned());
        }
        let warnings = record
            .keys()
            .filter(|key| !FIELDS.contains(&key.as_str()) && !extras::FIELDS.contains(&key.as_str()))
            .map(|key| format!("unknown field {key}; ignored"))
            .collect();
        Ok((Self { id, target, secret: secret.to_owned(), extras }, warnings))
    }
}

/// Validates the fields about replies, for every target.
struct Answers {
    reply: ReplyMode,
    callback_prefix: Option<Url>,
    sync_timeout: Option<Duration>,
}

impl Answers {
    fn read(record: &JsonObject) -> Result<Self, String> {
        let reply = match text(record, "reply")? {
            None | Some("callback") => ReplyMode::Callback,
            Some("sync") => ReplyMode::Sync,
            Some("none") => ReplyMode::None,
            Some(_) => return Err("reply must be callback, sync or none".to_owned()),
        };
        let callback_prefix = text(record, "callbackPrefix")?.map(prefix).transpose()?;
        let sync_timeout = match record.get("syncTimeoutSeconds") {
            None | Some(Value::Null) => None,
            Some(seconds) => Some(
                seconds
                    .as_f64()
                    .filter(|seconds| *seconds > 0.0)
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                    .ok_or("syncTimeoutSeconds must be a number of seconds above 0")?,
            ),
        };
        Ok(Self { reply, callback_prefix, sync_timeout })
    }
}

fn bot_target(bot: &str, answers: Answers) -> Result<BotTarget, String> {
    let Answers { reply, callback_prefix, sync_timeout } = answers;
    if bot.strip_prefix("bot://").and_then(Slug::parse).is_none() {
        return Err("bot must be bot://<slug>".to_owned());
    }
    if reply == ReplyMode::Callback && callback_prefix.is_none() {
        return Err("reply callback requires a callbackPrefix".to_owned());
    }
    Ok(BotTarget { bot: bot.to_owned(), reply, callback_prefix, sync_timeout })
}

fn prefix(text: &str) -> Result<Url, String> {
    let wrong = || "callbackPrefix must be an http or https URL whose path ends in /".to_owned();
    let url = Url::parse(text).map_err(|_| wrong())?;
    let good = matches!(url.scheme(), "http" | "https") && url.path().ends_with('/');
    if good { Ok(url) } else { Err(wrong()) }
}

fn text<'a>(record: &'a JsonObject, field: &str) -> Result<Option<&'a str>, String> {
    match record.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{field} must be text")),
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn read(record: Value) -> Result<(Endpoint, Vec<String>), String> {
        Endpoint::read(record.as_object().expect("an object"))
    }

    #[test]
    fn what_is_an_endpoint() {
        let (endpoint, odd) =
            read(json!({ "id": "deploy", "automation": true, "secret": "host:deploy", "colour": 1 }))
                .unwrap();
        assert_eq!(endpoint.target, Target::Automation);
        assert_eq!(odd, ["unknown field colour; ignored"]);
        let bot = json!({ "id": "ask", "bot": "bot://helper", "secret": "host:k", "reply": "sync", "syncTimeoutSeconds": 1.5 });
        let Target::Bot(target) = read(bot).unwrap().0.target else { panic!("no bot") };
        assert_eq!((target.reply, target.sync_timeout), (ReplyMode::Sync, Some(Duration::from_millis(1500))));
        let prefixed = json!({ "id": "ask", "bot": "bot://helper", "secret": "host:k", "callbackPrefix": "https://a.example/in/" });
        assert!(read(prefixed).is_ok());
        let asked = json!({ "id": "ask", "bot": "bot://helper", "secret": "host:k", "callbackPrefix": "https://a.example/in/?to=#x" });
        let Target::Bot(target) = read(asked).unwrap().0.target else { panic!("no bot") };
        assert_eq!(target.callback_prefix.unwrap().as_str(), "https://a.example/in/?to=#x");
    }

    #[test]
    fn what_is_none_and_why() {
        let base = |more: Value| {
            let mut record = json!({ "id": "a", "secret": "host:k" });
            record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(record).unwrap_err()
        };
        for (more, why) in [
            (json!({}), "set bot, or automation: true"),
            (json!({ "automation": false }), "set bot, or automation: true"),
            (json!({ "automation": "yes" }), "automation must be true or false"),
            (json!({ "automation": true, "bot": "bot://b" }), "set either bot or automation, not both"),
            (json!({ "bot": "helper" }), "bot must be bot://<slug>"),
            (json!({ "bot": "bot://b" }), "reply callback requires a callbackPrefix"),
            (json!({ "bot": "bot://b", "reply": "later" }), "reply must be callback, sync or none"),
            (
                json!({ "bot": "bot://b", "callbackPrefix": "ftp://x/" }),
                "callbackPrefix must be an http or https URL whose path ends in /",
            ),
            (
                json!({ "bot": "bot://b", "callbackPrefix": "https://x/a" }),
                "callbackPrefix must be an http or https URL whose path ends in /",
            ),
            (
                json!({ "bot": "bot://b", "reply": "sync", "syncTimeoutSeconds": 0 }),
                "syncTimeoutSeconds must be a number of seconds above 0",
            ),
            (json!({ "automation": true, "secret": 5 }), "secret must be text"),
            (json!({ "automation": true, "reply": "later" }), "reply must be callback, sync or none"),
            (
                json!({ "automation": true, "callbackPrefix": "https://x/a" }),
                "callbackPrefix must be an http or https URL whose path ends in /",
            ),
            (
                json!({ "automation": true, "syncTimeoutSeconds": "60" }),
                "syncTimeoutSeconds must be a number of seconds above 0",
            ),
            (
                json!({ "automation": true, "secret": null }),
                "secret must be the vault name of the endpoint's secret, host:<name>",
            ),
            (
                json!({ "automation": true, "secret": "team:t/k" }),
                "secret must be a host: name; an endpoint belongs to no team or user",
            ),
            (json!({ "automation": true, "id": "Not A Slug" }), "id must be a slug"),
            (
                json!({ "bot": "bot://b", "reply": "none", "orderBy": "ref" }),
                "orderBy requires automation: true; a bot's calls have one chat and an order already",
            ),
            (
                json!({ "bot": "bot://b", "reply": "none", "session": { "by": "ref" } }),
                "session requires automation: true; a bot's calls have one chat and an order already",
            ),
        ] {
            assert_eq!(base(more), why);
        }
        let pasted = base(json!({ "automation": true, "secret": "sk-live-123" }));
        assert!(!pasted.contains("sk-live-123"), "{pasted}");
    }

    proptest::proptest! {
        #[test]
        fn no_record_panics(fields in proptest::collection::btree_map("(id|bot|automation|secret|reply|callbackPrefix|syncTimeoutSeconds|[a-z]{3})", ".{0,20}", 0..8)) {
            let _ = read(json!(fields));
        }
    }
}
