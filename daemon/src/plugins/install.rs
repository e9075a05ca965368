//! Installing, removing and updating plugins.

use std::path::Path;

use ostler_contract::problem::Problem;
use ostler_contract::secret::SET;
use ostler_contract::{Value, json};
use ostler_loader::options::contains_placeholder;
use ostler_loader::{Importer, PluginConfig, resolve, satisfies};
use ostler_protocol::names::{self, SDK};

use super::npm;
use super::rows::{Row, named};
use crate::bundled;
use crate::config::{self, ConfigFiles};
use crate::created_files::CreatedFiles;
use crate::exit::Exit;

/// An installed plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The spec, as in the configuration.
    pub spec: String,
    /// The version, for a package.
    pub version: Option<String>,
    /// Its id, if it could be imported.
    pub id: Option<String>,
}

/// The source of a plugin.
enum Source {
    /// A bundled plugin.
    Bundled,
    /// A file or folder of this machine, used in place.
    Here(String),
    /// A package of a registry: its name, and the requested version or range.
    Registry { name: String, wanted: Option<String> },
    /// Another source that npm supports: a tarball or a repository.
    Npm,
}

fn source(spec: &str, working_dir: &Path) -> Source {
    if bundled::plugins().iter().any(|plugin| plugin.spec == spec) {
        return Source::Bundled;
    }
    let is_path = spec.starts_with('.') || Path::new(spec).is_absolute();
    let is_archive = [".tgz", ".tar.gz", ".tar"].iter().any(|end| spec.ends_with(end));
    if is_path && !is_archive {
        let path = working_dir.join(spec);
        return Source::Here(path.canonicalize().unwrap_or(path).to_string_lossy().into_owned());
    }
    let scoped = spec.strip_prefix('@').is_some_and(|rest| rest.matches('/').count() == 1);
    if is_archive || spec.contains(':') || (spec.contains('/') && !scoped) {
        return Source::Npm;
    }
    match spec.char_indices().skip(1).find(|(_, letter)| *letter == '@') {
        Some((at, _)) => {
            Source::Registry { name: spec[..at].to_owned(), wanted: Some(spec[at + 1..].to_owned()) }
        }
        None => Source::Registry { name: spec.to_owned(), wanted: None },
    }
}

/// Installs a plugin and, with `enable`, adds it to the configuration.
///
/// # Errors
/// Exit 2 for a package that is not a plugin for this host, exit 1 if npm fails or the module has no `apply`.
pub async fn install(
    files: &ConfigFiles,
    importer: &Importer,
    working_dir: &Path,
    spec: &str,
    enable: bool,
) -> Result<Installed, Exit> {
    if spec == SDK || spec.starts_with(&format!("{SDK}@")) {
        return Err(Exit::usage(format!("{SDK} is part of this host and needs no installation")));
    }
    if contains_placeholder(&spec.into()) {
        return Err(Exit::usage(format!("a spec with {SET} cannot be installed; write its password")));
    }
    let before = npm::asked_for(&files.dir);
    let mut made = CreatedFiles::default();
    let installed = install_from(files, importer, working_dir, spec, enable, &mut made).await;
    // Not if another package was installed in the meantime.
    if installed.is_err() && npm::asked_for(&files.dir) == before {
        made.undo();
    }
    installed
}

async fn install_from(
    files: &ConfigFiles,
    importer: &Importer,
    working_dir: &Path,
    spec: &str,
    enable: bool,
    made: &mut CreatedFiles,
) -> Result<Installed, Exit> {
    let dir = &files.dir;
    let before = npm::asked_for(dir);
    let installed = match source(spec, working_dir) {
        Source::Bundled => Installed { spec: spec.to_owned(), version: None, id: None },
        Source::Here(path) => {
            resolve(&path, working_dir, dir).map_err(|why| Exit::usage(why.to_string()))?;
            Installed { spec: path, version: None, id: None }
        }
        Source::Registry { name, wanted } => {
            npm::prepare(dir, made)?;
            let version = admitted(dir, &name, wanted.as_deref()).await?;
            npm::npm(dir, &["install", "--save", &format!("{name}@{version}")]).await?;
            Installed { version: npm::installed(dir, &name), spec: name, id: None }
        }
        Source::Npm => {
            npm::prepare(dir, made)?;
            let spec = match spec.starts_with('.') {
                true => working_dir.join(spec).to_string_lossy().into_owned(),
                false => spec.to_owned(),
            };
            npm::npm(dir, &["install", "--save", &spec]).await?;
            let mut after = npm::asked_for(dir);
            after.retain(|name| !before.contains(name));
            let name = after.pop().ok_or_else(|| {
                Exit::usage(format!("{spec} is already installed; update it with: ostler plugin update"))
            })?;
            Installed { version: npm::installed(dir, &name), spec: name, id: None }
        }
    };
    // Other problems, such as an option or a version, can be fixed later. A module without `apply` is not a plugin.
    let looked = importer.inspect(&[PluginConfig::named(&installed.spec)]).await;
    if let Some(problem @ (Problem::NoApply { .. } | Problem::LeftOut { .. })) =
        looked.first().and_then(|looked| looked.problem.as_ref())
    {
        if npm::asked_for(dir).contains(&installed.spec) && !before.contains(&installed.spec) {
            npm::npm(dir, &["uninstall", "--save", &installed.spec]).await?;
        }
        return Err(Exit::machine(problem.to_string()));
    }
    if enable {
        name_it(files, &installed.spec)?;
    }
    let id = looked.first().and_then(|looked| looked.id.as_ref()).map(ToString::to_string);
    Ok(Installed { id, ..installed })
}

/// Returns the newest requested version that works with this host.
async fn admitted(dir: &Path, name: &str, wanted: Option<&str>) -> Result<String, Exit> {
    let versions = npm::view(dir, &format!("{name}@{}", wanted.unwrap_or("latest"))).await?;
    let newest = versions.last().ok_or_else(|| Exit::usage(format!("{name} has no such version")))?;
    if newest.get(names::HOST).is_none() {
        return Err(Exit::usage(format!(
            "{name} is not a plugin for this host: its package.json has no \"{}\" key",
            names::HOST
        )));
    }
    let all = match (admits(newest), wanted) {
        (true, _) => versions,
        // If a version was requested, loading reports its problems.
        (false, Some(_)) => versions,
        (false, None) => npm::view(dir, &format!("{name}@*")).await?,
    };
    let version = |row: &Value| row.get("version").and_then(Value::as_str).map(str::to_owned);
    let found = all.iter().rev().find(|row| wanted.is_some() || admits(row)).and_then(version);
    found.ok_or_else(|| {
        let sdk = env!("CARGO_PKG_VERSION");
        Exit::usage(format!("no version of {name} works with {SDK} {sdk}"))
    })
}

fn admits(package: &Value) -> bool {
    let range = package.get("peerDependencies").and_then(|peers| peers.get(SDK)).and_then(Value::as_str);
    range.is_none_or(|range| satisfies(range, env!("CARGO_PKG_VERSION")) == Ok(true))
}

fn name_it(files: &ConfigFiles, spec: &str) -> Result<(), Exit> {
    config::edit(files, "plugins", |fields| {
        let list = fields.entry("plugins".to_owned()).or_insert_with(|| json!([]));
        let Some(list) = list.as_array_mut() else { return Err(Exit::usage("plugins must be a list")) };
        if !list.iter().any(|entry| entry.get("name").and_then(Value::as_str) == Some(spec)) {
            list.push(json!({ "name": spec }));
        }
        Ok(())
    })
    .map(drop)
}

/// Removes a plugin from the configuration and, unless it is retained, its package from the folder.
///
/// # Errors
/// Exit 2 if the plugin does not exist, exit 1 if npm fails.
pub async fn remove(files: &ConfigFiles, rows: &[Row], name: &str, keep: bool) -> Result<String, Exit> {
    let spec = named(rows, name)?.entry.name.clone();
    config::edit(files, "plugins", |fields| {
        if let Some(list) = fields.get_mut("plugins").and_then(Value::as_array_mut) {
            list.retain(|entry| entry.get("name").and_then(Value::as_str) != Some(&spec));
        }
        Ok(())
    })?;
    if !keep && npm::asked_for(&files.dir).contains(&spec) {
        npm::npm(&files.dir, &["uninstall", "--save", &spec]).await?;
    }
    Ok(spec)
}

/// Updates installed packages; returns the updated ones, as `<name> <old> -> <new>`.
///
/// # Errors
/// Exit 2 if a name is not an installed package, exit 1 if npm fails.
pub async fn update(
    files: &ConfigFiles,
    rows: &[Row],
    names: &[String],
    force: bool,
) -> Result<Vec<String>, Exit> {
    let dir = &files.dir;
    let packages = npm::asked_for(dir);
    let wanted: Vec<String> = match names {
        [all] if all == "all" => {
            let configured = rows.iter().map(|row| row.entry.name.clone());
            configured.filter(|spec| packages.contains(spec)).collect()
        }
        _ if names.iter().any(|name| name == "all") => {
            return Err(Exit::usage("all updates every plugin and cannot be combined with names"));
        }
        _ => {
            let mut wanted = Vec::new();
            for name in names {
                let spec = named(rows, name)?.entry.name.clone();
                if !packages.contains(&spec) {
                    return Err(Exit::usage(format!(
                        "{spec} was not installed as a package and cannot be updated"
                    )));
                }
                wanted.push(spec);
            }
            wanted
        }
    };
    let versions = |names: &[String]| names.iter().map(|name| npm::installed(dir, name)).collect::<Vec<_>>();
    let before = versions(&wanted);
    if !wanted.is_empty() && !force {
        let arguments: Vec<&str> =
            ["update", "--save"].into_iter().chain(wanted.iter().map(String::as_str)).collect();
        npm::npm(dir, &arguments).await?;
    } else {
        for name in &wanted {
            npm::npm(dir, &["install", "--save", &format!("{name}@latest")]).await?;
        }
    }
    let shown = |version: &Option<String>| version.clone().unwrap_or_else(|| "none".to_owned());
    let after = versions(&wanted);
    let moved = wanted.iter().zip(before.iter().zip(&after)).filter(|(_, (before, after))| before != after);
    Ok(moved.map(|(name, (before, after))| format!("{name} {} -> {}", shown(before), shown(after))).collect())
}
