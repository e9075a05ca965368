//! The configuration with `<set>` in place of credentials, for clients.

use std::sync::LazyLock;

use ostler_contract::{JsonObject, Value, json};
pub use ostler_loader::options::without_userinfo;
use ostler_loader::options::{SchemaInfo, redacted};

use crate::config::{ConfigFiles, KEYS};
use crate::plugins::Row;

/// The schema that marks the credentials of the configuration.
pub static MARKS: LazyLock<Value> = LazyLock::new(|| {
    let marks = KEYS.iter().filter_map(|key| Some((key.name.to_owned(), key.hides.clone()?)));
    json!({ "properties": marks.collect::<JsonObject>() })
});

/// Returns the redacted content of the files for clients.
pub fn config(files: &ConfigFiles, rows: &[Row]) -> JsonObject {
    let said = files.said.iter().filter(|(_, value)| !value.is_null());
    let said: JsonObject = said.map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut seen = redacted(&said, SchemaInfo::Declared(Some(&MARKS)));
    if let Some(Value::Array(entries)) = seen.get_mut("plugins") {
        for (entry, row) in entries.iter_mut().zip(rows) {
            if let Some(options) = entry.get_mut("options") {
                *options = Value::Object(row.options());
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn it_is_shown_as_the_file_says_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.json");
        for http in [json!(true), json!(false), json!({ "port": 0 })] {
            let said = json!({ "port": 0, "http": http, "connectionToken": "a", "origins": null });
            std::fs::write(&file, said.to_string()).unwrap();
            let files = config::read(Some(&file), &config::Environment::default()).unwrap();
            let seen = Value::Object(super::config(&files, &[]));
            assert_eq!(seen, json!({ "port": 0, "http": http, "connectionToken": "<set>" }));
        }
    }

    #[test]
    fn a_password_in_a_url_is_hidden() {
        for (text, seen) in [
            ("https://me:pw@host/x@y", "https://<set>@host/x@y"),
            ("git+ssh://git@host:a/b", "git+ssh://<set>@host:a/b"),
            ("https://host/x@y", "https://host/x@y"),
            ("a@b", "a@b"),
            ("from https://a:pw@x/ to https://b:pw@y/", "from https://<set>@x/ to https://<set>@y/"),
        ] {
            assert_eq!(without_userinfo(json!({ "a": [text] })), json!({ "a": [seen] }));
        }
    }
}
