//! People over HTTP: the same changes `ostler user`, `team` and `project` make, bounded by what the caller holds.

use ostler_contract::{JsonObject, Value};
use ostler_engine::Principal;
use ostler_engine::users::{Caller, Kind};

use super::Refused;
use super::rows::text;
use crate::control::Control;
use crate::exit::Exit;
use crate::verbs::people::{self, Edit};

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    List,
    Add,
    Token,
    Rm,
}

pub(super) async fn run(
    control: &Control,
    caller: &Principal,
    kind: Kind,
    verb: Verb,
    body: &JsonObject,
) -> Result<Value, Refused> {
    let known =
        control.host.access.gate.people().ok_or_else(|| Exit::usage("this host has no users file"))?;
    let by = Caller::of(caller.reader().as_ref());
    let edit: Edit = match verb {
        Verb::List => return Ok(people::list(&known.file(), kind).json),
        Verb::Add if kind == Kind::User => {
            let roles = body.contains_key("roles").then(|| texts(body, "roles")).transpose()?;
            let memberships = texts(body, "memberships")?;
            people::add(text(body, "id")?, roles, memberships, optional(body, "primary")?, by)
        }
        Verb::Add => people::add_group(kind, text(body, "id")?, optional(body, "title")?, by),
        Verb::Token => people::token(text(body, "id")?, by),
        Verb::Rm => people::remove(kind, text(body, "id")?, by),
    };
    known.change(edit.change).await.map_err(|why| refused(why.into_rpc()))?;
    control.host.people_changed();
    Ok(edit.answer.json)
}

/// What the caller may not give away is refused as a missing grant is.
fn refused(error: ostler_protocol::RpcError) -> Refused {
    match error.code {
        ostler_protocol::error::code::PERMISSION_DENIED => Refused::from(error),
        _ => people::failed(error).into(),
    }
}

fn optional(body: &JsonObject, key: &str) -> Result<Option<String>, Exit> {
    body.contains_key(key).then(|| text(body, key)).transpose()
}

fn texts(body: &JsonObject, key: &str) -> Result<Vec<String>, Exit> {
    let wrong = || Exit::usage(format!("{key} must be a list of strings"));
    match body.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(words)) => {
            words.iter().map(|word| word.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}
