//! The native part of `node:zlib`. Output is charged to the plugin's memory while it is produced, because a few bytes
//! can decompress to any size.

use std::cell::RefCell;
use std::io::{Error, ErrorKind, Result as Written, Write};
use std::rc::Rc;

use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use flate2::{Compression, Crc, FlushDecompress, Status};
use rquickjs::{Ctx, Object, Result, Value};

use super::brotli::{Compress, Decompress, Parameters};
use super::crypto::given;
use super::natives;
use crate::engine::{Memory, State};
use crate::errors::plain_error;
use crate::values::bytes_to_js;

/// The error when the output exceeds its limit.
const TOO_LARGE: &str = "too large";
/// The error when the input ends too early.
pub(super) const TRUNCATED: &str = "unexpected end of file";

/// Output that was not returned yet.
#[derive(Default)]
pub(super) struct Made {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Made {
    fn write(&mut self, bytes: &[u8]) -> Written<usize> {
        if bytes.len() > self.room.saturating_sub(self.bytes.len()) {
            return Err(Error::new(ErrorKind::OutOfMemory, TOO_LARGE));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Written<()> {
        Ok(())
    }
}

/// A deflate stream with or without a `zlib` header; it detects its own end.
struct Inflater {
    work: flate2::Decompress,
    made: Made,
    sum: Crc,
    over: bool,
}

impl Inflater {
    fn new(header: bool) -> Self {
        Self { work: flate2::Decompress::new(header), made: Made::default(), sum: Crc::new(), over: false }
    }

    /// Decompresses; returns the input after the end of the stream.
    fn write<'a>(&mut self, mut bytes: &'a [u8]) -> Written<&'a [u8]> {
        let mut piece = [0; 16 << 10];
        while !self.over {
            let (before_in, before_out) = (self.work.total_in(), self.work.total_out());
            let status = self.work.decompress(bytes, &mut piece, FlushDecompress::None);
            let status = status.map_err(|error| {
                Error::new(
                    ErrorKind::InvalidData,
                    error.message().unwrap_or("incorrect data check").to_owned(),
                )
            })?;
            let read = usize::try_from(self.work.total_in() - before_in).unwrap_or_default();
            let wrote = usize::try_from(self.work.total_out() - before_out).unwrap_or_default();
            bytes = bytes.get(read..).unwrap_or_default();
            let piece = piece.get(..wrote).unwrap_or_default();
            self.made.write_all(piece)?;
            self.sum.update(piece);
            self.over = status == Status::StreamEnd;
            if read == 0 && wrote == 0 {
                break;
            }
        }
        Ok(bytes)
    }
}

/// A sequence of gzip members.
struct Gunzip {
    inside: Inflater,
    /// The received part of a member's header or trailer.
    outside: Vec<u8>,
    place: Place,
}

#[derive(PartialEq, Eq)]
enum Place {
    Head,
    Data,
    Trailer,
    /// After a member: another one may follow, or padding zeros, which are ignored.
    After,
}

impl Gunzip {
    fn new() -> Self {
        Self { inside: Inflater::new(false), outside: Vec::new(), place: Place::Head }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Written<()> {
        while !bytes.is_empty() {
            match self.place {
                Place::After if bytes.first() == Some(&0) => return Ok(()),
                Place::Head | Place::After => {
                    self.place = Place::Head;
                    let had = self.outside.len();
                    // A header with a longer name is invalid.
                    let more = bytes.get(..bytes.len().min((128 << 10) - had)).unwrap_or_default();
                    self.outside.extend_from_slice(more);
                    match gzip_head(&self.outside)? {
                        Some(head) => {
                            bytes = bytes.get(head.saturating_sub(had)..).unwrap_or_default();
                            let made = std::mem::take(&mut self.inside.made);
                            self.inside = Inflater { made, ..Inflater::new(false) };
                            self.outside.clear();
                            self.place = Place::Data;
                        }
                        None if more.len() < bytes.len() => return Err(invalid("incorrect header check")),
                        None => return Ok(()),
                    }
                }
                Place::Data => {
                    bytes = self.inside.write(bytes)?;
                    if !self.inside.over {
                        return Ok(());
                    }
                    self.place = Place::Trailer;
                }
                Place::Trailer => {
                    let (now, rest) = bytes.split_at(bytes.len().min(8 - self.outside.len()));
                    self.outside.extend_from_slice(now);
                    bytes = rest;
                    let Ok(trailer) = <[u8; 8]>::try_from(self.outside.as_slice()) else { return Ok(()) };
                    let sums = [self.inside.sum.sum().to_le_bytes(), self.inside.sum.amount().to_le_bytes()];
                    if trailer != *sums.as_flattened() {
                        return Err(invalid("incorrect data check"));
                    }
                    self.outside.clear();
                    self.place = Place::After;
                }
            }
        }
        Ok(())
    }
}

/// Returns the length of a member's header, once it is complete.
fn gzip_head(head: &[u8]) -> Written<Option<usize>> {
    if head.iter().zip([0x1F, 0x8B]).any(|(byte, magic)| *byte != magic) {
        return Err(invalid("incorrect header check"));
    }
    let (Some(method), Some(flags)) = (head.get(2), head.get(3)) else { return Ok(None) };
    if *method != 8 {
        return Err(invalid("unknown compression method"));
    }
    let mut end = 10;
    if flags & 4 != 0 {
        let Some([low, high]) = head.get(10..12) else { return Ok(None) };
        end += 2 + usize::from(u16::from_le_bytes([*low, *high]));
    }
    // A name and a comment end with a zero.
    for flag in [8, 16] {
        if flags & flag != 0 {
            let Some(text) = head.get(end..).and_then(|rest| rest.iter().position(|byte| *byte == 0)) else {
                return Ok(None);
            };
            end += text + 1;
        }
    }
    if flags & 2 != 0 {
        end += 2;
    }
    Ok((end <= head.len()).then_some(end))
}

fn invalid(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

enum Codec {
    Gzip(GzEncoder<Made>),
    Deflate(ZlibEncoder<Made>),
    DeflateRaw(DeflateEncoder<Made>),
    Gunzip(Gunzip),
    Inflate(Inflater),
    BrotliCompress(Compress),
    BrotliDecompress(Decompress),
}

impl Codec {
    fn new(kind: &str, options: &[u32], memory: Rc<Memory>) -> Written<Option<Self>> {
        let made = Made::default();
        let option = |at: usize| options.get(at).copied().unwrap_or_default();
        let level = Compression::new(option(0).min(9));
        Ok(Some(match kind {
            "gzip" => Self::Gzip(GzEncoder::new(made, level)),
            "deflate" => Self::Deflate(ZlibEncoder::new(made, level)),
            "deflateRaw" => Self::DeflateRaw(DeflateEncoder::new(made, level)),
            "gunzip" => Self::Gunzip(Gunzip::new()),
            "inflate" => Self::Inflate(Inflater::new(true)),
            "inflateRaw" => Self::Inflate(Inflater::new(false)),
            "brotliCompress" => {
                let [mode, quality, window, block, size] = [0, 1, 2, 3, 5].map(option);
                Self::BrotliCompress(Compress::new(
                    Parameters { mode, quality, window, block, size },
                    memory,
                )?)
            }
            "brotliDecompress" => Self::BrotliDecompress(Decompress::new(memory)),
            _ => return Ok(None),
        }))
    }

    fn made(&mut self) -> &mut Made {
        match self {
            Self::Gzip(codec) => codec.get_mut(),
            Self::Deflate(codec) => codec.get_mut(),
            Self::DeflateRaw(codec) => codec.get_mut(),
            Self::Gunzip(codec) => &mut codec.inside.made,
            Self::Inflate(codec) => &mut codec.made,
            Self::BrotliCompress(codec) => codec.made(),
            Self::BrotliDecompress(codec) => &mut codec.made,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Written<()> {
        match self {
            Self::Gzip(codec) => codec.write_all(bytes),
            Self::Deflate(codec) => codec.write_all(bytes),
            Self::DeflateRaw(codec) => codec.write_all(bytes),
            Self::Gunzip(codec) => codec.write(bytes),
            // Data after the end is ignored.
            Self::Inflate(codec) => codec.write(bytes).map(drop),
            Self::BrotliCompress(codec) => codec.write(bytes),
            Self::BrotliDecompress(codec) => codec.write(bytes),
        }
    }

    fn flush(&mut self) -> Written<()> {
        match self {
            Self::Gzip(codec) => codec.flush(),
            Self::Deflate(codec) => codec.flush(),
            Self::DeflateRaw(codec) => codec.flush(),
            Self::BrotliCompress(codec) => codec.flush(),
            Self::Gunzip(_) | Self::Inflate(_) | Self::BrotliDecompress(_) => Ok(()),
        }
    }

    /// Ends the input; with `whole`, the stream must be complete.
    fn finish(&mut self, whole: bool) -> Written<()> {
        match self {
            Self::Gzip(codec) => codec.try_finish(),
            Self::Deflate(codec) => codec.try_finish(),
            Self::DeflateRaw(codec) => codec.try_finish(),
            Self::Gunzip(codec) if whole && codec.place != Place::After => truncated(),
            Self::Inflate(codec) if whole && !codec.over => truncated(),
            Self::Gunzip(_) | Self::Inflate(_) => Ok(()),
            Self::BrotliCompress(codec) => {
                codec.finish();
                Ok(())
            }
            Self::BrotliDecompress(codec) => codec.finish(whole),
        }
    }
}

fn truncated() -> Written<()> {
    Err(Error::new(ErrorKind::UnexpectedEof, TRUNCATED))
}

/// Returns the native functions for `node:zlib`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx; "codec": codec }
}

/// Creates a codec from a level, or from brotli's parameters by number: `write(bytes, room)`, `flush(room)` and
/// `finish(whole, room)` return the output, which is at most `room` bytes.
fn codec<'js>(ctx: Ctx<'js>, kind: String, options: Vec<u32>) -> Result<Object<'js>> {
    let made = Codec::new(&kind, &options, State::of(&ctx)?.watch.memory());
    let made = made.map_err(|error| plain_error(&ctx, error))?;
    let made = made.ok_or_else(|| plain_error(&ctx, format_args!("there is no codec {kind}")))?;
    let codec = Rc::new(RefCell::new(made));
    let (flushed, finished) = (codec.clone(), codec.clone());
    natives! { ctx;
        "write": move |ctx: Ctx<'js>, data: Value<'js>, room: f64| {
            let data = given(&ctx, &data)?;
            work(&ctx, &codec, room, |codec| codec.write(&data))
        },
        "flush": move |ctx: Ctx<'js>, room: f64| work(&ctx, &flushed, room, Codec::flush),
        "finish": move |ctx: Ctx<'js>, whole: bool, room: f64| {
            work(&ctx, &finished, room, |codec| codec.finish(whole))
        },
    }
}

fn work<'js>(
    ctx: &Ctx<'js>,
    codec: &RefCell<Codec>,
    room: f64,
    run: impl FnOnce(&mut Codec) -> Written<()>,
) -> Result<Value<'js>> {
    let state = State::of(ctx)?;
    let free = state.watch.memory_left();
    // A limit above the available memory is reduced to it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let room = (room as usize).min(free);
    let mut codec = codec.borrow_mut();
    codec.made().room = room;
    let ran = run(&mut codec);
    let bytes = std::mem::take(&mut codec.made().bytes);
    drop(codec);
    match ran {
        Ok(()) => bytes_to_js(ctx, bytes.into()),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(plain_error(ctx, TRUNCATED)),
        Err(error) => Err(plain_error(ctx, error)),
    }
}
