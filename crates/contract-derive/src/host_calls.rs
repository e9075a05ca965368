//! The attribute on the trait of host calls.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{FnArg, GenericArgument, ItemTrait, Pat, PathArguments, Result, ReturnType, TraitItem, Type};

use crate::{docs, names};

pub fn expand(mut item: ItemTrait) -> Result<TokenStream> {
    let mut forwards = Vec::new();
    let mut rows = Vec::new();
    let mut refusals = Vec::new();
    for entry in &mut item.items {
        let TraitItem::Fn(method) = entry else { continue };
        let inner = method.attrs.iter().any(|attribute| attribute.path().is_ident("inner"));
        let checked = method.attrs.iter().find(|attribute| attribute.path().is_ident("checked"));
        let checked = checked.map(|attribute| attribute.parse_args::<syn::Ident>()).transpose()?;
        method
            .attrs
            .retain(|attribute| !attribute.path().is_ident("inner") && !attribute.path().is_ident("checked"));
        let signature = &method.sig;
        let ident = &signature.ident;
        let mut arguments = Vec::new();
        for input in signature.inputs.iter().skip(2) {
            let FnArg::Typed(argument) = input else { continue };
            let Pat::Ident(name) = &*argument.pat else {
                return Err(syn::Error::new_spanned(&argument.pat, "name the argument"));
            };
            arguments.push((name.ident.clone(), (*argument.ty).clone()));
        }
        let key = names::camel(&ident.to_string());
        let (answer, now) = answer(&signature.output)?;
        let output = &signature.output;
        let attributes: Vec<_> = method.attrs.iter().filter(|a| a.path().is_ident("doc")).collect();
        let (idents, types): (Vec<_>, Vec<_>) = arguments.iter().cloned().unzip();
        if method.default.is_none() {
            let refused = quote! { Err(crate::problem::no_host(#key)) };
            let refused = if now {
                refused
            } else {
                quote! { crate::live::ready(#refused) }
            };
            refusals.push(quote! {
                fn #ident(&self, _: &crate::host::Caller, #(_: #types),*) #output { #refused }
            });
        }
        // The plugin's side rejects what it can before it calls the host.
        let check = checked.map(|check| quote! { self.#check(#(&#idents),*)?; });
        forwards.push(quote! {
            #(#attributes)*
            pub fn #ident(&self, #(#idents: #types),*) #output {
                #check
                self.calls().#ident(self.caller(), #(#idents),*)
            }
        });
        if inner {
            continue;
        }
        let text = docs::text(&method.attrs);
        let params: Vec<String> = idents.iter().map(|ident| names::camel(&ident.to_string())).collect();
        let wrapper = if now { format_ident!("Func") } else { format_ident!("HostFunction") };
        rows.push(quote! {
            crate::host::HostCall {
                name: #key,
                docs: #text,
                params: &[#(#params),*],
                shape: || <crate::call::#wrapper<fn(#(#types),*) -> #answer> as crate::cross::Cross>::shape(),
                live: |host| {
                    let host = host.clone();
                    let named = crate::call::FunctionName {
                        plugin: Some(host.id().clone()), method: #key, params: &[#(#params),*],
                    };
                    let call = crate::call::#wrapper::<fn(#(#types),*) -> #answer>::new(
                        move |(#(#idents,)*)| host.#ident(#(#idents),*),
                    );
                    crate::cross::Cross::into_live(crate::cross::Cross::named(call, named))
                },
            }
        });
    }
    Ok(quote! {
        #item

        impl crate::host::PluginHost {
            #(#forwards)*
        }

        /// No host: rejects every call. Plugins that are tested without a host receive it.
        #[derive(Debug, Clone, Copy, Default)]
        pub struct NoHost;

        impl HostCalls for NoHost {
            #(#refusals)*
        }

        /// All calls of plugins to the host, in the order of their declaration.
        pub const HOST_CALLS: &[crate::host::HostCall] = &[#(#rows),*];
    })
}

/// The result of a method, and whether it is synchronous.
fn answer(output: &ReturnType) -> Result<(Type, bool)> {
    let wrong = || syn::Error::new_spanned(output, "a host call answers Pending<T> or Result<T, Thrown>");
    let ReturnType::Type(_, ty) = output else { return Err(wrong()) };
    let Type::Path(path) = &**ty else { return Err(wrong()) };
    let Some(last) = path.path.segments.last() else { return Err(wrong()) };
    let now = match last.ident.to_string().as_str() {
        "Pending" => false,
        "Result" => true,
        _ => return Err(wrong()),
    };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Err(wrong()) };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) => Ok((inner.clone(), now)),
        _ => Err(wrong()),
    }
}
