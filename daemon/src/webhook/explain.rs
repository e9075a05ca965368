//! `ostler webhook explain`: says what a call would do, without doing it.

use std::path::{Path, PathBuf};

use clap::Args;
use ostler_contract::json;
use ostler_plugin_webhook::EXPLAIN;

use super::{Endpoints, VerbOutput};
use crate::api::explain_shapes::{ExplainCall, ExplainedAutomation, ExplainedCall, ExplainedWhen};
use crate::client::Connection;
use crate::exit::Exit;

/// The flags of `ostler webhook explain`.
#[derive(Debug, Clone, Default, Args)]
pub struct ExplainFlags {
    /// Endpoint id
    #[arg(id = "endpoint", value_name = "ID")]
    pub id: String,
    /// File with the body of the call; - for standard input; without it, an empty JSON object
    #[arg(long, value_name = "FILE")]
    pub body: Option<PathBuf>,
    /// Header of the call, as 'Name: value'; can be repeated
    #[arg(long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// Query of the URL, without its question mark
    #[arg(long, value_name = "QUERY")]
    pub query: Option<String>,
}

impl ExplainFlags {
    /// Returns the call.
    ///
    /// # Errors
    /// Exit 2 for a file that cannot be read.
    pub fn call(&self) -> Result<ExplainCall, Exit> {
        let body = match self.body.as_deref() {
            None => "{}".to_owned(),
            Some(file) if file == Path::new("-") => std::io::read_to_string(std::io::stdin())
                .map_err(|error| Exit::usage(format!("standard input cannot be read: {error}")))?,
            Some(file) => std::fs::read_to_string(file)
                .map_err(|error| Exit::usage(format!("{} cannot be read: {error}", file.display())))?,
        };
        let (headers, query) = (self.headers.clone(), self.query.clone());
        Ok(ExplainCall { endpoint: self.id.clone(), headers, query, body: Some(body) })
    }
}

pub(super) async fn explain(endpoints: &Endpoints, flags: &ExplainFlags) -> Result<VerbOutput, Exit> {
    let daemon = endpoints.connect().await?;
    let daemon = daemon.ok_or_else(|| Exit::machine("no daemon is running; start it with: ostler start"))?;
    explain_on(&daemon, flags).await
}

/// Has a daemon explain a call, possibly on another computer.
///
/// # Errors
/// Exit 2 for an invalid call or an unknown endpoint, 1 if the daemon fails.
pub async fn explain_on(daemon: &Connection, flags: &ExplainFlags) -> Result<VerbOutput, Exit> {
    let row = daemon.request(EXPLAIN, json!(flags.call()?)).await?;
    let row = serde_json::from_value(row).map_err(|error| Exit::machine(error.to_string()))?;
    Ok(explained(&row))
}

/// Returns the output for an explained call.
pub fn explained(call: &ExplainedCall) -> VerbOutput {
    let mut lines = Vec::new();
    let answer = match &call.problem {
        Some(problem) => format!("the caller would get {}: {problem}", call.status),
        None => format!("the caller would get {}", call.status),
    };
    lines.push(answer);
    let sender = call.sender.as_deref().unwrap_or("a bearer token");
    match call.verified {
        Some(true) => lines.push(format!("verified by {sender}")),
        Some(false) => lines.push(format!("not verified by {sender}; what follows is for a call that is")),
        None => {}
    }
    if call.checks_address {
        lines.push("it only checks the endpoint, and starts nothing".to_owned());
    }
    if !call.event.is_null() {
        lines.push(format!("event: {}", shown(&call.event)));
    }
    if let Some(delivery) = &call.delivery {
        lines.push(match &call.repeats {
            Some(first) => format!("delivery {delivery} came before, as {first}: it starts nothing"),
            None => format!("delivery: {delivery}"),
        });
    }
    lines.extend(call.when.iter().flat_map(when));
    if let Some(bot) = &call.bot {
        lines.push(format!("{} gets in thread {}:", call.target, bot.thread));
        lines.extend(bot.text.lines().map(|line| format!("  {line}")));
    }
    lines.extend(call.automations.iter().flat_map(automation));
    if call.automations.is_empty() && call.problem.is_none() && call.target == "automation" {
        let holds = call.when.as_ref().is_none_or(|when| when.holds == Some(true));
        if holds && !call.checks_address && call.repeats.is_none() {
            lines.push("no automation waits for calls of this endpoint".to_owned());
        }
    }
    lines.extend(call.retries.clone());
    let json = json!(ExplainedCall { said: lines.clone(), ..call.clone() });
    VerbOutput { lines, json, names: vec![call.endpoint.clone()], good: true }
}

fn shown(value: &ostler_contract::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn when(when: &ExplainedWhen) -> Vec<String> {
    let expression = when.expression.as_deref().unwrap_or_default();
    let result = match (when.holds, &when.why) {
        (Some(true), _) => format!("when holds: {expression}"),
        (Some(false), _) => format!("when does not hold, so nothing starts: {expression}"),
        (None, why) => why.clone().unwrap_or_default(),
    };
    let values = when.values.iter().map(|read| format!("  {} is {}", read.path, read.value));
    std::iter::once(result).chain(values).collect()
}

fn automation(row: &ExplainedAutomation) -> Vec<String> {
    let ExplainedAutomation { automation, .. } = row;
    if !row.starts {
        let why = row.why.as_deref().unwrap_or_default();
        return vec![format!("automation {automation} starts nothing: {why}")];
    }
    let begins = row.begins.as_deref().unwrap_or("now");
    let agent = row.agent.as_deref().unwrap_or("no agent");
    let session = row.session.as_deref().unwrap_or("a new session");
    let mut lines = vec![format!("automation {automation} starts a run {begins}, with {agent} in {session}")];
    lines.extend(row.fails.iter().map(|why| format!("  the run fails: {why}")));
    lines.extend(row.message.iter().flat_map(|text| text.lines()).map(|line| format!("  {line}")));
    lines
}
