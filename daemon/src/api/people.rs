//! People over HTTP: the same changes `ostler user`, `team` and `project` make, bounded by what the caller holds.

use std::sync::Arc;

use futures::future::BoxFuture;
use ostler_engine::users::{Caller, Kind, People};
use serde::de::DeserializeOwned;

use super::Refused;
use super::rows::Ask;
use super::shapes::{AddGroup, AddUser, AddedGroup, Group, Named, PersonalToken, RemovedRecord, User};
use crate::exit::Exit;
use crate::verbs::users::{self, Edit};

/// Teams or projects.
pub(super) struct Groups(Kind);

impl Groups {
    pub(super) fn new(kind: Kind) -> Self {
        Self(kind)
    }

    /// The handler that lists them.
    pub(super) fn list(self) -> impl Fn(Ask) -> BoxFuture<'static, Result<Vec<Group>, Refused>> {
        move |ask| {
            let listed = list(&ask, self.0);
            Box::pin(std::future::ready(listed))
        }
    }
}

pub(super) async fn users(ask: Ask) -> Result<Vec<User>, Refused> {
    list(&ask, Kind::User)
}

pub(super) async fn add_user(ask: Ask, body: AddUser) -> Result<PersonalToken, Refused> {
    let AddUser { id, roles, memberships, primary } = body;
    edit(&ask, users::add(id, roles, memberships, primary, caller(&ask))).await
}

pub(super) async fn token(ask: Ask, Named { id }: Named) -> Result<PersonalToken, Refused> {
    edit(&ask, users::token(id, caller(&ask))).await
}

pub(super) async fn add_group(ask: Ask, kind: Kind, body: AddGroup) -> Result<AddedGroup, Refused> {
    edit(&ask, users::add_group(kind, body.id, body.title, caller(&ask))).await
}

pub(super) async fn remove(ask: Ask, kind: Kind, Named { id }: Named) -> Result<RemovedRecord, Refused> {
    edit(&ask, users::remove(kind, id, caller(&ask))).await
}

fn caller(ask: &Ask) -> Caller {
    Caller::of(ask.caller.reader().as_ref())
}

fn known(ask: &Ask) -> Result<&Arc<People>, Refused> {
    let none = || Exit::machine("this host has no users file; set users in the configuration").into();
    ask.control.host.access.gate.people().ok_or_else(none)
}

fn list<T: DeserializeOwned>(ask: &Ask, kind: Kind) -> Result<Vec<T>, Refused> {
    typed(users::list(&known(ask)?.file(), kind).json)
}

async fn edit<T: DeserializeOwned>(ask: &Ask, edit: Edit) -> Result<T, Refused> {
    known(ask)?.change(edit.change).await.map_err(|why| refused(why.into_rpc()))?;
    ask.control.host.review_authority();
    typed(edit.answer.json)
}

fn typed<T: DeserializeOwned>(json: ostler_contract::Value) -> Result<T, Refused> {
    Ok(serde_json::from_value(json).map_err(|error| Exit::machine(format!("the users file: {error}")))?)
}

/// What the caller may not give away is refused as a missing grant is.
fn refused(error: ostler_protocol::RpcError) -> Refused {
    match error.code {
        ostler_protocol::error::code::PERMISSION_DENIED => Refused::from(error),
        _ => users::failed(error).into(),
    }
}
