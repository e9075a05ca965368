//! Names of the contract that the JavaScript engine must not contain.
//!
//! `crates/js` iterates over the declarations of the contract, so it names no registration method and no host call. The
//! names come from those declarations: a new point or call is checked without a change here.

use std::fs;
use std::path::Path;

use ostler_contract::host::HOST_CALLS;
use ostler_contract::points::POINTS;

use crate::tidy::{relative, sources, without_tests};

/// The sources of the JavaScript engine: its Rust code, and the modules that it provides to plugins.
const ENGINE: [(&str, &str); 2] = [("crates/js/src", "rs"), ("crates/js/std", "js")];

/// The host in memory for tests of plugins, of which the engine knows nothing.
const TEST_HOST: &str = "sdk/testing.js";

/// Adds a problem for each name of a registration method or host call in the JavaScript engine.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    for (folder, extension) in ENGINE {
        for file in sources(&root.join(folder), &[extension]) {
            // What tests of plugins import, which has its place in the SDK.
            if file.ends_with(TEST_HOST) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap_or_default();
            for (at, name) in named(without_tests(&text)) {
                problems.push(format!(
                    "{}:{at}: {name}: the JavaScript engine names no registration method and no host call",
                    relative(root, &file)
                ));
            }
        }
    }
}

/// Returns each name of the contract in a source, with its line number.
fn named(text: &str) -> Vec<(usize, &'static str)> {
    let names: Vec<&str> =
        POINTS.iter().map(|point| point.method).chain(HOST_CALLS.iter().map(|call| call.name)).collect();
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        found.extend(names.iter().filter(|name| names_it(line, name)).map(|name| (at + 1, *name)));
    }
    found
}

/// Returns whether a line contains the name as a whole word. A name that is a common English word, such as `on` and
/// `send`, only counts as a member of the host object.
fn names_it(line: &str, name: &str) -> bool {
    let is_common = name.bytes().all(|byte| byte.is_ascii_lowercase());
    line.match_indices(name).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + name.len()..]);
        let whole = !before.ends_with(is_word) && !after.starts_with(is_word);
        whole && (!is_common || before.trim_end().ends_with("host.") || before.ends_with("host['"))
    })
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_and_call_is_found_under_its_own_name() {
        let methods = POINTS.iter().map(|point| point.method);
        for name in methods.chain(HOST_CALLS.iter().map(|call| call.name)) {
            let text = format!("const a = 1;\nhost.{name}(a);\n");
            assert!(named(&text).contains(&(2, name)), "{name}: {:?}", named(&text));
        }
    }

    #[test]
    fn common_words_and_parts_of_words_are_no_names() {
        for line in
            ["socket.on('end', f)", "ghost.send(x)", "host.sender", "registerAgents()", "host.once('a')"]
        {
            assert_eq!(named(line), [], "{line}");
        }
        assert_eq!(named("export { registerAgent }"), [(1, "registerAgent")]);
        assert_eq!(named("await host['problem'](line)"), [(1, "problem")]);
    }

    #[test]
    fn the_modules_served_to_plugins_are_read_too() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            (
                "crates/js/src/engine/mod.rs",
                "call(\"fireTrigger\");\n#[cfg(test)]\nmod tests { registerTool }\n",
            ),
            ("crates/js/std/internal/bridge.js", "\nexport const f = (host) => host.registerVault({});\n"),
        ] {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let mut problems = Vec::new();
        check(root.path(), &mut problems);
        let places: Vec<&str> =
            problems.iter().filter_map(|line| line.split(": the JavaScript").next()).collect();
        assert_eq!(
            places,
            [
                "crates/js/src/engine/mod.rs:1: fireTrigger",
                "crates/js/std/internal/bridge.js:2: registerVault"
            ]
        );
    }
}
