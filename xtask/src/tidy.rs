//! Checks in addition to the compiler's: allowed crate dependencies, words that a crate must not contain, owners parsed
//! by hand, commands of processes made by hand, crates with `unsafe`, waits of tests, lengths of files, top-level entries, tests named by the ledger, the format and citations of decisions, the pages and links of
//! the book, the form of its pages and the code that they quote, generated files, the features that tests share with the program, tests that are unreliable, and what published crates need.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The workspace crates that each crate may depend on. A new edge is a line here and one in ARCHITECTURE.md.
const EDGES: &[(&str, &[&str])] = &[
    ("ostler-protocol", &[]),
    ("ostler-contract-derive", &[]),
    ("ostler-contract", &["ostler-contract-derive", "ostler-protocol"]),
    ("ostler-engine-core", &["ostler-contract", "ostler-protocol"]),
    ("ostler-engine-users", &["ostler-contract", "ostler-engine-core", "ostler-protocol"]),
    (
        "ostler-engine-workspace",
        &["ostler-contract", "ostler-engine-core", "ostler-engine-users", "ostler-protocol", "ostler-screen"],
    ),
    (
        "ostler-engine-sessions",
        &[
            "ostler-contract",
            "ostler-engine-core",
            "ostler-engine-users",
            "ostler-engine-workspace",
            "ostler-protocol",
        ],
    ),
    (
        "ostler-engine-automations",
        &[
            "ostler-contract",
            "ostler-engine-core",
            "ostler-engine-sessions",
            "ostler-engine-users",
            "ostler-protocol",
        ],
    ),
    (
        "ostler-engine",
        &[
            "ostler-contract",
            "ostler-engine-automations",
            "ostler-engine-core",
            "ostler-engine-sessions",
            "ostler-engine-users",
            "ostler-engine-workspace",
            "ostler-protocol",
        ],
    ),
    ("ostler-ports", &["ostler-contract"]),
    ("ostler-js", &["ostler-contract", "ostler-net", "ostler-processes"]),
    ("ostler-loader", &["ostler-contract"]),
    ("ostler-floor", &[]),
    ("ostler-memory", &[]),
    ("ostler-net", &[]),
    ("ostler-processes", &[]),
    ("ostler-screen", &[]),
    ("ostler-telemetry", &["ostler-contract", "ostler-engine", "ostler-loader", "ostler-protocol"]),
    ("ostler-server", &["ostler-contract", "ostler-engine", "ostler-protocol"]),
    (
        "ostler-simulation",
        &[
            "ostler-contract",
            "ostler-engine",
            "ostler-plugin-echo",
            "ostler-plugin-postgres",
            "ostler-protocol",
            "ostler-testkit",
        ],
    ),
    // Selects features, and has no code.
    ("ostler-test-features", &["ostler-ports"]),
    ("ostler-testkit", &["ostler-contract", "ostler-engine", "ostler-loader", "ostler-protocol"]),
    ("ostler-bench", &["ostler-contract", "ostler-js", "ostler-ports", "xtask"]),
    ("xtask", &["ostler-contract"]),
];

/// The crates that a plugin may depend on: the contract, and the crate that contains the processes it starts.
const PLUGIN_EDGES: &[&str] = &["ostler-contract", "ostler-processes"];

/// The sources of the engine: its layers, each of which may know those before it.
pub const ENGINE: [&str; 6] = [
    "crates/engine-core/src",
    "crates/engine-users/src",
    "crates/engine-workspace/src",
    "crates/engine-sessions/src",
    "crates/engine-automations/src",
    "crates/engine/src",
];

/// The words that sources must not contain, with the reason.
const ABSENT: &[(&[&str], &[&str], &str)] = &[
    (
        &ENGINE,
        &[
            "std::fs",
            "std::net",
            "tokio::fs",
            "tokio::net",
            "SystemTime",
            "std::time::Instant",
            "Timestamp::now",
        ],
        "the engine has no sockets, no files and no clock of its own",
    ),
    (&ENGINE, &["tokio::spawn("], "the engine starts its tasks by crates/engine-core/src/tasks.rs"),
    (
        &["crates/contract/src"],
        &["ostler_engine", "std::fs", "std::net", "tokio::net"],
        "the contract knows no engine",
    ),
    (
        &["plugins"],
        &["ostler_engine", "ostler_server", "ostler_loader", "ostler_ports", "ostler_js"],
        "a plugin depends on the contract alone",
    ),
];

/// The maximum number of lines of a source file before its tests.
const MOST_LINES: usize = 600;

/// The allowed top-level entries of the repository.
const TOP: &[&str] = &[
    ".cargo",
    ".ci",
    ".git",
    ".gitattributes",
    ".github",
    ".gitignore",
    ".oxfmtrc.json",
    ".oxlintrc.json",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "benches",
    "changes",
    "clippy.toml",
    "crates",
    "daemon",
    "deny.toml",
    "docs",
    "examples",
    "fuzz",
    "plugins",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "sdk",
    "target",
    "tests",
    "tools",
    "xtask",
];

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Returns all problems, one line each.
pub fn check(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    match crate::cargo::packages(root) {
        Ok(packages) => {
            edges(&packages, &mut problems);
            crate::unsafety::check(root, &packages, &mut problems);
            crate::publication::check(root, &packages, &mut problems);
        }
        Err(why) => problems.push(why),
    }
    absences(root, &mut problems);
    crate::boundary::check(root, &mut problems);
    crate::owners::check(root, &mut problems);
    crate::children::check(root, &mut problems);
    crate::reads::check(root, &mut problems);
    crate::callers::check(root, &mut problems);
    crate::waits::check(root, &mut problems);
    lengths(root, &mut problems);
    test_programs(root, &mut problems);
    top(root, &mut problems);
    ledger(root, &mut problems);
    crate::decisions::check(root, &mut problems);
    crate::book::check(root, &mut problems);
    crate::pages::check(root, &mut problems);
    crate::generate::check(root, &mut problems);
    crate::features::check(root, &mut problems);
    crate::unreliable::check(root, &mut problems);
    crate::workflow_pages::check(root, &mut problems);
    crate::verify::check_page(root, &mut problems);
    problems
}

fn edges(packages: &[Value], problems: &mut Vec<String>) {
    let own: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        // Only the composition root may depend on all crates.
        if name == "ostler" {
            continue;
        }
        let allowed = match name.strip_prefix("ostler-plugin-") {
            Some(_) => PLUGIN_EDGES,
            None => match EDGES.iter().find(|(crate_name, _)| *crate_name == name) {
                Some((_, allowed)) => allowed,
                None => {
                    problems.push(format!("{name} has no row among the allowed edges"));
                    continue;
                }
            },
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let is_test = dependency["kind"] == "dev";
            if own.contains(on) && !is_test && !allowed.contains(&on) {
                problems.push(format!("{name} may not depend on {on}"));
            }
        }
    }
}

fn absences(root: &Path, problems: &mut Vec<String>) {
    for (folders, words, why) in ABSENT {
        for file in folders.iter().flat_map(|folder| sources(&root.join(folder), &["rs"])) {
            if file.components().any(|part| part.as_os_str() == "tests") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap_or_default();
            for (at, line) in without_tests(&text).lines().enumerate() {
                for word in words.iter().filter(|word| line.contains(**word)) {
                    problems.push(format!("{}:{}: {word}: {why}", relative(root, &file), at + 1));
                }
            }
        }
    }
}

fn lengths(root: &Path, problems: &mut Vec<String>) {
    for folder in ["crates", "daemon", "plugins", "tools", "xtask"] {
        for file in sources(&root.join(folder), &["rs"]) {
            if file.components().any(|part| part.as_os_str() == "tests") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap_or_default();
            let lines = without_tests(&text).lines().count();
            if lines > MOST_LINES {
                problems.push(format!(
                    "{} has {lines} lines before its tests; {MOST_LINES} is the most",
                    relative(root, &file)
                ));
            }
        }
    }
}

fn top(root: &Path, problems: &mut Vec<String>) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !TOP.contains(&name.as_str()) {
            problems.push(format!("{name} stands at the top of the repository; give it a place"));
        }
    }
}

/// Checks that the `main.rs` of a test program names every file beside it: the compiler ignores others.
fn test_programs(root: &Path, problems: &mut Vec<String>) {
    for folder in ["crates", "daemon", "plugins"] {
        for main in sources(&root.join(folder), &["rs"]) {
            let folder = main.parent().unwrap_or(root);
            if !main.ends_with("main.rs") || folder.parent().is_none_or(|parent| !parent.ends_with("tests")) {
                continue;
            }
            let text = fs::read_to_string(&main).unwrap_or_default();
            let names = |file: &PathBuf| file.parent() == Some(folder) && *file != main;
            for file in sources(folder, &["rs"]).into_iter().filter(names) {
                let name = file.file_stem().unwrap_or_default().display();
                if !text.contains(&format!("mod {name};")) {
                    problems.push(format!(
                        "{} is not compiled: {} has no line mod {name};",
                        relative(root, &file),
                        relative(root, &main)
                    ));
                }
            }
        }
    }
}

/// Checks the ledger: every `path/to/file.rs::test` must be an existing test, and every row must name one or be marked
/// as open.
fn ledger(root: &Path, problems: &mut Vec<String>) {
    let file = "docs/conformance.md";
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        return problems.push(format!("{file} is missing"));
    };
    for (at, line) in text.lines().enumerate() {
        if !line.starts_with('|') || line.starts_with("|---") || line.starts_with("| Item ") {
            continue;
        }
        let place = format!("{file}:{}", at + 1);
        let Some(proof) = line.trim_end_matches('|').rsplit('|').next().map(str::trim) else { continue };
        if proof == "open" {
            continue;
        }
        let mut named = 0;
        for reference in proof.split('`').filter(|part| part.contains("::")) {
            named += 1;
            let Some((path, test)) = reference.split_once("::") else { continue };
            let source = fs::read_to_string(root.join(path)).unwrap_or_default();
            let exists = match path.rsplit('.').next() {
                Some("rs") => source.contains(&format!("fn {test}(")),
                _ => source.contains(test),
            };
            if !exists {
                problems.push(format!("{place}: there is no test {reference}"));
            }
        }
        if named == 0 {
            problems.push(format!("{place}: the row names no test and is not open"));
        }
    }
}

/// Returns the source before its own tests.
pub fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}

/// Returns the files below a folder with one of these extensions, sorted.
pub(crate) fn sources(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target" && name != "node_modules") {
                    open.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns a file's path relative to the root, as text.
pub(crate) fn relative(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}
