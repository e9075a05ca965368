//! The receiver of a snapshot, and how it gets one.

use ostler_contract::Charge;
use ostler_engine_core::responder::Responder;
use ostler_protocol::RpcError;
use tokio::sync::oneshot;

/// The receiver of a snapshot.
#[derive(Debug)]
pub enum Snapshots {
    /// `subscribe`: the answer is sent before any later action.
    Subscribe(Responder),
    /// `initialize` and `reconnect`: one of several snapshots of an answer that another part of the host builds, as
    /// JSON.
    Collect(oneshot::Sender<Option<Collected>>),
}

/// A snapshot for an answer that another part of the host builds.
#[derive(Debug)]
pub struct Collected {
    /// The snapshot as JSON.
    pub text: String,
    /// The charge on the connection's budget, if it was charged.
    pub charge: Option<Charge>,
}

impl Snapshots {
    /// Answers that there is no snapshot.
    pub fn fail(self, error: RpcError) {
        match self {
            Self::Subscribe(responder) => responder.fail(error),
            Self::Collect(collect) => {
                let _ = collect.send(None);
            }
        }
    }

    /// Begins the text of a large snapshot, with capacity for so many bytes of its state.
    pub fn begin(&self, room: usize) -> String {
        match self {
            Self::Subscribe(responder) => responder.begin(room) + r#"{"snapshot":"#,
            Self::Collect(_) => String::with_capacity(room),
        }
    }

    /// Delivers a snapshot that was written after [`Snapshots::begin`].
    pub fn end(self, mut text: String, mut charge: Charge) {
        match self {
            Self::Subscribe(responder) => {
                text.push_str("}}");
                responder.frame(text, charge);
            }
            Self::Collect(collect) => {
                text.shrink_to_fit();
                // Also the answer that contains it.
                charge.set(2 * text.len());
                let _ = collect.send(Some(Collected { text, charge: Some(charge) }));
            }
        }
    }

    /// Delivers the snapshot that `subscribe` takes when it adds the subscriber. Later actions of other threads follow
    /// it, because a client drops the actions of a channel until it has a state. If `subscribe` fails, the request
    /// remains unanswered.
    pub fn give_first<E>(self, subscribe: impl FnOnce() -> Result<String, E>) -> Result<(), (Self, E)> {
        match self {
            Self::Subscribe(responder) => responder
                .raw_first(|| subscribe().map(|snapshot| answer_of(&snapshot)))
                .map_err(|(responder, why)| (Self::Subscribe(responder), why)),
            // The whole connection waits for the answer that contains this.
            Self::Collect(_) => match subscribe() {
                Ok(snapshot) => {
                    self.give(snapshot);
                    Ok(())
                }
                Err(why) => Err((self, why)),
            },
        }
    }

    /// Delivers a snapshot of a channel without concurrent actions.
    pub fn give(self, snapshot: String) {
        match self {
            Self::Subscribe(responder) => responder.raw(&answer_of(&snapshot)),
            Self::Collect(collect) => {
                let _ = collect.send(Some(Collected { text: snapshot, charge: None }));
            }
        }
    }
}

/// The result of `subscribe`.
fn answer_of(snapshot: &str) -> String {
    format!(r#"{{"snapshot":{snapshot}}}"#)
}
