//! `@ostler/terminal`: shells and commands on pseudoterminals.
//!
//! The host stores the state, the claim and the last output of a terminal; this plugin runs the processes. [`program`]
//! determines what a request runs, [`integration`] makes shells report their commands, [`running`] is a running
//! terminal, and [`text`] decodes its output.

#![forbid(unsafe_code)]

mod integration;
mod program;
mod running;
mod text;

use std::sync::Arc;

use ostler_contract::points::{TerminalEvents, TerminalRequest, TerminalStore};
use ostler_contract::{Call, Options, Plugin, PluginHost, Thrown, Value, json};
use ostler_processes::{ScopeChoice, Scopes};
use serde::Deserialize;

use integration::Integration;

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/terminal";

/// The scopes that terminals run in.
static SCOPES: Scopes = Scopes::new("ostler-terminal", "OSTLER_TERMINAL_SCOPE");

/// The plugin's options.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Configured {
    shell: Option<String>,
    shell_integration: bool,
    scope: ScopeChoice,
}

/// Shared state of all terminals.
#[derive(Debug)]
struct Runtime {
    /// The default shell.
    shell: String,
    integration: Option<Integration>,
    scope: ScopeChoice,
    /// The command that marks programs before they run.
    marking: Option<Vec<String>>,
}

/// The plugin. `marking` is the command that runs `ostler_processes::supervisor::main`, which marks processes in
/// terminals.
pub fn plugin(marking: Option<Vec<String>>) -> Plugin {
    Plugin::new(NAME, move |host, options| {
        let marking = marking.clone();
        Box::pin(async move { apply(&host, &options, marking) })
    })
        .title("Terminals")
        .defaults(json!({ "shellIntegration": false, "scope": "auto" }))
        .options_schema(json!({
            "type": "object",
            "properties": {
                "shell": {
                    "type": "string",
                    "description": "Shell of terminals whose client prefers none, and of ! commands. Default: $SHELL, then /bin/sh."
                },
                "shellIntegration": {
                    "type": "boolean",
                    "description": "Whether bash, zsh and fish report their commands, exit codes and directories to clients."
                },
                "scope": {
                    "type": "string", "enum": ["auto", "group"],
                    "description": "How processes of terminals are contained: in cgroups if possible, or in process groups."
                }
            }
        }))
}

fn apply(host: &PluginHost, options: &Options, marking: Option<Vec<String>>) -> Result<(), Thrown> {
    let configured = Configured::deserialize(&Value::Object((**options).clone())).map_err(Thrown::new)?;
    SCOPES.sweep();
    let runtime = Arc::new(Runtime {
        shell: configured.shell.unwrap_or_else(program::system_shell),
        integration: configured.shell_integration.then(Integration::default),
        scope: configured.scope,
        marking,
    });
    let store = TerminalStore {
        create: Call::new(move |(request, events): (TerminalRequest, TerminalEvents)| {
            let runtime = runtime.clone();
            async move { Ok(running::open(&runtime, &request, events)) }
        }),
        close: Some(Call::new(|()| async {
            SCOPES.kill_all().await;
            Ok(())
        })),
    };
    host.register_terminals(store, None)
}
