//! Functions that run when the host closes. Spec: *Host close*.

use super::{Checked, Contribution, Slot};
use crate::call::Call;
use crate::cross::{Cross, Mismatch};

/// A function that runs when the host closes; a returned promise is awaited.
pub type Closer = Call<fn()>;

/// A registered [`Closer`].
#[derive(Debug)]
pub struct Close {
    /// The function.
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
