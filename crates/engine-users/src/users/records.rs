//! The users file as single records, for comparing two of them.

use std::collections::BTreeMap;

use ostler_protocol::{JsonObject, Value, json};

use super::directory::Confirmed;
use super::edit::{Kind, id_of};
use super::file::UsersFile;

/// A record of the users file: its kind and its id, or all other fields together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKey {
    /// The fields that are no records, such as `trustToken`.
    Settings,
    Team(String),
    Project(String),
    Role(String),
    User(String),
}

impl RecordKey {
    /// Returns its name, such as `user ada`.
    pub fn name(&self) -> String {
        match self {
            Self::Settings => "settings".to_owned(),
            Self::Team(id) => format!("team {id}"),
            Self::Project(id) => format!("project {id}"),
            Self::Role(id) => format!("role {id}"),
            Self::User(id) => format!("user {id}"),
        }
    }

    /// Returns the kind and the id of a record.
    fn of(&self) -> Option<(Kind, &str)> {
        match self {
            Self::Settings => None,
            Self::Team(id) => Some((Kind::Team, id)),
            Self::Project(id) => Some((Kind::Project, id)),
            Self::Role(id) => Some((Kind::Role, id)),
            Self::User(id) => Some((Kind::User, id)),
        }
    }
}

/// The fields that the host itself writes when a user signs in.
const BY_SIGN_IN: [&str; 2] = ["signedIn", Confirmed::FIELD];

impl UsersFile {
    /// Returns the records. What the host itself writes about users when they sign in is left out.
    pub fn records(&self) -> BTreeMap<RecordKey, Value> {
        let mut records = BTreeMap::new();
        for user in self.users() {
            let Some(id) = id_of(user) else { continue };
            let mut shown = user.clone();
            if let Some(fields) = shown.as_object_mut() {
                for field in BY_SIGN_IN {
                    fields.shift_remove(field);
                }
            }
            // Of several users with one id, the first is valid.
            records.entry(RecordKey::User(id.to_owned())).or_insert(shown);
        }
        for (kind, key) in [
            (Kind::Team, RecordKey::Team as fn(String) -> RecordKey),
            (Kind::Project, RecordKey::Project),
            (Kind::Role, RecordKey::Role),
        ] {
            records.extend(self.part(kind).into_iter().map(|(id, value)| (key(id), value)));
        }
        let settings: JsonObject = self.settings();
        if !settings.is_empty() {
            records.insert(RecordKey::Settings, Value::Object(settings));
        }
        records
    }

    /// Replaces a record as it is, or removes it. A user stays marked as signed in.
    pub fn set_record(&mut self, key: &RecordKey, value: Option<Value>) {
        let Some((kind, id)) = key.of() else {
            let before = self.settings();
            self.fields.retain(|field, _| !before.contains_key(field));
            self.fields.extend(value.and_then(|value| value.as_object().cloned()).unwrap_or_default());
            return;
        };
        if kind != Kind::User {
            let part = self.fields.entry(kind.part()).or_insert_with(|| json!({}));
            if let Some(part) = part.as_object_mut() {
                match value {
                    Some(value) => drop(part.insert(id.to_owned(), value)),
                    None => drop(part.shift_remove(id)),
                }
            }
            return;
        }
        let users = self.fields.entry(kind.part()).or_insert_with(|| json!([]));
        let Some(users) = users.as_array_mut() else { return };
        let place = users.iter().position(|user| id_of(user) == Some(id));
        match (value, place) {
            (None, _) => users.retain(|user| id_of(user) != Some(id)),
            (Some(value), None) => users.push(value),
            (Some(mut value), Some(place)) => {
                for field in BY_SIGN_IN {
                    if let (Some(fields), Some(held)) = (value.as_object_mut(), users[place].get(field)) {
                        fields.entry(field).or_insert_with(|| held.clone());
                    }
                }
                users[place] = value;
            }
        }
    }

    /// Returns the fields that are no records.
    fn settings(&self) -> JsonObject {
        let is_record = |field: &str| Kind::ALL.iter().any(|kind| kind.part() == field);
        self.fields
            .iter()
            .filter(|(field, _)| !is_record(field))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(value: Value) -> UsersFile {
        UsersFile::parse(&value.to_string()).unwrap()
    }

    #[test]
    fn a_file_is_its_records() {
        let one = json!({
            "trustToken": true, "x": [1], "roles": { "r": ["file:*"] }, "teams": { "ops": { "title": "Ops" } },
            "projects": { "p": {} },
            "users": [{ "id": "ben", "y": 1 }, { "id": "ada", "token": "", "signedIn": "2026" }, { "no": "id" }],
        });
        let mut copy = UsersFile::default();
        let records = file(one.clone()).records();
        let names: Vec<String> = records.keys().map(RecordKey::name).collect();
        assert_eq!(names, ["settings", "team ops", "project p", "role r", "user ada", "user ben"]);
        for (key, value) in &records {
            copy.set_record(key, Some(value.clone()));
        }
        assert_eq!(copy.records(), records);

        let mut changed = file(one);
        changed.set_record(&RecordKey::User("ada".into()), Some(json!({ "id": "ada", "roles": [] })));
        changed.set_record(&RecordKey::User("ben".into()), None);
        changed.set_record(&RecordKey::Role("r".into()), None);
        changed.set_record(&RecordKey::Settings, None);
        let expected = json!({
            "roles": {}, "teams": { "ops": { "title": "Ops" } }, "projects": { "p": {} },
            "users": [{ "id": "ada", "roles": [], "signedIn": "2026" }, { "no": "id" }],
        });
        assert_eq!(changed, file(expected), "what the host wrote stays");
    }
}
