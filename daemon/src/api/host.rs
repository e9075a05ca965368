//! The daemon over HTTP: its state, its configuration, its metrics, what it charged.

use std::time::Duration;

use ostler_contract::JsonObject;
use ostler_contract::points::NamedMethod;
use ostler_plugin_webhook::{EXPLAIN, REPLAY};
use ostler_protocol::own::UsageTotalsParams;
use serde::de::DeserializeOwned;

use super::Refused;
use super::explain_shapes::{ExplainCall, ExplainedCall};
use super::page_shapes::{TestRule, TestedRule};
use super::problem_shapes::Problem;
use super::rows::Ask;
use super::shapes::{
    AgentProcesses, Configuration, DaemonStatus, PoolUsage, ReplayDelivery, ReplayedDelivery, Restart,
    Restarting, Status,
};
use crate::cli_manifest::{self, Manifest};
use crate::control::Control;
use crate::exit::Exit;
use crate::notify::Tester;
use crate::process::Signal;
use crate::run::busy;
use crate::verbs::status::{PROCESSES, PROCESSES_LIMIT};
use crate::verbs::usage::check_pool;

/// How long a replay may take: a `sync` call waits for its turn.
const REPLAYED_WITHIN: Duration = Duration::from_secs(300);

pub(super) async fn status(ask: Ask) -> Result<DaemonStatus, Refused> {
    let control = &ask.control;
    let mut status = Status::of(control.record()?);
    status.agents = processes(control).await;
    let problem = control.host.core.lost_storage();
    Ok(DaemonStatus { status, ready: problem.is_none(), problem, problems: control.problems().await })
}

pub(super) async fn problems(ask: Ask) -> Result<Vec<Problem>, Refused> {
    Ok(ask.control.problems().await)
}

/// The agents that run and the memory they occupy, where a plugin knows.
async fn processes(control: &Control) -> Option<Vec<AgentProcesses>> {
    let commands = control.host.core.registry()?.all::<NamedMethod>();
    let command = commands.iter().find(|command| *command.name == *PROCESSES)?;
    let params = (JsonObject::new(), None, "ostler-api".to_owned(), None);
    let answer = command.method.handle.within(PROCESSES_LIMIT, params).await;
    serde_json::from_value(answer.ok()?["agents"].take()).ok()
}

pub(super) async fn metrics(ask: Ask) -> Result<String, Refused> {
    Ok(ask.control.metrics())
}

pub(super) async fn manifest(_: Ask) -> Result<Manifest, Refused> {
    Ok(cli_manifest::manifest())
}

pub(super) async fn configuration(ask: Ask) -> Result<Configuration, Refused> {
    let (files, rows) = super::configured(&ask.control)?;
    Ok(Configuration {
        files: files.files.iter().map(|file| file.display().to_string()).collect(),
        config: crate::config_redaction::config(&files, &rows),
        restart_needed: ask.control.restart_needed(),
    })
}

/// What a pool was charged. Its owner decides who may ask.
pub(super) async fn usage(ask: Ask) -> Result<PoolUsage, Refused> {
    check_pool(&ask.name)?;
    let asked = UsageTotalsParams { pools: Some(vec![ask.name]), ..UsageTotalsParams::default() };
    let totals = ask.control.host.usage.usage_totals(asked, ask.caller.reader().as_ref()).await;
    let mut totals = totals.map_err(|why| match why.code {
        ostler_protocol::error::code::PERMISSION_DENIED => Refused::from(why),
        _ => Exit::machine(why.message).into(),
    })?;
    let total = totals.pointer_mut("/totals/0").map(ostler_contract::Value::take).unwrap_or_default();
    Ok(serde_json::from_value(total).map_err(|error| Exit::machine(error.to_string()))?)
}

/// Has the webhook plugin deliver a call again.
pub(super) async fn replay(ask: Ask, body: ReplayDelivery) -> Result<ReplayedDelivery, Refused> {
    let params = JsonObject::from_iter([("delivery".to_owned(), body.delivery.into())]);
    of_webhooks(&ask, REPLAY, params).await
}

/// Has the webhook plugin explain a call.
pub(super) async fn explain(ask: Ask, body: ExplainCall) -> Result<ExplainedCall, Refused> {
    let params = serde_json::to_value(&body).map_err(|error| Exit::machine(error.to_string()))?;
    let call: ExplainedCall =
        of_webhooks(&ask, EXPLAIN, params.as_object().cloned().unwrap_or_default()).await?;
    Ok(ExplainedCall { said: crate::webhook::explained(&call).lines, ..call })
}

/// Calls a command of the webhook plugin.
async fn of_webhooks<T: DeserializeOwned>(ask: &Ask, name: &str, params: JsonObject) -> Result<T, Refused> {
    let commands = ask.control.host.core.registry().map(|registry| registry.all::<NamedMethod>());
    let command = commands.and_then(|all| all.iter().find(|command| *command.name == *name).cloned());
    let command = command.ok_or_else(|| Exit::machine("the plugin @ostler/webhook is not loaded"))?;
    let params = (params, ask.caller.reader(), "ostler-api".to_owned(), None);
    let row = command.method.handle.within(REPLAYED_WITHIN, params).await;
    let row = row.map_err(|why| match &why.rpc {
        Some(_) => Exit::usage(why.message.clone()),
        None => Exit::machine(why.message.clone()),
    })?;
    Ok(serde_json::from_value(row).map_err(|error| Exit::machine(error.to_string()))?)
}

/// Sends a test message.
pub(super) async fn test_rule(ask: Ask, TestRule { rule }: TestRule) -> Result<TestedRule, Refused> {
    let control = &ask.control;
    let vault = control.vault()?;
    let base = control.notify_base.get().cloned().unwrap_or_default();
    let folder = control.place.folders().map_err(super::of_the_host)?.config;
    Ok(Tester { folder: &folder, vault: &vault, base: &base }.test(&rule).await?)
}

pub(super) async fn restart(ask: Ask, Restart { force }: Restart) -> Result<Restarting, Refused> {
    let control = &ask.control;
    let record = control.record()?;
    if !control.detached() {
        return Err(Exit::machine("the daemon runs in the foreground and cannot restart itself").into());
    }
    let busy = busy(&control.host);
    if !force && !busy.is_empty() {
        return Err(Exit::machine(format!(
            "a turn is running in {}; a restart with force ends it",
            busy.join(", ")
        ))
        .into());
    }
    let next = crate::verbs::restart::check(&control.place, record).map_err(super::of_the_host)?;
    if let Some(why) = control.backends.refusal(&next.plugins).filter(|_| !force) {
        return Err(Exit::machine(why).into());
    }
    control.signal_sender.send(if force { Signal::RestartAnyway } else { Signal::Restart });
    Ok(Restarting { restarting: true, url: record.url.clone() })
}
