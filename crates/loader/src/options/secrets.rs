//! References to secrets in options: `{ "$secret": "<name>" }`. Spec: *Options and credentials*, 8 to 11.

use ostler_contract::points::Vault;
use ostler_contract::problem::{Problem, no_secret, no_vault};
use ostler_contract::vault_name::NotAVaultName;
use ostler_contract::{JsonObject, Value, VaultName, limit};

use super::walk::{Nodes, Step, path_text, rewrite};

/// A reference found in options.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedSecret {
    /// Where.
    pub path: Vec<Step>,
    /// The name, as written.
    pub name: Value,
    /// Whether the plugin reads it itself, so that it is handed on as written.
    pub at_use: bool,
}

/// Whether a value is a reference.
pub fn is_reference(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key("$secret"))
}

/// Every reference in options.
pub fn references(options: &Value, schema: Option<&Value>) -> Vec<NamedSecret> {
    found(options, schema).0
}

/// Every reference in options, and the nodes marked `secretAtUse`.
fn found(options: &Value, schema: Option<&Value>) -> (Vec<NamedSecret>, Vec<Vec<Step>>) {
    let mut found = Vec::new();
    let mut marks: Vec<Vec<Step>> = Vec::new();
    rewrite(options, &Nodes::of(schema), &mut |path, node, value| {
        if node.marked("secretAtUse") {
            marks.push(path.to_vec());
        }
        if !is_reference(value) {
            return None;
        }
        // The mark counts at any depth below it.
        let at_use = marks.iter().any(|mark| path.starts_with(mark));
        found.push(NamedSecret { path: path.to_vec(), name: value["$secret"].clone(), at_use });
        Some(Value::Null)
    });
    (found, marks)
}

/// A place in a value as a JSON pointer.
fn pointer(path: &[Step]) -> String {
    let part = |step: &Step| match step {
        Step::Key(key) => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Step::Index(index) => format!("/{index}"),
    };
    path.iter().map(part).collect()
}

/// Options with their secrets read: what the schema is checked against, and what `apply` is handed.
#[derive(Debug)]
pub struct Read {
    /// Every reference a string, for the check.
    pub checked: JsonObject,
    /// References read at use still as written.
    pub handed: JsonObject,
    /// Whether there was any reference.
    pub named: bool,
    /// The values that were read.
    pub secrets: Vec<String>,
    /// The nodes marked `secretAtUse`, as JSON pointers: a plugin may not write to them.
    pub frozen: Vec<String>,
}

/// Reads every reference. Only `host:` names are read at load: a load belongs to no team and no person.
///
/// # Errors
/// The line that names the option, the name and the reason; never a value.
pub async fn resolve(
    id: &str,
    options: &JsonObject,
    schema: Option<&Value>,
    vault: Option<&Vault>,
) -> Result<Read, Problem> {
    let whole = Value::Object(options.clone());
    let (references, marks) = found(&whole, schema);
    let mut read: Vec<(Vec<Step>, Value, Value)> = Vec::new();
    let mut secrets = Vec::new();
    for reference in &references {
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
        let Some(vault) = vault else { return Err(refuse(no_vault(text))) };
        let value = match vault.get.within(limit::STORE, (text.to_owned(),)).await {
            Ok(Some(value)) => {
                secrets.push(value.clone());
                Value::from(value)
            }
            Ok(None) => return Err(refuse(no_secret(text))),
            Err(why) => return Err(refuse(why.message)),
        };
        read.push((reference.path.clone(), value.clone(), value));
    }
    let fill = |pick: fn(&(Vec<Step>, Value, Value)) -> Value| {
        let filled = rewrite(&whole, &Nodes::of(schema), &mut |path, _, _| {
            read.iter().find(|(at, _, _)| at.as_slice() == path).map(pick)
        });
        filled.as_object().cloned().unwrap_or_default()
    };
    Ok(Read {
        checked: fill(|(_, checked, _)| checked.clone()),
        handed: fill(|(_, _, handed)| handed.clone()),
        named: !references.is_empty(),
        secrets,
        frozen: marks.iter().map(|mark| pointer(mark)).collect(),
    })
}
