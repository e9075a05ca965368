//! Parses WebSocket frames of a server from a stream of bytes.

use super::super::failure::{Failure, Result};

/// The opcode of a text frame.
pub const TEXT: u8 = 1;
/// The opcode of a closing frame.
pub const CLOSE: u8 = 8;

/// A complete frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The kind of the frame.
    pub opcode: u8,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Parses the first frame; returns it with its length in bytes, or `None` if it is incomplete.
///
/// # Errors
/// A frame that these servers do not send: fragmented, compressed or masked.
pub fn take(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0xf0 != 0x80 || second & 0x80 != 0 {
        return Err(Failure::new(format!(
            "a frame begins {first:#04x} {second:#04x}, which no server sends here"
        )));
    }
    let (length, head) = match second & 0x7f {
        126 => match rest {
            [a, b, ..] => (u64::from(u16::from_be_bytes([*a, *b])), 4),
            _ => return Ok(None),
        },
        127 => match rest.first_chunk::<8>() {
            Some(length) => (u64::from_be_bytes(*length), 10),
            None => return Ok(None),
        },
        small => (u64::from(small), 2),
    };
    let length = usize::try_from(length).map_err(|_| Failure::new("a frame is larger than this machine"))?;
    let Some(payload) = bytes.get(head..).and_then(|rest| rest.get(..length)) else { return Ok(None) };
    Ok(Some((Frame { opcode: first & 0x0f, payload }, head + length)))
}

/// Encodes a text frame of a client. The mask is all zeros, so masking costs neither side anything.
pub fn text(payload: &str) -> Vec<u8> {
    let length = payload.len();
    let mut frame = vec![0x80 | TEXT];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(small @ 0..126), _) => frame.push(0x80 | small),
        (_, Ok(middle)) => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&middle.to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload.as_bytes());
    frame
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Encodes a text frame as a server sends it.
    pub fn of_server(payload: &str) -> Vec<u8> {
        let mut frame = text(payload);
        frame[1] &= 0x7f;
        let mask = frame.len() - payload.len() - 4;
        frame.drain(mask..mask + 4);
        frame
    }

    #[test]
    fn frames_of_every_length_come_out_as_they_went_in() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
            let payload = "x".repeat(length);
            let bytes = of_server(&payload);
            let (frame, taken) = take(&bytes).unwrap().unwrap();
            assert_eq!(
                (frame.opcode, frame.payload, taken),
                (TEXT, payload.as_bytes(), bytes.len()),
                "{length}"
            );
        }
    }

    #[test]
    fn a_frame_cut_anywhere_is_waited_for() {
        for length in [5, 300, 70_000] {
            let bytes = of_server(&"y".repeat(length));
            for cut in (0..bytes.len()).step_by(1 + length / 50) {
                assert_eq!(take(&bytes[..cut]).unwrap(), None, "{length} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_no_server_here_sends_is_refused() {
        for bytes in [[0x01, 0x01], [0xc1, 0x01], [0x81, 0x81]] {
            assert!(take(&bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(take(&[0x89, 0x00]).unwrap().unwrap().0.opcode, 9);
    }
}
