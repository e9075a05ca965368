//! Checks, generated files and benchmarks of the workspace.

pub mod bench;
pub mod tidy;
