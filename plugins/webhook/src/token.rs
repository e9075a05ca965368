//! The bearer a caller sends, against the endpoint's secret.

use ostler_contract::http::{HeaderMap, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The bearer token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Whether a token is the secret. Both are hashed first, so that neither how much of it is right nor how long
/// the secret is shows in the time taken.
pub(crate) fn is_secret(token: &[u8], secret: &str) -> bool {
    Sha256::digest(token).ct_eq(&Sha256::digest(secret.as_bytes())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_secret_passes() {
        let with = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        assert_eq!(bearer(&with("Bearer abc ")), Some(&b"abc"[..]));
        assert_eq!(bearer(&with("bearer abc")), Some(&b"abc"[..]));
        for none in ["abc", "Basic abc", "Bearer", "Bearerabc"] {
            assert_eq!(bearer(&with(none)), None, "{none}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
        assert!(is_secret(b"s3cret", "s3cret"));
        for wrong in ["", "s3cre", "s3cret ", "S3cret", "s3crets"] {
            assert!(!is_secret(wrong.as_bytes(), "s3cret"), "{wrong}");
        }
    }

    /// A secret long enough that a comparison which stops at the first difference would show.
    #[test]
    fn how_much_of_a_token_is_right_does_not_show_in_the_time_taken() {
        let secret = "s".repeat(1 << 16);
        let wrong_at = |at: usize| {
            let mut token = secret.clone().into_bytes();
            token[at] = b'x';
            token
        };
        let (first, last) = (wrong_at(0), wrong_at(secret.len() - 1));
        let fastest = |token: &[u8]| {
            let once = || {
                let started = std::time::Instant::now();
                assert!(!std::hint::black_box(is_secret(std::hint::black_box(token), &secret)));
                started.elapsed()
            };
            (0..20).map(|_| once()).min().unwrap()
        };
        let (first, last) = (fastest(&first), fastest(&last));
        let ratio = first.as_secs_f64() / last.as_secs_f64();
        assert!((0.5..2.0).contains(&ratio), "{first:?} for the first byte, {last:?} for the last");
    }
}
