//! The declaration of a configuration key, and the macro that derives from it: the field of [`Config`], the flag, the
//! setting on the root channel, and the section in `docs/configuration.md`.
//!
//! [`Config`]: super::Config

use std::path::{Path, PathBuf};

use ostler_contract::Value;
use ostler_contract::shape::Shape;
use ostler_engine::Host;

use super::files::ConfigFiles;
use super::keys::{PluginEntry, Port};
use crate::control::Control;
use crate::exit::Exit;

/// A declared key.
#[derive(Debug)]
pub struct Key {
    /// The name in the file and on the root channel.
    pub name: &'static str,
    /// Its valid values.
    pub shape: Shape,
    /// The field of the flag that overrides it.
    pub flag: Option<&'static str>,
    /// Whether its value is a path, or a list of paths, relative to the file that contains it.
    pub relative: bool,
    /// The schema that marks the credentials in its value.
    pub hides: Option<Value>,
    /// The setting on the root channel.
    pub root: Option<RootSetting>,
}

/// How clients edit a key on the root channel.
#[derive(Debug)]
pub struct RootSetting {
    /// The title that clients show.
    pub title: &'static str,
    /// When a change takes effect.
    pub effect: Effect,
}

/// When a change of a root setting takes effect.
#[derive(Debug)]
pub enum Effect {
    /// At the next start.
    Restart,
    /// Immediately. The function checks the new value, may replace it, and returns what applies it once the file is
    /// written.
    Live(fn(&Control, &ConfigFiles, &mut Value) -> Result<Apply, Exit>),
}

/// Applies a written change to the running host.
pub type Apply = Box<dyn FnOnce(&Host)>;

impl Key {
    /// The JSON Schema type of its value.
    pub fn kind(&self) -> &'static str {
        match self.shape.core() {
            Shape::Boolean => "boolean",
            Shape::Integer | Shape::IntegerBetween { .. } => "integer",
            Shape::List(_) => "array",
            Shape::Text { .. } | Shape::Names { .. } => "string",
            _ => "object",
        }
    }
}

/// Conversion of a flag to the value of the key that it overrides.
pub trait Flag<Key> {
    /// The value, if the flag was passed. Paths are relative to the working directory.
    fn given(&self, working_dir: &Path) -> Option<Key>;
}

impl Flag<bool> for bool {
    fn given(&self, _: &Path) -> Option<bool> {
        self.then_some(true)
    }
}

impl<T: Clone> Flag<T> for Option<T> {
    fn given(&self, _: &Path) -> Option<T> {
        self.clone()
    }
}

impl Flag<Port> for Option<u16> {
    fn given(&self, _: &Path) -> Option<Port> {
        self.map(Port)
    }
}

impl Flag<String> for Option<PathBuf> {
    fn given(&self, working_dir: &Path) -> Option<String> {
        self.as_ref().map(|path| working_dir.join(path).to_string_lossy().into_owned())
    }
}

impl Flag<Vec<String>> for Vec<PathBuf> {
    fn given(&self, working_dir: &Path) -> Option<Vec<String>> {
        let absolute = |path: &PathBuf| working_dir.join(path).to_string_lossy().into_owned();
        (!self.is_empty()).then(|| self.iter().map(absolute).collect())
    }
}

impl Flag<Vec<PluginEntry>> for Vec<String> {
    fn given(&self, _: &Path) -> Option<Vec<PluginEntry>> {
        let named = |name: &String| PluginEntry { name: name.clone(), ..PluginEntry::default() };
        (!self.is_empty()).then(|| self.iter().map(named).collect())
    }
}

/// Declares the keys of the configuration, in the order of the documentation and of `--help`. A row has the key's
/// documentation, name and type, and, in this order, those of the following that apply:
///
/// - `relative: true;`: a path, or a list of paths, relative to the file that contains it
/// - `hides { … };`: a schema that marks credentials with `writeOnly`
/// - `flag { <field>: <type> }` with its help: the flag that overrides the key
/// - `also { <field>: <type> }` with its help: a flag without a key, listed after it
/// - `root "<title>" => <effect>;`: the setting on the root channel
/// - `sets |settings, value| …;`: what the value controls. Keys that are checked together with others have none:
///   `Settings::new` reads them.
macro_rules! keys {
    ($(
        $(#[$docs:meta])*
        $key:ident: $ty:ty {
            $(relative: $relative:literal;)?
            $(hides $hides:tt;)?
            $(flag { $(#[$help:meta])* $flag:ident: $flag_ty:ty })?
            $(also { $(#[$also_help:meta])* $also:ident: $also_ty:ty })*
            $(root $title:literal => $effect:expr;)?
            $(sets |$settings:ident, $value:ident| $set:expr;)?
        }
    )+) => {
        /// The contents of a configuration file.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
        #[serde(rename_all = "camelCase", default)]
        #[cross(data)]
        pub struct Config {
            $($(#[$docs])* pub $key: Option<$ty>,)+
        }

        /// Flags of a run. They override the configuration file.
        #[derive(Debug, Clone, Default, PartialEq, Args)]
        pub struct RunFlags {
            $(
                $($(#[$help])* pub $flag: $flag_ty,)?
                $($(#[$also_help])* pub $also: $also_ty,)*
            )+
            /// Whether `ostler start` created this process, which may then restart itself.
            #[arg(skip)]
            pub detached: bool,
            /// The ports to reuse after a restart in place.
            #[arg(skip)]
            pub kept: Option<ReusedPorts>,
        }

        impl Config {
            /// The configuration with flags over it.
            #[must_use]
            pub fn overridden(mut self, flags: &RunFlags, working_dir: &Path) -> Self {
                $($(
                    if let Some(value) = Flag::<$ty>::given(&flags.$flag, working_dir) {
                        self.$key = Some(value);
                    }
                )?)+
                self
            }

            /// Sets what each key controls.
            ///
            /// # Errors
            /// An invalid value: exit 2.
            pub fn set(self, target: &mut Settings) -> Result<(), Exit> {
                $($(
                    if let Some($value) = self.$key {
                        let $settings = &mut *target;
                        $set;
                    }
                )?)+
                Ok(())
            }
        }

        /// Every key, in the order it is declared.
        pub static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
            let Shape::Object(config) = Config::shape() else { return Vec::new() };
            let mut fields = config().fields.iter();
            let mut keys = Vec::new();
            $(
                keys.extend(fields.next().map(|field| Key {
                    name: field.name,
                    shape: field.shape.clone(),
                    flag: None$(.or(Some(stringify!($flag))))?,
                    relative: false$( || $relative)?,
                    hides: None$(.or(Some(json!($hides))))?,
                    root: None$(.or(Some(RootSetting { title: $title, effect: $effect })))?,
                }));
            )+
            keys
        });
    };
}

pub(super) use keys;
