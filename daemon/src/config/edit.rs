//! Writes changes to configuration files: one at a time, in the file with the key, in the style of its author, and only
//! if the result is valid.

use std::path::PathBuf;

use ostler_contract::{JsonObject, Value};
use ostler_ports::atomic::{self, Access};

use super::files::{ConfigFiles, FILE, parse, typed};
use super::text::patched;
use crate::exit::Exit;

/// Changes a key of the configuration in the last file that contains it, otherwise in the first. Returns the file if
/// something changed.
///
/// # Errors
/// Exit 2 for an invalid change, exit 1 if the file cannot be written.
pub fn edit(
    files: &ConfigFiles,
    key: &str,
    change: impl FnOnce(&mut JsonObject) -> Result<(), Exit>,
) -> Result<Option<PathBuf>, Exit> {
    let says = |file: &&PathBuf| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        parse("", &text).is_ok_and(|fields| fields.contains_key(key))
    };
    let file = files.files.iter().rev().find(says).or(files.files.first());
    let file = file.cloned().unwrap_or_else(|| files.dir.join(FILE));
    let shown = file.display().to_string();
    let failed = |error: std::io::Error| Exit::machine(format!("{shown} could not be written: {error}"));
    if let Some(folder) = file.parent() {
        atomic::make_folder(folder).map_err(failed)?;
    }
    let _held = atomic::lock(&file).map_err(failed)?;
    let read = match std::fs::read_to_string(&file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(Exit::usage(format!("{shown} could not be read: {error}"))),
    };
    let before = read.as_ref().map_or_else(|| Ok(JsonObject::new()), |text| parse(&shown, text))?;
    let mut after = before.clone();
    change(&mut after)?;
    if after == before {
        return Ok(None);
    }
    typed(&after).map_err(|wrong| Exit::usage(format!("{} must be {}", wrong.path, wrong.expected)))?;
    let text = read.as_ref().and_then(|text| patched(text, &after));
    let text = text.unwrap_or_else(|| format!("{:#}\n", Value::Object(after)));
    let read = read.as_deref().map(str::as_bytes);
    match atomic::replace(&file, read, text.as_bytes(), Access::Usual).map_err(failed)? {
        true => Ok(Some(file)),
        false => Err(Exit::machine(atomic::edited(&file))),
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;
    use crate::config::{Environment, read};

    #[test]
    fn the_file_that_says_a_key_is_the_one_written() {
        let dir = tempfile::tempdir().unwrap();
        let (own, named) = (dir.path().join("ostler/config.json"), dir.path().join("named.json"));
        std::fs::create_dir_all(own.parent().unwrap()).unwrap();
        std::fs::write(&own, r#"{ "port": 1, "plugins": [] }"#).unwrap();
        std::fs::write(&named, r#"{ "plugins": [], "colour": "kept" }"#).unwrap();
        let environment = Environment {
            config_home: Some(dir.path().to_owned()),
            named: Some(named.clone()),
            ..Environment::default()
        };
        let set = |key: &'static str, value: Value| {
            let files = read(None, &environment).unwrap();
            edit(&files, key, |fields| {
                fields.insert(key.to_owned(), value);
                Ok(())
            })
        };
        assert_eq!(set("plugins", json!([{ "name": "a" }])), Ok(Some(named.clone())));
        assert_eq!(
            std::fs::read_to_string(&named).unwrap(),
            r#"{ "plugins": [{ "name": "a" }], "colour": "kept" }"#
        );
        assert_eq!(set("port", json!(1)), Ok(None));
        assert_eq!(set("host", json!("::1")), Ok(Some(own.clone())));
        let before = std::fs::read_to_string(&own).unwrap();
        assert_eq!(set("port", json!("x")), Err(Exit::usage("port must be an integer between 0 and 65535")));
        assert_eq!(std::fs::read_to_string(&own).unwrap(), before);
    }

    #[test]
    fn a_first_change_makes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment { config_home: Some(dir.path().to_owned()), ..Environment::default() };
        let files = read(None, &environment).unwrap();
        let file = edit(&files, "port", |fields| {
            fields.insert("port".to_owned(), json!(0));
            Ok(())
        });
        assert_eq!(file, Ok(Some(dir.path().join("ostler/config.json"))));
    }
}
