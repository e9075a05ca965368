//! One tool call of a turn, as the agent reported it.

use ostler_contract::{Value, json};

use super::client_calls::ClientSide;
use crate::protocol::ToolCallChange;
use crate::tool_content;

/// A tool call of the turn.
#[derive(Debug, Default)]
pub(super) struct ToolCall {
    /// The host's id.
    pub shown: String,
    pub whole: ToolCallChange,
    pub step: Step,
    /// The number of calls of the turn before it.
    pub order: usize,
    /// The arguments of the tool, and whether the agent has sent them as such.
    pub arguments: Option<(Value, bool)>,
    /// The MCP server and the tool that its input names.
    pub mcp_tool: Option<String>,
    /// What is known of it if a client runs the tool.
    pub client: Option<ClientSide>,
}

/// The status of a tool call that the host knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Step {
    #[default]
    New,
    Started,
    Asked,
    /// A user approved it, and the host updated it.
    Approved,
    Running,
    Done,
}

impl ToolCall {
    pub fn new(shown: String, order: usize) -> Self {
        Self { shown, order, ..Self::default() }
    }

    /// Returns the tool's name for clients.
    pub fn tool_name(&self) -> String {
        self.client.as_ref().map_or_else(|| self.agents_name(), |client| client.tool.name.clone())
    }

    fn agents_name(&self) -> String {
        let whole = &self.whole;
        whole.name.clone().or_else(|| whole.kind.clone()).unwrap_or_else(|| "tool".to_owned())
    }

    /// Returns the subject of a standing answer: the tool. Shells and tools of an unspecific kind can do anything, so
    /// for them it includes the call's title and command.
    pub fn standing(&self) -> String {
        let whole = &self.whole;
        let limited = ["read", "edit", "search", "think"];
        if whole.kind.as_deref().is_some_and(|kind| limited.contains(&kind)) {
            return self.agents_name();
        }
        let subject = format!("{}: {}", self.agents_name(), self.agents_title());
        // A title can be the same for every command.
        let command = whole.raw_input.as_ref().and_then(|input| input.get("command"));
        if let Some(tool) = self.mcp_tool.as_ref().filter(|_| command.is_none()) {
            return format!("{subject}: {tool}");
        }
        match command {
            Some(command) => format!("{subject}: {}", tool_content::text_of(command)),
            None => subject,
        }
    }

    /// Returns its title for clients.
    pub fn title(&self) -> String {
        self.client.as_ref().map_or_else(|| self.agents_title(), |client| client.tool.title.clone())
    }

    fn agents_title(&self) -> String {
        self.whole.title.clone().filter(|title| !title.is_empty()).unwrap_or_else(|| self.agents_name())
    }

    /// Returns the client that runs it.
    pub fn contributor(&self) -> Option<Value> {
        self.client.as_ref().map(|client| client.tool.contributor())
    }

    pub fn action(&self, kind: &str, turn: &str) -> Value {
        let mut action = json!({ "type": kind, "turnId": turn, "toolCallId": self.shown });
        if let (Some(_), Some(kind)) = (&self.whole.name, &self.whole.kind) {
            action["_meta"]["ostler.toolKind"] = kind.as_str().into();
        }
        if let Some(locations) = tool_content::locations(&self.whole) {
            action["_meta"]["ostler.locations"] = json!(locations);
        }
        action
    }

    pub fn ready(&self, turn: &str) -> Value {
        let mut action = self.action("chat/toolCallReady", turn);
        action["invocationMessage"] = tool_content::shown_title(&self.title());
        let arguments =
            self.arguments.as_ref().filter(|_| self.client.is_some()).map(|(arguments, _)| arguments);
        if let Some(input) = arguments.or(self.whole.raw_input.as_ref()) {
            action["toolInput"] = tool_content::text_of(input).into();
        }
        action
    }
}
