//! `node:http2` against servers that run on Node: a program sees the same here as on Node.
//!
//! Where there is no Node (`support::node`), nothing is compared; `.ci/run` fails then.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::*;
use ostler_contract::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http2")
}

/// The servers, until they are dropped, and their addresses.
struct Servers(Child, Value);

impl Servers {
    fn start(node: &Path) -> Self {
        let mut child = Command::new(node)
            .arg(folder().join("server.mjs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, serde_json::from_str(&line).expect("the servers did not start"))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_what_it_sees_on_node() {
    let Some(node) = node() else {
        not_run("Node is not installed");
        return;
    };
    let servers = Servers::start(&node);
    let ran = Command::new(&node)
        .arg("--no-warnings")
        .arg(folder().join("run.mjs"))
        .arg(servers.1.to_string())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let theirs: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let text = format!(
        "import program from {};\nexport const apply = (host) => host.registerTool({{ definition: {{ name: 'run' }}, run: \
         async (servers) => JSON.stringify(await program(servers)) }});",
        json!(folder().join("program.mjs"))
    );
    let loader = Loader::default();
    let plugin = loader.text(&text).await.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    let said = tokio::time::timeout(LONG / 2, plugin.run("run", servers.1.clone())).await;
    let said = said
        .unwrap_or_else(|_| panic!("no answer: {:#?}", loader.lines.texts()))
        .unwrap_or_else(|thrown| panic!("{}\n{:#?}", thrown.for_log(), loader.lines.texts()));
    let ours: Value = serde_json::from_str(said.as_str().unwrap()).unwrap();
    let (ours, theirs) = (ours.as_array().unwrap(), theirs.as_array().unwrap());
    let differing: Vec<String> = ours
        .iter()
        .zip(theirs)
        .enumerate()
        .filter(|(_, (ours, theirs))| ours != theirs)
        .map(|(at, (ours, theirs))| format!("[{at}]\n  here {ours}\n  Node {theirs}"))
        .collect();
    assert!(differing.is_empty(), "{}\n{:#?}", differing.join("\n"), loader.lines.texts());
    assert_eq!(ours.len(), theirs.len());
    assert!(loader.lines.texts().is_empty(), "{:#?}", loader.lines.texts());
}
