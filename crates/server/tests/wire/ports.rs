//! Terminals and changesets for transcripts: what they do is the same every time.

use std::sync::Arc;

use ostler_contract::points::{
    ChangeScope, Changes, ChangesOf, ChangesState, Terminal, TerminalEvents, TerminalRequest, TerminalStore,
};
use ostler_contract::wire::commands::{ChangesetOperationTarget, InvokeChangesetOperationResult};
use ostler_contract::{Call, JsonObject, Plugin, Thrown, Value, json};
use parking_lot::Mutex;

/// A terminal that prints what is typed into it; `exit <code>` ends it.
fn parrot((request, events): (TerminalRequest, TerminalEvents)) -> Result<Terminal, Thrown> {
    events.data.call((format!("in {}\r\n", request.cwd.unwrap_or_default()),))?;
    let (typed, resized, disposed) = (events.clone(), events.clone(), events);
    Ok(Terminal {
        title: Some("parrot".into()),
        is_pty: Some(true),
        input: Call::now(move |(data,): (String,)| match data.strip_prefix("exit ") {
            Some(code) => typed.exited.call((code.trim().parse().ok(),)),
            None => typed.data.call((data,)),
        }),
        resize: Some(Call::now(move |(cols, rows): (u16, u16)| {
            resized.data.call((format!("now {cols}x{rows}\r\n"),))
        })),
        dispose: Call::now(move |()| disposed.exited.call((None,))),
        ..Terminal::default()
    })
}

/// Terminals without processes.
pub fn terminals() -> Plugin {
    Plugin::new("@test/terminals", |host, _| {
        Box::pin(async move {
            let store = TerminalStore { create: Call::now(parrot), ..TerminalStore::default() };
            host.register_terminals(store, None)
        })
    })
}

fn content(files: &[String]) -> Result<ChangesState, Thrown> {
    let file = |name: &String| {
        let side = |side: &str| json!({ "uri": format!("file:///yard/{name}"), "content": { "uri": format!("yard:/{side}/{name}") } });
        json!({ "id": name, "edit": { "before": side("before"), "after": side("after"), "diff": { "added": 1, "removed": 1 } } })
    };
    let state = json!({ "files": files.iter().map(file).collect::<Vec<_>>(), "operations": [
        { "id": "commit", "label": "Commit", "scopes": ["changeset"], "status": "idle" },
        { "id": "discard", "label": "Discard", "scopes": ["resource"], "status": "idle" },
    ] });
    Ok(ChangesState {
        files: serde_json::from_value(state["files"].clone()).map_err(Thrown::new)?,
        operations: serde_json::from_value(state["operations"].clone()).map_err(Thrown::new)?,
    })
}

type Operate = (ChangesOf, String, String, Option<ChangesetOperationTarget>, Option<JsonObject>);

/// Two changed files, of which each can be discarded and both be committed.
pub fn changes() -> Plugin {
    Plugin::new("@test/changes", |host, _| {
        Box::pin(async move {
            let files = Arc::new(Mutex::new(vec!["hay.txt".to_owned(), "oats.txt".to_owned()]));
            let shown = files.clone();
            host.register_changes(
                Changes {
                    scopes: Call::now(|_| {
                        let scope = |scope: &str, label: &str, review| ChangeScope {
                            scope: scope.to_owned(),
                            label: label.to_owned(),
                            change_kind: Some(scope.to_owned()),
                            review,
                            ..ChangeScope::default()
                        };
                        Ok(vec![
                            scope("uncommitted", "Uncommitted", true),
                            scope("session", "Session", false),
                        ])
                    }),
                    state: Call::now(move |_| content(&shown.lock())),
                    summary: Call::now(|_| Ok(None)),
                    operate: Some(Call::now(move |(_, _, operation, target, _): Operate| {
                        let mut files = files.lock();
                        let said = match (operation.as_str(), target) {
                            ("discard", Some(ChangesetOperationTarget::Resource { resource, .. })) => {
                                files.retain(|file| !resource.ends_with(file.as_str()));
                                "Discarded"
                            }
                            _ => {
                                files.clear();
                                "Committed"
                            }
                        };
                        let said: Value = json!({ "message": said });
                        serde_json::from_value::<InvokeChangesetOperationResult>(said).map_err(Thrown::new)
                    })),
                    ..Changes::default()
                },
                None,
            )
        })
    })
}
