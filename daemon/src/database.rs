//! The database of a host with `@ostler/postgres`, for commands of this computer.

use std::sync::Arc;

use ostler_contract::JsonObject;

use crate::config::ConfigFiles;
use crate::exit::Exit;
use crate::parts::postgres::{Direct, NAME};

/// Returns the options of the enabled plugin with the stores, if there is one.
pub fn options(files: &ConfigFiles) -> Option<JsonObject> {
    let mut entries = files.config.plugins.iter().flatten();
    let entry = entries.find(|entry| entry.name == NAME && entry.enabled != Some(false))?;
    Some(entry.options.clone().unwrap_or_default())
}

/// Connects to the database of the configuration, if its stores are in one.
///
/// # Errors
/// Exit 1 if the database cannot be used, or has no tables of this version.
pub async fn connect(files: &ConfigFiles) -> Result<Option<Arc<Direct>>, Exit> {
    let Some(options) = options(files) else { return Ok(None) };
    let failed = |why: ostler_contract::Thrown| Exit::machine(format!("{NAME}: {}", why.message));
    let direct = Direct::connect(&options, &files.dir).await.map_err(failed)?;
    direct.check_schema().await.map_err(failed)?;
    Ok(Some(direct))
}

/// How the data of the database is backed up.
pub fn backup_line(options: &JsonObject) -> String {
    let text = |name: &str| options.get(name).and_then(|value| value.as_str());
    let schema = text("schema").unwrap_or("ostler");
    let url = text("url").unwrap_or("<url>");
    format!(
        "sessions, automations, records, secrets, users, policies and usage in PostgreSQL; back them up with: pg_dump --schema={schema} \
         --format=custom --file=ostler.dump {url}"
    )
}
