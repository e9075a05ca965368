//! Checks, generated files and benchmarks of the workspace.

pub mod bench;
mod boundary;
mod cargo;
pub mod examples;
pub mod generate;
pub mod tidy;
pub mod verify;
