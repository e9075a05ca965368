//! The one frozen registry: every plugin's contributions, merged once in configuration order.

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
    /// The host's own.
    Host,
    /// A plugin's.
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

/// A contribution and whose it is.
#[derive(Debug)]
pub struct Owned<P> {
    /// Whose.
    pub owner: Registrant,
    /// What.
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

/// Everything plugins contributed, by type. Built once; never written to again.
#[derive(Default)]
pub struct Registry {
    slots: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    plugins: Vec<PluginHost>,
    /// What each plugin called, with the name it took.
    called: HashMap<PluginId, Vec<(&'static str, Option<String>)>>,
}

impl Registry {
    /// Every `P`, in configuration order.
    pub fn all<P: Any + Send + Sync>(&self) -> &[Owned<P>] {
        self.slots
            .get(&TypeId::of::<P>())
            .and_then(|slot| slot.downcast_ref::<Vec<Owned<P>>>())
            .map_or(&[], Vec::as_slice)
    }

    /// What holds a port.
    pub fn port<V: PortValue>(&self) -> Option<&V> {
        self.all::<Port<V>>().first().map(|held| &held.value.value)
    }

    /// Who holds a port.
    pub fn holder<V: PortValue>(&self) -> Option<&Registrant> {
        self.all::<Port<V>>().first().map(|held| &held.owner)
    }

    /// The host as the plugin of that id sees it.
    pub fn plugin(&self, id: &PluginId) -> Option<&PluginHost> {
        self.plugins.iter().find(|host| host.id() == id)
    }

    /// What the plugin of that id registered: the methods it called, in order, each with the name it took.
    pub fn registered_by(&self, id: &PluginId) -> &[(&'static str, Option<String>)] {
        self.called.get(id).map_or(&[], Vec::as_slice)
    }

    /// Every plugin that applied, in configuration order.
    pub fn plugins(&self) -> &[PluginHost] {
        &self.plugins
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.plugins.iter()).finish()
    }
}

/// Merges recorders, in order, into a [`Registry`]; conflicts become problem lines and cost the later item.
#[derive(Default)]
pub struct Fold {
    registry: Registry,
    taken: HashMap<(Space, String), Registrant>,
    problems: Vec<Problem>,
}

impl Fold {
    /// Merges what the daemon is built with. A reserved name there was an error where it was registered, and stops
    /// the start.
    pub fn host(&mut self, recorder: Recorder) {
        self.merge(Registrant::Host, recorder);
    }

    /// Merges what one plugin registered.
    pub fn plugin(&mut self, host: PluginHost, recorder: Recorder) {
        let called = recorder.methods().map(|(method, name)| (method, name.map(str::to_owned))).collect();
        self.registry.called.insert(recorder.plugin().clone(), called);
        self.merge(Registrant::Plugin(recorder.plugin().clone()), recorder);
        self.registry.plugins.push(host);
    }

    /// The registry, and a line per conflict.
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

    /// Who took a key before, if somebody did.
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

/// Merges one contribution by its slot. There are three slots, so three ways.
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
