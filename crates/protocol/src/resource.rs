//! Resources that users sign in to.

use ahp_types::state::ProtectedResourceMetadata;

/// Returns a resource with only a name. The wire type has no such constructor.
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
