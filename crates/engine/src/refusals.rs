//! Refusals that more than one command gives.

use ostler_protocol::RpcError;

/// A provider that is not here, or that the asker may not use.
pub(crate) fn no_provider(provider: &str) -> RpcError {
    RpcError::provider_not_found(format!("No provider called {provider}"))
}

/// The backend of a kept session is not here any more.
pub(crate) fn not_loaded(provider: &str) -> String {
    format!("{provider} is not loaded on this host")
}

/// The host has no automation store.
pub(crate) fn no_automations() -> RpcError {
    RpcError::method_not_found("this host keeps no automations")
}

/// Nobody registered the scheme.
pub(crate) fn nothing_serves(scheme: &str) -> RpcError {
    RpcError::method_not_found(format!("nothing here serves {scheme}:"))
}

/// A URI of no kind of channel.
pub(crate) fn no_channel(uri: &str) -> RpcError {
    RpcError::not_found(format!("there is no channel {uri}"))
}
