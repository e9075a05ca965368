//! Converts the agent's reports in a turn to actions.

mod calls;
mod client_calls;

use std::collections::{HashMap, VecDeque};

use ostler_contract::points::Emit;
use ostler_contract::wire::StateAction;
use ostler_contract::wire::actions::{ChatDeltaAction, ChatReasoningAction};
use ostler_contract::{JsonObject, Value, json};
use tokio::time::Instant;

use crate::emitter::Emitter;
use crate::limits;
use crate::protocol::{Chunk, Compaction, Content, Notice, PlanEntry, ToolCallChange, ToolStatus, Voice};
use crate::terminals::Terminals;
use crate::tool_content;

use self::calls::{Step, ToolCall};
use self::client_calls::Unreported;
pub use self::client_calls::{ClientTool, Place};

/// The retained size of a turn's answer for a transcript, in bytes.
const ANSWER_RETAINED: usize = 8 << 10;
/// The retained size of a compaction's summary, in bytes.
const SUMMARY_RETAINED: usize = 64 << 10;

/// A running turn.
#[derive(Debug)]
pub struct Turn {
    /// The host's id.
    pub id: String,
    emit: Emitter,
    begun: Instant,
    /// How often the turn was continued after it had failed. Its earlier parts and calls are still in it.
    round: usize,
    parts: u32,
    open: Option<OpenPart>,
    calls: HashMap<String, ToolCall>,
    /// How many ended calls were requested again.
    repeated: u32,
    /// The tools of clients that the agent can call.
    client_tools: Vec<ClientTool>,
    /// Calls of those tools that the agent has not reported.
    unreported: VecDeque<Unreported>,
    plan: Vec<String>,
    answer: String,
    /// The summary of the running compaction.
    summary: String,
    usage: Value,
    /// Why it stopped, if that is reported.
    stopped: Option<String>,
}

/// The part to which chunks are appended.
#[derive(Debug)]
struct OpenPart {
    id: String,
    voice: Voice,
    message: Option<String>,
}

impl Turn {
    /// Begins a turn.
    pub fn new(id: String, emit: Emitter) -> Self {
        Self {
            id,
            emit,
            begun: Instant::now(),
            round: 0,
            parts: 0,
            open: None,
            calls: HashMap::new(),
            repeated: 0,
            client_tools: Vec::new(),
            unreported: VecDeque::new(),
            plan: Vec::new(),
            answer: String::new(),
            summary: String::new(),
            usage: json!({}),
            stopped: None,
        }
    }

    /// Continues a turn that has failed as often as `round` says.
    pub fn resumed(id: String, emit: Emitter, round: usize) -> Self {
        Self { round, ..Self::new(id, emit) }
    }

    /// Returns the host's id of an agent's call.
    fn shown(&self, call: &str) -> String {
        let round = (self.round > 0).then(|| format!("-resumed-{}", self.round));
        format!("{call}{}", round.unwrap_or_default())
    }

    /// Returns the retained text of the answer so far.
    pub fn answer(&self) -> &str {
        &self.answer
    }

    /// Returns an agent's call, which is new unless it is known.
    fn entry(&mut self, id: &str) -> &mut ToolCall {
        let (shown, order) = (self.shown(id), self.calls.len());
        self.calls.entry(id.to_owned()).or_insert_with(|| ToolCall::new(shown, order))
    }

    fn next_part(&mut self) -> String {
        self.parts += 1;
        match self.round {
            0 => format!("{}-{}", self.id, self.parts),
            round => format!("{}-{round}-{}", self.id, self.parts),
        }
    }

    /// A chunk of a message or thought.
    pub async fn chunk(&mut self, chunk: Chunk) {
        let Chunk { voice, message, content } = chunk;
        // The user's message is already in the turn.
        if voice == Voice::User {
            return;
        }
        match content {
            Content::Text(text) => self.text(voice, message, text).await,
            Content::Media { data, mime } => {
                self.open = None;
                let uri = format!("data:{mime};base64,{data}");
                self.part(json!({ "kind": "contentRef", "uri": uri, "contentType": mime })).await;
            }
            Content::Link { uri, name, .. } => self.text(voice, message, format!("[{name}]({uri})")).await,
            Content::Embedded { uri, text } => {
                self.text(voice, message, format!("\n{uri}\n```\n{text}\n```\n")).await;
            }
            Content::Unknown(kind) => self.text(voice, message, format!("\n*[{kind}]*\n")).await,
        }
    }

    async fn text(&mut self, voice: Voice, message: Option<String>, text: String) {
        if text.is_empty() {
            return;
        }
        if voice == Voice::Agent && self.answer.len() < ANSWER_RETAINED {
            self.answer.push_str(&text);
        }
        let continues = self.open.as_ref().filter(|open| {
            open.voice == voice && (open.message == message || open.message.is_none() || message.is_none())
        });
        match continues {
            Some(open) => {
                let (turn_id, part_id) = (self.id.clone(), open.id.clone());
                let action = match voice {
                    Voice::Thought => StateAction::ChatReasoning(ChatReasoningAction {
                        turn_id,
                        part_id,
                        content: text,
                        meta: None,
                    }),
                    _ => StateAction::ChatDelta(ChatDeltaAction {
                        turn_id,
                        part_id,
                        content: text,
                        meta: None,
                    }),
                };
                self.emit.emit(Emit::Chat, action).await;
            }
            None => {
                let id = self.next_part();
                let kind = if voice == Voice::Thought { "reasoning" } else { "markdown" };
                self.part(json!({ "kind": kind, "id": id, "content": text })).await;
                self.open = Some(OpenPart { id, voice, message });
            }
        }
    }

    async fn part(&mut self, part: Value) {
        self.emit.chat(json!({ "type": "chat/responsePart", "turnId": self.id, "part": part })).await;
    }

    /// Adds a message outside the conversation, as Markdown.
    pub async fn notification(&mut self, markdown: String) {
        self.open = None;
        self.part(json!({ "kind": "systemNotification", "content": { "markdown": markdown } })).await;
    }

    /// Handles a message of the agent for the user.
    pub async fn notice(&mut self, notice: Notice) {
        let Notice { severity, title, description } = notice;
        let mark = match severity.as_str() {
            "warning" => "Warning: ",
            "error" => "Error: ",
            _ => "",
        };
        let text = match description {
            Some(description) => format!("{mark}{title}\n\n{description}"),
            None => format!("{mark}{title}"),
        };
        self.notification(text).await;
    }

    /// Handles a chunk of a compaction's summary, which is shown at its end.
    pub fn compaction_summary(&mut self, text: &str) {
        let room = SUMMARY_RETAINED.saturating_sub(self.summary.len());
        self.summary.push_str(&text[..text.floor_char_boundary(room)]);
    }

    /// The state of a compaction.
    pub async fn compaction(&mut self, compaction: Compaction) {
        let status = compaction.status.as_str();
        if status == "in_progress" || compaction.summary.is_some() {
            self.summary.clear();
        }
        if let Some(summary) = &compaction.summary {
            self.compaction_summary(summary);
        }
        // The rest of an incomplete compaction is not part of the next summary.
        if matches!(status, "failed" | "cancelled") {
            self.summary.clear();
        }
        let text = match (compaction.status.as_str(), compaction.error) {
            ("in_progress", _) => "Compacting the conversation".to_owned(),
            ("completed", _) => match std::mem::take(&mut self.summary) {
                summary if summary.trim().is_empty() => "Compacted the conversation".to_owned(),
                summary => format!("Compacted the conversation\n\n{}", summary.trim()),
            },
            ("failed", Some(why)) => format!("The conversation could not be compacted: {why}"),
            ("failed", None) => "The conversation could not be compacted".to_owned(),
            ("cancelled", _) => "The compaction was cancelled".to_owned(),
            _ => return,
        };
        self.notification(text).await;
    }

    /// Handles the whole plan. Its entries are shown when they change; the current one is the chat's activity.
    pub async fn plan(&mut self, entries: Vec<PlanEntry>) {
        let contents: Vec<String> = entries.iter().map(|entry| entry.content.clone()).collect();
        let all_done = !entries.is_empty() && entries.iter().all(|entry| entry.status == "completed");
        if contents != self.plan || all_done {
            let mark = |entry: &PlanEntry| if entry.status == "completed" { 'x' } else { ' ' };
            let lines: Vec<String> =
                entries.iter().map(|entry| format!("- [{}] {}", mark(entry), entry.content)).collect();
            self.plan = contents;
            if !lines.is_empty() {
                self.open = None;
                self.part(json!({ "kind": "systemNotification", "content": { "markdown": lines.join("\n") },
                    "_meta": { "ostler.plan": entries } }))
                    .await;
            }
        }
        let current =
            entries.iter().find(|entry| entry.status == "in_progress").map(|entry| entry.content.as_str());
        self.activity(current).await;
    }

    async fn activity(&self, activity: Option<&str>) {
        let mut action = json!({ "type": "chat/activityChanged" });
        if let Some(activity) = activity {
            action["activity"] = activity.into();
        }
        self.emit.chat(action).await;
    }

    /// Returns whether a call is known, or the turn can have another one.
    pub fn has_room_for(&self, id: &str) -> bool {
        let (calls, repeated) = (self.calls.len(), usize::try_from(self.repeated).unwrap_or(usize::MAX));
        (calls < limits::CALLS || self.calls.contains_key(id)) && repeated < limits::CALLS
    }

    /// Handles a tool call, announced or changed, in either order. Returns `false` if the turn has too many calls.
    pub async fn tool_call(&mut self, change: ToolCallChange, terminals: &Terminals) -> bool {
        if !self.has_room_for(&change.id) {
            return false;
        }
        self.open = None;
        let id = change.id.clone();
        let call = self.entry(&id);
        if call.step == Step::Done {
            return true;
        }
        let (retitled, filled) = (
            change.title.is_some() || change.raw_input.is_some(),
            change.content.is_some() || change.raw_output.is_some(),
        );
        call.learn_arguments(&change, false);
        call.whole.merge(change);
        let status = call.whole.status;
        self.identify(&id, false);
        self.announce(&id).await;
        if self.calls[&id].step == Step::Done {
            return true;
        }
        match status {
            // The client runs it once the agent calls the tool.
            Some(ToolStatus::InProgress | ToolStatus::Pending) | None if self.calls[&id].client.is_some() => {
            }
            Some(ToolStatus::Completed | ToolStatus::Failed) => self.complete(&id, terminals).await,
            Some(ToolStatus::InProgress) => self.run(&id, retitled, filled, terminals).await,
            Some(ToolStatus::Pending) | None => {
                let runs = |call: &ToolCall| matches!(call.step, Step::Approved | Step::Running);
                if self.calls.get(&id).is_some_and(runs) {
                    self.run(&id, retitled, filled, terminals).await;
                }
            }
        }
        true
    }

    async fn announce(&mut self, id: &str) {
        let Some(call) = self.calls.get_mut(id).filter(|call| call.step == Step::New) else { return };
        call.step = Step::Started;
        let mut action = self.calls[id].action("chat/toolCallStart", &self.id);
        action["toolName"] = self.calls[id].tool_name().into();
        action["displayName"] = self.calls[id].title().into();
        if let Some(contributor) = self.calls[id].contributor() {
            action["contributor"] = contributor;
        }
        self.emit.chat(action).await;
    }

    /// Marks a call as running: it needs no approval, or has one.
    async fn run(&mut self, id: &str, retitled: bool, filled: bool, terminals: &Terminals) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let was = std::mem::replace(&mut call.step, Step::Running);
        // The host itself updates a call when a user approves it.
        let approved = matches!(was, Step::Asked | Step::Approved);
        if was != Step::Running && !approved || was == Step::Running && retitled {
            let mut action = self.calls[id].ready(&self.id);
            action["confirmed"] = "not-needed".into();
            self.emit.chat(action).await;
        }
        let content = tool_content::content(&self.calls[id].whole, terminals);
        if !content.is_empty() && (filled || was != Step::Running || retitled) {
            let mut action = self.calls[id].action("chat/toolCallContentChanged", &self.id);
            action["content"] = content.into();
            self.emit.chat(action).await;
        }
    }

    async fn complete(&mut self, id: &str, terminals: &Terminals) {
        let step = self.calls[id].step;
        if !matches!(step, Step::Running | Step::Asked | Step::Approved) {
            let mut action = self.calls[id].ready(&self.id);
            // A client would begin to run its tool.
            if self.calls[id].client.is_none() {
                action["confirmed"] = "not-needed".into();
            }
            self.emit.chat(action).await;
        }
        let call = &self.calls[id];
        let mut action = call.action("chat/toolCallComplete", &self.id);
        action["result"] = tool_content::result(&call.whole, &call.title(), terminals);
        self.emit.chat(action).await;
        if let Some(call) = self.calls.get_mut(id) {
            call.step = Step::Done;
            // Only its title and kind are needed if the agent asks about it again.
            (call.whole.content, call.whole.raw_output) = (None, None);
        }
    }

    /// Applies the call of a request for approval. Returns the host's id of it, and the subject of a standing answer. An
    /// ended call, such as a denied one, becomes another call of the host when the agent requests approval again.
    pub async fn asked_about(&mut self, change: ToolCallChange) -> (String, String) {
        self.open = None;
        let (id, first) = (change.id.clone(), self.shown(&change.id));
        let repeated = self.repeated + 1;
        let call = self.entry(&id);
        let is_again = call.step == Step::Done;
        if is_again {
            call.shown = format!("{first}-again-{repeated}");
            (call.step, call.client) = (Step::New, None);
            if change.raw_input.is_some() {
                // What the user approves is what is asked for now.
                (call.arguments, call.mcp_tool) = (None, None);
            }
            call.whole = ToolCallChange {
                status: None,
                content: None,
                raw_output: None,
                ..std::mem::take(&mut call.whole)
            };
        }
        call.learn_arguments(&change, true);
        // A request for approval contains no status: the call waits.
        call.whole.merge(ToolCallChange { status: None, ..change });
        let (shown, tool) = (call.shown.clone(), call.standing());
        self.repeated += u32::from(is_again);
        self.identify(&id, true);
        self.announce(&id).await;
        (shown, tool)
    }

    /// Approves a call with a standing answer.
    pub async fn settled(&mut self, id: &str) {
        let Some(call) = self.calls.get_mut(id).filter(|call| call.step == Step::Started) else { return };
        // The client runs it once the agent calls the tool.
        if call.client.is_some() {
            return;
        }
        call.step = Step::Running;
        let mut action = self.calls[id].ready(&self.id);
        action["confirmed"] = "setting".into();
        self.emit.chat(action).await;
    }

    /// Requests approval of a call. Returns the host's id and the call in the form for clients.
    pub async fn ask(
        &mut self,
        id: &str,
        (options, about): (&Value, JsonObject),
        terminals: &Terminals,
    ) -> Option<(String, Value)> {
        let call = self.calls.get_mut(id)?;
        let edits = tool_content::edits(&call.whole);
        call.step = Step::Asked;
        let title = call.title();
        let mut action = call.ready(&self.id);
        action["confirmationTitle"] = tool_content::shown_title(&title);
        action["options"] = options.clone();
        for (name, value) in about {
            action["_meta"][name] = value;
        }
        if let Some(edits) = &edits {
            action["edits"] = edits.clone();
        }
        let shown = call.shown.clone();
        let mut state = json!({ "status": "pending-confirmation", "toolCallId": shown, "toolName": call.tool_name(),
            "displayName": title, "invocationMessage": tool_content::shown_title(&title), "confirmationTitle": tool_content::shown_title(&title),
            "options": options });
        if let Some(contributor) = call.contributor() {
            state["contributor"] = contributor;
        }
        for member in ["toolInput", "edits", "_meta"] {
            if let Some(value) = action.get(member) {
                state[member] = value.clone();
            }
        }
        let content = tool_content::content(&call.whole, terminals);
        self.emit.chat(action).await;
        // The input of the call is shown, except for edits, which are shown as such.
        if edits.is_none() && !content.is_empty() {
            state["_meta"]["ostler.content"] = content.into();
        }
        Some((shown, state))
    }

    /// Returns the host's id of a call that waits for approval.
    pub fn waiting(&self, id: &str) -> Option<String> {
        self.calls.get(id).filter(|call| call.step == Step::Asked).map(|call| call.shown.clone())
    }

    /// Ends a call whose request for approval was answered as cancelled.
    pub async fn refuse(&mut self, shown: &str, why: &str) {
        let Some(call) = self.calls.values_mut().find(|call| call.shown == shown) else { return };
        if std::mem::replace(&mut call.step, Step::Done) == Step::Done {
            return;
        }
        let mut action = call.action("chat/toolCallComplete", &self.id);
        action["result"] =
            json!({ "success": false, "pastTenseMessage": call.title(), "error": { "message": why } });
        self.emit.chat(action).await;
    }

    /// Marks an approved call as running, whether or not the agent reports it.
    pub fn approved(&mut self, shown: &str) {
        let asked = |call: &&mut ToolCall| call.shown == shown && call.step == Step::Asked;
        if let Some(call) = self.calls.values_mut().find(asked) {
            call.step = Step::Approved;
        }
    }

    /// Records a denied call, of which nothing more is reported.
    pub fn denied(&mut self, shown: &str) {
        if let Some(call) = self.calls.values_mut().find(|call| call.shown == shown) {
            call.step = Step::Done;
        }
    }

    /// Handles a withdrawn request for approval, after which the call probably runs.
    pub async fn unask(&mut self, shown: &str) {
        let asked = |call: &&mut ToolCall| call.shown == shown && call.step == Step::Asked;
        let Some(call) = self.calls.values_mut().find(asked) else { return };
        if call.client.is_some() {
            call.step = Step::Started;
            return;
        }
        call.step = Step::Running;
        let mut action = call.ready(&self.id);
        action["confirmed"] = "not-needed".into();
        self.emit.chat(action).await;
    }

    /// Reports the usage of the context, the tokens and the cost, merged with earlier reports.
    pub async fn usage(&mut self, usage: Value) {
        merge(&mut self.usage, usage);
        self.emit.chat(json!({ "type": "chat/usage", "turnId": self.id, "usage": self.usage })).await;
    }

    /// Completes the turn; `stopped` is the agent's reason if it is not the usual one.
    pub async fn complete_turn(mut self, stopped: Option<&str>) {
        self.stopped = stopped.map(str::to_owned);
        self.end("chat/turnComplete", None).await;
    }

    /// Ends the turn as cancelled.
    pub async fn cancelled(self) {
        self.end("chat/turnCancelled", None).await;
    }

    /// Ends the turn with an error.
    pub async fn failed(self, kind: &str, message: String, ways: Option<Value>) {
        let mut error = json!({ "errorType": kind, "message": message });
        if let Some(ways) = ways {
            error["_meta"] = json!({ "ostler.authMethods": ways });
        }
        let part = json!({ "kind": "error", "error": error, "resumable": true });
        self.end("chat/error", Some(part)).await;
    }

    /// Ends the unfinished calls, which would otherwise be shown as running forever.
    pub async fn end_calls(&mut self, well: bool) {
        let unfinished: Vec<String> =
            self.calls.iter().filter(|(_, call)| call.step != Step::Done).map(|(id, _)| id.clone()).collect();
        for id in unfinished {
            if let Some(call) = self.calls.get_mut(&id) {
                // Many agents omit a call's last state when the turn succeeds.
                let well = well && matches!(call.step, Step::Approved | Step::Running);
                call.whole.status = Some(if well { ToolStatus::Completed } else { ToolStatus::Failed });
            }
            self.complete(&id, &Terminals::none()).await;
        }
    }

    async fn end(mut self, kind: &str, part: Option<Value>) {
        if kind != "chat/turnCancelled" {
            self.end_calls(part.is_none()).await;
        }
        if !self.plan.is_empty() {
            self.activity(None).await;
        }
        let duration = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or_default();
        let mut action = json!({ "type": kind, "turnId": self.id, "duration": duration });
        if let Some(part) = part {
            action["part"] = part;
        }
        if let Some(stopped) = self.stopped {
            action["_meta"] = json!({ "ostler.stopReason": stopped });
        }
        self.emit.chat(action).await;
    }
}

/// Merges one object into another, at every depth.
fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}
