//! Elliptic curves: points, agreement, and ECDSA with any digest.

use rquickjs::{Ctx, Result, Value};

use super::crypto::{fill_random, given};
use super::keys::{self, Kind};
use crate::errors::plain_error;
use crate::values::bytes_to_js;

/// Runs code with the crate of a curve; `None` for what is no such curve.
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

/// The length of a number of a curve.
fn size(kind: Kind) -> usize {
    match kind {
        Kind::P384 => 48,
        Kind::P521 => 66,
        _ => 32,
    }
}

/// Bytes of at least this length, with zeros in front: the same number.
fn padded(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut padded = vec![0; length.saturating_sub(bytes.len())];
    padded.extend_from_slice(bytes);
    padded
}

/// The point of a secret number.
pub(super) fn point(kind: Kind, scalar: &[u8], compressed: bool) -> Option<Vec<u8>> {
    on_curve!(kind, curve => {
        use curve::elliptic_curve::sec1::ToSec1Point;
        let secret = curve::SecretKey::from_slice(&padded(scalar, size(kind))).ok()?;
        Some(secret.public_key().to_sec1_point(compressed).as_bytes().to_vec())
    })
}

/// The same point in another form.
fn converted(kind: Kind, point: &[u8], compressed: bool) -> Option<Vec<u8>> {
    on_curve!(kind, curve => {
        use curve::elliptic_curve::sec1::ToSec1Point;
        let public = curve::PublicKey::from_sec1_bytes(point).ok()?;
        Some(public.to_sec1_point(compressed).as_bytes().to_vec())
    })
}

/// The secret that a number and another's point have in common.
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

/// Signs a digest, in DER or in P1363.
pub(super) fn sign(kind: Kind, scalar: &[u8], digest: &[u8], p1363: bool) -> Option<Vec<u8>> {
    on_curve!(kind, curve => {
        use curve::ecdsa::signature::hazmat::PrehashSigner;
        let key = curve::ecdsa::SigningKey::from_slice(&padded(scalar, size(kind))).ok()?;
        let signed: curve::ecdsa::Signature = key.sign_prehash(&padded(digest, size(kind))).ok()?;
        Some(if p1363 { signed.to_vec() } else { signed.to_der().as_bytes().to_vec() })
    })
}

/// Whether a signature is of a digest.
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
        // Both values that a signature can have are valid, as in Node.
        key.verify_prehash(&padded(digest, size(kind)), &signed.ok()?.normalize_s()).ok()
    })
}

/// A new private key, in PKCS#8.
pub(super) fn generate<'js>(ctx: Ctx<'js>, name: String) -> Result<Value<'js>> {
    let unknown = || plain_error(&ctx, format_args!("there is no curve {name}"));
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
        // A number may be zero or beyond the order.
        if let Some(key) = keys::to_pkcs8(kind, &secret) {
            return bytes_to_js(&ctx, key.into());
        }
    }
}

fn no_curve(ctx: &Ctx<'_>, name: &str) -> rquickjs::Error {
    plain_error(ctx, format_args!("there is no curve {name}"))
}

/// The secret of a private key in PKCS#8 and a public key in SPKI.
pub(super) fn agree<'js>(ctx: Ctx<'js>, private: Value<'js>, public: Value<'js>) -> Result<Value<'js>> {
    let (private, public) = (given(&ctx, &private)?, given(&ctx, &public)?);
    let agreed = keys::private(&private).zip(keys::public(&public)).and_then(|(own, other)| {
        (own.kind == other.kind).then(|| agreed(own.kind, own.material, other.material)).flatten()
    });
    let agreed = agreed.ok_or_else(|| plain_error(&ctx, "these keys have no secret in common"))?;
    bytes_to_js(&ctx, agreed.into())
}

/// The same of a plain number and point.
pub(super) fn agree_plain<'js>(
    ctx: Ctx<'js>,
    curve: String,
    scalar: Value<'js>,
    point: Value<'js>,
) -> Result<Value<'js>> {
    let kind = Kind::named(&curve).ok_or_else(|| no_curve(&ctx, &curve))?;
    let agreed = agreed(kind, &given(&ctx, &scalar)?, &given(&ctx, &point)?);
    bytes_to_js(&ctx, agreed.ok_or_else(|| plain_error(&ctx, "no point of the curve"))?.into())
}

/// The point of a number.
pub(super) fn plain_point<'js>(
    ctx: Ctx<'js>,
    curve: String,
    scalar: Value<'js>,
    compressed: bool,
) -> Result<Value<'js>> {
    let kind = Kind::named(&curve).ok_or_else(|| no_curve(&ctx, &curve))?;
    let point = point(kind, &given(&ctx, &scalar)?, compressed);
    bytes_to_js(&ctx, point.ok_or_else(|| plain_error(&ctx, "no number of the curve"))?.into())
}

/// A point in the other form.
pub(super) fn convert<'js>(
    ctx: Ctx<'js>,
    curve: String,
    point: Value<'js>,
    compressed: bool,
) -> Result<Value<'js>> {
    let kind = Kind::named(&curve).ok_or_else(|| no_curve(&ctx, &curve))?;
    let point = converted(kind, &given(&ctx, &point)?, compressed);
    bytes_to_js(&ctx, point.ok_or_else(|| plain_error(&ctx, "no point of the curve"))?.into())
}

/// A private key in PKCS#8, of the number or bytes of a curve.
pub(super) fn private_of<'js>(ctx: Ctx<'js>, name: String, secret: Value<'js>) -> Result<Value<'js>> {
    let kind = Kind::named(&name).ok_or_else(|| no_curve(&ctx, &name))?;
    let key = keys::to_pkcs8(kind, &given(&ctx, &secret)?);
    bytes_to_js(&ctx, key.ok_or_else(|| plain_error(&ctx, "Invalid EC key"))?.into())
}

/// A public key in SPKI, of the point or bytes of a curve.
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
