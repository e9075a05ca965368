//! Calls of tools that clients run. The agent reports such a call as one of its own, and calls the tool through the
//! session's endpoint: both are one call of the turn.

use std::sync::Arc;

use ostler_contract::points::BoundTool;
use ostler_contract::{JsonObject, Value, json};

use super::Turn;
use super::calls::{Step, ToolCall};
use crate::mcp;
use crate::protocol::{Content, ToolCallChange, ToolContent};

/// The maximum number of calls of clients' tools that the agent may still report.
const UNREPORTED: usize = 64;
/// The words that agents add to the name of a tool of an MCP server, besides the server's name.
const WORDS: [&str; 4] = ["mcp", "tool", "server", mcp::OWN];

/// A tool that a client runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTool {
    /// The name that it is offered under.
    pub offered: String,
    pub name: String,
    /// Shown to users.
    pub title: String,
    pub client: String,
}

impl ClientTool {
    /// Returns the tool if a client runs it.
    pub fn of(tool: &BoundTool) -> Option<Self> {
        let client = tool.owner.clone()?;
        let offered = tool.definition.name.clone();
        let own = offered.strip_prefix(&client).and_then(|rest| rest.strip_prefix("__"));
        let name = own.unwrap_or(&offered).to_owned();
        let title = tool.definition.title.clone().unwrap_or_else(|| name.clone());
        Some(Self { offered, name, title, client })
    }

    /// Returns the member of a call with the client that runs it.
    pub fn contributor(&self) -> Value {
        json!({ "kind": "client", "clientId": self.client })
    }

    /// Returns whether an agent's call is one of this tool: its name or its title is the name of the tool and nothing but
    /// the words by which agents tell of which server it is, or its input names both.
    fn is_called_by(&self, call: &ToolCallChange) -> bool {
        let names = [&call.name, &call.title].into_iter().flatten().any(|text| self.is_named(text));
        names || named_input(call) == Some((mcp::OWN, &self.offered))
    }

    /// Whether a text is the tool's name in one of the forms of agents: `mcp__ostler__NAME`, `mcp.ostler.NAME`,
    /// `Tool: ostler/NAME`, `NAME (ostler MCP Server)`, `ostler_NAME`, with or without its arguments as JSON.
    fn is_named(&self, text: &str) -> bool {
        let Some((before, after)) = text.split_once(&self.offered) else { return false };
        let is_json = |at: &usize| serde_json::from_str::<JsonObject>(after[*at..].trim()).is_ok();
        let after = after.find('{').filter(is_json).map_or(after, |at| &after[..at]);
        let is_apart = !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        let mut words =
            [before, after].into_iter().flat_map(|part| part.split(|c: char| !c.is_alphanumeric()));
        is_apart
            && words.all(|word| word.is_empty() || WORDS.iter().any(|known| known.eq_ignore_ascii_case(word)))
    }
}

/// Returns the server and the tool that the input of a call names.
fn named_input(call: &ToolCallChange) -> Option<(&str, &str)> {
    let text = |name: &str| call.raw_input.as_ref()?.get(name)?.as_str();
    text("server").zip(text("tool"))
}

/// A call whose tool a client runs.
#[derive(Debug)]
pub(super) struct ClientSide {
    pub tool: ClientTool,
    /// Whether the agent has called the tool.
    is_called: bool,
    /// The client's result, from before the agent called the tool.
    result: Option<Value>,
}

/// A call of a client's tool that the agent has not reported.
#[derive(Debug)]
pub(super) struct Unreported {
    shown: String,
    tool: String,
    input: Arc<Value>,
    is_done: bool,
}

/// The call of the turn for a call of a client's tool.
#[derive(Debug, PartialEq)]
pub enum Place {
    /// A new call.
    New,
    /// One that the agent has reported. `runs`: whether the client knows it as running.
    Reported {
        /// The host's id.
        shown: String,
        /// Whether the client knows it as running.
        runs: bool,
    },
    /// One that the client has already run.
    Done(Value),
}

impl ToolCall {
    /// Stores the arguments of the tool, if a message has them. A request for approval can have an input of its own.
    pub(super) fn learn_arguments(&mut self, change: &ToolCallChange, is_request: bool) {
        if let Some((server, tool)) = named_input(change) {
            self.mcp_tool = Some(format!("{server}/{tool}"));
        }
        let wrapped = named_input(change).and_then(|_| change.raw_input.as_ref()?.get("arguments"));
        let (arguments, is_sent) = match (wrapped, &change.raw_input) {
            (Some(arguments), _) => (arguments.clone(), true),
            (None, Some(input @ Value::Object(_))) => (input.clone(), false),
            _ => match text_arguments(change) {
                Some(arguments) => (arguments, false),
                None => return,
            },
        };
        let replaces = match &self.arguments {
            None => true,
            Some((_, true)) => is_sent,
            Some((known, false)) => !is_request || known.as_object().is_some_and(JsonObject::is_empty),
        };
        if replaces {
            self.arguments = Some((arguments, is_sent));
        }
    }
}

/// Returns the arguments in the text of a call without input.
fn text_arguments(change: &ToolCallChange) -> Option<Value> {
    let [ToolContent::Block(Content::Text(text))] = change.content.as_deref()? else { return None };
    serde_json::from_str::<JsonObject>(text.trim()).ok().map(Value::Object)
}

impl Turn {
    /// Sets the tools that clients run.
    pub fn set_tools(&mut self, tools: &[BoundTool]) {
        self.client_tools = tools.iter().filter_map(ClientTool::of).collect();
    }

    /// Identifies a new call of a client's tool. One that begins with a request for approval needs its arguments, with which
    /// the client runs the tool once it is approved.
    pub(super) fn identify(&mut self, id: &str, is_request: bool) {
        let Some(call) = self.calls.get_mut(id).filter(|call| call.step == Step::New) else { return };
        let tools = self.client_tools.iter().filter(|tool| tool.is_called_by(&call.whole));
        let Some(tool) = tools.max_by_key(|tool| tool.offered.len()) else { return };
        if is_request && call.arguments.is_none() {
            return;
        }
        let side = ClientSide { tool: tool.clone(), is_called: false, result: None };
        let unreported = (!is_request).then(|| {
            let is_one = |other: &&Unreported| other.tool == tool.offered;
            let arguments = call.arguments.as_ref().map(|(arguments, _)| arguments);
            let equal = self.unreported.iter().position(|one| is_one(&one) && Some(&*one.input) == arguments);
            let at = equal.or_else(|| self.unreported.iter().position(|one| is_one(&one)));
            at.and_then(|at| self.unreported.remove(at))
        });
        call.client = Some(side);
        // The agent has called it before it was seen to report it.
        if let Some(Unreported { shown, is_done, .. }) = unreported.flatten() {
            call.shown = shown;
            call.step = if is_done { Step::Done } else { Step::Running };
            if let Some(client) = &mut call.client {
                client.is_called = true;
            }
        }
    }

    /// Returns the call of the turn for a call of a client's tool: one that the agent has reported, with the same arguments if
    /// there are several, or a new one.
    pub fn place_of(&mut self, offered: &str, input: &Value) -> Place {
        let mut open: Vec<&mut ToolCall> = self
            .calls
            .values_mut()
            .filter(|call| {
                let is_open = matches!(call.step, Step::Started | Step::Approved);
                let waits = |client: &ClientSide| {
                    client.tool.offered == offered
                        && !client.is_called
                        && (is_open || client.result.is_some())
                };
                call.client.as_ref().is_some_and(waits)
            })
            .collect();
        open.sort_by_key(|call| {
            let is_equal = call.arguments.as_ref().is_some_and(|(arguments, _)| arguments == input);
            (!is_equal, call.step == Step::Started, call.order)
        });
        let Some(call) = open.into_iter().next() else { return Place::New };
        let Some(client) = &mut call.client else { return Place::New };
        client.is_called = true;
        if let Some(result) = client.result.take() {
            return Place::Done(result);
        }
        let runs = call.step == Step::Approved;
        call.step = Step::Running;
        Place::Reported { shown: call.shown.clone(), runs }
    }

    /// Records a call of a client's tool that the agent has not reported.
    pub fn add_unreported(&mut self, shown: String, offered: &str, input: &Value) {
        if self.unreported.len() == UNREPORTED {
            self.unreported.pop_front();
        }
        let (tool, input) = (offered.to_owned(), Arc::new(input.clone()));
        self.unreported.push_back(Unreported { shown, tool, input, is_done: false });
    }

    /// Ends a call with the client's result. Returns `false` unless the client runs the call. A client can run an approved
    /// call before the agent calls the tool, which then gets this result.
    pub async fn completed_by_client(&mut self, shown: &str, result: &Value) -> bool {
        if let Some(call) = self.calls.values_mut().find(|call| call.shown == shown) {
            let Some(client) = call.client.as_mut() else { return false };
            if !matches!(call.step, Step::Approved | Step::Running) {
                return false;
            }
            call.step = Step::Done;
            if !client.is_called {
                client.result = Some(result.clone());
            }
        } else {
            let Some(call) = self.unreported.iter_mut().find(|call| call.shown == shown) else {
                return false;
            };
            call.is_done = true;
        }
        let action = json!({ "type": "chat/toolCallComplete", "turnId": self.id, "toolCallId": shown, "result": result });
        self.emit.chat(action).await;
        true
    }

    /// Whether a call has ended.
    pub fn has_ended(&self, shown: &str) -> bool {
        self.calls.values().any(|call| call.shown == shown && call.step == Step::Done)
    }
}
