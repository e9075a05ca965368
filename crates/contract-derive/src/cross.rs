//! The derive of `Cross`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{
    Attribute, Data, DeriveInput, Field, Fields, GenericArgument, Ident, PathArguments, Result, Type, Variant,
};

use crate::{docs, names};

pub fn expand(input: DeriveInput) -> Result<TokenStream> {
    if !input.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(
            input.generics,
            "what crosses the boundary has no type parameters",
        ));
    }
    match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => expand_struct(&input, fields.named.iter().collect()),
            other => Err(syn::Error::new_spanned(other, "Cross wants named fields")),
        },
        Data::Enum(data) => {
            let variants: Vec<_> = data.variants.iter().collect();
            if variants.iter().all(|variant| variant.fields.is_empty()) {
                expand_names(&input, &variants)
            } else {
                expand_tagged(&input, &variants)
            }
        }
        Data::Union(_) => Err(syn::Error::new_spanned(input.ident, "a union cannot cross the boundary")),
    }
}

fn is_data(attributes: &[Attribute]) -> Result<bool> {
    let mut data = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("cross")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("data") {
                data = true;
                Ok(())
            } else {
                Err(meta.error("Cross knows only `data`"))
            }
        })?;
    }
    Ok(data)
}

fn expand_struct(input: &DeriveInput, fields: Vec<&Field>) -> Result<TokenStream> {
    let data = is_data(&input.attrs)?;
    let name = &input.ident;
    let (text, docs) = (name.to_string(), docs::text(&input.attrs));
    let mut idents = Vec::new();
    let mut keys = Vec::new();
    let mut shapes = Vec::new();
    let mut named = Vec::new();
    for field in fields {
        let Some(ident) = &field.ident else { continue };
        let serde = names::serde(&field.attrs)?;
        let key = serde.rename.clone().unwrap_or_else(|| names::camel(&ident.to_string()));
        shapes.push(field_shape(field, &key, &serde)?);
        let params = params(&field.ty);
        named.push(match params.is_empty() {
            true => quote! {},
            false => quote! {
                let value = ::ostler_contract::cross::Cross::named(value, ::ostler_contract::call::FunctionName {
                    plugin: None, method: #key, params: &[#(#params),*],
                });
            },
        });
        idents.push(ident);
        keys.push(key);
    }
    let shape = quote! {
        fn shape() -> ::ostler_contract::shape::Shape {
            fn object() -> &'static ::ostler_contract::shape::ObjectShape {
                static SHAPE: ::std::sync::OnceLock<::ostler_contract::shape::ObjectShape> =
                    ::std::sync::OnceLock::new();
                SHAPE.get_or_init(|| ::ostler_contract::shape::ObjectShape {
                    name: #text, docs: #docs, data: #data, fields: vec![#(#shapes),*],
                })
            }
            ::ostler_contract::shape::Shape::Object(object)
        }
    };
    let convert = if data {
        data_conversion()
    } else {
        quote! {
            fn into_live(self) -> ::ostler_contract::live::Live {
                let mut fields = ::std::vec::Vec::new();
                #(
                    let value = self.#idents;
                    #named
                    let value = ::ostler_contract::cross::Cross::into_live(value);
                    if !value.is_undefined() {
                        fields.push((::std::borrow::Cow::Borrowed(#keys), value));
                    }
                )*
                ::ostler_contract::live::Live::Object(fields)
            }

            fn from_live(
                live: ::ostler_contract::live::Live,
            ) -> ::std::result::Result<Self, ::ostler_contract::cross::Mismatch> {
                let mut fields = ::ostler_contract::cross::Fields::open(live)?;
                Ok(Self { #(#idents: fields.take(#keys)?,)* })
            }

            fn made_by(&mut self, plugin: &::ostler_contract::PluginId, _: &'static str) {
                #(::ostler_contract::cross::Cross::made_by(&mut self.#idents, plugin, concat!(#text, ".", #keys));)*
            }

            fn check(&self) -> ::std::result::Result<(), ::ostler_contract::cross::Mismatch> {
                #(
                    ::ostler_contract::cross::Cross::check(&self.#idents).map_err(|wrong| wrong.within(#keys))?;
                )*
                Ok(())
            }
        }
    };
    Ok(quote! {
        impl ::ostler_contract::cross::Cross for #name {
            #shape
            #convert
        }
    })
}

fn data_conversion() -> TokenStream {
    quote! {
        fn into_live(self) -> ::ostler_contract::live::Live {
            ::ostler_contract::cross::data_to_live(&self)
        }

        fn from_live(
            live: ::ostler_contract::live::Live,
        ) -> ::std::result::Result<Self, ::ostler_contract::cross::Mismatch> {
            ::ostler_contract::cross::data_from_live(live, &<Self as ::ostler_contract::cross::Cross>::shape())
        }
    }
}

fn field_shape(field: &Field, key: &str, serde: &names::Serde) -> Result<TokenStream> {
    let (ty, docs) = (&field.ty, docs::text(&field.attrs));
    let params = params(ty);
    let (default, flatten) = (serde.default, serde.flatten);
    Ok(quote! {
        ::ostler_contract::shape::FieldShape {
            name: #key, docs: #docs, shape: <#ty as ::ostler_contract::cross::Cross>::shape(),
            params: &[#(#params),*], may_be_left_out: #default, flatten: #flatten,
        }
    })
}

/// The parameter names that a `Call<fn(name: Type)>` or `HostFunction` was written with.
pub fn params(ty: &Type) -> Vec<String> {
    let mut names = Vec::new();
    find_params(ty, &mut names);
    names
}

fn find_params(ty: &Type, names: &mut Vec<String>) {
    match ty {
        Type::BareFn(function) => {
            for (at, input) in function.inputs.iter().enumerate() {
                let name = input.name.as_ref().map(|(name, _)| names::camel(&name.to_string()));
                names.push(name.unwrap_or_else(|| format!("argument{}", at + 1)));
            }
        }
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return };
            if !matches!(last.ident.to_string().as_str(), "Option" | "Call" | "HostFunction" | "Func") {
                return;
            }
            if let PathArguments::AngleBracketed(arguments) = &last.arguments {
                for argument in &arguments.args {
                    if let GenericArgument::Type(inner) = argument {
                        find_params(inner, names);
                    }
                }
            }
        }
        Type::Paren(inner) => find_params(&inner.elem, names),
        Type::Group(inner) => find_params(&inner.elem, names),
        _ => {}
    }
}

fn expand_names(input: &DeriveInput, variants: &[&Variant]) -> Result<TokenStream> {
    let name = &input.ident;
    let (text, docs) = (name.to_string(), docs::text(&input.attrs));
    let words = variant_names(input, variants)?;
    let idents: Vec<&Ident> = variants.iter().map(|variant| &variant.ident).collect();
    Ok(quote! {
        impl #name {
            /// The names in JavaScript.
            pub const NAMES: &'static [&'static str] = &[#(#words),*];

            /// The name in JavaScript.
            pub fn as_str(&self) -> &'static str {
                match self { #(Self::#idents => #words,)* }
            }
        }

        impl ::ostler_contract::cross::Cross for #name {
            fn shape() -> ::ostler_contract::shape::Shape {
                ::ostler_contract::shape::Shape::Names {
                    name: #text, docs: #docs, names: Self::NAMES,
                }
            }

            fn into_live(self) -> ::ostler_contract::live::Live {
                ::ostler_contract::live::Live::Data(self.as_str().into())
            }

            fn from_live(
                live: ::ostler_contract::live::Live,
            ) -> ::std::result::Result<Self, ::ostler_contract::cross::Mismatch> {
                match live.as_str() {
                    #(Some(#words) => Ok(Self::#idents),)*
                    _ => Err(::ostler_contract::cross::Mismatch::of::<Self>()),
                }
            }
        }
    })
}

fn variant_names(input: &DeriveInput, variants: &[&Variant]) -> Result<Vec<String>> {
    let rule = names::serde(&input.attrs)?.rename_all;
    variants
        .iter()
        .map(|variant| match names::serde(&variant.attrs)?.rename {
            Some(rename) => Ok(rename),
            None => names::variant(&variant.ident.to_string(), rule.as_deref()),
        })
        .collect()
}

fn expand_tagged(input: &DeriveInput, variants: &[&Variant]) -> Result<TokenStream> {
    let name = &input.ident;
    let (text, docs) = (name.to_string(), docs::text(&input.attrs));
    let tag = names::serde(&input.attrs)?
        .tag
        .ok_or_else(|| syn::Error::new_spanned(name, "an enum with data crosses by a serde tag"))?;
    let words = variant_names(input, variants)?;
    let mut rows = Vec::new();
    for (variant, word) in variants.iter().zip(&words) {
        let variant_docs = docs::text(&variant.attrs);
        let fields = match &variant.fields {
            Fields::Named(fields) => {
                let mut shapes = Vec::new();
                for field in &fields.named {
                    let Some(ident) = &field.ident else { continue };
                    let serde = names::serde(&field.attrs)?;
                    let key = serde.rename.clone().unwrap_or_else(|| names::camel(&ident.to_string()));
                    shapes.push(field_shape(field, &key, &serde)?);
                }
                quote!(vec![#(#shapes),*])
            }
            Fields::Unit => quote!(vec![]),
            Fields::Unnamed(other) => {
                return Err(syn::Error::new_spanned(other, "name the variant's fields"));
            }
        };
        rows.push(quote! {
            ::ostler_contract::shape::VariantShape { tag: #word, docs: #variant_docs, fields: #fields }
        });
    }
    let convert = data_conversion();
    Ok(quote! {
        impl ::ostler_contract::cross::Cross for #name {
            fn shape() -> ::ostler_contract::shape::Shape {
                fn union() -> &'static ::ostler_contract::shape::UnionShape {
                    static SHAPE: ::std::sync::OnceLock<::ostler_contract::shape::UnionShape> =
                        ::std::sync::OnceLock::new();
                    SHAPE.get_or_init(|| ::ostler_contract::shape::UnionShape {
                        name: #text, docs: #docs, tag: #tag, variants: vec![#(#rows),*],
                    })
                }
                ::ostler_contract::shape::Shape::Union(union)
            }

            #convert
        }
    })
}
