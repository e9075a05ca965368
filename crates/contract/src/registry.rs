//! The immutable registry: the contributions of all plugins, merged once in configuration order.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::host::PluginHost;
use crate::id::PluginId;
use crate::points::{Point, Port, PortValue, Slot};
use crate::problem::Problem;
use crate::recorder::{Key, RecordedValue, Recorder, Space};

/// Who registered a contribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registrant {
    /// The host.
    Host,
    /// A plugin.
    Plugin(PluginId),
}

impl fmt::Display for Registrant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => formatter.write_str("the daemon"),
            Self::Plugin(id) => write!(formatter, "plugin {id}"),
        }
    }
}

/// A contribution with its registrant.
#[derive(Debug)]
pub struct Owned<P> {
    /// The registrant.
    pub owner: Registrant,
    /// The contribution.
    pub value: Arc<P>,
}

impl<P> Clone for Owned<P> {
    fn clone(&self) -> Self {
        Self { owner: self.owner.clone(), value: self.value.clone() }
    }
}

impl<P> std::ops::Deref for Owned<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.value
    }
}

/// All contributions by type. Built once and immutable.
#[derive(Default)]
pub struct Registry {
    slots: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    plugins: Vec<PluginHost>,
    /// The called methods of each plugin, with the registered names.
    called: HashMap<PluginId, Vec<(&'static str, Option<String>)>>,
}

impl Registry {
    /// Returns every `P` in configuration order.
    pub fn all<P: Any + Send + Sync>(&self) -> &[Owned<P>] {
        self.slots
            .get(&TypeId::of::<P>())
            .and_then(|slot| slot.downcast_ref::<Vec<Owned<P>>>())
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the value that provides a port.
    pub fn port<V: PortValue>(&self) -> Option<&V> {
        self.all::<Port<V>>().first().map(|held| &held.value.value)
    }

    /// Returns the registrant that provides a port.
    pub fn holder<V: PortValue>(&self) -> Option<&Registrant> {
        self.all::<Port<V>>().first().map(|held| &held.owner)
    }

    /// Returns the host object of a plugin.
    pub fn plugin(&self, id: &PluginId) -> Option<&PluginHost> {
        self.plugins.iter().find(|host| host.id() == id)
    }

    /// Returns the methods that a plugin called, in order, each with the registered name.
    pub fn registered_by(&self, id: &PluginId) -> &[(&'static str, Option<String>)] {
        self.called.get(id).map_or(&[], Vec::as_slice)
    }

    /// Returns all applied plugins in configuration order.
    pub fn plugins(&self) -> &[PluginHost] {
        &self.plugins
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.plugins.iter()).finish()
    }
}

/// Merges recorders, in order, into a [`Registry`]. A conflict becomes a problem line, and the later item is dropped.
#[derive(Default)]
pub struct Fold {
    registry: Registry,
    taken: HashMap<(Space, String), Registrant>,
    problems: Vec<Problem>,
}

impl Fold {
    /// Merges the contributions of the daemon itself. A reserved name among them is an error that stops the start.
    pub fn host(&mut self, recorder: Recorder) {
        self.merge(Registrant::Host, recorder);
    }

    /// Merges the registrations of one plugin.
    pub fn plugin(&mut self, host: PluginHost, recorder: Recorder) {
        let called = recorder.methods().map(|(method, name)| (method, name.map(str::to_owned))).collect();
        self.registry.called.insert(recorder.plugin().clone(), called);
        self.merge(Registrant::Plugin(recorder.plugin().clone()), recorder);
        self.registry.plugins.push(host);
    }

    /// Returns the registry, and a line per conflict.
    pub fn finish(self) -> (Registry, Vec<Problem>) {
        (self.registry, self.problems)
    }

    fn merge(&mut self, owner: Registrant, recorder: Recorder) {
        for entry in recorder.into_entries().1 {
            (entry.point.fold)(self, owner.clone(), entry);
        }
    }

    fn slot<P: Point>(&mut self) -> Option<&mut Vec<Owned<P>>> {
        self.registry
            .slots
            .entry(TypeId::of::<P>())
            .or_insert_with(|| Box::new(Vec::<Owned<P>>::new()))
            .downcast_mut()
    }

    /// Returns the registrant that used a key before, if any.
    fn claim(&mut self, key: &Key, owner: &Registrant) -> Option<Registrant> {
        if !key.is_across() {
            return None;
        }
        match self.taken.entry((key.space, key.name.to_ascii_lowercase())) {
            std::collections::hash_map::Entry::Occupied(held) => Some(held.get().clone()),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(owner.clone());
                None
            }
        }
    }
}

/// Merges one contribution as its slot requires.
pub(crate) fn fold<P: Point>(fold: &mut Fold, owner: Registrant, entry: RecordedValue) {
    let Ok(value) = entry.value.downcast::<P>() else { return };
    match P::SLOT {
        Slot::Append | Slot::Keyed => {
            let hosts = value.is_hosts() && owner != Registrant::Host;
            if let Some(key) = &entry.key {
                let holder = if hosts { Some(Registrant::Host) } else { fold.claim(key, &owner) };
                if let Some(holder) = holder {
                    fold.problems.push(Problem::Clash(value.clash(key, &owner, &holder)));
                    return;
                }
            }
            if let Some(slot) = fold.slot::<P>() {
                slot.push(Owned { owner, value });
            }
        }
        Slot::Port => {
            let held = fold.slot::<P>().and_then(|slot| slot.first().map(|held| held.owner.clone()));
            match (held, &owner) {
                (Some(holder), Registrant::Plugin(id)) if !value.replaces() => {
                    fold.problems.push(Problem::PortHeld {
                        id: id.to_string(),
                        port: P::PORT,
                        holder: holder.to_string(),
                    });
                }
                _ => {
                    if let Some(slot) = fold.slot::<P>() {
                        *slot = vec![Owned { owner, value }];
                    }
                }
            }
        }
    }
}
