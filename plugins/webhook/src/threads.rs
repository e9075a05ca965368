//! Threads of an endpoint's callers. Every thread of an endpoint contains the session and chat of the endpoint.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, PoisonError};

use ostler_contract::points::Collection;
use ostler_contract::read::Read;
use ostler_contract::{JsonObject, Thrown, Value, json};
use tokio::sync::Mutex;

use crate::host_connection::Chat;

/// How many threads of an endpoint are stored. A removed one that calls again is stored again, with the same session
/// and chat.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Threads {
    records: Collection,
    /// By endpoint: the chat of its threads, and their ids, oldest first.
    known: std::sync::Mutex<HashMap<String, Arc<Mutex<Option<Known>>>>>,
}

#[derive(Debug)]
struct Known {
    chat: Chat,
    order: VecDeque<String>,
}

impl Threads {
    pub fn new(records: Collection) -> Self {
        Self { records, known: Default::default() }
    }

    /// Stores a thread with its chat. If the endpoint's chat has changed, updates all its threads.
    pub async fn store(&self, endpoint: &str, thread: &str, chat: &Chat) -> Result<(), Thrown> {
        let id = crate::id::of('t', &[endpoint, thread]);
        let known = self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(endpoint.to_owned())
            .or_default()
            .clone();
        let mut known = known.lock().await;
        if known.as_ref().is_none_or(|known| known.chat != *chat) {
            let order = self.rewrite(endpoint, chat).await?;
            *known = Some(Known { chat: chat.clone(), order });
        }
        let there = self.records.get.read((id.clone(),)).await.known()?;
        if there.is_some_and(|record| holds(&record, chat)) {
            return Ok(());
        }
        let record = json!({
            "id": id, "endpoint": endpoint, "thread": thread, "session": chat.session, "chat": chat.uri,
            "since": crate::now(),
        });
        if let Value::Object(record) = record {
            self.records.put.call((record,)).await?;
        }
        let Some(known) = known.as_mut() else { return Ok(()) };
        known.order.push_back(id);
        while known.order.len() > MOST {
            if let Some(oldest) = known.order.pop_front() {
                self.records.remove.call((oldest,)).await?;
            }
        }
        Ok(())
    }

    /// Sets the chat of every thread of an endpoint; returns their ids, oldest first.
    async fn rewrite(&self, endpoint: &str, chat: &Chat) -> Result<VecDeque<String>, Thrown> {
        let of_endpoint = JsonObject::from_iter([("endpoint".to_owned(), endpoint.into())]);
        let mut records = self.records.find.read((of_endpoint,)).await.known()?;
        let text = |record: &JsonObject, field: &str| {
            record.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        records.sort_by_key(|record| text(record, "since"));
        let order = records.iter().map(|record| text(record, "id")).collect();
        for mut record in records {
            if !holds(&record, chat) {
                record.insert("session".to_owned(), chat.session.as_str().into());
                record.insert("chat".to_owned(), chat.uri.as_str().into());
                self.records.put.call((record,)).await?;
            }
        }
        Ok(order)
    }

    pub async fn chats(&self) -> Read<Vec<String>> {
        self.records.list.read(()).await.map(|records| {
            let chat = |record: &JsonObject| record.get("chat").and_then(Value::as_str).map(str::to_owned);
            let chats: BTreeSet<String> = records.iter().filter_map(chat).collect();
            chats.into_iter().collect()
        })
    }
}

fn holds(record: &JsonObject, chat: &Chat) -> bool {
    let is = |field: &str, text: &str| record.get(field).and_then(Value::as_str) == Some(text);
    is("session", &chat.session) && is("chat", &chat.uri)
}
