//! What plugins find of Node and the web.
#![allow(clippy::unwrap_used, clippy::expect_used)]

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
