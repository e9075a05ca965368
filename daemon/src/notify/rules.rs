//! The rules of `notify.yaml`: which sessions cause a message, when, to whom, and over which service.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::duration::{A_DURATION, read_duration};
use ostler_contract::id::SLUG_RULE;
use ostler_contract::owner::Owner;
use ostler_contract::{JsonObject, Slug, Value, VaultName};
use ostler_ports::yaml;
use ostler_protocol::nearest::did_you_mean;
use ostler_protocol::uri;

use super::request::{CLIENT_TOOL, KINDS};
use super::send::email::{self, Email};
use super::send::is_private;

/// Default time in which a client may answer before a message is sent.
const AFTER: Duration = Duration::from_secs(15);
/// Default lifetime of a link.
const EXPIRES: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum of both durations.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The units of durations.
const UNITS: &[&str] = &["s", "m", "h", "d"];
/// Maximum number of rules in a file.
pub const MOST: usize = 200;

/// The rules of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules(pub Vec<Arc<Rule>>);

#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub id: Slug,
    /// The owners whose sessions it applies to; all owners if empty.
    pub owners: Vec<String>,
    /// The ids of the automations whose sessions it applies to; all sessions if empty.
    pub automations: Vec<String>,
    /// The ids of the bots whose sessions it applies to; all sessions if empty.
    pub bots: Vec<String>,
    /// The kinds of requests it applies to.
    pub kinds: Vec<&'static str>,
    /// The user who answers with the link; the session's owner if absent.
    pub user: Option<String>,
    /// How long a client may answer before a message is sent.
    pub after: Duration,
    /// How long the link is valid after that.
    pub expires: Duration,
    /// The target of the message.
    pub target: Target,
}

/// The target of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A Standard Webhooks message.
    Webhook {
        /// The URL to post it to.
        url: String,
        /// The vault name of the secret that signs it.
        secret: VaultName,
    },
    /// An incoming webhook of Slack.
    Slack {
        /// The vault name of its URL, which is a credential.
        url: VaultName,
    },
    /// E-mail.
    Email(Email),
}

/// The facts of a session by which rules select it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub owner: Option<String>,
    /// The id of the automation that started it.
    pub automation: Option<String>,
    /// The ids of the bots whose conversations it belongs to.
    pub bots: Vec<String>,
}

impl Rules {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The error with its place and without the values of the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value = yaml::parse(text).map_err(|error| match error.message.contains('"') {
            // The parser's message may quote the file's content.
            true => format!("line {}, column {}: invalid YAML", error.line, error.column),
            false => error.to_string(),
        })?;
        let fields = match value {
            Value::Null => return Ok(Self::default()),
            Value::Object(fields) => fields,
            _ => return Err("the file must contain rules, a list".to_owned()),
        };
        let top = Fields::of(&fields, "", &["after", "expires", "rules"])?;
        let (after, expires) = (top.duration("after")?, top.duration("expires")?);
        let rows = match fields.get("rules") {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(rows)) if rows.len() <= MOST => rows,
            Some(Value::Array(rows)) => {
                return Err(format!("rules has {} entries; at most {MOST} are allowed", rows.len()));
            }
            Some(_) => return Err("rules must be a list".to_owned()),
        };
        let mut rules: Vec<Arc<Rule>> = Vec::with_capacity(rows.len());
        for (at, row) in rows.iter().enumerate() {
            let rule = Rule::read(row, &format!("rules[{at}]"), after, expires)?;
            if rules.iter().any(|other| other.id == rule.id) {
                return Err(format!("rules[{at}].id: {} is the id of another rule", rule.id));
            }
            rules.push(Arc::new(rule));
        }
        Ok(Self(rules))
    }

    /// Returns the rule with an id.
    pub fn get(&self, id: &str) -> Option<&Arc<Rule>> {
        self.0.iter().find(|rule| &*rule.id == id)
    }

    /// Returns the rules that apply to a session.
    pub fn about(&self, facts: &Facts) -> impl Iterator<Item = &Arc<Rule>> {
        self.0.iter().filter(move |rule| rule.is_about(facts))
    }

    /// Whether a rule selects by bot.
    pub fn name_bots(&self) -> bool {
        self.0.iter().any(|rule| !rule.bots.is_empty())
    }

    /// Returns the vault names that the rules need, each with its place.
    pub fn secrets(&self) -> Vec<(String, String)> {
        let named = self.0.iter().enumerate().filter_map(|(at, rule)| {
            let (field, name) = match &rule.target {
                Target::Webhook { secret, .. } => ("webhook.secret", secret),
                Target::Slack { url } => ("slack.url", url),
                Target::Email(email) => ("email.password", &email.login.as_ref()?.1),
            };
            Some((format!("{}: rules[{at}].{field}", super::FILE), name.to_string()))
        });
        named.collect()
    }
}

impl Rule {
    fn read(
        row: &Value,
        place: &str,
        after: Option<Duration>,
        expires: Option<Duration>,
    ) -> Result<Self, String> {
        let Value::Object(row) = row else { return Err(format!("{place} must be an object")) };
        let known = [
            "id",
            "owner",
            "automation",
            "bot",
            "kinds",
            "user",
            "after",
            "expires",
            "webhook",
            "slack",
            "email",
        ];
        let fields = Fields::of(row, place, &known)?;
        let id = fields.required("id")?;
        let id = Slug::parse(id).ok_or_else(|| format!("{place}.id must be {SLUG_RULE}"))?;
        let owners = fields.texts("owner")?;
        if owners.iter().any(|owner| Owner::parse(owner).is_none()) {
            return Err(format!("{place}.owner must be {}", Owner::FORMS));
        }
        let automations = fields.texts("automation")?;
        let automations =
            automations.iter().map(|name| uri::automation_id(name).unwrap_or(name).to_owned()).collect();
        let bots = fields.texts("bot")?;
        let bots = bots.iter().map(|name| name.strip_prefix("bot://").unwrap_or(name).to_owned()).collect();
        let user = fields.text("user")?;
        let user = user.map(|user| Owner::parse(user).and_then(Owner::user).unwrap_or(user).to_owned());
        if user.as_ref().is_some_and(|user| Owner::parse(&format!("user:{user}")).is_none()) {
            return Err(format!("{place}.user must be the id of a user"));
        }
        let of_rule = |name: &str, of_file: Option<Duration>, default: Duration| {
            Ok::<_, String>(fields.duration(name)?.or(of_file).unwrap_or(default))
        };
        Ok(Self {
            id,
            owners,
            automations,
            bots,
            kinds: kinds(&fields)?,
            user,
            after: of_rule("after", after, AFTER)?,
            expires: of_rule("expires", expires, EXPIRES)?,
            target: target(&fields)?,
        })
    }

    /// Whether it applies to a session.
    fn is_about(&self, facts: &Facts) -> bool {
        let any = |wanted: &[String], found: &[String]| {
            wanted.is_empty() || found.iter().any(|found| wanted.contains(found))
        };
        any(&self.owners, facts.owner.as_slice())
            && any(&self.automations, facts.automation.as_slice())
            && any(&self.bots, &facts.bots)
    }
}

/// Returns the kinds of requests of a rule; without the field, those that need a person.
fn kinds(rule: &Fields<'_>) -> Result<Vec<&'static str>, String> {
    let named = rule.texts("kinds")?;
    if named.is_empty() {
        return Ok(KINDS.iter().copied().filter(|kind| *kind != CLIENT_TOOL).collect());
    }
    let kind = |name: &String| {
        let known = KINDS.iter().copied().find(|kind| kind == name);
        known.ok_or_else(|| {
            let hint = did_you_mean(name, KINDS.iter().copied());
            format!("{} must be of {}{hint}", rule.at("kinds"), KINDS.join(", "))
        })
    };
    named.iter().map(kind).collect()
}

fn target(rule: &Fields<'_>) -> Result<Target, String> {
    let place = rule.place;
    let given: Vec<&str> =
        ["webhook", "slack", "email"].into_iter().filter(|name| rule.object.contains_key(*name)).collect();
    let [name] = given[..] else {
        return Err(format!("{place} must have exactly one of webhook, slack and email"));
    };
    let inner = format!("{place}.{name}");
    let Some(Value::Object(object)) = rule.object.get(name) else {
        return Err(format!("{inner} must be an object"));
    };
    match name {
        "webhook" => {
            let fields = Fields::of(object, &inner, &["url", "secret"])?;
            let url = fields.required("url")?;
            checked_url(url).map_err(|why| format!("{inner}.url {why}"))?;
            Ok(Target::Webhook { url: url.to_owned(), secret: fields.secret("secret")? })
        }
        "slack" => {
            let fields = Fields::of(object, &inner, &["url"])?;
            Ok(Target::Slack { url: fields.secret("url")? })
        }
        _ => {
            let known = ["server", "port", "tls", "user", "password", "from", "to"];
            email::read(&Fields::of(object, &inner, &known)?).map(Target::Email)
        }
    }
}

/// Checks whether a link may be sent to a URL. The link acts as its user, so the connection must be encrypted.
///
/// # Errors
/// The requirement that the URL does not meet.
pub(super) fn checked_url(url: &str) -> Result<url::Url, &'static str> {
    let url = url::Url::parse(url).map_err(|_| "must be a URL")?;
    match (url.scheme(), url.host_str()) {
        ("https", Some(_)) => Ok(url),
        ("http", Some(host)) if is_private(host) => Ok(url),
        _ => Err("must be an https URL; http is allowed to this computer only"),
    }
}

/// The fields of an object of the file.
pub(super) struct Fields<'a> {
    object: &'a JsonObject,
    place: &'a str,
}

impl<'a> Fields<'a> {
    /// Returns the fields of an object at a place, after checking that it has only known fields.
    fn of(object: &'a JsonObject, place: &'a str, known: &[&str]) -> Result<Self, String> {
        match object.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => {
                let hint = did_you_mean(key, known.iter().copied());
                let separator = if place.is_empty() { "" } else { ": " };
                Err(format!("{place}{separator}unknown field {key}{hint}"))
            }
            None => Ok(Self { object, place }),
        }
    }

    fn at(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Returns a text that is not blank, if the field is present.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.trim())),
            Some(_) => Err(format!("{} must be text", self.at(name))),
        }
    }

    /// Returns a text that is not blank.
    pub fn required(&self, name: &str) -> Result<&'a str, String> {
        self.text(name)?.ok_or_else(|| format!("{} is missing", self.at(name)))
    }

    /// Returns a list of texts; a single text is a list of one.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let entries = match self.get(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(entries)) if !entries.is_empty() => entries.iter().collect(),
            Some(one) => vec![one],
        };
        let text =
            |value: &Value| value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let texts: Option<Vec<String>> = entries.into_iter().map(text).collect();
        texts.ok_or_else(|| format!("{} must be text or a list of texts", self.at(name)))
    }

    /// Returns a port number.
    pub fn port(&self, name: &str) -> Result<Option<u16>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let port = value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        port.map(Some).ok_or_else(|| format!("{} must be an integer between 1 and 65535", self.at(name)))
    }

    fn duration(&self, name: &str) -> Result<Option<Duration>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let duration = value.as_str().and_then(|text| read_duration(text, UNITS));
        match duration {
            None => Err(format!("{} must be {A_DURATION}", self.at(name))),
            Some(duration) if duration > LONGEST => Err(format!("{} must be at most 30d", self.at(name))),
            some => Ok(some),
        }
    }

    /// Returns the vault name of a secret. The value may be the secret itself, so errors do not contain it.
    pub fn secret(&self, name: &str) -> Result<VaultName, String> {
        VaultName::parse(self.required(name)?)
            .map_err(|_| format!("{} must be the vault name of a secret, such as host:notify", self.at(name)))
    }

    /// Returns the vault name of a secret, if the field is present.
    pub fn optional_secret(&self, name: &str) -> Result<Option<VaultName>, String> {
        self.get(name).map(|_| self.secret(name)).transpose()
    }

    /// Returns the place of a field for error messages.
    pub fn place_of(&self, name: &str) -> String {
        self.at(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLACK: &str = "slack: { url: host:slack }";

    fn wrong(text: &str) -> String {
        Rules::parse(text).unwrap_err()
    }

    #[test]
    fn a_file_is_read_with_its_defaults() {
        let text = "after: 5s\nrules:\n  - id: one\n    owner: user:ada\n    automation: [a, 'automation:/b']\n    \
                    expires: 2h\n    slack: { url: host:slack }\n  - { id: two, bot: bot://helper, user: user:bob, \
                    webhook: { url: 'https://h.example/x', secret: host:hook } }\n";
        let rules = Rules::parse(text).unwrap();
        let one = rules.get("one").unwrap();
        assert_eq!((one.after, one.expires), (Duration::from_secs(5), Duration::from_secs(7200)));
        assert_eq!(one.owners, ["user:ada"]);
        let two = rules.get("two").unwrap();
        assert_eq!((two.bots.as_slice(), two.user.as_deref()), (&["helper".to_owned()][..], Some("bob")));
        assert_eq!(two.expires, EXPIRES);
        assert_eq!(two.kinds, ["approval", "question", "signIn"], "what needs a person");
        let kinds = format!("rules: [{{ id: a, kinds: [clientTool, signIn], {SLACK} }}]");
        assert_eq!(Rules::parse(&kinds).unwrap().0[0].kinds, ["clientTool", "signIn"]);
        let unknown = wrong(&format!("rules: [{{ id: a, kinds: aproval, {SLACK} }}]"));
        assert!(unknown.starts_with("rules[0].kinds must be of approval, question,"), "{unknown}");
        assert!(unknown.ends_with("did you mean approval?"), "{unknown}");
        assert_eq!(
            rules.secrets(),
            [
                ("notify.yaml: rules[0].slack.url".to_owned(), "host:slack".to_owned()),
                ("notify.yaml: rules[1].webhook.secret".to_owned(), "host:hook".to_owned()),
            ]
        );
        for empty in ["", "# nothing yet\n", "rules:\n", "rules: []"] {
            assert_eq!(Rules::parse(empty), Ok(Rules::default()), "{empty:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_without_the_value() {
        let rule = |more: &str| wrong(&format!("rules: [{{ id: one, {more} }}]"));
        assert_eq!(wrong("- 1"), "the file must contain rules, a list");
        assert_eq!(wrong("rule: []"), "unknown field rule; did you mean rules?");
        assert_eq!(wrong("rules: [{ slack: 1 }]"), "rules[0].id is missing");
        assert_eq!(rule("after: 5"), "rules[0].after must be a duration such as 30s, 5m or 2h");
        assert_eq!(rule("expires: 31d"), "rules[0].expires must be at most 30d");
        assert_eq!(rule("owner: ada"), format!("rules[0].owner must be {}", Owner::FORMS));
        assert_eq!(rule("user: 'a/b'"), "rules[0].user must be the id of a user");
        assert_eq!(rule("after: 1s"), "rules[0] must have exactly one of webhook, slack and email");
        assert_eq!(
            rule("slack: { url: https://hooks.slack.example/SECRET }"),
            "rules[0].slack.url must be the vault name of a secret, such as host:notify"
        );
        assert_eq!(rule("slack: https://hooks.slack.example/SECRET"), "rules[0].slack must be an object");
        for url in ["http://h.example/SECRET", "SECRET", "ftp://127.0.0.1/SECRET"] {
            let why = rule(&format!("webhook: {{ url: '{url}', secret: host:x }}"));
            assert!(why.starts_with("rules[0].webhook.url must be") && !why.contains("SECRET"), "{why}");
        }
        assert_eq!(
            rule(&format!("automatn: x, {SLACK}")),
            "rules[0]: unknown field automatn; did you mean automation?"
        );
        let twice = format!("rules: [{{ id: one, {SLACK} }}, {{ id: one, {SLACK} }}]");
        assert_eq!(wrong(&twice), "rules[1].id: one is the id of another rule");
    }

    #[test]
    fn every_selector_of_a_rule_has_to_match() {
        let facts = Facts {
            owner: Some("user:ada".to_owned()),
            automation: Some("nightly".to_owned()),
            bots: vec!["helper".to_owned()],
        };
        let matches = |selectors: &str| {
            let rules = Rules::parse(&format!("rules: [{{ id: one, {selectors} {SLACK} }}]")).unwrap();
            rules.about(&facts).count() == 1
        };
        for selectors in [
            "",
            "owner: user:ada,",
            "owner: [user:bob, user:ada],",
            "automation: nightly,",
            "bot: helper,",
            "owner: user:ada, automation: nightly, bot: [x, helper],",
        ] {
            assert!(matches(selectors), "{selectors}");
        }
        for selectors in ["owner: user:bob,", "owner: user:ada, automation: other,", "bot: x,"] {
            assert!(!matches(selectors), "{selectors}");
        }
        let rules = Rules::parse(&format!("rules: [{{ id: one, bot: helper, {SLACK} }}]")).unwrap();
        assert_eq!(rules.about(&Facts::default()).count(), 0);
    }

    proptest::proptest! {
        /// Any file is read or rejected, and the error contains no long text of it.
        #[test]
        fn any_text_is_read_or_refused(
            text in "(rules:|after:|- id:|  (owner|bot|slack|webhook|email|url|after): |[\\[\\]{},:'\" \n]|[a-z0-9@:/.]{1,8}|SECRETSECRET){0,40}",
        ) {
            if let Err(why) = Rules::parse(&text) {
                proptest::prop_assert!(!why.is_empty());
            }
        }
    }
}
