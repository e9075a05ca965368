//! The daemon: what it is put together from, and its command line. The only crate that sees all others.

pub mod announce;
pub mod answer;
pub mod api;
pub mod bundled;
pub mod cli;
pub mod compose;
pub mod config;
pub mod control;
pub mod demo;
pub mod exit;
pub mod log;
pub mod place;
mod plugin_options;
pub mod plugins;
pub mod process;
mod progress;
pub mod record;
mod root_settings;
pub mod run;
pub mod settings;
mod shown;
pub mod token;
mod told;
pub mod verbs;
