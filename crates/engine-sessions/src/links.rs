//! Links from tool calls to the worker chats that they opened. Only the host knows them. A backend's content of a call
//! replaces the previous content, so the host adds the links again.

use ostler_protocol::wire::actions::{ChatToolCallContentChangedAction, StateAction};
use ostler_protocol::wire::state::{ToolCallState, ToolResultContent, ToolResultSubagentContent};

use super::actor::Actor;

impl Actor {
    /// Links a call to a worker chat: immediately if the call runs, otherwise with its next content.
    pub(super) fn link_call(&mut self, at: usize, call: &str, link: ToolResultSubagentContent) {
        self.chats[at].links.entry(call.to_owned()).or_default().push(link);
        self.show_links(at, call);
    }

    /// Adds the missing links of a call to the content of the running call.
    pub(super) fn show_links(&mut self, at: usize, call: &str) {
        let Some(ToolCallState::Running(running)) = self.tool_call(at, call) else { return };
        let held = running.content.clone();
        let content = self.linked(at, call, held.clone());
        let Some(content) = content.filter(|content| Some(content) != held.as_ref()) else { return };
        let Some(turn_id) = self.chats[at].running().map(str::to_owned) else { return };
        let changed =
            ChatToolCallContentChangedAction { turn_id, tool_call_id: call.to_owned(), meta: None, content };
        self.apply_chat(at, StateAction::ChatToolCallContentChanged(changed), None);
    }

    /// Returns a call's content with its links added.
    pub(super) fn linked(
        &self,
        at: usize,
        call: &str,
        content: Option<Vec<ToolResultContent>>,
    ) -> Option<Vec<ToolResultContent>> {
        let Some(links) = self.chats[at].links.get(call) else { return content };
        let mut content = content.unwrap_or_default();
        for link in links {
            let is_it = |part: &ToolResultContent| matches!(part, ToolResultContent::Subagent(part) if part.resource == link.resource);
            if !content.iter().any(is_it) {
                content.push(ToolResultContent::Subagent(link.clone()));
            }
        }
        Some(content)
    }
}
