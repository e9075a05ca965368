//! Check of the database with the stores.

use std::path::Path;
use std::sync::Arc;

use ostler_contract::JsonObject;
use ostler_engine::users::UsersFile;
use ostler_protocol::names;

use super::{Check, disk};
pub(super) use crate::database::options;
use crate::parts::postgres::{Direct, NAME, Status, remedy};
use crate::settings::Settings;
use crate::users_file::parse;

const WHAT: &str = "database";

/// Connects, and checks the schema, the lease and the key of the vault. Returns the connection if the tables can be used.
pub(super) async fn check(
    options: &JsonObject,
    config_dir: &Path,
    is_running: bool,
) -> (Option<Arc<Direct>>, Vec<Check>) {
    let failed = |why: String, fix: &str| (None, vec![Check::error(WHAT, why, fix)]);
    let direct = match Direct::connect(options, config_dir).await {
        Ok(direct) => direct,
        Err(why) => {
            let fix = match remedy(&why) {
                Some(remedy) => remedy.to_owned(),
                None => format!(
                    "correct the options of {NAME}, or start the server; see {}",
                    names::page("postgres")
                ),
            };
            return failed(why.message, &fix);
        }
    };
    let status = match direct.status().await {
        Ok(status) => status,
        Err(why) => return failed(why.message, "update ostler, or set the option schema to another one"),
    };
    let mut checks = vec![state(&status, is_running)];
    if status.foreign_secrets > 0 {
        checks.push(Check::error(
            WHAT,
            format!(
                "{} of {} secrets were encrypted with another key than the configured one",
                status.foreign_secrets, status.secrets
            ),
            "set vaultKeyFile to the file with that key, or set these secrets again",
        ));
    }
    let usable = status.version == status.newest;
    (usable.then_some(direct), checks)
}

/// Checks the users, if there are some. Returns them.
pub(super) async fn users(
    direct: &Arc<Direct>,
    settings: Option<&Settings>,
) -> (Option<Result<UsersFile, String>>, Vec<Check>) {
    let store = direct.users();
    let place = store.place();
    let read = match store.read().await {
        Ok(None) => {
            let file = settings.and_then(|settings| settings.users.as_ref());
            let missing = file.map(|file| match file.exists() {
                true => Check::ok(
                    "users",
                    format!("{place}: none yet; the next start stores those of {}", file.display()),
                ),
                false => Check::warning(
                    "users",
                    format!("{place}: none; no user can sign in"),
                    "add one with ostler user add",
                ),
            });
            return (None, missing.into_iter().collect());
        }
        Ok(Some(text)) => parse(&place, Some(&text)),
        Err(why) => Err(why.message),
    };
    let fix =
        "correct them with ostler files export users.json, an editor, and ostler files import users.json";
    (Some(read.clone()), disk::content(&place, read, fix))
}

fn state(status: &Status, is_running: bool) -> Check {
    let Status { server, schema, version, newest, hosts, .. } = status;
    let place = format!("PostgreSQL {server}, schema {schema}");
    let lease = match hosts.as_slice() {
        [] => "no host has a lease".to_owned(),
        hosts => {
            let named = hosts.iter().map(|host| match &host.url {
                Some(url) => format!("{} at {url}", host.id),
                None => host.id.clone(),
            });
            format!("lease of {}", named.collect::<Vec<_>>().join(", "))
        }
    };
    match version {
        0 => Check::warning(WHAT, format!("{place}: no tables yet"), "the first start creates them"),
        version if version < newest => Check::warning(
            WHAT,
            format!("{place}: tables of version {version}, {lease}"),
            format!("the next start updates them to version {newest}"),
        ),
        version if version > newest => Check::ok(
            WHAT,
            format!(
                "{place}, version {version}, which this ostler uses and does not know (up to {newest}), {lease}"
            ),
        ),
        _ if is_running && hosts.is_empty() => Check::warning(
            WHAT,
            format!("{place}: the daemon runs and has no lease"),
            "see ostler logs; it stores nothing until it can renew its lease",
        ),
        _ => Check::ok(WHAT, format!("{place}, version {version}, {lease}")),
    }
}
