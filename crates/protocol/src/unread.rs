//! Why an action is invalid: the path of the field that is missing or has another type.

use ahp_types::actions::*;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::message::tidy;

macro_rules! read_as {
    ($($name:literal $of:ident;)+) => {
        fn read_as(name: &str) -> Option<fn(&Value) -> Option<String>> {
            match name {
                $($name => Some(wrong_in::<$of>),)+
                _ => None,
            }
        }

        #[cfg(test)]
        const NAMES: &[&str] = &[$($name),+];
    };
}

// The actions that clients can dispatch.
read_as! {
    "session/titleChanged" SessionTitleChangedAction;
    "session/activeClientSet" SessionActiveClientSetAction;
    "session/activeClientRemoved" SessionActiveClientRemovedAction;
    "session/workingDirectorySet" SessionWorkingDirectorySetAction;
    "session/workingDirectoryRemoved" SessionWorkingDirectoryRemovedAction;
    "session/workingDirectoryReplaced" SessionWorkingDirectoryReplacedAction;
    "session/customizationToggled" SessionCustomizationToggledAction;
    "session/mcpServerStartRequested" SessionMcpServerStartRequestedAction;
    "session/mcpServerStopRequested" SessionMcpServerStopRequestedAction;
    "session/mcpServerBackgroundRequested" SessionMcpServerBackgroundRequestedAction;
    "session/isReadChanged" SessionIsReadChangedAction;
    "session/isArchivedChanged" SessionIsArchivedChangedAction;
    "session/configChanged" SessionConfigChangedAction;
    "chat/turnStarted" ChatTurnStartedAction;
    "chat/toolCallConfirmed" ChatToolCallConfirmedAction;
    "chat/toolCallComplete" ChatToolCallCompleteAction;
    "chat/toolCallResultConfirmed" ChatToolCallResultConfirmedAction;
    "chat/toolCallContentChanged" ChatToolCallContentChangedAction;
    "chat/turnCancelled" ChatTurnCancelledAction;
    "chat/turnResume" ChatTurnResumeAction;
    "chat/workingDirectorySet" ChatWorkingDirectorySetAction;
    "chat/workingDirectoryRemoved" ChatWorkingDirectoryRemovedAction;
    "chat/pendingMessageSet" ChatPendingMessageSetAction;
    "chat/pendingMessageRemoved" ChatPendingMessageRemovedAction;
    "chat/queuedMessagesReordered" ChatQueuedMessagesReorderedAction;
    "chat/draftChanged" ChatDraftChangedAction;
    "chat/isReadChanged" ChatIsReadChangedAction;
    "chat/isArchivedChanged" ChatIsArchivedChangedAction;
    "chat/inputAnswerChanged" ChatInputAnswerChangedAction;
    "chat/inputCompleted" ChatInputCompletedAction;
    "chat/truncated" ChatTruncatedAction;
    "changeset/filesReviewChanged" ChangesetFilesReviewChangedAction;
    "annotations/set" AnnotationsSetAction;
    "annotations/updated" AnnotationsUpdatedAction;
    "annotations/removed" AnnotationsRemovedAction;
    "annotations/entrySet" AnnotationsEntrySetAction;
    "annotations/entryRemoved" AnnotationsEntryRemovedAction;
    "terminal/input" TerminalInputAction;
    "terminal/resized" TerminalResizedAction;
    "terminal/claimed" TerminalClaimedAction;
    "terminal/titleChanged" TerminalTitleChangedAction;
    "terminal/cleared" TerminalClearedAction;
    "automation/createRequested" AutomationCreateRequestedAction;
    "automation/updateRequested" AutomationUpdateRequestedAction;
    "automation/removed" AutomationRemovedAction;
    "automationRun/cancelRequested" AutomationRunCancelRequestedAction;
}

/// Describes what is wrong with a client's action, after the name of its type. It does not repeat the value.
pub fn unread(name: &str, action: &Value) -> String {
    match read_as(name).and_then(|wrong| wrong(action)) {
        Some(wrong) => format!("{name}: {wrong}"),
        None => format!("{name} lacks a required field, or has a field of the wrong type"),
    }
}

fn wrong_in<T: DeserializeOwned>(action: &Value) -> Option<String> {
    let error = serde_path_to_error::deserialize::<_, T>(action).err()?;
    let path = error.path().to_string();
    let place = if path == "." { String::new() } else { format!("{path}: ") };
    Some(format!("{place}{}", without_value(&tidy(error.inner()))))
}

/// Formats a parse error without the parsed value.
fn without_value(text: &str) -> String {
    let expected = text.rsplit_once(", expected ").map(|(_, expected)| expected);
    match (text.split(' ').next(), expected) {
        (Some("invalid"), Some(expected)) => format!("invalid value, expected {expected}"),
        (Some("unknown"), Some(expected)) => format!("unknown value, expected {expected}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::actions::ACTIONS;

    #[test]
    fn the_field_is_named_and_its_value_is_not() {
        for (name, action, sentence) in [
            ("chat/turnCancelled", json!({ "duration": 0 }), "chat/turnCancelled: missing field `turnId`"),
            (
                "session/isReadChanged",
                json!({ "isRead": "s3cret" }),
                "session/isReadChanged: isRead: invalid value, expected a boolean",
            ),
            (
                "automation/updateRequested",
                json!({ "resource": "r", "changes": { "disableConditions": [{ "kind": "s3cret" }] } }),
                "automation/updateRequested: changes.disableConditions[0].kind: unknown value, expected `afterRuns` or \
                 `afterDate`",
            ),
            (
                "automation/updateRequested",
                json!({ "resource": "r", "changes": { "disableConditions": [{ "kind": "afterRuns" }] } }),
                "automation/updateRequested: changes.disableConditions[0]: missing field `max`",
            ),
            ("x/y", json!({}), "x/y lacks a required field, or has a field of the wrong type"),
        ] {
            assert_eq!(unread(name, &action), sentence);
        }
    }

    #[test]
    fn every_action_a_client_may_dispatch_is_known() {
        let elsewhere = ["root/configChanged", "resourceWatch/changed"];
        let dispatched = ACTIONS.iter().filter(|action| action.client.is_some()).map(|action| action.name);
        let lacking: Vec<_> =
            dispatched.filter(|name| !NAMES.contains(name) && !elsewhere.contains(name)).collect();
        assert_eq!(lacking, Vec::<&str>::new());
    }
}
