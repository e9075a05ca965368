//! Every request of the API: its path, what it needs, what it does.

use std::sync::Arc;

use ostler_contract::points::NamedMethod;
use ostler_contract::{JsonObject, Value, json};
use ostler_engine::Principal;
use ostler_engine::users::Kind;
use ostler_loader::options::place;
use ostler_protocol::grants::Grant;
use ostler_protocol::own::UsageTotalsParams;

use super::people::{self, Verb};
use super::{Refused, secrets};
use crate::control::Control;
use crate::exit::Exit;
use crate::metrics;
use crate::plugins::{self, Change, Changed, Row as PluginRow};
use crate::process::Signal;
use crate::run::busy;
use crate::verbs::status::{PROCESSES, PROCESSES_LIMIT, status_json};

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// No grant.
    Nothing,
    /// `config:<operation>`
    Config(&'static str),
    /// `diagnostics:<operation>`
    Diagnostics(&'static str),
    /// `<kind>:<operation>`, on a host that knows people.
    People(Kind, &'static str),
    /// What the name of the secret asks for.
    Secret,
    /// The deployment token itself: it changes what runs in this process.
    Deployment,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    path: &'static str,
    reads: bool,
    needs: Needs,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Status,
    Metrics,
    Config,
    List,
    Install,
    Remove,
    Update,
    Plugin,
    Set,
    Unset,
    Enable,
    Disable,
    Restart,
    VaultList,
    VaultSet,
    VaultDelete,
    Manifest,
    Usage,
    People(Kind, Verb),
}

const fn get(path: &'static str, needs: Needs, what: What) -> Row {
    Row { path, reads: true, needs, what }
}

const fn people_get(path: &'static str, kind: Kind) -> Row {
    get(path, Needs::People(kind, "list"), What::People(kind, Verb::List))
}

const fn people_post(path: &'static str, kind: Kind, operation: &'static str, verb: Verb) -> Row {
    post(path, Needs::People(kind, operation), What::People(kind, verb))
}

const fn post(path: &'static str, needs: Needs, what: What) -> Row {
    Row { path, reads: false, needs, what }
}

/// A path that ends in `/` has one more part: a name, percent-encoded.
const ROWS: &[Row] = &[
    get("/api/status", Needs::Config("settings"), What::Status),
    get("/api/metrics", Needs::Diagnostics("metrics"), What::Metrics),
    get("/api/config", Needs::Config("settings"), What::Config),
    get("/api/cli-manifest", Needs::Nothing, What::Manifest),
    get("/api/plugin/list", Needs::Config("settings"), What::List),
    post("/api/plugin/config", Needs::Deployment, What::Plugin),
    post("/api/plugin/config/set", Needs::Deployment, What::Set),
    post("/api/plugin/config/unset", Needs::Deployment, What::Unset),
    post("/api/plugin/enable", Needs::Deployment, What::Enable),
    post("/api/plugin/disable", Needs::Deployment, What::Disable),
    post("/api/plugin/install", Needs::Deployment, What::Install),
    post("/api/plugin/remove", Needs::Deployment, What::Remove),
    post("/api/plugin/update", Needs::Deployment, What::Update),
    post("/api/restart", Needs::Deployment, What::Restart),
    get("/api/vault/list", Needs::Nothing, What::VaultList),
    post("/api/vault/set/", Needs::Secret, What::VaultSet),
    post("/api/vault/delete/", Needs::Secret, What::VaultDelete),
    get("/api/usage/", Needs::Nothing, What::Usage),
    people_get("/api/user/list", Kind::User),
    people_post("/api/user/add", Kind::User, "put", Verb::Add),
    people_post("/api/user/token", Kind::User, "put", Verb::Token),
    people_post("/api/user/rm", Kind::User, "delete", Verb::Rm),
    people_get("/api/team/list", Kind::Team),
    people_post("/api/team/add", Kind::Team, "put", Verb::Add),
    people_post("/api/team/rm", Kind::Team, "delete", Verb::Rm),
    people_get("/api/project/list", Kind::Project),
    people_post("/api/project/add", Kind::Project, "put", Verb::Add),
    people_post("/api/project/rm", Kind::Project, "delete", Verb::Rm),
];

/// The request of a path, and the name it ends in.
pub(super) fn find(path: &str) -> Option<(Row, String)> {
    if let Some(row) = ROWS.iter().find(|row| row.path == path && !path.ends_with('/')) {
        return Some((*row, String::new()));
    }
    ROWS.iter().filter(|row| row.path.ends_with('/')).find_map(|row| {
        let rest = path.strip_prefix(row.path).filter(|rest| !rest.is_empty() && !rest.contains('/'))?;
        let name = percent_encoding::percent_decode_str(rest).decode_utf8().ok()?;
        Some((*row, name.into_owned()))
    })
}

impl Row {
    pub(super) fn reads(self) -> bool {
        self.reads
    }

    /// The content type of an answer that is text. All others are JSON.
    pub(super) fn text(self) -> Option<&'static str> {
        (self.what == What::Metrics).then_some(metrics::CONTENT_TYPE)
    }

    /// Whether whoever asks may. The deployment token is the host itself.
    pub(super) fn admits(self, control: &Control, caller: &Principal) -> Result<(), Refused> {
        let gate = &control.host.access.gate;
        match self.needs {
            Needs::Nothing | Needs::Secret => Ok(()),
            Needs::Diagnostics(operation) => Ok(gate.require(caller, &Grant::of("diagnostics", operation))?),
            Needs::Config(operation) => Ok(gate.require(caller, &Grant::of("config", operation))?),
            Needs::People(kind, operation) => {
                gate.require(caller, &Grant::of(kind.name(), operation))?;
                // A list of people shows the roles they have.
                match (kind, operation) {
                    (Kind::User, "list") => Ok(gate.require(caller, &Grant::of("role", "list"))?),
                    _ => Ok(()),
                }
            }
            Needs::Deployment => match caller {
                Principal::Root => Ok(()),
                Principal::Person(person) => Err(Refused::Grant(format!(
                    "{} may not install or remove a plugin here; only the deployment token may",
                    person.id
                ))),
                Principal::Anyone | Principal::Plugin { .. } => Err(Refused::NotThere),
            },
        }
    }

    pub(super) async fn run(
        self,
        control: &Arc<Control>,
        caller: &Principal,
        name: String,
        body: JsonObject,
    ) -> Result<Value, Refused> {
        match self.what {
            What::Metrics => Ok(control.metrics().into()),
            What::Status => {
                let mut status = status_json(control.record()?);
                if let Some(agents) = processes(control).await {
                    status["agents"] = agents;
                }
                let lost = control.host.core.lost_storage();
                status["ready"] = lost.is_none().into();
                if let Some(lost) = lost {
                    status["problem"] = lost.into();
                }
                Ok(status)
            }
            What::Config => {
                let (files, _) = control.configured()?;
                let files: Vec<_> = files.files.iter().map(|file| file.display().to_string()).collect();
                let restart = control.restart_needed();
                Ok(json!({ "files": files, "config": control.shown()?, "restartNeeded": restart }))
            }
            What::List => Ok(control.configured()?.1.iter().map(PluginRow::json).collect()),
            What::Plugin => configure(control, body).await,
            What::Set => {
                let value = body.get("value").ok_or_else(|| missing("value"))?.clone();
                let key = text(&body, "key")?;
                place::keys(&key).map_err(|why| Exit::usage(why.to_string()))?;
                change(control, &text(&body, "name")?, Change::Set(key, value)).await
            }
            What::Unset => change(control, &text(&body, "name")?, Change::Unset(text(&body, "key")?)).await,
            What::Enable => enable(control, &text(&body, "name")?, true).await,
            What::Disable => enable(control, &text(&body, "name")?, false).await,
            What::Install => install(control, &body).await,
            What::Remove => {
                let (files, rows) = control.configured()?;
                let _writing = control.writing.lock().await;
                let keep = body.get("keep") == Some(&Value::Bool(true));
                let removed = plugins::remove(&files, &rows, &text(&body, "name")?, keep).await?;
                control.needs_restart("plugins");
                Ok(json!({ "removed": [removed], "restart": true }))
            }
            What::Update => {
                let (files, rows) = control.configured()?;
                let _writing = control.writing.lock().await;
                let force = body.get("force") == Some(&Value::Bool(true));
                let moved = plugins::update(&files, &rows, &[text(&body, "name")?], force).await?;
                if !moved.is_empty() {
                    control.needs_restart("plugins");
                }
                Ok(json!({ "updated": moved, "restart": !moved.is_empty() }))
            }
            What::Restart => restart(control, body.get("force") == Some(&Value::Bool(true))),
            What::VaultList => secrets::list(control, caller).await,
            What::VaultSet => secrets::set(control, caller, &name, &text(&body, "value")?).await,
            What::VaultDelete => secrets::delete(control, caller, &name).await,
            What::Manifest => Ok(crate::cli_manifest::manifest()),
            What::Usage => usage(control, caller, name).await,
            What::People(kind, verb) => people::run(control, caller, kind, verb, &body).await,
        }
    }
}

/// The agents that run and the memory they occupy, where a plugin knows.
async fn processes(control: &Control) -> Option<Value> {
    let commands = control.host.core.registry()?.all::<NamedMethod>();
    let command = commands.iter().find(|command| *command.name == *PROCESSES)?;
    let params = (JsonObject::new(), None, "ostler-api".to_owned(), None);
    let answer = command.method.handle.within(PROCESSES_LIMIT, params).await;
    Some(answer.ok()?["agents"].take())
}

/// What a pool was charged. Whose it is says who may ask.
async fn usage(control: &Control, caller: &Principal, pool: String) -> Result<Value, Refused> {
    let asked = UsageTotalsParams { pools: Some(vec![pool]), ..UsageTotalsParams::default() };
    let totals = control.host.usage.usage_totals(asked, caller.reader().as_ref()).await;
    let mut totals = totals.map_err(|why| match why.code {
        ostler_protocol::error::code::PERMISSION_DENIED => Refused::from(why),
        _ => Exit::machine(why.message).into(),
    })?;
    Ok(totals["totals"][0].take())
}

pub(super) fn missing(key: &str) -> Exit {
    Exit::usage(format!("{key} is required in the body"))
}

pub(super) fn text(body: &JsonObject, key: &str) -> Result<String, Exit> {
    match body.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(_) => Err(Exit::usage(format!("{key} must be text"))),
        None => Err(missing(key)),
    }
}

/// `{ name }` shows a plugin; `{ name, options, enabled }` changes it and shows what it is then.
async fn configure(control: &Arc<Control>, body: JsonObject) -> Result<Value, Refused> {
    let name = text(&body, "name")?;
    let options = match body.get("options") {
        None => None,
        Some(Value::Object(options)) => Some(options.clone()),
        Some(_) => return Err(Exit::usage("options must be an object").into()),
    };
    let enabled = match body.get("enabled") {
        None => None,
        Some(Value::Bool(enabled)) => Some(*enabled),
        Some(_) => return Err(Exit::usage("enabled must be true or false").into()),
    };
    let changed = match options {
        Some(options) => Some(change(control, &name, Change::Patch(options)).await?),
        None => None,
    };
    match (enabled, changed) {
        (Some(enabled), changed) => {
            let mut told = self::enable(control, &name, enabled).await?;
            if changed.is_some_and(|changed| changed["restart"] == true) {
                told["restart"] = true.into();
            }
            Ok(told)
        }
        (None, Some(changed)) => Ok(changed),
        (None, None) => {
            let (_, rows) = control.configured()?;
            Ok(plugins::named(&rows, &name)?.json())
        }
    }
}

async fn change(control: &Arc<Control>, name: &str, change: Change) -> Result<Value, Refused> {
    let _writing = control.writing.lock().await;
    let (files, rows) = control.configured()?;
    let changed = change.apply(&files, &rows, name)?;
    told(control, &rows, name, changed)
}

async fn enable(control: &Arc<Control>, name: &str, enabled: bool) -> Result<Value, Refused> {
    let _writing = control.writing.lock().await;
    let (files, rows) = control.configured()?;
    let changed = plugins::set_enabled(&files, &rows, name, enabled)?;
    told(control, &rows, name, changed)
}

/// The plugin as it is configured now, and what to know about the change.
fn told(control: &Control, rows: &[PluginRow], name: &str, changed: Changed) -> Result<Value, Refused> {
    let before = plugins::named(rows, name)?.name().to_owned();
    if changed.file.is_some() {
        control.needs_restart(&format!("plugins.{before}"));
    }
    let (_, rows) = control.configured()?;
    let mut json = plugins::named(&rows, &before)?.json();
    json["restart"] = changed.file.is_some().into();
    if !changed.notes.is_empty() {
        json["notes"] = changed.notes.into();
    }
    Ok(json)
}

async fn install(control: &Arc<Control>, body: &JsonObject) -> Result<Value, Refused> {
    let name = text(body, "name")?;
    let enable = body.get("enable") != Some(&Value::Bool(false));
    let _writing = control.writing.lock().await;
    let (files, _) = control.configured()?;
    let (importer, place) = (plugins::importer(&control.place, &files), &control.place);
    let installed = plugins::install(&files, &importer, &place.working_dir, &name, enable).await?;
    control.needs_restart("plugins");
    let row = json!({ "name": installed.spec, "version": installed.version, "enabled": enable });
    Ok(json!({ "installed": [row], "restart": true }))
}

fn restart(control: &Arc<Control>, force: bool) -> Result<Value, Refused> {
    let record = control.record()?;
    if !control.detached() {
        return Err(Exit::machine("the daemon runs in the foreground and cannot restart itself").into());
    }
    let busy = busy(&control.host);
    if !force && !busy.is_empty() {
        return Err(
            Exit::machine(format!("a turn is running in {}; set force to end it", busy.join(", "))).into()
        );
    }
    crate::verbs::restart::check(&control.place, record)?;
    control.teller.tell(if force { Signal::RestartAnyway } else { Signal::Restart });
    Ok(json!({ "restarting": true, "url": record.url }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_every_request_and_no_other() {
        let page = include_str!("../../../docs/http.md");
        let method = |row: &Row| if row.reads { "GET" } else { "POST" };
        for row in ROWS {
            let name = if row.path.ends_with('/') { "<name>" } else { "" };
            let named = format!("| `{} {}{name}`", method(row), row.path);
            assert!(page.contains(&named), "{named}");
        }
        assert_eq!(page.matches("| `GET /api/").count() + page.matches("| `POST /api/").count(), ROWS.len());
    }
}
