//! The users file as a value, which retains unknown fields when it is changed.

use ostler_protocol::error::no_json;
use ostler_protocol::{JsonObject, Value};

use super::directory::Directory;

/// The JSON of a users file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsersFile {
    pub(super) fields: JsonObject,
}

impl UsersFile {
    /// Parses a file's text; an empty file has no users.
    ///
    /// # Errors
    /// The position of the error, without the text there, which may be a secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Ok(Self { fields }),
            Ok(_) => Err("must be an object with roles, teams, projects and users".to_owned()),
            Err(error) => Err(no_json(&error)),
        }
    }

    pub fn text(&self) -> String {
        format!("{:#}\n", Value::Object(self.fields.clone()))
    }

    /// Returns the directory, and a line for everything that was omitted.
    ///
    /// # Errors
    /// Why the whole file is invalid.
    pub fn directory(&self) -> Result<(Directory, Vec<String>), String> {
        Directory::read(&self.fields)
    }
}
