//! Recording of frames between the host and its clients.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::ids::ConnectionId;

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    Client,
    Host,
}

/// A recorded frame.
#[derive(Debug, Clone, Copy)]
pub struct Passing<'a> {
    pub connection: ConnectionId,
    pub sender: Sender,
    /// The unchanged frame; one from a client may not be JSON.
    pub text: &'a [u8],
}

/// Records frames. It is called in the path of frames, so it must only pass them on.
pub trait FrameRecorder: fmt::Debug + Send + Sync {
    fn record(&self, frame: Passing<'_>);
}

/// The recorder of frames, if any.
#[derive(Debug, Default)]
pub struct Wire {
    on: AtomicBool,
    recorder: RwLock<Option<Arc<dyn FrameRecorder>>>,
}

impl Wire {
    pub fn set(&self, recorder: Option<Arc<dyn FrameRecorder>>) {
        self.on.store(recorder.is_some(), Ordering::Relaxed);
        // The previous recorder is dropped outside the lock.
        drop(std::mem::replace(&mut *self.recorder.write(), recorder));
    }
}

/// The recorder of one connection.
#[derive(Debug, Clone)]
pub struct Tap {
    pub wire: Arc<Wire>,
    pub connection: ConnectionId,
}

impl Tap {
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
