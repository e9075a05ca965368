//! Derives for `ostler-contract`.
//!
//! [`Cross`](macro@Cross) lets a struct or enum cross the plugin boundary: it generates the conversion in both
//! directions, the validation, and the shape from which the JavaScript surface and the TypeScript declarations are
//! derived. [`host_calls`] does the same for the calls of plugins to the host.

mod cross;
mod docs;
mod host_calls;
mod names;

use proc_macro::TokenStream;

/// Derives `Cross` for a struct with named fields or for an enum.
///
/// - A struct crosses member by member, so that it can contain functions. `#[cross(data)]` declares it as plain data
///   that crosses in its serde form.
/// - An enum of unit variants crosses as one of its names. Any other enum is plain data with a serde tag.
/// - Names are camelCase in JavaScript; `#[serde(rename = "…")]` and `#[serde(rename_all = "…")]` apply.
#[proc_macro_derive(Cross, attributes(cross, serde))]
pub fn derive_cross(input: TokenStream) -> TokenStream {
    cross::expand(syn::parse_macro_input!(input)).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Generates the surface of a trait of host calls: one forwarding method on `PluginHost` and one live function per
/// method, from the same signature and docs.
///
/// Every method takes `&self` and `caller: &Caller` first. A method that returns `Pending<T>` returns a promise in
/// JavaScript; one that returns `Result<T, Thrown>` is synchronous. `#[inner]` excludes a method from the surface.
#[proc_macro_attribute]
pub fn host_calls(_: TokenStream, item: TokenStream) -> TokenStream {
    host_calls::expand(syn::parse_macro_input!(item)).unwrap_or_else(syn::Error::into_compile_error).into()
}
