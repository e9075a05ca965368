//! An estimate of the memory that a state occupies. It is measured from time to time; additions since then are computed
//! from the actions.

use ostler_contract::budget::SMALL;
use ostler_engine_core::long_work::long_work;
use ostler_protocol::message::count_values;
use ostler_protocol::wire::actions::StateAction;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// The memory of one value of a state apart from its text, in bytes.
const EACH: usize = 64;

/// The length of a value as JSON and the number of values in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// Bytes of text.
    pub text: usize,
    /// Number of values.
    pub values: usize,
}

impl Extent {
    /// Returns the extent of a value.
    pub fn of<T: Serialize>(value: &T) -> Self {
        let (mut bytes, mut values) = (Bytes(0), Values::default());
        let mut serializer = Serializer::with_formatter(&mut bytes, &mut values);
        let _ = value.serialize(&mut serializer);
        Self { text: bytes.0, values: values.0 + 1 }
    }

    /// Returns how much an action with this JSON adds to the state. Streamed text adds only its content, because the
    /// state holds the rest of such an action once.
    pub fn of_action(action: &StateAction, json: &str) -> Self {
        let text = |content: &str| Self { text: content.len(), values: 0 };
        match action {
            StateAction::ChatDelta(delta) => text(&delta.content),
            StateAction::ChatReasoning(delta) => text(&delta.content),
            _ => Self::of_text(json.as_bytes()),
        }
    }

    /// Returns the extent of an action from its JSON.
    pub fn of_text(text: &[u8]) -> Self {
        Self { text: text.len(), values: count_values(text) }
    }

    /// Returns the memory it occupies, in bytes.
    pub fn memory(self) -> usize {
        self.text + EACH * self.values
    }

    /// Returns the sum of both.
    pub fn and(self, other: Self) -> Self {
        Self { text: self.text + other.text, values: self.values + other.values }
    }
}

struct Bytes(usize);

impl std::io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Values(usize);

impl Formatter for &mut Values {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        self.0 += 1;
        CompactFormatter.begin_array_value(writer, first)
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        self.0 += 1;
        CompactFormatter.begin_object_key(writer, first)
    }
}

/// The size of a state that changes.
#[derive(Debug, Default)]
pub(super) struct Size {
    counted: Option<Extent>,
    added: Extent,
    /// The length of the text before a measurement was discarded: how long the next one may take.
    before: usize,
}

impl Size {
    /// Adds the extent of an action.
    pub fn grow(&mut self, by: Extent) {
        self.added = self.added.and(by);
    }

    /// Subtracts the bytes that an action removed.
    pub fn lessen(&mut self, bytes: usize) {
        if let Some(counted) = &mut self.counted {
            let left = bytes.saturating_sub(self.added.text);
            self.added.text -= bytes - left;
            counted.text = counted.text.saturating_sub(left);
        }
    }

    /// Discards the measurement, because the state may have become smaller.
    pub fn shrink(&mut self) {
        if let Some(counted) = self.counted.take() {
            self.before = counted.text;
        }
    }

    /// Returns the latest estimate.
    pub fn last(&self) -> Extent {
        self.counted.unwrap_or_default().and(self.added)
    }

    /// Returns an upper bound of the state's size. The state is measured again once about half of its size was added.
    pub fn at_most<T: Serialize + Sync>(&mut self, state: &T) -> Extent {
        match self.counted {
            Some(counted) if self.added.memory() <= counted.memory() / 2 + SMALL => counted.and(self.added),
            _ => {
                let counted = long_work(self.before + self.last().text, || Extent::of(state));
                *self = Self { counted: Some(counted), ..Self::default() };
                counted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_as_large_as_its_text() {
        for value in
            [json!(null), json!({ "a": [1, "x, y: {", {}], "b": { "c": [] } }), json!([[], {}, "é\u{1}"])]
        {
            let text = value.to_string();
            assert_eq!(Extent::of(&value).text, text.len());
            assert_eq!(Extent::of(&json!([1, 2])), Extent { text: 5, values: 3 });
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_long_state_is_measured_on_another_thread() {
        struct Here(String);

        impl Serialize for Here {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let thread = std::thread::current();
                self.0.serialize(serializer).inspect(|_| assert_eq!(thread.name(), Some("long work")))
            }
        }

        let text = "x".repeat(1024 * 1024);
        let mut size = Size::default();
        size.grow(Extent { text: text.len(), values: 1 });
        let counted = size.at_most(&Here(text));
        size.shrink();
        assert_eq!(size.at_most(&Here("shorter".to_owned())).text, 9);
        assert_eq!(size.at_most(&"not measured again").text, 9);
        assert!(counted.text > 9);
    }

    #[test]
    fn a_size_is_counted_again_once_much_was_added() {
        let mut size = Size::default();
        let text = "x".repeat(10 * SMALL);
        let counted = size.at_most(&text);
        assert_eq!(counted.text, 10 * SMALL + 2);
        size.grow(Extent { text: SMALL, values: 1 });
        assert_eq!(size.at_most(&"").text, 11 * SMALL + 2, "it may be smaller");
        size.grow(Extent { text: 6 * SMALL, values: 1 });
        assert_eq!(size.at_most(&"").text, 2);
    }
}
