//! Changes to the users file: valid values, their authorization, and what prevents a removal.

use ostler_contract::owner::Owner;
use ostler_contract::points::Reader;
use ostler_protocol::grants::Grant;
use ostler_protocol::{JsonObject, RpcError, Value, json};

use super::directory::{
    BUILT_IN_ROLES, Confirmed, Directory, GROUP_ROLE, checked_grant, is_id, known, texts,
};
use super::file::UsersFile;

/// A kind of record; its name is its URI scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    User,
    Team,
    Project,
    /// A named list of grants.
    Role,
}

impl Kind {
    pub const ALL: &[Self] = &[Self::User, Self::Team, Self::Project, Self::Role];

    /// Returns its name, which is its scheme.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Team => "team",
            Self::Project => "project",
            Self::Role => "role",
        }
    }

    pub(super) const fn part(self) -> &'static str {
        match self {
            Self::User => "users",
            Self::Team => "teams",
            Self::Project => "projects",
            Self::Role => "roles",
        }
    }

    /// Returns the valid fields of a body.
    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::User => &["roles", "issuer", "rolesFrom", "memberships", "primary"],
            Self::Team | Self::Project => &["title"],
            Self::Role => &["grants"],
        }
    }
}

/// The author of a change, who can only grant what they have.
#[derive(Debug, Clone)]
pub struct Caller {
    name: String,
    /// `None` for the host itself, which has all grants.
    grants: Option<Vec<Grant>>,
}

impl Caller {
    /// Returns the host itself.
    pub fn root() -> Self {
        Self { name: "root".to_owned(), grants: None }
    }

    /// Returns an author with exactly these grants.
    pub fn holding(name: &str, grants: Vec<Grant>) -> Self {
        Self { name: name.to_owned(), grants: Some(grants) }
    }

    /// Returns the caller of a provider or a request; no caller means the host itself.
    pub fn of(reader: Option<&Reader>) -> Self {
        match reader {
            None => Self::root(),
            Some(reader) => Self::holding(
                &reader.id,
                reader.grants.iter().filter_map(|grant| Grant::parse(grant)).collect(),
            ),
        }
    }

    fn must_hold(&self, given: &[Grant], what: &str) -> Result<(), RpcError> {
        match self.lacks(given) {
            None => Ok(()),
            Some(lacking) => Err(RpcError::permission_denied(format!(
                "{} does not have {lacking}, which {what} has",
                self.name
            ))),
        }
    }

    fn lacks<'a>(&self, given: &'a [Grant]) -> Option<&'a Grant> {
        let held = self.grants.as_ref()?;
        given.iter().find(|given| !held.iter().any(|held| held.covers(given)))
    }

    /// Members of a team or project can use its grants.
    fn must_hold_of_group(&self, directory: &Directory, membership: &str) -> Result<(), RpcError> {
        let kind = match Owner::from_membership(membership) {
            Some(Owner::Project { .. }) => Kind::Project,
            _ => Kind::Team,
        };
        let given = directory.role(GROUP_ROLE).unwrap_or_default();
        self.must_hold(given, &format!("{} {membership}", kind.name()))
    }

    /// Changing the query of an issuer determines which roles it names.
    fn must_hold_every_role(&self, directory: &Directory, id: &str) -> Result<(), RpcError> {
        match directory.roles().find_map(|(role, grants)| Some((role, self.lacks(grants)?))) {
            None => Ok(()),
            Some((role, lacking)) => Err(RpcError::permission_denied(format!(
                "{} does not have {lacking}, and the issuer of user {id} could assign the role {role}, which has it",
                self.name
            ))),
        }
    }
}

fn refused(why: impl Into<String>) -> RpcError {
    RpcError::invalid_params(why)
}

fn unknown(kind: Kind, id: &str) -> RpcError {
    RpcError::not_found(format!("unknown {} {id}", kind.name()))
}

impl UsersFile {
    /// Returns the ids of a kind in the order of the file; roles begin with the built-in ones.
    pub fn ids(&self, kind: Kind) -> Vec<String> {
        match kind {
            Kind::User => self.users().iter().filter_map(|user| id_of(user)).map(str::to_owned).collect(),
            Kind::Role => {
                let own = self.part(kind);
                let built_in = |id: &String| BUILT_IN_ROLES.iter().any(|(role, _)| role == id);
                let own = own.keys().filter(|id| !built_in(id)).cloned();
                BUILT_IN_ROLES.iter().map(|(role, _)| (*role).to_owned()).chain(own).collect()
            }
            Kind::Team | Kind::Project => self.part(kind).keys().cloned().collect(),
        }
    }

    /// Returns a record without its token and hash.
    pub fn body(&self, kind: Kind, id: &str) -> Option<JsonObject> {
        let held = match kind {
            Kind::User => self.users().iter().find(|user| id_of(user) == Some(id))?.as_object()?.clone(),
            Kind::Role => {
                let built_in =
                    || BUILT_IN_ROLES.iter().find(|(role, _)| *role == id).map(|(_, grants)| json!(grants));
                let grants = self.part(kind).get(id).cloned().or_else(built_in)?;
                JsonObject::from_iter([("grants".to_owned(), grants)])
            }
            Kind::Team | Kind::Project => self.part(kind).get(id)?.as_object().cloned().unwrap_or_default(),
        };
        let shown =
            kind.fields().iter().filter_map(|field| Some(((*field).to_owned(), held.get(*field)?.clone())));
        Some(shown.collect())
    }

    /// Returns whether a user has a token, for a listing.
    pub fn has_token(&self, id: &str) -> bool {
        let user = self.users().iter().find(|user| id_of(user) == Some(id));
        user.is_some_and(|user| {
            user.get("token").and_then(Value::as_str).is_some_and(|token| !token.is_empty())
        })
    }

    /// Adds or changes a record. An omitted field keeps its value, a blank text changes nothing, and `null` clears an
    /// optional value.
    ///
    /// # Errors
    /// An invalid field, a duplicate id, or a role that the caller cannot grant.
    pub fn put(
        &mut self,
        kind: Kind,
        id: &str,
        body: &JsonObject,
        new: bool,
        by: &Caller,
    ) -> Result<(), RpcError> {
        if !is_id(id) {
            return Err(refused(format!("{id:?} is not a valid id: it must not contain whitespace, / or :")));
        }
        if let Some(field) =
            body.keys().find(|field| *field != "id" && !kind.fields().contains(&field.as_str()))
        {
            return Err(refused(format!("{field} is not a field of a {}", kind.name())));
        }
        let there = self.body(kind, id);
        if there.is_some() && new {
            return Err(RpcError::already_exists(format!("{} {id} already exists", kind.name())));
        }
        let before = self.in_force()?;
        if kind == Kind::User {
            // A caller cannot change a user with more grants.
            let held = before.person(id).map(|person| person.grants.clone()).unwrap_or_default();
            by.must_hold(&held, &format!("user {id}"))?;
        }
        let mut fields = there.unwrap_or_default();
        for (field, value) in body.iter().filter(|(field, _)| *field != "id") {
            match value {
                Value::Null if matches!(field.as_str(), "issuer" | "rolesFrom" | "primary") => {
                    fields.shift_remove(field);
                }
                Value::Null => return Err(refused(format!("{field} cannot be cleared"))),
                Value::String(text) if text.trim().is_empty() => {}
                value => drop(fields.insert(field.clone(), value.clone())),
            }
        }
        self.check(kind, id, &fields, &before, by)?;
        if kind == Kind::User {
            self.check_conferred(id, &fields, &before, by)?;
        }
        self.place(kind, id, fields);
        self.directory().map(drop).map_err(refused)
    }

    /// Rejects a change that would give a user more grants than the caller has, other than by a role of the record: an
    /// issuer names roles and identifies the user, and members of a team or project change and run its work.
    fn check_conferred(
        &self,
        id: &str,
        fields: &JsonObject,
        directory: &Directory,
        by: &Caller,
    ) -> Result<(), RpcError> {
        let held = self.body(Kind::User, id).unwrap_or_default();
        let issued = ["issuer", "rolesFrom"].into_iter().any(|field| held.get(field) != fields.get(field));
        if issued && fields.contains_key("rolesFrom") {
            by.must_hold_every_role(directory, id)?;
        }
        let had = texts(&held, "memberships").unwrap_or_default();
        let new = texts(fields, "memberships").unwrap_or_default();
        match new.iter().find(|membership| issued || !had.contains(membership)) {
            Some(membership) => by.must_hold_of_group(directory, membership),
            None => Ok(()),
        }
    }

    fn check(
        &self,
        kind: Kind,
        id: &str,
        fields: &JsonObject,
        before: &Directory,
        by: &Caller,
    ) -> Result<(), RpcError> {
        let wrong = |why: String| refused(format!("{} {id}{why}", kind.name()));
        match kind {
            Kind::User => {
                for role in texts(fields, "roles").map_err(wrong)? {
                    let given = before
                        .role(&role)
                        .ok_or_else(|| refused(format!("unknown role {role}{}", before.known_roles())))?;
                    by.must_hold(given, &format!("role {role}"))?;
                }
                for membership in texts(fields, "memberships").map_err(wrong)? {
                    self.check_scope(&membership, true)?;
                }
                for field in ["issuer", "rolesFrom", "primary"] {
                    if fields.get(field).is_some_and(|value| !value.is_string()) {
                        return Err(wrong(format!(".{field} must be text")));
                    }
                }
                match fields.get("primary").and_then(Value::as_str) {
                    Some(primary) => self.check_scope(primary, false),
                    None => Ok(()),
                }
            }
            Kind::Team | Kind::Project => match fields.get("title") {
                None | Some(Value::String(_)) => Ok(()),
                Some(_) => Err(wrong(".title must be text".to_owned())),
            },
            Kind::Role => {
                let held = before.role(id).unwrap_or_default();
                by.must_hold(held, &format!("role {id}"))?;
                let words = texts(fields, "grants").map_err(wrong)?;
                let given: Result<Vec<Grant>, String> =
                    words.iter().map(|word| checked_grant(word).map(|(grant, _)| grant)).collect();
                by.must_hold(&given.map_err(refused)?, &format!("role {id}"))
            }
        }
    }

    /// Parses `<team>`, `<team>:<project>`, and `<team>:*` if all projects are allowed.
    fn check_scope(&self, scope: &str, every: bool) -> Result<(), RpcError> {
        let (team, project) = match Owner::from_membership(scope) {
            Some(Owner::Project { team, project }) => (team, Some(project)),
            _ => (scope, None),
        };
        let teams = self.part(Kind::Team);
        if !teams.contains_key(team) {
            return Err(refused(format!("unknown team {team}{}", known("team", teams.keys()))));
        }
        match project {
            Some("*") if every => Ok(()),
            Some(project) => {
                let projects = self.part(Kind::Project);
                match projects.contains_key(project) {
                    true => Ok(()),
                    false => Err(refused(format!(
                        "unknown project {project}{}",
                        known("project", projects.keys())
                    ))),
                }
            }
            None => Ok(()),
        }
    }

    /// Replaces the hash of a user's token; an empty token removes it.
    ///
    /// # Errors
    /// No user has that id, or the user has more grants than the caller.
    pub fn set_token(&mut self, id: &str, hash: &str, by: &Caller) -> Result<(), RpcError> {
        self.bounded(id, by)?;
        let directory = self.in_force()?;
        let memberships = directory.person(id).map(|person| person.reader.memberships.clone());
        if let Some(membership) = memberships.unwrap_or_default().first() {
            by.must_hold_of_group(&directory, membership)?;
        }
        self.set_field(id, "token", hash)
    }

    /// Records when a user signed in for the first time.
    ///
    /// # Errors
    /// No user has that id.
    pub fn set_signed_in(&mut self, id: &str, at: &str) -> Result<(), RpcError> {
        let user = self.users().iter().find(|user| id_of(user) == Some(id));
        match user.is_some_and(|user| user.get("signedIn").is_some_and(Value::is_string)) {
            true => Ok(()),
            false => self.set_field(id, "signedIn", at),
        }
    }

    /// Records the roles that an issuer named when a user signed in.
    ///
    /// # Errors
    /// No user has that id.
    pub(super) fn set_confirmed(&mut self, id: &str, confirmed: &Confirmed) -> Result<(), RpcError> {
        let user = self.users().iter().find(|user| id_of(user) == Some(id));
        if confirmed.roles.is_empty() && user.is_some_and(|user| user.get(Confirmed::FIELD).is_none()) {
            // As without a record.
            return Ok(());
        }
        self.set_field(id, Confirmed::FIELD, confirmed.to_value())
    }

    fn set_field(&mut self, id: &str, field: &str, value: impl Into<Value>) -> Result<(), RpcError> {
        let users = self.fields.get_mut("users").and_then(Value::as_array_mut);
        let user = users.into_iter().flatten().find(|user| id_of(user) == Some(id));
        let user = user.and_then(Value::as_object_mut).ok_or_else(|| unknown(Kind::User, id))?;
        user.insert(field.to_owned(), value.into());
        Ok(())
    }

    /// Removes a record without references.
    ///
    /// # Errors
    /// No record has that id, another record refers to it, or the user has more grants than the caller.
    pub fn remove(&mut self, kind: Kind, id: &str, by: &Caller) -> Result<(), RpcError> {
        if kind == Kind::Role && !self.part(kind).contains_key(id) && self.body(kind, id).is_some() {
            return Err(refused(format!("role {id} is built in and cannot be removed")));
        }
        if self.body(kind, id).is_none() {
            return Err(unknown(kind, id));
        }
        if kind == Kind::User {
            self.bounded(id, by)?;
        }
        if kind == Kind::Role {
            let directory = self.in_force()?;
            by.must_hold(directory.role(id).unwrap_or_default(), &format!("role {id}"))?;
            // Without the file's role, the built-in role of that name is valid again.
            let built_in = BUILT_IN_ROLES.iter().find(|(role, _)| *role == id);
            let given: Vec<Grant> = built_in
                .iter()
                .flat_map(|(_, words)| words.iter())
                .filter_map(|word| Grant::parse(word))
                .collect();
            by.must_hold(&given, &format!("the built-in role {id}"))?;
        }
        let naming = self.naming(kind, id);
        if !naming.is_empty() {
            return Err(RpcError::conflict(format!(
                "{} {id} is still used by {}",
                kind.name(),
                naming.join(", ")
            )));
        }
        match kind {
            Kind::User => {
                if let Some(users) = self.fields.get_mut("users").and_then(Value::as_array_mut) {
                    users.retain(|user| id_of(user) != Some(id));
                }
            }
            _ => {
                if let Some(part) = self.fields.get_mut(kind.part()).and_then(Value::as_object_mut) {
                    part.shift_remove(id);
                }
            }
        }
        Ok(())
    }

    /// Returns the users whose records name a role, a team or a project.
    fn naming(&self, kind: Kind, id: &str) -> Vec<String> {
        let named = |user: &Value| {
            let words = |field: &str| -> Vec<String> {
                match user.get(field) {
                    Some(Value::String(word)) => vec![word.clone()],
                    Some(Value::Array(words)) => {
                        words.iter().filter_map(Value::as_str).map(str::to_owned).collect()
                    }
                    _ => Vec::new(),
                }
            };
            match kind {
                Kind::User => false,
                Kind::Role => words("roles").iter().any(|role| role == id),
                Kind::Team | Kind::Project => {
                    words("memberships").iter().chain(&words("primary")).any(|scope| {
                        let named = match Owner::from_membership(scope) {
                            Some(group) if kind == Kind::Team => group.team(),
                            Some(group) => group.project(),
                            // An id that was written by hand.
                            None => Some(scope.as_str()),
                        };
                        named == Some(id)
                    })
                }
            }
        };
        self.users()
            .iter()
            .filter(|user| named(user))
            .filter_map(|user| id_of(user))
            .map(|id| format!("user {id}"))
            .collect()
    }

    fn in_force(&self) -> Result<Directory, RpcError> {
        match self.directory() {
            Ok((directory, _)) => Ok(directory),
            Err(why) => Err(RpcError::internal(format!("the users file: {why}"))),
        }
    }

    fn bounded(&self, id: &str, by: &Caller) -> Result<(), RpcError> {
        let directory = self.in_force()?;
        let person = directory.person(id).ok_or_else(|| unknown(Kind::User, id))?;
        by.must_hold(&person.grants, &format!("user {id}"))
    }

    fn place(&mut self, kind: Kind, id: &str, fields: JsonObject) {
        match kind {
            Kind::User => {
                let users = self.fields.entry("users").or_insert_with(|| json!([]));
                let Some(users) = users.as_array_mut() else { return };
                match users.iter_mut().find(|user| id_of(user) == Some(id)).and_then(Value::as_object_mut) {
                    Some(user) => {
                        for field in kind.fields() {
                            user.shift_remove(*field);
                        }
                        user.extend(fields);
                    }
                    None => {
                        let mut user = JsonObject::from_iter([("id".to_owned(), json!(id))]);
                        user.extend(fields);
                        users.push(Value::Object(user));
                    }
                }
            }
            _ => {
                let part = self.fields.entry(kind.part()).or_insert_with(|| json!({}));
                let Some(part) = part.as_object_mut() else { return };
                let value = match kind {
                    Kind::Role => fields.get("grants").cloned().unwrap_or_else(|| json!([])),
                    _ => {
                        // Unknown fields stay.
                        let mut held = part.get(id).and_then(Value::as_object).cloned().unwrap_or_default();
                        held.extend(fields);
                        Value::Object(held)
                    }
                };
                part.insert(id.to_owned(), value);
            }
        }
    }

    pub(super) fn users(&self) -> &[Value] {
        self.fields.get("users").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    pub(super) fn part(&self, kind: Kind) -> JsonObject {
        self.fields.get(kind.part()).and_then(Value::as_object).cloned().unwrap_or_default()
    }
}

pub(super) fn id_of(user: &Value) -> Option<&str> {
    user.get("id").and_then(Value::as_str)
}
