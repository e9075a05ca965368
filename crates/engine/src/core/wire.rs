//! Frames as they pass between the host and its clients, for whoever records them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::core::ids::ConnectionId;

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A client.
    Client,
    /// The host.
    Host,
}

/// A frame that passes.
#[derive(Debug, Clone, Copy)]
pub struct Passing<'a> {
    /// The connection it passes on.
    pub connection: ConnectionId,
    /// Who sent it.
    pub sender: Sender,
    /// The frame as it is sent, or as it came: a client may have sent what is no JSON.
    pub text: &'a [u8],
}

/// Records frames. It is called where frames are handed on, so it has to hand them on itself.
pub trait FrameRecorder: fmt::Debug + Send + Sync {
    /// Records one.
    fn record(&self, frame: Passing<'_>);
}

/// Where frames are recorded, if anywhere.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    on: AtomicBool,
    recorder: RwLock<Option<Arc<dyn FrameRecorder>>>,
}

impl Wire {
    pub fn set(&self, recorder: Option<Arc<dyn FrameRecorder>>) {
        self.on.store(recorder.is_some(), Ordering::Relaxed);
        // What it was is dropped when nobody holds it up any more.
        drop(std::mem::replace(&mut *self.recorder.write(), recorder));
    }
}

/// One connection's part of it.
#[derive(Debug, Clone)]
pub(crate) struct Tap {
    pub wire: Arc<Wire>,
    pub connection: ConnectionId,
}

impl Tap {
    /// Records frames.
    pub fn record<'a>(&self, sender: Sender, frames: impl IntoIterator<Item = &'a [u8]>) {
        let recorder = self.wire.recorder.read().clone();
        let Some(recorder) = recorder else { return };
        for text in frames {
            recorder.record(Passing { connection: self.connection, sender, text });
        }
    }

    pub fn is_on(&self) -> bool {
        self.wire.on.load(Ordering::Relaxed)
    }
}
