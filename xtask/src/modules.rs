//! Which folders of a crate's sources may import which: the modules of the engine, checked as crates are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::tidy::{relative, sources};

/// The crate whose folders are checked.
const SOURCES: &str = "crates/engine/src";

/// The folders each folder may import beside itself. A new edge is a line here and one in ARCHITECTURE.md.
const FOLDERS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("users", &["core"]),
    ("usage", &["core", "users"]),
    ("resources", &["core", "users", "usage"]),
    ("workspace", &["core", "users", "usage", "resources"]),
    ("sessions", &["core", "users", "usage", "resources", "workspace"]),
    ("automations", &["core", "users", "usage", "resources", "workspace", "sessions"]),
    ("channels", &["core", "users", "usage", "resources", "workspace", "sessions", "automations"]),
    ("front", &["core", "users", "usage", "resources", "workspace", "sessions", "automations", "channels"]),
    (
        "host",
        &["core", "users", "usage", "resources", "workspace", "sessions", "automations", "channels", "front"],
    ),
];

/// Imports that are not allowed and still there: the file, and the folder it imports. Remove a row with its import.
const REMAINING: &[(&str, &str)] = &[
    ("automations/catalogue.rs", "host"),
    ("automations/check.rs", "host"),
    ("automations/clockwork.rs", "host"),
    ("automations/fire.rs", "host"),
    ("automations/listing.rs", "host"),
    ("automations/noted.rs", "host"),
    ("automations/observer.rs", "host"),
    ("automations/run.rs", "host"),
    ("automations/triggers.rs", "host"),
    ("automations/watching.rs", "host"),
    ("channels/plugin/mod.rs", "host"),
    ("channels/plugin/publish.rs", "host"),
    ("channels/plugin/subscribe.rs", "front"),
    ("channels/plugin/subscribe.rs", "host"),
    ("channels/root_settings.rs", "front"),
    ("channels/root_settings.rs", "host"),
    ("channels/telemetry.rs", "front"),
    ("channels/telemetry.rs", "host"),
    ("front/advertised.rs", "host"),
    ("front/commands/sessions.rs", "host"),
    ("front/commands/terminals.rs", "host"),
    ("front/completions.rs", "host"),
    ("front/connection.rs", "host"),
    ("front/host_calls.rs", "host"),
    ("front/mentions.rs", "host"),
    ("front/peer.rs", "host"),
    ("front/plugin_commands.rs", "host"),
    ("sessions/actor.rs", "host"),
    ("sessions/around.rs", "host"),
    ("sessions/attachments.rs", "host"),
    ("sessions/bound.rs", "host"),
    ("sessions/catalogue.rs", "host"),
    ("sessions/chats.rs", "host"),
    ("sessions/client_settings.rs", "host"),
    ("sessions/config.rs", "host"),
    ("sessions/create.rs", "host"),
    ("sessions/create_chat_tool.rs", "host"),
    ("sessions/drafts.rs", "host"),
    ("sessions/mcp_servers.rs", "host"),
    ("sessions/moving.rs", "host"),
    ("sessions/places.rs", "host"),
    ("sessions/preamble.rs", "host"),
    ("sessions/requests.rs", "host"),
    ("sessions/rest.rs", "host"),
    ("sessions/tools.rs", "host"),
];

/// Finds imports that are not allowed, and rows of [`REMAINING`] whose import is gone.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    let mut remaining: BTreeSet<(&str, &str)> = REMAINING.iter().copied().collect();
    for file in sources(&root.join(SOURCES), &["rs"]) {
        let inside = relative(&root.join(SOURCES), &file);
        let Some(folder) = inside.split(['/', '.']).next().filter(|_| inside != "lib.rs") else { continue };
        let Some((_, allowed)) = FOLDERS.iter().find(|(name, _)| *name == folder) else {
            problems.push(format!("{SOURCES}/{inside}: the folder {folder} has no row among the modules"));
            continue;
        };
        let text = fs::read_to_string(&file).unwrap_or_default();
        for (import, line) in imports(&text) {
            if import == folder || allowed.contains(&import) {
                continue;
            }
            let row = REMAINING.iter().find(|row| **row == (&*inside, import));
            match row {
                Some(row) => drop(remaining.remove(row)),
                None => problems.push(format!("{SOURCES}/{inside}:{line}: {folder} may not import {import}")),
            }
        }
    }
    for (file, import) in remaining {
        problems.push(format!("{SOURCES}/{file} no longer imports {import}; remove its row from REMAINING"));
    }
}

/// What follows `crate::` in code, with its line. A list of modules there is named as `{`: each is imported alone, so
/// that this sees it.
fn imports(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")).flat_map(
        |(at, line)| {
            let names = line.match_indices("crate::").filter(|(start, _)| {
                // No `ostler_crate::` and no `$crate::`.
                !line[..*start].ends_with(|before: char| before.is_alphanumeric() || "_$".contains(before))
            });
            names.map(move |(start, word)| {
                let rest = &line[start + word.len()..];
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                (if end == 0 { "{" } else { &rest[..end] }, at + 1)
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::imports;

    #[test]
    fn an_import_is_found_wherever_it_stands() {
        let text = "use crate::core::log::Log;\n// crate::host\nfn f(host: &crate::host::Host) -> crate::users::A {}\n\
                    use crate::{sessions, usage};\n$crate::front::x!();";
        let found: Vec<_> = imports(text).collect();
        assert_eq!(found, [("core", 1), ("host", 3), ("users", 3), ("{", 4)]);
    }
}
