//! Generates the page of the Node and web APIs for JavaScript plugins from what the engine reports; `cargo xtask generate`
//! writes it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ostler_contract::protocol::names::SDK;

use super::{Surface, surface};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/javascript.md");
const DECLARATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/index.d.ts");
/// Set by `cargo xtask generate`: the test writes the page instead of comparing it.
const WRITE: &str = "OSTLER_WRITE_PAGES";

/// The differences between globals and Node's.
const GLOBALS: &str = "\
\n`WebAssembly` is interpreted, so it runs many times slower than in Node. Threads, shared memory, garbage-collected types
and exceptions are not supported: `WebAssembly.Tag`, `Exception` and `JSTag` are `undefined`, and a module that needs
exceptions, such as that of `@automerge/automerge`, cannot be used. Memories and tables count against the plugin's
memory, and code that exceeds the time limit is interrupted. Memories, tables and globals that different instances
export cannot be imported together. A package that limits its own time may reach that limit: the default engine of
`shiki`, which is a WebAssembly module, leaves the rest of the first line plain after 500 ms unless
`tokenizeTimeLimit: 0` is given.

`Intl.PluralRules`, `Intl.Collator`, `localeCompare` and `Intl.Segmenter` follow the rules of all languages that Node
supports, in a newer version of the Unicode data. `Intl` formats English (`en`, `en-US`) completely. For about 85 other
locales, among them those of Europe, Russian, Turkish, Hindi, Japanese, Korean and Chinese, it formats plain numbers and
for most of them percentages and amounts in euros; for about 60 dates in numbers and times. Anything else, such as names
of months and other digits, is formatted in English: `supportedLocalesOf` lists only `en` and `en-US`, and
`resolvedOptions().locale` is the locale that is used. `Intl.DisplayNames` returns the codes.

A regular expression that begins with `^` is tried at each position of a text, also where it can only match at the
first: about 10 ms for each megabyte. A lexer that removes what it has read from its text and tries several such
patterns, as `marked` and others do, takes time that grows with the square of the text (`marked` reaches the limit with
about 90 kB). The flag `y` tries one position.

A chunk of a web stream that is piped or transformed costs several times what it does in Node; larger chunks cost less
in total.

Calling a value that is not a function throws an error that names the expression, as in Node. The engine only knows the
place of the last name before the call: where nested calls share it, the message names all of them
(`build is not a function, or client.send is not a function`). The message does not name a value that is passed to a
built-in function in place of a callback.

`URLPattern` is a global only, not an export of `node:url`. `EventSource` follows the standard where Node does not: an
empty `id` or `event` field clears the earlier value. `removeEventListener` follows it, too: `true` is `capture`, and
`eventPhase` is the same for all listeners of an event. A file URL loses its host before a drive letter
(`file://host/C:/`), and empty parts at the start of its path.\n";

const HEAD: &str = "\
# Node modules and web globals for plugins

JavaScript and TypeScript plugins run on an engine inside the daemon, without Node. This page lists the available
modules and globals; importing anything else is an error. Some functions that packages import but rarely call can be
imported and throw `ERR_METHOD_NOT_IMPLEMENTED` when called. Others are `undefined`, so that a package that checks with
`typeof` does not use them. Both are listed separately. The page is generated from the engine by `cargo xtask generate`,
and a test of `crates/js` fails if it is outdated.

## What it does not do

The engine loads no native addons, shares no memory between threads, and does not compile JavaScript to machine code:
computation is several times slower than in Node. It has no network and no files but those of the daemon's user, and
opens listeners only where the plugin's entry allows it (`listen`). It is not Node: the lists below are the whole of it.
[npm packages](packages.md) that work were tried one by one.

";

/// Limitations of listed modules compared with Node's.
const NOTES: &[(&str, &str)] = &[
    (
        "async_hooks",
        "A store is available across every `await`, and in callbacks of promises, timers, ticks and microtasks. A listener runs\n\
         in the store of the emitter. Hooks of `createHook` are never called, and the ids are always 1.",
    ),
    (
        "child_process",
        "`stdio` takes pipes, `'ignore'`, files that `node:fs` has opened and streams, at each position; `'inherit'` is the\n\
         plugin's log, and `spawnSync` returns only the output of the standard streams. Anything else throws an error that names\n\
         it. There is no channel between parent and child: `'ipc'` throws, and `send` is `undefined`. Packages start\n\
         `process.execPath` with a script: it is the Node of the plugin's `PATH`. Without one it is ostler, and starting that\n\
         with a script or with `-e` throws `ERR_FEATURE_UNAVAILABLE` and logs a warning.",
    ),
    (
        "crypto",
        "Signatures: RSA with SHA-1, SHA-224, SHA-256, SHA-384 and SHA-512, PKCS#1 and PSS; ECDSA on the curves above with any\n\
         digest; Ed25519. Key pairs: `rsa` (up to 8192 bits), `ec`, `ed25519`, `x25519`. RSA encrypts with OAEP and PKCS#1, not\n\
         without padding. GCM in `crypto.subtle` needs an iv of 12 bytes. Encrypted private keys are not supported. A new prime\n\
         has at most 8192 bits, a safe one 2048. `X509Certificate` reads no `keyUsage`.",
    ),
    (
        "http2",
        "The settings of a session can be changed, but `enablePush` and `enableConnectProtocol` not to `true`; the other side\n\
         never receives a larger `headerTableSize`, `maxFrameSize` and `maxHeaderListSize` than at the beginning. A server\n\
         listens where `node:net` may (`listen` of the plugin's entry). Nothing is pushed, and files are sent by piping them:\n\
         `pushStream`, `respondWithFile` and `respondWithFD` throw.",
    ),
    (
        "module",
        "The engine supports no loaders. A query or a fragment makes a file a separate module (`import('./x.mjs?v=1')`).\n\
         WebAssembly modules (`import('./add.wasm')`) and `data:` URLs with JavaScript, JSON or WebAssembly can be imported.",
    ),
    ("perf_hooks", "Garbage collections are not observed."),
    (
        "vm",
        "A context gives a script the names of an object, built-in objects and nothing else. It is the plugin's own realm: `let`,\n\
         `const` and `class` of one script are not visible to the next, and a context isolates no code, as in Node.",
    ),
    (
        "zlib",
        "gzip, zlib, raw deflate and brotli, without dictionaries and without brotli's large windows. Decompressed data counts\n\
         against the plugin's memory, and so does what brotli needs to work: 16 to 70 MB.",
    ),
    (
        "worker_threads",
        "A `Worker` is an engine on its own thread. It has Node's modules and `@ostler/sdk`, but not the plugin's `host`. The\n\
         values of a plugin and of all its workers, and messages on their way between them, are within the plugin's memory limit\n\
         together, and every worker is interrupted like the plugin if it runs too long without a pause. A plugin has at most 32\n\
         workers. `resourceLimits.maxOldGenerationSizeMb` and `maxYoungGenerationSizeMb` together limit a worker's values,\n\
         `stackSizeMb` its calls (at most 2 MB). Workers end with the plugin. A `SharedArrayBuffer` cannot be sent. What a worker\n\
         prints is in the plugin's log: there are no `stdin`, `stdout` and `stderr`, and no `SHARE_ENV`.",
    ),
    (
        "test",
        "`mock` has everything but `module`. What `t.mock` replaces is restored when the test ends. `t.assert` has no `snapshot`.\n\
         A test with `todo` is not run, names are not filtered, and the message of an assertion has no diff.",
    ),
    ("readline", "Cursor functions have no effect, because a plugin has no terminal."),
];

/// Returns the page.
fn page(surface: &Surface) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("## Globals\n\n");
    page.push_str(&list(surface.globals.iter()));
    page.push_str(GLOBALS);
    page.push_str("\n### `crypto.subtle`\n");
    page.push_str(&by_kind(&surface.subtle));
    page.push_str("\n## Modules\n");
    for (name, exports) in &surface.modules {
        let name = if name.starts_with('@') { name.clone() } else { format!("node:{name}") };
        let plain = name.strip_prefix("node:").unwrap_or(&name);
        let absent = surface.absent.get(plain).map(Vec::as_slice).unwrap_or_default();
        let undefined = surface.undefined.get(plain).map(Vec::as_slice).unwrap_or_default();
        let works = exports
            .iter()
            .filter(|export| *export != "default" && !absent.contains(export) && !undefined.contains(export));
        let _ = write!(page, "\n### `{name}`\n\n{}", list(works));
        if !absent.is_empty() {
            let _ = write!(page, "\nImportable, but not implemented:\n{}", list(absent.iter()));
        }
        if !undefined.is_empty() {
            let _ = write!(page, "\n`undefined`:\n{}", list(undefined.iter()));
        }
        if plain == "crypto" {
            page.push_str(&by_kind(&surface.algorithms));
        }
        if let Some((_, note)) = NOTES.iter().find(|(of, _)| *of == plain) {
            let _ = write!(page, "\n{note}\n");
        }
    }
    page
}

/// Formats lists by kind.
fn by_kind(kinds: &[(String, Vec<String>)]) -> String {
    let mut text = String::from("\n");
    for (kind, names) in kinds {
        let _ = write!(text, "- {kind}:\n  {}", list(names.iter()).replace("\n`", "\n  `"));
    }
    text
}

/// Formats names in lines of limited length.
fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for name in names {
        let name = format!("`{name}`");
        if line.len() + name.len() + 2 > 118 {
            text.push_str(line.trim_end());
            text.push('\n');
            line.clear();
        }
        line.push_str(&name);
        line.push_str(", ");
    }
    text.push_str(line.trim_end_matches(", "));
    text.push('\n');
    text
}

#[tokio::test]
async fn the_page_lists_what_the_engine_reports() {
    let text = page(&surface().await.unwrap());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, text).unwrap();
    } else {
        let stale = "docs/javascript.md is not what the engine reports; run cargo xtask generate";
        assert!(std::fs::read_to_string(PAGE).unwrap() == text, "{stale}");
    }
}

#[tokio::test]
async fn the_module_of_the_sdk_exports_what_its_types_declare() {
    let declarations = std::fs::read_to_string(DECLARATIONS).unwrap();
    let declared: BTreeSet<&str> = declarations
        .lines()
        .filter_map(|line| {
            line.strip_prefix("export function ").or_else(|| line.strip_prefix("export class "))
        })
        .filter_map(|rest| rest.split(|end: char| !end.is_alphanumeric()).next())
        .collect();
    let surface = surface().await.unwrap();
    let exported: BTreeSet<&str> = surface.modules[SDK].iter().map(String::as_str).collect();
    assert_eq!(exported, declared);
}
