//! Resolution of a plugin's spec to its module.

use std::path::{Path, PathBuf};

use ostler_contract::problem::Problem;

use crate::manifest::Manifest;

/// The module of a spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The file to import.
    pub path: PathBuf,
    /// The manifest of the package it belongs to; empty for a bare file.
    pub manifest: Manifest,
}

/// The default entry files of a folder.
const INDEX: &[&str] = &["index.js", "index.mjs", "index.ts"];

/// Finds a spec's module. Looks up a bare name in `node_modules` of the configuration folder, and a relative path only
/// in `base`: the folder of the configuration file, or the working directory for the command line.
///
/// # Errors
/// A message with the searched places.
pub fn resolve(spec: &str, base: &Path, config_dir: &Path) -> Result<Resolved, Problem> {
    if let Some(scheme) = scheme(spec) {
        let path = (scheme == "file").then(|| url::Url::parse(spec).ok()?.to_file_path().ok()).flatten();
        return match path {
            Some(path) if path.exists() => at(&path),
            Some(path) => Err(not_there(spec, &path)),
            None => Err(Problem::Scheme { spec: spec.to_owned(), scheme: scheme.to_owned() }),
        };
    }
    if Path::new(spec).is_absolute() || spec.starts_with('.') {
        let path = normal(&base.join(spec));
        return if path.exists() { at(&path) } else { Err(not_there(spec, &path)) };
    }
    let package = config_dir.join("node_modules").join(spec);
    if !package.is_dir() || spec.split('/').any(|part| part == ".." || part.is_empty()) {
        let dir = config_dir.display().to_string();
        return Err(Problem::NotInstalled { name: spec.to_owned(), dir, hint: String::new() });
    }
    at(&package)
}

fn not_there(spec: &str, tried: &Path) -> Problem {
    Problem::NotThere { name: spec.to_owned(), tried: tried.display().to_string() }
}

/// A file is the module itself and has no manifest.
fn at(path: &Path) -> Result<Resolved, Problem> {
    if !path.is_dir() {
        return Ok(Resolved { path: path.to_owned(), manifest: Manifest::default() });
    }
    let manifest = Manifest::read(path)?;
    // A package that declares its plugin file has no other plugin; its `main` can serve another purpose.
    let looked: Vec<String> = match &manifest.entry {
        Some(entry) => vec![entry.clone()],
        None => {
            let named = [&manifest.exports, &manifest.main].into_iter().flatten().cloned();
            named.chain(INDEX.iter().map(|name| (*name).to_owned())).collect()
        }
    };
    // Only `main` can omit what Node adds to it.
    let completed = |candidate: &String| match manifest.main.as_ref() == Some(candidate) {
        true => vec![candidate.clone(), format!("{candidate}.js"), format!("{candidate}/index.js")],
        false => vec![candidate.clone()],
    };
    let found =
        looked.iter().flat_map(completed).map(|file| normal(&path.join(file))).find(|file| file.is_file());
    if let Some(file) = found {
        return Ok(Resolved { path: file, manifest });
    }
    Err(Problem::NoEntry { dir: path.display().to_string(), looked: looked.join(", ") })
}

/// Returns the scheme of a spec: at least two letters, so that a drive letter is not a scheme.
fn scheme(spec: &str) -> Option<&str> {
    let (scheme, _) = spec.split_once(':')?;
    let good = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    good.then_some(scheme)
}

/// Removes `.` and `..` from a path without access to the disk.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, file: &str, text: &str) {
        let path = dir.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_spec_is_found_where_it_should_be_and_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        let (base, config) = (root.path().join("base"), root.path().join("config"));
        write(&base, "own.js", "");
        write(&base, "mine/index.ts", "");
        write(&config, "beside.js", "");
        write(
            &config,
            "node_modules/@a/b/package.json",
            r#"{ "name": "@a/b", "ostler": { "entry": "./lib/p.js" }, "main": "x.js" }"#,
        );
        write(&config, "node_modules/@a/b/lib/p.js", "");
        write(&base, "node_modules/c/index.js", "");
        for (package, main, file) in
            [("folder", "./lib", "lib/index.js"), ("short", "lib/short", "lib/short.js")]
        {
            let dir = config.join("node_modules").join(package);
            write(&dir, "package.json", &format!(r#"{{ "main": "{main}" }}"#));
            write(&dir, file, "");
        }
        let found = |spec: &str| resolve(spec, &base, &config).map(|resolved| resolved.path);
        assert_eq!(found("./own.js").unwrap(), base.join("own.js"));
        assert_eq!(found("./mine").unwrap(), base.join("mine/index.ts"));
        assert_eq!(found("@a/b").unwrap(), config.join("node_modules/@a/b/lib/p.js"));
        assert_eq!(found("folder").unwrap(), config.join("node_modules/folder/lib/index.js"));
        assert_eq!(found("short").unwrap(), config.join("node_modules/short/lib/short.js"));
        let url = url::Url::from_file_path(base.join("own.js")).unwrap().to_string();
        assert_eq!(found(&url).unwrap(), base.join("own.js"));
        let dir = config.display();
        assert_eq!(
            found("c").unwrap_err().to_string(),
            format!("Plugin c is not installed in {dir}; run npm install there, or name a path.")
        );
        assert_eq!(
            found("./beside.js").unwrap_err().to_string(),
            format!("Plugin ./beside.js is not there: tried {}.", base.join("beside.js").display())
        );
        assert!(found("../../etc").is_err());
        assert!(found("@a/../b").is_err());
        assert!(matches!(found("npm:x"), Err(Problem::Scheme { .. })));
        write(
            &config,
            "node_modules/unbuilt/package.json",
            r#"{ "ostler": { "entry": "./dist/p.js" }, "main": "x.js" }"#,
        );
        write(&config, "node_modules/unbuilt/x.js", "");
        assert!(
            found("unbuilt")
                .unwrap_err()
                .to_string()
                .ends_with("has no plugin entry: looked for ./dist/p.js")
        );
        write(&config, "node_modules/empty/readme", "");
        assert!(found("empty").unwrap_err().to_string().contains("has no plugin entry: looked for index.js"));
    }
}
