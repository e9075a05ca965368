//! Recorded cases with their outcomes, run in the engine.
//!
//! - `recorded/cases.json`: calls that tests of Node make, with the answers of Node; `record.mjs` made it and says from which
//!   npm packages (MIT). The tests themselves are not copied.
//! - `recorded/buffer.json`, `expressions.json` and `streams.json`: calls, expressions and programs for the cases of Node's own
//!   tests (MIT), with the answers of Node; `record-node.mjs` made them. `recorded/programs` has the programs.
//! - The data of the web-platform-tests (`url`, `urlpattern`; BSD 3-Clause) and of Punycode, as the crates of `Cargo.lock`
//!   that implement them publish it; it is read from their sources.
//!
//! `known.json` names the cases that differ, with the reason: another one fails, and one that no longer differs has to be
//! removed.
#![allow(clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;
use ostler_contract::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

/// The sources of a crate that this workspace uses on this platform: the build has fetched no others.
fn sources(name: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", "host-tuple"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let metadata: Value = serde_json::from_slice(&asked.stdout).unwrap();
    let package = metadata["packages"].as_array().unwrap().iter().find(|package| package["name"] == name);
    Path::new(package.unwrap()["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}

/// Runs the cases of a file with a function of `run.mjs`, of which there are at least so many.
async fn holds(function: &str, file: &Path, least: u64) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let program = format!(
        "import * as all from {};\nexport const apply = (host) => host.registerTool({{ definition: {{ name: 'run' }}, \
         run: (text) => all.{function}(JSON.parse(text)) }});",
        json!(folder().join("run.mjs"))
    );
    let plugin =
        Loader::default().text(&program).await.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    let answer = plugin.run("run", Value::String(text)).await;
    let answer = answer.unwrap_or_else(|thrown| panic!("{function}: {}", thrown.for_log()));
    assert!(answer["ran"].as_u64().unwrap() >= least, "only {} cases", answer["ran"]);
    let known = std::fs::read_to_string(folder().join("known.json")).unwrap();
    let mut known: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(&known).unwrap();
    let known = known.remove(function).unwrap_or_default();
    let rows = answer["rows"].as_array().unwrap();
    let labels: BTreeSet<&str> = rows.iter().map(|row| row[0].as_str().unwrap()).collect();
    let new: Vec<String> = rows
        .iter()
        .filter(|row| !known.contains_key(row[0].as_str().unwrap()))
        .map(|row| format!("{}\n  here     {}\n  expected {}", row[0].as_str().unwrap(), row[1], row[2]))
        .collect();
    assert!(new.is_empty(), "{} of {} cases:\n{}", new.len(), answer["ran"], new.join("\n"));
    let gone: Vec<&String> = known.keys().filter(|label| !labels.contains(label.as_str())).collect();
    assert!(gone.is_empty(), "no longer different, remove from known.json: {gone:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_tests_of_node() {
    holds("calls", &folder().join("cases.json"), 1200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_tests_of_buffer() {
    holds("invocations", &folder().join("buffer.json"), 2500).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expressions_of_the_tests_of_util() {
    holds("expressions", &folder().join("expressions.json"), 900).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_the_tests_of_streams() {
    holds("programs", &folder().join("streams.json"), 300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_of_the_web_platform_tests() {
    holds("parsing", &sources("url").join("tests/urltestdata.json"), 700).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn setters_of_the_web_platform_tests() {
    holds("setting", &sources("url").join("tests/setters_tests.json"), 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_of_the_web_platform_tests() {
    holds("patterns", &sources("urlpattern").join("src/testdata/urlpatterntestdata.json"), 300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_in_punycode() {
    holds("labels", &sources("idna").join("tests/punycode_tests.json"), 15).await;
}
