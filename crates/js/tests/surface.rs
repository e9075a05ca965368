//! What plugins find of Node and the web.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use ostler_contract::protocol::names::SDK;
use support::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_module_loads_and_exports_something() {
    let surface = ostler_js::surface().await.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    for (name, exports) in &surface.modules {
        assert!(exports.len() > 1 || name == "@ostler/sdk", "{name}: {exports:?}");
        if name != "@ostler/sdk" {
            assert!(exports.iter().any(|export| export == "default"), "{name} has no default export");
        }
    }
}

/// Modules import one another: whichever is first, nothing in it may be used before it is there.
#[tokio::test(flavor = "multi_thread")]
async fn every_module_may_be_the_first() {
    let surface = ostler_js::surface().await.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    let mut failed = Vec::new();
    for name in surface.modules.keys() {
        let own = name == SDK;
        let spellings = if own { vec![name.clone()] } else { vec![format!("node:{name}"), name.clone()] };
        for module in spellings.iter().filter(|module| *module != "test") {
            let all = format!(
                "return Object.keys(all).every((key) => all[key] !== undefined) && ({own} || all.default !== undefined);"
            );
            for (imports, read) in [
                (format!("import * as all from '{module}';"), all.as_str()),
                (format!("const all = await import('{module}');"), all.as_str()),
                (
                    format!(
                        "import {{ createRequire }} from 'node:module';\nconst one = createRequire(import.meta.url)('{module}');"
                    ),
                    "return one !== undefined;",
                ),
            ] {
                match run_with(&Loader::default(), &imports, read).await {
                    Ok(said) if said == true => {}
                    said => failed.push(format!("{imports} {said:?}")),
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
