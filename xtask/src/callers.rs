//! Checks that the host calls every function that a plugin can register, and reads every registration point. A member that nobody
//! calls is a promise to plugins that is not kept.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Fields, Item, Type};

use crate::tidy::{ENGINE, sources, without_tests};

/// The declarations of what plugins register.
const POINTS: &str = "crates/contract/src/points";
/// The sources that read registration points, beside the engine's.
const HOST: [&str; 3] = ["crates/loader/src", "crates/server/src", "daemon/src"];

/// The sources that call the functions of each declaration, without `.rs`.
const CALLERS: &[(&str, &[&str])] = &[
    (
        "Agent",
        &[
            "crates/engine-core/src/agents",
            "crates/engine-sessions/src/backend",
            "crates/engine-sessions/src/config",
            "crates/engine-sessions/src/requests",
            "crates/engine-workspace/src/machines/mod",
        ],
    ),
    ("AgentSession", &["crates/engine-sessions/src/lane"]),
    (
        "AutomationStore",
        &[
            "crates/engine-automations/src/catalogue",
            "crates/engine-automations/src/clockwork",
            "crates/engine-automations/src/found",
            "crates/engine-automations/src/loading",
            "crates/engine-automations/src/recovery",
            "crates/engine-automations/src/stored_runs",
            "crates/engine-automations/src/unheard",
            "crates/engine/src/host/closing",
        ],
    ),
    (
        "Changes",
        &[
            "crates/engine-sessions/src/turns",
            "crates/engine-sessions/src/view",
            "crates/engine-workspace/src/changesets",
            "crates/engine-workspace/src/tree_watch",
        ],
    ),
    (
        "Channel",
        &[
            "crates/engine/src/channels/plugin/mod",
            "crates/engine/src/front/advertised",
            "crates/engine/src/front/channels/plugin",
        ],
    ),
    ("Computers", &["crates/engine/src/host/closing", "crates/engine-workspace/src/machines/mod"]),
    (
        "Containers",
        &[
            "crates/engine/src/front/commands/containers",
            "crates/engine/src/host/closing",
            "crates/engine-workspace/src/containers",
        ],
    ),
    ("Diagnostics", &["crates/engine/src/channels/telemetry"]),
    (
        "Directories",
        &["crates/engine-sessions/src/directory_facts", "crates/engine-workspace/src/tree_watch"],
    ),
    ("Method", &["crates/engine/src/front/advertised", "crates/engine/src/front/plugin_commands"]),
    ("Policies", &["crates/engine/src/host/closing", "crates/engine-users/src/users/policies"]),
    ("PublishOptions", &["crates/engine/src/channels/plugin/publish"]),
    (
        "PullRequests",
        &["crates/engine/src/front/commands/pull_requests", "crates/engine-sessions/src/directory_facts"],
    ),
    ("RecordStore", &["crates/engine/src/host/closing", "crates/engine/src/front/host_calls"]),
    (
        "ResourceProvider",
        &[
            "crates/engine/src/front/advertised",
            "crates/engine/src/front/commands/resources",
            "crates/engine-users/src/resources/mod",
        ],
    ),
    (
        "ResourceStore",
        &[
            "crates/engine/src/front/commands/resources",
            "crates/engine/src/front/mentions",
            "crates/engine-users/src/resources/mod",
        ],
    ),
    (
        "SessionStore",
        &[
            "crates/engine/src/host/closing",
            "crates/engine-sessions/src/annotations",
            "crates/engine-sessions/src/attachments",
            "crates/engine-sessions/src/catalogue",
            "crates/engine-sessions/src/continuing",
            "crates/engine-sessions/src/directory_facts",
            "crates/engine-sessions/src/listing",
            "crates/engine-sessions/src/reported",
            "crates/engine-sessions/src/store_writes",
            "crates/engine-sessions/src/unfinished",
            "crates/engine-sessions/src/waking",
        ],
    ),
    ("StoredCollection", &["crates/engine-automations/src/by_value", "crates/engine/src/front/host_calls"]),
    ("Terminal", &["crates/engine-workspace/src/terminals/mod"]),
    ("TerminalStore", &["crates/engine/src/host/closing", "crates/engine-workspace/src/terminals/mod"]),
    ("Tool", &["crates/engine-sessions/src/tools"]),
    ("ToolsServerOptions", &["crates/server/src/tools/endpoint"]),
    (
        "Usage",
        &[
            "crates/engine/src/host/closing",
            "crates/engine-users/src/usage/mod",
            "crates/engine-users/src/usage/read",
        ],
    ),
    (
        "Vault",
        &[
            "crates/engine/src/host/closing",
            "crates/engine-sessions/src/mcp_servers",
            "daemon/src/verbs/vault",
            "daemon/src/webhook/add",
            "daemon/src/webhook/rm",
        ],
    ),
    (
        "Worktrees",
        &[
            "crates/engine-workspace/src/detached",
            "crates/engine-workspace/src/tree_watch",
            "crates/engine-workspace/src/worktrees",
        ],
    ),
];

/// Adds a problem for each function that is not called, and for each registration point that is not read.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    let mut declared: Vec<(String, Vec<String>)> = Vec::new();
    let mut points = Vec::new();
    for file in sources(&root.join(POINTS), &["rs"]) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        match declarations(&text) {
            Ok((functions, registered)) => {
                declared.extend(functions);
                points.extend(registered);
            }
            Err(why) => problems.push(format!("{}: {why}", file.display())),
        }
    }
    let known: HashMap<&str, &[&str]> = CALLERS.iter().copied().collect();
    for (name, members) in &declared {
        let Some(callers) = known.get(name.as_str()) else {
            problems.push(format!("{name}: no caller of its functions is listed in xtask/src/callers.rs"));
            continue;
        };
        let mut texts = Vec::new();
        for caller in *callers {
            match fs::read_to_string(root.join(caller).with_extension("rs")) {
                Ok(text) => texts.push(text),
                Err(_) => problems.push(format!("xtask/src/callers.rs: {caller} is not there")),
            }
        }
        let tokens: Vec<TokenStream> =
            texts.iter().filter_map(|text| without_tests(text).parse().ok()).collect();
        let uncalled = members.iter().filter(|member| !tokens.iter().any(|text| uses(text, name, member)));
        problems.extend(uncalled.map(|member| {
            format!(
                "{name}.{member} is called by none of its callers; call it, or remove it from the contract"
            )
        }));
    }
    let gone = CALLERS.iter().filter(|(name, _)| !declared.iter().any(|(declared, _)| declared == name));
    problems.extend(gone.map(|(name, _)| format!("xtask/src/callers.rs: {name} declares no function")));
    let host = ENGINE.iter().chain(&HOST).flat_map(|folder| sources(&root.join(folder), &["rs"]));
    let host: Vec<String> = host.map(|file| fs::read_to_string(file).unwrap_or_default()).collect();
    for point in points {
        let read = [format!("all::<{point}>"), format!("port::<{point}>")];
        if !host.iter().any(|text| read.iter().any(|read| without_tests(text).contains(read))) {
            problems.push(format!("{point} is registered, and nothing in the host reads it"));
        }
    }
}

/// What a source declares: by type, its functions that the host calls; and the types that plugins register.
type Declared = (Vec<(String, Vec<String>)>, Vec<String>);

fn declarations(text: &str) -> syn::Result<Declared> {
    let (mut functions, mut registered) = (Vec::new(), Vec::new());
    for item in syn::parse_file(text)?.items {
        match item {
            Item::Struct(declared) => {
                let Fields::Named(fields) = &declared.fields else { continue };
                let called = fields.named.iter().filter(|field| is_call(&field.ty));
                let names: Vec<_> =
                    called.filter_map(|field| Some(field.ident.as_ref()?.to_string())).collect();
                if !names.is_empty() {
                    functions.push((declared.ident.to_string(), names));
                }
            }
            Item::Impl(implemented) if implemented.generics.params.is_empty() => {
                let point = implemented.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
                if point.is_some_and(|point| point.ident == "Contribution" || point.ident == "PortValue") {
                    registered.push(implemented.self_ty.to_token_stream().to_string());
                }
            }
            _ => {}
        }
    }
    Ok((functions, registered))
}

/// Whether a type is a function of a plugin, which may be optional.
fn is_call(declared: &Type) -> bool {
    declared
        .to_token_stream()
        .into_iter()
        .any(|token| matches!(&token, TokenTree::Ident(name) if name == "Call"))
}

/// Whether a text reads a field of this name, or takes it out of a value of the type by a pattern.
fn uses(text: &TokenStream, of: &str, member: &str) -> bool {
    let tokens: Vec<TokenTree> = text.clone().into_iter().collect();
    tokens.iter().enumerate().any(|(at, token)| match token {
        TokenTree::Ident(name) if name == member => {
            let is_method = matches!(
                tokens.get(at + 1),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis
            );
            let before = at.checked_sub(1).and_then(|before| tokens.get(before));
            matches!(before, Some(TokenTree::Punct(dot)) if dot.as_char() == '.') && !is_method
        }
        TokenTree::Group(group) => {
            let before = at.checked_sub(1).and_then(|before| tokens.get(before));
            let of_type = matches!(before, Some(TokenTree::Ident(name)) if name == of);
            let names = |token: TokenTree| matches!(&token, TokenTree::Ident(name) if name == member);
            let is_pattern = of_type && group.delimiter() == Delimiter::Brace;
            is_pattern && group.stream().into_iter().any(names) || uses(&group.stream(), of, member)
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_points_are_found() {
        let text = "pub struct Store { pub get: Call<fn(id: String)>, pub list: Option<Call<fn()>>, pub name: String }
            impl PortValue for Store { const NAME: &'static str = \"x\"; }
            impl Contribution for Row { type Key = String; }";
        let (functions, points) = declarations(text).unwrap();
        assert_eq!(functions, [("Store".to_owned(), vec!["get".to_owned(), "list".to_owned()])]);
        assert_eq!(points, ["Store", "Row"]);
    }

    #[test]
    fn a_use_is_a_field_and_no_method() {
        let used = |text: &str| uses(&text.parse().unwrap(), "Store", "get");
        for text in [
            "store.get.within(1)",
            "fn f() { if let Some(get) = &store.get { } }",
            "Some(Store { get: Some(get), .. })",
        ] {
            assert!(used(text), "{text}");
        }
        for text in ["map.get(1)", "let get = 1;", "Other { get }"] {
            assert!(!used(text), "{text}");
        }
    }
}
