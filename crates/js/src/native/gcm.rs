//! Streaming AES-GCM.

use std::cell::RefCell;
use std::rc::Rc;

use aes::{Aes128, Aes192, Aes256};
use cipher::{KeyIvInit, StreamCipher};
use ghash::GHash;
use ghash::universal_hash::{KeyInit, UniversalHash};
use rquickjs::{Ctx, Object, Result, Value};

use super::crypto::given;
use super::natives;
use crate::errors::plain_error;
use crate::values::bytes_to_js;

const BLOCK: usize = 16;

/// Encrypts or decrypts bytes in place.
type Work = Box<dyn FnMut(&mut [u8])>;

struct Gcm {
    work: Work,
    hash: GHash,
    /// The mask of the tag.
    mask: [u8; BLOCK],
    seals: bool,
    /// Encrypted bytes that do not fill a block yet.
    rest: Vec<u8>,
    beside: u64,
    sealed: u64,
}

/// Returns the key stream that starts at a counter.
fn stream(key: &[u8], counter: &[u8; BLOCK]) -> Option<Work> {
    macro_rules! of {
        ($aes:ty) => {{
            let mut stream = ctr::Ctr32BE::<$aes>::new_from_slices(key, counter).ok()?;
            Box::new(move |bytes: &mut [u8]| stream.apply_keystream(bytes)) as Work
        }};
    }
    Some(match key.len() {
        16 => of!(Aes128),
        24 => of!(Aes192),
        32 => of!(Aes256),
        _ => return None,
    })
}

/// Returns the block with both lengths, in bits.
fn lengths(beside: u64, sealed: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(&(beside * 8).to_be_bytes());
    block[8..].copy_from_slice(&(sealed * 8).to_be_bytes());
    block
}

impl Gcm {
    fn new(key: &[u8], iv: &[u8], seals: bool) -> Option<Self> {
        let mut secret = [0; BLOCK];
        stream(key, &[0; BLOCK])?(&mut secret);
        let hash = GHash::new_from_slice(&secret).ok()?;
        let mut first = [0; BLOCK];
        if iv.len() == 12 {
            first[..12].copy_from_slice(iv);
            first[15] = 1;
        } else {
            let mut hash = hash.clone();
            hash.update_padded(iv);
            hash.update_padded(&lengths(0, iv.len() as u64));
            first.copy_from_slice(&hash.finalize());
        }
        let mut work = stream(key, &first)?;
        // The first block of the stream masks the tag, the following ones the data.
        let mut mask = [0; BLOCK];
        work(&mut mask);
        Some(Self { work, hash, mask, seals, rest: Vec::new(), beside: 0, sealed: 0 })
    }

    fn add(&mut self, bytes: &[u8]) {
        self.sealed += bytes.len() as u64;
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() - self.rest.len() % BLOCK;
        let rest = self.rest.split_off(whole);
        let blocks = std::mem::replace(&mut self.rest, rest);
        self.hash.update_padded(&blocks);
    }

    fn update(&mut self, data: &[u8]) -> Vec<u8> {
        let mut done = data.to_vec();
        if !self.seals {
            self.add(data);
        }
        (self.work)(&mut done);
        if self.seals {
            self.add(&done);
        }
        done
    }

    fn tag(&mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.rest);
        self.hash.update_padded(&rest);
        self.hash.update_padded(&lengths(self.beside, self.sealed));
        self.hash.clone().finalize().iter().zip(self.mask).map(|(byte, mask)| byte ^ mask).collect()
    }
}

/// Creates a cipher: `beside(bytes)` once before `update(bytes)`, and `tag()` at the end.
pub(super) fn gcm<'js>(ctx: Ctx<'js>, key: Value<'js>, iv: Value<'js>, seals: bool) -> Result<Object<'js>> {
    let made = Gcm::new(&given(&ctx, &key)?, &given(&ctx, &iv)?, seals);
    let made = made.ok_or_else(|| plain_error(&ctx, "AES-GCM cannot be used with this key"))?;
    let gcm = Rc::new(RefCell::new(made));
    let (beside, ended) = (gcm.clone(), gcm.clone());
    natives! { ctx;
        "beside": move |ctx: Ctx<'js>, data: Value<'js>| {
            let data = given(&ctx, &data)?;
            let mut gcm = beside.borrow_mut();
            gcm.beside = data.len() as u64;
            gcm.hash.update_padded(&data);
            Ok::<_, rquickjs::Error>(())
        },
        "update": move |ctx: Ctx<'js>, data: Value<'js>| {
            let done = gcm.borrow_mut().update(&given(&ctx, &data)?);
            bytes_to_js(&ctx, done.into())
        },
        "tag": move |ctx: Ctx<'js>| bytes_to_js(&ctx, ended.borrow_mut().tag().into()),
    }
}
