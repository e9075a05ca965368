//! Configuration files: their paths, merging and validation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ostler_contract::cross::{Cross, data_from_live};
use ostler_contract::live::Live;
use ostler_contract::shape::{ObjectShape, Shape};
use ostler_contract::{JsonObject, Value};
use ostler_protocol::names;
use ostler_protocol::nearest::did_you_mean;

use super::folders::Folders;
use super::keys::{Config, KEYS, KEYS_NOT_SERVED};
use super::once::Once;
use crate::exit::Exit;

/// The user's file, in the program's folder below the configuration home.
pub const FILE: &str = "config.json";
/// The variable with another configuration file.
const VARIABLE: &str = "OSTLER_CONFIG";

/// Keys that only flags can set.
const FLAGS_ONLY: &[&str] = &["stdio", "configFile", "noPlugins", "noCwd", "pluginOptions"];

/// The content of the files.
#[derive(Debug, Clone, Default)]
pub struct ConfigFiles {
    /// Merged, checked, with paths made absolute.
    pub config: Config,
    /// The merged values as written, key by key.
    pub said: JsonObject,
    /// The files read, in order.
    pub files: Vec<PathBuf>,
    /// The configuration folder: the configuration, and what users edit beside it.
    pub dir: PathBuf,
    /// The state folder: what the host itself writes.
    pub state_dir: PathBuf,
    /// Lines for the log about unknown keys.
    pub warnings: Vec<String>,
    /// The last file with each key, and with each nested key.
    pub said_in: BTreeMap<String, String>,
}

/// The environment that determines the paths of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `$XDG_CONFIG_HOME`
    pub config_home: Option<PathBuf>,
    /// `$HOME`
    pub home: Option<PathBuf>,
    /// `$OSTLER_CONFIG`
    pub named: Option<PathBuf>,
    /// `$XDG_STATE_HOME`
    pub state_home: Option<PathBuf>,
}

impl Environment {
    pub fn of_process() -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            config_home: path("XDG_CONFIG_HOME"),
            home: path("HOME"),
            named: path(VARIABLE),
            state_home: path("XDG_STATE_HOME"),
        }
    }
}

/// Reads the user's file, if it exists, then the file in `$OSTLER_CONFIG`. With `only`, reads only that file.
///
/// # Errors
/// A named file that is missing, an unreadable file, or an invalid value: exit 2.
pub fn read(only: Option<&Path>, environment: &Environment) -> Result<ConfigFiles, Exit> {
    let (own, named) = named_files(only, environment)?;
    let Folders { config, state } = Folders::of(&own, &named, environment);
    let mut read = ConfigFiles { dir: config, state_dir: state, ..ConfigFiles::default() };
    let mut merged = JsonObject::new();
    if let Some(own) = own.filter(|own| own.exists()) {
        read.add(&own, &mut merged)?;
    }
    if let Some(named) = &named {
        read.add(named, &mut merged)?;
    }
    read.config = typed(&merged).map_err(|what| Exit::usage(what.to_string()))?;
    read.said = merged;
    Ok(read)
}

/// Returns the folders of the host, independent of the content of the files.
///
/// # Errors
/// A named file that is missing: exit 2.
pub fn folders(only: Option<&Path>, environment: &Environment) -> Result<Folders, Exit> {
    let (own, named) = named_files(only, environment)?;
    Ok(Folders::of(&own, &named, environment))
}

/// Returns the folders that the host will have once its files exist.
///
/// # Errors
/// No file is named, and there is no home directory: exit 2.
pub fn future_folders(only: Option<&Path>, environment: &Environment) -> Result<Folders, Exit> {
    let (own, named) = places(only, environment)?;
    Ok(Folders::of(&own, &named, environment))
}

type Files = (Option<PathBuf>, Option<PathBuf>);

/// Returns the user's file, existing or not, and the named one.
fn named_files(only: Option<&Path>, environment: &Environment) -> Result<Files, Exit> {
    let (own, named) = places(only, environment)?;
    match named.as_ref().filter(|named| !named.exists()) {
        Some(missing) => Err(Exit::usage(format!("{} does not exist", missing.display()))),
        None => Ok((own, named)),
    }
}

/// Returns the paths of the user's file and the named one, existing or not.
fn places(only: Option<&Path>, environment: &Environment) -> Result<Files, Exit> {
    let own = match only {
        Some(_) => None,
        None => {
            let home = environment
                .config_home
                .clone()
                .or_else(|| environment.home.as_ref().map(|home| home.join(".config")))
                .ok_or_else(|| Exit::usage("neither XDG_CONFIG_HOME nor HOME is set; pass --config-file"))?;
            Some(home.join(names::HOST).join(FILE))
        }
    };
    Ok((own, only.map(Path::to_owned).or_else(|| environment.named.clone())))
}

/// Reads files again.
///
/// # Errors
/// An unreadable file, or an invalid value.
pub fn read_again(files: &[PathBuf]) -> Result<ConfigFiles, Exit> {
    let mut read = ConfigFiles::default();
    let mut merged = JsonObject::new();
    for file in files {
        read.add(file, &mut merged)?;
    }
    read.config = typed(&merged).map_err(|what| Exit::usage(what.to_string()))?;
    Ok(read)
}

/// Parses fields as a configuration. `http: true` means an object without fields.
pub(super) fn typed(fields: &JsonObject) -> Result<Config, ostler_contract::Mismatch> {
    let mut fields = fields.clone();
    match fields.get("http") {
        Some(Value::Bool(true)) => drop(fields.insert("http".to_owned(), JsonObject::new().into())),
        Some(Value::Bool(false)) => drop(fields.shift_remove("http")),
        _ => {}
    }
    data_from_live(Live::Data(Value::Object(fields)), &Config::shape())
}

/// Parses the text of a configuration file as an object.
///
/// # Errors
/// Invalid text: exit 2.
pub fn parse(shown: &str, text: &str) -> Result<JsonObject, Exit> {
    // Some editors begin a file with a byte order mark.
    match serde_json::from_str(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        Ok(Once(Value::Object(fields))) => Ok(fields),
        Ok(_) => Err(Exit::usage(format!("{shown} is not a JSON object"))),
        Err(error) if error.is_data() => Err(Exit::usage(format!("{shown}: {error}"))),
        Err(error) => Err(Exit::usage(format!("{shown} is not JSON: {error}"))),
    }
}

impl ConfigFiles {
    /// The folders of the host.
    pub fn folders(&self) -> Folders {
        Folders { config: self.dir.clone(), state: self.state_dir.clone() }
    }

    /// Returns a key (`port`, `usage.timezone`) after the file that contains it: `<file>: <key>`.
    pub fn at(&self, key: &str) -> String {
        match self.said_in.get(key) {
            Some(file) => format!("{file}: {key}"),
            None => key.to_owned(),
        }
    }

    /// Returns the folder of the file that contains a key.
    pub fn folder_of(&self, key: &str) -> Option<PathBuf> {
        Path::new(self.said_in.get(key)?).parent().map(Path::to_owned)
    }

    fn add(&mut self, file: &Path, merged: &mut JsonObject) -> Result<(), Exit> {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let shown = file.display().to_string();
        let text = std::fs::read_to_string(&file)
            .map_err(|error| Exit::usage(format!("{shown} could not be read: {error}")))?;
        let mut fields = parse(&shown, &text)?;
        if !matches!(fields.get("http"), None | Some(Value::Bool(_) | Value::Object(_) | Value::Null)) {
            return Err(Exit::usage(format!("{shown}: http must be true or an object")));
        }
        self.drop_unknown(&shown, &mut fields)?;
        typed(&fields)
            .map_err(|wrong| Exit::usage(format!("{shown}: {} must be {}", wrong.path, wrong.expected)))?;
        for (key, value) in &fields {
            self.said_in.insert(key.clone(), shown.clone());
            for inner in value.as_object().into_iter().flat_map(JsonObject::keys) {
                self.said_in.insert(format!("{key}.{inner}"), shown.clone());
            }
        }
        let folder = file.parent().unwrap_or(Path::new("."));
        make_absolute(&mut fields, folder);
        merge(merged, fields);
        self.files.push(file);
        Ok(())
    }

    /// Removes unknown keys, with a line each.
    fn drop_unknown(&mut self, shown: &str, fields: &mut JsonObject) -> Result<(), Exit> {
        let Shape::Object(shape) = Config::shape() else { return Ok(()) };
        for key in fields.keys() {
            if KEYS_NOT_SERVED.contains(&key.as_str()) {
                return Err(Exit::usage(format!("{shown}: {key} is not supported by this host; remove it")));
            }
        }
        for key in FLAGS_ONLY {
            if fields.remove(*key).is_some() {
                self.warnings.push(format!("{shown}: {key} is only allowed on the command line; ignored"));
            }
        }
        self.drop_unknown_of(shown, "", fields, shape());
        Ok(())
    }

    fn drop_unknown_of(&mut self, shown: &str, path: &str, fields: &mut JsonObject, shape: &ObjectShape) {
        fields.retain(|key, value| {
            let Some(field) = shape.fields.iter().find(|field| field.name == key) else {
                let hint = did_you_mean(key, shape.fields.iter().map(|field| field.name));
                self.warnings.push(format!("{shown}: unknown key {path}{key}; ignored{hint}"));
                return false;
            };
            match (field.shape.core(), value) {
                (Shape::Object(inner), Value::Object(fields)) => {
                    self.drop_unknown_of(shown, &format!("{path}{key}."), fields, inner());
                }
                (Shape::List(entry), Value::Array(entries)) => {
                    if let Shape::Object(inner) = entry.core() {
                        for (at, entry) in entries.iter_mut().enumerate() {
                            if let Value::Object(fields) = entry {
                                self.drop_unknown_of(shown, &format!("{path}{key}[{at}]."), fields, inner());
                            }
                        }
                    }
                }
                _ => {}
            }
            true
        });
    }
}

/// Merges objects key by key; other values are replaced as a whole.
fn merge(into: &mut JsonObject, from: JsonObject) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(held)), Value::Object(new)) => merge(held, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Makes paths absolute; they are relative to their file.
fn make_absolute(fields: &mut JsonObject, folder: &Path) {
    let absolute = |text: &mut String| *text = folder.join(&*text).to_string_lossy().into_owned();
    for key in KEYS.iter().filter(|key| key.relative) {
        match fields.get_mut(key.name) {
            Some(Value::String(path)) => absolute(path),
            Some(Value::Array(paths)) => {
                for path in paths {
                    if let Value::String(path) = path {
                        absolute(path);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<ConfigFiles, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.json");
        std::fs::write(&file, text).unwrap();
        let read = read(Some(&file), &Environment::default());
        let shown = dir.path().display().to_string();
        read.map_err(|exit| exit.to_string().replace(&shown, "<dir>")).map(|mut read| {
            read.warnings.iter_mut().for_each(|line| *line = line.replace(&shown, "<dir>"));
            read
        })
    }

    #[test]
    fn a_wrong_value_names_the_file_and_the_key() {
        let wrong = |text: &str| with(text).unwrap_err();
        insta::assert_snapshot!(wrong(r#"{ "port": "x" }"#), @"<dir>/c.json: port must be an integer between 0 and 65535");
        insta::assert_snapshot!(wrong(r#"{ "port": 70000 }"#), @"<dir>/c.json: port must be an integer between 0 and 65535");
        insta::assert_snapshot!(wrong(r#"{ "paths": ["a", 5] }"#), @"<dir>/c.json: paths[1] must be a string");
        insta::assert_snapshot!(wrong(r#"{ "sessions": "disk" }"#), @"<dir>/c.json: sessions must be one of file, memory");
        insta::assert_snapshot!(wrong(r#"{ "plugins": [{ "options": {} }] }"#), @"<dir>/c.json: plugins[0].name must be a string");
        insta::assert_snapshot!(wrong(r#"{ "plugins": [{ "name": "a", "grants": "b" }] }"#), @"<dir>/c.json: plugins[0].grants must be a list");
        insta::assert_snapshot!(wrong(r#"{ "routes": { "port": 1.5 } }"#), @"<dir>/c.json: routes.port must be an integer between 0 and 65535");
        insta::assert_snapshot!(wrong(r#"{ "usage": { "per": "hour" } }"#), @"<dir>/c.json: usage.per must be one of turn, report");
        for http in ["5", "\"yes\"", "[]"] {
            assert_eq!(
                wrong(&format!("{{ \"http\": {http} }}")),
                "<dir>/c.json: http must be true or an object"
            );
        }
        insta::assert_snapshot!(wrong(r#"{ "port": 1, "port": 2 }"#), @"<dir>/c.json: duplicate key port at line 1 column 19");
        insta::assert_snapshot!(wrong("{ \"plugins\": [{ \"name\": \"a\",\n\"name\": \"b\" }] }"), @"<dir>/c.json: duplicate key name at line 2 column 6");
        insta::assert_snapshot!(wrong("[]"), @"<dir>/c.json is not a JSON object");
        insta::assert_snapshot!(wrong("{"), @"<dir>/c.json is not JSON: EOF while parsing an object at line 1 column 1");
        insta::assert_snapshot!(wrong(r#"{ "proxy": {} }"#), @"<dir>/c.json: proxy is not supported by this host; remove it");
    }

    #[test]
    fn a_mark_of_the_encoding_before_it_is_no_part_of_it() {
        let read = with("\u{feff}{ \"port\": 1, \"deltaWindowMs\": 0 }").unwrap();
        assert_eq!((read.config.port.map(|port| port.0), read.warnings), (Some(1), vec![]));
    }

    #[test]
    fn an_unknown_key_is_a_line_and_nothing_more() {
        let read =
            with(r#"{ "plugin": [], "stdio": true, "plugins": [{ "name": "a", "option": {} }], "port": 0 }"#)
                .unwrap();
        assert_eq!(read.config.port.map(|port| port.0), Some(0));
        insta::assert_snapshot!(read.warnings.join("\n"), @r"
        <dir>/c.json: stdio is only allowed on the command line; ignored
        <dir>/c.json: unknown key plugin; ignored; did you mean plugins?
        <dir>/c.json: unknown key plugins[0].option; ignored; did you mean options?
        ");
    }

    #[test]
    fn files_come_together_key_by_key_and_paths_are_where_they_were_said() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("ostler");
        let named = dir.path().join("other/extra.json");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::create_dir_all(named.parent().unwrap()).unwrap();
        std::fs::write(
            own.join("config.json"),
            r#"{ "port": 1, "paths": ["a"], "mcpServers": { "x": { "command": "a" }, "y": {} } }"#,
        )
        .unwrap();
        std::fs::write(&named, r#"{ "paths": ["b", "/c"], "mcpServers": { "x": { "command": "b" } } }"#)
            .unwrap();
        let environment = Environment {
            config_home: Some(dir.path().to_owned()),
            named: Some(named.clone()),
            ..Environment::default()
        };
        let read = read(None, &environment).unwrap();
        assert_eq!(read.config.port.map(|port| port.0), Some(1));
        let b = dir.path().join("other/b").to_string_lossy().into_owned();
        assert_eq!(read.config.paths, Some(vec![b, "/c".to_owned()]));
        assert_eq!(
            Value::Object(read.config.mcp_servers.unwrap()),
            ostler_contract::json!({ "x": { "command": "b" }, "y": {} })
        );
        assert_eq!(read.files, [own.join("config.json"), named]);
        assert_eq!(read.dir, own);
    }

    #[test]
    fn nothing_need_be_there_but_what_was_named() {
        let dir = tempfile::tempdir().unwrap();
        let none = Environment { config_home: Some(dir.path().to_owned()), ..Environment::default() };
        assert_eq!(read(None, &none).unwrap().files, Vec::<PathBuf>::new());
        let gone = Environment { named: Some(dir.path().join("gone.json")), ..none };
        assert_eq!(read(None, &gone).unwrap_err().code(), 2);
        assert_eq!(read(None, &Environment::default()).unwrap_err().code(), 2);
    }
}
