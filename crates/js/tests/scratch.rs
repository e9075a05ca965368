#![allow(clippy::unwrap_used, clippy::expect_used)]
mod support;
use support::*;
#[tokio::test(flavor = "multi_thread")]
async fn scratch() {
    let body = std::fs::read_to_string("/tmp/scratch.js").unwrap();
    let (imports, body) = body.split_once("---\n").unwrap_or(("", &body));
    let mut loader = Loader::default();
    loader.options.busy_limit = std::time::Duration::from_millis(200);
    loader.options.log = std::sync::Arc::new(|line| println!("{line}"));
    println!("{}", serde_json::to_string_pretty(&run_with(&loader, imports, body).await.unwrap()).unwrap());
}
