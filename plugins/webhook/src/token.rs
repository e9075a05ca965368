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
}
