//! RSA operations that ring does not offer: key generation, encryption, small keys, SHA-1 and other salt lengths.

use std::convert::Infallible;

use rquickjs::{Ctx, Promise, Result, Value};
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey};
use rsa::rand_core::{TryCryptoRng, TryRng};
use rsa::traits::PublicKeyParts;
use rsa::{BoxedUint, Oaep, Pkcs1v15Encrypt, Pkcs1v15Sign, PrivateKey, Pss, PublicKey};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};

use super::crypto::{fill_random, given, plain};
use super::keys::{self, Kind, unreadable};
use crate::errors::plain_error;
use crate::values::bytes_to_js;

/// The allowed size of the modulus, in bits.
const BITS: std::ops::RangeInclusive<usize> = 512..=16384;
/// The maximum modulus of a generated key, in bits: larger ones take minutes.
const LARGEST_NEW: u32 = 8192;

/// The system's random numbers.
pub(super) struct Chance;

impl TryRng for Chance {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> std::result::Result<u32, Infallible> {
        let mut bytes = [0; 4];
        fill_random(&mut bytes);
        Ok(u32::from_ne_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> std::result::Result<u64, Infallible> {
        let mut bytes = [0; 8];
        fill_random(&mut bytes);
        Ok(u64::from_ne_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> std::result::Result<(), Infallible> {
        fill_random(bytes);
        Ok(())
    }
}

impl TryCryptoRng for Chance {}

/// Runs code with the type of a digest; returns `None` for an unknown digest.
macro_rules! with_digest {
    ($name:expr, $digest:ident => $body:expr) => {
        match $name {
            "sha1" => with_digest!(@ Sha1, $digest, $body),
            "sha224" => with_digest!(@ Sha224, $digest, $body),
            "sha256" | "" => with_digest!(@ Sha256, $digest, $body),
            "sha384" => with_digest!(@ Sha384, $digest, $body),
            "sha512" => with_digest!(@ Sha512, $digest, $body),
            _ => None,
        }
    };
    (@ $type:ty, $digest:ident, $body:expr) => {{
        type $digest = $type;
        Some($body)
    }};
}

/// The length of the salt of PSS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Salt {
    /// As long as the digest.
    Digest,
    /// As in the signature when verifying; the longest when signing.
    Auto,
    /// The longest.
    Longest,
    Length(usize),
}

impl Salt {
    /// Returns the salt length for Node's constant.
    pub(super) fn of(number: i32) -> Self {
        match number {
            -1 => Self::Digest,
            -3 => Self::Longest,
            _ => usize::try_from(number).map_or(Self::Auto, Self::Length),
        }
    }

    fn longest(modulus: usize, digest: usize) -> usize {
        modulus.div_ceil(8).saturating_sub(digest + 2)
    }
}

fn public(material: &[u8]) -> Option<PublicKey> {
    let numbers = rsa::pkcs1::RsaPublicKey::try_from(material).ok()?;
    let number = |number: rsa::pkcs1::UintRef<'_>| BoxedUint::from_be_slice_vartime(number.as_bytes());
    PublicKey::new_with_size_limits(number(numbers.modulus), number(numbers.public_exponent), BITS).ok()
}

fn bits(key: &impl PublicKeyParts) -> usize {
    key.n().bit_width_vartime() as usize
}

/// Signs a digest; returns `None` if the key and the digest do not match.
pub(super) fn sign(material: &[u8], digest: &str, hashed: &[u8], pss: Option<Salt>) -> Option<Vec<u8>> {
    let key = PrivateKey::from_pkcs1_der(material).ok()?;
    let signed = match pss {
        None => with_digest!(digest, D => key.sign_with_rng(&mut Chance, Pkcs1v15Sign::new::<D>(), hashed)),
        Some(salt) => {
            // The encoded message is one bit shorter than the modulus.
            let longest = Salt::longest(bits(&key) - 1, hashed.len());
            let length = match salt {
                Salt::Digest => hashed.len(),
                Salt::Auto | Salt::Longest => longest,
                Salt::Length(length) => length,
            };
            with_digest!(digest, D => key.sign_with_rng(&mut Chance, Pss::<D>::new_with_salt(length), hashed))
        }
    };
    signed?.ok()
}

/// Verifies the signature of a digest; returns `None` if that is not possible.
pub(super) fn verify(
    material: &[u8],
    digest: &str,
    hashed: &[u8],
    signed: &[u8],
    pss: Option<Salt>,
) -> Option<bool> {
    let key = public(material)?;
    let verified = match pss {
        None => with_digest!(digest, D => key.verify(Pkcs1v15Sign::new::<D>(), hashed, signed)),
        Some(salt) => with_digest!(digest, D => {
            let salt_len = match salt {
                Salt::Digest => Some(hashed.len()),
                Salt::Auto => None,
                Salt::Longest => Some(Salt::longest(bits(&key) - 1, hashed.len())),
                Salt::Length(length) => Some(length),
            };
            key.verify(Pss::<D> { salt_len, ..Pss::new() }, hashed, signed)
        }),
    };
    Some(verified?.is_ok())
}

/// Generates a private key in PKCS#8.
fn generated(bits: u32, exponent: u32) -> std::result::Result<Vec<u8>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("no RSA key could be made: {error}");
    let bits = usize::try_from(bits).map_err(|error| wrong(&error))?;
    let exponent = BoxedUint::from(exponent);
    let key = match bits < PublicKey::MIN_SIZE {
        true => PrivateKey::new_with_exp_unchecked(&mut Chance, bits, exponent),
        false => PrivateKey::new_with_exp(&mut Chance, bits, exponent),
    };
    let pkcs1 = key.map_err(|error| wrong(&error))?.to_pkcs1_der().map_err(|error| wrong(&error))?;
    keys::to_pkcs8(Kind::Rsa, pkcs1.as_bytes()).ok_or_else(|| wrong(&"the key cannot be written"))
}

fn check_bits(ctx: &Ctx<'_>, bits: u32) -> Result<()> {
    match (512..=LARGEST_NEW).contains(&bits) {
        true => Ok(()),
        false => {
            Err(plain_error(ctx, format_args!("RSA keys of 512 to {LARGEST_NEW} bits can be made here")))
        }
    }
}

pub(super) fn generate<'js>(ctx: Ctx<'js>, bits: u32, exponent: u32) -> Result<Value<'js>> {
    check_bits(&ctx, bits)?;
    let key = generated(bits, exponent).map_err(|error| plain_error(&ctx, error))?;
    bytes_to_js(&ctx, key.into())
}

/// Generates a private key on another thread.
pub(super) fn generate_later<'js>(ctx: Ctx<'js>, bits: u32, exponent: u32) -> Result<Promise<'js>> {
    check_bits(&ctx, bits)?;
    let inside = ctx.clone();
    Promise::wrap_future(&ctx, async move {
        let made = tokio::task::spawn_blocking(move || generated(bits, exponent)).await;
        let made = made.unwrap_or_else(|error| Err(error.to_string()));
        bytes_to_js(&inside, made.map_err(|error| plain_error(&inside, error))?.into())
    })
}

/// The padding of data.
enum Padding {
    Pkcs1,
    Oaep { digest: String, label: Vec<u8> },
}

impl Padding {
    fn read<'js>(ctx: &Ctx<'js>, name: &str, digest: &str, label: &Value<'js>) -> Result<Self> {
        if name == "pkcs1" {
            return Ok(Self::Pkcs1);
        }
        let label = if label.is_undefined() { Vec::new() } else { given(ctx, label)?.to_vec() };
        Ok(Self::Oaep { digest: plain(digest), label })
    }
}

/// Encrypts with a public key in SPKI.
pub(super) fn encrypt<'js>(
    ctx: Ctx<'js>,
    key: Value<'js>,
    data: Value<'js>,
    padding: String,
    digest: String,
    label: Value<'js>,
) -> Result<Value<'js>> {
    let (key, data) = (given(&ctx, &key)?, given(&ctx, &data)?);
    let key = keys::public(&key).and_then(|key| public(key.material)).ok_or_else(|| unreadable(&ctx))?;
    let encrypted = match Padding::read(&ctx, &padding, &digest, &label)? {
        Padding::Pkcs1 => Some(key.encrypt(&mut Chance, Pkcs1v15Encrypt, &data)),
        Padding::Oaep { digest, label } => {
            with_digest!(digest.as_str(), D => key.encrypt(&mut Chance, Oaep::<D>::new_with_label(label), &data))
        }
    };
    let encrypted = encrypted.ok_or_else(|| plain_error(&ctx, format_args!("Invalid digest: {digest}")))?;
    let too_large = "error:0200006E:rsa routines::data too large for key size";
    bytes_to_js(&ctx, encrypted.map_err(|_| plain_error(&ctx, too_large))?.into())
}

/// Decrypts with a private key in PKCS#8.
pub(super) fn decrypt<'js>(
    ctx: Ctx<'js>,
    key: Value<'js>,
    data: Value<'js>,
    padding: String,
    digest: String,
    label: Value<'js>,
) -> Result<Value<'js>> {
    let (key, data) = (given(&ctx, &key)?, given(&ctx, &data)?);
    let key = keys::private(&key).filter(|key| key.kind == Kind::Rsa);
    let key = key.and_then(|key| PrivateKey::from_pkcs1_der(key.material).ok());
    let key = key.ok_or_else(|| unreadable(&ctx))?;
    let decrypted = match Padding::read(&ctx, &padding, &digest, &label)? {
        Padding::Pkcs1 => Some(key.decrypt_blinded(&mut Chance, Pkcs1v15Encrypt, &data)),
        Padding::Oaep { digest, label } => with_digest!(digest.as_str(), D => {
            key.decrypt_blinded(&mut Chance, Oaep::<D>::new_with_label(label), &data)
        }),
    };
    let decrypted = decrypted.ok_or_else(|| plain_error(&ctx, format_args!("Invalid digest: {digest}")))?;
    let failed = "error:02000079:rsa routines::oaep decoding error";
    bytes_to_js(&ctx, decrypted.map_err(|_| plain_error(&ctx, failed))?.into())
}

/// Implements `privateEncrypt`: signs the data itself.
pub(super) fn encrypt_private<'js>(ctx: Ctx<'js>, key: Value<'js>, data: Value<'js>) -> Result<Value<'js>> {
    let (key, data) = (given(&ctx, &key)?, given(&ctx, &data)?);
    let key = keys::private(&key).and_then(|key| PrivateKey::from_pkcs1_der(key.material).ok());
    let key = key.ok_or_else(|| unreadable(&ctx))?;
    let made = key.sign_with_rng(&mut Chance, Pkcs1v15Sign::new_unprefixed(), &data);
    let too_large = "error:0200006E:rsa routines::data too large for key size";
    bytes_to_js(&ctx, made.map_err(|_| plain_error(&ctx, too_large))?.into())
}

/// Implements `publicDecrypt`: returns the data of a `privateEncrypt`.
pub(super) fn decrypt_public<'js>(ctx: Ctx<'js>, key: Value<'js>, data: Value<'js>) -> Result<Value<'js>> {
    let (key, data) = (given(&ctx, &key)?, given(&ctx, &data)?);
    let key = keys::public(&key).and_then(|key| public(key.material)).ok_or_else(|| unreadable(&ctx))?;
    let found = recovered(&key, &data);
    let failed = "error:0200006A:rsa routines::block type is not 01";
    bytes_to_js(&ctx, found.ok_or_else(|| plain_error(&ctx, failed))?.into())
}

fn recovered(key: &PublicKey, data: &[u8]) -> Option<Vec<u8>> {
    if data.len() != key.size() {
        return None;
    }
    let number = BoxedUint::from_be_slice(data, key.n_bits_precision()).ok()?;
    let found = rsa::hazmat::rsa_encrypt(key, &number).ok()?.to_be_bytes();
    let padded = found.get(found.len().checked_sub(key.size())?..)?;
    // 0, 1, at least eight times 255, 0, the data.
    let rest = padded.strip_prefix(&[0, 1])?;
    let filler = rest.iter().take_while(|byte| **byte == 0xFF).count();
    (filler >= 8 && rest.get(filler) == Some(&0))
        .then(|| rest.get(filler + 1..).map(<[u8]>::to_vec))
        .flatten()
}
