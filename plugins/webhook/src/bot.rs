//! A call that talks to a bot.

use std::sync::Arc;

use ostler_contract::http::{StatusCode, Uri};
use ostler_contract::{Thrown, json};

use crate::bot_call::BotCall;
use crate::callback;
use crate::callbacks::Callback;
use crate::deliveries::Delivery;
use crate::endpoint::{BotTarget, Endpoint, ReplyMode};
use crate::host_connection::{Chat, TurnAcceptance, TurnRejection, Waiting};
use crate::reply::{About, Answer, Refusal};
use crate::route::{Admitted, Webhook};
use crate::turn;

/// A call that is being handled.
struct Call<'a> {
    webhook: &'a Arc<Webhook>,
    endpoint: &'a Endpoint,
    target: &'a BotTarget,
}

/// A turn that the host accepted.
struct AcceptedTurn {
    thread: String,
    turn: String,
    chat: Chat,
    waiting: Waiting,
    /// Whether the host confirmed it.
    sure: bool,
}

/// Sends the message to the bot and answers as the endpoint's `reply` requires.
pub(crate) async fn call(
    webhook: &Arc<Webhook>,
    endpoint: &Endpoint,
    target: &BotTarget,
    admitted: &Admitted,
    seen: &mut Delivery,
) -> Result<Answer, Thrown> {
    let call = Call { webhook, endpoint, target };
    let (said, callback) = match call.read(admitted) {
        Ok(read) => read,
        Err(refusal) => return Ok(refusal.into()),
    };
    seen.thread = Some(said.thread.clone());
    let sent = match call.send(said, seen).await? {
        Ok(sent) => sent,
        Err(refusal) => return Ok(refusal.into()),
    };
    Ok(call.answer(sent, callback).await)
}

impl Call<'_> {
    /// Parses the message of a call, and its callback URL.
    fn read(&self, admitted: &Admitted) -> Result<(BotCall, Option<Uri>), Refusal> {
        let said = BotCall::read(&admitted.head.headers, admitted.head.uri.query(), &admitted.body)?;
        let callback = match (self.target.reply, &self.target.callback_prefix) {
            (ReplyMode::Callback, Some(prefix)) => Some(callback::checked(prefix, said.callback.as_deref())?),
            _ => None,
        };
        Ok((said, callback))
    }

    /// Sends the turn in the endpoint's chat.
    async fn send(
        &self,
        said: BotCall,
        seen: &mut Delivery,
    ) -> Result<Result<AcceptedTurn, Refusal>, Thrown> {
        let turn = uuid::Uuid::new_v4().to_string();
        for last in [false, true] {
            let (chat, model) = match self.chat().await {
                Ok(chat) => chat,
                Err(refusal) => return self.refused(refusal).map(Err),
            };
            let message = turn::message(&said, &self.endpoint.id, &turn, model.as_deref());
            self.webhook.threads.store(&self.endpoint.id, &said.thread, &chat).await?;
            let mut waiting = self.webhook.connection.wait_for(&turn);
            match self.webhook.connection.send(&mut waiting, &chat.uri, &turn, &message).await {
                Ok(taken) => {
                    (seen.chat, seen.turn) = (Some(chat.uri.clone()), Some(turn.clone()));
                    let sure = taken == TurnAcceptance::Accepted;
                    return Ok(Ok(AcceptedTurn { thread: said.thread, turn, chat, waiting, sure }));
                }
                // The session ended between the read and the turn; the next read starts it again.
                Err(TurnRejection::Gone(_)) if !last => {}
                Err(TurnRejection::Gone(why) | TurnRejection::Refused(why)) => {
                    return self.refused(Refusal::NoBot(why)).map(Err);
                }
            }
        }
        Ok(Err(Refusal::NoBot(format!("{} is not available", self.target.bot))))
    }

    /// Returns a refusal of the host, or the error if it refused because it can store nothing.
    fn refused(&self, refusal: Refusal) -> Result<Refusal, Thrown> {
        match self.webhook.lost_storage() {
            Some(lost) => Err(Thrown::new(lost)),
            None => Ok(refusal),
        }
    }

    /// Returns the endpoint's chat with the bot, and the model of its turns.
    async fn chat(&self) -> Result<(Chat, Option<String>), Refusal> {
        let bot = &self.target.bot;
        let refusal = match self.webhook.connection.chat_with(bot, &self.endpoint.id).await {
            Ok(Some(chat)) => return Ok(chat),
            Ok(None) => format!(
                "{bot} answered no chat: the plugin webhook needs the grants bot:chat and session:create"
            ),
            Err(why) => why.message,
        };
        self.webhook.problem(&self.endpoint.id, &format!("{bot} is not available: {refusal}"));
        Err(Refusal::NoBot(refusal))
    }

    async fn answer(&self, sent: AcceptedTurn, callback: Option<Uri>) -> Answer {
        let about = About { runs: Vec::new(), session: Some(sent.chat.session.clone()) };
        self.reply(sent, callback).await.about(about)
    }

    async fn reply(&self, sent: AcceptedTurn, callback: Option<Uri>) -> Answer {
        let AcceptedTurn { thread, turn, chat, waiting, sure } = sent;
        let accepted = json!({ "thread": thread, "turn": turn });
        match (self.target.reply, callback) {
            (ReplyMode::Sync, _) => {
                let limit = self.target.sync_timeout.unwrap_or(self.webhook.sync_timeout);
                let ended = self.webhook.connection.end_of(waiting, &chat.uri, &turn, sure);
                let Ok(ended) = tokio::time::timeout(limit, ended).await else {
                    let running = json!({ "thread": thread, "turn": turn, "status": "running" });
                    return Answer::new(StatusCode::ACCEPTED, running);
                };
                let mut told = ended.told(&thread, &turn);
                let Some(error) = ended.error else { return Answer::new(StatusCode::OK, told) };
                told["message"] = error.into();
                Answer::new(StatusCode::BAD_GATEWAY, told)
            }
            (ReplyMode::Callback, Some(url)) => {
                let endpoint = self.endpoint.id.clone();
                let (session, retry) = (Some(chat.session), self.endpoint.extras.retry);
                let chat = chat.uri;
                let callback =
                    Callback { endpoint, chat, session, thread, turn, url, failures: 0, next: None };
                if retry.is_some() && self.webhook.callbacks.take(&callback) {
                    self.webhook.store_callback(&callback).await;
                }
                self.webhook.call_back(callback, retry, waiting, sure);
                Answer::new(StatusCode::ACCEPTED, accepted)
            }
            _ => Answer::new(StatusCode::ACCEPTED, accepted),
        }
    }
}
