//! The limit of the emitted actions of a backend that wait in its session's mailbox.

use std::io;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ostler_contract::Thrown;
use ostler_protocol::wire::actions::StateAction;

/// Maximum number of waiting actions, so that a backend that never pauses does not fill the host's memory.
const MOST: usize = 50_000;
/// Maximum size of the waiting actions in bytes; a larger action is accepted only if no other waits.
const MOST_BYTES: usize = 8 << 20;

/// The emitted actions that wait in a session's mailbox.
#[derive(Debug, Clone, Default)]
pub(super) struct EmitLimit(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    count: AtomicUsize,
    bytes: AtomicUsize,
}

/// The number and size of emitted actions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EmittedSize {
    count: usize,
    bytes: usize,
}

impl EmittedSize {
    /// Returns the size of one action.
    pub fn one(action: &StateAction) -> Self {
        Self { count: 1, bytes: size(action) }
    }
}

impl AddAssign for EmittedSize {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

impl EmitLimit {
    /// Adds an action.
    ///
    /// # Errors
    /// The limit is reached; the backend has to pause.
    pub fn wait_one_more(&self, action: &StateAction) -> Result<(), Thrown> {
        let (Waiting { count, bytes }, one) = (&*self.0, EmittedSize::one(action));
        let why = if count.fetch_add(one.count, Ordering::Relaxed) >= MOST {
            format!("{MOST} emitted actions already wait")
        } else {
            let waiting = bytes.fetch_add(one.bytes, Ordering::Relaxed);
            if waiting == 0 || waiting + one.bytes <= MOST_BYTES {
                return Ok(());
            }
            bytes.fetch_sub(one.bytes, Ordering::Relaxed);
            format!("{waiting} bytes of emitted actions already wait")
        };
        count.fetch_sub(one.count, Ordering::Relaxed);
        let why = format!("{why}; pause before there are more");
        Err(Thrown { name: "QuotaExceededError".to_owned(), ..Thrown::new(why) })
    }

    /// Adds an action that ends a turn; it is accepted beyond the limit too.
    pub fn wait_last(&self, action: &StateAction) {
        let one = EmittedSize::one(action);
        self.0.count.fetch_add(one.count, Ordering::Relaxed);
        self.0.bytes.fetch_add(one.bytes, Ordering::Relaxed);
    }

    /// Subtracts actions that left the mailbox.
    pub fn taken(&self, emitted: EmittedSize) {
        if emitted.count > 0 {
            self.0.count.fetch_sub(emitted.count, Ordering::Relaxed);
            self.0.bytes.fetch_sub(emitted.bytes, Ordering::Relaxed);
        }
    }
}

/// Returns the size of an action in bytes: that of the text if it is streamed text, otherwise that of its JSON.
fn size(action: &StateAction) -> usize {
    match action {
        StateAction::ChatDelta(delta) => delta.content.len(),
        StateAction::ChatReasoning(delta) => delta.content.len(),
        other => {
            let mut counter = Counter(0);
            let _ = serde_json::to_writer(&mut counter, other);
            counter.0
        }
    }
}

/// A writer that counts the bytes written.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
