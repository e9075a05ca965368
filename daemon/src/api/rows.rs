//! Every request of the API: its path, what it needs, what it does.

use std::sync::Arc;

use ostler_contract::{JsonObject, Value, json};
use ostler_engine::Principal;
use ostler_loader::options::place;
use ostler_protocol::grants::Grant;

use super::Refused;
use crate::control::Control;
use crate::exit::Exit;
use crate::plugins::{self, Change, Changed, Row as PluginRow};
use crate::process::Signal;
use crate::run::busy;
use crate::verbs::status::status_json;
use crate::verbs::vault;

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// `config:<operation>`
    Config(&'static str),
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
}

const fn get(path: &'static str, what: What) -> Row {
    Row { path, reads: true, needs: Needs::Config("settings"), what }
}

const fn post(path: &'static str, needs: Needs, what: What) -> Row {
    Row { path, reads: false, needs, what }
}

/// A path that ends in `/` has one more part: a name, percent-encoded.
const ROWS: &[Row] = &[
    get("/api/status", What::Status),
    get("/api/config", What::Config),
    get("/api/plugin/list", What::List),
    post("/api/plugin/config", Needs::Deployment, What::Plugin),
    post("/api/plugin/config/set", Needs::Deployment, What::Set),
    post("/api/plugin/config/unset", Needs::Deployment, What::Unset),
    post("/api/plugin/enable", Needs::Deployment, What::Enable),
    post("/api/plugin/disable", Needs::Deployment, What::Disable),
    post("/api/plugin/install", Needs::Deployment, What::Install),
    post("/api/plugin/remove", Needs::Deployment, What::Remove),
    post("/api/plugin/update", Needs::Deployment, What::Update),
    post("/api/restart", Needs::Deployment, What::Restart),
    get("/api/vault/list", What::VaultList),
    post("/api/vault/set/", Needs::Config("change"), What::VaultSet),
    post("/api/vault/delete/", Needs::Config("change"), What::VaultDelete),
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

    /// Whoever has the deployment token is the host itself; the guard let nobody else in.
    pub(super) fn admits(self, control: &Control) -> Result<(), Refused> {
        let principal = Principal::Root;
        match self.needs {
            Needs::Config(operation) => {
                control.host.gate.require(&principal, &Grant::of("config", operation))?;
                Ok(())
            }
            Needs::Deployment => Ok(()),
        }
    }

    pub(super) async fn run(
        self,
        control: &Arc<Control>,
        name: String,
        body: JsonObject,
    ) -> Result<Value, Refused> {
        match self.what {
            What::Status => control
                .record()
                .map(status_json)
                .ok_or_else(|| Exit::machine("the daemon is not up yet").into()),
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
            What::VaultList => Ok(vault::list(&control.vault()?, &control.configured()?.0).await?.json),
            What::VaultSet => {
                let value = text(&body, "value")?;
                Ok(vault::set(&control.vault()?, &vault::parse(&name)?, &value).await?.json)
            }
            What::VaultDelete => Ok(vault::delete(&control.vault()?, &vault::parse(&name)?).await?.json),
        }
    }
}

fn missing(key: &str) -> Exit {
    Exit::usage(format!("the body needs {key}"))
}

fn text(body: &JsonObject, key: &str) -> Result<String, Exit> {
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
    if let Some(options) = options {
        change(control, &name, Change::Patch(options)).await?;
    }
    match enabled {
        Some(enabled) => self::enable(control, &name, enabled).await,
        None => {
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
    let installed = plugins::install(&files, &control.place.working_dir, &name, enable).await?;
    control.needs_restart("plugins");
    let row = json!({ "name": installed.spec, "version": installed.version, "enabled": enable });
    Ok(json!({ "installed": [row], "restart": true }))
}

fn restart(control: &Arc<Control>, force: bool) -> Result<Value, Refused> {
    let record = control.record().ok_or_else(|| Exit::machine("the daemon is not up yet"))?;
    if !control.detached() {
        return Err(Exit::machine("the daemon runs in the foreground and does not start itself again").into());
    }
    let busy = busy(&control.host);
    if !force && !busy.is_empty() {
        return Err(Exit::machine(format!("a turn is running in {}; force ends it", busy.join(", "))).into());
    }
    crate::verbs::restart::check(&control.place, record)?;
    control.teller.tell(if force { Signal::RestartAnyway } else { Signal::Restart });
    Ok(json!({ "restarting": true, "url": record.url }))
}
