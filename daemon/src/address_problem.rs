//! An address that cannot be listened on, as `start` and `doctor` describe it.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

/// Why an address cannot be listened on, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressProblem {
    /// `<address>: <reason>`
    pub found: String,
    /// What to do.
    pub fix: String,
}

impl AddressProblem {
    /// Reads the error of an attempt to listen on an address.
    pub fn of(address: SocketAddr, error: &Error) -> Self {
        match error.kind() {
            ErrorKind::AddrInUse => Self {
                found: format!("{address}: it is in use by another program"),
                fix: format!(
                    "stop it (find it with ss -ltnp 'sport = :{}'), or choose another port with \"port\" in the configuration or --port",
                    address.port()
                ),
            },
            _ => Self {
                found: format!("{address}: {error}"),
                fix: "choose another address with \"host\" and \"port\" in the configuration, or --host and --port"
                    .to_owned(),
            },
        }
    }
}
