#![no_main]

// Those that the laws name as modules of their crate.
use ostler_protocol::{error, message, sent, surrogates, uri};

#[allow(dead_code, reason = "other targets have the other laws")]
#[path = "../../crates/protocol/src/fuzzing.rs"]
mod fuzzing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::frames(data));
