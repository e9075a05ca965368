//! The table of actions: the channel they belong to, who can originate them, and the grant that a client's dispatch
//! requires.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::LazyLock;

use ahp_types::actions::StateAction;
use serde::Deserialize as _;
use serde_json::Value;

use crate::Version;
use crate::grants::Grant;

/// The kind of channel that an action changes.
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

/// Parses an action. The code that parses all actions is larger than a megabyte, so the program contains it only here.
///
/// # Errors
/// It is not an action, or one of its fields has another type. A type that this version does not know is
/// [`StateAction::Unknown`].
pub fn read(action: impl Borrow<Value>) -> Result<StateAction, serde_json::Error> {
    fn read(action: &Value) -> Result<StateAction, serde_json::Error> {
        StateAction::deserialize(action)
    }
    read(action.borrow())
}

/// How an action is handled on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// In order; it can change the listings.
    Ordinary,
    /// Text of a running turn, which is coalesced and stored with its turn.
    Streamed,
    /// It ends a turn early and does not wait behind emitted actions.
    Cancel,
}

/// What a client's dispatch waits for in the session store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It is stored before it is acknowledged.
    ForStore,
    /// It is not stored, or stored later. It concerns a turn and waits while the start or the end of a turn is stored.
    ForTurn,
    /// It is not stored, or stored later, and concerns no turn.
    Never,
}

/// One action.
#[derive(Debug)]
pub struct Action {
    /// Its `type`.
    pub name: &'static str,
    /// Its channel.
    pub scope: Scope,
    /// The grant that a client's dispatch requires; `None` if only the host originates it.
    pub client: Option<Grant>,
    /// The first protocol version that contains it.
    pub since: Version,
    /// How it is handled.
    pub class: Class,
    /// What a client's dispatch waits for.
    pub waits: Waits,
}

macro_rules! actions {
    ($($scope:ident { $($name:literal $variant:ident $who:tt $($mark:ident)*;)+ })+) => {
        /// The row of each action, in the order of the table.
        enum Row { $($($variant,)+)+ }

        /// Every action of the protocol.
        pub static ACTIONS: &[Action] = &[$($(Action {
            name: $name,
            scope: Scope::$scope,
            client: actions!(@who $who),
            since: actions!(@since $($mark)*),
            class: actions!(@class $($mark)*),
            waits: actions!(@waits $($mark)*),
        },)+)+];

        /// Returns the row of an action. An action that this version does not know has none, unless it only lacks
        /// fields.
        pub fn row(of: &StateAction) -> Option<&'static Action> {
            let row = match of {
                // If the protocol adds an action, this does not compile until the action has a row.
                $($(StateAction::$variant(_) => Row::$variant,)+)+
                StateAction::Unknown(value) => return action(value.get("type")?.as_str()?),
            };
            ACTIONS.get(row as usize)
        }
    };
    (@who host) => { None };
    (@who ($subject:literal $operation:literal)) => { Some(Grant::of($subject, $operation)) };
    (@since) => { Version::V0_9 };
    (@since v1 $($mark:ident)*) => { Version::V1 };
    (@since $other:ident $($mark:ident)*) => { actions!(@since $($mark)*) };
    (@class) => { Class::Ordinary };
    (@class streamed $($mark:ident)*) => { Class::Streamed };
    (@class cancel $($mark:ident)*) => { Class::Cancel };
    (@class $other:ident $($mark:ident)*) => { actions!(@class $($mark)*) };
    (@waits) => { Waits::ForStore };
    (@waits in_turn $($mark:ident)*) => { Waits::ForTurn };
    (@waits beside_turns $($mark:ident)*) => { Waits::Never };
    (@waits $other:ident $($mark:ident)*) => { actions!(@waits $($mark)*) };
}

actions! {
    Root {
        "root/agentsChanged" RootAgentsChanged host;
        "root/activeSessionsChanged" RootActiveSessionsChanged host;
        "root/terminalsChanged" RootTerminalsChanged host;
        "root/configChanged" RootConfigChanged ("config" "change");
    }
    Session {
        "session/ready" SessionReady host;
        "session/creationFailed" SessionCreationFailed host;
        "session/chatAdded" SessionChatAdded host;
        "session/chatRemoved" SessionChatRemoved host;
        "session/chatUpdated" SessionChatUpdated host;
        "session/chatsReordered" SessionChatsReordered host v1;
        "session/defaultChatChanged" SessionDefaultChatChanged host;
        "session/titleChanged" SessionTitleChanged ("session" "rename");
        "session/serverToolsChanged" SessionServerToolsChanged host;
        "session/activeClientSet" SessionActiveClientSet ("session" "attach") in_turn;
        "session/activeClientRemoved" SessionActiveClientRemoved ("session" "attach") in_turn;
        "session/workingDirectorySet" SessionWorkingDirectorySet ("session" "folders");
        "session/workingDirectoryRemoved" SessionWorkingDirectoryRemoved ("session" "folders");
        "session/workingDirectoryReplaced" SessionWorkingDirectoryReplaced ("session" "folders");
        "session/inputNeededSet" SessionInputNeededSet host;
        "session/inputNeededRemoved" SessionInputNeededRemoved host;
        "session/customizationsChanged" SessionCustomizationsChanged host;
        "session/customizationToggled" SessionCustomizationToggled ("session" "configure");
        "session/customizationUpdated" SessionCustomizationUpdated host;
        "session/customizationRemoved" SessionCustomizationRemoved host;
        "session/mcpServerStateChanged" SessionMcpServerStateChanged host;
        "session/mcpServerStartRequested" SessionMcpServerStartRequested ("session" "configure");
        "session/mcpServerStopRequested" SessionMcpServerStopRequested ("session" "configure");
        "session/mcpServerBackgroundRequested" SessionMcpServerBackgroundRequested ("session" "configure") v1;
        "session/isReadChanged" SessionIsReadChanged ("session" "mark") in_turn;
        "session/isArchivedChanged" SessionIsArchivedChanged ("session" "mark");
        "session/activityChanged" SessionActivityChanged host;
        "session/changesetsChanged" SessionChangesetsChanged host;
        "session/configChanged" SessionConfigChanged ("session" "configure");
        "session/metaChanged" SessionMetaChanged host;
    }
    Chat {
        "chat/turnStarted" ChatTurnStarted ("chat" "send");
        "chat/delta" ChatDelta host streamed;
        "chat/responsePart" ChatResponsePart host;
        "chat/toolCallStart" ChatToolCallStart host;
        "chat/toolCallDelta" ChatToolCallDelta host;
        "chat/toolCallReady" ChatToolCallReady host;
        "chat/toolCallConfirmed" ChatToolCallConfirmed ("chat" "answer") in_turn;
        "chat/toolCallComplete" ChatToolCallComplete ("chat" "tool") in_turn;
        "chat/toolCallResultConfirmed" ChatToolCallResultConfirmed ("chat" "answer");
        "chat/toolCallContentChanged" ChatToolCallContentChanged ("chat" "tool") in_turn;
        "chat/toolCallAuthRequired" ChatToolCallAuthRequired host;
        "chat/toolCallAuthResolved" ChatToolCallAuthResolved host;
        "chat/turnComplete" ChatTurnComplete host;
        "chat/turnCancelled" ChatTurnCancelled ("chat" "cancel") cancel;
        "chat/error" ChatError host;
        "chat/turnResume" ChatTurnResume ("chat" "send");
        "chat/activityChanged" ChatActivityChanged host;
        "chat/backgroundWorkSet" ChatBackgroundWorkSet host v1;
        "chat/backgroundWorkRemoved" ChatBackgroundWorkRemoved host v1;
        "chat/movableChanged" ChatMovableChanged host v1;
        "chat/changesetsChanged" ChatChangesetsChanged host v1;
        "chat/canvasesChanged" ChatCanvasesChanged host v1;
        "chat/usage" ChatUsage host;
        "chat/reasoning" ChatReasoning host streamed;
        "chat/workingDirectorySet" ChatWorkingDirectorySet ("chat" "folders");
        "chat/workingDirectoryRemoved" ChatWorkingDirectoryRemoved ("chat" "folders");
        "chat/pendingMessageSet" ChatPendingMessageSet ("chat" "send");
        "chat/pendingMessageRemoved" ChatPendingMessageRemoved ("chat" "send");
        "chat/queuedMessagesReordered" ChatQueuedMessagesReordered ("chat" "send");
        "chat/draftChanged" ChatDraftChanged ("chat" "draft") beside_turns;
        "chat/isReadChanged" ChatIsReadChanged ("chat" "mark") v1 in_turn;
        "chat/isArchivedChanged" ChatIsArchivedChanged ("chat" "mark") v1;
        "chat/inputRequested" ChatInputRequested host;
        "chat/inputAnswerChanged" ChatInputAnswerChanged ("chat" "answer") in_turn;
        "chat/inputCompleted" ChatInputCompleted ("chat" "answer") in_turn;
        "chat/truncated" ChatTruncated ("chat" "truncate");
        "chat/turnsLoaded" ChatTurnsLoaded host;
    }
    Canvas {
        "canvas/stateChanged" CanvasStateChanged host v1;
    }
    Changeset {
        "changeset/statusChanged" ChangesetStatusChanged host;
        "changeset/fileSet" ChangesetFileSet host;
        "changeset/fileRemoved" ChangesetFileRemoved host;
        "changeset/filesReviewChanged" ChangesetFilesReviewChanged ("session" "review");
        "changeset/contentChanged" ChangesetContentChanged host;
        "changeset/operationsChanged" ChangesetOperationsChanged host;
        "changeset/operationStatusChanged" ChangesetOperationStatusChanged host;
        "changeset/cleared" ChangesetCleared host;
    }
    Annotations {
        "annotations/set" AnnotationsSet ("session" "review");
        "annotations/updated" AnnotationsUpdated ("session" "review");
        "annotations/removed" AnnotationsRemoved ("session" "review");
        "annotations/entrySet" AnnotationsEntrySet ("session" "review");
        "annotations/entryRemoved" AnnotationsEntryRemoved ("session" "review");
    }
    Terminal {
        "terminal/data" TerminalData host;
        "terminal/input" TerminalInput ("terminal" "input");
        "terminal/resized" TerminalResized ("terminal" "resize");
        "terminal/claimed" TerminalClaimed ("terminal" "claim");
        "terminal/titleChanged" TerminalTitleChanged ("terminal" "rename");
        "terminal/cwdChanged" TerminalCwdChanged host;
        "terminal/exited" TerminalExited host;
        "terminal/cleared" TerminalCleared ("terminal" "clear");
        "terminal/commandDetectionAvailable" TerminalCommandDetectionAvailable host;
        "terminal/commandExecuted" TerminalCommandExecuted host;
        "terminal/commandFinished" TerminalCommandFinished host;
    }
    ResourceWatch {
        "resourceWatch/changed" ResourceWatchChanged ("file" "watch");
    }
    Automations {
        "automation/createRequested" AutomationCreateRequested ("automation" "create");
        "automation/updateRequested" AutomationUpdateRequested ("automation" "update");
        "automation/set" AutomationSet host;
        "automation/removed" AutomationRemoved ("automation" "remove");
    }
    AutomationRun {
        "automationRun/lifecycleChanged" AutomationRunLifecycleChanged host;
        "automationRun/sessionSet" AutomationRunSessionSet host;
        "automationRun/sessionRemoved" AutomationRunSessionRemoved host;
        "automationRun/primarySessionChanged" AutomationRunPrimarySessionChanged host;
        "automationRun/cancelRequested" AutomationRunCancelRequested ("automation" "cancel");
    }
}

/// Returns the row of an action's `type`, for an action that is not parsed yet.
pub fn action(name: &str) -> Option<&'static Action> {
    static BY_NAME: LazyLock<HashMap<&str, &Action>> =
        LazyLock::new(|| ACTIONS.iter().map(|action| (action.name, action)).collect());
    BY_NAME.get(name).copied()
}

/// Returns the `type` of an action.
pub fn type_of(of: &StateAction) -> Option<&str> {
    match of {
        StateAction::Unknown(value) => value.get("type")?.as_str(),
        known => row(known).map(|row| row.name),
    }
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
    fn a_row_is_the_same_by_its_name_and_by_what_is_read() {
        for action in ACTIONS {
            let found = super::action(action.name).expect("a row");
            assert!(std::ptr::eq(found, action), "{}", action.name);
        }
        let delta = StateAction::ChatDelta(ChatDeltaAction {
            turn_id: "t".into(),
            part_id: "p".into(),
            content: "hello".into(),
            meta: None,
        });
        let encoded = serde_json::to_value(&delta).expect("encoded");
        assert_eq!(encoded["type"].as_str(), type_of(&delta));
        assert_eq!(row(&delta).map(|row| (row.name, row.class)), Some(("chat/delta", Class::Streamed)));
    }

    #[test]
    fn an_action_that_does_not_read_has_the_row_of_its_type() {
        let lacking = read(serde_json::json!({ "type": "chat/turnStarted" })).expect("read as unknown");
        assert!(matches!(lacking, StateAction::Unknown(_)));
        assert_eq!(row(&lacking).map(|row| row.name), Some("chat/turnStarted"));
        let unknown = read(serde_json::json!({ "type": "chat/later" })).expect("read as unknown");
        assert!(row(&unknown).is_none());
        assert_eq!(type_of(&unknown), Some("chat/later"));
    }
}
