//! What a plugin does when the host closes. Spec: *Host close*.

use super::{Checked, Contribution, Slot};
use crate::call::Call;
use crate::cross::{Cross, Mismatch};

/// A function run when the host closes; a promise it answers is awaited.
pub type Closer = Call<fn()>;

/// A [`Closer`] registered.
#[derive(Debug)]
pub struct Close {
    /// What runs.
    pub close: Closer,
}

impl Contribution for Close {
    const SLOT: Slot = Slot::Keyed;
}

impl Checked for Close {
    fn holds(&self) -> Result<(), Mismatch> {
        self.close.check().map_err(|wrong| wrong.within("close"))
    }
}
