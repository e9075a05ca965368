//! The names of settings and environment variables about proxies: those of an editor, and those that programs read.

/// The setting with the address of a proxy: a URL, which can contain a password.
pub const SETTING: &str = "http.proxy";
/// The setting with the addresses that are reached without the proxy: a list.
pub const EXCEPTIONS_SETTING: &str = "http.noProxy";
/// The setting with the Kerberos principal of the proxy.
pub const PRINCIPAL_SETTING: &str = "http.proxyKerberosServicePrincipal";

/// The variables with the address of a proxy for HTTP and HTTPS, in the spellings that programs read: curl ignores `HTTP_PROXY`.
pub const HTTP_VARIABLES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
/// The variables with the address of a proxy for all schemes.
pub const ALL_VARIABLES: [&str; 2] = ["ALL_PROXY", "all_proxy"];
/// The variables with the addresses that are reached without a proxy, separated by commas.
pub const EXCEPTIONS_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Returns the variables with the address of a proxy.
pub fn address_variables() -> impl Iterator<Item = &'static str> {
    HTTP_VARIABLES.into_iter().chain(ALL_VARIABLES)
}

/// Returns all variables of proxies.
pub fn variables() -> impl Iterator<Item = &'static str> {
    address_variables().chain(EXCEPTIONS_VARIABLES)
}
