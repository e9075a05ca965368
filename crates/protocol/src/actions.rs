//! The table of actions: whose channel they belong to, who may originate them, and the grant a client's
//! dispatch asks for.

use ahp_types::actions::StateAction;
use serde_json::Value;

use crate::Version;
use crate::grants::Grant;

/// The kind of channel an action changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The root channel.
    Root,
    /// A session.
    Session,
    /// A chat.
    Chat,
    /// A terminal.
    Terminal,
    /// A changeset.
    Changeset,
    /// A session's annotations.
    Annotations,
    /// A resource watch.
    ResourceWatch,
    /// The automation catalogue.
    Automations,
    /// An automation run.
    AutomationRun,
    /// A canvas.
    Canvas,
}

/// Reads an action. The code that reads them all is more than a megabyte, so it is in the program once: here.
///
/// # Errors
/// Where it is no action, or one of its fields has another type. A type this version does not know is
/// [`StateAction::Unknown`].
pub fn read(action: Value) -> Result<StateAction, serde_json::Error> {
    serde_json::from_value(action)
}

/// One action.
#[derive(Debug)]
pub struct Action {
    /// Its `type`.
    pub name: &'static str,
    /// Where it belongs.
    pub scope: Scope,
    /// What a client's dispatch asks; `None` where only the host originates it.
    pub client: Option<Grant>,
    /// The first version that has it.
    pub since: Version,
}

macro_rules! actions {
    ($($scope:ident { $($name:literal $who:tt $($since:ident)?;)+ })+) => {
        /// Every action of the protocol.
        pub const ACTIONS: &[Action] = &[$($(Action {
            name: $name,
            scope: Scope::$scope,
            client: actions!(@who $who),
            since: actions!(@since $($since)?),
        },)+)+];
    };
    (@who host) => { None };
    (@who ($subject:literal $operation:literal)) => { Some(Grant::of($subject, $operation)) };
    (@since) => { Version::V0_9 };
    (@since v1) => { Version::V1 };
}

actions! {
    Root {
        "root/agentsChanged" host;
        "root/activeSessionsChanged" host;
        "root/terminalsChanged" host;
        "root/configChanged" ("config" "change");
    }
    Session {
        "session/ready" host;
        "session/creationFailed" host;
        "session/chatAdded" host;
        "session/chatRemoved" host;
        "session/chatUpdated" host;
        "session/chatsReordered" host v1;
        "session/defaultChatChanged" host;
        "session/titleChanged" ("session" "rename");
        "session/serverToolsChanged" host;
        "session/activeClientSet" ("session" "attach");
        "session/activeClientRemoved" ("session" "attach");
        "session/workingDirectorySet" ("session" "folders");
        "session/workingDirectoryRemoved" ("session" "folders");
        "session/workingDirectoryReplaced" ("session" "folders");
        "session/inputNeededSet" host;
        "session/inputNeededRemoved" host;
        "session/customizationsChanged" host;
        "session/customizationToggled" ("session" "configure");
        "session/customizationUpdated" host;
        "session/customizationRemoved" host;
        "session/mcpServerStateChanged" host;
        "session/mcpServerStartRequested" ("session" "configure");
        "session/mcpServerStopRequested" ("session" "configure");
        "session/mcpServerBackgroundRequested" ("session" "configure") v1;
        "session/isReadChanged" ("session" "mark");
        "session/isArchivedChanged" ("session" "mark");
        "session/activityChanged" host;
        "session/changesetsChanged" host;
        "session/configChanged" ("session" "configure");
        "session/metaChanged" host;
    }
    Chat {
        "chat/turnStarted" ("chat" "send");
        "chat/delta" host;
        "chat/responsePart" host;
        "chat/toolCallStart" host;
        "chat/toolCallDelta" host;
        "chat/toolCallReady" host;
        "chat/toolCallConfirmed" ("chat" "answer");
        "chat/toolCallComplete" ("chat" "tool");
        "chat/toolCallResultConfirmed" ("chat" "answer");
        "chat/toolCallContentChanged" ("chat" "tool");
        "chat/toolCallAuthRequired" host;
        "chat/toolCallAuthResolved" host;
        "chat/turnComplete" host;
        "chat/turnCancelled" ("chat" "cancel");
        "chat/error" host;
        "chat/turnResume" ("chat" "send");
        "chat/activityChanged" host;
        "chat/backgroundWorkSet" host v1;
        "chat/backgroundWorkRemoved" host v1;
        "chat/movableChanged" host v1;
        "chat/changesetsChanged" host v1;
        "chat/canvasesChanged" host v1;
        "chat/usage" host;
        "chat/reasoning" host;
        "chat/workingDirectorySet" ("chat" "folders");
        "chat/workingDirectoryRemoved" ("chat" "folders");
        "chat/pendingMessageSet" ("chat" "send");
        "chat/pendingMessageRemoved" ("chat" "send");
        "chat/queuedMessagesReordered" ("chat" "send");
        "chat/draftChanged" ("chat" "draft");
        "chat/isReadChanged" ("chat" "mark") v1;
        "chat/isArchivedChanged" ("chat" "mark") v1;
        "chat/inputRequested" host;
        "chat/inputAnswerChanged" ("chat" "answer");
        "chat/inputCompleted" ("chat" "answer");
        "chat/truncated" ("chat" "truncate");
        "chat/turnsLoaded" host;
    }
    Canvas {
        "canvas/stateChanged" host v1;
    }
    Changeset {
        "changeset/statusChanged" host;
        "changeset/fileSet" host;
        "changeset/fileRemoved" host;
        "changeset/filesReviewChanged" ("session" "review");
        "changeset/contentChanged" host;
        "changeset/operationsChanged" host;
        "changeset/operationStatusChanged" host;
        "changeset/cleared" host;
    }
    Annotations {
        "annotations/set" ("session" "review");
        "annotations/updated" ("session" "review");
        "annotations/removed" ("session" "review");
        "annotations/entrySet" ("session" "review");
        "annotations/entryRemoved" ("session" "review");
    }
    Terminal {
        "terminal/data" host;
        "terminal/input" ("terminal" "input");
        "terminal/resized" ("terminal" "resize");
        "terminal/claimed" ("terminal" "claim");
        "terminal/titleChanged" ("terminal" "rename");
        "terminal/cwdChanged" host;
        "terminal/exited" host;
        "terminal/cleared" ("terminal" "clear");
        "terminal/commandDetectionAvailable" host;
        "terminal/commandExecuted" host;
        "terminal/commandFinished" host;
    }
    ResourceWatch {
        "resourceWatch/changed" ("file" "watch");
    }
    Automations {
        "automation/createRequested" ("automation" "create");
        "automation/updateRequested" ("automation" "update");
        "automation/set" host;
        "automation/removed" ("automation" "remove");
    }
    AutomationRun {
        "automationRun/lifecycleChanged" host;
        "automationRun/sessionSet" host;
        "automationRun/sessionRemoved" host;
        "automationRun/primarySessionChanged" host;
        "automationRun/cancelRequested" ("automation" "cancel");
    }
}

/// The row of an action's `type`.
pub fn action(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|action| action.name == name)
}

/// The `type` of an action encoded by the wire types, which always write it first.
pub fn type_of(encoded: &str) -> Option<&str> {
    encoded.strip_prefix(r#"{"type":""#)?.split('"').next()
}

#[cfg(test)]
mod tests {
    use ahp_types::actions::{ChatDeltaAction, StateAction};

    use super::*;

    #[test]
    fn rows_are_unique_and_name_the_types_of_the_wire() {
        let mut names: Vec<_> = ACTIONS.iter().map(|action| action.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ACTIONS.len());
        for action in ACTIONS {
            // A type the wire types know is read by its own variant, which then misses fields or is typed;
            // an unknown one falls through to `Unknown` untouched.
            let read: Result<StateAction, _> =
                serde_json::from_value(serde_json::json!({ "type": action.name }));
            if let Ok(StateAction::Unknown(value)) = read {
                // Rows with required fields land here too, so ask the enum of types as well.
                let kind: ahp_types::actions::ActionType =
                    serde_json::from_value(value["type"].clone()).expect("a type");
                assert!(!matches!(kind, ahp_types::actions::ActionType::Unknown(_)), "{}", action.name);
            }
        }
    }

    #[test]
    fn an_encoded_action_says_its_type_first() {
        let action = StateAction::ChatDelta(ChatDeltaAction {
            turn_id: "t".into(),
            part_id: "p".into(),
            content: "hello".into(),
            meta: None,
        });
        let encoded = serde_json::to_string(&action).expect("encoded");
        assert_eq!(type_of(&encoded), Some("chat/delta"));
    }
}
