//! Links from tool calls to the worker chats they opened. Only the host knows them: what a backend says of a call's
//! content replaces the content, and they stay in it.

use ostler_protocol::wire::actions::{ChatToolCallContentChangedAction, StateAction};
use ostler_protocol::wire::state::{ToolCallState, ToolResultContent, ToolResultSubagentContent};

use super::actor::Actor;

impl Actor {
    /// Links a call to a worker chat: now where the call runs, otherwise with what is said of its content next.
    pub(super) fn link_call(&mut self, at: usize, call: &str, link: ToolResultSubagentContent) {
        self.chats[at].links.entry(call.to_owned()).or_default().push(link);
        self.show_links(at, call);
    }

    /// Puts the links of a call into the content of the running call, where they are missing.
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

    /// A call's content with its links in it.
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
