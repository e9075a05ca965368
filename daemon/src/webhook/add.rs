//! `ostler webhook add`: creates the record and its secret, and prints the URL and a line to call it.

use clap::Args;
use ostler_contract::owner::Owner;
use ostler_contract::{JsonObject, Value, VaultName, json, limit};
use ostler_plugin_webhook::ENDPOINTS;
use ostler_plugin_webhook::tools::EndpointFacts;
use ostler_ports::yaml;
use ostler_protocol::template::invalid_paths;

use super::{Endpoints, VerbOutput, automation, curl, machine, slug};
use crate::exit::Exit;
use crate::token::fresh;

/// The flags of `ostler webhook add`.
#[derive(Debug, Clone, Default, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["bot", "automation"]))]
pub struct AddFlags {
    /// Endpoint id, the last segment of its URL
    pub id: String,
    /// Bot that calls talk to: bot://<slug>
    #[arg(long, value_name = "BOT")]
    pub bot: Option<String>,
    /// Fire the automations of this endpoint; creates one if none exists
    #[arg(long)]
    pub automation: bool,
    /// Message of the automation; {{event.<field>}} is a field of the request body
    #[arg(long, value_name = "TEXT", conflicts_with = "bot")]
    pub prompt: Option<String>,
    /// Backend of the automation's sessions [default: the first one]
    #[arg(long, value_name = "NAME", conflicts_with = "bot")]
    pub provider: Option<String>,
    /// Give each session of the automation a git working tree on a new branch
    #[arg(long, conflicts_with = "bot")]
    pub worktree: bool,
    /// What to do with the changes of each run: commit, or create-pr to push them and create a pull request
    #[arg(long, value_name = "OPERATION", value_parser = ["commit", "create-pr"], requires = "worktree", conflicts_with = "bot")]
    pub after: Option<String>,
    /// Owner of the automation, such as user:ada or team:core: it is charged, and its policies apply
    #[arg(long, value_name = "OWNER", conflicts_with = "bot")]
    pub owner: Option<String>,
    /// How bot calls are answered: callback, sync or none [default: callback]
    #[arg(long, value_name = "HOW", requires = "bot")]
    pub reply: Option<String>,
    /// Required prefix of callback URLs
    #[arg(long, value_name = "URL", requires = "bot")]
    pub callback_prefix: Option<String>,
    /// Timeout of sync calls in seconds [default: the plugin option, 60]
    #[arg(long, value_name = "SECONDS", requires = "bot")]
    pub sync_timeout_seconds: Option<f64>,
    /// Verify the sender instead of a bearer token: github, gitlab, stripe, …, or '{ scheme: hmac, header: … }'
    #[arg(long, visible_alias = "sender", value_name = "SENDER")]
    pub verify: Option<String>,
    /// Format of request bodies: cloudevents
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Header with the delivery id [default: the sender's]; repeated deliveries get the first answer
    #[arg(long, value_name = "HEADER", num_args = 0..=1, default_missing_value = "true")]
    pub dedupe: Option<String>,
    /// Rate limit, such as 60/1m
    #[arg(long, value_name = "CALLS/TIME")]
    pub limit: Option<String>,
    /// Fire only for calls for which this expression is true, such as 'event.action == "opened"'
    #[arg(long, value_name = "EXPRESSION", requires = "automation")]
    pub when: Option<String>,
    /// Store bodies encrypted for so long, such as 7d, so that deliveries can be replayed
    #[arg(long, value_name = "TIME")]
    pub keep_bodies: Option<String>,
    /// Field of the call, such as repository.full_name: calls with the same value run one after the other
    #[arg(long, value_name = "FIELD", conflicts_with = "bot")]
    pub order_by: Option<String>,
    /// Field of the call: calls with the same value share a session and run one after the other
    #[arg(long, value_name = "FIELD", conflicts_with = "bot")]
    pub session_by: Option<String>,
    /// Retry failed callbacks
    #[arg(long, requires = "bot")]
    pub retry: bool,
    /// Vault name of the secret [default: host:webhook-<id>]
    #[arg(long, value_name = "NAME")]
    pub secret: Option<String>,
    /// Read the secret from standard input
    #[arg(long)]
    pub secret_stdin: bool,
    /// The secret from standard input.
    #[arg(skip)]
    pub value: Option<String>,
}

pub(super) async fn add(endpoints: &Endpoints, flags: AddFlags) -> Result<VerbOutput, Exit> {
    let AddFlags { id, value, .. } = &flags;
    slug(id)?;
    if let Some(owner) = flags.owner.as_deref().filter(|owner| Owner::parse(owner).is_none()) {
        return Err(Exit::usage(format!("--owner must be {}, not {owner}", Owner::FORMS)));
    }
    if let Some(why) = flags.prompt.as_deref().and_then(|prompt| invalid_paths(prompt).next()) {
        return Err(Exit::usage(format!("--prompt: {why}")));
    }
    let record = record_of(&flags)?;
    let facts = EndpointFacts::read(&record).map_err(Exit::usage)?;
    // Of two commands for the same id, the later one finds the endpoint of the first.
    let lock = endpoints.lock().await?;
    let collection = endpoints.collection(ENDPOINTS).await?;
    if collection.get.read(limit::STORE, (id.clone(),)).await.known().map_err(machine)?.is_some() {
        let fix = match &endpoints.database {
            Some(_) => {
                format!("change its record in the database, or remove it with: ostler webhook rm {id}")
            }
            None => format!("edit webhooks/{id}.md"),
        };
        return Err(Exit::usage(format!("endpoint {id} already exists; {fix}")));
    }
    let held = endpoints.secret(&facts.secret).await?;
    let made = match (&held, value) {
        (Some(_), Some(_)) => {
            let name = &facts.secret;
            return Err(Exit::usage(format!("{name} is already set; choose another name with --secret")));
        }
        (Some(_), None) => None,
        (None, Some(value)) if value.is_empty() => return Err(Exit::usage("the secret is empty")),
        (None, Some(value)) => Some((value.clone(), false)),
        (None, None) => Some((fresh(), true)),
    };
    let value_of = made.as_ref().map_or(held.as_deref(), |(value, _)| Some(value)).unwrap_or_default();
    if let (Some((_, true)), Some(sender)) = (&made, facts.signs_alone()) {
        let why = format!("a secret made here cannot verify {sender}; pass the sender's with --secret-stdin");
        return Err(Exit::usage(why));
    }
    if let Some(why) = facts.unusable(value_of) {
        return Err(Exit::usage(format!("{} {why}", made.map_or(&*facts.secret, |_| "the secret"))));
    }
    // The secret first, because an endpoint without one rejects every call and logs that.
    if let Some((value, _)) = &made {
        endpoints
            .vault
            .set
            .within(limit::STORE, (facts.secret.clone(), value.clone()))
            .await
            .map_err(machine)?;
    }
    let key_made = match facts.bodies_key() {
        Some(name) if endpoints.secret(name).await?.is_none() => {
            endpoints.vault.set.within(limit::STORE, (name.to_owned(), fresh())).await.map_err(machine)?;
            Some(name)
        }
        _ => None,
    };
    collection.put.within(limit::STORE, (record,)).await.map_err(machine)?;
    drop(lock);
    let url = endpoints.url(id);
    // Shown once, and only if it was created here.
    let shown = made.as_ref().is_some_and(|(_, fresh)| *fresh);
    let curl = curl::line(&facts, &url, value_of, shown);
    let mut lines = vec![format!("{id}: {url}"), format!("secret stored in the vault as {}", facts.secret)];
    lines.extend(key_made.map(|name| format!("key of stored bodies created in the vault as {name}")));
    lines.extend(facts.warnings.iter().cloned());
    lines.extend(facts.without_dedupe().map(|sender| {
        format!("{sender} names each delivery; with dedupe: true in the record, one that is sent again starts no second run")
    }));
    lines.extend(curl.clone());
    lines.extend(facts.retries());
    let mut json = json!({ "id": id, "url": url, "secret": facts.secret, "curl": curl });
    if shown {
        json["token"] = value_of.into();
    }
    if flags.automation {
        let (listeners, written) = endpoints.listen(&flags).await;
        json["listeners"] = listeners.iter().map(automation::Listener::json).collect();
        lines.extend(automation::lines(id, &listeners));
        match written {
            automation::NewAutomation::Nothing => {}
            automation::NewAutomation::File { file, unread } => {
                lines.push(format!("wrote {file}; edit the message it sends to the agent"));
                if unread {
                    lines.push("the daemon has not read it yet; see ostler logs".to_owned());
                }
                json["automation"] = file.into();
            }
            automation::NewAutomation::Stored { unread } => {
                lines.push(format!(
                    "stored automation {id} in the database; edit the message it sends to the agent"
                ));
                if unread {
                    lines.push("the daemon has not read it yet; see ostler logs".to_owned());
                }
                json["automation"] = id.as_str().into();
            }
            automation::NewAutomation::Printed(text, why) => {
                lines.push(format!("{why}; save this as an automation:"));
                lines.extend(text.lines().map(str::to_owned));
                json["automationText"] = text.into();
            }
        }
        if facts.signs_alone().is_none() {
            lines.push(format!("try it: ostler webhook test {id} --follow"));
        }
    }
    Ok(VerbOutput { lines, json, names: vec![id.clone()], good: true })
}

fn record_of(flags: &AddFlags) -> Result<JsonObject, Exit> {
    let secret = flags.secret.clone().unwrap_or_else(|| format!("host:webhook-{}", flags.id));
    VaultName::parse(&secret).map_err(|why| Exit::usage(why.to_string()))?;
    let mut record = JsonObject::from_iter([("id".to_owned(), flags.id.as_str().into())]);
    let mut set = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            record.insert(field.to_owned(), value);
        }
    };
    set("bot", flags.bot.clone().map(Value::from));
    set("automation", flags.automation.then_some(Value::Bool(true)));
    set("secret", Some(secret.into()));
    set("reply", flags.reply.clone().map(Value::from));
    set("callbackPrefix", flags.callback_prefix.clone().map(Value::from));
    set("syncTimeoutSeconds", flags.sync_timeout_seconds.map(Value::from));
    set("verify", flags.verify.as_deref().map(verify).transpose()?);
    set("format", flags.format.clone().map(Value::from));
    set(
        "dedupe",
        flags.dedupe.as_deref().map(|header| match header {
            "true" => Value::Bool(true),
            header => header.into(),
        }),
    );
    set("limit", flags.limit.as_deref().map(limit).transpose()?);
    set("when", flags.when.clone().map(Value::from));
    set("keepBodies", flags.keep_bodies.clone().map(Value::from));
    set("orderBy", flags.order_by.clone().map(Value::from));
    set("session", flags.session_by.as_ref().map(|by| json!({ "by": by })));
    set("retry", flags.retry.then_some(Value::Bool(true)));
    Ok(record)
}

/// Parses the name of a sender, or its fields in the form of a record.
fn verify(written: &str) -> Result<Value, Exit> {
    if !written.starts_with('{') {
        return Ok(written.into());
    }
    yaml::parse(written).map_err(|why| Exit::usage(format!("invalid --verify {written}: {why}")))
}

fn limit(written: &str) -> Result<Value, Exit> {
    let parts = written.split_once('/').and_then(|(calls, per)| Some((calls.parse::<u64>().ok()?, per)));
    match parts {
        Some((calls, per)) => Ok(json!({ "calls": calls, "per": per })),
        None => {
            Err(Exit::usage(format!("invalid limit {written}; write it as <calls>/<time>, such as 60/1m")))
        }
    }
}
