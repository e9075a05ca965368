//! Digests, keys and random numbers: the native part of `node:crypto` and `crypto.subtle`.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use md5::Digest as _;
use ring::rand::SecureRandom;
use ring::{aead, digest, hkdf, hmac, pbkdf2};
use rquickjs::{Ctx, Object, Promise, Result, Value};
use subtle::ConstantTimeEq;

use super::natives;
use crate::errors::{plain_error, type_error};
use crate::values::{bytes_of, bytes_to_js};

/// The message for an invalid AES-GCM key.
const AES_KEY: &str = "An AES-GCM key must have 128 or 256 bits here";

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let native: Result<Object<'js>> = natives! { ctx;
        "hash": |ctx: Ctx<'js>, name: String| hasher(&ctx, Hasher::digest(&ctx, &name)?),
        "hmac": |ctx: Ctx<'js>, name: String, key: Value<'js>| hasher(&ctx, Hasher::hmac(&ctx, &name, &given(&ctx, &key)?)?),
        "random": random,
        "equal": equal,
        "pbkdf2": |ctx: Ctx<'js>, name: String, password: Value<'js>, salt: Value<'js>, rounds: u32, length: usize| {
            bytes_to_js(&ctx, Stretch::new(&ctx, &name, &password, &salt, rounds, length)?.run().into())
        },
        "pbkdf2Later": |ctx: Ctx<'js>, name: String, password: Value<'js>, salt: Value<'js>, rounds: u32, length: usize| {
            let stretch = Stretch::new(&ctx, &name, &password, &salt, rounds, length)?;
            let inside = ctx.clone();
            Promise::wrap_future(&ctx, async move {
                let done = tokio::task::spawn_blocking(move || stretch.run()).await;
                bytes_to_js(&inside, done.unwrap_or_default().into())
            })
        },
        "hkdf": derive,
        "seal": |ctx: Ctx<'js>, key: Value<'js>, iv: Value<'js>, data: Value<'js>, beside: Value<'js>| {
            let mut data = given(&ctx, &data)?.to_vec();
            let (key, nonce, beside) = gcm(&ctx, &key, &iv, &beside)?;
            key.seal_in_place_append_tag(nonce, aead::Aad::from(beside), &mut data)
                .map_err(|_| plain_error(&ctx, "the data could not be encrypted"))?;
            bytes_to_js(&ctx, data.into())
        },
        "open": |ctx: Ctx<'js>, key: Value<'js>, iv: Value<'js>, data: Value<'js>, beside: Value<'js>| {
            let mut data = given(&ctx, &data)?.to_vec();
            let (key, nonce, beside) = gcm(&ctx, &key, &iv, &beside)?;
            let open = key.open_in_place(nonce, aead::Aad::from(beside), &mut data)
                .map_err(|_| plain_error(&ctx, "Unsupported state or unable to authenticate data"))?;
            bytes_to_js(&ctx, Bytes::copy_from_slice(open))
        },
        "cipher": super::ciphers::cipher,
        "gcm": super::gcm::gcm,
        "scrypt": super::scrypt::now,
        "scryptLater": super::scrypt::later,
        "generate": super::curves::generate,
        "generateRsa": super::rsa::generate,
        "generateRsaLater": super::rsa::generate_later,
        "sign": super::signatures::sign,
        "verify": super::signatures::verify,
        "privateKey": super::keys::private_key,
        "publicKey": super::keys::public_key,
        "privateOf": super::curves::private_of,
        "publicOf": super::curves::public_of,
        "keyKind": super::keys::key_kind,
        "keyMaterial": super::keys::key_material,
        "rsaNumbers": super::keys::rsa_numbers,
        "rsaEncrypt": super::rsa::encrypt,
        "rsaDecrypt": super::rsa::decrypt,
        "rsaEncryptPrivate": super::rsa::encrypt_private,
        "rsaDecryptPublic": super::rsa::decrypt_public,
        "agree": super::curves::agree,
        "agreePlain": super::curves::agree_plain,
        "point": super::curves::plain_point,
        "convertPoint": super::curves::convert,
        "power": super::primes::power,
        "isPrime": super::primes::prime,
        "isPrimeLater": super::primes::prime_later,
        "newPrime": super::primes::new_prime,
        "newPrimeLater": super::primes::new_prime_later,
    };
    let native = native?;
    native.set("aesKey", AES_KEY)?;
    Ok(native)
}

/// Fills a buffer with cryptographically secure random bytes.
pub(super) fn fill_random(bytes: &mut [u8]) {
    // It only fails if the system has no random source at all; no caller could continue then.
    if ring::rand::SystemRandom::new().fill(bytes).is_err() {
        std::process::abort();
    }
}

pub(super) fn given(ctx: &Ctx<'_>, value: &Value<'_>) -> Result<Bytes> {
    bytes_of(value)
        .ok_or_else(|| type_error(ctx, "this must be an ArrayBuffer, a Buffer, a TypedArray or a DataView"))
}

fn random<'js>(ctx: Ctx<'js>, many: usize) -> Result<Value<'js>> {
    let mut bytes = vec![0; many];
    fill_random(&mut bytes);
    bytes_to_js(&ctx, bytes.into())
}

/// Compares in constant time.
fn equal<'js>(ctx: Ctx<'js>, a: Value<'js>, b: Value<'js>) -> Result<bool> {
    Ok(given(&ctx, &a)?.ct_eq(&given(&ctx, &b)?).into())
}

/// A running digest or HMAC.
#[derive(Clone)]
enum Hasher {
    Digest(digest::Context),
    Md5(md5::Md5),
    Sha224(sha2::Sha224),
    Hmac(hmac::Context),
}

impl Hasher {
    fn digest(ctx: &Ctx<'_>, name: &str) -> Result<Self> {
        let algorithm = match plain(name).as_str() {
            "md5" => return Ok(Self::Md5(md5::Md5::new())),
            "sha224" => return Ok(Self::Sha224(sha2::Sha224::new())),
            "sha1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            "sha256" => &digest::SHA256,
            "sha384" => &digest::SHA384,
            "sha512" => &digest::SHA512,
            "sha512256" => &digest::SHA512_256,
            _ => return Err(unknown(ctx, name)),
        };
        Ok(Self::Digest(digest::Context::new(algorithm)))
    }

    fn hmac(ctx: &Ctx<'_>, name: &str, key: &[u8]) -> Result<Self> {
        let algorithm = match plain(name).as_str() {
            "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            "sha256" => hmac::HMAC_SHA256,
            "sha384" => hmac::HMAC_SHA384,
            "sha512" => hmac::HMAC_SHA512,
            _ => return Err(unknown(ctx, name)),
        };
        Ok(Self::Hmac(hmac::Context::with_key(&hmac::Key::new(algorithm, key))))
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Digest(context) => context.update(bytes),
            Self::Md5(context) => context.update(bytes),
            Self::Sha224(context) => context.update(bytes),
            Self::Hmac(context) => context.update(bytes),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Digest(context) => context.finish().as_ref().to_vec(),
            Self::Md5(context) => context.finalize().to_vec(),
            Self::Sha224(context) => context.finalize().to_vec(),
            Self::Hmac(context) => context.sign().as_ref().to_vec(),
        }
    }
}

/// Returns the digest of data.
pub(super) fn digest(ctx: &Ctx<'_>, name: &str, data: &[u8]) -> Result<Vec<u8>> {
    let mut hasher = Hasher::digest(ctx, name)?;
    hasher.update(data);
    Ok(hasher.finish())
}

/// Normalizes a digest's name: `RSA-SHA256`, `sha-256` and `SHA256` are the same.
pub(super) fn plain(name: &str) -> String {
    let name: String = name.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    name.strip_prefix("rsa").map_or(name.clone(), str::to_owned)
}

fn unknown(ctx: &Ctx<'_>, name: &str) -> rquickjs::Error {
    plain_error(ctx, format_args!("Digest method not supported: {name}"))
}

fn hasher<'js>(ctx: &Ctx<'js>, hasher: Hasher) -> Result<Object<'js>> {
    let state = Rc::new(RefCell::new(Some(hasher)));
    let (updated, finished) = (state.clone(), state.clone());
    natives! { ctx;
        "update": move |ctx: Ctx<'js>, value: Value<'js>| {
            let bytes = given(&ctx, &value)?;
            match &mut *updated.borrow_mut() {
                Some(hasher) => {
                    hasher.update(&bytes);
                    Ok(())
                }
                None => Err(plain_error(&ctx, "Digest already called")),
            }
        },
        "digest": move |ctx: Ctx<'js>| {
            let hasher = finished.borrow_mut().take();
            let hasher = hasher.ok_or_else(|| plain_error(&ctx, "Digest already called"))?;
            bytes_to_js(&ctx, hasher.finish().into())
        },
        "copy": move |ctx: Ctx<'js>| copy(&ctx, &state),
    }
}

fn copy<'js>(ctx: &Ctx<'js>, state: &RefCell<Option<Hasher>>) -> Result<Object<'js>> {
    let copied = state.borrow().clone();
    hasher(ctx, copied.ok_or_else(|| plain_error(ctx, "Digest already called"))?)
}

/// The parameters of a PBKDF2 derivation.
struct Stretch {
    algorithm: pbkdf2::Algorithm,
    password: Bytes,
    salt: Bytes,
    rounds: NonZeroU32,
    length: usize,
}

impl Stretch {
    fn new(
        ctx: &Ctx<'_>,
        name: &str,
        password: &Value<'_>,
        salt: &Value<'_>,
        rounds: u32,
        length: usize,
    ) -> Result<Self> {
        let algorithm = match plain(name).as_str() {
            "sha1" => pbkdf2::PBKDF2_HMAC_SHA1,
            "sha256" => pbkdf2::PBKDF2_HMAC_SHA256,
            "sha384" => pbkdf2::PBKDF2_HMAC_SHA384,
            "sha512" => pbkdf2::PBKDF2_HMAC_SHA512,
            _ => return Err(unknown(ctx, name)),
        };
        let rounds =
            NonZeroU32::new(rounds).ok_or_else(|| type_error(ctx, "iterations must be at least 1"))?;
        Ok(Self { algorithm, password: given(ctx, password)?, salt: given(ctx, salt)?, rounds, length })
    }

    fn run(&self) -> Vec<u8> {
        let mut out = vec![0; self.length];
        pbkdf2::derive(self.algorithm, self.rounds, &self.salt, &self.password, &mut out);
        out
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive<'js>(
    ctx: Ctx<'js>,
    name: String,
    key: Value<'js>,
    salt: Value<'js>,
    info: Value<'js>,
    length: usize,
) -> Result<Value<'js>> {
    let algorithm = match plain(&name).as_str() {
        "sha1" => hkdf::HKDF_SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => hkdf::HKDF_SHA256,
        "sha384" => hkdf::HKDF_SHA384,
        "sha512" => hkdf::HKDF_SHA512,
        _ => return Err(unknown(&ctx, &name)),
    };
    let (key, salt, info) = (given(&ctx, &key)?, given(&ctx, &salt)?, given(&ctx, &info)?);
    let mut out = vec![0; length];
    hkdf::Salt::new(algorithm, &salt)
        .extract(&key)
        .expand(&[&info], Length(length))
        .and_then(|derived| derived.fill(&mut out))
        .map_err(|_| plain_error(&ctx, "Invalid key length"))?;
    bytes_to_js(&ctx, out.into())
}

fn gcm(
    ctx: &Ctx<'_>,
    key: &Value<'_>,
    iv: &Value<'_>,
    beside: &Value<'_>,
) -> Result<(aead::LessSafeKey, aead::Nonce, Bytes)> {
    let key = given(ctx, key)?;
    let algorithm = match key.len() {
        16 => &aead::AES_128_GCM,
        32 => &aead::AES_256_GCM,
        _ => return Err(type_error(ctx, AES_KEY)),
    };
    let key = aead::UnboundKey::new(algorithm, &key).map_err(|_| type_error(ctx, "Invalid key length"))?;
    let nonce = aead::Nonce::try_assume_unique_for_key(&given(ctx, iv)?)
        .map_err(|_| type_error(ctx, "an AES-GCM iv must have 12 bytes here"))?;
    Ok((aead::LessSafeKey::new(key), nonce, bytes_of(beside).unwrap_or_default()))
}
