//! Messages of the agent: updates of its session, and requests.

use futures::FutureExt;
use ostler_contract::points::UsageCost;
use ostler_contract::{Value, json};

use super::{Answers, Conversation};
use crate::agent_connection::{Failure, Incoming, Request};
use crate::elicitation::{Answered, PublishedQuestion};
use crate::errors::AgentError;
use crate::permissions::{Always, Decision, Question};
use crate::protocol::{Chunk, Command, ContextUsage, Cost, Update, Voice};
use crate::settings::{self, MODE, MODEL, Setting, Via};
use crate::updates::Turn;

/// The maximum number of logged lines about what is left out, and the length of a name in them.
const NAMES: usize = 64;
const NAME_SHOWN: usize = 100;
/// The line about calls of a turn that are not shown.
const TOO_MANY_CALLS: &str = "a turn has more than 5000 tool calls; the rest is left out";
/// The longest currency, in bytes.
const CURRENCY: usize = 16;

impl Conversation {
    pub(super) async fn message(&mut self, message: Incoming) {
        match message {
            Incoming::Update { session, update, size, .. } => {
                let limit = self.shared.runtime.turn_output;
                self.turn_output += size;
                if self.turn_output > limit && self.turn.is_some() {
                    return self.stop(AgentError::Output { limit }).await;
                }
                match self.live.as_ref().is_some_and(|live| live.session == session) {
                    true => self.update(update).await,
                    false => drop(self.worker_update(&session, update).await),
                }
            }
            Incoming::Request(request) => self.request(request).await,
            Incoming::LeftOut(line) => self.log_once(&line),
            Incoming::ElicitationComplete(elicitation) => {
                if let Some(id) = self.forms.completed(&elicitation)
                    && self.answer(&id, "accept", &Answers::new()).await
                {
                    self.completed(&id, "accept").await;
                }
            }
        }
    }

    async fn update(&mut self, update: Update) {
        self.stirred(matches!(update, Update::Chunk(_)));
        match update {
            Update::Commands(commands) => return self.commands(commands).await,
            Update::Mode(mode) => return self.mode(mode).await,
            Update::ConfigOptions(options) => {
                let settings = options.into_iter().map(|option| Setting::new(option, Via::Option)).collect();
                return self.settings(settings).await;
            }
            Update::Title(title) => return self.title(title).await,
            Update::Subagent(change) => return self.subagent(change).await,
            Update::Nothing => return,
            Update::Unknown(name) => {
                let short: String = name.chars().take(NAME_SHOWN).collect();
                return self.log_once(&format!("an update is left out: {short:?}"));
            }
            Update::Chunk(Chunk { voice: Voice::Agent | Voice::Thought, .. }) | Update::Notice(_) => {
                self.speak().await;
            }
            _ => {}
        }
        let terminals = self.terminals.clone();
        let report = match &update {
            Update::Usage(usage) => {
                self.learn_context(usage.size);
                self.usage_report(usage)
            }
            _ => Value::Null,
        };
        let Some(turn) = self.prompted_turn() else { return };
        match update {
            Update::Chunk(chunk) => turn.chunk(chunk).await,
            Update::ToolCall(call) => {
                let is_shown = turn.tool_call(call, &terminals).await;
                if !is_shown {
                    self.log_once(TOO_MANY_CALLS);
                }
                self.end_reported_calls();
            }
            Update::Plan(entries) => turn.plan(entries).await,
            Update::Notice(notice) => turn.notice(notice).await,
            Update::Compaction(compaction) => turn.compaction(compaction).await,
            Update::CompactionSummary(text) => turn.compaction_summary(&text),
            Update::Usage(_) => turn.usage(report).await,
            _ => {}
        }
    }

    /// Returns the turn on which the agent works, but not one that waits for the answer to an earlier cancelled prompt.
    pub(super) fn prompted_turn(&mut self) -> Option<&mut Turn> {
        self.turn.as_mut().filter(|_| self.waiting.is_none())
    }

    /// Returns the slash commands as a customization of the session.
    async fn commands(&mut self, commands: Vec<Command>) {
        self.shared.catalogue.learn_commands(&commands);
        let agent = &self.shared.agent;
        let uri = format!("acp:/{}", agent.provider);
        let child = |command: &Command| {
            json!({ "type": "prompt", "id": format!("acp-command-{}", command.name), "uri": uri, "name": command.name,
                "description": command.description })
        };
        let children: Vec<Value> = commands.iter().map(child).collect();
        let customization = json!({ "type": "plugin", "id": "acp-commands", "uri": uri, "name": agent.name, "children": children });
        self.emit
            .session(json!({ "type": "session/customizationUpdated", "customization": customization }))
            .await;
    }

    async fn mode(&mut self, mode: String) {
        let Some(live) = &mut self.live else { return };
        let Some(id) = settings::find(&live.settings, MODE).map(|setting| setting.option.id.clone()) else {
            return;
        };
        let value = Value::String(mode);
        let Some(setting) = live.settings.iter_mut().find(|setting| setting.option.id == id) else { return };
        setting.set(&value);
        self.changed(id, value).await;
    }

    /// Handles the whole list of settings, which replaces the existing configuration options.
    pub(super) async fn settings(&mut self, settings: Vec<Setting>) {
        let Some(live) = &mut self.live else { return };
        let older = std::mem::replace(&mut live.settings, settings);
        for setting in &mut live.settings {
            if let Some(then) = older.iter().find(|then| then.option.id == setting.option.id) {
                setting.list_unlisted(then);
            }
        }
        let is_replaced = |then: &Setting| live.settings.iter().any(|now| now.replaces(then));
        let retained = older.iter().filter(|then| then.via != Via::Option && !is_replaced(then));
        let retained: Vec<Setting> = retained.cloned().collect();
        live.settings.extend(retained);
        let moved: Vec<(String, Value)> = live
            .settings
            .iter()
            .filter(|now| {
                older
                    .iter()
                    .find(|then| then.option.id == now.option.id)
                    .is_none_or(|then| then.value() != now.value())
            })
            .map(|setting| (setting.option.id.clone(), setting.value()))
            .collect();
        self.shared.catalogue.learn_more(&live.settings);
        for (id, value) in moved {
            self.changed(id, value).await;
        }
    }

    /// Reports a setting that the agent changed.
    async fn changed(&mut self, id: String, value: Value) {
        self.chosen.insert(id.clone(), value.clone());
        self.emit.session(json!({ "type": "session/configChanged", "config": { id: value } })).await;
    }

    /// Logs that something of the agent is left out. Each line is logged once.
    pub(super) fn log_once(&mut self, line: &str) {
        if self.left_out.len() < NAMES && self.left_out.insert(line.to_owned()) {
            self.log(line);
        }
    }

    /// Handles a title from the agent, or its removal, after which the host's title from the first message applies.
    async fn title(&mut self, title: Option<String>) {
        let named = std::mem::replace(&mut self.named, title.is_some());
        if let Some(title) = title.or_else(|| self.first.clone().filter(|_| named)) {
            self.emit.session(json!({ "type": "session/titleChanged", "title": title })).await;
        }
    }

    /// Serves a request that the connection has offered.
    pub(super) async fn request(&mut self, mut request: Request) {
        self.stirred(false);
        if let Some(other) = self.other_session(&request.params) {
            let why = format!("there is no open session {other}");
            self.log_once(&format!("{} is refused: {why}", request.method));
            return request.answer(Err(Failure::bad_params(why)));
        }
        match request.method.as_str() {
            "session/request_permission" => self.approval(request).await,
            "elicitation/create" => self.question(request).await,
            "fs/read_text_file" | "fs/write_text_file" => {
                let (files, serving) = (self.files.clone(), self.serving.clone());
                tokio::spawn(async move {
                    let _place = serving.acquire().await;
                    let outcome = files.serve(&request.method, &request.params).await;
                    request.answer_in_turn(outcome).await;
                });
            }
            "terminal/output" => {
                let (terminals, serving) = (self.terminals.clone(), self.serving.clone());
                let of = terminals.generation();
                tokio::spawn(async move {
                    let _place = serving.acquire().await;
                    let outcome = terminals.serve(&request.method, &request.params, of).await;
                    request.answer_in_turn(outcome).await;
                });
            }
            method if method.starts_with("terminal/") => {
                let terminals = self.terminals.clone();
                let of = terminals.generation();
                let params = request.params.clone();
                request.release();
                tokio::spawn(async move {
                    let outcome = terminals.serve(&request.method, &params, of).await;
                    request.answer(outcome);
                });
            }
            method => {
                let failure = Failure::unknown_method(method);
                request.answer(Err(failure));
            }
        }
    }

    /// Returns the session that a request names, if it is not one of the conversation. Before the conversation's session
    /// is open, its id is not known.
    fn other_session(&self, params: &Value) -> Option<String> {
        let named = params.get("sessionId").filter(|named| !named.is_null())?;
        let live = self.live.as_ref()?;
        let is_own =
            named.as_str().is_some_and(|named| named == live.session || self.children.contains_key(named));
        (!is_own).then(|| named.to_string().chars().take(NAME_SHOWN).collect())
    }

    /// Handles a request for approval.
    async fn approval(&mut self, request: Request) {
        let (change, mut question) = match Question::read(request) {
            Ok(read) => read,
            Err(request) => return request.answer(Err(Failure::bad_params("toolCall has no toolCallId"))),
        };
        let terminals = self.terminals.clone();
        let (standing, session) = (self.shared.standing.clone(), self.start.uri.clone());
        let agent = self.shared.agent.name.clone();
        // Users are only asked during a turn.
        let Some(turn) = self.asking_turn() else { return question.cancel() };
        let (call, turn_id) = (change.id.clone(), turn.id.clone());
        if !turn.has_room_for(&call) {
            question.cancel();
            return self.log_once(TOO_MANY_CALLS);
        }
        // An answer to the earlier request would approve another one.
        if let Some(waiting) = turn.waiting(&call) {
            self.questions.withdraw(&waiting);
            self.withdraw_request(&waiting);
            if let Some(turn) = self.asking_turn() {
                turn.refuse(&waiting, "the agent asked again").await;
            }
        }
        let Some(turn) = self.asking_turn() else { return question.cancel() };
        let (shown, tool) = turn.asked_about(change).await;
        if let Some(flaw) = question.flaw() {
            question.cancel();
            turn.refuse(&shown, &format!("{agent} asked for approval {flaw}. It was answered as cancelled."))
                .await;
            return self.log_once(&format!("a request for approval {flaw} is answered as cancelled"));
        }
        if let Some(option) = standing.find(&session, &tool, question.choices()).await {
            if !option.denies() {
                turn.settled(&call).await;
            }
            return question.settle(&option);
        }
        question.about(tool);
        let about = (&question.options(), question.about_options());
        let Some((call, shown)) = turn.ask(&call, about, &terminals).await else {
            return question.cancel();
        };
        let (withdrawn, of) = (question.withdrawal(), call.clone());
        self.withdrawals.push(withdrawn.wait().map(move |()| of).boxed());
        self.questions.add(call.clone(), question);
        let request = json!({ "kind": "toolConfirmation", "id": call, "chat": self.start.chat_uri, "turnId": turn_id,
            "toolCall": shown });
        self.emit.session(json!({ "type": "session/inputNeededSet", "request": request })).await;
    }

    /// Cancels requests for a user that the agent sent for another session before this one was open.
    pub(super) async fn cancel_requests_of_others(&mut self, session: &str) {
        let calls = self.questions.cancel_all_but(session);
        let forms = self.forms.cancel_all_but(session);
        for call in &calls {
            self.withdraw_request(call);
            if let Some(turn) = &mut self.turn {
                turn.refuse(call, "the agent asked for a session that is not open").await;
            }
        }
        for id in &forms {
            self.completed(id, "cancel").await;
        }
    }

    /// Returns the turn in which the agent can ask the user: the one it works on, or the one that waits for its
    /// session.
    fn asking_turn(&mut self) -> Option<&mut Turn> {
        match self.opening.is_some() {
            true => self.turn.as_mut(),
            false => self.prompted_turn(),
        }
    }

    /// Handles a question of the agent.
    async fn question(&mut self, request: Request) {
        // Users are only asked during a turn.
        let Some(turn) = self.asking_turn() else {
            return request.answer(Ok(json!({ "action": "cancel" })));
        };
        let turn_id = turn.id.clone();
        match self.forms.add(request, &turn_id) {
            Ok(shown) => self.show(shown).await,
            Err((request, why)) => request.answer(Err(why)),
        }
    }

    /// Handles a user's answer to a question; returns `false` if none waits. The question is repeated after an invalid
    /// answer.
    pub(super) async fn answer(&mut self, id: &str, response: &str, answers: &Answers) -> bool {
        let outcome = self.forms.answer(id, response, answers);
        self.heard_user();
        match outcome {
            Answered::Sent => true,
            Answered::Unknown => false,
            Answered::Again(shown) => {
                self.show(*shown).await;
                true
            }
            Answered::TooOften => {
                self.log(
                    "a question was answered too often with values that its form rejects; it is cancelled",
                );
                true
            }
        }
    }

    /// Asks the user a question.
    async fn show(&mut self, question: PublishedQuestion) {
        let PublishedQuestion { id, request, withdrawal } = question;
        let of = id.clone();
        self.withdrawals.push(withdrawal.wait().map(move |()| of).boxed());
        self.emit.chat(json!({ "type": "chat/inputRequested", "request": request })).await;
        let needed =
            json!({ "kind": "chatInput", "id": id, "chat": self.start.chat_uri, "request": request });
        self.emit.session(json!({ "type": "session/inputNeededSet", "request": needed })).await;
    }

    /// Handles a user's answer to a request for approval.
    pub(super) async fn confirm(&mut self, call: &str, approved: bool, option: Option<&str>) {
        let Some(decision) = self.questions.answer(call, approved, option) else { return };
        self.heard_user();
        let always = match decision {
            Decision::Told(always) => {
                if let Some(turn) = &mut self.turn {
                    match approved {
                        true => turn.approved(call),
                        false => turn.denied(call),
                    }
                }
                always
            }
            Decision::Unclear(labels) => {
                let agent = &self.shared.agent.name;
                let why = match labels.is_empty() {
                    true => format!(
                        "{agent} offers no option that approves this call. It was answered as cancelled."
                    ),
                    false => format!(
                        "{agent} offers no option that approves exactly this call. It was answered as cancelled. To approve \
                         it, ask for it again and choose an option: {}.",
                        labels.join(", ")
                    ),
                };
                if let Some(turn) = &mut self.turn {
                    turn.refuse(call, &why).await;
                    turn.notification(why).await;
                }
                None
            }
        };
        if let Some(Always { tool, option }) = always
            && let Err(why) = self.shared.standing.add(&self.start.uri, tool, option).await
        {
            self.log(format_args!("an answer for later calls could not be stored: {why}"));
        }
    }

    /// Handles the withdrawal of a question.
    pub(super) async fn withdrawn(&mut self, call: &str) {
        self.heard_user();
        if self.forms.withdraw(call) {
            return self.completed(call, "cancel").await;
        }
        if self.questions.withdraw(call) {
            self.withdraw_request(call);
            if let Some(turn) = &mut self.turn {
                turn.unask(call).await;
            }
        }
    }

    /// Reports that a question no longer needs an answer.
    async fn completed(&mut self, id: &str, response: &str) {
        let completed = json!({ "type": "chat/inputCompleted", "requestId": id, "response": response });
        self.emit.chat(completed).await;
        self.withdraw_request(id);
    }

    /// Withdraws requests about a call from users.
    pub(super) fn withdraw_request(&self, call: &str) {
        let (emit, call) = (self.emit.clone(), call.to_owned());
        tokio::spawn(async move {
            emit.session(json!({ "type": "session/inputNeededRemoved", "id": call })).await;
        });
    }

    /// Stores the size of the current model's context.
    fn learn_context(&self, size: u64) {
        let Some(live) = &self.live else { return };
        let model = settings::find(&live.settings, MODEL).map(Setting::value);
        self.shared.catalogue.learn_context(model.as_ref().and_then(Value::as_str), size);
    }

    /// Reports the usage of the context, the cost of the session so far, and of the turn. Agents report the session's
    /// cost, whose increase is the turn's. The earlier cost of a continued session is unknown.
    fn usage_report(&mut self, usage: &ContextUsage) -> Value {
        let mut meta = json!({ "ostler.contextTokens": usage.used, "ostler.contextSize": usage.size });
        if let Some(Cost { amount, currency }) = &usage.cost {
            if !UsageCost::is_plausible(*amount) || currency.len() > CURRENCY {
                self.log_once("an implausible cost is left out");
                return json!({ "_meta": meta });
            }
            meta["ostler.sessionCost"] = json!({ "amount": amount, "currency": currency });
            let before = *self.cost_before.get_or_insert(*amount);
            self.cost = Some(*amount);
            meta["ostler.cost"] = json!({ "amount": (amount - before).max(0.0), "currency": currency });
        }
        json!({ "_meta": meta })
    }
}
