//! The configured plugins as people and clients see them, and changing what is configured. The command line,
//! the HTTP API and the root channel all come here.

mod change;
mod install;
mod npm;
mod rows;

pub use change::{Change, Changed, set_enabled};
pub use install::{Installed, install, remove, update};
pub use rows::{Marks, Row, fresh, importer, named, running};
