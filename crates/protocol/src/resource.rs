//! Resources people sign in against.

use ahp_types::state::ProtectedResourceMetadata;

/// A resource of which nothing is said but its name. The wire type has no such value of its own.
pub fn bare_resource(resource: impl Into<String>) -> ProtectedResourceMetadata {
    ProtectedResourceMetadata {
        resource: resource.into(),
        resource_name: None,
        resource_documentation: None,
        authorization_servers: None,
        jwks_uri: None,
        scopes_supported: None,
        bearer_methods_supported: None,
        resource_signing_alg_values_supported: None,
        resource_policy_uri: None,
        resource_tos_uri: None,
        required: None,
    }
}
