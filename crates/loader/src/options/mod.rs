//! A plugin's options: merged, their secrets read, checked against its schema.

mod check;
mod secrets;
mod shown;
pub mod walk;

pub use check::{check, unknown_keys};
pub use secrets::{NamedSecret, is_reference, resolve};
pub use shown::{Known, Untold, patched, shown};
