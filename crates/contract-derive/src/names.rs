//! Names in JavaScript.

use syn::{Attribute, LitStr};

/// `snake_case` or `PascalCase` to `camelCase`.
pub fn camel(name: &str) -> String {
    let name = name.strip_prefix("r#").unwrap_or(name);
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for (at, c) in name.chars().enumerate() {
        if c == '_' {
            upper = true;
        } else if at == 0 {
            out.extend(c.to_lowercase());
        } else if upper {
            out.extend(c.to_uppercase());
            upper = false;
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns serde's name of a variant under `rename_all`.
pub fn variant(name: &str, rule: Option<&str>) -> syn::Result<String> {
    Ok(match rule {
        None => name.to_owned(),
        Some("camelCase") => camel(name),
        Some("lowercase") => name.to_lowercase(),
        Some("kebab-case") => separated(name, '-'),
        Some("snake_case") => separated(name, '_'),
        Some(other) => {
            return Err(syn::Error::new(
                proc_macro2::Span::call_site(),
                format!("Cross does not know rename_all = \"{other}\""),
            ));
        }
    })
}

fn separated(name: &str, separator: char) -> String {
    let mut out = String::new();
    for (at, c) in name.chars().enumerate() {
        if c.is_uppercase() && at > 0 {
            out.push(separator);
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// The attributes of serde that are relevant here.
#[derive(Default)]
pub struct Serde {
    pub rename: Option<String>,
    pub rename_all: Option<String>,
    pub tag: Option<String>,
    pub default: bool,
    pub flatten: bool,
}

pub fn serde(attributes: &[Attribute]) -> syn::Result<Serde> {
    let mut found = Serde::default();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename") {
                found.rename = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if meta.path.is_ident("rename_all") {
                found.rename_all = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if meta.path.is_ident("tag") {
                found.tag = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if meta.path.is_ident("default") {
                found.default = true;
                if meta.input.peek(syn::Token![=]) {
                    meta.value()?.parse::<LitStr>()?;
                }
            } else if meta.path.is_ident("flatten") {
                found.flatten = true;
            } else if meta.input.peek(syn::Token![=]) {
                meta.value()?.parse::<LitStr>()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}
