//! Exact values of JSON numbers, which can have more digits than the number types of a program.

use std::cmp::Ordering;
use std::fmt;

/// From so many digits before the point on, a number is written with an exponent.
const MOST_PLACES: i128 = 1024;
/// The smallest exponent of a fraction that is written without one, as `serde_json` writes numbers.
const LEAST_PLACES: i128 = -5;

/// The value of a JSON number: `0.<digits> * 10^exponent`. It is compared by value: `1`, `1.0` and `10e-1` are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decimal {
    is_negative: bool,
    /// Without zeros at both ends; empty for zero.
    digits: String,
    exponent: i128,
}

impl Decimal {
    /// Reads a JSON number. `None` if the text is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
            None => (text, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let has_leading_zero = whole.len() > 1 && whole.starts_with('0');
        if whole.is_empty() || has_leading_zero || !are_digits(whole) || !are_digits(fraction) {
            return None;
        }
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let leading = i128::try_from(all.len() - significant.len()).ok()?;
        let digits = significant.trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits: String::new(), exponent: 0 });
        }
        let exponent = exponent.saturating_add(i128::try_from(whole.len()).ok()? - leading);
        Some(Self { is_negative, digits: digits.to_owned(), exponent })
    }

    /// Returns the value with the other sign.
    #[must_use]
    pub fn negated(&self) -> Self {
        Self { is_negative: !self.is_negative && !self.digits.is_empty(), ..self.clone() }
    }

    /// Returns the number of significant digits.
    pub fn precision(&self) -> usize {
        self.digits.len()
    }

    /// Returns the value of the shortest decimal number that is read as this float, which is how floats are written;
    /// `None` if it is not finite.
    pub fn of_float(float: f64) -> Option<Self> {
        Self::parse(&serde_json::Number::from_f64(float)?.to_string())
    }

    /// Returns the float whose shortest decimal number has this value; `None` if there is none.
    pub fn as_float(&self) -> Option<f64> {
        let float: f64 = self.to_string().parse().ok()?;
        (Self::of_float(float)? == *self).then_some(float)
    }

    /// Returns the integer with this value; `None` if there is none.
    pub fn as_i64(&self) -> Option<i64> {
        let length = i128::try_from(self.digits.len()).ok()?;
        let is_integer = self.digits.is_empty() || (length..20).contains(&self.exponent);
        is_integer.then(|| self.to_string().parse().ok()).flatten()
    }
}

/// Reads an exponent; one beyond any memory is replaced with the largest.
fn read_exponent(text: &str) -> Option<i128> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse().unwrap_or(i128::MAX / 2).min(i128::MAX / 2);
    Some(if text.starts_with('-') { -size } else { size })
}

/// Writes one text for each value: without an exponent unless it would be long, as `serde_json` writes small numbers.
impl fmt::Display for Decimal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_negative, digits, exponent } = self;
        if digits.is_empty() {
            return to.write_str("0");
        }
        if *is_negative {
            to.write_str("-")?;
        }
        let zeros = |to: &mut fmt::Formatter<'_>, count: i128| (0..count).try_for_each(|_| to.write_str("0"));
        let length = i128::try_from(digits.len()).unwrap_or(i128::MAX);
        match *exponent {
            places if places > MOST_PLACES || places <= LEAST_PLACES => {
                let (first, rest) = digits.split_at(1);
                let point = if rest.is_empty() { "" } else { "." };
                write!(to, "{first}{point}{rest}e{}", places - 1)
            }
            places if places <= 0 => {
                to.write_str("0.")?;
                zeros(to, -places)?;
                to.write_str(digits)
            }
            places if places >= length => {
                to.write_str(digits)?;
                zeros(to, places - length)
            }
            places => {
                let (whole, fraction) = digits.split_at(usize::try_from(places).unwrap_or_default());
                write!(to, "{whole}.{fraction}")
            }
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match (number.digits.is_empty(), number.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let of_sign = sign(self).cmp(&sign(other));
        let of_size = || (self.exponent, &self.digits).cmp(&(other.exponent, &other.digits));
        of_sign.then_with(|| if self.is_negative { of_size().reverse() } else { of_size() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let ascending = [
            "-1e400",
            "-12345678901234567890124",
            "-12345678901234567890123",
            "-1.5",
            "-1",
            "-1e-400",
            "0",
            "1e-400",
            "0.1",
            "0.10000000000000000001",
            "1",
            "9007199254740992",
            "9007199254740993",
            "9007199254740993.5",
            "12345678901234567890123",
            "12345678901234567890124",
            "1e400",
            "1e401",
        ];
        for (at, one) in ascending.iter().enumerate() {
            for (other_at, other) in ascending.iter().enumerate() {
                assert_eq!(decimal(one).cmp(&decimal(other)), at.cmp(&other_at), "{one} and {other}");
            }
        }
        for equal in [
            &["1", "1.0", "10e-1", "0.1E+1", "1.000"][..],
            &["0", "-0", "0.0", "0e99", "-0e-5"],
            &["-1200", "-1.2e3", "-0.12E4"],
        ] {
            assert!(equal.iter().all(|text| decimal(text) == decimal(equal[0])), "{equal:?}");
        }
    }

    #[test]
    fn each_value_has_one_text() {
        for (text, written) in [
            ("1.10", "1.1"),
            ("1e3", "1000"),
            ("-1e22", "-10000000000000000000000"),
            ("12345678901234567890123.0", "12345678901234567890123"),
            ("0.00001", "0.00001"),
            ("0.000001", "1e-6"),
            ("1.5e-7", "1.5e-7"),
            ("1e2000", "1e2000"),
            ("-12e2000", "-1.2e2001"),
            ("100.250", "100.25"),
            ("-0.0", "0"),
        ] {
            assert_eq!(decimal(text).to_string(), written, "{text}");
            assert_eq!(decimal(written), decimal(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in [
            "", "-", "a", "1.", ".5", "+1", "1e", "1e+", "1.5.5", "0x1", "1_000", " 1", "NaN", "1e5.5", "01",
            "-00",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_is_a_native_one_only_if_that_has_its_value() {
        for (text, integer, float) in [
            ("1e3", Some(1000), Some(1000.0)),
            ("9223372036854775807", Some(i64::MAX), None),
            ("9223372036854775808", None, None),
            ("-9223372036854775808", Some(i64::MIN), None),
            ("12345678901234567890123", None, None),
            ("1.10", None, Some(1.1)),
            ("0.12345678901234567890123", None, None),
            ("1e22", None, Some(1e22)),
            ("1e400", None, None),
            ("1e-400", None, None),
            ("0", Some(0), Some(0.0)),
            ("1e99999999999999999999999999999999999999999999", None, None),
        ] {
            assert_eq!((decimal(text).as_i64(), decimal(text).as_float()), (integer, float), "{text}");
        }
    }

    proptest! {
        #[test]
        fn integers_and_floats_have_the_order_of_their_types(
            ints in any::<(i64, i64)>(), floats in any::<(f64, f64)>()
        ) {
            let of = |number: i64| decimal(&number.to_string());
            prop_assert_eq!(of(ints.0).cmp(&of(ints.1)), ints.0.cmp(&ints.1));
            prop_assert_eq!(of(ints.0).as_i64(), Some(ints.0));
            if floats.0.is_finite() && floats.1.is_finite() {
                let of = |number: f64| Decimal::of_float(number).unwrap();
                prop_assert_eq!(Some(of(floats.0).cmp(&of(floats.1))), floats.0.partial_cmp(&floats.1));
                prop_assert_eq!(of(floats.0).as_float(), Some(floats.0));
            }
        }

        #[test]
        fn a_text_is_read_back(text in "-?(0|[1-9][0-9]{0,29})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,6})?") {
            let number = decimal(&text);
            prop_assert_eq!(decimal(&number.to_string()), number);
        }
    }
}
