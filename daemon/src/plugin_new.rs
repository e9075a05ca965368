//! `ostler plugin new`: creates a working plugin in TypeScript, with its test and its types.

use std::fs;
use std::path::{Path, PathBuf};

use ostler_contract::id::SLUG_RULE;
use ostler_contract::{Slug, Value};

use crate::exit::Exit;

/// The placeholder of the plugin's name.
const NAME: &str = "PLUGIN_NAME";
/// The placeholder of the version of the contract.
const VERSION: &str = "SDK_VERSION";

/// The manifest of `@ostler/sdk`.
const SDK_MANIFEST: &str = include_str!("plugin_new/sdk/package.json");

/// The files to write.
const FILES: &[(&str, &str)] = &[
    ("index.ts", include_str!("plugin_new/index.ts")),
    ("index.test.ts", include_str!("plugin_new/index.test.ts")),
    ("package.json", include_str!("plugin_new/package.json")),
    ("tsconfig.json", include_str!("plugin_new/tsconfig.json")),
    ("README.md", include_str!("plugin_new/README.md")),
    (".gitignore", "node_modules\n"),
    ("types/node-assert-strict.d.ts", include_str!("plugin_new/types/node-assert-strict.d.ts")),
    ("types/node-crypto.d.ts", include_str!("plugin_new/types/node-crypto.d.ts")),
    ("types/node-test.d.ts", include_str!("plugin_new/types/node-test.d.ts")),
    ("sdk/index.d.ts", include_str!("plugin_new/sdk/index.d.ts")),
    ("sdk/index.js", include_str!("plugin_new/sdk/index.js")),
    ("sdk/memory-records.js", include_str!("plugin_new/sdk/memory-records.js")),
    ("sdk/rpc-error.js", include_str!("plugin_new/sdk/rpc-error.js")),
    ("sdk/testing.d.ts", include_str!("plugin_new/sdk/testing.d.ts")),
    ("sdk/testing.js", include_str!("plugin_new/sdk/testing.js")),
];

/// Returns the manifest of the SDK without what only checks it: npm would install that for a package in a folder.
fn sdk_manifest() -> String {
    let mut manifest: Value = serde_json::from_str(SDK_MANIFEST).unwrap_or_default();
    if let Some(manifest) = manifest.as_object_mut() {
        manifest.remove("devDependencies");
        manifest.remove("scripts");
    }
    format!("{manifest:#}\n")
}

fn fill(text: &str, name: &str) -> String {
    text.replace(NAME, name).replace(VERSION, env!("CARGO_PKG_VERSION"))
}

/// Writes a new plugin into a folder of its name under `parent`; returns the folder.
///
/// # Errors
/// Exit 2 if the name is not a slug or the folder is not empty, 1 if it cannot be written.
pub fn plugin_new(name: &str, parent: &Path) -> Result<PathBuf, Exit> {
    if Slug::parse(name).is_none() {
        return Err(Exit::usage(format!("invalid plugin name {name}: use {SLUG_RULE}")));
    }
    let folder = parent.join(name);
    let failed = |path: &Path, error: std::io::Error| Exit::machine(format!("{}: {error}", path.display()));
    match fs::read_dir(&folder).map(|mut entries| entries.next().is_none()) {
        Ok(false) => {
            return Err(Exit::usage(format!("{} already exists and is not empty", folder.display())));
        }
        Ok(true) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&folder, error)),
    }
    let sdk = ("sdk/package.json", sdk_manifest());
    let files = FILES.iter().map(|(file, text)| (*file, fill(text, name)));
    for (file, text) in files.chain([sdk]) {
        let path = folder.join(file);
        let within = path.parent().unwrap_or(&folder);
        fs::create_dir_all(within).map_err(|error| failed(within, error))?;
        fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    Ok(folder)
}
