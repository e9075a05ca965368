//! `ostler webhook rm`: removes an endpoint with its secret, its log and what recognizes its callers.

use clap::Args;
use ostler_contract::{Value, json, limit};
use ostler_plugin_webhook::recorded_calls::listed_bodies;
use ostler_plugin_webhook::{BODIES, BODY_INDEX, DELIVERIES, ENDPOINTS, REPEATS, THREADS};

use super::log::{list_and_rows, remove_list_and_rows};
use super::{Endpoints, VerbOutput, machine};
use crate::exit::Exit;

/// The flags of `ostler webhook rm`.
#[derive(Debug, Clone, Default, Args)]
pub struct RmFlags {
    /// Endpoint id
    pub id: String,
    /// Keep its secret in the vault
    #[arg(long)]
    pub keep_secret: bool,
    /// Skip the confirmation prompt
    #[arg(long)]
    pub yes: bool,
}

pub(super) async fn rm(endpoints: &Endpoints, flags: &RmFlags) -> Result<VerbOutput, Exit> {
    let id = &flags.id;
    let record = endpoints.record(id).await?;
    let secret = record.get("secret").and_then(Value::as_str).map(str::to_owned);
    let collection = endpoints.collection(ENDPOINTS).await?;
    collection.remove.within(limit::STORE, (id.clone(),)).await.map_err(machine)?;
    for collection in [DELIVERIES, REPEATS, THREADS] {
        remove_list_and_rows(&endpoints.collection(collection).await?, id).await?;
    }
    forget_bodies(endpoints, id).await?;
    let mut lines = vec![format!("Removed {id}; calls to it return 404.")];
    let mut removed = false;
    if let Some(name) = &secret {
        let others = collection.list.read(limit::STORE, ()).await.known().map_err(machine)?;
        let shared = others.iter().any(|other| other.get("secret").and_then(Value::as_str) == Some(name));
        removed = !flags.keep_secret
            && !shared
            && endpoints.vault.delete.within(limit::STORE, (name.clone(),)).await.map_err(machine)?;
        lines.push(match (removed, shared) {
            (true, _) => format!("Removed {name} from the vault."),
            (false, true) => format!("Kept {name} in the vault: another endpoint uses it."),
            (false, false) => format!("Kept {name} in the vault."),
        });
    }
    let listeners = endpoints.listeners(id).await;
    for listener in &listeners {
        lines.push(format!("automation {} ({}) still has a trigger for it", listener.id, listener.title));
    }
    let listeners: Vec<Value> = listeners.iter().map(super::automation::Listener::json).collect();
    let json = json!({ "id": id, "removed": true, "secretRemoved": removed, "automations": listeners });
    Ok(VerbOutput { lines, json, names: vec![id.clone()], good: true })
}

/// Removes the stored bodies of an endpoint, then the list of them.
async fn forget_bodies(endpoints: &Endpoints, id: &str) -> Result<(), Exit> {
    let (index, bodies) = (endpoints.collection(BODY_INDEX).await?, endpoints.collection(BODIES).await?);
    let (list, rows) = list_and_rows(&index, id).await?;
    for body in listed_bodies(list.as_ref(), rows).iter().filter_map(|row| row["id"].as_str()) {
        bodies.remove.within(limit::STORE, (body.to_owned(),)).await.map_err(machine)?;
    }
    remove_list_and_rows(&index, id).await
}
