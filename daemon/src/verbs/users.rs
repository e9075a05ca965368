//! `ostler user …`, `ostler team …`, `ostler project …`: change the users file, or the users in the database, as a user of this
//! machine.

use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use ostler_contract::users::UsersStore;
use ostler_contract::{JsonObject, Secret, Thrown, Value, json};
use ostler_engine::users::{Caller, Change, Kind, UsersFile, hash_of};
use ostler_protocol::RpcError;

use super::ask;
use crate::answer::Answer;
use crate::api::shapes::{AddGroup, AddUser, AddedGroup, Named, PersonalToken, RemovedRecord};
use crate::client::Connection;
use crate::config::ConfigFiles;
use crate::daemon_file;
use crate::database;
use crate::exit::Exit;
use crate::host_users;
use crate::place::Place;
use crate::remote::Remote;
use crate::token::fresh;
use crate::users_file::{UsersOnDisk, parse};

/// The command that makes the running daemon read the file again.
const RELOAD: &str = "x-ostler/users/reload";
/// How long to wait for it.
const RELOAD_LIMIT: Duration = Duration::from_secs(10);

/// The `ostler user` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum UserVerb {
    /// Add a user and print the user's token once
    Add {
        /// Id
        id: String,
        /// Role to assign (repeatable) [default: guest]
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// Membership to assign: <team>, <team>:<project> or <team>:* (repeatable)
        #[arg(long = "member", value_name = "SCOPE")]
        memberships: Vec<String>,
        /// Membership to charge by default
        #[arg(long, value_name = "SCOPE")]
        primary: Option<String>,
    },
    /// Replace a user's token and print the new one once
    Token {
        /// Id
        id: String,
    },
    /// Remove a user; their connections lose all grants immediately
    Rm {
        /// Id
        id: String,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
    /// List users
    List,
}

/// The `ostler team` and `ostler project` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum GroupVerb {
    /// Add a team or project
    Add {
        /// Id
        id: String,
        /// Display name
        #[arg(long)]
        title: Option<String>,
    },
    /// Remove a team or project that no user references
    Rm {
        /// Id
        id: String,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
    /// List all entries
    List,
}

/// The default users file, in the configuration folder.
pub const FILE: &str = "users.json";

/// Returns the users of the configuration: those in the database, or the configured file, by default `users.json` in the
/// configuration folder. With a note for an answer.
async fn open(at: &Place) -> Result<(Arc<dyn UsersStore>, Option<String>), Exit> {
    let files = at.files()?;
    if let Some(direct) = database::connect(&files).await? {
        return shared(&files, direct.users()).await;
    }
    let (file, note) = match files.config.users {
        Some(named) => (UsersOnDisk::new(named.into()), None),
        None => {
            let path = files.dir.join(FILE);
            let note = format!(
                "the configuration does not use {0}; add \"users\": \"{0}\" to it, otherwise users and grants are not checked",
                path.display()
            );
            (UsersOnDisk::new(path), Some(note))
        }
    };
    Ok((Arc::new(file), note))
}

/// Stores the users of the configured file in a database that has none, as the start of a host does.
async fn shared(
    files: &ConfigFiles,
    store: Arc<dyn UsersStore>,
) -> Result<(Arc<dyn UsersStore>, Option<String>), Exit> {
    let failed = |why: Thrown| Exit::machine(why.message);
    let note = match &files.config.users {
        Some(file) => {
            let file = UsersOnDisk::new(file.into());
            host_users::import_first(&*store, &file).await.map_err(failed)?;
            None
        }
        None => store.read().await.map_err(failed)?.is_none().then(|| {
            "the database had no users before; as soon as it has some, its hosts check grants".to_owned()
        }),
    };
    Ok((store, note))
}

/// Converts a rejected change to the error of the command line and HTTP.
pub fn failed(error: RpcError) -> Exit {
    match error.code {
        ostler_protocol::error::code::INTERNAL_ERROR => Exit::machine(error.message),
        _ => Exit::usage(error.message),
    }
}

/// Runs a command about users.
///
/// # Errors
/// Exit 2 for an invalid argument, 1 for a failure of the machine.
pub async fn user(at: &Place, verb: UserVerb) -> Result<Answer, Exit> {
    if let Some(remote) = at.remote()? {
        return user_over_http(at, &remote, verb).await;
    }
    let (users, note) = open(at).await?;
    let changes = !matches!(verb, UserVerb::List);
    let answer = match verb {
        UserVerb::Add { id, roles, memberships, primary } => {
            let roles = (!roles.is_empty()).then_some(roles);
            add(id, roles, memberships, primary, Caller::root()).here(&*users).await?
        }
        UserVerb::Token { id } => token(id, Caller::root()).here(&*users).await?,
        UserVerb::Rm { id, yes } => {
            ask::sure(at, yes, &format!("Remove user {id}?"))?;
            remove(Kind::User, id, Caller::root()).here(&*users).await?
        }
        UserVerb::List => listed(&*users, Kind::User).await?,
    };
    let answer = match note {
        Some(note) => answer.note(note),
        None => answer,
    };
    Ok(match changes {
        true => in_force(at, answer).await,
        false => answer,
    })
}

/// Runs a command about teams or projects.
///
/// # Errors
/// Exit 2 for an invalid argument, 1 for a failure of the machine.
pub async fn group(at: &Place, kind: Kind, verb: GroupVerb) -> Result<Answer, Exit> {
    if let Some(remote) = at.remote()? {
        return group_over_http(at, &remote, kind, verb).await;
    }
    let (users, _) = open(at).await?;
    let answer = match verb {
        GroupVerb::Add { id, title } => add_group(kind, id, title, Caller::root()).here(&*users).await?,
        GroupVerb::Rm { id, yes } => {
            ask::sure(at, yes, &format!("Remove {} {id}?", kind.name()))?;
            remove(kind, id, Caller::root()).here(&*users).await?
        }
        GroupVerb::List => return listed(&*users, kind).await,
    };
    Ok(in_force(at, answer).await)
}

/// Waits until a change of the file is in force in the running daemon, if there is one, and returns the answer with a
/// note if the daemon does not say so.
async fn in_force(at: &Place, answer: Answer) -> Answer {
    let Ok(folders) = at.folders() else { return answer };
    let Some(running) = daemon_file::running(&folders) else { return answer };
    let reloading = async {
        let daemon = Connection::open(&running.connect_url, "ostler-cli").await?;
        daemon.request(RELOAD, json!({})).await
    };
    match tokio::time::timeout(RELOAD_LIMIT, reloading).await {
        Ok(Ok(_)) => answer,
        Ok(Err(_)) | Err(_) => answer.note("the running daemon did not confirm the change; see ostler logs"),
    }
}

/// Runs the command on the daemon at a URL.
async fn user_over_http(at: &Place, remote: &Remote, verb: UserVerb) -> Result<Answer, Exit> {
    match verb {
        UserVerb::Add { id, roles, memberships, primary } => {
            let roles = (!roles.is_empty()).then_some(roles);
            let body = AddUser { id, roles, memberships, primary };
            Ok(token_answer(&remote.post("/api/user/add", &body).await?))
        }
        UserVerb::Token { id } => Ok(token_answer(&remote.post("/api/user/token", &Named { id }).await?)),
        UserVerb::Rm { id, yes } => {
            ask::sure(at, yes, &format!("Remove user {id}?"))?;
            let removed: RemovedRecord = remote.post("/api/user/rm", &Named { id }).await?;
            Ok(removed_answer(Kind::User, &removed.id))
        }
        UserVerb::List => {
            Ok(list_answer(Kind::User, &remote.get::<Vec<JsonObject>>("/api/user/list").await?))
        }
    }
}

async fn group_over_http(at: &Place, remote: &Remote, kind: Kind, verb: GroupVerb) -> Result<Answer, Exit> {
    let path = |verb: &str| format!("/api/{}/{verb}", kind.name());
    match verb {
        GroupVerb::Add { id, title } => {
            let added: AddedGroup = remote.post(&path("add"), &AddGroup { id, title }).await?;
            Ok(added_answer(kind, &added.id))
        }
        GroupVerb::Rm { id, yes } => {
            ask::sure(at, yes, &format!("Remove {} {id}?", kind.name()))?;
            let removed: RemovedRecord = remote.post(&path("rm"), &Named { id }).await?;
            Ok(removed_answer(kind, &removed.id))
        }
        GroupVerb::List => Ok(list_answer(kind, &remote.get::<Vec<JsonObject>>(&path("list")).await?)),
    }
}

/// A change of the users with its answer.
pub struct Edit {
    /// The change.
    pub change: Change,
    /// The answer after the change.
    pub answer: Answer,
}

impl Edit {
    async fn here(self, users: &dyn UsersStore) -> Result<Answer, Exit> {
        host_users::change(users, self.change).await.map_err(|why| failed(why.into_rpc()))?;
        Ok(self.answer)
    }
}

/// Adds a user with a token, by default with the role `guest`.
pub fn add(
    id: String,
    roles: Option<Vec<String>>,
    memberships: Vec<String>,
    primary: Option<String>,
    by: Caller,
) -> Edit {
    let roles = roles.unwrap_or_else(|| vec!["guest".to_owned()]);
    let mut body = JsonObject::from_iter([("roles".to_owned(), json!(roles))]);
    if !memberships.is_empty() {
        body.insert("memberships".to_owned(), json!(memberships));
    }
    if let Some(primary) = primary {
        body.insert("primary".to_owned(), primary.into());
    }
    let (hash, answer) = mint(&id);
    let change = move |file: &mut UsersFile| {
        file.put(Kind::User, &id, &body, true, &by)?;
        file.set_token(&id, &hash, &by)
    };
    Edit { change: Box::new(change), answer }
}

/// Replaces the token of a user.
pub fn token(id: String, by: Caller) -> Edit {
    let (hash, answer) = mint(&id);
    Edit { change: Box::new(move |file| file.set_token(&id, &hash, &by)), answer }
}

/// Creates a token: its hash, and the answer that shows it.
fn mint(id: &str) -> (String, Answer) {
    let token = Secret::new(fresh());
    let made = PersonalToken { id: id.to_owned(), token: token.reveal().clone() };
    (hash_of(token.reveal()), token_answer(&made))
}

/// Only the token is on stdout, also with `--quiet`, so that a pipe receives only it and no token is created without
/// being shown.
fn token_answer(made: &PersonalToken) -> Answer {
    let PersonalToken { id, token } = made;
    Answer::new([token.clone()], json!(made))
        .named([token.as_str()])
        .note(format!("Token of user {id}. It is not shown again; only its hash is stored."))
}

fn added_answer(kind: Kind, id: &str) -> Answer {
    Answer::new([format!("Added {} {id}.", kind.name())], json!({ "id": id })).named([id])
}

fn removed_answer(kind: Kind, id: &str) -> Answer {
    Answer::new([format!("Removed {} {id}.", kind.name())], json!({ "id": id, "removed": true })).named([id])
}

/// Adds a team or a project.
pub fn add_group(kind: Kind, id: String, title: Option<String>, by: Caller) -> Edit {
    let title = title.unwrap_or_else(|| id.clone());
    let body = JsonObject::from_iter([("title".to_owned(), title.into())]);
    let answer = added_answer(kind, &id);
    Edit { change: Box::new(move |file| file.put(kind, &id, &body, true, &by)), answer }
}

/// Removes a record without references.
pub fn remove(kind: Kind, id: String, by: Caller) -> Edit {
    let answer = removed_answer(kind, &id);
    Edit { change: Box::new(move |file| file.remove(kind, &id, &by)), answer }
}

async fn listed(users: &dyn UsersStore, kind: Kind) -> Result<Answer, Exit> {
    let text = users.read().await.map_err(|why| Exit::machine(why.message))?;
    Ok(list(&parse(&users.place(), text.as_deref()).map_err(Exit::machine)?, kind))
}

/// Lists records of a kind, without tokens.
pub fn list(file: &UsersFile, kind: Kind) -> Answer {
    let rows: Vec<JsonObject> = file.ids(kind).iter().map(|id| row(file, kind, id)).collect();
    list_answer(kind, &rows)
}

fn list_answer(kind: Kind, rows: &[JsonObject]) -> Answer {
    let mut lines: Vec<String> = rows.iter().map(|row| line(kind, row)).collect();
    if lines.is_empty() {
        lines.push(format!("no {}s", kind.name()));
    }
    let ids = rows.iter().filter_map(|row| row.get("id")?.as_str());
    Answer::new(lines, json!(rows)).named(ids)
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
