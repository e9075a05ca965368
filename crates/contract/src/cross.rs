//! Conversion of types that cross the plugin boundary.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use ostler_protocol::JsonObject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::http::{Request, Response};
use crate::id::PluginId;
use crate::live::Live;
use crate::shape::{FieldShape, Shape};

/// A type whose values cross the plugin boundary. Derive it; see [`macro@crate::Cross`].
pub trait Cross: Sized + Send + 'static {
    /// The shape of its values.
    fn shape() -> Shape;

    /// For the other side.
    fn into_live(self) -> Live;

    /// From the other side.
    fn from_live(live: Live) -> Result<Self, Mismatch>;

    /// Names a function that has no name yet, for the message when an argument does not fit. Other values stay
    /// unchanged.
    #[must_use]
    fn named(self, _named: crate::call::FunctionName) -> Self {
        self
    }

    /// Records which plugin the functions in a value belong to. `method` names the value if it is a function.
    fn made_by(&mut self, _plugin: &PluginId, _method: &'static str) {}

    /// Validates a native value against the shape: required functions are present, texts are not empty.
    fn check(&self) -> Result<(), Mismatch> {
        Ok(())
    }
}

/// A value that does not have its shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Where inside the value, as `definition.name`; empty for the value itself.
    pub path: String,
    /// The text after *to be*.
    pub expected: String,
}

impl Mismatch {
    /// Returns the error for a value that is not a `T`.
    pub fn of<T: Cross>() -> Self {
        Self::expected(T::shape().expected())
    }

    /// Returns the error for a value that does not match a description.
    pub fn expected(expected: impl Into<String>) -> Self {
        Self { path: String::new(), expected: expected.into() }
    }

    /// Prepends a member to the path.
    #[must_use]
    pub fn within(mut self, member: &str) -> Self {
        self.path = match self.path.as_str() {
            "" => member.to_owned(),
            path if path.starts_with('[') => format!("{member}{path}"),
            path => format!("{member}.{path}"),
        };
        self
    }

    /// Prepends an index to the path.
    #[must_use]
    pub fn at(self, index: usize) -> Self {
        self.within(&format!("[{index}]"))
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(formatter, "to be {}", self.expected),
            path => write!(formatter, "{path} to be {}", self.expected),
        }
    }
}

/// An object from the other side, read member by member.
pub struct Fields(BTreeMap<String, Live>);

impl Fields {
    /// Opens an object.
    ///
    /// # Errors
    /// The value is not an object.
    pub fn open(live: Live) -> Result<Self, Mismatch> {
        match live {
            Live::Frozen(inner) => Self::open(*inner),
            Live::Object(fields) => {
                Ok(Self(fields.into_iter().map(|(key, value)| (key.into_owned(), value)).collect()))
            }
            Live::Data(Value::Object(fields)) => {
                Ok(Self(fields.into_iter().map(|(key, value)| (key, Live::Data(value))).collect()))
            }
            _ => Err(Mismatch::expected("an object")),
        }
    }

    /// Removes and converts one member; a missing one is `undefined`.
    ///
    /// # Errors
    /// The member does not fit its type; the path begins with the member.
    pub fn take<T: Cross>(&mut self, member: &str) -> Result<T, Mismatch> {
        T::from_live(self.0.remove(member).unwrap_or_default()).map_err(|wrong| wrong.within(member))
    }
}

/// Plain data for the other side.
pub fn data_to_live<T: Serialize>(value: &T) -> Live {
    // Only a map whose keys are not texts could fail, and ostler has none.
    Live::Data(serde_json::to_value(value).unwrap_or_default())
}

/// Plain data from the other side. The shape is checked first, so that the message is the same as everywhere.
///
/// # Errors
/// The value does not have the shape, or cannot be decoded as the type.
pub fn data_from_live<T: DeserializeOwned>(live: Live, shape: &Shape) -> Result<T, Mismatch> {
    let value = live.into_data().unwrap_or_default();
    check_data(&value, shape)?;
    serde_json::from_value(value)
        .map_err(|error| Mismatch::expected(format!("{} ({error})", shape.expected())))
}

/// Checks that a JSON value has a shape.
///
/// # Errors
/// The part that does not fit, with its path.
pub fn check_data(value: &Value, shape: &Shape) -> Result<(), Mismatch> {
    let fits = match shape {
        Shape::Optional(_) if value.is_null() => true,
        Shape::Optional(inner) | Shape::Frozen(inner) => return check_data(value, inner),
        Shape::Nothing => value.is_null(),
        Shape::Boolean => value.is_boolean(),
        Shape::Integer => value.is_i64() || value.is_u64(),
        Shape::IntegerBetween { low, high } => {
            value.as_i64().is_some_and(|number| (*low..=*high).contains(&number))
        }
        Shape::Number => value.is_number(),
        Shape::Text { non_empty } => value.as_str().is_some_and(|text| !(*non_empty && text.is_empty())),
        Shape::Any => true,
        Shape::Fields => value.is_object(),
        // The wire types decode themselves.
        Shape::Wire(_) => true,
        Shape::Names { names, .. } => value.as_str().is_some_and(|text| names.contains(&text)),
        Shape::List(inner) => match value {
            Value::Array(entries) => {
                for (at, entry) in entries.iter().enumerate() {
                    check_data(entry, inner).map_err(|wrong| wrong.at(at))?;
                }
                true
            }
            _ => false,
        },
        Shape::Map(inner) => match value {
            Value::Object(fields) => {
                for (key, entry) in fields {
                    check_data(entry, inner).map_err(|wrong| wrong.within(key))?;
                }
                true
            }
            _ => false,
        },
        Shape::Object(object) => return check_fields(value, &object().fields),
        Shape::Union(union) => {
            let union = union();
            let tag = value.get(union.tag).and_then(Value::as_str);
            match union.variants.iter().find(|variant| Some(variant.tag) == tag) {
                Some(variant) => return check_fields(value, &variant.fields),
                None if value.is_object() => {
                    let tags: Vec<_> = union.variants.iter().map(|variant| variant.tag).collect();
                    return Err(Mismatch::expected(format!("one of {}", tags.join(", "))).within(union.tag));
                }
                None => false,
            }
        }
        Shape::Bytes | Shape::Function(_) | Shape::Request | Shape::Response => false,
    };
    if fits { Ok(()) } else { Err(Mismatch::expected(shape.expected())) }
}

fn check_fields(value: &Value, fields: &[FieldShape]) -> Result<(), Mismatch> {
    let Value::Object(given) = value else { return Err(Mismatch::expected("an object")) };
    for field in fields {
        if field.flatten {
            check_data(value, &field.shape)?;
            continue;
        }
        match given.get(field.name) {
            None if field.optional() => {}
            found => check_data(found.unwrap_or(&Value::Null), &field.shape)
                .map_err(|wrong| wrong.within(field.name))?,
        }
    }
    Ok(())
}

macro_rules! primitives {
    ($($ty:ty, $shape:expr, $read:expr;)+) => {$(
        impl Cross for $ty {
            fn shape() -> Shape {
                $shape
            }

            fn into_live(self) -> Live {
                Live::Data(self.into())
            }

            fn from_live(live: Live) -> Result<Self, Mismatch> {
                let value = live.into_data().unwrap_or_default();
                let read: fn(&Value) -> Option<$ty> = $read;
                read(&value).ok_or_else(Mismatch::of::<Self>)
            }
        }
    )+};
}

primitives! {
    bool, Shape::Boolean, Value::as_bool;
    i64, Shape::Integer, whole;
    u64, Shape::Integer, |value| whole(value)?.try_into().ok();
    u32, Shape::Integer, |value| whole(value)?.try_into().ok();
    u16, Shape::Integer, |value| whole(value)?.try_into().ok();
    f64, Shape::Number, Value::as_f64;
    String, Shape::Text { non_empty: false }, |value| value.as_str().map(str::to_owned);
}

/// JavaScript writes `3` and `3.0` the same.
fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        #[allow(clippy::cast_possible_truncation)]
        (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
    })
}

impl Cross for () {
    fn shape() -> Shape {
        Shape::Nothing
    }

    fn into_live(self) -> Live {
        Live::Undefined
    }

    fn from_live(_: Live) -> Result<Self, Mismatch> {
        // A result is ignored if the function should return nothing.
        Ok(())
    }
}

impl Cross for Value {
    fn shape() -> Shape {
        Shape::Any
    }

    fn into_live(self) -> Live {
        Live::Data(self)
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        Ok(live.into_data().unwrap_or_default())
    }
}

impl Cross for JsonObject {
    fn shape() -> Shape {
        Shape::Fields
    }

    fn into_live(self) -> Live {
        Live::Data(Value::Object(self))
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        match live.into_data() {
            Some(Value::Object(fields)) => Ok(fields),
            _ => Err(Mismatch::of::<Self>()),
        }
    }
}

impl Cross for Bytes {
    fn shape() -> Shape {
        Shape::Bytes
    }

    fn into_live(self) -> Live {
        Live::Bytes(self)
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        match live {
            Live::Bytes(bytes) => Ok(bytes),
            Live::Data(Value::String(text)) => Ok(text.into()),
            _ => Err(Mismatch::of::<Self>()),
        }
    }
}

impl<T: Cross> Cross for Option<T> {
    fn shape() -> Shape {
        Shape::Optional(Box::new(T::shape()))
    }

    fn into_live(self) -> Live {
        self.map_or(Live::Undefined, T::into_live)
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        if live.is_nothing() { Ok(None) } else { T::from_live(live).map(Some) }
    }

    fn named(self, named: crate::call::FunctionName) -> Self {
        self.map(|value| value.named(named))
    }

    fn made_by(&mut self, plugin: &PluginId, method: &'static str) {
        if let Some(value) = self {
            value.made_by(plugin, method);
        }
    }

    fn check(&self) -> Result<(), Mismatch> {
        self.as_ref().map_or(Ok(()), T::check)
    }
}

/// A value that native code shares; JavaScript receives a copy.
impl<T: Cross + Clone + Sync> Cross for Arc<T> {
    fn shape() -> Shape {
        T::shape()
    }

    fn into_live(self) -> Live {
        Self::unwrap_or_clone(self).into_live()
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        T::from_live(live).map(Self::new)
    }

    fn check(&self) -> Result<(), Mismatch> {
        T::check(self)
    }
}

impl<T: Cross> Cross for Vec<T> {
    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }

    fn into_live(self) -> Live {
        Live::List(self.into_iter().map(T::into_live).collect())
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        let entries: Vec<Live> = match live {
            Live::Frozen(inner) => return Self::from_live(*inner),
            Live::List(entries) => entries,
            Live::Data(Value::Array(entries)) => entries.into_iter().map(Live::Data).collect(),
            _ => return Err(Mismatch::of::<Self>()),
        };
        entries
            .into_iter()
            .enumerate()
            .map(|(at, entry)| T::from_live(entry).map_err(|wrong| wrong.at(at)))
            .collect()
    }

    fn made_by(&mut self, plugin: &PluginId, method: &'static str) {
        self.iter_mut().for_each(|entry| entry.made_by(plugin, method));
    }

    fn check(&self) -> Result<(), Mismatch> {
        self.iter().enumerate().try_for_each(|(at, entry)| entry.check().map_err(|wrong| wrong.at(at)))
    }
}

impl<T: Cross> Cross for BTreeMap<String, T> {
    fn shape() -> Shape {
        Shape::Map(Box::new(T::shape()))
    }

    fn into_live(self) -> Live {
        Live::Object(self.into_iter().map(|(key, value)| (key.into(), value.into_live())).collect())
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        Fields::open(live)?
            .0
            .into_iter()
            .map(|(key, value)| {
                let value = T::from_live(value).map_err(|wrong| wrong.within(&key))?;
                Ok((key, value))
            })
            .collect()
    }

    fn made_by(&mut self, plugin: &PluginId, method: &'static str) {
        self.values_mut().for_each(|entry| entry.made_by(plugin, method));
    }

    fn check(&self) -> Result<(), Mismatch> {
        self.iter().try_for_each(|(key, entry)| entry.check().map_err(|wrong| wrong.within(key)))
    }
}

/// A text that is not empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// The text itself.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Cross for Text {
    fn shape() -> Shape {
        Shape::Text { non_empty: true }
    }

    fn into_live(self) -> Live {
        Live::Data(self.0.into())
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        let text = Self(String::from_live(live).map_err(|_| Mismatch::of::<Self>())?);
        text.check()?;
        Ok(text)
    }

    fn check(&self) -> Result<(), Mismatch> {
        if self.0.trim().is_empty() { Err(Mismatch::of::<Self>()) } else { Ok(()) }
    }
}

/// A value that the receiver cannot change: in JavaScript it is deeply frozen.
#[derive(Debug, Clone, Default)]
pub struct Frozen<T>(pub T);

impl<T> Deref for Frozen<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Cross> Cross for Frozen<T> {
    fn shape() -> Shape {
        Shape::Frozen(Box::new(T::shape()))
    }

    fn into_live(self) -> Live {
        Live::Frozen(Box::new(self.0.into_live()))
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        match live {
            Live::Frozen(inner) => T::from_live(*inner).map(Self),
            other => T::from_live(other).map(Self),
        }
    }

    fn check(&self) -> Result<(), Mismatch> {
        self.0.check()
    }
}

impl Cross for Request {
    fn shape() -> Shape {
        Shape::Request
    }

    fn into_live(self) -> Live {
        Live::Request(Box::new(self))
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        match live {
            Live::Request(request) => Ok(*request),
            _ => Err(Mismatch::of::<Self>()),
        }
    }
}

impl Cross for Response {
    fn shape() -> Shape {
        Shape::Response
    }

    fn into_live(self) -> Live {
        Live::Response(Box::new(self))
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        match live {
            Live::Response(response) => Ok(*response),
            _ => Err(Mismatch::of::<Self>()),
        }
    }
}

/// Implements the conversion of protocol types as JSON.
macro_rules! wire {
    ($($ty:ident $(= $read:path)?),+ $(,)?) => {$(
        impl Cross for $ty {
            fn shape() -> Shape {
                Shape::Wire(stringify!($ty))
            }

            fn into_live(self) -> Live {
                data_to_live(&self)
            }

            fn from_live(live: Live) -> Result<Self, Mismatch> {
                let value = live.into_data().unwrap_or_default();
                let read: fn(Value) -> serde_json::Result<Self> = wire!(@read $($read)?);
                read(value).map_err(|error| {
                    Mismatch::expected(format!("{} ({error})", Self::shape().expected()))
                })
            }
        }
    )+};
    (@read) => { serde_json::from_value };
    (@read $read:path) => { $read };
}

mod wire {
    use ostler_protocol::wire::actions::StateAction;
    use ostler_protocol::wire::commands::*;
    use ostler_protocol::wire::state::*;

    use super::*;

    wire! {
        AgentSelection, AutomationDefinition, AutomationDefinitionPatch, AutomationEntry, AutomationRunState,
        AutomationTriggerDefinition, ChangesSummary, ChangesetFile, ChangesetOperation,
        ChangesetOperationTarget, ChatInputAnswer, ChatOrigin, ChatSummary, ConfirmationOption, Customization,
        DirectoryEntry, InvokeChangesetOperationResult, Message, MessageAttachment, ModelSelection, ProtectedResourceMetadata, SessionActiveClient,
        SessionConfigPropertySchema, SessionConfigSchema, SessionConfigState, SessionModelInfo, SessionSummary,
        StateAction = ostler_protocol::actions::read, ToolDefinition, ToolInput, Turn, UsageInfo,
    }
}
