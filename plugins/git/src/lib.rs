//! `@ostler/git`: the changes of git repositories as changesets, facts of directories, and working trees of sessions.
//!
//! Git is read and written through the `git` program ([`program`]): writes run the hooks, the signing and the credential
//! helpers of the user; reads take no locks and run nothing that a repository configures ([`guard`]).

#![forbid(unsafe_code)]

mod batches;
mod changes;
mod commits;
mod content;
mod facts;
mod guard;
mod lanes;
mod line_endings;
mod lines;
mod operations;
mod program;
mod publish;
mod raw_diff;
mod recorder;
mod refs_watch;
mod repository;
mod restore;
mod selected;
mod session_trees;
mod snapshots;
mod staging;
mod status;
mod submodules;
mod tree;
mod tree_watch;
mod worktrees;

use std::path::PathBuf;
use std::sync::Arc;

use ostler_contract::events::{Event, EventName};
use ostler_contract::{Call, Frozen, Options, Plugin, PluginContext, PluginHost, Thrown, json};

use changes::Source;
use content::Contents;
use program::Failure;
use tree::Trees;
use worktrees::Making;

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/git";

/// The plugin.
pub fn plugin() -> Plugin {
    Plugin::new(NAME, |host, options| Box::pin(async move { apply(&host, &options) }))
        .title("Git")
        .defaults(json!({}))
        .options_schema(json!({
            "type": "object",
            "properties": {
                "worktreesRoot": {
                    "type": "string",
                    "description": "Folder for the working trees of sessions, as <folder>/<repository>/<name> [default: <repository>.worktrees beside each repository]"
                }
            }
        }))
}

fn apply(host: &PluginHost, options: &Options) -> Result<(), Thrown> {
    let root = match options.get("worktreesRoot").and_then(|root| root.as_str()) {
        Some(root) if !root.starts_with('/') => {
            return Err(Thrown::new(format_args!("worktreesRoot: {root} is not an absolute path")));
        }
        root => root.map(PathBuf::from),
    };
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn_blocking(guard::remove_old_folders));
    }
    let trees = Arc::new(Trees::default());
    let contents = Arc::new(Contents::new(trees.clone(), &host.facts().paths));
    let source = Arc::new(Source::new(trees.clone(), contents.clone()));
    host.register_changes(source.clone().into_point(), None)?;
    host.register_directories(facts::point(trees.clone()), None)?;
    host.register_resource_provider(content::SCHEME.into(), contents.into_point())?;
    let making = Making { host: host.clone(), trees: trees.clone(), root };
    host.register_worktrees(Arc::new(making).into_point(), None)?;
    let (ended, closed, logs) = (source.clone(), source.clone(), host.clone());
    // Nothing waits for a repository: neither the listeners of other events nor those of other plugins.
    host.on(
        EventName::TurnEnd,
        Call::now(move |(event, _): (Frozen<Event>, Frozen<PluginContext>)| {
            if let Event::TurnEnd { session, turn, .. } = event.0 {
                let recorded = ended.snapshots.end(&session, &turn);
                report(&logs, session, "cannot record the files after a turn", recorded);
            }
            Ok(())
        }),
    )?;
    let logs = host.clone();
    host.on(
        EventName::SessionEnd,
        Call::now(move |(event, _): (Frozen<Event>, Frozen<PluginContext>)| {
            if let Event::SessionEnd { session, reason } = event.0
                && reason == "disposed"
            {
                let removed = source.snapshots.forget(&session);
                report(&logs, session, "cannot remove its snapshots", removed);
            }
            Ok(())
        }),
    )?;
    host.register_close(Call::new(move |()| {
        let (trees, closed) = (trees.clone(), closed.clone());
        async move {
            closed.snapshots.close().await;
            trees.clear();
            Ok(())
        }
    }))
}

/// Awaits work of a session, and logs its failure.
fn report(
    host: &PluginHost,
    session: String,
    failed: &'static str,
    work: impl Future<Output = Result<(), Failure>> + Send + 'static,
) {
    let host = host.clone();
    tokio::spawn(async move {
        if let Err(why) = work.await {
            let _ = host.log(format!("{session}: {failed}: {}", Thrown::from(why).message));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_plugin_exports() {
        let module = plugin().module;
        assert_eq!(module.name, Some("git".into()));
        let schema = module.options_schema.unwrap_or_default();
        assert_eq!(schema["properties"]["worktreesRoot"]["type"], "string");
    }
}
