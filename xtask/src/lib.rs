//! Checks, generated files and benchmarks of the workspace.

pub mod tidy;
