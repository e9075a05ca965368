//! Emits a conversation's actions on the channels of the host.

use std::time::Duration;

use ostler_contract::points::{Emit, Start};
use ostler_contract::protocol::actions;
use ostler_contract::wire::StateAction;
use ostler_contract::{Func, Value};

/// Emits actions, and waits where the host is behind.
#[derive(Debug, Clone)]
pub enum Emitter {
    /// Creates it for a chat and its session.
    Chat(Func<fn(channel: Emit, action: StateAction)>),
    /// Creates it for a worker chat.
    Worker(Func<fn(action: StateAction)>),
}

impl Emitter {
    /// Of a chat.
    pub fn of(start: &Start) -> Self {
        Self::Chat(start.emit.clone())
    }

    /// Emits on the chat's channel.
    pub async fn chat(&self, action: Value) {
        self.json(Emit::Chat, action).await;
    }

    /// Emits on the session's channel.
    pub async fn session(&self, action: Value) {
        self.json(Emit::Session, action).await;
    }

    async fn json(&self, channel: Emit, action: Value) {
        if let Ok(action) = actions::read(action) {
            self.emit(channel, action).await;
        }
    }

    pub async fn emit(&self, channel: Emit, action: StateAction) {
        loop {
            let emitted = match self {
                Self::Chat(emit) => emit.call((channel, action.clone())),
                Self::Worker(emit) => emit.call((action.clone(),)),
            };
            match emitted {
                Err(thrown) if thrown.name == "QuotaExceededError" => {
                    tokio::time::sleep(Duration::from_millis(2)).await
                }
                // An ended session accepts nothing more.
                _ => return,
            }
        }
    }
}
