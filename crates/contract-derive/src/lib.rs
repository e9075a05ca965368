//! Derives for `ostler-contract`.
//!
//! [`Cross`](macro@Cross) turns a plain struct or enum into something that crosses the plugin boundary: its
//! conversion both ways, its check, and the shape from which the JavaScript surface and the TypeScript
//! declarations are made. [`host_calls`] does the same for the calls a plugin makes on its host.

mod cross;
mod docs;
mod host_calls;
mod names;

use proc_macro::TokenStream;

/// Derives `Cross` for a struct with named fields or for an enum.
///
/// - A struct crosses member by member, so that it may hold functions. `#[cross(data)]` on it says that it is
///   plain data, carried by its serde form.
/// - An enum of unit variants crosses as one of its names. Any other enum is plain data with a serde tag.
/// - Names are camelCase on the other side; `#[serde(rename = "…")]` and `#[serde(rename_all = "…")]` are
///   obeyed.
#[proc_macro_derive(Cross, attributes(cross, serde))]
pub fn derive_cross(input: TokenStream) -> TokenStream {
    cross::expand(syn::parse_macro_input!(input)).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes the surface of a trait of host calls: one forwarding method on `PluginHost` and one live function
/// per method, from the same signature and docs.
///
/// Every method takes `&self` and `caller: &Caller` first. One that answers `Pending<T>` is a promise on the
/// other side; one that answers `Result<T, Thrown>` returns at once. `#[inner]` keeps a method off the surface.
#[proc_macro_attribute]
pub fn host_calls(_: TokenStream, item: TokenStream) -> TokenStream {
    host_calls::expand(syn::parse_macro_input!(item)).unwrap_or_else(syn::Error::into_compile_error).into()
}
