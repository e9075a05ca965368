//! The users file as a value: read, changed and written back with everything nobody here knows left in place.

use ostler_protocol::error::no_json;
use ostler_protocol::{JsonObject, Value};

use super::directory::Directory;

/// What a users file holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsersFile {
    pub(super) fields: JsonObject,
}

impl UsersFile {
    /// Reads a file's text; an empty file knows nobody.
    ///
    /// # Errors
    /// Where it breaks, not what stands there: that may be a secret.
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

    /// The file's text.
    pub fn text(&self) -> String {
        format!("{:#}\n", Value::Object(self.fields.clone()))
    }

    /// Who may do what, and a line for everything left out.
    ///
    /// # Errors
    /// Why the whole cannot be read.
    pub fn directory(&self) -> Result<(Directory, Vec<String>), String> {
        Directory::read(&self.fields)
    }
}
