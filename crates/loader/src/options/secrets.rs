//! References to secrets in options: `{ "$secret": "<name>" }`. Spec: *Options and credentials*, 8 to 11.

use ostler_contract::plugin::LeftOutNode;
use ostler_contract::points::Vault;
use ostler_contract::problem::{Problem, no_secret, no_vault};
use ostler_contract::vault_name::NotAVaultName;
use ostler_contract::{JsonObject, Value, VaultName, limit};

use super::check::misfits;
use super::walk::{Nodes, Step, path_text, rewrite};

/// A reference found in options.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedSecret {
    pub path: Vec<Step>,
    /// The name, as written.
    pub name: Value,
    /// Whether the plugin reads it itself, so that the reference is passed on unchanged.
    pub at_use: bool,
}

/// Returns whether a value is a reference.
pub fn is_reference(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key("$secret"))
}

/// Returns every reference in options.
pub fn references(options: &Value, schema: Option<&Value>) -> Vec<NamedSecret> {
    found(options, schema).references
}

/// The references in options and the relevant marks of the schema.
#[derive(Debug, Default)]
struct SecretReferences {
    references: Vec<NamedSecret>,
    /// The nodes marked `secretAtUse`.
    at_use: Vec<Vec<Step>>,
    /// The nodes marked `leftOutWithoutSecret`.
    apart: Vec<Vec<Step>>,
}

fn found(options: &Value, schema: Option<&Value>) -> SecretReferences {
    let mut found = Vec::new();
    let mut marks: Vec<Vec<Step>> = Vec::new();
    let mut apart: Vec<Vec<Step>> = Vec::new();
    rewrite(options, &Nodes::of(schema), &mut |path, node, value| {
        if node.marked("secretAtUse") {
            marks.push(path.to_vec());
        }
        if node.marked("leftOutWithoutSecret") {
            apart.push(path.to_vec());
        }
        if !is_reference(value) {
            return None;
        }
        // The mark applies to all depths below it.
        let at_use = marks.iter().any(|mark| path.starts_with(mark));
        found.push(NamedSecret { path: path.to_vec(), name: value["$secret"].clone(), at_use });
        Some(Value::Null)
    });
    SecretReferences { references: found, at_use: marks, apart }
}

/// Formats a path in a value as a JSON pointer.
fn pointer(path: &[Step]) -> String {
    let part = |step: &Step| match step {
        Step::Key(key) => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Step::Index(index) => format!("/{index}"),
    };
    path.iter().map(part).collect()
}

/// Options with resolved secrets: the form for validation, and the form for `apply`.
#[derive(Debug)]
pub struct ResolvedOptions {
    /// With every reference resolved to text, for validation.
    pub checked: JsonObject,
    /// With references that are read at use still unchanged, for `apply`.
    pub handed: JsonObject,
    /// Whether there was any reference.
    pub named: bool,
    /// The values that were read.
    pub secrets: Vec<String>,
    /// The nodes marked `secretAtUse`, as JSON pointers, which are frozen for plugins.
    pub frozen: Vec<String>,
    /// The omitted nodes: marked `leftOutWithoutSecret` with a secret that cannot be read, or `leftOutUnlessValid` and
    /// invalid.
    pub left_out: Vec<LeftOutNode>,
}

/// Omits invalid parts of options if the schema allows it.
pub fn leave_out(read: &mut ResolvedOptions, schema: &Value) {
    let mut parts: Vec<Vec<Step>> = Vec::new();
    rewrite(&Value::Object(read.checked.clone()), &Nodes::of(Some(schema)), &mut |path, node, _| {
        if node.marked("leftOutUnlessValid") {
            parts.push(path.to_vec());
        }
        None
    });
    let pointers: Vec<String> = parts.iter().map(|part| pointer(part)).collect();
    let before = read.left_out.len();
    // Last ones first, so that the indexes of earlier entries of a list stay valid.
    for (at, why) in misfits(schema, &read.checked, &pointers).into_iter().rev() {
        let part = &parts[at];
        for options in [&mut read.checked, &mut read.handed] {
            let mut whole = Value::Object(std::mem::take(options));
            remove(&mut whole, part);
            *options = whole.as_object().cloned().unwrap_or_default();
        }
        let remedy = "correct it".to_owned();
        read.left_out.insert(before, left_out(part, why, remedy));
    }
}

fn left_out(path: &[Step], why: String, remedy: String) -> LeftOutNode {
    let name = |step: &Step| match step {
        Step::Key(key) => key.clone(),
        Step::Index(index) => index.to_string(),
    };
    let place = path_text(path).trim_start_matches('.').to_owned();
    LeftOutNode { at: path.iter().map(name).collect(), place, why, remedy }
}

/// Resolves every reference. Only `host:` names can be read at load, because loading belongs to no team and no user.
///
/// # Errors
/// A line with the option, the vault name and the reason, but never a value.
pub async fn resolve(
    id: &str,
    options: &JsonObject,
    schema: Option<&Value>,
    vault: Option<&Vault>,
) -> Result<ResolvedOptions, Problem> {
    let whole = Value::Object(options.clone());
    let SecretReferences { references, at_use, apart } = found(&whole, schema);
    let mut without: Vec<(&[Step], LeftOutNode)> = Vec::new();
    let mut read: Vec<(Vec<Step>, Value, Value)> = Vec::new();
    let mut secrets = Vec::new();
    for reference in &references {
        let entry = apart.iter().find(|entry| reference.path.starts_with(entry));
        if without.iter().any(|(gone, _)| reference.path.starts_with(gone)) {
            continue;
        }
        let refuse = |reason: String| Problem::Secret {
            id: id.to_owned(),
            path: path_text(&reference.path),
            name: reference.name.as_str().map_or_else(|| reference.name.to_string(), str::to_owned),
            reason,
        };
        let written = ostler_contract::json!({ "$secret": reference.name });
        let Some(text) = reference.name.as_str() else {
            return Err(refuse(NotAVaultName.to_string()));
        };
        let name = VaultName::parse(text).map_err(|why| refuse(why.to_string()))?;
        if reference.at_use {
            read.push((reference.path.clone(), Value::from(text), written));
            continue;
        }
        if !matches!(name, VaultName::Host(_)) {
            return Err(refuse(format!(
                "{text} belongs to a team or a person, and a plugin is loaded for neither; only host: names are read here"
            )));
        }
        let got = match vault {
            Some(vault) => {
                vault.get.read(limit::STORE, (text.to_owned(),)).await.known().map_err(|why| why.to_string())
            }
            None => Err(no_vault(text)),
        };
        match (got.and_then(|value| value.ok_or_else(|| no_secret(text))), entry) {
            (Ok(value), _) => {
                secrets.push(value.clone());
                read.push((reference.path.clone(), Value::from(value.clone()), Value::from(value)));
            }
            (Err(why), Some(entry)) => {
                let from = path_text(&reference.path);
                let why = format!("{} names {text}: {why}", from.trim_start_matches('.'));
                let remedy = format!("set it with: ostler vault set {text}");
                without.push((entry, left_out(entry, why, remedy)));
            }
            (Err(why), None) => return Err(refuse(why)),
        }
    }
    let fill = |pick: fn(&(Vec<Step>, Value, Value)) -> Value| {
        let mut filled = rewrite(&whole, &Nodes::of(schema), &mut |path, _, _| {
            read.iter().find(|(at, _, _)| at.as_slice() == path).map(pick)
        });
        // Last ones first, so that the indexes of earlier entries of a list stay valid.
        without.iter().rev().for_each(|(entry, _)| remove(&mut filled, entry));
        filled.as_object().cloned().unwrap_or_default()
    };
    Ok(ResolvedOptions {
        checked: fill(|(_, checked, _)| checked.clone()),
        handed: fill(|(_, _, handed)| handed.clone()),
        named: !references.is_empty(),
        secrets,
        frozen: at_use.iter().map(|mark| pointer(mark)).collect(),
        left_out: without.iter().map(|(_, node)| node.clone()).collect(),
    })
}

/// Removes a member from an object, or an entry from a list.
fn remove(from: &mut Value, path: &[Step]) {
    let Some((last, above)) = path.split_last() else { return };
    if let Some(place) = from.pointer_mut(&pointer(above)) {
        match (place, last) {
            (Value::Object(members), Step::Key(key)) => drop(members.remove(key)),
            (Value::Array(items), Step::Index(index)) if *index < items.len() => drop(items.remove(*index)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    #[test]
    fn references_are_found_with_their_paths() {
        let schema = json!({ "properties": { "later": { "secretAtUse": true } } });
        let options =
            json!({ "list": [{ "$secret": "host:a" }], "later": { "in": { "$secret": 5 } }, "x": 1 });
        let found: Vec<_> = references(&options, Some(&schema))
            .into_iter()
            .map(|found| (path_text(&found.path), found.name, found.at_use))
            .collect();
        let expected =
            [(".list[0]".to_owned(), json!("host:a"), false), (".later.in".to_owned(), json!(5), true)];
        assert_eq!(found, expected);
    }
}
