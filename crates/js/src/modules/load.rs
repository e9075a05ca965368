//! Loads modules by their full name: reads, strips types, and declares.

use std::path::Path;

use rquickjs::convert::List;
use rquickjs::function::Func;
use rquickjs::loader::ImportAttributes;
use rquickjs::module::Declared;
use rquickjs::{Ctx, Function, Module, Object, Result, Value};

use super::builtins::{self, PREFIX, Source};
use super::kind::Kind;
use super::resolve::{self, How};
use super::{compile, names};
use crate::engine::State;
use crate::errors::plain_error;
use crate::typescript::{self, Unused};

/// The maximum size of a file that is searched for the subject of an error.
const LARGEST_SEARCHED: u64 = 4 << 20;

/// The number of characters of a `data:` URL that an error shows.
const SHOWN: usize = 80;

/// The loader that QuickJS calls; its data is in the [`State`].
pub(super) struct Load;

impl rquickjs::loader::Loader for Load {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        declare(ctx, name)
    }
}

/// Declares a module by its full name.
pub(super) fn declare<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Module<'js, Declared>> {
    match builtins::find(name) {
        Some(Source::Script(source)) => Module::declare(ctx.clone(), name, source.into_owned()),
        Some(Source::Native(make)) => with_default(ctx, name, make(ctx)?.into_value()),
        None if name.starts_with(PREFIX) || name.starts_with("node:") => {
            Err(plain_error(ctx, format_args!("{name} does not exist")))
        }
        None if names::is_data(name) => data(ctx, name),
        None => file(ctx, name),
    }
}

fn file<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Module<'js, Declared>> {
    let (file, _) = names::split(name);
    let path = Path::new(file);
    match Kind::by_ending(path) {
        Some(Kind::Addon) => return Err(addon(ctx, file)),
        Some(Kind::Wasm) => return wasm(ctx, name, bytes(ctx, path)?),
        _ => {}
    }
    let source = read(ctx, path)?;
    match State::of(ctx)?.modules.kinds.of(path, &source) {
        Kind::Json => json(ctx, name, source),
        Kind::CommonJs => with_exports(ctx, name, super::commonjs::load(ctx, file)?),
        Kind::Module | Kind::Addon | Kind::Wasm => {
            let source = strip(ctx, path, source)?;
            let module = compile::declare(ctx, name, source)?;
            State::of(ctx)?.modules.declared(name);
            set_meta(&module.meta()?, name)?;
            Ok(module)
        }
    }
}

/// Declares the module of a `data:` URL.
fn data<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Module<'js, Declared>> {
    let shown: String = name.chars().take(SHOWN).collect();
    let Some((kind, bytes)) = names::data(name) else {
        return Err(plain_error(ctx, format_args!("{shown} is not a data: URL that can be read")));
    };
    match kind.as_str() {
        "text/javascript" => {
            let module = compile::declare(ctx, name, text(&bytes))?;
            set_meta(&module.meta()?, name)?;
            Ok(module)
        }
        "application/json" => json(ctx, name, text(&bytes)),
        "application/wasm" => wasm(ctx, name, bytes),
        _ => Err(plain_error(
            ctx,
            format_args!(
                "{shown} has the media type {kind:?}, which cannot be imported; text/javascript, application/json and \
                 application/wasm can"
            ),
        )),
    }
}

fn json<'js>(ctx: &Ctx<'js>, name: &str, source: String) -> Result<Module<'js, Declared>> {
    let value = ctx.json_parse(source).map_err(|_| {
        let why = crate::values::text(&ctx.catch()).unwrap_or_default();
        plain_error(ctx, format_args!("{name} is not JSON: {why}"))
    })?;
    with_default(ctx, name, value)
}

/// Declares a WebAssembly module: what it imports are modules, and it exports its exports.
fn wasm<'js>(ctx: &Ctx<'js>, name: &str, bytes: Vec<u8>) -> Result<Module<'js, Declared>> {
    let describe: Function = super::builtin(ctx, "internal/webassembly")?.get("asModule")?;
    let bytes = crate::values::bytes_to_js(ctx, bytes.into())?;
    let (source, instantiate): (String, Value) = describe.call::<_, List<_>>((bytes, name))?.0;
    let module = compile::declare(ctx, name, source)?;
    module.meta()?.set("value", instantiate)?;
    Ok(module)
}

pub(super) fn addon(ctx: &Ctx<'_>, name: &str) -> rquickjs::Error {
    plain_error(ctx, format_args!("{name} is a native addon, which the engine that runs plugins cannot load"))
}

fn bytes(ctx: &Ctx<'_>, path: &Path) -> Result<Vec<u8>> {
    (State::of(ctx)?.shared.options.read)(path);
    std::fs::read(path)
        .map_err(|error| plain_error(ctx, format_args!("{} could not be read: {error}", path.display())))
}

pub(super) fn read(ctx: &Ctx<'_>, path: &Path) -> Result<String> {
    let source = text(&bytes(ctx, path)?);
    if names_last_match(&source) {
        super::builtin(ctx, "internal/legacy-regexp")?.get::<_, Function>("install")?.call::<_, ()>(())?;
    }
    if may_name_sets(&source) {
        super::builtin(ctx, "internal/regexp-sets")?.get::<_, Function>("install")?.call::<_, ()>(())?;
    }
    Ok(source)
}

/// Returns whether a file may make regular expressions with the flag `v`: it contains a text of flags with it.
fn may_name_sets(source: &str) -> bool {
    const FLAGS: &[u8] = b"dgimsvy";
    let bytes = source.as_bytes();
    source.contains("RegExp")
        && bytes.iter().enumerate().filter(|(_, byte)| **byte == b'v').any(|(at, _)| {
            let others = |byte: &&u8| FLAGS.contains(byte);
            let before = at - bytes[..at].iter().rev().take(FLAGS.len()).take_while(others).count();
            let after = at + 1 + bytes[at + 1..].iter().take(FLAGS.len()).take_while(others).count();
            let quote = before.checked_sub(1).and_then(|at| bytes.get(at));
            quote.is_some_and(|quote| b"'\"`".contains(quote)) && quote == bytes.get(after)
        })
}

/// Returns whether a file reads the properties of `RegExp` for the last match, such as `RegExp.$1`.
fn names_last_match(source: &str) -> bool {
    const NAMES: [&str; 6] = ["$", "lastMatch", "lastParen", "leftContext", "rightContext", "input"];
    source
        .match_indices("RegExp.")
        .any(|(at, found)| NAMES.iter().any(|name| source[at + found.len()..].starts_with(name)))
}

fn text(bytes: &[u8]) -> String {
    let mut source = String::from_utf8_lossy(bytes).into_owned();
    if source.starts_with('\u{FEFF}') {
        source.remove(0);
    }
    if source.starts_with("#!") {
        source.replace_range(..2, "//");
    }
    source
}

/// Returns the text that the engine read under that name, and the number of bytes before the file's first line.
pub(crate) fn source(ctx: &Ctx<'_>, name: &str) -> Option<(String, usize)> {
    if let Some(Source::Script(source)) = builtins::find(name) {
        return Some((source.into_owned(), 0));
    }
    let path = Path::new(names::split(name).0);
    if !path.is_absolute() || std::fs::metadata(path).ok()?.len() > LARGEST_SEARCHED {
        return None;
    }
    let source = text(&std::fs::read(path).ok()?);
    let before = match State::of(ctx).ok()?.modules.kinds.of(path, &source) {
        Kind::Module => 0,
        Kind::CommonJs => super::commonjs::WRAPPER.len(),
        Kind::Json | Kind::Addon | Kind::Wasm => return None,
    };
    match strip(ctx, path, source) {
        Ok(source) => Some((source, before)),
        Err(_) => {
            drop(ctx.catch());
            None
        }
    }
}

/// Returns the source as the engine reads it. All lines and columns are unchanged.
pub(super) fn strip(ctx: &Ctx<'_>, path: &Path, source: String) -> Result<String> {
    let unused = || match State::of(ctx).ok().and_then(|state| resolve::tsconfig(&state, path)) {
        Some(true) => Unused::Kept,
        _ => Unused::Dropped,
    };
    typescript::strip(path, source, unused).map_err(|why| {
        let thrown =
            ostler_contract::Thrown { name: "SyntaxError".to_owned(), ..ostler_contract::Thrown::new(why) };
        match State::of(ctx) {
            Ok(state) => crate::errors::raise(ctx, &state, &thrown),
            Err(error) => error,
        }
    })
}

fn set_meta(meta: &Object<'_>, name: &str) -> Result<()> {
    if names::is_data(name) {
        meta.set("url", name)?;
    } else {
        let (file, suffix) = names::split(name);
        let path = Path::new(file);
        let folder = path.parent().unwrap_or(path).to_string_lossy();
        meta.set("url", format!("{}{suffix}", file_url(path)))?;
        meta.set("filename", file)?;
        meta.set("dirname", &*folder)?;
    }
    meta.set("main", false)?;
    let base = name.to_owned();
    meta.set(
        "resolve",
        Func::from(move |ctx: Ctx<'_>, specifier: String| {
            let state = State::of(&ctx)?;
            let found = resolve::specify(&state.modules.resolvers, &base, &specifier, How::Import)
                .map_err(|why| resolve::throw(&ctx, why))?;
            Ok::<_, rquickjs::Error>(if Path::new(&found).is_absolute() {
                let (file, suffix) = names::split(&found);
                format!("{}{suffix}", file_url(Path::new(file)))
            } else {
                found
            })
        }),
    )
}

fn file_url(path: &Path) -> String {
    url::Url::from_file_path(path).map_or_else(|()| path.to_string_lossy().into_owned(), String::from)
}

/// Declares a module with one value, its default export.
fn with_default<'js>(ctx: &Ctx<'js>, name: &str, value: Value<'js>) -> Result<Module<'js, Declared>> {
    let module = Module::declare(ctx.clone(), name, "export default import.meta.value;")?;
    module.meta()?.set("value", value)?;
    Ok(module)
}

/// Declares a module with the exports of a CommonJS module: its `module.exports`, and each of their members by name.
fn with_exports<'js>(ctx: &Ctx<'js>, name: &str, exports: Value<'js>) -> Result<Module<'js, Declared>> {
    let mut source =
        String::from("const e = import.meta.value; export default e; export { e as 'module.exports' };");
    if let Some(members) = exports.as_object() {
        for (at, member) in members.keys::<String>().enumerate() {
            let member = member?;
            if member != "default" && member != "module.exports" {
                let quoted = serde_json::Value::from(member).to_string();
                source.push_str(&format!("const e{at} = e[{quoted}]; export {{ e{at} as {quoted} }};"));
            }
        }
    }
    let module = Module::declare(ctx.clone(), name, source)?;
    module.meta()?.set("value", exports)?;
    Ok(module)
}
