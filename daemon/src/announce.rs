//! The announcement of the daemon once it is up: one block, written in one piece.

use std::net::SocketAddr;

use ostler_protocol::names;
use ostler_telemetry::printable::one_line;

use crate::compose::Composed;
use crate::settings::Settings;

/// Where a daemon listens.
#[derive(Debug, Clone, Copy)]
pub enum Listens {
    /// On this address.
    At(SocketAddr),
    /// On stdin and stdout.
    Stdio,
}

/// Returns the block, with a line break after each line.
pub fn block(
    settings: &Settings,
    composed: &Composed,
    listens: Listens,
    http: Option<SocketAddr>,
    routes: Option<SocketAddr>,
    said: &[String],
) -> String {
    let runtime = format!("ostler {}", env!("CARGO_PKG_VERSION"));
    let paths = settings.paths.join(", ");
    let applied = composed.applied();
    let files: Vec<String> = settings.files.iter().map(|file| file.display().to_string()).collect();
    let or_none = |list: &[String]| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let mut lines = vec![match listens {
        Listens::At(address) => format!("ostler on ws://{address} ({runtime}), serving {paths}"),
        Listens::Stdio => format!("ostler over stdio ({runtime}), serving {paths}"),
    }];
    if let Some(address) = http {
        lines.push(format!("http on http://{address}/api"));
    }
    if let (true, Listens::At(address), None) = (settings.console, listens, routes) {
        let base = settings.public_url.clone().unwrap_or_else(|| format!("http://{address}"));
        lines.push(format!("console on {base}{}", names::route("console", "")));
    }
    lines.extend(settings.public_url.as_ref().map(|url| format!("public URL {url}")));
    lines.push(format!("pid {}", std::process::id()));
    lines.push(composed.automations.clone());
    lines.push(format!("plugins {}", or_none(&applied)));
    lines.push(format!("config {}", or_none(&files)));
    lines.push(composed.vault.clone());
    if let Some(people) = composed.host.access.gate.people() {
        let issuer = people.issuer().map(|issuer| format!(" (issuer {issuer})")).unwrap_or_default();
        lines.push(format!("sign-in {}{issuer}", people.resource()));
    }
    lines.push(settings.token.line());
    if let Some(address) = routes {
        lines.push(format!("routes on http://{address}{}/", names::ROUTES));
    }
    if settings.host.advanced_tools {
        lines.push("advanced tools: offered to every session".to_owned());
    }
    if let Some(file) = &settings.wire {
        lines.push(format!("wire to {}", file.display()));
    }
    lines.extend(composed.skipped.iter().map(|line| skipped(line)));
    lines.extend(said.iter().cloned());
    lines.iter().map(|line| format!("{}\n", one_line(line))).collect()
}

/// Begins the line of a dropped item that does not say itself that a plugin was skipped.
const SKIPPED: &str = "skipped: ";

/// Returns a skipped item as a line: that of a plugin which was skipped says so itself.
pub fn skipped(line: &str) -> String {
    match says_skipped(line) {
        true => line.to_owned(),
        false => format!("{SKIPPED}{line}"),
    }
}

/// Returns the item of a line that [`skipped`] made; `None` for other lines.
pub fn skipped_of(line: &str) -> Option<&str> {
    line.strip_prefix(SKIPPED).or_else(|| says_skipped(line).then_some(line))
}

/// Returns whether a line is `plugin <id> skipped: …`.
fn says_skipped(line: &str) -> bool {
    let rest = line.strip_prefix("plugin ").and_then(|rest| rest.split_once(' '));
    rest.is_some_and(|(_, rest)| rest.starts_with(SKIPPED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_item_is_said_to_be_skipped_once_and_found_again() {
        for (line, shown) in [
            ("plugin a skipped: its name is not a slug", "plugin a skipped: its name is not a slug"),
            ("plugin a failed in 3 ms: no", "skipped: plugin a failed in 3 ms: no"),
            ("record b is skipped: no", "skipped: record b is skipped: no"),
            ("plugin", "skipped: plugin"),
        ] {
            assert_eq!(skipped(line), shown);
            assert_eq!(skipped_of(shown), Some(line));
        }
        assert_eq!(skipped_of("plugins a, b"), None);
        assert_eq!(skipped_of("plugin a loading"), None);
    }
}
