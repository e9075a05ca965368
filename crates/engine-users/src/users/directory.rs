//! The parsed users file: users with their roles and grants.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ostler_contract::owner::Owner;
use ostler_contract::points::Reader;
use ostler_protocol::grants::{Grant, SUBJECTS, subject};
use ostler_protocol::names;
use ostler_protocol::nearest::{did_you_mean, nearest};
use ostler_protocol::{JsonObject, Value, json};
use subtle::{Choice, ConstantTimeEq};

use super::issuers::{Issuer, Verified};

/// The built-in roles; a role of the same name in the file replaces one.
pub const BUILT_IN_ROLES: &[(&str, &[&str])] = &[
    ("admin", &["*:*"]),
    (
        "member",
        &[
            "file:read",
            "file:write",
            "session:read",
            "session:write",
            "terminal:read",
            "terminal:write",
            "proxy:read",
            "proxy:write",
            "trust:write",
        ],
    ),
    ("guest", &["session:read", "automation:read"]),
];

/// The role of every team and project.
pub const GROUP_ROLE: &str = "member";

/// The prefix of a token's hash in the file.
const HASH: &str = "sha256:";

/// Returns the hash of a token for the file.
pub fn hash_of(token: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    format!("{HASH}{}", hex::encode(digest))
}

/// A user of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Person {
    /// The id in the users file.
    pub id: String,
    /// The grants of the record's roles.
    pub grants: Vec<Grant>,
    /// The form for plugins.
    pub reader: Reader,
    /// The team and project that are charged for work without one.
    pub primary: Option<String>,
    /// Whether the user has ever signed in.
    pub has_signed_in: bool,
    /// Roles that an issuer named at the sign-in, in addition to those of the record; `None` if no issuer identified the
    /// user.
    pub claimed: Option<Vec<String>>,
}

/// The roles that an issuer named at the latest sign-in of a user, as the host records them with the user, so that the user's
/// work goes on after a restart and on another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Confirmed {
    /// [`Identification`] of the user then; the roles are not those of another issuer or another claim.
    pub by: String,
    pub roles: Vec<String>,
}

impl Confirmed {
    /// The field of a user's record.
    pub const FIELD: &str = "confirmed";

    pub fn to_value(&self) -> Value {
        json!({ "by": self.by, "roles": self.roles })
    }

    fn read(value: &Value) -> Option<Self> {
        let roles = value.get("roles")?.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
        Some(Self { by: value.get("by")?.as_str()?.to_owned(), roles: roles.collect() })
    }
}

/// By which issuer a user signs in, and which of its claims names roles.
#[derive(Debug, PartialEq)]
pub(super) struct Identification {
    issuer: Option<Issuer>,
    roles_from: Option<String>,
}

impl Identification {
    /// What is recorded of the roles that an issuer named; nothing for a user whose roles no claim names.
    pub(super) fn confirms(&self, roles: &[String]) -> Option<Confirmed> {
        self.roles_from.as_ref()?;
        let mut roles = roles.to_vec();
        roles.sort_unstable();
        Some(Confirmed { by: self.to_string(), roles })
    }
}

impl fmt::Display for Identification {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(issuer) = &self.issuer {
            write!(formatter, "{issuer}")?;
        }
        write!(formatter, " {}", self.roles_from.as_deref().unwrap_or_default())
    }
}

/// The members of a user.
const MEMBERS: &[&str] = &[
    "id",
    "roles",
    "memberships",
    "primary",
    "token",
    "issuer",
    "rolesFrom",
    "trustToken",
    "signedIn",
    Confirmed::FIELD,
];

/// The content of a users file.
#[derive(Debug, Default)]
pub struct Directory {
    users: BTreeMap<String, User>,
    /// The ids in the file.
    order: Vec<String>,
    roles: BTreeMap<String, Vec<Grant>>,
    teams: BTreeSet<String>,
    projects: BTreeSet<String>,
    trust_token: Option<bool>,
}

#[derive(Debug)]
struct User {
    person: Arc<Person>,
    /// The user's issuer; an invalid one verifies no token.
    issuer: Option<Result<Issuer, ()>>,
    roles_from: Option<String>,
    confirmed: Option<Confirmed>,
    hash: Option<String>,
    trust_token: Option<bool>,
}

impl Directory {
    /// Parses a users file. An invalid record is omitted with a line; an invalid value in a record is ignored.
    ///
    /// # Errors
    /// Why the whole file is invalid; then there are no users.
    pub fn read(file: &JsonObject) -> Result<(Self, Vec<String>), String> {
        let mut lines = Vec::new();
        let mut directory = Self { trust_token: flag(file, "trustToken")?, ..Self::default() };
        for (role, grants) in BUILT_IN_ROLES {
            let grants = grants.iter().filter_map(|grant| Grant::parse(grant)).collect();
            directory.roles.insert((*role).to_owned(), grants);
        }
        for (role, grants) in object(file, "roles")?.into_iter().flatten() {
            match role_grants(role, grants, &mut lines) {
                Some(grants) => drop(directory.roles.insert(role.clone(), grants)),
                // If the file defines the role differently, no user receives the grants of a built-in role with this
                // name.
                None => drop(directory.roles.insert(role.clone(), Vec::new())),
            }
        }
        let ids = |part| {
            object(file, part).map(|part| part.into_iter().flatten().map(|(id, _)| id.clone()).collect())
        };
        directory.teams = ids("teams")?;
        directory.projects = ids("projects")?;
        let users = match file.get("users") {
            None | Some(Value::Null) => &[][..],
            Some(Value::Array(users)) => users,
            Some(_) => return Err("users must be a list".to_owned()),
        };
        for (at, user) in users.iter().enumerate() {
            match directory.user(user, &mut lines) {
                Ok(user) if directory.users.contains_key(&user.person.id) => {
                    lines.push(format!("users[{at}]: duplicate user {}; ignored", user.person.id));
                }
                Ok(user) => {
                    directory.order.push(user.person.id.clone());
                    directory.users.insert(user.person.id.clone(), user);
                }
                Err(why) => lines.push(format!("users[{at}]{why}; ignored")),
            }
        }
        Ok((directory, lines))
    }

    fn user(&self, user: &Value, lines: &mut Vec<String>) -> Result<User, String> {
        let user = user.as_object().ok_or(" must be an object")?;
        let id = match user.get("id") {
            Some(Value::String(id)) if is_id(id) => id.clone(),
            _ => return Err(".id must be a string without whitespace, / and :".to_owned()),
        };
        let roles = texts(user, "roles")?;
        let memberships = texts(user, "memberships")?;
        let mut grants = Vec::new();
        for role in &roles {
            match self.roles.get(role) {
                Some(held) => grants.extend(held.iter().cloned()),
                None => {
                    let known = self.known_roles();
                    lines.push(format!("user {id} has unknown role {role}; ignored{known}"));
                }
            }
        }
        grants.dedup();
        for member in user.keys().filter(|member| !MEMBERS.contains(&member.as_str())) {
            // Others may be notes of who edits the file.
            let meant = did_you_mean(member, MEMBERS.iter().copied());
            if !meant.is_empty() {
                lines.push(format!("user {id}: unknown field {member}; ignored{meant}"));
            }
        }
        for membership in memberships.iter().filter(|membership| !self.has_group(membership)) {
            let known = self.teams.iter().chain(&self.projects).map(String::as_str);
            let meant = did_you_mean(membership, known);
            lines.push(format!("user {id}: unknown team or project {membership} in its memberships{meant}"));
        }
        let hash = match user.get("token") {
            None | Some(Value::Null) => None,
            Some(Value::String(token)) if token.is_empty() => None,
            Some(Value::String(token)) if is_hash(token) => Some(token.to_ascii_lowercase()),
            // The value may be the token itself.
            Some(_) => {
                lines.push(format!("user {id}: token is not a {HASH} hash and is ignored; create one with {} user token {id}", names::HOST));
                None
            }
        };
        let person = Person {
            reader: Reader {
                id: format!("user:{id}"),
                roles,
                memberships,
                grants: grants.iter().map(ToString::to_string).collect(),
            },
            grants,
            primary: text(user, "primary")?,
            has_signed_in: text(user, "signedIn")?.is_some(),
            claimed: None,
            id,
        };
        let mut person = person;
        if let Some(primary) = &person.primary {
            let group = Owner::from_membership(primary);
            if !group.is_some_and(|group| person.reader.belongs_to(&group.to_string())) {
                let id = &person.id;
                lines.push(format!("user {id}: primary {primary} is not one of its memberships; ignored"));
                person.primary = None;
            }
        }
        let issuer = text(user, "issuer")?.map(|name| {
            Issuer::parse(&name).map_err(|why| {
                let id = &person.id;
                lines.push(format!("user {id}: issuer {why}; ignored"));
            })
        });
        Ok(User {
            person: Arc::new(person),
            issuer,
            roles_from: text(user, "rolesFrom")?,
            confirmed: user.get(Confirmed::FIELD).and_then(Confirmed::read),
            hash,
            trust_token: flag(user, "trustToken")?,
        })
    }

    /// Whether the team of a membership exists, and its project.
    fn has_group(&self, membership: &str) -> bool {
        match Owner::from_membership(membership) {
            Some(Owner::Project { team, project }) => {
                self.teams.contains(team) && (project == "*" || self.projects.contains(project))
            }
            Some(Owner::Team(team)) => self.teams.contains(team),
            _ => false,
        }
    }

    /// Returns all issuers: first the default one, then those of the records.
    pub(super) fn issuers(&self, default: Option<&Issuer>) -> Vec<Issuer> {
        let mut all: Vec<Issuer> = default.into_iter().cloned().collect();
        for issuer in self.order.iter().filter_map(|id| self.users.get(id)?.issuer.as_ref()?.as_ref().ok()) {
            if !all.contains(issuer) {
                all.push(issuer.clone());
            }
        }
        all
    }

    /// Returns how a user is identified, if it exists.
    pub(super) fn identification_of(&self, id: &str, default: Option<&Issuer>) -> Option<Identification> {
        let user = self.users.get(id)?;
        let issuer = match &user.issuer {
            Some(own) => own.as_ref().ok(),
            None => default,
        };
        Some(Identification { issuer: issuer.cloned(), roles_from: user.roles_from.clone() })
    }

    /// Returns what is recorded of the latest sign-in of a user through an issuer.
    pub(super) fn recorded_of(&self, id: &str) -> Option<&Confirmed> {
        self.users.get(id)?.confirmed.as_ref()
    }

    /// Returns the roles that an issuer named at the latest recorded sign-in of a user, if that issuer and claim still apply.
    pub(super) fn confirmed_of(&self, id: &str, default: Option<&Issuer>) -> Option<&[String]> {
        let confirmed = self.users.get(id)?.confirmed.as_ref()?;
        let by = self.identification_of(id, default)?;
        (by.to_string() == confirmed.by).then_some(&confirmed.roles)
    }

    /// Returns the user that an issuer identified, with the roles it named, and a line for each unknown role.
    pub(super) fn person_of_subject(
        &self,
        issuer: &Issuer,
        default: Option<&Issuer>,
        verified: &Verified,
    ) -> Option<(Arc<Person>, Vec<String>)> {
        let user = self.order.iter().filter_map(|id| self.users.get(id)).find(|user| {
            let own = self.identification_of(&user.person.id, default).and_then(|by| by.issuer);
            own.as_ref() == Some(issuer) && issuer.means(&verified.subject, &user.person.id)
        })?;
        let id = &user.person.id;
        let claim = user.roles_from.as_ref().and_then(|claim| verified.claims.get(claim));
        let named: Vec<&str> = match claim {
            Some(Value::String(role)) => vec![role],
            Some(Value::Array(roles)) => roles.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let (known, unknown): (Vec<&str>, Vec<&str>) =
            named.into_iter().partition(|role| self.roles.contains_key(*role));
        let lines = unknown
            .into_iter()
            .map(|role| {
                let known = self.known_roles();
                format!("{issuer} assigns user {id} the unknown role {role:?}; ignored{known}")
            })
            .collect();
        let claimed: Vec<String> = known.into_iter().map(str::to_owned).collect();
        Some((self.person_claiming(id, Some(&claimed))?, lines))
    }

    /// Returns the current user of an id, with roles that an issuer named.
    pub fn person_claiming(&self, id: &str, claimed: Option<&[String]>) -> Option<Arc<Person>> {
        let person = self.person(id)?;
        let Some(claimed) = claimed else { return Some(person) };
        let takes_claims = self.users.get(id).is_some_and(|user| user.roles_from.is_some());
        let mut person = (*person).clone();
        for role in claimed.iter().filter(|_| takes_claims) {
            person.grants.extend(self.roles.get(role).into_iter().flatten().cloned());
            if !person.reader.roles.contains(role) {
                person.reader.roles.push(role.clone());
            }
        }
        person.grants.dedup();
        person.reader.grants = person.grants.iter().map(ToString::to_string).collect();
        person.claimed = Some(claimed.to_vec());
        Some(Arc::new(person))
    }

    /// Returns the user of an id.
    pub fn person(&self, id: &str) -> Option<Arc<Person>> {
        self.users.get(id).map(|user| user.person.clone())
    }

    /// Returns the user of a token. It takes the same time for every unknown token.
    pub fn person_of_token(&self, token: &str) -> Option<Arc<Person>> {
        if token.is_empty() {
            return None;
        }
        let given = hash_of(token);
        let mut found = None;
        for user in self.users.values() {
            let hash = user.hash.as_deref().unwrap_or_default();
            let same: Choice = hash.as_bytes().ct_eq(given.as_bytes());
            if bool::from(same) {
                found = Some(user.person.clone());
            }
        }
        found
    }

    /// Returns whether a user has a personal token, by its hash.
    pub fn has_token(&self, id: &str, hash: &str) -> bool {
        self.users.get(id).and_then(|user| user.hash.as_deref()).is_some_and(|own| own == hash)
    }

    /// Returns the file's setting for personal tokens on the handshake, if any.
    pub fn trusts_token_of(&self, id: &str) -> Option<bool> {
        self.users.get(id).and_then(|user| user.trust_token).or(self.trust_token)
    }

    /// Returns the end of a message about an unknown role: the roles that exist.
    pub(super) fn known_roles(&self) -> String {
        known("role", self.roles.keys())
    }

    pub(super) fn roles(&self) -> impl Iterator<Item = (&str, &[Grant])> {
        self.roles.iter().map(|(role, grants)| (role.as_str(), grants.as_slice()))
    }

    /// Returns the grants of a team's or a project's work: a known one has the role `member`.
    pub fn group_grants(&self, owner: &str) -> &[Grant] {
        let known = match Owner::parse(owner) {
            Some(Owner::Team(team)) => self.teams.contains(team),
            Some(Owner::Project { team, project }) => {
                self.teams.contains(team) && self.projects.contains(project)
            }
            _ => false,
        };
        self.role(GROUP_ROLE).filter(|_| known).unwrap_or_default()
    }

    /// Returns the grants of a role.
    pub fn role(&self, role: &str) -> Option<&[Grant]> {
        self.roles.get(role).map(Vec::as_slice)
    }
}

/// Returns the end of a message about an unknown name: those that exist, of which a long list is shortened.
pub(super) fn known<'a>(kind: &str, names: impl ExactSizeIterator<Item = &'a String>) -> String {
    const SHOWN: usize = 20;
    let all = names.len();
    let shown: Vec<&str> = names.take(SHOWN).map(String::as_str).collect();
    match all.saturating_sub(SHOWN) {
        _ if all == 0 => format!("; there are no {kind}s yet"),
        0 => format!("; the {kind}s are {}", shown.join(", ")),
        more => format!("; the {kind}s are {} and {more} more", shown.join(", ")),
    }
}

/// Returns whether a text is a valid id of a user, team, project or role: it occurs in URIs and before a colon.
pub(super) fn is_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 100
        && id != "*"
        && !id
            .chars()
            .any(|c| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':' | '?' | '#' | '%'))
}

fn is_hash(token: &str) -> bool {
    token
        .strip_prefix(HASH)
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Parses the grants of a role; `None` if it is not a list.
fn role_grants(role: &str, grants: &Value, lines: &mut Vec<String>) -> Option<Vec<Grant>> {
    let Some(words) = grants.as_array() else {
        lines.push(format!("role {role} must be a list of grants; it has no grants"));
        return None;
    };
    let mut held = Vec::new();
    for word in words {
        match word.as_str().ok_or_else(|| "a grant must be a string".to_owned()).and_then(checked_grant) {
            Ok((grant, None)) => held.push(grant),
            Ok((grant, Some(line))) => {
                lines.push(format!("role {role}: {line}"));
                held.push(grant);
            }
            Err(why) => lines.push(format!("role {role}: {why}; ignored")),
        }
    }
    Some(held)
}

/// Parses a grant of a role. Operations on subjects that are not the host's belong to plugins.
pub(super) fn checked_grant(word: &str) -> Result<(Grant, Option<String>), String> {
    let old = match word {
        "users:read" => Some("user:read"),
        "users:write" => Some("user:write"),
        _ => None,
    };
    let grant = Grant::parse(old.unwrap_or(word))
        .ok_or_else(|| format!("{word} is not a grant: use <subject>:<operation>, such as session:read"))?;
    let own = subject(&grant.subject);
    if !grant.is_known() {
        let operations = own.into_iter().flat_map(|own| own.read.iter().chain(own.write).copied());
        let meant = did_you_mean(&grant.operation, operations);
        return Err(format!(
            "{word} is not a grant: {} has no operation {}{meant}",
            grant.subject, grant.operation
        ));
    }
    let line = old.map(|new| format!("{word} is now called {new}"));
    let mistyped = || {
        let meant = nearest(&grant.subject, SUBJECTS.iter().map(|own| own.name)).filter(|_| own.is_none())?;
        (grant.subject != "*")
            .then(|| format!("{word} is a grant of a plugin; did you mean {meant}:{}?", grant.operation))
    };
    let line = line.or_else(mistyped);
    Ok((grant, line))
}

fn object<'a>(file: &'a JsonObject, key: &str) -> Result<Option<&'a JsonObject>, String> {
    match file.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(fields)) => Ok(Some(fields)),
        Some(_) => Err(format!("{key} must be an object")),
    }
}

fn flag(fields: &JsonObject, key: &str) -> Result<Option<bool>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(format!(".{key} must be true or false")),
    }
}

fn text(fields: &JsonObject, key: &str) -> Result<Option<String>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(format!(".{key} must be text")),
    }
}

pub(super) fn texts(fields: &JsonObject, key: &str) -> Result<Vec<String>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list
            .iter()
            .map(|text| {
                text.as_str().map(str::to_owned).ok_or_else(|| format!(".{key} must be a list of strings"))
            })
            .collect(),
        Some(_) => Err(format!(".{key} must be a list of strings")),
    }
}
