#![allow(clippy::unwrap_used, clippy::expect_used)]
use ostler_contract::PluginSource;
use ostler_js::*;
use std::sync::Arc;
#[tokio::test(flavor = "multi_thread")]
async fn imports() {
    let dir = std::env::temp_dir().join("ostler-js-smoke");
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("a.js");
    std::fs::write(&path, "import {createRequire} from 'node:module';\nexport const name='a'; export const defaults={x:[1,2,{y:null}]};\nawait new Promise(r=>setTimeout(r,5)); export function apply(host, options){ throw new Error('x'+typeof host.log+Object.isFrozen(host)) }").unwrap();
    let log: LogSink = Arc::new(|line| println!("{line}"));
    let source = JsSource::new(JsOptions { log, ..Default::default() });
    let module = source.import(&path, "a").await.unwrap();
    println!("{module:?} {:?}", module.defaults);
}
