//! Built-in modules: Node's, the SDK, and the internal ones that only these can import.

use std::borrow::Cow;

use ostler_contract::protocol::names::SDK;
use rquickjs::function::Func;
use rquickjs::{Ctx, Object, Result};

/// The prefix of internal module names, which plugins cannot import.
pub(super) const PREFIX: &str = "ostler:";

/// The module of the SDK with the test host for plugins.
const SDK_TESTING: &str = "@ostler/sdk/testing";

/// The source of a built-in module.
pub(super) enum Source {
    /// JavaScript of `std/`.
    Script(Cow<'static, str>),
    /// An object of native functions.
    Native(for<'js> fn(&Ctx<'js>) -> Result<Object<'js>>),
}

/// The scripts of a folder: their names, and their text or, in debug builds, their paths. There the engine reads the files, so
/// that a change of one compiles nothing.
macro_rules! scripts {
    ($folder:literal: $($name:literal)+) => {
        &[$(($name, script_of!(concat!($folder, "/", $name, ".js")))),+]
    };
}

#[cfg(debug_assertions)]
macro_rules! script_of {
    ($path:expr) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/std/", $path)
    };
}

#[cfg(any(test, not(debug_assertions)))]
macro_rules! embedded {
    ($path:expr) => {
        include_str!(concat!("../../std/", $path))
    };
}

#[cfg(not(debug_assertions))]
macro_rules! script_of {
    ($path:expr) => {
        embedded!($path)
    };
}

#[cfg(debug_assertions)]
fn text_of(path: &'static str) -> Cow<'static, str> {
    let read = std::fs::read_to_string(path);
    // As a module that throws: the importer is named in the message.
    Cow::Owned(read.unwrap_or_else(|error| {
        let why = format!(
            "cannot read {path}: {error}; a debug build reads its modules from the sources it was built from"
        );
        format!("throw new Error({});", serde_json::Value::String(why))
    }))
}

#[cfg(not(debug_assertions))]
fn text_of(text: &'static str) -> Cow<'static, str> {
    Cow::Borrowed(text)
}

/// The modules of Node, by the name after `node:`: all of them, so that none of these names is resolved as an npm package.
const NODE: &[(&str, &str)] = scripts!("node":
    "_http_agent" "_http_client" "_http_common" "_http_incoming" "_http_outgoing" "_http_server" "_stream_duplex"
    "_stream_passthrough" "_stream_readable" "_stream_transform" "_stream_wrap" "_stream_writable" "_tls_common"
    "_tls_wrap" "assert" "assert/strict" "async_hooks" "buffer" "child_process" "cluster" "console" "constants" "crypto" "dgram"
    "diagnostics_channel" "dns" "dns/promises" "domain" "events" "fs" "fs/promises" "http" "http2" "https" "inspector"
    "inspector/promises" "module" "net" "os" "path" "path/posix" "path/win32" "perf_hooks" "process" "punycode"
    "querystring" "readline" "readline/promises" "repl" "sea" "sqlite" "stream" "stream/consumers" "stream/promises"
    "stream/web" "string_decoder" "sys" "test" "test/reporters" "timers" "timers/promises" "tls" "trace_events" "tty"
    "url" "util" "util/types" "v8" "vm" "wasi" "worker_threads" "zlib"
);

const INTERNAL: &[(&str, &str)] = scripts!("internal":
    "absent" "blob" "bridge" "buffer" "buffer-numbers" "call-sites" "callees" "ciphers" "commonjs" "compression" "console" "context" "crypto-bytes" "crypto-constants"
    "deep-equal" "diffie-hellman" "ecdh" "errors" "event-source" "event-target" "fetch" "follow" "form-data" "format" "fs" "generate-keys" "globals" "headers"
    "histogram" "http" "http1/agent" "http1/client" "http1/common" "http1/connection" "http1/incoming" "http1/outgoing" "http1/parser"
    "http1/server" "http2/client" "http2/common" "http2/compat" "http2/server" "http2/session" "http2/stream" "inspect" "intl"
    "intl/choices" "intl/collation" "intl/conventions" "intl/dates" "intl/locales" "intl/numbers" "intl/plurals" "intl/ranges" "intl/rounding"
    "intl/segments" "intl/words" "keys" "kinds" "legacy-regexp" "legacy-url" "members" "messaging" "mock-functions" "mock-timers"
    "parse-args" "performance" "primes" "profile" "random" "readline" "regexp-sets" "serialize" "signals" "stack" "stream/adapters"
    "stream/base" "stream/duplex" "stream/from" "stream/helpers" "stream/pipeline" "stream/piping" "stream/readable" "stream/web" "stream/writable"
    "streams" "streams/byob-reader" "streams/bytes" "streams/common" "streams/pipe" "streams/readable"
    "streams/tee" "streams/tee-bytes" "streams/transform" "streams/writable" "structured-clone" "styles" "test" "text"
    "ticks" "timers" "tls" "url" "url-pattern" "vm-contexts" "watch" "weak-ref" "webassembly" "webcrypto" "websocket" "worker" "worker-main" "worker-state" "x509" "x509-certificate" "zone-names"
);

const SDK_FILES: &[(&str, &str)] =
    scripts!("sdk": "index" "memory-records" "policies" "rpc-error" "testing" "tool-servers");

const NATIVE: &[(&str, for<'js> fn(&Ctx<'js>) -> Result<Object<'js>>)] = &[
    ("callees", crate::callees::native),
    ("child", crate::native::child::native),
    ("commonjs", super::commonjs::native),
    ("crypto", crate::native::crypto::native),
    ("encoding", crate::native::encoding::native),
    ("frames", crate::native::frames::native),
    ("fs", crate::native::fs::native),
    ("globals", crate::globals::native),
    ("http", crate::http::native),
    ("http1", crate::native::http1::native),
    ("http2", crate::native::http2::native),
    ("languages", crate::native::languages::native),
    ("modules", names),
    ("net", crate::native::net::native),
    ("ports", crate::native::ports::native),
    ("process", crate::native::process::native),
    ("sdk", crate::native::sdk::native),
    ("timers", crate::timers::native),
    ("tls", crate::native::tls::native),
    ("url", crate::native::url::native),
    ("url-pattern", crate::native::url_pattern::native),
    ("vm", crate::native::vm::native),
    ("wasm", crate::native::wasm::native),
    ("websocket", crate::native::websocket::native),
    ("worker", crate::native::worker::native),
    ("zlib", crate::native::zlib::native),
    ("zones", crate::native::zones::native),
];

/// The modules that Node only imports with the prefix `node:`.
const PREFIX_ONLY: &[&str] = &["sea", "sqlite", "test", "test/reporters"];

/// Returns whether Node has a module of that name, with or without `node:`.
pub(super) fn is_node_builtin(name: &str) -> bool {
    exists(name.strip_prefix("node:").unwrap_or(name))
}

/// Returns the names of the implemented Node modules.
pub(crate) fn node_modules() -> impl Iterator<Item = &'static str> {
    NODE.iter().map(|(name, _)| *name)
}

/// Returns whether a Node module is implemented.
pub(super) fn exists(name: &str) -> bool {
    node_modules().any(|known| known == name)
}

/// Returns whether a Node module is implemented and can be imported without `node:`; otherwise its name may be a
/// package's.
pub(super) fn exists_bare(name: &str) -> bool {
    exists(name) && !PREFIX_ONLY.contains(&name)
}

/// Returns the source of a built-in module by its full name.
pub(super) fn find(name: &str) -> Option<Source> {
    if let Some(name) = name.strip_prefix("node:") {
        return script(NODE, name);
    }
    if name == SDK {
        return script(SDK_FILES, "index");
    }
    if name == SDK_TESTING {
        return script(SDK_FILES, "testing");
    }
    let (folder, name) = name.strip_prefix(PREFIX)?.split_once('/')?;
    match folder {
        "internal" => script(INTERNAL, name),
        "sdk" => script(SDK_FILES, name),
        "native" => NATIVE.iter().find(|(known, _)| *known == name).map(|(_, make)| Source::Native(*make)),
        _ => None,
    }
}

fn script(table: &[(&str, &'static str)], name: &str) -> Option<Source> {
    table.iter().find(|(known, _)| *known == name).map(|(_, script)| Source::Script(text_of(script)))
}

/// Resolves a built-in module for an import in `base`. Every module can import the SDK; only built-in modules can
/// import internal ones.
pub(super) fn own(base: &str, specifier: &str) -> Option<String> {
    if specifier == SDK || specifier == SDK_TESTING {
        return Some(specifier.to_owned());
    }
    let inside = base == SDK || base == SDK_TESTING || base.starts_with(PREFIX) || base.starts_with("node:");
    if specifier.starts_with(PREFIX) && base.starts_with("ostler:now/") {
        return Some(specifier.to_owned());
    }
    if !inside {
        return None;
    }
    match specifier.split_once('/') {
        Some(("internal" | "native" | "sdk", _)) => Some(format!("{PREFIX}{specifier}")),
        Some((".", file)) => Some(format!("{PREFIX}sdk/{}", file.strip_suffix(".js").unwrap_or(file))),
        _ => None,
    }
}

/// Returns the native functions about modules and their sources.
fn names<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let native = Object::new(ctx.clone())?;
    native.set("builtinModules", Func::from(|| node_modules().collect::<Vec<_>>()))?;
    native.set("completeLink", Func::from(super::links::complete))?;
    native.set("escapeSets", Func::from(|pattern: String| crate::typescript::escape_sets(&pattern)))?;
    Ok(native)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One module stands for all: each that is embedded is compiled again with its file.
    #[test]
    fn the_text_is_the_same_in_both_builds() {
        let Some(Source::Script(text)) = find("node:sys") else { panic!("node:sys is a script") };
        assert_eq!(text, embedded!("node/sys.js"));
    }
}
