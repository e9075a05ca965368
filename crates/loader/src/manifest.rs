//! The manifest of a package: the fields of `package.json` that the host reads. There is no other manifest file.

use std::path::Path;

use ostler_contract::Value;
use ostler_contract::plugin::IMPORT_CONDITIONS;
use ostler_contract::problem::Problem;
use ostler_contract::protocol::names::{HOST, SDK};

/// The content of a manifest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifest {
    /// The package's name.
    pub name: Option<String>,
    /// The module to import, relative to the package.
    pub entry: Option<String>,
    /// What a listing prints.
    pub title: Option<String>,
    /// Option keys, and whether each is required; for listings only.
    pub options: Vec<(String, bool)>,
    /// The supported range of SDK versions.
    pub sdk: Option<String>,
    /// `exports["."]`, as a string or as `{ default }`.
    pub exports: Option<String>,
    pub main: Option<String>,
}

impl Manifest {
    /// Reads `<dir>/package.json`; a folder without one has an empty manifest.
    ///
    /// # Errors
    /// A message with the file and what is wrong in it.
    pub fn read(dir: &Path) -> Result<Self, Problem> {
        let file = dir.join("package.json");
        let shown = file.display();
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Problem::Manifest(format!("{shown} could not be read: {error}"))),
        };
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| Problem::Manifest(format!("{shown} could not be read: {error}")))?;
        Self::parse(&value).map_err(|what| Problem::Manifest(format!("{shown} {what}")))
    }

    fn parse(value: &Value) -> Result<Self, String> {
        let Value::Object(fields) = value else { return Err("is not a JSON object.".to_owned()) };
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let mut manifest = Self {
            name: text(fields.get("name")).filter(|name| !name.trim().is_empty()),
            exports: fields.get("exports").and_then(exports),
            main: text(fields.get("main")),
            ..Self::default()
        };
        match fields.get(HOST) {
            None => {}
            Some(Value::Object(own)) => {
                match own.get("entry") {
                    None => {}
                    Some(Value::String(entry)) if points_outside(entry) => {
                        return Err(format!(
                            "names an {HOST}.entry {entry} that points outside the package."
                        ));
                    }
                    Some(Value::String(entry)) => manifest.entry = Some(entry.clone()),
                    Some(_) => return Err(format!("has an {HOST}.entry that is not a string.")),
                }
                manifest.title = text(own.get("title"));
                if let Some(Value::Object(options)) = own.get("options") {
                    manifest.options = options
                        .iter()
                        .map(|(key, row)| (key.clone(), row.get("required") == Some(&Value::Bool(true))))
                        .collect();
                }
            }
            Some(_) => return Err(format!("has an {HOST} key that is not an object.")),
        }
        match fields.get("peerDependencies").and_then(|peers| peers.get(SDK)) {
            None => {}
            Some(Value::String(range)) => manifest.sdk = Some(range.clone()),
            Some(_) => return Err(format!("has a peerDependencies[\"{SDK}\"] that is not a string.")),
        }
        Ok(manifest)
    }

    /// Checks that the SDK version is in the range.
    ///
    /// # Errors
    /// A message with the range and the version.
    pub fn check_sdk(&self, name: &str, version: &str) -> Result<(), Problem> {
        let Some(range) = &self.sdk else { return Ok(()) };
        let why = match satisfies(range, version) {
            Ok(true) => return Ok(()),
            Ok(false) => String::new(),
            Err(why) => format!(" ({why})"),
        };
        Err(Problem::Range { name: name.to_owned(), range: range.clone(), version: version.to_owned(), why })
    }
}

/// The supported forms of `exports["."]`.
fn exports(exports: &Value) -> Option<String> {
    let of = |value: &Value| match value {
        Value::String(path) => Some(path.clone()),
        Value::Object(conditions) => IMPORT_CONDITIONS
            .iter()
            .find_map(|condition| conditions.get(*condition).and_then(Value::as_str))
            .map(str::to_owned),
        _ => None,
    };
    match exports {
        Value::Object(paths) if paths.contains_key(".") => paths.get(".").and_then(of),
        other => of(other),
    }
}

fn points_outside(entry: &str) -> bool {
    let mut depth = 0_i32;
    for part in entry.split(['/', '\\']) {
        match part {
            ".." => depth -= 1,
            "." | "" => {}
            _ => depth += 1,
        }
        if depth < 0 {
            return true;
        }
    }
    Path::new(entry).is_absolute()
}

/// Returns whether a version is in a range: `*`, exact, `^`, `~`, `>=`, `<=`, `>`, `<`, `=`, joined by spaces for
/// *and*.
///
/// # Errors
/// Why the range or the version is invalid.
pub fn satisfies(range: &str, version: &str) -> Result<bool, String> {
    let version = semver::Version::parse(version).map_err(|error| error.to_string())?;
    let mut all = true;
    for part in range.split_whitespace() {
        // A bare version means exactly that version, not a caret range.
        let comparator =
            if part.starts_with(|c: char| c.is_ascii_digit()) { format!("={part}") } else { part.to_owned() };
        let read = semver::VersionReq::parse(&comparator).map_err(|_| format!("{part} is not a range"))?;
        all &= read.matches(&version);
    }
    if range.trim().is_empty() {
        return Err("the range is empty".to_owned());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    #[test]
    fn ranges() {
        for (range, fits) in [
            ("*", true),
            ("0.1.0", true),
            ("0.1.1", false),
            ("^0.1.0", true),
            ("^0.2.0", false),
            ("~0.1", true),
            (">=0.1.0 <0.2.0", true),
            (">0.1.0", false),
            ("<=0.1.0", true),
            ("=0.1.0", true),
        ] {
            assert_eq!(satisfies(range, "0.1.0"), Ok(fits), "{range}");
        }
        for range in ["", "latest", "1.x || 2", "^"] {
            assert!(satisfies(range, "0.1.0").is_err(), "{range}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |value: Value| Manifest::parse(&value).unwrap_err();
        insta::assert_snapshot!(wrong(json!([])), @"is not a JSON object.");
        insta::assert_snapshot!(wrong(json!({ "ostler": 5 })), @"has an ostler key that is not an object.");
        insta::assert_snapshot!(wrong(json!({ "ostler": { "entry": 5 } })), @"has an ostler.entry that is not a string.");
        insta::assert_snapshot!(wrong(json!({ "ostler": { "entry": "lib/../../x.js" } })), @"names an ostler.entry lib/../../x.js that points outside the package.");
        insta::assert_snapshot!(wrong(json!({ "peerDependencies": { "@ostler/sdk": 1 } })), @r#"has a peerDependencies["@ostler/sdk"] that is not a string."#);
    }

    #[test]
    fn exports_are_read_as_far_as_a_host_needs() {
        let read = |value: Value| Manifest::parse(&json!({ "exports": value })).unwrap().exports;
        assert_eq!(read(json!("./a.js")), Some("./a.js".into()));
        assert_eq!(read(json!({ ".": "./a.js", "./sub": "./b.js" })), Some("./a.js".into()));
        assert_eq!(read(json!({ ".": { "import": "./a.js", "require": "./a.cjs" } })), Some("./a.js".into()));
        assert_eq!(read(json!({ "default": "./a.js" })), Some("./a.js".into()));
        assert_eq!(read(json!({ "./sub": "./b.js" })), None);
    }
}
