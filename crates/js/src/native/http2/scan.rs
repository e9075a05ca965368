//! A scanner of HTTP/2 frames: it reports frames that the `h2` crate does not expose, and the places where another
//! frame can be inserted.

use bytes::{BufMut, Bytes, BytesMut};

/// The size of a frame's header.
const HEAD: usize = 9;
/// The size of a client's preface.
pub(super) const PREFACE: usize = 24;
/// The maximum size of a frame whose content is buffered; a longer one is a connection error.
const LONGEST: usize = 16 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame that is reported to JavaScript.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Settings(Vec<(u16, u32)>),
    /// `inserted` is set if the settings were not those of the `h2` crate.
    SettingsAck {
        inserted: bool,
    },
    Ping(Bytes),
    Pong(Bytes),
    GoAway {
        last: u32,
        code: u32,
        data: Bytes,
    },
    Reset {
        stream: u32,
        code: u32,
    },
    /// The peer ended a stream; `headers` is set if it did so with a HEADERS frame.
    Ended {
        stream: u32,
        headers: bool,
    },
}

/// The scanner of one direction.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// Bytes before the first frame.
    skip: usize,
    head: [u8; HEAD],
    filled: usize,
    left: usize,
    content: BytesMut,
    /// The headers continue in the next frame, so no frame can be inserted.
    continued: bool,
    /// The bytes sent against the connection's window, and the sum of its increments.
    pub(super) data: u64,
    pub(super) opened: u64,
}

impl Scanner {
    pub(super) fn after(skip: usize) -> Self {
        Self { skip, ..Self::default() }
    }

    /// Returns whether a frame can begin at this position.
    pub(super) fn between(&self) -> bool {
        self.skip == 0 && self.filled == 0 && !self.continued
    }

    /// Returns the number of bytes up to the end of the next head or content.
    pub(super) fn ahead(&self) -> usize {
        if self.skip > 0 {
            self.skip
        } else if self.filled < HEAD {
            HEAD - self.filled
        } else {
            self.left
        }
    }

    /// Returns whether the next byte belongs to the head of a frame.
    pub(super) fn is_in_head(&self) -> bool {
        self.skip == 0 && self.filled < HEAD
    }

    /// Returns whether a part of a head was scanned, and not yet the rest.
    pub(super) fn is_head_partial(&self) -> bool {
        self.filled > 0 && self.filled < HEAD
    }

    pub(super) fn scan(&mut self, mut bytes: &[u8], mut found: impl FnMut(Frame)) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        bytes = bytes.get(skipped..).unwrap_or_default();
        while !bytes.is_empty() {
            if self.filled < HEAD {
                let (taken, rest) = bytes.split_at((HEAD - self.filled).min(bytes.len()));
                for (room, byte) in self.head.iter_mut().skip(self.filled).zip(taken) {
                    *room = *byte;
                }
                self.filled += taken.len();
                bytes = rest;
                if self.filled < HEAD {
                    return;
                }
                self.begin();
            }
            let (taken, rest) = bytes.split_at(self.left.min(bytes.len()));
            if self.is_kept() {
                self.content.extend_from_slice(taken);
            }
            self.left -= taken.len();
            bytes = rest;
            if self.left == 0 {
                self.filled = 0;
                if let Some(frame) = self.end() {
                    found(frame);
                }
                self.content.clear();
            }
        }
    }

    fn length(&self) -> usize {
        let [first, second, third, ..] = self.head;
        usize::from(first) << 16 | usize::from(second) << 8 | usize::from(third)
    }

    fn is_kept(&self) -> bool {
        let [_, _, _, kind, ..] = self.head;
        self.length() <= LONGEST && matches!(kind, RST_STREAM | SETTINGS | PING | GOAWAY | WINDOW_UPDATE)
    }

    fn begin(&mut self) {
        self.left = self.length();
        let [_, _, _, kind, flags, ..] = self.head;
        match kind {
            DATA => self.data += self.left as u64,
            HEADERS | PUSH_PROMISE | CONTINUATION => self.continued = flags & END_HEADERS == 0,
            _ => {}
        }
    }

    fn end(&mut self) -> Option<Frame> {
        let [_, _, _, kind, flags, id @ ..] = self.head;
        let stream = u32::from_be_bytes(id) & 0x7fff_ffff;
        let content = &self.content;
        let number = |at: usize| {
            content.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes)
        };
        match kind {
            SETTINGS if flags & ACK != 0 => Some(Frame::SettingsAck { inserted: false }),
            SETTINGS if self.is_kept() => {
                let rows = content.chunks_exact(6).filter_map(|row| match row {
                    [high, low, value @ ..] => {
                        let value = u32::from_be_bytes(value.try_into().ok()?);
                        Some((u16::from_be_bytes([*high, *low]), value))
                    }
                    _ => None,
                });
                Some(Frame::Settings(rows.collect()))
            }
            PING if content.len() == 8 => {
                let content = Bytes::copy_from_slice(content);
                Some(if flags & ACK != 0 { Frame::Pong(content) } else { Frame::Ping(content) })
            }
            GOAWAY => Some(Frame::GoAway {
                last: number(0)? & 0x7fff_ffff,
                code: number(4)?,
                data: Bytes::copy_from_slice(content.get(8..)?),
            }),
            DATA | HEADERS if flags & END_STREAM != 0 => {
                Some(Frame::Ended { stream, headers: kind == HEADERS })
            }
            RST_STREAM => Some(Frame::Reset { stream, code: number(0)? }),
            WINDOW_UPDATE if stream == 0 => {
                self.opened += u64::from(number(0)? & 0x7fff_ffff);
                None
            }
            _ => None,
        }
    }
}

/// Encodes a frame of the connection, outside any stream.
fn frame(kind: u8, content: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD + content.len());
    bytes.put_uint(content.len() as u64, 3);
    bytes.put_u8(kind);
    bytes.put_u8(0);
    bytes.put_u32(0);
    bytes.extend_from_slice(content);
    bytes.freeze()
}

pub(super) fn ping(payload: &[u8]) -> Bytes {
    frame(PING, payload)
}

/// Encodes settings that are packed already.
pub(super) fn settings(packed: &[u8]) -> Bytes {
    frame(SETTINGS, packed)
}

/// Returns whether an encoded frame contains settings.
pub(super) fn is_settings(frame: &[u8]) -> bool {
    frame.get(3) == Some(&SETTINGS)
}

pub(super) fn go_away(code: u32, last: u32, data: &[u8]) -> Bytes {
    let mut content = BytesMut::new();
    content.put_u32(last & 0x7fff_ffff);
    content.put_u32(code);
    content.extend_from_slice(data);
    frame(GOAWAY, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let mut stream = vec![0; PREFACE];
        stream.extend_from_slice(&[0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0]);
        stream.extend_from_slice(&[0, 0, 1, HEADERS, 0, 0, 0, 0, 1, 0x82]);
        stream.extend_from_slice(&[0, 0, 0, CONTINUATION, END_HEADERS, 0, 0, 0, 1]);
        stream.extend_from_slice(&[0, 0, 3, DATA, 1, 0, 0, 0, 1, 1, 2, 3]);
        stream.extend_from_slice(&[0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        stream.extend_from_slice(&ping(b"01234567"));
        stream.extend_from_slice(&go_away(2, 7, b"why"));
        for size in 1..stream.len() {
            let (mut scanner, mut found) = (Scanner::after(PREFACE), Vec::new());
            for part in stream.chunks(size) {
                scanner.scan(part, |frame| found.push(frame));
            }
            assert!(scanner.between());
            assert_eq!((scanner.data, scanner.opened), (3, 9));
            assert_eq!(
                found,
                [
                    Frame::Settings(vec![(4, 0x0001_0000)]),
                    Frame::Ended { stream: 1, headers: false },
                    Frame::Ping(Bytes::from_static(b"01234567")),
                    Frame::GoAway { last: 7, code: 2, data: Bytes::from_static(b"why") },
                ],
                "in parts of {size}"
            );
        }
    }

    #[test]
    fn nothing_goes_between_headers_and_what_continues_them() {
        let mut scanner = Scanner::after(0);
        scanner.scan(&[0, 0, 1, HEADERS, 0, 0, 0, 0, 1, 0x82], |_| ());
        assert!(!scanner.between());
        scanner.scan(&[0, 0, 0, CONTINUATION, END_HEADERS, 0, 0, 0, 1], |_| ());
        assert!(scanner.between());
    }
}
