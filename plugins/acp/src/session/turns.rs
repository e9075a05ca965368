//! Turns: a message becomes a prompt once the agent is ready, and ends with the prompt's answer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_contract::events::TurnStatus;
use ostler_contract::wire::state::ModelSelection;
use ostler_contract::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::lifecycle::STARTS;
use super::setting_changes::Chooser;
use super::{Conversation, Settling, Waiting};
use crate::account;
use crate::agent_connection::Failure;
use crate::errors::{AgentError, words};
use crate::prompt::{self, Message};
use crate::settings::{self, MODEL, OWN_MODEL};
use crate::updates::Turn;

/// The time without messages after the answer to a prompt until its turn ends, because some agents send parts after it.
const QUIET: Duration = Duration::from_millis(40);
/// The same time for an agent that has sent parts after the end of a turn, and for its own turns.
const QUIET_LATE: Duration = Duration::from_millis(400);
/// The separator between the latest prompted turn and the number of a turn that the agent began.
const OWN: &str = "-own-";
/// The maximum time that a turn waits for such parts.
const QUIET_AT_MOST: Duration = Duration::from_secs(10);

impl Conversation {
    pub(super) async fn begin(
        &mut self,
        turn: String,
        message: Message,
        model: Option<ModelSelection>,
        begun: oneshot::Sender<()>,
    ) {
        self.latest = message.clone();
        self.latest_model.clone_from(&model);
        self.rounds = 0;
        self.first.get_or_insert_with(|| message.text.clone());
        self.latest_turn = Some(turn.clone());
        self.turn_output = 0;
        self.starts = 0;
        self.turn = Some(self.with_tools(Turn::new(turn, self.emit.clone())));
        self.waiting = Some(Waiting { message, model, begun: Some(begun) });
        self.advance().await;
    }

    /// Runs the latest turn again.
    pub(super) async fn resume(&mut self, turn: String, begun: oneshot::Sender<bool>) {
        let possible =
            self.turn.is_none() && !(self.latest.text.is_empty() && self.latest.attachments.is_empty());
        let _ = begun.send(possible);
        if possible {
            self.turn_output = 0;
            self.starts = 0;
            self.rounds += 1;
            self.turn = Some(self.with_tools(Turn::resumed(turn, self.emit.clone(), self.rounds)));
            // Its message follows once more.
            self.transcript.forget_last();
            let (message, model) = (self.latest.clone(), self.latest_model.clone());
            self.waiting = Some(Waiting { message, model, begun: None });
            self.advance().await;
        }
    }

    /// Returns whether a message waits for a step that can be taken now. What keeps it from that advances it when it ends.
    fn can_advance(&self) -> bool {
        // A prompt that was cancelled has to be answered first.
        self.waiting.is_some()
            && self.prompting.is_none()
            && self.opening.is_none()
            && self.changing.is_none()
    }

    /// Returns when a message that waits for the list of tools looks again.
    pub(super) fn looks_at_tools(&self) -> Option<Instant> {
        self.tool_list.asks_at().filter(|_| self.can_advance())
    }

    /// Sends the waiting message if the agent is ready, and otherwise takes the next step towards that.
    pub(super) async fn advance(&mut self) {
        if !self.can_advance() {
            return;
        }
        if self.outdated {
            self.retire().await;
        }
        if self.live.is_none() {
            return match self.starts < STARTS {
                true => self.open().await,
                false => self.give_up().await,
            };
        }
        if self.awaits_tools().await {
            return;
        }
        if let Some(model) = self.waiting.as_mut().and_then(|waiting| waiting.model.take()) {
            Box::pin(self.choose_model(model)).await;
            if self.changing.is_some() {
                return;
            }
        }
        if let Some(Waiting { message, begun, .. }) = self.waiting.take() {
            self.prompt(message);
            if let Some(begun) = begun {
                let _ = begun.send(());
            }
        }
    }

    /// The additional context is repeated until a prompt was answered.
    fn prompt(&mut self, mut message: Message) {
        let Some(live) = &self.live else { return };
        if let Some((commands, latest)) = self.in_terminals.untold() {
            self.told_commands = latest;
            message.put_before(commands);
        }
        if let Some(context) = self.context.clone() {
            message.put_before(context);
        }
        let transcript = self.stored.lock().untold.then(|| self.transcript.text()).flatten();
        // A session that begins with the conversation is complete, whatever the outcome of this prompt.
        self.stored.lock().untold = transcript.is_some();
        if let Some(transcript) = transcript {
            message.put_before(transcript);
        }
        let (wire, facts, session) =
            (live.running.wire.clone(), live.running.facts.clone(), live.session.clone());
        self.cost_before = self.cost;
        self.speaks = false;
        let read = prompt::reader(&self.start);
        let log = self.logger();
        self.prompting = Some(Box::pin(async move {
            let blocks = prompt::blocks(message, &facts, &read, log).await;
            wire.request("session/prompt", json!({ "sessionId": session, "prompt": blocks })).await
        }));
    }

    async fn choose_model(&mut self, model: ModelSelection) {
        let known = self.live.as_ref().and_then(|live| settings::find(&live.settings, MODEL));
        // An agent without models uses its default.
        let Some((setting, turn)) = known.zip(self.turn.as_ref()) else { return };
        // Chosen before the agent had reported its models.
        if model.id == OWN_MODEL && !setting.offers(OWN_MODEL) {
            return;
        }
        let (id, turn) = (setting.option.id.clone(), turn.id.clone());
        self.set(id, Value::String(model.id), Chooser::Turn(turn)).await;
    }

    /// Handles the answer to the prompt.
    pub(super) async fn answered(&mut self, answer: Result<Value, Failure>) {
        self.cancel_by = None;
        if answer.is_ok() {
            if let Some(context) = self.context.take() {
                self.transcript.add_context(context);
            }
            self.stored.lock().untold = false;
            self.in_terminals.told(self.told_commands);
        }
        match answer {
            // The turn was cancelled, and its end is already reported.
            Ok(_) if self.turn.is_none() || self.waiting.is_some() => self.advance().await,
            Ok(answer) => {
                let quiet = match self.shared.sends_late.load(Ordering::Relaxed) {
                    true => QUIET_LATE,
                    false => QUIET,
                };
                self.settle(answer, quiet, false);
            }
            Err(Failure::Closed) => {
                let why = self.lost().await;
                match self.waiting.is_some() || self.turn.is_none() {
                    true => self.advance().await,
                    false => self.fail_with(&why).await,
                }
            }
            Err(_) if self.turn.is_none() || self.waiting.is_some() => self.advance().await,
            Err(failure) => {
                self.expired_with(&failure);
                match failure.is_auth_required() {
                    true => self.fail_signed_out("session/prompt", &failure).await,
                    false => self.fail_with(&AgentError::Refused { method: "session/prompt", failure }).await,
                }
            }
        }
    }

    /// Ends the running turn because the agent requires a sign-in.
    pub(super) async fn fail_signed_out(&mut self, method: &'static str, failure: &Failure) {
        let auth = self.live.as_ref().map(|live| live.running.facts.auth.clone()).unwrap_or_default();
        self.fail_with(&AgentError::sign_in(method, auth, failure)).await;
    }

    /// Handles an invalid login: the agent read it at its start, so it is restarted for the next turn.
    pub(super) fn expired_with(&mut self, failure: &Failure) {
        self.outdated |= failure.is_auth_required();
    }

    /// Ends the turn after a time without messages.
    fn settle(&mut self, answer: Value, quiet: Duration, own: bool) {
        let now = Instant::now();
        let (until, at_most) = (now + quiet, now + QUIET_AT_MOST);
        self.settling = Some(Settling { answer, own, quiet, until, at_most });
    }

    /// Returns when the turn ends without messages. A turn of the agent does not end while a user is asked in it.
    pub(super) fn settles_at(&self) -> Option<Instant> {
        let asked = !self.questions.is_empty() || !self.forms.is_empty() || !self.client_calls.is_empty();
        self.settling.as_ref().filter(|settling| !(settling.own && asked)).map(|settling| settling.until)
    }

    /// Handles the answer to a question in a turn of the agent, which continues with it.
    pub(super) fn heard_user(&mut self) {
        if let Some(settling) = self.settling.as_mut().filter(|settling| settling.own) {
            let now = Instant::now();
            (settling.until, settling.at_most) = (now + settling.quiet, now + QUIET_AT_MOST);
        }
    }

    /// Handles a message after the answer, as more can follow. After a part of the answer, the wait is longer.
    pub(super) fn stirred(&mut self, by_part: bool) {
        if let Some(settling) = &mut self.settling {
            if by_part {
                settling.quiet = QUIET_LATE;
            }
            settling.until = (Instant::now() + settling.quiet).min(settling.at_most);
        }
    }

    /// Begins a turn for output without a prompt, because actions cannot extend an ended turn. Output of a cancelled or
    /// failed prompt belongs to no turn.
    pub(super) async fn speak(&mut self) {
        let idle = self.turn.is_none() && self.waiting.is_none() && self.prompting.is_none();
        if !idle || !self.speaks {
            return;
        }
        self.shared.sends_late.store(true, Ordering::Relaxed);
        let latest = self.latest_turn.as_deref().unwrap_or("turn");
        let latest = latest.split_once(OWN).map_or(latest, |(prompted, _)| prompted);
        self.own_turns += 1;
        let id = format!("{latest}{OWN}{}", self.own_turns);
        let message = json!({ "text": "", "origin": { "kind": "agent" } });
        let started =
            json!({ "type": "chat/turnStarted", "turnId": id, "startedAt": "", "message": message });
        self.emit.chat(started).await;
        self.latest_turn = Some(id.clone());
        self.latest = Message::default();
        self.turn_output = 0;
        self.turn = Some(self.with_tools(Turn::new(id, self.emit.clone())));
        self.settle(json!({ "stopReason": "end_turn" }), QUIET_LATE, true);
    }

    /// Ends the turn because no more messages arrived after the answer.
    pub(super) async fn settled(&mut self) {
        let Some(Settling { answer, .. }) = self.settling.take() else { return };
        let status = match answer.get("stopReason").and_then(Value::as_str) {
            Some("cancelled") => TurnStatus::Cancelled,
            Some("refusal") => TurnStatus::Error,
            _ => TurnStatus::Complete,
        };
        self.end_workers(status).await;
        let Some(mut turn) = self.turn.take() else { return };
        self.speaks = status == TurnStatus::Complete;
        self.idle_since = Instant::now();
        self.cancel_questions();
        self.transcript.add(&self.latest.text, turn.answer());
        if let Some(usage) = end_usage(&answer) {
            turn.usage(usage).await;
        }
        match answer.get("stopReason").and_then(Value::as_str).unwrap_or_default() {
            "cancelled" => turn.cancelled().await,
            "refusal" => {
                let name = &self.shared.agent.name;
                let why = format!("{name} refused to continue; change the message and send it again");
                turn.failed("refusal", why, None).await;
            }
            reason => {
                let stopped = match reason {
                    "max_tokens" => Some("The answer stopped at the model's limit of tokens"),
                    "max_turn_requests" => Some("The answer stopped at the agent's limit of model requests"),
                    _ => None,
                };
                if let Some(stopped) = stopped {
                    turn.notification(stopped.to_owned()).await;
                }
                turn.complete_turn(stopped.map(|_| reason)).await;
            }
        }
    }

    /// Ends the running turn with the agent's failure.
    pub(super) async fn fail_with(&mut self, why: &AgentError) {
        let ways = account::ways(why, &self.shared.agent);
        self.end_failed(why.kind(), self.sentence(why), ways).await;
    }

    /// Ends the running turn with an error.
    pub(super) async fn fail(&mut self, kind: &str, sentence: String) {
        self.end_failed(kind, sentence, None).await;
    }

    async fn end_failed(&mut self, kind: &str, sentence: String, ways: Option<Value>) {
        self.settling = None;
        self.end_workers(TurnStatus::Error).await;
        self.cancel_questions();
        if let Some(Waiting { begun: Some(begun), .. }) = self.waiting.take() {
            let _ = begun.send(());
        }
        self.idle_since = Instant::now();
        if let Some(turn) = self.turn.take() {
            self.transcript.add(&self.latest.text, turn.answer());
            turn.failed(kind, sentence, ways).await;
        }
    }

    /// Stops a turn. The agent answers its prompt later, and the next one waits for that.
    pub(super) async fn cancel(&mut self, id: &str) {
        if self.turn.as_ref().is_none_or(|turn| turn.id != id) {
            return;
        }
        self.end_workers(TurnStatus::Cancelled).await;
        self.cancel_questions();
        if let Some(Waiting { begun: Some(begun), .. }) = self.waiting.take() {
            let _ = begun.send(());
        }
        let answered = self.settling.take().is_some();
        if let (Some(live), true) = (&self.live, self.prompting.is_some() && !answered) {
            live.running.wire.notify("session/cancel", json!({ "sessionId": live.session }));
            self.cancel_by = Some(Instant::now() + self.shared.runtime.cancel_timeout);
        }
        self.idle_since = Instant::now();
        if let Some(turn) = self.turn.take() {
            self.transcript.add(&self.latest.text, turn.answer());
            turn.cancelled().await;
        }
    }

    /// Stops an agent that did not answer a cancelled prompt; the next turn starts it again.
    pub(super) async fn cancel_timed_out(&mut self) {
        self.cancel_by = None;
        self.prompting = None;
        let limit = self.shared.runtime.cancel_timeout.as_secs();
        self.log(format_args!(
            "the agent did not end a cancelled prompt within {limit} seconds and is stopped"
        ));
        if let Some(live) = self.live.take() {
            live.running.kill().await;
        }
        self.terminals.close().await;
        self.advance().await;
    }

    /// Ends the agent after its connection closed, and returns how it ended.
    async fn lost(&mut self) -> AgentError {
        let Some(live) = self.live.take() else {
            return AgentError::Ended { status: None, broken: None, stderr: String::new(), noise: None };
        };
        let why = live.running.error("session/prompt", Failure::Closed).await;
        live.running.kill().await;
        self.terminals.close().await;
        why
    }

    pub(super) fn cancel_questions(&mut self) {
        for call in self.questions.cancel_all() {
            self.withdraw_request(&call);
        }
        for id in self.forms.cancel_all() {
            self.withdraw_request(&id);
        }
        self.abandon_client_calls();
    }
}

/// Returns the tokens of a turn, if the agent reports them with its end.
fn end_usage(answer: &Value) -> Option<Value> {
    let usage = answer.get("usage")?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    let (input, output) = (count("inputTokens"), count("outputTokens"));
    (input.is_some() || output.is_some()).then(|| {
        let mut report = json!({ "inputTokens": input, "outputTokens": output });
        if let Some(read) = count("cachedReadTokens") {
            report["cacheReadTokens"] = read.into();
        }
        if let Some(written) = count("cachedWriteTokens") {
            report["_meta"] = json!({ "ostler.cacheWriteTokens": written });
        }
        report
    })
}

/// Returns the error of a failed request for users.
pub(super) fn refusal(failure: &Failure) -> String {
    words(failure)
}
