//! Plugins over HTTP: the same changes the commands make to the configuration files.

use std::sync::Arc;

use ostler_loader::options::option_path;

use super::rows::Ask;
use super::shapes::{
    ChangedPlugin, ConfigurePlugin, InstallPlugin, Installed, InstalledPlugin, Plugin, RemoveOption,
    RemovePlugin, Removed, SetOption, UpdatePlugin, Updated,
};
use super::{Refused, configured};
use crate::backends;
use crate::control::Control;
use crate::exit::Exit;
use crate::plugins::{self, Change, Changed, Row};

pub(super) async fn list(ask: Ask) -> Result<Vec<Plugin>, Refused> {
    Ok(configured(&ask.control)?.1.iter().map(Row::shown).collect())
}

/// Shows a plugin, or changes it and shows what it is then.
pub(super) async fn configure(ask: Ask, asked: ConfigurePlugin) -> Result<ChangedPlugin, Refused> {
    let ConfigurePlugin { name, options, enabled } = asked;
    let control = &ask.control;
    let changed = match options {
        Some(options) => Some(change(control, &name, Change::Patch(options)).await?),
        None => None,
    };
    match (enabled, changed) {
        (Some(enabled), changed) => {
            let mut answer = set_enabled(control, &name, enabled).await?;
            if changed.is_some_and(|changed| changed.restart == Some(true)) {
                answer.restart = Some(true);
            }
            Ok(answer)
        }
        (None, Some(changed)) => Ok(changed),
        (None, None) => Ok(plugins::named(&configured(control)?.1, &name)?.described()),
    }
}

pub(super) async fn set(
    ask: Ask,
    SetOption { name, key, value }: SetOption,
) -> Result<ChangedPlugin, Refused> {
    option_path::keys(&key).map_err(|why| Exit::usage(why.to_string()))?;
    change(&ask.control, &name, Change::Set(key, value)).await
}

pub(super) async fn unset(
    ask: Ask,
    RemoveOption { name, key }: RemoveOption,
) -> Result<ChangedPlugin, Refused> {
    change(&ask.control, &name, Change::Unset(key)).await
}

pub(super) async fn enable(ask: Ask, name: String, enabled: bool) -> Result<ChangedPlugin, Refused> {
    set_enabled(&ask.control, &name, enabled).await
}

async fn change(control: &Arc<Control>, name: &str, change: Change) -> Result<ChangedPlugin, Refused> {
    let _writing = control.writing.lock().await;
    let (files, rows) = configured(control)?;
    let changed = change.apply(&files, &rows, name)?;
    shown(control, &rows, name, changed)
}

async fn set_enabled(control: &Arc<Control>, name: &str, enabled: bool) -> Result<ChangedPlugin, Refused> {
    let _writing = control.writing.lock().await;
    let (files, rows) = configured(control)?;
    let mut changed = plugins::set_enabled(&files, &rows, name, enabled)?;
    if !enabled {
        let next = crate::settings::entries(&configured(control)?.0);
        changed.notes.extend(backends::note(&control.backends.specs, &next));
    }
    shown(control, &rows, name, changed)
}

/// The plugin as it is configured now, and what to know about the change.
fn shown(control: &Control, rows: &[Row], name: &str, changed: Changed) -> Result<ChangedPlugin, Refused> {
    let before = plugins::named(rows, name)?.name().to_owned();
    if changed.file.is_some() {
        control.needs_restart(&format!("plugins.{before}"));
    }
    let (_, rows) = configured(control)?;
    let described = plugins::named(&rows, &before)?.described();
    Ok(ChangedPlugin { restart: Some(changed.file.is_some()), notes: changed.notes, ..described })
}

pub(super) async fn install(
    ask: Ask,
    InstallPlugin { name, enable }: InstallPlugin,
) -> Result<Installed, Refused> {
    let control = &ask.control;
    let _writing = control.writing.lock().await;
    let (files, _) = configured(control)?;
    let (importer, place) = (plugins::importer(&control.place, &files), &control.place);
    let installed = plugins::install(&files, &importer, &place.working_dir, &name, enable).await?;
    control.needs_restart("plugins");
    let plugins::Installed { spec: name, version, id } = installed;
    let row = InstalledPlugin { name, version, id, enabled: enable };
    Ok(Installed { installed: vec![row], restart: true })
}

pub(super) async fn remove(ask: Ask, RemovePlugin { name, keep }: RemovePlugin) -> Result<Removed, Refused> {
    let control = &ask.control;
    let _writing = control.writing.lock().await;
    let (files, rows) = configured(control)?;
    let removed = plugins::remove(&files, &rows, &name, keep).await?;
    control.needs_restart("plugins");
    Ok(Removed { removed: vec![removed], restart: true })
}

pub(super) async fn update(ask: Ask, UpdatePlugin { name, force }: UpdatePlugin) -> Result<Updated, Refused> {
    let control = &ask.control;
    let _writing = control.writing.lock().await;
    let (files, rows) = configured(control)?;
    let updated = plugins::update(&files, &rows, &[name], force).await?;
    let restart = !updated.is_empty();
    if restart {
        control.needs_restart("plugins");
    }
    Ok(Updated { updated, restart })
}
