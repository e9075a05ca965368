//! Decoding of text that arrives in pieces.

/// Decodes UTF-8 in pieces. A character can continue in the next piece; invalid bytes become `U+FFFD`.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The bytes of an incomplete character, at most three.
    begun: Vec<u8>,
}

impl Decoder {
    /// Decodes more bytes.
    pub fn read(&mut self, bytes: &[u8]) -> String {
        if self.begun.is_empty() {
            return self.whole(bytes);
        }
        let joined = [&std::mem::take(&mut self.begun), bytes].concat();
        self.whole(&joined)
    }

    /// Returns the incomplete rest.
    pub fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned()
    }

    fn whole(&mut self, bytes: &[u8]) -> String {
        let (complete, begun) = bytes.split_at(bytes.len() - begun_length(bytes));
        self.begun = begun.to_vec();
        String::from_utf8_lossy(complete).into_owned()
    }
}

/// Returns how many bytes at the end belong to an incomplete character.
fn begun_length(bytes: &[u8]) -> usize {
    let Some(last) = bytes.utf8_chunks().last() else { return 0 };
    let invalid = last.invalid();
    // A sequence at the end that more bytes can complete.
    let open = match std::str::from_utf8(invalid) {
        Err(why) => why.error_len().is_none(),
        Ok(_) => false,
    };
    if open { invalid.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut decoder = Decoder::default();
        let mut text: String = pieces.into_iter().map(|piece| decoder.read(piece)).collect();
        text.push_str(&decoder.rest());
        text
    }

    #[test]
    fn a_character_may_be_split_at_every_byte() {
        let whole = "a\u{1b}]133;A\u{7}é€😀\r\n".as_bytes();
        for at in 0..=whole.len() {
            let (before, after) = whole.split_at(at);
            assert_eq!(in_pieces([before, after]).as_bytes(), whole, "split at {at}");
        }
        assert_eq!(in_pieces(whole.chunks(1)).as_bytes(), whole);
    }

    #[test]
    fn text_is_not_held_back() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.read("aé".as_bytes()), "aé");
        assert_eq!(decoder.read(&[b'b', 0xc3]), "b");
        assert_eq!(decoder.read(&[0xa9]), "é");
        assert_eq!(decoder.read(&[0xff, b'c']), "\u{fffd}c");
        assert_eq!(decoder.rest(), "");
    }

    proptest! {
        #[test]
        fn any_bytes_are_the_same_however_they_are_split(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0x80..=0xbf_u8, 0xc2..=0xf4_u8], 0..200),
            sizes in prop::collection::vec(1..9_usize, 1..60),
        ) {
            let mut pieces = Vec::new();
            let mut rest = bytes.as_slice();
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, more) = rest.split_at((*size).min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            prop_assert_eq!(in_pieces(pieces), String::from_utf8_lossy(&bytes));
        }
    }
}
