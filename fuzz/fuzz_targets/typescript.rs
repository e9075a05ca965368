#![no_main]

// The modules that it needs, since their crate needs a JavaScript engine.
#[allow(dead_code, unused_imports, reason = "the rest is for the engine")]
#[path = "../../crates/js/src/typescript/mod.rs"]
mod typescript;

libfuzzer_sys::fuzz_target!(|data: &[u8]| typescript::fuzzing::typescript(data));
