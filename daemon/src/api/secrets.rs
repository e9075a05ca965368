//! The vault over HTTP. Whose a secret is says who may keep it: a name of the host asks for what its configuration
//! does, a team's for the team's grants and being of the team, a person's is that person's own.

use ostler_contract::VaultName;
use ostler_contract::owner::Owner;
use ostler_engine::Principal;
use ostler_protocol::grants::Grant;

use super::rows::Ask;
use super::shapes::{DeletedSecret, Secret, StoreSecret, StoredSecret};
use super::{Refused, configured};
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
            let of_team = |membership: &String| {
                Owner::from_membership(membership).and_then(Owner::team) == Some(team.as_str())
            };
            if person.reader.memberships.iter().any(of_team) { Ok(()) } else { Err(refused()) }
        }
        (VaultName::User { id, .. }, Principal::Person(person)) if person.id == *id => Ok(()),
        _ => Err(refused()),
    }
}

const fn verb(write: bool) -> &'static str {
    if write { "change" } else { "see" }
}

/// The names that the caller may see.
pub(super) async fn list(ask: Ask) -> Result<Vec<Secret>, Refused> {
    let (control, caller) = (&ask.control, &ask.caller);
    let listed = vault::rows(&control.vault()?, &configured(control)?.0).await?;
    let seen = |row: &Secret| match VaultName::parse(&row.name) {
        Ok(name) => admits(control, caller, &name, false).is_ok(),
        Err(_) => *caller == Principal::Root,
    };
    Ok(listed.into_iter().filter(seen).collect())
}

pub(super) async fn set(ask: Ask, StoreSecret { value }: StoreSecret) -> Result<StoredSecret, Refused> {
    let name = vault::parse(&ask.name)?;
    admits(&ask.control, &ask.caller, &name, true)?;
    vault::set(&ask.control.vault()?, &name, &value).await?;
    Ok(StoredSecret { name: name.to_string(), set: true })
}

pub(super) async fn delete(ask: Ask) -> Result<DeletedSecret, Refused> {
    match vault::parse(&ask.name) {
        Ok(name) => admits(&ask.control, &ask.caller, &name, true)?,
        // It may be a name that an earlier version accepted.
        Err(_) if ask.caller == Principal::Root => {}
        Err(wrong) => return Err(wrong.into()),
    }
    vault::delete(&ask.control.vault()?, &ask.name).await?;
    Ok(DeletedSecret { name: ask.name, deleted: true })
}
