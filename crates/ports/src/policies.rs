//! Policies in a file: `policies.json`, an array in the order of their insertion.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_contract::points::Policies;
use ostler_contract::policy::{check_policy, read_policies};
use ostler_contract::{Call, JsonObject, Thrown, Value};

use crate::atomic::{self, Access};
use ostler_contract::stores::watchers::blocking;

/// Policies in `<configDir>/policies.json`. The file is read for every call, so that users can edit it.
#[derive(Debug)]
pub struct FilePolicies {
    path: PathBuf,
}

impl FilePolicies {
    /// The name of the file.
    pub const FILE: &str = "policies.json";

    /// Creates the store of a configuration folder. The first policy creates the file.
    pub fn new(config_dir: &Path) -> Self {
        Self { path: config_dir.join(Self::FILE) }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> Policies {
        /// Returns a call that accesses the file on a thread for blocking work.
        macro_rules! on_disk {
            ($function:expr) => {{
                let store = self.clone();
                Call::new(move |arguments| {
                    let store = store.clone();
                    async move { blocking(move || $function(&store, arguments)).await? }
                })
            }};
        }
        Policies {
            list: on_disk!(|store: &Self, ()| store.read()),
            get: on_disk!(|store: &Self, (id,): (String,)| {
                Ok(store.read()?.into_iter().find(|row| id_of(row) == Some(&id)))
            }),
            put: on_disk!(|store: &Self, (policy,): (JsonObject,)| {
                let row = check_policy(&Value::Object(policy))?;
                store.change(|rows| match rows.iter_mut().find(|held| id_of(held) == id_of(&row)) {
                    Some(held) => *held = row,
                    None => rows.push(row),
                })
            }),
            remove: on_disk!(|store: &Self, (id,): (String,)| {
                store.change(|rows| {
                    let before = rows.len();
                    rows.retain(|row| id_of(row) != Some(&id));
                    rows.len() < before
                })
            }),
            close: None,
        }
    }

    fn read(&self) -> Result<Vec<JsonObject>, Thrown> {
        self.parse(self.text()?.as_deref())
    }

    fn text(&self) -> Result<Option<Vec<u8>>, Thrown> {
        match fs::read(&self.path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(Thrown::new(format_args!("{} could not be read: {error}", self.path.display())))
            }
        }
    }

    fn parse(&self, text: Option<&[u8]>) -> Result<Vec<JsonObject>, Thrown> {
        text.map_or_else(|| Ok(Vec::new()), |text| read_policies(self.path.display(), text))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<JsonObject>) -> T) -> Result<T, Thrown> {
        let failed =
            |error| Thrown::new(format_args!("{} could not be written: {error}", self.path.display()));
        if let Some(folder) = self.path.parent() {
            atomic::make_folder(folder).map_err(failed)?;
        }
        let _held = atomic::lock(&self.path).map_err(failed)?;
        let text = self.text()?;
        let before = self.parse(text.as_deref())?;
        let mut rows = before.clone();
        let answer = change(&mut rows);
        if rows != before {
            let rows = Value::Array(rows.into_iter().map(Value::Object).collect());
            let rows = format!("{rows:#}\n");
            if !atomic::replace(&self.path, text.as_deref(), rows.as_bytes(), Access::Usual)
                .map_err(failed)?
            {
                return Err(Thrown::new(atomic::edited(&self.path)));
            }
        }
        Ok(answer)
    }
}

fn id_of(row: &JsonObject) -> Option<&str> {
    row.get("id").and_then(Value::as_str)
}
