//! The configured plugins as users and clients see them, and changes of the configuration. Used by the command line,
//! the HTTP API and the root channel.

mod change;
mod install;
mod npm;
mod rows;

pub use change::{Change, Changed, set_enabled};
pub use install::{Installed, install, remove, update};
pub use rows::{Marks, Row, fresh, importer, named, running};
