//! Listeners, and problems that a plugin reports during `apply`. Spec: *Listener events*.

use super::{Checked, Contribution, Slot};
use crate::cross::{Cross, Mismatch};
use crate::events::{EventName, Handler};

/// A listener registered with `on`.
#[derive(Debug)]
pub struct Listener {
    /// The event.
    pub event: EventName,
    /// The function.
    pub handler: Handler,
}

impl Contribution for Listener {
    const SLOT: Slot = Slot::Append;
}

impl Checked for Listener {
    fn holds(&self) -> Result<(), Mismatch> {
        self.handler.check().map_err(|wrong| wrong.within("handler"))
    }
}

/// A line reported with `problem`.
#[derive(Debug)]
pub struct ProblemLine {
    /// The line.
    pub line: String,
}

impl Contribution for ProblemLine {
    const SLOT: Slot = Slot::Append;
}

impl Checked for ProblemLine {
    fn holds(&self) -> Result<(), Mismatch> {
        Ok(())
    }
}
