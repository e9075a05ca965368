//! The registrations of one plugin, before they are merged with the others.

use std::any::Any;
use std::sync::Arc;

use crate::id::PluginId;
use crate::points::{Point, PointDeclaration, Slot, TriggerType};
use crate::problem;
use crate::registry::Registrant;
use crate::thrown::Thrown;

/// One plugin's contributions, in the order they were registered.
#[derive(Debug)]
pub struct Recorder {
    plugin: PluginId,
    entries: Vec<RecordedValue>,
    /// The registered trigger types, which the plugin may fire.
    taken: Vec<Arc<TriggerType>>,
    sealed: bool,
}

/// One contribution.
#[derive(Debug)]
pub(crate) struct RecordedValue {
    pub(crate) point: &'static PointDeclaration,
    pub(crate) value: Arc<dyn Any + Send + Sync>,
    pub(crate) key: Option<Key>,
}

/// A unique name of a contribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The space in which the name is unique.
    pub space: Space,
    /// Compared in lowercase.
    pub name: String,
    /// The member that contains the name, for the message.
    pub member: &'static str,
    /// The scope in which the name is unique, with the words of its messages.
    pub unique: Unique,
}

/// The scope in which a name is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unique {
    /// A plugin registers it once; the slot decides whether another plugin may register it too.
    Once,
    /// A name that is unique in this plugin and across plugins.
    Among {
        /// The registered thing, such as `trigger type`.
        kind: &'static str,
        /// The kind of the name, such as `type name`.
        takes: &'static str,
        /// Other things with such a name, such as `type`.
        other: &'static str,
    },
}

impl Key {
    /// The requirement when the plugin has used the name before: *needs `member` to be* …
    pub(crate) fn expected(&self) -> String {
        match self.unique {
            Unique::Once => "registered only once".to_owned(),
            Unique::Among { takes, other, .. } => format!("a {takes} no other {other} in this plugin uses"),
        }
    }

    /// The line when another plugin used the name first: *which plugin a already* `registered`.
    pub(crate) fn clash(&self, owner: &Registrant, holder: &Registrant, did: &str) -> String {
        let kind = match self.unique {
            Unique::Once => "",
            Unique::Among { kind, .. } => &format!("{kind} "),
        };
        format!("{owner} registers {kind}{}, which {holder} already {did}", self.name)
    }

    /// Whether the name is also unique across plugins.
    pub(crate) fn is_across(&self) -> bool {
        self.unique != Unique::Once
    }
}

/// The spaces of unique names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// Harness names and URI schemes.
    Scheme,
    /// Commands.
    Command,
    /// Tools.
    Tool,
    /// Session settings.
    Setting,
    /// Trigger types.
    TriggerType,
    /// A singleton port, or the one route of a plugin.
    Single,
}

impl Recorder {
    /// Creates an empty recorder.
    pub fn new(plugin: PluginId) -> Self {
        Self { plugin, entries: Vec::new(), taken: Vec::new(), sealed: false }
    }

    /// The plugin whose contributions these are.
    pub fn plugin(&self) -> &PluginId {
        &self.plugin
    }

    /// Whether the plugin registered a `P`.
    pub fn has<P: Point>(&self) -> bool {
        self.entries.iter().any(|entry| entry.value.is::<P>())
    }

    /// Removes every `P`; returns whether there was one.
    pub fn withdraw<P: Point>(&mut self) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| !entry.value.is::<P>());
        self.entries.len() != before
    }

    /// Returns every `P` that the plugin registered.
    pub fn all<P: Point>(&self) -> impl Iterator<Item = &P> {
        self.entries.iter().filter_map(|entry| entry.value.downcast_ref())
    }

    /// Returns the called methods in order, each with the registered name.
    pub fn methods(&self) -> impl Iterator<Item = (&'static str, Option<&str>)> {
        self.entries.iter().map(|entry| (entry.point.method, entry.key.as_ref().map(|key| key.name.as_str())))
    }

    /// Rejects registrations after `apply` has returned.
    pub(crate) fn check_open(&self) -> Result<(), Thrown> {
        if self.sealed { Err(Thrown::new(problem::sealed(&self.plugin))) } else { Ok(()) }
    }

    pub(crate) fn record<P: Point>(&mut self, value: P) -> Result<Arc<P>, Thrown> {
        self.check_open()?;
        let needs = |wrong: crate::cross::Mismatch| problem::needs(&self.plugin, P::METHOD, wrong);
        value.check_values().map_err(needs)?;
        value.refuse().map_err(needs)?;
        let key = value.key();
        // If two methods share a name, as a harness and a scheme can, the merge of the recorders drops the later item.
        if let Some(key) = &key
            && self
                .entries
                .iter()
                .filter(|entry| entry.point.method == P::METHOD)
                .filter_map(|entry| entry.key.as_ref())
                .any(|other| other.space == key.space && other.name.eq_ignore_ascii_case(&key.name))
        {
            let wrong = crate::cross::Mismatch::expected(key.expected()).within(key.member);
            return Err(needs(wrong));
        }
        let value = Arc::new(value);
        self.entries.push(RecordedValue { point: P::declaration(), value: value.clone(), key });
        Ok(value)
    }

    /// Returns every trigger type that the plugin registered, also those dropped by the merge.
    pub(crate) fn trigger_types(&self) -> impl Iterator<Item = &TriggerType> {
        self.all::<TriggerType>().chain(self.taken.iter().map(|taken| &**taken))
    }

    pub(crate) fn seal(&mut self) -> Recorder {
        let types = self.entries.iter().filter_map(|entry| entry.value.clone().downcast().ok());
        self.taken.extend(types);
        let sealed = Recorder {
            plugin: self.plugin.clone(),
            entries: std::mem::take(&mut self.entries),
            taken: Vec::new(),
            sealed: true,
        };
        self.sealed = true;
        sealed
    }

    pub(crate) fn into_entries(self) -> (PluginId, Vec<RecordedValue>) {
        (self.plugin, self.entries)
    }
}

impl Slot {
    /// Returns the word that the docs use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Port => "set",
            Self::Keyed => "register, open key",
        }
    }
}
