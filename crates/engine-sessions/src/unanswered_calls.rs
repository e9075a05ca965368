//! The memory of clients' calls that a backend has not answered. A client may repeat some of them without limit while the
//! backend takes none, and only the last one is part of the session's state. See D-233.

use std::sync::Arc;

use ostler_contract::Charge;
use ostler_contract::budget::Budget;

/// Maximum memory of the calls of one backend, in bytes.
const MOST: usize = 16 * 1024 * 1024;
/// What a call occupies apart from its text, in bytes.
const CALL: usize = 4 * 1024;

/// The calls of clients that one backend has not answered.
#[derive(Debug, Default)]
pub(super) struct UnansweredCalls {
    /// Their limit, once there was one.
    limit: Option<Budget>,
}

/// The memory of one call, until the backend has answered it.
#[derive(Debug)]
pub(super) struct CallRoom {
    _own: Charge,
    _all: Arc<Charge>,
}

impl UnansweredCalls {
    /// Charges a call with `bytes` of text: to the limit of the backend, and to `memory`, that of all sessions, unless
    /// `charged` does already.
    ///
    /// # Errors
    /// Too much waits for the backend, or the host has no memory for it.
    pub fn room_for(
        &mut self,
        memory: &Budget,
        bytes: usize,
        charged: Option<Arc<Charge>>,
    ) -> Result<CallRoom, String> {
        let own = self.limit.get_or_insert_with(|| Budget::new(MOST)).try_take(CALL + bytes);
        let own = own.ok_or(
            "the agent has not answered earlier messages, and too many wait for it; cancel the turn, or try again later",
        )?;
        let all = charged.or_else(|| memory.try_take(CALL + bytes).map(Arc::new));
        let all = all.ok_or("the host has no memory for this message; try again later")?;
        Ok(CallRoom { _own: own, _all: all })
    }
}
