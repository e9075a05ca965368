//! Resolves specifiers relative to the importing module.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use ostler_contract::plugin::IMPORT_CONDITIONS;
use ostler_contract::protocol::names::HOST;
use oxc_resolver::{PathUtil as _, ResolveError, ResolveOptions, Resolver as OxcResolver, TsconfigDiscovery};
use rquickjs::loader::ImportAttributes;
use rquickjs::{Ctx, Error, Result};

use super::builtins::{self, is_node_builtin};
use super::names;
use crate::engine::State;

/// The resolver that QuickJS calls; its data is in the [`State`].
pub(super) struct Resolve;

impl rquickjs::loader::Resolver for Resolve {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        specifier: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        // A pending exception of native code would be reported as an error of this import.
        drop(ctx.catch());
        let state = State::of(ctx)?;
        specify(&state.modules.resolvers, base, specifier, How::Import).map_err(|why| {
            if specifier.starts_with('.') {
                (state.shared.options.read)(&folder(base).join(specifier));
            }
            let thrown = ostler_contract::Thrown::new(why.sentence);
            match crate::errors::error(ctx, &state, &thrown) {
                Ok(error) => {
                    if let Some(error) = error.as_object() {
                        // Best effort: some authors check the code of a failed import.
                        let _ = error.set("code", why.code);
                    }
                    ctx.throw(error)
                }
                Err(error) => error,
            }
        })
    }
}

/// The module system of an import.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Import,
    Require,
}

/// The reason why a specifier cannot be resolved.
pub(super) struct Unresolved {
    pub(super) sentence: String,
    pub(super) code: &'static str,
}

impl Unresolved {
    fn not_found(sentence: String) -> Self {
        Self { sentence, code: "ERR_MODULE_NOT_FOUND" }
    }
}

/// The resolvers of an engine; they cache the files that they check.
#[derive(Default)]
pub(crate) struct Resolvers {
    import: OnceCell<OxcResolver>,
    require: OnceCell<OxcResolver>,
    /// Finds the `tsconfig.json` of a file; specifiers are resolved without it.
    tsconfig: OnceCell<OxcResolver>,
}

impl Resolvers {
    fn get(&self, how: How) -> &OxcResolver {
        let import = self.import.get_or_init(|| OxcResolver::new(options(How::Import)));
        match how {
            How::Import => import,
            How::Require => self.require.get_or_init(|| import.clone_with_options(options(How::Require))),
        }
    }
}

/// Returns the `verbatimModuleSyntax` of the file's `tsconfig.json`. An unreadable one is ignored, because only `tsc`
/// needs it.
pub(super) fn tsconfig(state: &State, path: &Path) -> Option<bool> {
    let resolvers = &state.modules.resolvers;
    let finder = resolvers.tsconfig.get_or_init(|| {
        let tsconfig = Some(TsconfigDiscovery::Auto);
        resolvers.get(How::Import).clone_with_options(ResolveOptions { tsconfig, ..options(How::Import) })
    });
    let found = finder.find_tsconfig(path).ok()??;
    (state.shared.options.read)(found.path());
    found.compiler_options.verbatim_module_syntax
}

fn options(how: How) -> ResolveOptions {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let alias = |from: &str, to: &[&str]| (from.to_owned(), words(to));
    ResolveOptions {
        condition_names: match how {
            How::Import => words(&IMPORT_CONDITIONS),
            How::Require => words(&[HOST, "node", "require", "module-sync", "default"]),
        },
        // TypeScript imports use the name of the output file.
        extension_alias: vec![
            alias(".js", &[".js", ".ts"]),
            alias(".mjs", &[".mjs", ".mts"]),
            alias(".cjs", &[".cjs", ".cts"]),
        ],
        extensions: words(&[".js", ".json", ".node", ".cjs", ".ts", ".cts"]),
        fully_specified: how == How::Import,
        node_path: false,
        ..ResolveOptions::default()
    }
}

/// Resolves a specifier in the module `base` to a full name: that of a built-in module, or a path.
pub(super) fn specify(
    resolvers: &Resolvers,
    base: &str,
    specifier: &str,
    how: How,
) -> std::result::Result<String, Unresolved> {
    if let Some(own) = builtins::own(base, specifier) {
        return Ok(own);
    }
    if let Some(name) = specifier.strip_prefix("node:") {
        return if builtins::exists(name) {
            Ok(specifier.to_owned())
        } else {
            Err(missing_builtin(specifier, base))
        };
    }
    if builtins::exists_bare(specifier) {
        return Ok(format!("node:{specifier}"));
    }
    if how == How::Import && names::is_data(specifier) {
        return Ok(specifier.to_owned());
    }
    let url = url_path(specifier)?;
    if names::is_data(base) && url.is_none() && !is_node_builtin(specifier) {
        return Err(Unresolved {
            sentence: format!(
                "{specifier} cannot be imported from a data: URL: only built-in modules and whole URLs can"
            ),
            code: "ERR_UNSUPPORTED_RESOLVE_REQUEST",
        });
    }
    let (path, suffix) = url.unwrap_or_else(|| (specifier.to_owned(), String::new()));
    // The resolver would take a part of such a path for a query.
    if path.starts_with('/') && path.contains(['?', '#']) && Path::new(&path).is_file() {
        return Ok(format!("{path}{suffix}"));
    }
    let from = folder(base);
    match resolvers.get(how).resolve(&from, &path) {
        Ok(found) => Ok(format!("{}{suffix}", found.full_path().to_string_lossy())),
        Err(_) if is_node_builtin(specifier) => Err(missing_builtin(specifier, base)),
        Err(error) => Err(not_found(&Missing { specifier, path: &path, from: &from, base, how }, &error)),
    }
}

fn missing_builtin(specifier: &str, base: &str) -> Unresolved {
    let name = specifier.strip_prefix("node:").unwrap_or(specifier);
    let sentence = format!(
        "the engine that runs plugins does not have Node's module node:{name}{}",
        imported_from(base)
    );
    Unresolved { sentence, code: "ERR_UNKNOWN_BUILTIN_MODULE" }
}

fn imported_from(base: &str) -> String {
    if base.is_empty() { String::new() } else { format!(" imported from {base}") }
}

/// Returns the path of a `file:` URL, and the query and fragment after it; other schemes cannot be imported.
fn url_path(specifier: &str) -> std::result::Result<Option<(String, String)>, Unresolved> {
    let Some((scheme, _)) = specifier.split_once(':') else { return Ok(None) };
    let is_scheme =
        scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme {
        return Ok(None);
    }
    if scheme == "file" {
        let parsed = url::Url::parse(specifier).ok();
        if let Some((url, path)) = parsed.and_then(|url| url.to_file_path().ok().map(|path| (url, path))) {
            let suffix = &url[url::Position::AfterPath..];
            return Ok(Some((path.to_string_lossy().into_owned(), suffix.to_owned())));
        }
    }
    Err(Unresolved {
        sentence: format!(
            "{specifier} cannot be imported: only files, packages and data: URLs can, by path, by name or by URL"
        ),
        code: "ERR_UNSUPPORTED_ESM_URL_SCHEME",
    })
}

fn folder(base: &str) -> PathBuf {
    let base = Path::new(names::split(base).0);
    match base.parent() {
        Some(folder) if base.is_absolute() => folder.to_owned(),
        _ => std::env::current_dir().unwrap_or_default(),
    }
}

/// A specifier without a file.
struct Missing<'a> {
    specifier: &'a str,
    /// The specifier, or the path of a `file:` URL.
    path: &'a str,
    /// The folder of the importing module.
    from: &'a Path,
    base: &'a str,
    how: How,
}

/// Returns the sentence that Node's error has.
fn not_found(missing: &Missing<'_>, error: &ResolveError) -> Unresolved {
    let Missing { specifier, base, how, .. } = *missing;
    let from = imported_from(base);
    match error {
        ResolveError::NotFound(_)
        | ResolveError::ExtensionAlias(..)
        | ResolveError::MatchedAliasNotFound(..) => Unresolved::not_found(match how {
            How::Require => format!("Cannot find module '{specifier}'"),
            How::Import => match missing.file() {
                Some(file) => format!("Cannot find module '{}'{from}", file.display()),
                None => format!("Cannot find package '{}'{from}", package(specifier)),
            },
        }),
        ResolveError::PackagePathNotExported { .. } => {
            Unresolved { sentence: format!("{error}{from}"), code: "ERR_PACKAGE_PATH_NOT_EXPORTED" }
        }
        other => Unresolved::not_found(format!("Cannot resolve '{specifier}'{from}: {other}")),
    }
}

impl Missing<'_> {
    /// Returns the file that the specifier names, unless its package is not installed.
    fn file(&self) -> Option<PathBuf> {
        if self.path.starts_with(['.', '/']) {
            return Some(self.from.normalize_with(self.path));
        }
        let package = package(self.path);
        let folders = self.from.ancestors().map(|folder| folder.join("node_modules"));
        let found = folders.into_iter().find(|folder| folder.join(package).is_dir())?;
        Some(found.join(self.path))
    }
}

/// Returns the name of the package in a specifier.
fn package(specifier: &str) -> &str {
    let names = if specifier.starts_with('@') { 2 } else { 1 };
    specifier.match_indices('/').nth(names - 1).map_or(specifier, |(end, _)| &specifier[..end])
}

/// Throws the reason, for native functions that return the sentence as an error.
pub(super) fn throw(ctx: &Ctx<'_>, why: Unresolved) -> Error {
    crate::errors::plain_error(ctx, why.sentence)
}
