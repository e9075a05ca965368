//! A plugin's id. Spec: *Plugin id*.

use std::path::Path;

use ostler_contract::problem::Problem;
use ostler_contract::{Module, Slug, Value};

use crate::manifest::Manifest;

/// Returns the id of a module: the exported name, otherwise the name in its manifest, of its file, or the spec.
///
/// # Errors
/// The line for an id that is not a slug.
pub(crate) fn id_of(
    module: &Module,
    manifest: &Manifest,
    path: Option<&Path>,
    spec: &str,
) -> Result<Slug, Problem> {
    let own = match &module.name {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) if !name.trim().is_empty() => Some(name.clone()),
        // The line has no name to print.
        Some(_) => return Err(Problem::NotASlug { name: spec.to_owned() }),
    };
    let name = own
        .or_else(|| manifest.name.as_deref().map(unscoped))
        .or_else(|| path.and_then(file_name))
        .unwrap_or_else(|| unscoped(spec));
    Slug::parse(&name).ok_or(Problem::NotASlug { name })
}

/// Converts `@scope/pkg` to `scope-pkg`.
fn unscoped(name: &str) -> String {
    match name.strip_prefix('@').and_then(|rest| rest.split_once('/')) {
        Some((scope, package)) => format!("{scope}-{package}"),
        None => name.to_owned(),
    }
}

/// Returns the name of the file without its extension, or of the folder if the file is an index.
fn file_name(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    match stem {
        "index" => path.parent()?.file_name()?.to_str().map(str::to_owned),
        stem => Some(stem.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn module(name: Value) -> Module {
        Module {
            name: Some(name),
            title: None,
            defaults: None,
            options_schema: None,
            apply: None,
            keep: None,
        }
    }

    #[test]
    fn the_fallbacks_in_order() {
        let named = Manifest { name: Some("@inn/horse".into()), ..Manifest::default() };
        let none = Manifest::default();
        let id = |module: &Module, manifest: &Manifest, path: Option<&str>, spec: &str| {
            id_of(module, manifest, path.map(Path::new), spec)
                .map(|id| id.to_string())
                .map_err(|problem| problem.to_string())
        };
        assert_eq!(id(&module(json!("mine")), &named, None, "x").unwrap(), "mine");
        assert_eq!(id(&module(Value::Null), &named, Some("/p/file.js"), "x").unwrap(), "inn-horse");
        assert_eq!(id(&module(Value::Null), &none, Some("/p/file.js"), "x").unwrap(), "file");
        for no_slug in [json!(" "), json!(""), json!(5), json!({})] {
            assert_eq!(
                id(&module(no_slug), &named, Some("/p/file.js"), "./file.js").unwrap_err(),
                "plugin ./file.js skipped: its name is not a slug"
            );
        }
        assert_eq!(id(&module(Value::Null), &none, Some("/p/folder/index.js"), "x").unwrap(), "folder");
        assert_eq!(id(&module(Value::Null), &none, None, "spec").unwrap(), "spec");
        assert_eq!(
            id(&module(json!("@a/b")), &none, None, "x").unwrap_err(),
            "plugin @a/b skipped: its name is not a slug"
        );
        assert_eq!(
            id(&module(Value::Null), &none, Some("/p/My File.js"), "x").unwrap_err(),
            "plugin My File skipped: its name is not a slug"
        );
    }
}
