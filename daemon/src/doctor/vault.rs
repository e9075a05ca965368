//! Checks of the vault names that options and endpoints require.

use std::sync::Arc;

use ostler_contract::points::{RecordStore, Vault};
use ostler_contract::read::{Read, Unknown};
use ostler_contract::{Value, limit};
use ostler_plugin_webhook::ENDPOINTS;
use ostler_plugin_webhook::tools::{EndpointFacts, no_endpoint};
use ostler_ports::{FileRecords, FileVault, Report};

use super::{Check, State};
use crate::config::ConfigFiles;
use crate::daemon_file::Record;
use crate::parts::postgres::Direct;
use crate::verbs::vault::list;

const WHAT: &str = "vault";

/// Checks every required name.
pub(super) async fn names(
    files: &ConfigFiles,
    running: Option<&Record>,
    database: Option<&Arc<Direct>>,
) -> Vec<Check> {
    let quiet = Report::quiet();
    if let Some(direct) = database {
        let place = format!("the vault in {}", direct.place());
        return checked(files, direct.vault(), direct.records(), &place).await;
    }
    if crate::database::options(files).is_some() {
        // The check of the database says why.
        return Vec::new();
    }
    if let Some(plugin) = running.and_then(|record| record.vault.as_ref()) {
        return vec![Check::ok(WHAT, format!("secrets are stored in the vault of plugin {plugin}"))];
    }
    let vault: Vault = match FileVault::new(&files.dir, quiet.clone()) {
        Ok(vault) => Arc::new(vault).into_point(),
        Err(why) => return vec![Check::error(WHAT, why.message, "make the folder readable")],
    };
    let records = Arc::new(FileRecords::new(&files.dir, quiet)).into_point();
    checked(files, vault, records, "vault.json").await
}

async fn checked(files: &ConfigFiles, vault: Vault, records: RecordStore, place: &str) -> Vec<Check> {
    let mut checks = Vec::new();
    match list(&vault, files).await {
        Ok(listed) => {
            for row in listed.json.as_array().into_iter().flatten().filter(|row| row["set"] == false) {
                let name = row["name"].as_str().unwrap_or_default();
                let paths = row["named"].as_array().into_iter().flatten().filter_map(Value::as_str);
                checks.push(unset(name, &paths.collect::<Vec<_>>().join(", ")));
            }
        }
        Err(why) => checks.push(Check::error(
            WHAT,
            why.to_string(),
            match place {
                "vault.json" => "correct vault.json; it must contain one JSON object".to_owned(),
                place => format!("check {place}"),
            },
        )),
    }
    checks.extend(endpoints(&vault, &records).await);
    if checks.iter().all(|check| check.state == State::Ok) {
        checks.push(Check::ok(WHAT, "all referenced secrets are set"));
    }
    checks
}

fn unset(name: &str, by: &str) -> Check {
    Check::error(
        WHAT,
        format!("{name} is not set but required by {by}"),
        format!("ostler vault set {name}, with the value on standard input"),
    )
}

/// Checks the endpoints of the webhook plugin, and their secrets.
async fn endpoints(vault: &Vault, records: &RecordStore) -> Vec<Check> {
    let mut checks = Vec::new();
    let unread = |why: &Unknown| {
        Check::error(WHAT, format!("the endpoints could not be read: {why}"), "check the folder webhooks")
    };
    let read = async {
        let asked = (ENDPOINTS.to_owned(), Default::default());
        let collection = records.collection.read(limit::STORE, asked).await.known()?;
        collection.list.read(limit::STORE, ()).await.known()
    };
    let found = match read.await {
        Ok(found) => found,
        Err(why) => return vec![unread(&why)],
    };
    for record in found {
        let id = record.get("id").and_then(Value::as_str).unwrap_or_default();
        match EndpointFacts::read(&record) {
            Ok(facts) => match vault.get.read(limit::STORE, (facts.secret.clone(),)).await {
                Read::Known(set) if set.as_ref().is_none_or(|value| value.is_empty()) => {
                    checks.push(unset(&facts.secret, &format!("webhooks/{id}.md")));
                }
                Read::Known(_) => {}
                Read::Unknown(why) => checks.push(Check::error(
                    WHAT,
                    format!("{}, which webhooks/{id}.md names, could not be read: {why}", facts.secret),
                    "check the vault",
                )),
            },
            Err(why) => checks.push(Check::error(
                WHAT,
                format!("webhooks/{id}.md: {}", no_endpoint(&why)),
                format!("correct it, or remove it with: ostler webhook rm {id}"),
            )),
        }
    }
    checks
}
