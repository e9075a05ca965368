//! Signatures with key pairs: RSA, ECDSA on P-256 and P-384, Ed25519.

use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair, UnparsedPublicKey};
use rquickjs::{Ctx, Error, Result, Value};

use super::crypto::{given, plain};
use crate::errors::{plain_error, type_error};
use crate::values::bytes_to_js;

/// What a key signs with, read from its DER.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

const RSA: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01];
const P256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2B, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2B, 0x65, 0x70];

/// Signs with a private key in PKCS#8 (or PKCS#1, for RSA). ECDSA answers in `der` or in `p1363`.
pub(super) fn sign<'js>(
    ctx: Ctx<'js>,
    digest: String,
    key: Value<'js>,
    data: Value<'js>,
    form: String,
) -> Result<Value<'js>> {
    let (key, data) = (given(&ctx, &key)?, given(&ctx, &data)?);
    let random = SystemRandom::new();
    let wrong = |_| type_error(&ctx, "this private key cannot be read");
    let unsigned = |_| plain_error(&ctx, "the data could not be signed with this key");
    let signed = match kind(&key) {
        Some(Kind::Ed25519) => {
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key).map_err(wrong)?.sign(&data).as_ref().to_vec()
        }
        Some(curve @ (Kind::P256 | Kind::P384)) => {
            let algorithm = match (curve, form.as_str()) {
                (Kind::P256, "p1363") => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
                (Kind::P256, _) => &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
                (_, "p1363") => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
                _ => &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
            };
            let pair = EcdsaKeyPair::from_pkcs8(algorithm, &key, &random).map_err(wrong)?;
            pair.sign(&random, &data).map_err(unsigned)?.as_ref().to_vec()
        }
        _ => {
            let pair = RsaKeyPair::from_pkcs8(&key).or_else(|_| RsaKeyPair::from_der(&key)).map_err(wrong)?;
            let encoding: &dyn signature::RsaEncoding = match (plain(&digest).as_str(), form.as_str()) {
                ("sha256", "pss") => &signature::RSA_PSS_SHA256,
                ("sha384", "pss") => &signature::RSA_PSS_SHA384,
                ("sha512", "pss") => &signature::RSA_PSS_SHA512,
                ("sha256", _) => &signature::RSA_PKCS1_SHA256,
                ("sha384", _) => &signature::RSA_PKCS1_SHA384,
                ("sha512", _) => &signature::RSA_PKCS1_SHA512,
                _ => return Err(unsupported(&ctx, &digest)),
            };
            let mut signed = vec![0; pair.public().modulus_len()];
            pair.sign(encoding, &random, &data, &mut signed).map_err(unsigned)?;
            signed
        }
    };
    bytes_to_js(&ctx, signed.into())
}

/// Whether a signature is of this data, by a public key in SPKI (or PKCS#1, for RSA).
pub(super) fn verify<'js>(
    ctx: Ctx<'js>,
    digest: String,
    key: Value<'js>,
    data: Value<'js>,
    signed: Value<'js>,
    form: String,
) -> Result<bool> {
    let (key, data, signed) = (given(&ctx, &key)?, given(&ctx, &data)?, given(&ctx, &signed)?);
    let digest_name = plain(&digest);
    let algorithm: &dyn signature::VerificationAlgorithm =
        match (kind(&key).unwrap_or(Kind::Rsa), digest_name.as_str(), form.as_str()) {
            (Kind::Ed25519, ..) => &signature::ED25519,
            (Kind::P256, "sha256" | "", "p1363") => &signature::ECDSA_P256_SHA256_FIXED,
            (Kind::P256, "sha256" | "", _) => &signature::ECDSA_P256_SHA256_ASN1,
            (Kind::P256, "sha384", "der") => &signature::ECDSA_P256_SHA384_ASN1,
            (Kind::P384, "sha384" | "", "p1363") => &signature::ECDSA_P384_SHA384_FIXED,
            (Kind::P384, "sha384" | "", _) => &signature::ECDSA_P384_SHA384_ASN1,
            (Kind::P384, "sha256", "der") => &signature::ECDSA_P384_SHA256_ASN1,
            (Kind::Rsa, "sha256", "pss") => &signature::RSA_PSS_2048_8192_SHA256,
            (Kind::Rsa, "sha384", "pss") => &signature::RSA_PSS_2048_8192_SHA384,
            (Kind::Rsa, "sha512", "pss") => &signature::RSA_PSS_2048_8192_SHA512,
            (Kind::Rsa, "sha1", _) => &signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            (Kind::Rsa, "sha256", _) => &signature::RSA_PKCS1_2048_8192_SHA256,
            (Kind::Rsa, "sha384", _) => &signature::RSA_PKCS1_2048_8192_SHA384,
            (Kind::Rsa, "sha512", _) => &signature::RSA_PKCS1_2048_8192_SHA512,
            _ => return Err(unsupported(&ctx, &digest)),
        };
    let point = spki_key(&key).unwrap_or(&key);
    Ok(UnparsedPublicKey::new(algorithm, point).verify(&data, &signed).is_ok())
}

/// A new private key on P-256 or P-384, in PKCS#8.
pub(super) fn generate_ec<'js>(ctx: Ctx<'js>, curve: String) -> Result<Value<'js>> {
    let algorithm = match curve.as_str() {
        "P-256" => &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        _ => &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
    };
    let made = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new())
        .map_err(|_| plain_error(&ctx, "no key could be made"))?;
    bytes_to_js(&ctx, made.as_ref().to_vec().into())
}

/// The public key of a private one, in SPKI.
pub(super) fn public_key<'js>(ctx: Ctx<'js>, key: Value<'js>) -> Result<Value<'js>> {
    let key = given(&ctx, &key)?;
    let wrong = |_| type_error(&ctx, "this private key cannot be read");
    let random = SystemRandom::new();
    let (algorithm, public) = match kind(&key).unwrap_or(Kind::Rsa) {
        Kind::Ed25519 => {
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key).map_err(wrong)?;
            (der(0x06, ED25519), pair.public_key().as_ref().to_vec())
        }
        curve @ (Kind::P256 | Kind::P384) => {
            let (algorithm, name) = match curve {
                Kind::P256 => (&signature::ECDSA_P256_SHA256_ASN1_SIGNING, P256),
                _ => (&signature::ECDSA_P384_SHA384_ASN1_SIGNING, P384),
            };
            let pair = EcdsaKeyPair::from_pkcs8(algorithm, &key, &random).map_err(wrong)?;
            let ec = [0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01];
            ([der(0x06, &ec), der(0x06, name)].concat(), pair.public_key().as_ref().to_vec())
        }
        Kind::Rsa => {
            let pair = RsaKeyPair::from_pkcs8(&key).or_else(|_| RsaKeyPair::from_der(&key)).map_err(wrong)?;
            ([der(0x06, RSA), vec![0x05, 0x00]].concat(), pair.public().as_ref().to_vec())
        }
    };
    let bits = [vec![0], public].concat();
    let spki = der(0x30, &[der(0x30, &algorithm), der(0x03, &bits)].concat());
    bytes_to_js(&ctx, spki.into())
}

fn unsupported(ctx: &Ctx<'_>, digest: &str) -> Error {
    plain_error(ctx, format_args!("signatures with {digest} and this key are not supported here"))
}

/// By the names of algorithms in the first bytes.
fn kind(key: &[u8]) -> Option<Kind> {
    let head = &key[..key.len().min(64)];
    let holds = |name: &[u8]| head.windows(name.len()).any(|window| window == name);
    [(RSA, Kind::Rsa), (P256, Kind::P256), (P384, Kind::P384), (ED25519, Kind::Ed25519)]
        .into_iter()
        .find(|(name, _)| holds(&der(0x06, name)))
        .map(|(_, kind)| kind)
}

/// The key inside `SEQUENCE { SEQUENCE { … }, BIT STRING }`.
fn spki_key(spki: &[u8]) -> Option<&[u8]> {
    let (0x30, inside, _) = read(spki)? else { return None };
    let (0x30, _, after) = read(inside)? else { return None };
    let (0x03, bits, _) = read(after)? else { return None };
    bits.strip_prefix(&[0])
}

/// One DER value: its tag, what it holds, what comes after.
fn read(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short @ 0..=0x7F => (usize::from(*short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7F))?;
            if digits.len() > 4 {
                return None;
            }
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
    };
    let (inside, after) = rest.split_at_checked(length)?;
    Some((*tag, inside, after))
}

fn der(tag: u8, inside: &[u8]) -> Vec<u8> {
    let length = inside.len();
    let mut out = vec![tag];
    let digits = length.to_be_bytes();
    if length < 0x80 {
        out.push(digits[digits.len() - 1]);
    } else {
        let skipped = digits.iter().take_while(|digit| **digit == 0).count();
        out.push(0x80 | u8::try_from(digits.len() - skipped).unwrap_or_default());
        out.extend(&digits[skipped..]);
    }
    out.extend(inside);
    out
}
