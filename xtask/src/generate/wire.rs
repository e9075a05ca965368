//! The protocol's types in TypeScript, read from the source of the official Rust types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use syn::{
    Attribute, Expr, ExprLit, Fields, GenericArgument, Item, ItemEnum, ItemStruct, Lit, Meta, PathArguments,
    Type,
};

/// Types with a handwritten JSON form in the source.
const BY_HAND: &[(&str, &str)] = &[("StringOrMarkdown", "string | { markdown: string }")];

/// Every type of the protocol's source, by name.
pub struct Wire {
    structs: BTreeMap<String, ItemStruct>,
    enums: BTreeMap<String, ItemEnum>,
    /// The words of enums with a handwritten text form.
    words: BTreeMap<String, Vec<String>>,
    /// The tag and word that identify a struct, if they are the same everywhere.
    tags: BTreeMap<String, Option<(String, String)>>,
}

impl Wire {
    /// Reads the source with which cargo built this workspace.
    pub fn read(root: &Path) -> Result<Self, String> {
        let source = source(root)?;
        let mut wire = Self {
            structs: BTreeMap::new(),
            enums: BTreeMap::new(),
            words: BTreeMap::new(),
            tags: BTreeMap::new(),
        };
        for file in ["common", "state", "actions", "commands"] {
            let path = source.join(format!("src/{file}.rs"));
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            file.items.into_iter().for_each(|item| wire.take(item));
        }
        for item in wire.enums.values() {
            let Some(tag) = serde(&item.attrs).tag else { continue };
            for variant in &item.variants {
                let (Some(word), Fields::Unnamed(fields)) = (serde(&variant.attrs).rename, &variant.fields)
                else {
                    continue;
                };
                let Some(inner) = fields.unnamed.first().and_then(|field| name_of(&field.ty)) else {
                    continue;
                };
                let told = (tag.clone(), word);
                wire.tags
                    .entry(inner)
                    .and_modify(|known| *known = known.take().filter(|known| *known == told))
                    .or_insert(Some(told));
            }
        }
        Ok(wire)
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Struct(item) => {
                self.structs.insert(item.ident.to_string(), item);
            }
            Item::Enum(item) => {
                self.enums.insert(item.ident.to_string(), item);
            }
            Item::Impl(item) => {
                let of_serialize = item
                    .trait_
                    .as_ref()
                    .and_then(|(_, path, _)| path.segments.last())
                    .is_some_and(|last| last.ident == "Serialize");
                if let (true, Some(name)) = (of_serialize, name_of(&item.self_ty)) {
                    let text = quote::ToTokens::to_token_stream(&item).to_string();
                    let words = text.split("serialize_str (\"").skip(1);
                    let words = words.filter_map(|rest| rest.split('"').next()).map(str::to_owned);
                    self.words.insert(name, words.collect());
                }
            }
            _ => {}
        }
    }

    /// Returns whether a type exists.
    pub fn has(&self, name: &str) -> bool {
        self.structs.contains_key(name) || self.enums.contains_key(name)
    }

    /// Returns the declarations of these types and of every type that they refer to, in the order of their names.
    pub fn declarations(&self, named: BTreeSet<String>) -> Result<String, String> {
        let mut open: Vec<String> = named.into_iter().collect();
        let mut done = BTreeMap::new();
        while let Some(name) = open.pop() {
            if done.contains_key(&name) {
                continue;
            }
            let mut used = BTreeSet::new();
            let text = self.declaration(&name, &mut used)?;
            done.insert(name, text);
            open.extend(used);
        }
        Ok(done.into_values().collect())
    }

    fn declaration(&self, name: &str, used: &mut BTreeSet<String>) -> Result<String, String> {
        if let Some((_, by_hand)) = BY_HAND.iter().find(|(known, _)| *known == name) {
            let docs = self.enums.get(name).map(|item| docs(&item.attrs)).unwrap_or_default();
            return Ok(format!("{}export type {name} = {by_hand};\n\n", comment(&docs, "")));
        }
        if let Some(item) = self.structs.get(name) {
            return self.object(name, item, used);
        }
        match self.enums.get(name) {
            Some(item) => self.union(name, item, used),
            None => Err(format!("the protocol's source has no type {name}")),
        }
    }

    fn object(&self, name: &str, item: &ItemStruct, used: &mut BTreeSet<String>) -> Result<String, String> {
        let mut text = comment(&docs(&item.attrs), "");
        let fields = match &item.fields {
            Fields::Named(fields) => fields,
            Fields::Unnamed(fields) => {
                let inner = fields.unnamed.first().map(|field| self.written(&field.ty, used)).transpose()?;
                let _ = writeln!(text, "export type {name} = {};\n", inner.unwrap_or_default());
                return Ok(text);
            }
            Fields::Unit => return Err(format!("{name} of the protocol has no fields")),
        };
        let _ = writeln!(text, "export interface {name} {{");
        let tag = self.tags.get(name).cloned().flatten();
        if let Some((tag, word)) = &tag {
            let _ = writeln!(text, "    {tag}: '{word}';");
        }
        for field in &fields.named {
            let Some(ident) = &field.ident else { continue };
            let key = serde(&field.attrs).rename.unwrap_or_else(|| camel(&ident.to_string()));
            if tag.as_ref().is_some_and(|(tag, _)| *tag == key) {
                continue;
            }
            let (ty, optional) = match option(&field.ty) {
                Some(inner) => (inner, "?"),
                None => (&field.ty, ""),
            };
            text.push_str(&comment(&docs(&field.attrs), "    "));
            let _ = writeln!(text, "    {key}{optional}: {};", self.written(ty, used)?);
        }
        text.push_str("}\n\n");
        Ok(text)
    }

    fn union(&self, name: &str, item: &ItemEnum, used: &mut BTreeSet<String>) -> Result<String, String> {
        let mut text = comment(&docs(&item.attrs), "");
        let tag = serde(&item.attrs).tag;
        let mut members = Vec::new();
        for variant in &item.variants {
            let attributes = serde(&variant.attrs);
            match &variant.fields {
                Fields::Unit => members.extend(attributes.rename.map(|word| format!("'{word}'"))),
                // Values of newer protocol versions have no type in this one.
                Fields::Unnamed(_) if variant.ident == "Unknown" => {}
                Fields::Unnamed(fields) => {
                    let Some(field) = fields.unnamed.first() else { continue };
                    let inner = self.written(&field.ty, used)?;
                    let carries = name_of(&field.ty).and_then(|name| self.tags.get(&name)?.clone());
                    members.push(match (&tag, attributes.rename, carries) {
                        (Some(tag), Some(word), None) => format!("({{ {tag}: '{word}' }} & {inner})"),
                        _ => inner,
                    });
                }
                Fields::Named(fields) => {
                    let mut parts: Vec<String> = tag
                        .iter()
                        .zip(&attributes.rename)
                        .map(|(tag, word)| format!("{tag}: '{word}'"))
                        .collect();
                    for field in &fields.named {
                        let Some(ident) = &field.ident else { continue };
                        let key = serde(&field.attrs).rename.unwrap_or_else(|| camel(&ident.to_string()));
                        let (ty, optional) = match option(&field.ty) {
                            Some(inner) => (inner, "?"),
                            None => (&field.ty, ""),
                        };
                        parts.push(format!("{key}{optional}: {}", self.written(ty, used)?));
                    }
                    members.push(format!("{{ {} }}", parts.join("; ")));
                }
            }
        }
        if members.is_empty() {
            members.extend(self.words.get(name).into_iter().flatten().map(|word| format!("'{word}'")));
        }
        if members.is_empty() {
            return Err(format!("{name} of the protocol has no members that can be written"));
        }
        let one_line = members.join(" | ");
        match name.len() + one_line.len() < 90 {
            true => {
                let _ = writeln!(text, "export type {name} = {one_line};\n");
            }
            false => {
                let _ = writeln!(text, "export type {name} =\n    | {};\n", members.join("\n    | "));
            }
        }
        Ok(text)
    }

    /// Formats a Rust type in TypeScript.
    fn written(&self, ty: &Type, used: &mut BTreeSet<String>) -> Result<String, String> {
        let unknown = || format!("a type of the protocol cannot be written: {}", quote::quote!(#ty));
        let Type::Path(path) = ty else { return Err(unknown()) };
        let last = path.path.segments.last().ok_or_else(unknown)?;
        let arguments: Vec<&Type> = match &last.arguments {
            PathArguments::AngleBracketed(arguments) => arguments
                .args
                .iter()
                .filter_map(|argument| match argument {
                    GenericArgument::Type(ty) => Some(ty),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        Ok(match (last.ident.to_string().as_str(), &arguments[..]) {
            ("String" | "Uri", _) => "string".to_owned(),
            ("bool", _) => "boolean".to_owned(),
            ("i32" | "i64" | "u32" | "u64" | "f64", _) => "number".to_owned(),
            ("JsonObject", _) => "JsonObject".to_owned(),
            ("Value" | "AnyValue", _) => "unknown".to_owned(),
            ("Box", [inner]) => self.written(inner, used)?,
            ("Option", [inner]) => format!("{} | undefined", self.written(inner, used)?),
            ("Vec", [inner]) => {
                let inner = self.written(inner, used)?;
                if inner.contains(' ') { format!("({inner})[]") } else { format!("{inner}[]") }
            }
            ("HashMap" | "BTreeMap", [_, value]) => format!("Record<string, {}>", self.written(value, used)?),
            (name, []) if self.has(name) => {
                used.insert(name.to_owned());
                name.to_owned()
            }
            _ => return Err(unknown()),
        })
    }
}

/// Returns cargo's folder with the source of the official types.
pub(super) fn source(root: &Path) -> Result<PathBuf, String> {
    // Only the packages for this machine's platform are certain to be available.
    let output = crate::cargo::cargo()
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &platform()?])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata did not answer: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("cargo metadata did not answer: {}", String::from_utf8_lossy(&output.stderr)))?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let types = packages.iter().find(|package| package["name"] == "ahp-types");
    let manifest = types.and_then(|package| package["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent().map(Path::to_owned));
    folder.ok_or_else(|| "cargo metadata names no ahp-types".to_owned())
}

/// Returns the compiler's name of this machine's target.
fn platform() -> Result<String, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output =
        Command::new(rustc).arg("-vV").output().map_err(|error| format!("rustc did not answer: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say what this machine is".to_owned())
}

/// Returns the last word of a type, inside a box.
fn name_of(ty: &Type) -> Option<String> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    match (&last.arguments, last.ident == "Box") {
        (PathArguments::AngleBracketed(arguments), true) => match arguments.args.first() {
            Some(GenericArgument::Type(inner)) => name_of(inner),
            _ => None,
        },
        (PathArguments::None, _) => Some(last.ident.to_string()),
        _ => None,
    }
}

fn option(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) => Some(inner),
        _ => None,
    }
}

#[derive(Default)]
struct Serde {
    rename: Option<String>,
    tag: Option<String>,
}

fn serde(attributes: &[Attribute]) -> Serde {
    let mut found = Serde::default();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let _ = attribute.parse_nested_meta(|meta| {
            let value = match meta.input.peek(syn::Token![=]) {
                true => Some(meta.value()?.parse::<syn::LitStr>()?.value()),
                false => None,
            };
            if meta.path.is_ident("rename") {
                found.rename = value;
            } else if meta.path.is_ident("tag") {
                found.tag = value;
            }
            Ok(())
        });
    }
    found
}

fn docs(attributes: &[Attribute]) -> String {
    let lines =
        attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).filter_map(|attribute| {
            match &attribute.meta {
                Meta::NameValue(pair) => match &pair.value {
                    Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
                    _ => None,
                },
                _ => None,
            }
        });
    let lines: Vec<String> = lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).to_owned()).collect();
    lines.join("\n")
}

fn camel(name: &str) -> String {
    let name = name.strip_prefix("r#").unwrap_or(name);
    let mut parts = name.split('_');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        out.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        out.push_str(letters.as_str());
    }
    out
}

/// Formats a TypeScript comment, up to the first example in Rust.
pub fn comment(docs: &str, indent: &str) -> String {
    let docs = docs.split("```").next().unwrap_or_default();
    // References to the specification are for developers of the host.
    let docs = docs.split(" Spec: *").next().unwrap_or_default().trim().replace("*/", "* /");
    let lines: Vec<&str> = docs.lines().map(str::trim_end).collect();
    match lines[..] {
        [] => String::new(),
        [line] => format!("{indent}/** {line} */\n"),
        _ => {
            let lines: String =
                lines.iter().map(|line| format!("{indent} * {line}").trim_end().to_owned() + "\n").collect();
            format!("{indent}/**\n{lines}{indent} */\n")
        }
    }
}
