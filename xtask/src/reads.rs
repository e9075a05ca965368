//! Checks that reads of stores are made with `Call::read`, whose outcome is known or unknown, and that nobody turns unknown into
//! absent by the way.

use std::fs;
use std::path::Path;

use crate::tidy::{relative, sources, without_tests};

/// The sources that are checked.
const SOURCES: [&str; 3] = ["crates", "daemon", "plugins"];
/// What passes the answers of stores on to plugins, and what implements stores and calls.
const EXCEPT: [&str; 5] = [
    "crates/engine/src/front/host_calls.rs",
    "crates/contract/",
    "crates/ports/",
    "crates/testkit/",
    "plugins/postgres/",
];
/// The members of stores that read.
const READS: [&str; 31] = [
    "all",
    "annotations",
    "artifacts",
    "attachment",
    "chat_title",
    "chats",
    "collection",
    "config",
    "count",
    "drafts",
    "find",
    "find_runs",
    "flags",
    "get",
    "ids",
    "list",
    "page",
    "pools",
    "progress",
    "pull_requests",
    "records",
    "reported",
    "run_of",
    "runs",
    "session",
    "session_of_chat",
    "sessions",
    "total",
    "turns",
    "unfinished",
    "waiting",
];
/// The members of a plugin's collections that read.
const RECORDS: [&str; 4] = ["get", "ids", "list", "find"];
/// What makes an unknown outcome an absent one.
const ASSUMES: [&str; 4] = ["ok(", "unwrap_or", "is_ok_and(", "map_or"];

/// Adds a problem for each read that takes a failure for something that is absent.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    for file in SOURCES.iter().flat_map(|folder| sources(&root.join(folder), &["rs"])) {
        let name = relative(root, &file);
        if !name.contains("/src/") || EXCEPT.iter().any(|except| name.starts_with(except)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap_or_default();
        let text = without_tests(&text);
        for line in reads_by_hand(text) {
            problems.push(format!(
                "{name}:{line}: a store is read with Call::within; use Call::read, since a failure says nothing about what is \
                 stored"
            ));
        }
        for line in plugin_reads(text).filter(|_| name.starts_with("plugins/")) {
            problems.push(format!(
                "{name}:{line}: records are read with HostFunction::call; use HostFunction::read, since a failure says nothing about \
                 what is stored"
            ));
        }
        for line in assumptions(text) {
            problems.push(format!(
                "{name}:{line}: an unknown outcome becomes an absent one; use known()?, or or_assume with the reason"
            ));
        }
    }
}

/// Returns the numbers of the lines that read a store with a call whose failure is a plain error.
fn reads_by_hand(text: &str) -> Vec<usize> {
    calls(text, ".within(")
        .filter(|(at, argument)| {
            let before = text[..*at].trim_end().trim_end_matches('?').trim_end();
            let member = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
            let is_of_store = ["limit::STORE,", "limit::STORE_SCAN,", "limit::POLICIES,"];
            is_of_store.iter().any(|limit| argument.starts_with(limit))
                && member.is_some_and(|member| READS.contains(&member))
        })
        .map(|(at, _)| line_of(text, at))
        .collect()
}

/// Returns the numbers of the lines that read a plugin's records with a call whose failure is a plain error.
fn plugin_reads(text: &str) -> impl Iterator<Item = usize> {
    calls(text, ".call(").filter_map(|(at, _)| {
        let member = text[..at].trim_end().rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        RECORDS.contains(&member).then(|| line_of(text, at))
    })
}

/// Returns the numbers of the lines that drop why a read failed.
fn assumptions(text: &str) -> Vec<usize> {
    calls(text, ".known()")
        .filter(|(_, rest)| {
            let next = rest.strip_prefix('.').map(str::trim_start);
            next.is_some_and(|next| ASSUMES.iter().any(|word| next.starts_with(word)))
        })
        .map(|(at, _)| line_of(text, at))
        .collect()
}

/// Returns the positions of a call, each with the text that follows it.
fn calls<'a>(text: &'a str, call: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    text.match_indices(call).map(move |(at, _)| (at, text[at + call.len()..].trim_start()))
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_with_a_plain_error_is_found() {
        for text in [
            "let kept = store.config.within(limit::STORE, (id,)).await?;",
            "store\n    .session_of_chat\n    .within(\n        limit::STORE, (chat,))",
            "read(&list)?.list.within(limit::STORE_SCAN, ())",
            "store.list.within(limit::POLICIES, ())",
        ] {
            assert_eq!(reads_by_hand(text).len(), 1, "{text}");
        }
        for text in [
            "store.config.read(limit::STORE, (id,))",
            "store.set_config.within(limit::STORE, (id, kept))",
            "session.config.within(limit::BACKEND_FACTS, ())",
        ] {
            assert_eq!(reads_by_hand(text), [0; 0], "{text}");
        }
    }

    #[test]
    fn a_read_of_a_plugin_with_a_plain_error_is_found() {
        for text in ["records.get.call((id,))", "self.kept\n    .find\n    .call((wanted,))", "list.call(())"]
        {
            assert_eq!(plugin_reads(text).count(), 1, "{text}");
        }
        for text in ["records.get.read((id,))", "records.put.call((record,))", "get(1).call(())"] {
            assert_eq!(plugin_reads(text).count(), 0, "{text}");
        }
    }

    #[test]
    fn an_outcome_whose_failure_is_dropped_is_found() {
        for text in ["read.known().ok()", "read.known()\n    .unwrap_or_default()", "a.known().map_or(1, f)"]
        {
            assert_eq!(assumptions(text), [1], "{text}");
        }
        for text in ["read.known()?", "read.known().map_err(f)?", "opened.known()"] {
            assert_eq!(assumptions(text), [0; 0], "{text}");
        }
    }
}
