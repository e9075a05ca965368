//! What a client that reconnects has missed.

use futures::future::BoxFuture;

/// The actions that a reconnecting client missed.
#[derive(Debug)]
pub struct Replay {
    /// The envelopes, in order: the `params` of each `action` it missed.
    pub envelopes: Vec<Missed>,
}

/// One action a reconnecting client missed.
pub enum Missed {
    /// Its envelope.
    Known(String),
    /// Its envelope, and whether it is to be sent.
    Asked(String, BoxFuture<'static, bool>),
}

impl std::fmt::Debug for Missed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(envelope) | Self::Asked(envelope, _) => formatter.write_str(envelope),
        }
    }
}

impl Replay {
    /// Whether a check is required first.
    pub fn is_asked(&self) -> bool {
        self.envelopes.iter().any(|missed| matches!(missed, Missed::Asked(..)))
    }

    /// Returns the envelopes to send, in order.
    pub async fn answered(self) -> Vec<String> {
        let asked = self.envelopes.into_iter().map(|missed| async move {
            match missed {
                Missed::Known(envelope) => Some(envelope),
                Missed::Asked(envelope, sent) => sent.await.then_some(envelope),
            }
        });
        futures::future::join_all(asked).await.into_iter().flatten().collect()
    }
}
