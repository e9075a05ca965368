//! `ostler vault …`: the secrets that options refer to. Values can be stored but are never printed.

use std::sync::Arc;

use clap::Subcommand;
use ostler_contract::points::Vault;
use ostler_contract::vault_name::NotAVaultName;
use ostler_contract::{Value, VaultName, json, limit, problem};
use ostler_loader::options::{references, walk::path_text};
use ostler_ports::{FileVault, Report};

use super::ask;
use crate::answer::Answer;
use crate::api::shapes::{DeletedSecret, Nothing, Secret, StoreSecret, StoredSecret};
use crate::config::ConfigFiles;
use crate::daemon_file;
use crate::database;
use crate::exit::Exit;
use crate::place::Place;
use crate::remote::Remote;

/// The `ostler vault` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum VaultVerb {
    /// Store a secret read from standard input
    Set {
        /// Vault name: host:<name>, team:<team>/<name> or user:<id>/<name>
        name: String,
    },
    /// Delete a secret
    Delete {
        /// Vault name
        name: String,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
    /// List secret names, including referenced names that are not set
    List,
}

/// Runs the command.
///
/// # Errors
/// Exit 2 for an invalid argument, 1 for a failure of the machine.
pub async fn vault(at: &Place, verb: VaultVerb) -> Result<Answer, Exit> {
    if let Some(remote) = at.remote()? {
        return over_http(at, &remote, verb).await;
    }
    let files = at.files()?;
    let vault = open(&files).await?;
    match verb {
        VaultVerb::Set { name } => {
            let name = parse(&name)?;
            set(&vault, &name, &ask::piped("value")?).await
        }
        VaultVerb::Delete { name, yes } => {
            ask::sure(at, yes, &format!("Delete {name}?"))?;
            delete(&vault, &name).await
        }
        VaultVerb::List => list(&vault, &files).await,
    }
}

/// Runs the command on the daemon at a URL.
async fn over_http(at: &Place, remote: &Remote, verb: VaultVerb) -> Result<Answer, Exit> {
    match verb {
        VaultVerb::Set { name } => {
            parse(&name)?;
            let body = StoreSecret { value: ask::piped("value")? };
            let stored: StoredSecret = remote.post_named("/api/vault/set/", &name, &body).await?;
            Ok(set_answer(&stored.name))
        }
        VaultVerb::Delete { name, yes } => {
            ask::sure(at, yes, &format!("Delete {name}?"))?;
            let deleted: DeletedSecret = remote.post_named("/api/vault/delete/", &name, &Nothing {}).await?;
            Ok(deleted_answer(&deleted.name))
        }
        VaultVerb::List => Ok(listed(&remote.get::<Vec<Secret>>("/api/vault/list").await?)),
    }
}

fn set_answer(name: &str) -> Answer {
    Answer::new([format!("Set {name}.")], json!({ "name": name, "set": true })).named([name])
}

fn deleted_answer(name: &str) -> Answer {
    Answer::new([format!("Deleted {name}.")], json!({ "name": name, "deleted": true })).named([name])
}

/// Parses a name, in one of its three forms.
pub fn parse(name: &str) -> Result<VaultName, Exit> {
    VaultName::parse(name).map_err(|why| Exit::usage(why.to_string()))
}

/// The vault of the configuration: the database, also while hosts run on it, or the file.
async fn open(files: &ConfigFiles) -> Result<Vault, Exit> {
    if let Some(direct) = database::connect(files).await? {
        return Ok(direct.vault());
    }
    if let Some(plugin) = daemon_file::running(&files.folders()).and_then(|record| record.vault) {
        return Err(Exit::machine(format!(
            "the daemon's secrets are stored by plugin {plugin}; change them there"
        )));
    }
    let report = Report::new(|line: String| {
        let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), format!("{line}\n").as_bytes());
    });
    FileVault::new(&files.dir, report)
        .map(|vault| Arc::new(vault).into_point())
        .map_err(|why| Exit::machine(why.message))
}

/// Stores a secret.
pub async fn set(vault: &Vault, name: &VaultName, value: &str) -> Result<Answer, Exit> {
    if value.is_empty() {
        return Err(Exit::usage(format!(
            "the value of {name} is empty; to delete a secret use ostler vault delete {name}"
        )));
    }
    let name = name.to_string();
    vault
        .set
        .within(limit::STORE, (name.clone(), value.to_owned()))
        .await
        .map_err(|why| Exit::machine(why.message))?;
    Ok(set_answer(&name))
}

/// Deletes a secret; exit 1 if it does not exist. The name may be one that an earlier version accepted; exit 2 for any other
/// that is not a vault name.
pub async fn delete(vault: &Vault, name: &str) -> Result<Answer, Exit> {
    let deleted = vault.delete.within(limit::STORE, (name.to_owned(),)).await;
    match deleted {
        Ok(true) => Ok(deleted_answer(name)),
        Ok(false) => Err(Exit::machine(problem::no_secret(name))),
        Err(why) if why.message == NotAVaultName.to_string() => Err(Exit::usage(why.message)),
        Err(why) => Err(Exit::machine(why.message)),
    }
}

/// Lists secret names, and referenced names that are not set.
pub async fn list(vault: &Vault, files: &ConfigFiles) -> Result<Answer, Exit> {
    Ok(listed(&rows(vault, files).await?))
}

/// Secret names, and names the configuration references that are not set.
pub async fn rows(vault: &Vault, files: &ConfigFiles) -> Result<Vec<Secret>, Exit> {
    let held =
        vault.list.read(limit::STORE, ()).await.known().map_err(|why| Exit::machine(why.to_string()))?;
    let mut rows: Vec<(String, bool, Vec<String>)> =
        held.into_iter().map(|name| (name, true, Vec::new())).collect();
    let of_plugins = files.config.plugins.iter().flatten().enumerate();
    let of_plugins = of_plugins
        .map(|(at, entry)| (format!("plugins[{at}].options"), entry.options.clone().unwrap_or_default()));
    let of_servers =
        files.config.mcp_servers.iter().map(|servers| ("mcpServers".to_owned(), servers.clone()));
    for (place, fields) in of_plugins.chain(of_servers) {
        for reference in references(&Value::Object(fields), None) {
            // An invalid name may be a secret itself.
            let Some(name) = reference.name.as_str().filter(|name| VaultName::parse(name).is_ok()) else {
                continue;
            };
            let path = format!("{place}{}", path_text(&reference.path));
            match rows.iter_mut().find(|(known, _, _)| known == name) {
                Some((_, _, paths)) => paths.push(path),
                None => rows.push((name.to_owned(), false, vec![path])),
            }
        }
    }
    // Rules that cannot be read are reported where they are used.
    for (place, name) in crate::notify::read(&files.dir).map(|rules| rules.secrets()).unwrap_or_default() {
        match rows.iter_mut().find(|(known, _, _)| *known == name) {
            Some((_, _, paths)) => paths.push(place),
            None => rows.push((name, false, vec![place])),
        }
    }
    rows.sort();
    Ok(rows.into_iter().map(|(name, set, named)| Secret { name, set, named }).collect())
}

fn listed(rows: &[Secret]) -> Answer {
    let line = |Secret { name, set, named }: &Secret| {
        let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
        format!("{name} {}{named}", if *set { "set" } else { "not set" })
    };
    let lines: Vec<String> = match rows.is_empty() {
        true => vec!["no secrets".to_owned()],
        false => rows.iter().map(line).collect(),
    };
    Answer::new(lines, json!(rows)).named(rows.iter().map(|row| row.name.clone()))
}
