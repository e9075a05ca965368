//! Threads: which of an endpoint's callers said what belongs together. Every thread of an endpoint holds the
//! session and chat the endpoint talks in.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ostler_contract::points::Collection;
use ostler_contract::{JsonObject, Thrown, Value, json};

use crate::talk::Chat;

/// The threads.
#[derive(Debug)]
pub(crate) struct Threads {
    kept: Collection,
    /// By endpoint: the chat its threads are known to hold.
    known: Mutex<HashMap<String, Chat>>,
}

impl Threads {
    pub fn new(kept: Collection) -> Self {
        Self { kept, known: Mutex::default() }
    }

    /// Keeps a thread with the chat it talks in; where the endpoint's chat is another now, every thread of it is
    /// rewritten.
    pub async fn keep(&self, endpoint: &str, thread: &str, chat: &Chat) -> Result<(), Thrown> {
        if self.known().get(endpoint) != Some(chat) {
            let of_endpoint = JsonObject::from_iter([("endpoint".to_owned(), endpoint.into())]);
            for mut record in self.kept.find.call((of_endpoint,)).await? {
                if !holds(&record, chat) {
                    record.insert("session".to_owned(), chat.session.as_str().into());
                    record.insert("chat".to_owned(), chat.uri.as_str().into());
                    self.kept.put.call((record,)).await?;
                }
            }
            self.known().insert(endpoint.to_owned(), chat.clone());
        }
        let id = crate::id::of('t', &[endpoint, thread]);
        let there = self.kept.get.call((id.clone(),)).await?;
        if there.is_some_and(|record| holds(&record, chat)) {
            return Ok(());
        }
        let record = json!({
            "id": id, "endpoint": endpoint, "thread": thread, "session": chat.session, "chat": chat.uri,
        });
        match record {
            Value::Object(record) => self.kept.put.call((record,)).await,
            _ => Ok(()),
        }
    }

    /// Every chat some thread holds.
    pub async fn chats(&self) -> Result<Vec<String>, Thrown> {
        let records = self.kept.list.call(()).await?;
        let mut chats: Vec<String> = records
            .iter()
            .filter_map(|record| record.get("chat").and_then(Value::as_str).map(str::to_owned))
            .collect();
        chats.sort_unstable();
        chats.dedup();
        Ok(chats)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Chat>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn holds(record: &JsonObject, chat: &Chat) -> bool {
    let is = |field: &str, text: &str| record.get(field).and_then(Value::as_str) == Some(text);
    is("session", &chat.session) && is("chat", &chat.uri)
}
