//! The memory of an agent's long messages, from before they are parsed until they are taken.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Charge;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;

/// How long a message counts while nothing takes it.
const TAKEN: Duration = Duration::from_secs(10);
/// The maximum number of messages that are read and not taken. The charge of the oldest is given back for more.
const UNTAKEN: usize = 1_000;
/// The longest id that is looked at, in bytes.
const ID_LENGTH: usize = 256;

/// What tells the messages of an agent apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// The method of a notification.
    Notification(String),
    /// The id of a request or an answer; `None` for one that no sender uses.
    RequestOrAnswer(Option<String>),
}

impl Name {
    /// Returns the name of a message by its members; `None` if it is no message.
    pub fn of(id: Option<&RawValue>, method: Option<&RawValue>) -> Option<Self> {
        let text = |raw: &RawValue| match serde_json::from_str(raw.get()) {
            Ok(Value::String(text)) => text,
            _ => raw.get().to_owned(),
        };
        match (id, method) {
            (Some(id), _) => Some(Self::RequestOrAnswer((id.get().len() <= ID_LENGTH).then(|| text(id)))),
            (None, Some(method)) if method.get().len() <= ID_LENGTH => Some(Self::Notification(text(method))),
            (None, Some(_)) => Some(Self::Notification(String::new())),
            (None, None) => None,
        }
    }

    /// Returns the name of a request or an answer with an id.
    pub fn of_id(id: &impl Display) -> Self {
        Self::RequestOrAnswer(Some(id.to_string()))
    }
}

/// The messages that are read and not taken yet, in their order, with the charges of the long ones. The connection handles a
/// few by itself: those are never taken, and forgotten when a later one is.
#[derive(Debug, Clone, Default)]
pub struct Parsed(Arc<Mutex<Messages>>);

#[derive(Debug, Default)]
struct Messages {
    next: u64,
    messages: VecDeque<(u64, Name, Option<Charge>)>,
}

impl Parsed {
    /// Notes that a message was read.
    pub fn read(&self, name: Name, charge: Option<Charge>) {
        let is_charged = charge.is_some();
        let number = {
            let mut all = self.0.lock();
            if all.messages.len() >= UNTAKEN {
                all.messages.pop_front();
            }
            all.next += 1;
            let number = all.next;
            all.messages.push_back((number, name, charge));
            number
        };
        if is_charged {
            let all = Arc::downgrade(&self.0);
            tokio::spawn(async move {
                tokio::time::sleep(TAKEN).await;
                if let Some(all) = all.upgrade() {
                    let mut all = all.lock();
                    let late = all.messages.iter_mut().find(|(other, ..)| *other == number);
                    drop(late.and_then(|(.., charge)| charge.take()));
                }
            });
        }
    }

    /// Notes that a message was taken; its charge ends, and that of those before it.
    pub fn taken(&self, name: &Name) {
        let mut all = self.0.lock();
        if let Some(at) = all.messages.iter().position(|(_, other, _)| other == name) {
            all.messages.drain(..=at);
        }
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::Budget;

    use super::*;

    fn notification() -> Name {
        Name::Notification("session/update".to_owned())
    }

    async fn long(parsed: &Parsed, budget: &Budget, name: Name) {
        parsed.read(name, budget.take(1000).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_counts_until_it_is_taken_itself() {
        let (parsed, budget) = (Parsed::default(), Budget::new(10_000));
        let question = Name::of_id(&7);
        parsed.read(notification(), None);
        parsed.read(question.clone(), None);
        long(&parsed, &budget, notification()).await;
        parsed.taken(&notification());
        assert_eq!(budget.used(), 1000, "that was the short one");
        parsed.taken(&question);
        parsed.taken(&Name::of_id(&8));
        assert_eq!(budget.used(), 1000);
        parsed.taken(&notification());
        assert_eq!(budget.used(), 0);

        // One that the connection handles by itself ends with the next one that is taken.
        long(&parsed, &budget, Name::of_id(&"unknown")).await;
        parsed.read(notification(), None);
        parsed.taken(&notification());
        assert_eq!(budget.used(), 0);

        // Nothing takes it.
        long(&parsed, &budget, notification()).await;
        tokio::time::sleep(TAKEN - Duration::from_secs(1)).await;
        assert_eq!(budget.used(), 1000);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_never_taken_does_not_grow() {
        let (parsed, budget) = (Parsed::default(), Budget::new(10_000_000));
        for id in 0..2 * UNTAKEN {
            long(&parsed, &budget, Name::of_id(&id)).await;
        }
        assert_eq!(budget.used(), UNTAKEN * 1000);
    }

    #[test]
    fn messages_have_the_name_that_their_text_has() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (number, text, method) = (raw("5"), raw(r#""a\u0062""#), raw(r#""session/update""#));
        assert_eq!(Name::of(Some(&number), Some(&method)), Some(Name::of_id(&5)));
        assert_eq!(Name::of(Some(&text), None), Some(Name::of_id(&"ab")));
        assert_eq!(Name::of(None, Some(&method)), Some(notification()));
        assert_eq!(Name::of(None, None), None);
        let huge = raw(&format!("[{}1]", "1,".repeat(1000)));
        assert_eq!(Name::of(Some(&huge), None), Some(Name::RequestOrAnswer(None)));
    }
}
