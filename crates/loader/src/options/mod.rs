//! The options of a plugin: merged, with secrets, checked against its schema.

mod check;
mod from_env;
pub mod option_path;
mod redaction;
mod secrets;
pub mod walk;

pub use check::{UnknownOption, check, check_schema, misfit, unknown_options, wrong};
pub use from_env::fill;
pub use redaction::{
    PlaceholderError, PlaceholderProblem, SchemaInfo, contains_placeholder, credentials, patched, redacted,
    redacted_value, replaced, without_password, without_userinfo,
};
pub use secrets::{NamedSecret, is_reference, leave_out, references, resolve};
