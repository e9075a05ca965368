//! The page of the API and its document say what the rows say; `cargo xtask generate` writes them.

use std::path::{Path, PathBuf};

use super::openapi::{STATUSES, document};
use super::rows::{ROWS, Row};

/// Set by `cargo xtask generate`: the tests write the files instead of comparing them.
const WRITE: &str = "OSTLER_WRITE_PAGES";
const REQUESTS: &str =
    "| request | description | body or query | required grant | command |\n|---|---|---|---|---|\n";
const CAUSES: &str = "| status | cause |\n|---|---|\n";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

/// Writes a file, or compares it.
fn settle(name: &str, text: &str) {
    let path = file(name);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, text).unwrap();
    } else {
        let held = std::fs::read_to_string(path).unwrap_or_default();
        assert!(held == text, "docs/{name} is not what the rows say; run cargo xtask generate");
    }
}

fn request(row: &Row) -> String {
    let members = row.members().into_iter().map(|member| {
        let mark = if member.required { "" } else { "?" };
        format!("`{}`{mark}", member.name)
    });
    let query = row.query.keys().map(|name| format!("`?{name}=`"));
    let members: Vec<String> = members.chain(query).collect();
    let grant = match row.grant() {
        grant if grant.contains(':') => {
            let words = grant.split(' ').map(|word| match word.contains(':') {
                true => format!("`{word}`"),
                false => word.to_owned(),
            });
            words.collect::<Vec<_>>().join(" ")
        }
        grant => grant,
    };
    let command = row.command.map(|command| format!("`{command}`")).unwrap_or_default();
    let method = row.method.name();
    format!("| `{method} {}` | {} | {} | {grant} | {command} |\n", row.path, row.summary, members.join(", "))
}

/// The page with the table below a head replaced.
fn with_table(page: &str, head: &str, rows: &str) -> String {
    let (before, rest) = page.split_once(head).unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    format!("{before}{head}{rows}\n{after}")
}

#[test]
fn the_page_has_each_request_and_status() {
    let requests: String = ROWS.iter().map(request).collect();
    let causes: String =
        STATUSES.iter().map(|status| format!("| {} | {} |\n", status.code, status.cause)).collect();
    let page = std::fs::read_to_string(file("http.md")).unwrap();
    let page = with_table(&with_table(&page, REQUESTS, &requests), CAUSES, &causes);
    settle("http.md", &page);
}

#[test]
fn the_document_is_in_the_repository() {
    settle("openapi.json", &(serde_json::to_string_pretty(&document(None)).unwrap() + "\n"));
}
