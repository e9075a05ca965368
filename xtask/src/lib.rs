//! Checks, generated files and packages of the workspace.

pub mod agents;
mod book;
mod boundary;
mod callers;
pub mod cargo;
mod children;
mod decisions;
pub mod dist;
pub mod examples;
mod features;
pub mod generate;
pub mod history;
pub mod lines;
pub mod node;
mod owners;
pub mod packages;
mod pages;
mod publication;
mod reads;
pub mod tidy;
mod unreliable;
mod unsafety;
pub mod verify;
pub mod vscode;
mod waits;
mod workflow_pages;
