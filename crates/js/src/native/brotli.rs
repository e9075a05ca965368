//! Brotli for `node:zlib`.

use std::io::{Error, ErrorKind, Result as Written, Write};
use std::mem;
use std::rc::Rc;

use brotli::enc::backward_references::BrotliEncoderMode;
use brotli::enc::{BrotliEncoderParams, StandardAlloc};
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState, CompressorWriter};

use super::zlib::{Made, TRUNCATED};
use crate::engine::Memory;

/// The default window of a stream, as a power of two.
const WINDOW: i32 = 22;
/// The memory of a decoder besides its window.
const DECODER: usize = 1 << 20;

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// Memory charged to the plugin for a codec, until it is dropped.
struct Taken {
    memory: Rc<Memory>,
    bytes: usize,
}

impl Taken {
    fn new(memory: Rc<Memory>, bytes: usize) -> Written<Self> {
        match memory.charge(bytes) {
            true => Ok(Self { memory, bytes }),
            false => Err(Error::new(ErrorKind::OutOfMemory, "the codec needs more memory than is left")),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.memory.discharge(self.bytes);
    }
}

/// A compressor.
pub(super) struct Compress {
    work: Option<Box<CompressorWriter<Made>>>,
    made: Made,
    taken: Option<Taken>,
}

/// Node's parameters, by number.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Parameters {
    pub(super) mode: u32,
    pub(super) quality: u32,
    pub(super) window: u32,
    pub(super) block: u32,
    pub(super) size: u32,
}

impl Compress {
    pub(super) fn new(given: Parameters, memory: Rc<Memory>) -> Written<Self> {
        let number = |value: u32| i32::try_from(value).unwrap_or_default();
        let window = if given.window == 0 { WINDOW } else { number(given.window).clamp(10, 24) };
        // The highest qualities use search trees of the window's size, with four bytes per node.
        let factor = if given.quality >= 10 { 12 } else { 4 };
        let taken = Taken::new(memory, (1 << window) * factor + (4 << 20))?;
        let params = BrotliEncoderParams {
            mode: match given.mode {
                1 => BrotliEncoderMode::BROTLI_MODE_TEXT,
                2 => BrotliEncoderMode::BROTLI_MODE_FONT,
                _ => BrotliEncoderMode::BROTLI_MODE_GENERIC,
            },
            quality: number(given.quality).clamp(0, 11),
            lgwin: window,
            lgblock: number(given.block),
            size_hint: usize::try_from(given.size).unwrap_or_default(),
            ..BrotliEncoderParams::default()
        };
        let work = CompressorWriter::with_params(Made::default(), 16 << 10, &params);
        Ok(Self { work: Some(Box::new(work)), made: Made::default(), taken: Some(taken) })
    }

    pub(super) fn made(&mut self) -> &mut Made {
        match &mut self.work {
            Some(work) => work.get_mut(),
            None => &mut self.made,
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Written<()> {
        self.work.as_mut().map_or(Ok(()), |work| work.write_all(bytes))
    }

    pub(super) fn flush(&mut self) -> Written<()> {
        self.work.as_mut().map_or(Ok(()), |work| work.flush())
    }

    pub(super) fn finish(&mut self) {
        if let Some(work) = self.work.take() {
            self.made = work.into_inner();
            self.taken = None;
        }
    }
}

/// A decompressor.
pub(super) struct Decompress {
    work: Option<Box<State>>,
    pub(super) made: Made,
    taken: Option<Taken>,
    memory: Rc<Memory>,
}

impl Decompress {
    pub(super) fn new(memory: Rc<Memory>) -> Self {
        let allocators = [StandardAlloc::default(), StandardAlloc::default(), StandardAlloc::default()];
        let [bytes, words, codes] = allocators;
        let work = State::new_strict(bytes, words, codes);
        Self { work: Some(Box::new(work)), made: Made::default(), taken: None, memory }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Written<()> {
        if self.taken.is_none() && self.work.is_some() {
            // The largest window of a standard stream.
            self.taken = Some(Taken::new(self.memory.clone(), (1 << 24) + DECODER)?);
        }
        let (mut left, mut at) = (bytes.len(), 0);
        let mut piece = [0; 16 << 10];
        while let Some(work) = &mut self.work {
            let (mut room, mut wrote, mut total) = (piece.len(), 0, 0);
            let result = BrotliDecompressStream(
                &mut left, &mut at, bytes, &mut room, &mut wrote, &mut piece, &mut total, work,
            );
            let failed = work.error_code as i32;
            self.made.write_all(piece.get(..wrote).unwrap_or_default())?;
            match result {
                BrotliResult::NeedsMoreOutput => {}
                BrotliResult::NeedsMoreInput => return Ok(()),
                // Data after the end is ignored.
                BrotliResult::ResultSuccess => {
                    self.work = None;
                    self.taken = None;
                }
                BrotliResult::ResultFailure => {
                    return Err(Error::new(ErrorKind::InvalidData, format!("brotli {failed}")));
                }
            }
        }
        Ok(())
    }

    /// Ends the input; with `whole`, the stream must be complete.
    pub(super) fn finish(&mut self, whole: bool) -> Written<()> {
        let open = mem::take(&mut self.work).is_some();
        self.taken = None;
        if open && whole { Err(Error::new(ErrorKind::UnexpectedEof, TRUNCATED)) } else { Ok(()) }
    }
}
