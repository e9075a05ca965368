//! How far a backend may run ahead of its session.

use std::io;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ostler_contract::Thrown;
use ostler_protocol::wire::actions::StateAction;

/// So many emitted actions may wait. A backend that never pauses would fill the memory of the host with more.
const MOST: usize = 50_000;
/// So many bytes they may have; one that has more waits alone.
const MOST_BYTES: usize = 8 << 20;

/// The emitted actions that wait in a session's mailbox.
#[derive(Debug, Clone, Default)]
pub(super) struct Ahead(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    count: AtomicUsize,
    bytes: AtomicUsize,
}

/// Emitted actions that were taken out of the mailbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    count: usize,
    bytes: usize,
}

impl Taken {
    /// One action.
    pub fn one(action: &StateAction) -> Self {
        Self { count: 1, bytes: size(action) }
    }
}

impl AddAssign for Taken {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

impl Ahead {
    /// Takes a place for one more.
    ///
    /// # Errors
    /// There is none: the backend has to pause.
    pub fn wait_one_more(&self, action: &StateAction) -> Result<(), Thrown> {
        let (Waiting { count, bytes }, one) = (&*self.0, Taken::one(action));
        let why = if count.fetch_add(one.count, Ordering::Relaxed) >= MOST {
            format!("{MOST} emitted actions wait already")
        } else {
            let waiting = bytes.fetch_add(one.bytes, Ordering::Relaxed);
            if waiting == 0 || waiting + one.bytes <= MOST_BYTES {
                return Ok(());
            }
            bytes.fetch_sub(one.bytes, Ordering::Relaxed);
            format!("{waiting} bytes of emitted actions wait already")
        };
        count.fetch_sub(one.count, Ordering::Relaxed);
        let why = format!("{why}; pause before there are more");
        Err(Thrown { name: "QuotaExceededError".to_owned(), ..Thrown::new(why) })
    }

    /// Takes a place whether or not there is one: what ends a turn is always heard.
    pub fn wait_last(&self, action: &StateAction) {
        let one = Taken::one(action);
        self.0.count.fetch_add(one.count, Ordering::Relaxed);
        self.0.bytes.fetch_add(one.bytes, Ordering::Relaxed);
    }

    /// Gives back the places of emitted actions that were taken out.
    pub fn taken(&self, emitted: Taken) {
        if emitted.count > 0 {
            self.0.count.fetch_sub(emitted.count, Ordering::Relaxed);
            self.0.bytes.fetch_sub(emitted.bytes, Ordering::Relaxed);
        }
    }
}

/// The bytes of an action: of streamed text the text, of any other one its JSON.
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

/// Counts what is written.
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
