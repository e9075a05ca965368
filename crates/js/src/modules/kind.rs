//! The module system of a file.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Module,
    CommonJs,
    Json,
    /// A native addon.
    Addon,
    /// A WebAssembly module.
    Wasm,
}

impl Kind {
    /// Returns the kind that the ending of a file's name alone decides.
    pub(super) fn by_ending(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "mjs" | "mts" => Some(Self::Module),
            "cjs" | "cts" => Some(Self::CommonJs),
            "json" => Some(Self::Json),
            "node" => Some(Self::Addon),
            "wasm" => Some(Self::Wasm),
            _ => None,
        }
    }
}

/// The module system that the `package.json` of each folder declares.
#[derive(Default)]
pub(crate) struct Kinds(RefCell<HashMap<PathBuf, Option<Kind>>>);

impl Kinds {
    /// Returns the kind of a file: by its extension, then by its package, then by its content.
    pub(super) fn of(&self, path: &Path, source: &str) -> Kind {
        match Kind::by_ending(path) {
            Some(kind) => kind,
            _ if self.package(path.parent()) == Some(Kind::Module) => Kind::Module,
            _ if crate::typescript::has_module_syntax(path, source) => Kind::Module,
            _ => Kind::CommonJs,
        }
    }

    fn package(&self, folder: Option<&Path>) -> Option<Kind> {
        let folder = folder?;
        if let Some(known) = self.0.borrow().get(folder) {
            return *known;
        }
        let own = std::fs::read(folder.join("package.json")).ok().map(|manifest| says(&manifest));
        let kind = match own {
            Some(kind) => kind,
            None if folder.file_name().is_some_and(|name| name == "node_modules") => None,
            None => self.package(folder.parent()),
        };
        self.0.borrow_mut().insert(folder.to_owned(), kind);
        kind
    }
}

fn says(manifest: &[u8]) -> Option<Kind> {
    let manifest: serde_json::Value = serde_json::from_slice(manifest).ok()?;
    match manifest.get("type")?.as_str()? {
        "module" => Some(Kind::Module),
        "commonjs" => Some(Kind::CommonJs),
        _ => None,
    }
}
