//! Signatures with key pairs: RSA, ECDSA and Ed25519.

use ring::rand::SystemRandom;
use ring::signature::{self, Ed25519KeyPair, RsaKeyPair, UnparsedPublicKey};
use rquickjs::{Ctx, Error, Result, Value};

use super::crypto::{digest, given, plain};
use super::curves;
use super::keys::{self, Kind, unreadable};
use super::rsa::{self, Salt};
use crate::errors::plain_error;
use crate::values::bytes_to_js;

/// The default digest, as in Node.
const DEFAULT: &str = "sha256";

fn named(digest: &str) -> String {
    let name = plain(digest);
    if name.is_empty() { DEFAULT.to_owned() } else { name }
}

/// Signs with a private key in PKCS#8. ECDSA signatures are in `der` or `p1363`; RSA uses PKCS#1 or `pss`.
pub(super) fn sign<'js>(
    ctx: Ctx<'js>,
    algorithm: String,
    key: Value<'js>,
    data: Value<'js>,
    form: String,
    salt: i32,
) -> Result<Value<'js>> {
    let (bytes, data) = (given(&ctx, &key)?, given(&ctx, &data)?);
    let key = keys::private(&bytes).ok_or_else(|| unreadable(&ctx))?;
    let name = named(&algorithm);
    let signed = match key.kind {
        Kind::Ed25519 => {
            let pair = Ed25519KeyPair::from_seed_unchecked(key.material).map_err(|_| unreadable(&ctx))?;
            Some(pair.sign(&data).as_ref().to_vec())
        }
        Kind::X25519 => None,
        Kind::Rsa => {
            let pss = (form == "pss").then(|| Salt::of(salt));
            match fast(key.material, &name, &data, pss) {
                Some(signed) => Some(signed),
                None => rsa::sign(key.material, &name, &digest(&ctx, &name, &data)?, pss),
            }
        }
        curve => curves::sign(curve, key.material, &digest(&ctx, &name, &data)?, form == "p1363"),
    };
    bytes_to_js(&ctx, signed.ok_or_else(|| unsupported(&ctx, &algorithm))?.into())
}

/// Signs with ring if it supports the combination, which is several times as fast.
fn fast(material: &[u8], digest: &str, data: &[u8], pss: Option<Salt>) -> Option<Vec<u8>> {
    let encoding: &dyn signature::RsaEncoding = match (digest, pss) {
        ("sha256", None) => &signature::RSA_PKCS1_SHA256,
        ("sha384", None) => &signature::RSA_PKCS1_SHA384,
        ("sha512", None) => &signature::RSA_PKCS1_SHA512,
        ("sha256", Some(Salt::Digest)) => &signature::RSA_PSS_SHA256,
        ("sha384", Some(Salt::Digest)) => &signature::RSA_PSS_SHA384,
        ("sha512", Some(Salt::Digest)) => &signature::RSA_PSS_SHA512,
        _ => return None,
    };
    let pair = RsaKeyPair::from_der(material).ok()?;
    let mut signed = vec![0; pair.public().modulus_len()];
    pair.sign(encoding, &SystemRandom::new(), data, &mut signed).ok()?;
    Some(signed)
}

/// Verifies the signature of data with a public key in SPKI.
pub(super) fn verify<'js>(
    ctx: Ctx<'js>,
    algorithm: String,
    key: Value<'js>,
    data: Value<'js>,
    signed: Value<'js>,
    form: String,
    salt: i32,
) -> Result<bool> {
    let (bytes, data, signed) = (given(&ctx, &key)?, given(&ctx, &data)?, given(&ctx, &signed)?);
    let key = keys::public(&bytes).ok_or_else(|| unreadable(&ctx))?;
    let name = named(&algorithm);
    let verified = match key.kind {
        Kind::Ed25519 => {
            let known = UnparsedPublicKey::new(&signature::ED25519, key.material);
            Some(known.verify(&data, &signed).is_ok())
        }
        Kind::X25519 => None,
        Kind::Rsa => {
            let pss = (form == "pss").then(|| Salt::of(salt));
            rsa::verify(key.material, &name, &digest(&ctx, &name, &data)?, &signed, pss)
        }
        curve => {
            let hashed = digest(&ctx, &name, &data)?;
            Some(curves::verify(curve, key.material, &hashed, &signed, form == "p1363"))
        }
    };
    verified.ok_or_else(|| unsupported(&ctx, &algorithm))
}

fn unsupported(ctx: &Ctx<'_>, digest: &str) -> Error {
    plain_error(ctx, format_args!("signatures with {digest} and this key are not supported here"))
}
