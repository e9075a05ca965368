//! Ports: singletons a plugin may fill, and take over with `replace`. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::{Checked, Contribution, Slot};
use crate::cross::{Cross, Mismatch};
use crate::recorder::{Key, Space, Unique};

/// Whether to take over a port that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Take it over.
    Replace,
}

/// What fills a port.
pub trait PortValue: Cross + Sync {
    /// The port's name: one of a closed set.
    const NAME: &'static str;
}

/// A port filled.
#[derive(Debug)]
pub struct Port<V> {
    /// With what.
    pub value: V,
    /// Whether a holder has to make way.
    pub when: Option<When>,
}

impl<V> Port<V> {
    pub(super) fn new(value: V, when: Option<When>) -> Self {
        Self { value, when }
    }
}

/// The one a plugin may register of its kind.
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
