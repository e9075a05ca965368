//! Ports: parts of the host that a plugin can provide, or take over with `replace`. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::{Checked, Contribution, Slot};
use crate::cross::{Cross, Mismatch};
use crate::recorder::{Key, Space, Unique};

/// Whether to take over a port that is already provided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Takes it over.
    Replace,
}

/// A value that provides a port.
pub trait PortValue: Cross + Sync {
    /// The name of the port, one of a closed set.
    const NAME: &'static str;
}

/// A registered port.
#[derive(Debug)]
pub struct Port<V> {
    /// Its value.
    pub value: V,
    /// Whether it takes the port over.
    pub when: Option<When>,
}

impl<V> Port<V> {
    pub(super) fn new(value: V, when: Option<When>) -> Self {
        Self { value, when }
    }
}

/// Returns the key of a point that a plugin can register once.
pub(super) fn single(member: &'static str) -> Key {
    Key { space: Space::Single, name: member.to_owned(), member, unique: Unique::Once }
}

impl<V: PortValue> Contribution for Port<V> {
    const SLOT: Slot = Slot::Port;
    const PORT: &'static str = V::NAME;

    fn key(&self) -> Option<Key> {
        Some(single(V::NAME))
    }

    fn replaces(&self) -> bool {
        self.when == Some(When::Replace)
    }
}

impl<V: PortValue> Checked for Port<V> {
    fn holds(&self) -> Result<(), Mismatch> {
        self.value.check()
    }
}
