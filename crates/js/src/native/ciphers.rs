//! AES in unauthenticated modes, for interoperability with existing data.

use std::cell::RefCell;
use std::rc::Rc;

use aes::{Aes128, Aes192, Aes256};
use cipher::{Array, BlockModeDecrypt, BlockModeEncrypt, KeyIvInit, StreamCipher};
use rquickjs::{Ctx, Object, Result, Value};

use super::crypto::given;
use super::natives;
use crate::errors::plain_error;
use crate::values::bytes_to_js;

const BLOCK: usize = 16;

/// Encrypts or decrypts bytes in place.
type Work = Box<dyn FnMut(&mut [u8])>;

/// A streaming encryption or decryption.
struct Cipher {
    work: Work,
    /// Whether it works on whole blocks, with padding if `pads` is set.
    blocks: bool,
    seals: bool,
    pads: bool,
    rest: Vec<u8>,
}

/// Creates a cipher. `name` is `aes-…-cbc` or `aes-…-ctr`; the key and the iv must have the matching length.
pub(super) fn cipher<'js>(
    ctx: Ctx<'js>,
    name: String,
    key: Value<'js>,
    iv: Value<'js>,
    seals: bool,
) -> Result<Object<'js>> {
    let (key, iv) = (given(&ctx, &key)?, given(&ctx, &iv)?);
    let work = work(&name, &key, &iv, seals)
        .ok_or_else(|| plain_error(&ctx, format_args!("{name} cannot be used with this key and iv")))?;
    let cipher = Cipher { work, blocks: name.ends_with("cbc"), seals, pads: true, rest: Vec::new() };
    let cipher = Rc::new(RefCell::new(cipher));
    let (padded, ended) = (cipher.clone(), cipher.clone());
    natives! { ctx;
        "update": move |ctx: Ctx<'js>, data: Value<'js>| {
            let done = cipher.borrow_mut().update(&given(&ctx, &data)?);
            bytes_to_js(&ctx, done.into())
        },
        "pad": move |pads: bool| padded.borrow_mut().pads = pads,
        "final": move |ctx: Ctx<'js>| {
            let done = ended.borrow_mut().finish().map_err(|why| plain_error(&ctx, why))?;
            bytes_to_js(&ctx, done.into())
        },
    }
}

impl Cipher {
    fn update(&mut self, data: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(data);
        let mut kept = if self.blocks { self.rest.len() % BLOCK } else { 0 };
        if self.blocks && self.pads && !self.seals && kept == 0 {
            // It may be the last block, with padding.
            kept = self.rest.len().min(BLOCK);
        }
        let rest = self.rest.split_off(self.rest.len() - kept);
        let mut done = std::mem::replace(&mut self.rest, rest);
        (self.work)(&mut done);
        done
    }

    fn finish(&mut self) -> std::result::Result<Vec<u8>, &'static str> {
        let mut last = std::mem::take(&mut self.rest);
        if self.blocks && self.pads && self.seals {
            let fill = BLOCK - last.len() % BLOCK;
            last.resize(last.len() + fill, u8::try_from(fill).unwrap_or_default());
        }
        if !last.len().is_multiple_of(BLOCK) || (self.blocks && self.pads && last.is_empty()) {
            return Err("wrong final block length");
        }
        (self.work)(&mut last);
        if self.blocks && self.pads && !self.seals {
            let fill = last.last().copied().map_or(0, usize::from);
            let start = last.len().checked_sub(fill).filter(|_| (1..=BLOCK).contains(&fill));
            let start = start.filter(|start| last[*start..].iter().all(|byte| usize::from(*byte) == fill));
            last.truncate(start.ok_or("bad decrypt")?);
        }
        Ok(last)
    }
}

fn work(name: &str, key: &[u8], iv: &[u8], seals: bool) -> Option<Work> {
    macro_rules! of {
        ($aes:ty, $mode:literal) => {
            match ($mode, seals) {
                ("ctr", _) => {
                    let mut stream = ctr::Ctr128BE::<$aes>::new_from_slices(key, iv).ok()?;
                    Box::new(move |bytes: &mut [u8]| stream.apply_keystream(bytes)) as Work
                }
                (_, true) => {
                    let mut mode = cbc::Encryptor::<$aes>::new_from_slices(key, iv).ok()?;
                    Box::new(move |bytes: &mut [u8]| {
                        mode.encrypt_blocks(Array::slice_as_chunks_mut(bytes).0);
                    })
                }
                _ => {
                    let mut mode = cbc::Decryptor::<$aes>::new_from_slices(key, iv).ok()?;
                    Box::new(move |bytes: &mut [u8]| {
                        mode.decrypt_blocks(Array::slice_as_chunks_mut(bytes).0);
                    })
                }
            }
        };
    }
    Some(match name {
        "aes-128-cbc" => of!(Aes128, "cbc"),
        "aes-192-cbc" => of!(Aes192, "cbc"),
        "aes-256-cbc" => of!(Aes256, "cbc"),
        "aes-128-ctr" => of!(Aes128, "ctr"),
        "aes-192-ctr" => of!(Aes192, "ctr"),
        "aes-256-ctr" => of!(Aes256, "ctr"),
        _ => return None,
    })
}
