//! Pages that sign in, and who a caller is.

use std::sync::{Arc, OnceLock};

use ostler_contract::http::{HeaderMap, HeaderValue, header};
use ostler_engine::Principal;
use ostler_protocol::names;
use ostler_server::{SIGN_IN_LIFETIME, known_bearer};

use url::Url;

use super::page_shapes::{Me, Permissions, RoleGrants, SignIn, SignedIn};
use super::rows::Ask;
use super::shapes::Nothing;
use super::{Refused, openapi};
use crate::exit::Exit;

/// What a request carries beside its body, and the cookie of its answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    pub(super) headers: HeaderMap,
    pub(super) cookie: Arc<OnceLock<HeaderValue>>,
}

/// Exchanges a token for a cookie that no script can read.
pub(super) async fn sign_in(ask: Ask, SignIn { token }: SignIn) -> Result<SignedIn, Refused> {
    let control = &ask.control;
    let gate = &control.host.access.gate;
    let known = known_bearer(&token, control.token.get(), gate).await.map_err(Refused::NotReady)?;
    let principal = known.ok_or(Refused::Token)?.principal;
    if let Principal::Person(person) = &principal {
        control.host.access.record_sign_in(person);
    }
    // A user can have the id `root`.
    let user = principal.owner("").unwrap_or_default();
    let begun = control.sign_ins.begin(&user, token, &ask.page.headers, &path_of_page(&ask));
    let (cookie, has_ended) =
        begun.ok_or_else(|| Exit::machine("the sign-in cannot be written as a cookie"))?;
    let _ = ask.page.cookie.set(cookie);
    if has_ended {
        control.host.review_authority();
    }
    // What the page opens ends with its sign-in, also if nobody signs out.
    let host = Arc::downgrade(&control.host);
    control.sign_ins.watch(move || {
        if let Some(host) = host.upgrade() {
            host.review_authority();
        }
    });
    Ok(SignedIn { name: shown(&principal), seconds: SIGN_IN_LIFETIME.as_secs() })
}

pub(super) async fn sign_out(ask: Ask, _: Nothing) -> Result<Nothing, Refused> {
    if let Some(cookie) = ask.control.sign_ins.end(&ask.page.headers, &path_of_page(&ask)) {
        let _ = ask.page.cookie.set(cookie);
    }
    ask.control.host.review_authority();
    Ok(Nothing {})
}

/// The path below which a page has this host: that of the public URL for its pages, and the root for others, such as those at
/// the daemon's own address.
fn path_of_page(ask: &Ask) -> String {
    let path = openapi::public_path(&ask.control).filter(|path| !path.contains(';'));
    let public = ask.control.record().ok().and_then(|record| Url::parse(record.public_url.as_deref()?).ok());
    let origin =
        ask.page.headers.get(header::ORIGIN).and_then(|origin| Url::parse(origin.to_str().ok()?).ok());
    let is_public = public.zip(origin).is_some_and(|(public, origin)| public.origin() == origin.origin());
    path.filter(|_| is_public).unwrap_or_else(|| "/".to_owned())
}

fn shown(principal: &Principal) -> String {
    match principal {
        Principal::Anyone => "this computer".to_owned(),
        Principal::Root => "connection token".to_owned(),
        Principal::Person(_) | Principal::Plugin { .. } => principal.name(),
    }
}

pub(super) async fn me(ask: Ask) -> Result<Me, Refused> {
    let gate = &ask.control.host.access.gate;
    let (roles, memberships, grants) = match &ask.caller {
        Principal::Person(person) => {
            let reader = &person.reader;
            (reader.roles.clone(), reader.memberships.clone(), reader.grants.clone())
        }
        _ => (Vec::new(), Vec::new(), vec!["*:*".to_owned()]),
    };
    Ok(Me {
        name: shown(&ask.caller),
        user: matches!(ask.caller, Principal::Person(_)).then(|| ask.caller.name()),
        host: names::HOST.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sign_in: ask.control.token.get().is_some() || gate.people().is_some(),
        users: gate.people().is_some(),
        roles,
        memberships,
        grants,
    })
}

/// What each user may do, and which role gives it.
pub(super) async fn permissions(ask: Ask) -> Result<Vec<Permissions>, Refused> {
    let none = || Exit::machine("this host has no users file; set users in the configuration");
    let people = ask.control.host.access.gate.people().ok_or_else(none)?;
    let (file, known) = (people.file(), people.now());
    let ids = file.ids(ostler_engine::users::Kind::User);
    let persons = ids.iter().filter_map(|id| known.person(id));
    let permissions = persons.map(|person| Permissions {
        id: person.id.clone(),
        roles: person
            .reader
            .roles
            .iter()
            .map(|role| RoleGrants {
                role: role.clone(),
                grants: known.role(role).unwrap_or_default().iter().map(ToString::to_string).collect(),
            })
            .collect(),
        memberships: person.reader.memberships.clone(),
        grants: person.reader.grants.clone(),
        has_signed_in: person.has_signed_in,
    });
    Ok(permissions.collect())
}
