//! Keys: read from every form that Node reads, and written as PKCS#8 and SPKI.

use ring::signature::{Ed25519KeyPair, KeyPair};
use rquickjs::{Ctx, Error, Result, Value};

use super::crypto::given;
use super::curves;
use super::der::{self, BITS, INTEGER, OCTETS, OID, SEQUENCE};
use crate::errors::plain_error;
use crate::values::bytes_to_js;

/// The algorithm of a key, or its curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Rsa,
    P256,
    P384,
    P521,
    K256,
    Ed25519,
    X25519,
}

const RSA: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01];
const NULL: &[u8] = &[0x05, 0x00];

/// Every kind, with its object identifier and its name in JWKs.
const KINDS: [(Kind, &[u8], &str); 7] = [
    (Kind::Rsa, RSA, "RSA"),
    (Kind::P256, &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07], "P-256"),
    (Kind::P384, &[0x2B, 0x81, 0x04, 0x00, 0x22], "P-384"),
    (Kind::P521, &[0x2B, 0x81, 0x04, 0x00, 0x23], "P-521"),
    (Kind::K256, &[0x2B, 0x81, 0x04, 0x00, 0x0A], "secp256k1"),
    (Kind::Ed25519, &[0x2B, 0x65, 0x70], "Ed25519"),
    (Kind::X25519, &[0x2B, 0x65, 0x6E], "X25519"),
];

impl Kind {
    pub(super) fn named(name: &str) -> Option<Self> {
        KINDS.iter().find(|(.., known)| *known == name).map(|(kind, ..)| *kind)
    }

    fn of_oid(oid: &[u8]) -> Option<Self> {
        KINDS.iter().find(|(_, known, _)| *known == oid).map(|(kind, ..)| *kind)
    }

    fn row(self) -> (Kind, &'static [u8], &'static str) {
        KINDS.into_iter().find(|(kind, ..)| *kind == self).unwrap_or(KINDS[0])
    }

    fn is_curve(self) -> bool {
        matches!(self, Self::P256 | Self::P384 | Self::P521 | Self::K256)
    }

    /// Returns the `AlgorithmIdentifier`.
    fn algorithm(self) -> Vec<u8> {
        let oid = der::write(OID, self.row().1);
        let inside = match self {
            Self::Rsa => [oid, NULL.to_vec()].concat(),
            _ if self.is_curve() => [der::write(OID, EC), oid].concat(),
            _ => oid,
        };
        der::write(SEQUENCE, &inside)
    }
}

/// A parsed key: the PKCS#1 structure for RSA, the scalar or the point for a curve, otherwise the raw bytes.
pub(super) struct Key<'a> {
    pub(super) kind: Kind,
    pub(super) material: &'a [u8],
}

/// Returns the kind from an `AlgorithmIdentifier`.
fn kind_of(algorithm: &[u8]) -> Option<Kind> {
    let (oid, parameters) = der::expect(algorithm, OID)?;
    if oid == EC {
        return Kind::of_oid(der::expect(parameters, OID)?.0).filter(|kind| kind.is_curve());
    }
    Kind::of_oid(oid).filter(|kind| !kind.is_curve())
}

/// Reads a private key in PKCS#8.
pub(super) fn private(pkcs8: &[u8]) -> Option<Key<'_>> {
    let (inside, _) = der::expect(pkcs8, SEQUENCE)?;
    let (_, rest) = der::expect(inside, INTEGER)?;
    let (algorithm, rest) = der::expect(rest, SEQUENCE)?;
    let (inner, _) = der::expect(rest, OCTETS)?;
    let kind = kind_of(algorithm)?;
    let material = match kind {
        Kind::Rsa => inner,
        _ if kind.is_curve() => {
            let (inside, _) = der::expect(inner, SEQUENCE)?;
            let (_, rest) = der::expect(inside, INTEGER)?;
            der::expect(rest, OCTETS)?.0
        }
        _ => der::expect(inner, OCTETS)?.0,
    };
    Some(Key { kind, material })
}

/// Reads a public key in SPKI.
pub(super) fn public(spki: &[u8]) -> Option<Key<'_>> {
    let (inside, _) = der::expect(spki, SEQUENCE)?;
    let (algorithm, rest) = der::expect(inside, SEQUENCE)?;
    let (bits, _) = der::expect(rest, BITS)?;
    Some(Key { kind: kind_of(algorithm)?, material: bits.strip_prefix(&[0])? })
}

/// Encodes a public key in SPKI.
pub(super) fn to_spki(kind: Kind, material: &[u8]) -> Vec<u8> {
    let bits = der::write(BITS, &[&[0], material].concat());
    der::write(SEQUENCE, &[kind.algorithm(), bits].concat())
}

/// Encodes a private key in PKCS#8.
pub(super) fn to_pkcs8(kind: Kind, material: &[u8]) -> Option<Vec<u8>> {
    let inner = match kind {
        Kind::Rsa => material.to_vec(),
        _ if kind.is_curve() => {
            let point = der::write(BITS, &[&[0], curves::point(kind, material, false)?.as_slice()].concat());
            let parts = [der::write(INTEGER, &[1]), der::write(OCTETS, material), der::write(0xA1, &point)];
            der::write(SEQUENCE, &parts.concat())
        }
        _ => der::write(OCTETS, material),
    };
    let parts = [der::write(INTEGER, &[0]), kind.algorithm(), der::write(OCTETS, &inner)];
    Some(der::write(SEQUENCE, &parts.concat()))
}

/// Returns a private key in PKCS#8, from PKCS#8, PKCS#1 or SEC1.
fn normalized(bytes: &[u8]) -> Option<Vec<u8>> {
    if private(bytes).is_some() {
        return Some(bytes.to_vec());
    }
    let members = der::members(der::expect(bytes, SEQUENCE)?.0)?;
    match members.as_slice() {
        // A version and at least eight numbers.
        [(INTEGER, _), (INTEGER, _), ..] if members.len() >= 9 => to_pkcs8(Kind::Rsa, bytes),
        [(INTEGER, [1]), (OCTETS, scalar), rest @ ..] => {
            let (_, parameters) = rest.iter().find(|(tag, _)| *tag == 0xA0)?;
            to_pkcs8(Kind::of_oid(der::expect(parameters, OID)?.0)?, scalar)
        }
        _ => None,
    }
}

/// Returns the public key in SPKI of a private key in PKCS#8.
fn public_of(pkcs8: &[u8]) -> Option<Vec<u8>> {
    let Key { kind, material } = private(pkcs8)?;
    let public = match kind {
        Kind::Rsa => {
            // The two numbers after the version.
            let members = der::members(der::expect(material, SEQUENCE)?.0)?;
            let numbers = [members.get(1)?, members.get(2)?].map(|(tag, number)| der::write(*tag, number));
            der::write(SEQUENCE, &numbers.concat())
        }
        Kind::Ed25519 => Ed25519KeyPair::from_seed_unchecked(material).ok()?.public_key().as_ref().to_vec(),
        Kind::X25519 => curves::x25519_public(material)?.to_vec(),
        _ => curves::point(kind, material, false)?,
    };
    Some(to_spki(kind, &public))
}

/// Returns the public key of a certificate.
fn certified(bytes: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = der::expect(bytes, SEQUENCE)?;
    let (mut rest, _) = der::expect(certificate, SEQUENCE)?;
    if let Some((_, after)) = der::expect(rest, 0xA0) {
        rest = after;
    }
    // Serial number, signature, issuer, validity, subject.
    for _ in 0..5 {
        rest = der::read(rest)?.2;
    }
    let (_, _, after) = der::read(rest)?;
    rest.get(..rest.len() - after.len())
}

/// Returns a public key in SPKI, from SPKI, PKCS#1, a certificate or any private key.
fn normalized_public(bytes: &[u8]) -> Option<Vec<u8>> {
    if public(bytes).is_some() {
        return Some(bytes.to_vec());
    }
    if let Some(spki) = certified(bytes).filter(|spki| public(spki).is_some()) {
        return Some(spki.to_vec());
    }
    let members = der::members(der::expect(bytes, SEQUENCE)?.0)?;
    if let [(INTEGER, _), (INTEGER, _)] = members.as_slice() {
        return Some(to_spki(Kind::Rsa, bytes));
    }
    public_of(&normalized(bytes)?)
}

pub(super) fn unreadable(ctx: &Ctx<'_>) -> Error {
    plain_error(ctx, "error:1E08010C:DECODER routines::unsupported")
}

/// Returns a private key in PKCS#8.
pub(super) fn private_key<'js>(ctx: Ctx<'js>, bytes: Value<'js>) -> Result<Value<'js>> {
    let key = normalized(&given(&ctx, &bytes)?).ok_or_else(|| unreadable(&ctx))?;
    bytes_to_js(&ctx, key.into())
}

/// Returns a public key in SPKI; accepts private keys too.
pub(super) fn public_key<'js>(ctx: Ctx<'js>, bytes: Value<'js>) -> Result<Value<'js>> {
    let key = normalized_public(&given(&ctx, &bytes)?).ok_or_else(|| unreadable(&ctx))?;
    bytes_to_js(&ctx, key.into())
}

/// Returns the kind of a key in PKCS#8 or SPKI: `RSA`, a curve, `Ed25519` or `X25519`.
pub(super) fn key_kind<'js>(ctx: Ctx<'js>, bytes: Value<'js>) -> Result<&'static str> {
    let bytes = given(&ctx, &bytes)?;
    let key = private(&bytes).or_else(|| public(&bytes)).ok_or_else(|| unreadable(&ctx))?;
    Ok(key.kind.row().2)
}

/// Returns the scalar, point or bytes of a key in PKCS#8 or SPKI.
pub(super) fn key_material<'js>(ctx: Ctx<'js>, bytes: Value<'js>) -> Result<Value<'js>> {
    let bytes = given(&ctx, &bytes)?;
    let key = private(&bytes).or_else(|| public(&bytes)).ok_or_else(|| unreadable(&ctx))?;
    bytes_to_js(&ctx, key.material.to_vec().into())
}

/// Returns the numbers of an RSA key without leading zeros: modulus and exponent, then those of a private key.
pub(super) fn rsa_numbers<'js>(ctx: Ctx<'js>, bytes: Value<'js>) -> Result<Vec<Value<'js>>> {
    let bytes = given(&ctx, &bytes)?;
    let key = private(&bytes).or_else(|| public(&bytes));
    let members = key.filter(|key| key.kind == Kind::Rsa).and_then(|key| {
        let members = der::members(der::expect(key.material, SEQUENCE)?.0)?;
        // A private key begins with its version.
        Some(members.into_iter().skip(usize::from(private(&bytes).is_some())).collect::<Vec<_>>())
    });
    let members = members.ok_or_else(|| unreadable(&ctx))?;
    let numbers = members.into_iter().filter(|(tag, _)| *tag == INTEGER).map(|(_, number)| {
        let zeros = number.iter().take_while(|byte| **byte == 0).count().min(number.len().saturating_sub(1));
        bytes_to_js(&ctx, number.get(zeros..).unwrap_or_default().to_vec().into())
    });
    numbers.collect()
}
