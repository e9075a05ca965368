//! The length of the texts that make an action or a turn long, without encoding it. Structured results of tools, which are
//! no texts, are not counted.

use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{
    Message, MessageAttachment, ResponsePart, ToolCallState, ToolInput, ToolResultContent,
};

/// Returns the length of the texts of an action.
pub(super) fn text_in(action: &StateAction) -> usize {
    match action {
        StateAction::ChatDelta(delta) => delta.content.len(),
        StateAction::ChatReasoning(delta) => delta.content.len(),
        StateAction::ChatTurnStarted(started) => text_in_message(&started.message),
        StateAction::ChatPendingMessageSet(set) => text_in_message(&set.message),
        StateAction::ChatDraftChanged(changed) => changed.draft.as_ref().map_or(0, text_in_message),
        StateAction::ChatResponsePart(added) => text_in_part(&added.part),
        StateAction::ChatToolCallReady(ready) => text_in_input(ready.tool_input.as_ref()),
        StateAction::ChatToolCallContentChanged(changed) => text_in_contents(&changed.content),
        StateAction::ChatToolCallComplete(complete) => {
            complete.result.content.as_deref().map_or(0, text_in_contents)
        }
        _ => 0,
    }
}

/// Returns the length of the texts of a turn.
pub(super) fn text_in_turn(message: &Message, parts: &[ResponsePart]) -> usize {
    text_in_message(message) + parts.iter().map(text_in_part).sum::<usize>()
}

/// Returns the length of the text of a message and of what is attached to it inline.
pub(super) fn text_in_message(message: &Message) -> usize {
    let attached = message.attachments.iter().flatten().map(|attachment| match attachment {
        MessageAttachment::EmbeddedResource(embedded) => embedded.data.len(),
        _ => 0,
    });
    message.text.len() + attached.sum::<usize>()
}

fn text_in_part(part: &ResponsePart) -> usize {
    match part {
        ResponsePart::Markdown(part) => part.content.len(),
        ResponsePart::Reasoning(part) => part.content.len(),
        ResponsePart::ToolCall(part) => text_in_call(&part.tool_call),
        _ => 0,
    }
}

fn text_in_call(call: &ToolCallState) -> usize {
    let (input, contents) = match call {
        ToolCallState::Streaming(call) => return call.partial_input.as_ref().map_or(0, String::len),
        ToolCallState::PendingConfirmation(call) => (&call.tool_input, None),
        ToolCallState::Running(call) => (&call.tool_input, call.content.as_deref()),
        ToolCallState::AuthRequired(call) => (&call.tool_input, call.content.as_deref()),
        ToolCallState::PendingResultConfirmation(call) => (&call.tool_input, call.content.as_deref()),
        ToolCallState::Completed(call) => (&call.tool_input, call.content.as_deref()),
        ToolCallState::Cancelled(call) => (&call.tool_input, None),
        ToolCallState::Unknown(_) => return 0,
    };
    text_in_input(input.as_ref()) + contents.map_or(0, text_in_contents)
}

fn text_in_input(input: Option<&ToolInput>) -> usize {
    match input {
        Some(ToolInput::Inline(input)) => input.len(),
        Some(ToolInput::ContentRef(_)) | None => 0,
    }
}

fn text_in_contents(contents: &[ToolResultContent]) -> usize {
    let lengths = contents.iter().map(|content| match content {
        ToolResultContent::Text(content) => content.text.len(),
        ToolResultContent::EmbeddedResource(content) => content.data.len(),
        _ => 0,
    });
    lengths.sum()
}
