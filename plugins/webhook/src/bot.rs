//! A call that talks to a bot.

use std::sync::Arc;

use futures::future::Either;
use ostler_contract::http::{StatusCode, Uri};
use ostler_contract::{Thrown, Value, json};

use crate::bot_call::BotCall;
use crate::callback;
use crate::callbacks::{Callback, ClaimedCallback};
use crate::deliveries::Delivery;
use crate::endpoint::{BotTarget, Endpoint, ReplyMode};
use crate::heard::Waiting;
use crate::host_connection::{Chat, SentBefore, TurnAcceptance, TurnRejection, is_failure};
use crate::repeats::First;
use crate::reply::{About, Answer, Refusal};
use crate::route::{Admitted, Webhook};
use crate::turn::{self, Ended, TurnPhase};
use crate::unconfirmed::UnconfirmedTurn;

/// A call that is being handled.
struct Call<'a> {
    webhook: &'a Arc<Webhook>,
    endpoint: &'a Endpoint,
    target: &'a BotTarget,
    /// The delivery, if the endpoint recognizes repeated ones.
    first: Option<&'a First>,
}

/// How often the turn of a delivery may fail before the delivery is refused.
const MOST_ATTEMPTS: u32 = 100;

/// A turn that the host accepted.
struct AcceptedTurn {
    thread: String,
    turn: String,
    chat: Chat,
    waiting: Waiting,
    /// Its message, if the host has not confirmed it.
    unconfirmed: Option<Value>,
    /// Its callback, unless another task handles that.
    callback: Option<ClaimedCallback>,
}

/// The outcome of sending a turn once.
enum Sent {
    Accepted(AcceptedTurn),
    /// The chat ended before the turn.
    Gone(String),
    /// The turn of this delivery failed before.
    FailedBefore,
}

/// Sends the message to the bot and answers as the endpoint's `reply` requires.
pub(crate) async fn call(
    webhook: &Arc<Webhook>,
    endpoint: &Endpoint,
    target: &BotTarget,
    admitted: &Admitted,
    seen: &mut Delivery,
    first: Option<&First>,
) -> Result<Answer, Thrown> {
    let call = Call { webhook, endpoint, target, first };
    let (said, callback) = match call.read(admitted) {
        Ok(read) => read,
        Err(refusal) => return Ok(refusal.into()),
    };
    seen.thread = Some(said.thread.clone());
    let sent = match call.send(said, callback.as_ref(), seen).await? {
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
        callback: Option<&Uri>,
        seen: &mut Delivery,
    ) -> Result<Result<AcceptedTurn, Refusal>, Thrown> {
        let (mut attempt, mut was_gone) = (0, false);
        loop {
            let sent = match self.send_once(&said, callback, attempt).await? {
                Ok(sent) => sent,
                Err(refusal) => return self.refused(refusal).map(Err),
            };
            match sent {
                Sent::Accepted(sent) => {
                    (seen.chat, seen.turn) = (Some(sent.chat.uri.clone()), Some(sent.turn.clone()));
                    return Ok(Ok(sent));
                }
                Sent::FailedBefore if attempt < MOST_ATTEMPTS => attempt += 1,
                // The session ended between the read and the turn; the next read starts it again.
                Sent::Gone(_) if !was_gone => was_gone = true,
                Sent::Gone(why) => return self.refused(Refusal::NoBot(why)).map(Err),
                Sent::FailedBefore => {
                    let why = format!("{MOST_ATTEMPTS} turns of this delivery have failed");
                    return Ok(Err(Refusal::NoBot(why)));
                }
            }
        }
    }

    async fn send_once(
        &self,
        said: &BotCall,
        callback: Option<&Uri>,
        attempt: u32,
    ) -> Result<Result<Sent, Refusal>, Thrown> {
        let Webhook { connection, unconfirmed, threads, .. } = &**self.webhook;
        let (chat, model) = match self.chat().await? {
            Ok(chat) => chat,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let turn = match self.first {
            Some(first) => turn::id_of_delivery(first.id(), attempt),
            None => uuid::Uuid::new_v4().to_string(),
        };
        let message = turn::message(said, &self.endpoint.id, &turn, model.as_deref());
        threads.store(&self.endpoint.id, &said.thread, &chat).await?;
        let mut callback = self.callback(callback, &chat, &said.thread, &turn).await?;
        let mut waiting = connection.wait_for(&turn);
        let sent_before = match self.first {
            Some(_) if unconfirmed.is_unsure(&turn) => SentBefore::Yes,
            Some(_) => SentBefore::Perhaps,
            None => SentBefore::Never,
        };
        let known = match sent_before {
            SentBefore::Yes => connection.look(&mut waiting, &chat.uri, &turn).await,
            SentBefore::Perhaps | SentBefore::Never => TurnPhase::Nowhere,
        };
        let taken = match known {
            TurnPhase::Ended(_) | TurnPhase::Goes => Ok(waiting.known(known)),
            TurnPhase::Unknown => Err(TurnRejection::Failed("its chat could not be read".to_owned())),
            TurnPhase::Nowhere | TurnPhase::Gone => {
                connection.send(&mut waiting, &chat.uri, &turn, &message, sent_before).await
            }
        };
        let unconfirmed = match taken {
            // A failed turn was answered so, unless the answer went to the callback: the delivery is sent again for another one.
            Ok(TurnAcceptance::Known(TurnPhase::Ended(ended)))
                if ended.error.is_some() && self.target.reply == ReplyMode::Sync =>
            {
                return Ok(Ok(Sent::FailedBefore));
            }
            Ok(TurnAcceptance::Accepted | TurnAcceptance::Known(_)) => None,
            Ok(TurnAcceptance::Unheard) => Some(message),
            Err(rejection) => {
                if let Some(callback) = &mut callback {
                    self.webhook.withdraw_callback(callback).await;
                }
                return match rejection {
                    TurnRejection::Gone(why) => Ok(Ok(Sent::Gone(why))),
                    TurnRejection::Refused(why) => Ok(Err(Refusal::NoBot(why))),
                    TurnRejection::Failed(why) => {
                        if self.first.is_some() {
                            unconfirmed.note_unsure(&turn);
                        }
                        Err(Thrown::new(why))
                    }
                };
            }
        };
        let thread = said.thread.clone();
        Ok(Ok(Sent::Accepted(AcceptedTurn { thread, turn, chat, waiting, unconfirmed, callback })))
    }

    /// Claims the callback of a turn, and stores it before the turn is sent: what cannot be stored does not begin. A repeated delivery
    /// finds the turn of the first one, whose callback another task may have.
    ///
    /// # Errors
    /// The callback cannot be stored.
    async fn callback(
        &self,
        url: Option<&Uri>,
        chat: &Chat,
        thread: &str,
        turn: &str,
    ) -> Result<Option<ClaimedCallback>, Thrown> {
        let Some(url) = url else { return Ok(None) };
        let callback = Callback {
            endpoint: self.endpoint.id.clone(),
            chat: chat.uri.clone(),
            session: Some(chat.session.clone()),
            thread: thread.to_owned(),
            turn: turn.to_owned(),
            url: url.clone(),
            failures: 0,
            next: None,
        };
        let mut callback = self.webhook.callbacks.claim(callback);
        if let Some(callback) = &mut callback {
            self.webhook.keep_callback(callback).await?;
        }
        Ok(callback)
    }

    /// Returns a refusal of the host, or the error if it refused because it can store nothing.
    fn refused(&self, refusal: Refusal) -> Result<Refusal, Thrown> {
        match self.webhook.lost_storage() {
            Some(lost) => Err(Thrown::new(lost)),
            None => Ok(refusal),
        }
    }

    /// Returns the endpoint's chat with the bot, and the model of its turns.
    ///
    /// # Errors
    /// The host failed.
    async fn chat(&self) -> Result<Result<(Chat, Option<String>), Refusal>, Thrown> {
        let bot = &self.target.bot;
        let refusal = match self.webhook.connection.chat_with(bot, &self.endpoint.id).await {
            Ok(Some(chat)) => return Ok(Ok(chat)),
            Ok(None) => format!(
                "{bot} answered no chat: the plugin webhook needs the grants bot:chat and session:create"
            ),
            Err(why) if is_failure(&why) => {
                return Err(Thrown::new(format_args!("{bot} could not be read: {}", why.message)));
            }
            Err(why) => why.message,
        };
        self.webhook.problem(&self.endpoint.id, &format!("{bot} is not available: {refusal}"));
        Ok(Err(Refusal::NoBot(refusal)))
    }

    async fn answer(&self, sent: AcceptedTurn, url: Option<Uri>) -> Answer {
        let about = About { runs: Vec::new(), session: Some(sent.chat.session.clone()) };
        self.reply(sent, url).await.about(about)
    }

    async fn reply(&self, sent: AcceptedTurn, url: Option<Uri>) -> Answer {
        let AcceptedTurn { thread, turn, chat, waiting, unconfirmed, callback } = sent;
        let accepted = json!({ "thread": thread, "turn": turn });
        let webhook = self.webhook;
        let retry = self.endpoint.extras.retry;
        // Its end, once the host has the turn.
        let end = match unconfirmed {
            None => Either::Left((waiting, callback)),
            Some(message) => {
                let turn = UnconfirmedTurn {
                    endpoint: self.endpoint.id.clone(),
                    session: chat.session.clone(),
                    chat: chat.uri.clone(),
                    thread: thread.clone(),
                    turn: turn.clone(),
                    url,
                };
                let end = webhook.see_through(turn, message, callback, retry, waiting);
                Either::Right(Box::pin(end).await)
            }
        };
        match (self.target.reply, end) {
            (ReplyMode::Sync, end) => {
                let limit = self.target.sync_timeout.unwrap_or(webhook.sync_timeout);
                let ended = async {
                    match end {
                        Either::Left((waiting, _)) => {
                            webhook.connection.end_of(waiting, &chat.uri, &turn).await
                        }
                        Either::Right(end) => {
                            end.await.unwrap_or_else(|_| Ended::failed("the host is closing"))
                        }
                    }
                };
                let Ok(ended) = tokio::time::timeout(limit, ended).await else {
                    let running = json!({ "thread": thread, "turn": turn, "status": "running" });
                    return Answer::new(StatusCode::ACCEPTED, running);
                };
                let mut told = ended.told(&thread, &turn);
                let Some(error) = ended.error else { return Answer::new(StatusCode::OK, told) };
                told["message"] = error.into();
                Answer::new(StatusCode::BAD_GATEWAY, told)
            }
            (ReplyMode::Callback, Either::Left((waiting, Some(callback)))) => {
                webhook.call_back(callback, retry, waiting);
                Answer::new(StatusCode::ACCEPTED, accepted)
            }
            _ => Answer::new(StatusCode::ACCEPTED, accepted),
        }
    }
}
