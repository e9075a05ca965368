//! Changes to an automation's definition.

use ostler_contract::protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, Message, MessageKind, MessageOrigin,
};

/// A message as an automation says it: the protocol's origin for it, and no blank lines around.
pub(super) fn message(message: Message) -> Message {
    let text = message.text.trim_matches(['\n', '\r']).to_owned();
    Message { text, origin: MessageOrigin { kind: MessageKind::Automation }, ..message }
}

/// The definition with what the patch names in place of what it held. An empty list of conditions is none.
pub(super) fn patched(
    definition: &AutomationDefinition,
    patch: AutomationDefinitionPatch,
) -> AutomationDefinition {
    let before = definition.clone();
    AutomationDefinition {
        title: patch.title.unwrap_or(before.title),
        message: patch.message.map_or(before.message, message),
        session: patch.session.unwrap_or(before.session),
        enabled: patch.enabled.unwrap_or(before.enabled),
        triggers: patch.triggers.unwrap_or(before.triggers),
        disable_conditions: patch
            .disable_conditions
            .map_or(before.disable_conditions, |conditions| Some(conditions).filter(|some| !some.is_empty())),
        meta: patch.meta.map_or(before.meta, |meta| Some(meta).filter(|some| !some.is_empty())),
    }
}

/// ISO 8601, in milliseconds.
pub(super) fn iso(at: jiff::Timestamp) -> String {
    format!("{at:.3}")
}
