//! Elliptic curves: points, key agreement, and ECDSA with any digest.

use rquickjs::{Ctx, Result, Value};

use super::crypto::{fill_random, given};
use super::keys::{self, Kind};
use crate::errors::plain_error;
use crate::values::bytes_to_js;

/// Runs code with the crate of a curve; returns `None` for other kinds.
macro_rules! on_curve {
    ($kind:expr, $curve:ident => $body:block) => {
        match $kind {
            Kind::P256 => {
                use p256 as $curve;
                $body
            }
            Kind::P384 => {
                use p384 as $curve;
                $body
            }
            Kind::P521 => {
                use p521 as $curve;
                $body
            }
            Kind::K256 => {
                use k256 as $curve;
                $body
            }
            Kind::Rsa | Kind::Ed25519 | Kind::X25519 => None,
        }
    };
}

/// Returns the length of a curve's scalar, in bytes.
fn size(kind: Kind) -> usize {
    match kind {
        Kind::P384 => 48,
        Kind::P521 => 66,
        _ => 32,
    }
}

/// Pads a big-endian number with leading zeros to at least this length.
fn padded(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut padded = vec![0; length.saturating_sub(bytes.len())];
    padded.extend_from_slice(bytes);
    padded
}

/// Returns the public point of a secret scalar.
pub(super) fn point(kind: Kind, scalar: &[u8], compressed: bool) -> Option<Vec<u8>> {
    on_curve!(kind, curve => {
        use curve::elliptic_curve::sec1::ToSec1Point;
        let secret = curve::SecretKey::from_slice(&padded(scalar, size(kind))).ok()?;
        Some(secret.public_key().to_sec1_point(compressed).as_bytes().to_vec())
    })
}

/// Converts a point between the compressed and the uncompressed form.
fn converted(kind: Kind, point: &[u8], compressed: bool) -> Option<Vec<u8>> {
    on_curve!(kind, curve => {
        use curve::elliptic_curve::sec1::ToSec1Point;
        let public = curve::PublicKey::from_sec1_bytes(point).ok()?;
        Some(public.to_sec1_point(compressed).as_bytes().to_vec())
    })
}

/// Returns the shared secret of a scalar and another party's point.
fn agreed(kind: Kind, scalar: &[u8], point: &[u8]) -> Option<Vec<u8>> {
    if kind == Kind::X25519 {
        let secret = x25519_dalek::StaticSecret::from(<[u8; 32]>::try_from(scalar).ok()?);
        let shared = secret.diffie_hellman(&<[u8; 32]>::try_from(point).ok()?.into());
        return shared.was_contributory().then(|| shared.as_bytes().to_vec());
    }
    on_curve!(kind, curve => {
        let secret = curve::SecretKey::from_slice(&padded(scalar, size(kind))).ok()?;
        let public = curve::PublicKey::from_sec1_bytes(point).ok()?;
        Some(secret.diffie_hellman(&public).raw_secret_bytes().to_vec())
    })
}

pub(super) fn x25519_public(secret: &[u8]) -> Option<[u8; 32]> {
    let secret = x25519_dalek::StaticSecret::from(<[u8; 32]>::try_from(secret).ok()?);
    Some(x25519_dalek::PublicKey::from(&secret).to_bytes())
}

/// Signs a digest; the signature is in DER or in P1363.
pub(super) fn sign(kind: Kind, scalar: &[u8], digest: &[u8], p1363: bool) -> Option<Vec<u8>> {
    on_curve!(kind, curve => {
        use curve::ecdsa::signature::hazmat::PrehashSigner;
        let key = curve::ecdsa::SigningKey::from_slice(&padded(scalar, size(kind))).ok()?;
        let signed: curve::ecdsa::Signature = key.sign_prehash(&padded(digest, size(kind))).ok()?;
        Some(if p1363 { signed.to_vec() } else { signed.to_der().as_bytes().to_vec() })
    })
}

/// Verifies the signature of a digest.
pub(super) fn verify(kind: Kind, point: &[u8], digest: &[u8], signed: &[u8], p1363: bool) -> bool {
    verified(kind, point, digest, signed, p1363).is_some()
}

fn verified(kind: Kind, point: &[u8], digest: &[u8], signed: &[u8], p1363: bool) -> Option<()> {
    on_curve!(kind, curve => {
        use curve::ecdsa::signature::hazmat::PrehashVerifier;
        let key = curve::ecdsa::VerifyingKey::from_sec1_bytes(point).ok()?;
        let signed = match p1363 {
            true => curve::ecdsa::Signature::from_slice(signed),
            false => curve::ecdsa::Signature::from_der(signed),
        };
        // Both possible values of a signature's `s` are valid, as in Node.
        key.verify_prehash(&padded(digest, size(kind)), &signed.ok()?.normalize_s()).ok()
    })
}

/// Generates a private key in PKCS#8.
pub(super) fn generate<'js>(ctx: Ctx<'js>, name: String) -> Result<Value<'js>> {
    let unknown = || plain_error(&ctx, format_args!("unknown curve {name}"));
    let kind = Kind::named(&name).filter(|kind| *kind != Kind::Rsa).ok_or_else(unknown)?;
    let mut secret = vec![0; size(kind)];
    loop {
        fill_random(&mut secret);
        if kind == Kind::P521
            && let Some(first) = secret.first_mut()
        {
            // The order has 521 bits.
            *first &= 1;
        }
        // A random number may be zero or exceed the order.
        if let Some(key) = keys::to_pkcs8(kind, &secret) {
            return bytes_to_js(&ctx, key.into());
        }
    }
}

fn no_curve(ctx: &Ctx<'_>, name: &str) -> rquickjs::Error {
    plain_error(ctx, format_args!("unknown curve {name}"))
}

/// Returns the shared secret of a private key in PKCS#8 and a public key in SPKI.
pub(super) fn agree<'js>(ctx: Ctx<'js>, private: Value<'js>, public: Value<'js>) -> Result<Value<'js>> {
    let (private, public) = (given(&ctx, &private)?, given(&ctx, &public)?);
    let agreed = keys::private(&private).zip(keys::public(&public)).and_then(|(own, other)| {
        (own.kind == other.kind).then(|| agreed(own.kind, own.material, other.material)).flatten()
    });
    let agreed = agreed.ok_or_else(|| plain_error(&ctx, "these keys have no secret in common"))?;
    bytes_to_js(&ctx, agreed.into())
}

/// Returns the shared secret of a raw scalar and a raw point.
pub(super) fn agree_plain<'js>(
    ctx: Ctx<'js>,
    curve: String,
    scalar: Value<'js>,
    point: Value<'js>,
) -> Result<Value<'js>> {
    let kind = Kind::named(&curve).ok_or_else(|| no_curve(&ctx, &curve))?;
    let agreed = agreed(kind, &given(&ctx, &scalar)?, &given(&ctx, &point)?);
    bytes_to_js(&ctx, agreed.ok_or_else(|| plain_error(&ctx, "not a point of the curve"))?.into())
}

/// Returns the public point of a raw scalar.
pub(super) fn plain_point<'js>(
    ctx: Ctx<'js>,
    curve: String,
    scalar: Value<'js>,
    compressed: bool,
) -> Result<Value<'js>> {
    let kind = Kind::named(&curve).ok_or_else(|| no_curve(&ctx, &curve))?;
    let point = point(kind, &given(&ctx, &scalar)?, compressed);
    bytes_to_js(&ctx, point.ok_or_else(|| plain_error(&ctx, "not a number of the curve"))?.into())
}

/// Converts a point to the compressed or uncompressed form.
pub(super) fn convert<'js>(
    ctx: Ctx<'js>,
    curve: String,
    point: Value<'js>,
    compressed: bool,
) -> Result<Value<'js>> {
    let kind = Kind::named(&curve).ok_or_else(|| no_curve(&ctx, &curve))?;
    let point = converted(kind, &given(&ctx, &point)?, compressed);
    bytes_to_js(&ctx, point.ok_or_else(|| plain_error(&ctx, "not a point of the curve"))?.into())
}

/// Returns a private key in PKCS#8 from a curve's raw scalar or bytes.
pub(super) fn private_of<'js>(ctx: Ctx<'js>, name: String, secret: Value<'js>) -> Result<Value<'js>> {
    let kind = Kind::named(&name).ok_or_else(|| no_curve(&ctx, &name))?;
    let key = keys::to_pkcs8(kind, &given(&ctx, &secret)?);
    bytes_to_js(&ctx, key.ok_or_else(|| plain_error(&ctx, "Invalid EC key"))?.into())
}

/// Returns a public key in SPKI from a curve's raw point or bytes.
pub(super) fn public_of<'js>(ctx: Ctx<'js>, name: String, point: Value<'js>) -> Result<Value<'js>> {
    let kind = Kind::named(&name).ok_or_else(|| no_curve(&ctx, &name))?;
    let given = given(&ctx, &point)?;
    let valid = match kind {
        Kind::Ed25519 | Kind::X25519 => given.len() == 32,
        _ => converted(kind, &given, false).is_some(),
    };
    if !valid {
        return Err(plain_error(&ctx, "Invalid EC key"));
    }
    bytes_to_js(&ctx, keys::to_spki(kind, &given).into())
}
