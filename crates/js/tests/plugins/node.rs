//! Node's modules and the web's globals, held against what Node 24 says: each
//! fixture answers what it saw, and its `.json` is what it saw on Node.

use crate::support::*;
use ostler_contract::*;

async fn same_as_node(name: &str) {
    let folder = Folder::new();
    let module = fixture(&format!("node/{name}.mjs"));
    let path = folder.write(
        "index.mjs",
        &format!(
            "import run from {};\nexport const apply = (host) => host.registerTool({{ definition: {{ name: 'run' }}, run }});",
            json!(module)
        ),
    );
    let loader = Loader::default();
    let plugin = loader
        .load(&path, &name.replace('_', "-"), Value::Null)
        .await
        .unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    let said = plugin.run("run", Value::Null).await;
    let said = said.unwrap_or_else(|thrown| panic!("{}\n{:#?}", thrown.for_log(), loader.lines.texts()));
    let text = std::fs::read_to_string(module.with_extension("json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let differences: Vec<String> = differences("", &said, &expected);
    assert!(differences.is_empty(), "{name}:\n{}\n{:#?}", differences.join("\n"), loader.lines.texts());
}

fn differences(place: &str, ours: &Value, theirs: &Value) -> Vec<String> {
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            let rows = ours.iter().zip(theirs).enumerate();
            rows.flat_map(|(at, (ours, theirs))| differences(&format!("{place}[{at}]"), ours, theirs))
                .collect()
        }
        (Value::Object(ours), Value::Object(theirs)) if ours.keys().eq(theirs.keys()) => {
            let rows = ours.iter().zip(theirs.values());
            rows.flat_map(|((at, ours), theirs)| differences(&format!("{place}.{at}"), ours, theirs))
                .collect()
        }
        _ if ours == theirs => Vec::new(),
        _ => vec![format!("{place}\n  here {ours}\n  Node {theirs}")],
    }
}

macro_rules! same_as_node {
    ($($name:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                same_as_node(stringify!($name)).await;
            }
        )*
    };
}

same_as_node! {
    assert async_hooks buffer child ciphers crypto crypto_groups events fs honest http http1 http_left http2_server http2_settings interfaces internals intl intl_rounding keys legacy messaging net patched path perf process regexp_sets stdio stream stream_web streams text timers tls util v8 vm web webassembly wasm_realms webcrypto workers zlib
}

/// Packages start `process.execPath` with a script: it is a Node where `PATH` names one, and this program is not started
/// as one.
#[tokio::test(flavor = "multi_thread")]
async fn a_script_is_started_with_node_or_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let node = folder.write("node", "#!/bin/sh\necho \"started with $*\"\n");
    std::fs::set_permissions(&node, std::fs::Permissions::from_mode(0o755)).unwrap();
    let loader = Loader::default();
    let text = "import { execFileSync, spawnSync } from 'node:child_process';\n\
                import process from 'node:process';\n\
                async function run({ path, args }) {\n\
                  process.env.PATH = path;\n\
                  try { return [process.execPath, execFileSync(process.execPath, args, { encoding: 'utf8' })]; }\n\
                  catch (error) { return [process.execPath, error.code, error.message]; }\n\
                }\n\
                export const apply = (host) => host.registerTool({ definition: { name: 'run' }, run });";
    let plugin = loader.text(text).await.unwrap();
    let run = |path: &str, args: &[&str]| plugin.run("run", json!({ "path": path, "args": args }));
    let path = node.parent().unwrap().to_str().unwrap().to_owned();
    let said = run(&format!("/nowhere:{path}"), &["child.js", "7"]).await.unwrap();
    assert_eq!(said, json!([node.to_str().unwrap(), "started with child.js 7\n"]));

    let own = std::env::current_exe().unwrap();
    for args in [&["/x/child.js", "7"][..], &["--no-warnings", "child.mjs"], &["-e", "1"]] {
        let said = run("", args).await.unwrap();
        assert_eq!((said[0].as_str(), said[1].as_str()), (own.to_str(), Some("ERR_FEATURE_UNAVAILABLE")));
        assert!(said[2].as_str().unwrap().contains("Install Node where PATH names it"), "{said}");
    }
    // The caller may ignore the error.
    loader.lines.wait_for("is ostler and not Node: it cannot run /x/child.js").await;
    // What is no script is started.
    let said = run("", &["--list"]).await.unwrap();
    assert!(said[1].as_str().unwrap().contains("a_script_is_started_with_node_or_refused"), "{said}");
}
