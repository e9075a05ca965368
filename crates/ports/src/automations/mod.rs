//! The automation stores: definitions in files people edit, or in memory; runs in the state database.

mod check;
mod edit;
mod file;
mod format;
mod memory;

use ostler_contract::{RpcError, Thrown};

pub use file::FileAutomations;
pub use memory::MemoryAutomations;

/// The longest id: a UUID fits twice.
const ID_MAX: usize = 80;

fn check_id(id: &str) -> Result<(), String> {
    let mut bytes = id.bytes();
    let good = bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && id.len() <= ID_MAX;
    if good {
        return Ok(());
    }
    Err(format!(
        "the file name must be the automation's id: letters, digits, dashes and underscores, at most \
         {ID_MAX}, starting with a letter or digit"
    ))
}

fn refuse_id(id: &str) -> Result<(), Thrown> {
    check_id(id).map_err(|why| RpcError::invalid_params(why).into())
}

fn none_such(id: &str) -> Thrown {
    let uri = ostler_contract::protocol::uri::automation(id);
    RpcError::session_not_found(format!("No automation at {uri}")).into()
}

fn exists(id: &str) -> Thrown {
    let uri = ostler_contract::protocol::uri::automation(id);
    RpcError::already_exists(format!("{uri} already exists")).into()
}
