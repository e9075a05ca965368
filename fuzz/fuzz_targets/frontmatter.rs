#![no_main]

// The modules that it needs, since their crate needs SQLite.
#[path = "../../crates/ports/src/frontmatter.rs"]
mod frontmatter;
#[path = "../../crates/ports/src/fuzzing.rs"]
mod fuzzing;
#[path = "../../crates/ports/src/yaml.rs"]
mod yaml;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::frontmatter(data));
