//! `ostler user …`, `ostler team …`, `ostler project …`: the users file, changed as a person at this machine may.

use clap::Subcommand;
use ostler_contract::{JsonObject, Secret, Value, json};
use ostler_engine::people::{Caller, Kind, UsersFile, hash_of};
use ostler_protocol::RpcError;

use super::ask;
use crate::answer::Answer;
use crate::exit::Exit;
use crate::people::UsersOnDisk;
use crate::place::Place;
use crate::token::fresh;

/// What to do with people.
#[derive(Debug, Clone, Subcommand)]
pub enum UserVerb {
    /// Add somebody, and print a token once
    Add {
        /// The id
        id: String,
        /// A role; may be said again [default: guest]
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// A membership: <team>, <team>:<project> or <team>:*; may be said again
        #[arg(long = "member", value_name = "SCOPE")]
        memberships: Vec<String>,
        /// Where work that names no team and project is charged
        #[arg(long, value_name = "SCOPE")]
        primary: Option<String>,
    },
    /// Make a new token for somebody, in place of the one before, and print it once
    Token {
        /// The id
        id: String,
    },
    /// Remove somebody; whoever is signed in as them is nobody at once
    Rm {
        /// The id
        id: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// List people
    List,
}

/// What to do with teams or projects.
#[derive(Debug, Clone, Subcommand)]
pub enum GroupVerb {
    /// Add one
    Add {
        /// The id
        id: String,
        /// What it is called
        #[arg(long)]
        title: Option<String>,
    },
    /// Remove one nobody names any more
    Rm {
        /// The id
        id: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// List them
    List,
}

/// The users file of the configuration; `users.json` beside it where it names none.
fn file(at: &Place) -> Result<(UsersOnDisk, Option<String>), Exit> {
    let files = at.files()?;
    Ok(match files.config.users {
        Some(named) => (UsersOnDisk::new(named.into()), None),
        None => {
            let path = files.dir.join("users.json");
            let note = format!(
                "no configuration names {0}; put \"users\": \"{0}\" in it, or nobody is asked who they are",
                path.display()
            );
            (UsersOnDisk::new(path), Some(note))
        }
    })
}

fn failed(error: RpcError) -> Exit {
    match error.code {
        ostler_protocol::error::code::INTERNAL_ERROR => Exit::machine(error.message),
        _ => Exit::usage(error.message),
    }
}

/// Does it with people.
///
/// # Errors
/// Exit 2 for a wrong argument, 1 where the machine cannot.
pub fn user(at: &Place, verb: UserVerb) -> Result<Answer, Exit> {
    let (users, note) = file(at)?;
    let answer = match verb {
        UserVerb::Add { id, roles, memberships, primary } => add(&users, &id, roles, memberships, primary)?,
        UserVerb::Token { id } => token(&users, &id)?,
        UserVerb::Rm { id, yes } => {
            ask::sure(at, yes, &format!("Remove user {id}?"))?;
            remove(&users, Kind::User, &id)?
        }
        UserVerb::List => list(&users, Kind::User)?,
    };
    Ok(match note {
        Some(note) => answer.note(note),
        None => answer,
    })
}

/// Does it with teams or projects.
///
/// # Errors
/// Exit 2 for a wrong argument, 1 where the machine cannot.
pub fn group(at: &Place, kind: Kind, verb: GroupVerb) -> Result<Answer, Exit> {
    let (users, _) = file(at)?;
    match verb {
        GroupVerb::Add { id, title } => {
            let title = title.unwrap_or_else(|| id.clone());
            let body = JsonObject::from_iter([("title".to_owned(), title.into())]);
            users.change(|file| file.put(kind, &id, &body, true, &Caller::root())).map_err(failed)?;
            Ok(Answer::new([format!("{} {id} is added.", kind.name())], json!({ "id": id })).named([id]))
        }
        GroupVerb::Rm { id, yes } => {
            ask::sure(at, yes, &format!("Remove {} {id}?", kind.name()))?;
            remove(&users, kind, &id)
        }
        GroupVerb::List => list(&users, kind),
    }
}

/// Adds somebody, with a token.
///
/// # Errors
/// What is wrong with it.
pub fn add(
    users: &UsersOnDisk,
    id: &str,
    roles: Vec<String>,
    memberships: Vec<String>,
    primary: Option<String>,
) -> Result<Answer, Exit> {
    let roles = if roles.is_empty() { vec!["guest".to_owned()] } else { roles };
    let mut body = JsonObject::from_iter([("roles".to_owned(), json!(roles))]);
    if !memberships.is_empty() {
        body.insert("memberships".to_owned(), json!(memberships));
    }
    if let Some(primary) = primary {
        body.insert("primary".to_owned(), primary.into());
    }
    let token = Secret::new(fresh());
    users
        .change(|file| {
            file.put(Kind::User, id, &body, true, &Caller::root())?;
            file.set_token(id, &hash_of(token.reveal()), &Caller::root())
        })
        .map_err(failed)?;
    Ok(minted(id, &token))
}

/// Gives somebody another token.
///
/// # Errors
/// Nobody of that id.
pub fn token(users: &UsersOnDisk, id: &str) -> Result<Answer, Exit> {
    let token = Secret::new(fresh());
    users.change(|file| file.set_token(id, &hash_of(token.reveal()), &Caller::root())).map_err(failed)?;
    Ok(minted(id, &token))
}

/// The token is all of stdout, so that a pipe holds it alone.
fn minted(id: &str, token: &Secret<String>) -> Answer {
    Answer::new([token.reveal().clone()], json!({ "id": id, "token": token.reveal() }))
        .named([id])
        .note(format!("This is the token of user {id}. It is shown this once; only its hash is kept."))
}

/// Removes somebody or something nobody names.
///
/// # Errors
/// Nothing of that id, or who still names it.
pub fn remove(users: &UsersOnDisk, kind: Kind, id: &str) -> Result<Answer, Exit> {
    users.change(|file| file.remove(kind, id, &Caller::root())).map_err(failed)?;
    Ok(Answer::new([format!("{} {id} is removed.", kind.name())], json!({ "id": id, "removed": true }))
        .named([id]))
}

/// Lists a kind of record, never a token.
///
/// # Errors
/// A file that does not read.
pub fn list(users: &UsersOnDisk, kind: Kind) -> Result<Answer, Exit> {
    let file = users.read().map_err(Exit::machine)?;
    let rows: Vec<JsonObject> = file.ids(kind).iter().map(|id| row(&file, kind, id)).collect();
    let mut lines: Vec<String> = rows.iter().map(|row| line(kind, row)).collect();
    if lines.is_empty() {
        lines.push(format!("no {}s", kind.name()));
    }
    Ok(Answer::new(lines, json!(rows)).named(file.ids(kind)))
}

fn row(file: &UsersFile, kind: Kind, id: &str) -> JsonObject {
    let mut row = JsonObject::from_iter([("id".to_owned(), json!(id))]);
    row.extend(file.body(kind, id).unwrap_or_default());
    if kind == Kind::User {
        row.insert("token".to_owned(), file.has_token(id).into());
    }
    row
}

fn line(kind: Kind, row: &JsonObject) -> String {
    let words = |field: &str| -> String {
        let words = row.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        words.collect::<Vec<_>>().join(", ")
    };
    let id = row.get("id").and_then(Value::as_str).unwrap_or_default();
    match kind {
        Kind::User => {
            let memberships = words("memberships");
            let of = if memberships.is_empty() { String::new() } else { format!(" of {memberships}") };
            let token = if row.get("token") == Some(&Value::Bool(true)) { "" } else { ", no token" };
            format!("{id}: {}{of}{token}", words("roles"))
        }
        Kind::Team | Kind::Project => {
            format!("{id}: {}", row.get("title").and_then(Value::as_str).unwrap_or(id))
        }
        Kind::Role => format!("{id}: {}", words("grants")),
    }
}
