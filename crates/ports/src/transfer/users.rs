//! The users file, which a host has at a configured path.

use std::path::Path;

use ostler_contract::protocol::error::no_json;
use ostler_contract::stores::transfer::{Content, Item};
use ostler_contract::{Thrown, Value};

use crate::atomic::{self, Access};

/// The key of the item.
const KEY: &str = "users";

/// Reads the file; none if there is none. An empty file has no users. Blocks.
pub(super) fn read(path: &Path) -> Result<Vec<Item>, Thrown> {
    let failed = |why: String| Thrown::new(format_args!("{}: {why}", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => "{}".to_owned(),
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(format!("could not be read: {error}"))),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(_)) => Ok(vec![Item::json(vec![KEY.to_owned()], 0, text)]),
        Ok(_) => Err(failed("must be an object with roles, teams, projects and users".to_owned())),
        Err(error) => Err(failed(no_json(&error))),
    }
}

/// Writes the file. Blocks.
pub(super) fn write(path: &Path, items: Vec<Item>) -> Result<(), Thrown> {
    for item in items {
        let Content::Json(text) = item.content else { continue };
        let value: Value = serde_json::from_str(&text).map_err(|error| Thrown::new(no_json(&error)))?;
        let failed = |error| Thrown::new(format_args!("{} could not be written: {error}", path.display()));
        if let Some(folder) = path.parent() {
            atomic::make_folder(folder).map_err(failed)?;
        }
        atomic::write(path, format!("{value:#}\n").as_bytes(), Access::Owner).map_err(failed)?;
    }
    Ok(())
}
