//! A plugin's options: merged, their secrets read, checked against its schema.

mod check;
mod from_env;
pub mod place;
mod secrets;
mod shown;
pub mod walk;

pub use check::{check, holds, misfit, unknown_keys, wrong};
pub use from_env::fill;
pub use secrets::{NamedSecret, is_reference, leave_out, references, resolve};
pub use shown::{
    Known, Untold, Why, credentials, holds_set, patched, replaced, shown, shown_value, without_password,
    without_userinfo,
};
