//! The vault over HTTP. Whose a secret is says who may keep it: a name of the host asks for what its configuration
//! does, a team's for the team's grants and being of the team, a person's is that person's own.

use ostler_contract::{Value, VaultName};
use ostler_engine::Principal;
use ostler_protocol::grants::Grant;

use super::Refused;
use crate::control::Control;
use crate::verbs::vault;

/// Whether whoever asks may change (`write`) or see a name.
fn admits(control: &Control, caller: &Principal, name: &VaultName, write: bool) -> Result<(), Refused> {
    let gate = &control.host.access.gate;
    let refused = || Refused::Grant(format!("{} may not {} {name} here", caller.name(), verb(write)));
    match (name, caller) {
        (_, Principal::Root) => Ok(()),
        (VaultName::Host(_), _) => {
            Ok(gate.require(caller, &Grant::of("config", if write { "change" } else { "settings" }))?)
        }
        (VaultName::Team { team, .. }, Principal::Person(person)) => {
            gate.require(caller, &Grant::of("team", if write { "put" } else { "get" }))?;
            let of_team = |scope: &String| scope.split(':').next() == Some(team.as_str());
            if person.reader.memberships.iter().any(of_team) { Ok(()) } else { Err(refused()) }
        }
        (VaultName::User { id, .. }, Principal::Person(person)) if person.id == *id => Ok(()),
        _ => Err(refused()),
    }
}

const fn verb(write: bool) -> &'static str {
    if write { "change" } else { "see" }
}

/// The names whoever asks may see.
pub(super) async fn list(control: &Control, caller: &Principal) -> Result<Value, Refused> {
    let listed = vault::list(&control.vault()?, &control.configured()?.0).await?.json;
    let Value::Array(rows) = listed else { return Ok(listed) };
    let seen = |row: &Value| {
        let name = row["name"].as_str().and_then(|name| VaultName::parse(name).ok());
        match name {
            Some(name) => admits(control, caller, &name, false).is_ok(),
            None => *caller == Principal::Root,
        }
    };
    Ok(rows.into_iter().filter(seen).collect())
}

pub(super) async fn set(
    control: &Control,
    caller: &Principal,
    name: &str,
    value: &str,
) -> Result<Value, Refused> {
    let name = vault::parse(name)?;
    admits(control, caller, &name, true)?;
    Ok(vault::set(&control.vault()?, &name, value).await?.json)
}

pub(super) async fn delete(control: &Control, caller: &Principal, name: &str) -> Result<Value, Refused> {
    let name = vault::parse(name)?;
    admits(control, caller, &name, true)?;
    Ok(vault::delete(&control.vault()?, &name).await?.json)
}
