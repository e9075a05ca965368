//! Exact numbers in expressions. The engine has 64-bit integers and floats; a number that is neither is an [`Exact`] value,
//! which is compared by value and calculated with as a float. Comparisons of integers with floats are exact, too.

use std::cmp::Ordering;
use std::sync::Arc;

use ostler_contract::Value;
use ostler_contract::protocol::decimal::Decimal;
use ostler_contract::protocol::sent::{SentFields, SentValue};
use rhai::{Array, Dynamic, Engine, ImmutableString, Map};

/// A number that neither a 64-bit integer nor a float has as its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Exact(Arc<Decimal>);

impl Exact {
    /// Creates a value.
    pub fn of(number: Decimal) -> Self {
        Self(Arc::new(number))
    }
}

/// A number in the text of an expression that is an [`Exact`] value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Literal {
    /// The variable that stands for it.
    pub name: String,
    pub number: Decimal,
}

/// Converts fields.
pub(crate) fn object(fields: SentFields<'_>) -> Map {
    fields.iter().map(|(key, value)| (key.into(), dynamic(value))).collect()
}

fn dynamic(sent: SentValue<'_>) -> Dynamic {
    match sent.value() {
        Value::Null => Dynamic::UNIT,
        Value::Bool(is_true) => (*is_true).into(),
        Value::String(text) => text.as_str().into(),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => integer.into(),
            None => sent.decimal().map_or(Dynamic::UNIT, |number| match number.as_float() {
                Some(float) => float.into(),
                None => Dynamic::from(Exact::of(number)),
            }),
        },
        Value::Array(_) => sent.entries().into_iter().flatten().map(dynamic).collect::<Array>().into(),
        Value::Object(_) => sent.fields().map(object).unwrap_or_default().into(),
    }
}

/// Replaces each number of an expression that is an [`Exact`] value with a variable of the same length, so that positions
/// in errors do not change.
pub(crate) fn name_literals(expression: &str) -> (String, Vec<Literal>) {
    let (bytes, mut named, mut literals) = (expression.as_bytes(), expression.to_owned(), Vec::new());
    let mut at = 0;
    while at < bytes.len() {
        let (end, is_number) = token(bytes, at);
        let number = is_number.then(|| &expression[at..end]).and_then(exact);
        if let Some(number) = number {
            let name = format!("{:_<width$}", format!("n{}", literals.len()), width = end - at);
            if name.len() == end - at {
                named.replace_range(at..end, &name);
                literals.push(Literal { name, number });
            }
        }
        at = end;
    }
    (named, literals)
}

/// Returns the value of a number that the engine's types do not have.
fn exact(text: &str) -> Option<Decimal> {
    let number = Decimal::parse(&text.replace('_', ""))?;
    (number.as_i64().is_none() && number.as_float().is_none()).then_some(number)
}

/// Returns the end of the token that begins at a position, and whether it is a number.
fn token(text: &[u8], begin: usize) -> (usize, bool) {
    let after = |count: usize| begin + count;
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let word = || after(text[begin..].iter().take_while(|byte| is_word(byte)).count());
    let ends_with = |skip: usize, mark: &[u8]| {
        let rest = text.get(after(skip)..).unwrap_or_default();
        let found = rest.windows(mark.len()).position(|part| part == mark);
        found.map_or(text.len(), |at| after(skip) + at + mark.len())
    };
    match text[begin] {
        b'"' | b'`' | b'\'' => (quoted(text, begin), false),
        b'/' if text.get(after(1)) == Some(&b'/') => (ends_with(2, b"\n"), false),
        b'/' if text.get(after(1)) == Some(&b'*') => (comment(text, begin), false),
        b'#' => {
            let marks = text[begin..].iter().take_while(|byte| **byte == b'#').count();
            match text.get(after(marks)) {
                Some(b'"') => (ends_with(marks + 1, &[b"\"", "#".repeat(marks).as_bytes()].concat()), false),
                _ => (after(1), false),
            }
        }
        b'0' if text.get(after(1)).is_some_and(|byte| b"xXoObB".contains(byte)) => (word(), false),
        b'0'..=b'9' => (number(text, begin), true),
        byte if is_word(&byte) => (word(), false),
        _ => (after(1), false),
    }
}

/// Returns the end of the text or character that begins at a quotation mark.
fn quoted(text: &[u8], begin: usize) -> usize {
    let mark = text[begin];
    let mut at = begin + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            byte if *byte == mark => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns the end of a comment, which can contain others.
fn comment(text: &[u8], begin: usize) -> usize {
    let (mut at, mut depth) = (begin, 0_usize);
    while at < text.len() {
        match text.get(at..at + 2) {
            Some(b"/*") => depth += 1,
            Some(b"*/") => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the end of a decimal number.
fn number(text: &[u8], begin: usize) -> usize {
    let digits = |at: usize| {
        let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'_';
        at + text.get(at..).unwrap_or_default().iter().take_while(|byte| is_part(byte)).count()
    };
    let is_digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    let mut end = digits(begin);
    if text.get(end) == Some(&b'.') && is_digit(end + 1) {
        end = digits(end + 1);
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        if is_digit(end + 1 + sign) {
            end = digits(end + 1 + sign);
        }
    }
    end
}

/// A number of an expression.
trait Operand {
    fn decimal(&self) -> Option<Decimal>;
    fn float(&self) -> f64;
}

impl Operand for i64 {
    fn decimal(&self) -> Option<Decimal> {
        Decimal::parse(&self.to_string())
    }

    #[expect(clippy::cast_precision_loss, reason = "calculations with floats are rounded")]
    fn float(&self) -> f64 {
        *self as f64
    }
}

impl Operand for f64 {
    fn decimal(&self) -> Option<Decimal> {
        Decimal::of_float(*self)
    }

    fn float(&self) -> f64 {
        *self
    }
}

impl Operand for Exact {
    fn decimal(&self) -> Option<Decimal> {
        Some((*self.0).clone())
    }

    fn float(&self) -> f64 {
        self.0.to_string().parse().unwrap_or(f64::NAN)
    }
}

/// Compares two numbers; `None` if one of them is not a number.
fn order(one: &impl Operand, other: &impl Operand) -> Option<Ordering> {
    match (one.decimal(), other.decimal()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.float().partial_cmp(&other.float()),
    }
}

/// Adds exact numbers to the engine.
pub(crate) fn register(engine: &mut Engine) {
    // Otherwise the engine compares integers with floats itself, and rounds the integers.
    engine.set_fast_operators(false);
    engine.register_type_with_name::<Exact>("number");
    macro_rules! compare {
        ($($one:ty, $other:ty;)*) => {$(
            engine
                .register_fn("==", |one: $one, other: $other| order(&one, &other) == Some(Ordering::Equal))
                .register_fn("!=", |one: $one, other: $other| order(&one, &other) != Some(Ordering::Equal))
                .register_fn("<", |one: $one, other: $other| order(&one, &other).is_some_and(Ordering::is_lt))
                .register_fn("<=", |one: $one, other: $other| order(&one, &other).is_some_and(Ordering::is_le))
                .register_fn(">", |one: $one, other: $other| order(&one, &other).is_some_and(Ordering::is_gt))
                .register_fn(">=", |one: $one, other: $other| order(&one, &other).is_some_and(Ordering::is_ge));
        )*};
    }
    macro_rules! calculate {
        ($($one:ty, $other:ty;)*) => {$(
            engine
                .register_fn("+", |one: $one, other: $other| one.float() + other.float())
                .register_fn("-", |one: $one, other: $other| one.float() - other.float())
                .register_fn("*", |one: $one, other: $other| one.float() * other.float())
                .register_fn("/", |one: $one, other: $other| one.float() / other.float())
                .register_fn("%", |one: $one, other: $other| one.float() % other.float());
        )*};
    }
    macro_rules! differ {
        ($($one:ty, $other:ty;)*) => {$(
            engine.register_fn("!=", |_: $one, _: $other| true);
            for operator in ["==", "<", "<=", ">", ">="] {
                engine.register_fn(operator, |_: $one, _: $other| false);
            }
        )*};
    }
    compare! {
        i64, f64;
        f64, i64;
        Exact, Exact;
        Exact, i64;
        i64, Exact;
        Exact, f64;
        f64, Exact;
    }
    calculate! {
        Exact, Exact;
        Exact, i64;
        i64, Exact;
        Exact, f64;
        f64, Exact;
    }
    differ! {
        Exact, ();
        (), Exact;
        Exact, ImmutableString;
        ImmutableString, Exact;
        Exact, bool;
        bool, Exact;
    }
    engine
        .register_fn("-", |number: Exact| Exact::of(number.0.negated()))
        .register_fn("to_float", |number: Exact| number.float())
        .register_fn("to_string", |number: Exact| number.0.to_string())
        .register_fn("to_debug", |number: Exact| number.0.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_the_expression_are_named() {
        let long = "12345678901234567890123";
        for (expression, named) in [
            (format!("event.a == {long}"), format!("event.a == n0{}", "_".repeat(21))),
            ("1e400 < 2e400".to_owned(), "n0___ < n1___".to_owned()),
            (format!("x-{long}.5 > 1_{long}"), format!("x-n0{} > n1{}", "_".repeat(23), "_".repeat(23))),
        ] {
            assert_eq!(name_literals(&expression).0, named);
        }
        for same in [
            format!("event.a == \"{long}\""),
            format!("`{long}` == '1' /* {long} /* {long} */ {long} */"),
            format!("a == 1 // {long}"),
            format!("#\"{long}\"# == ##\"a\"# {long}\"##"),
            format!("a{long} == \"\\\"{long}\""),
            "0xffffffffffffffff 5 1.5 1e22 -7 1..9 list[0].len 10000000000000000000".to_owned(),
            "\"unfinished".to_owned(),
            "/* unfinished".to_owned(),
            "é == 'é'".to_owned(),
        ] {
            assert_eq!(name_literals(&same), (same.clone(), Vec::new()));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_expression_panics(text in "[\"'`#/*a-z0-9._eE+ é\\\\-]{0,60}") {
            let (named, _) = name_literals(&text);
            proptest::prop_assert_eq!(named.len(), text.len());
        }
    }
}
