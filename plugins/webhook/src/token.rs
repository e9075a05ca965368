//! Comparison of a caller's bearer token with the endpoint's secret.

use ostler_contract::http::{HeaderMap, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Returns the bearer token of a request. A request with several credentials has none, because what is in front of the host may
/// have checked another one.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Returns why a secret cannot be sent as a bearer token.
pub(crate) fn unusable(secret: &str) -> Option<&'static str> {
    let is_sendable = |byte: u8| byte == b'\t' || !byte.is_ascii_control();
    if !secret.bytes().all(is_sendable) {
        return Some("contains a line break or another control character, which a header cannot contain");
    }
    // The end of a header is not part of its value.
    (secret.trim_ascii() != secret).then_some("begins or ends with a space, which a bearer token cannot")
}

/// Returns whether a token is the secret. Hashes both first, so that the duration reveals neither a common prefix nor
/// the length of the secret.
pub(crate) fn is_secret(token: &[u8], secret: &str) -> bool {
    same(&Sha256::digest(token), &Sha256::digest(secret.as_bytes()))
}

/// Compares in a time that depends only on the length.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_no_header_carries_is_unusable() {
        for good in ["s3cret", "two words", "tab\there", "schl\u{fc}ssel"] {
            assert_eq!(unusable(good), None, "{good:?}");
            let header =
                HeaderMap::from_iter([(header::AUTHORIZATION, format!("Bearer {good}").try_into().unwrap())]);
            assert!(is_secret(bearer(&header).unwrap(), good), "{good:?}");
        }
        for control in ["one\ntwo", "one\r", "one\0two", "one\u{7f}"] {
            let why = unusable(control).unwrap();
            assert!(why.contains("control character"), "{control:?}: {why}");
        }
        for space in [" s3cret", "s3cret ", "\ts3cret"] {
            assert!(unusable(space).unwrap().contains("space"), "{space:?}");
        }
    }

    #[test]
    fn only_the_whole_secret_passes() {
        let with = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        assert_eq!(bearer(&with("Bearer abc ")), Some(&b"abc"[..]));
        assert_eq!(bearer(&with("bearer abc")), Some(&b"abc"[..]));
        for none in ["abc", "Basic abc", "Bearer", "Bearerabc"] {
            assert_eq!(bearer(&with(none)), None, "{none}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
        for two in [
            ["Bearer s3cret", "Basic dTpzM2NyZXQ="],
            ["Basic dTpzM2NyZXQ=", "Bearer s3cret"],
            ["Bearer s3cret"; 2],
        ] {
            let repeated = two.map(|value| (header::AUTHORIZATION, value.parse().unwrap()));
            assert_eq!(bearer(&HeaderMap::from_iter(repeated)), None, "{two:?}");
        }
        assert!(is_secret(b"s3cret", "s3cret"));
        for wrong in ["", "s3cre", "s3cret ", "S3cret", "s3crets"] {
            assert!(!is_secret(wrong.as_bytes(), "s3cret"), "{wrong}");
        }
    }

    /// So long that a comparison which stops at the first difference shows.
    const LENGTH: usize = 1 << 15;

    /// How much longer a comparison takes where the last byte differs than where the first one does.
    fn ratio(compare: impl Fn(&[u8], &[u8]) -> bool) -> f64 {
        let right = vec![b's'; LENGTH];
        let wrong_at = |at: usize| {
            let mut token = right.clone();
            token[at] = b'x';
            token
        };
        let (first, last) = (wrong_at(0), wrong_at(LENGTH - 1));
        let took = |token: &[u8]| {
            let started = std::time::Instant::now();
            assert!(!std::hint::black_box(compare(std::hint::black_box(token), &right)));
            started.elapsed()
        };
        // In turns, and the fastest of each: what else the machine does meets both.
        let rounds = (0..60).map(|_| (took(&first), took(&last)));
        let (first, last) = rounds.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))).expect("there were rounds");
        last.as_secs_f64() / first.as_secs_f64()
    }

    #[test]
    fn how_much_of_a_token_is_right_does_not_show_in_the_time_taken() {
        // The comparison itself, because hashes of this length would hide one that stops early.
        for compare in [same, |one: &[u8], other: &[u8]| is_secret(one, str::from_utf8(other).unwrap())] {
            let ratio = ratio(compare);
            assert!((0.5..2.0).contains(&ratio), "{ratio}");
        }
        let early = ratio(|one, other| one == other);
        assert!(early > 4.0, "the measurement tells them apart: {early}");
    }
}
