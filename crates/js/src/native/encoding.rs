//! Text and bytes: the native part of `Buffer`, `TextEncoder` and `TextDecoder`.

use std::cell::RefCell;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use encoding_rs::{CoderResult, DecoderResult, Encoding};
use rquickjs::{Array, Ctx, Function, IntoJs, Object, Result, String as JsString, Value};

use super::natives;
use crate::values::{bytes_of, bytes_to_js, text};

/// Node accepts both alphabets, optional padding, and trailing bits.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const BASE64URL: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT.with_encode_padding(false));

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx;
        "encode": encode,
        "decode": decode,
        "decodeUtf8": decode_utf8,
        "decoder": decoder,
        "byteLength": |value: Value<'js>| text(&value).map_or(0, |text| text.len()),
    }
}

/// Encodes text with one of `Buffer`'s encodings.
fn encode<'js>(ctx: Ctx<'js>, value: Value<'js>, encoding: String) -> Result<Value<'js>> {
    let bytes = match encoding.as_str() {
        "latin1" => units(&ctx, &value)?.into_iter().map(|unit| unit.to_le_bytes()[0]).collect(),
        "utf16le" => units(&ctx, &value)?.into_iter().flat_map(u16::to_le_bytes).collect(),
        _ => {
            let text = text(&value).unwrap_or_default();
            match encoding.as_str() {
                "hex" => from_hex(&text),
                "base64" | "base64url" => from_base64(&text),
                _ => text.into_bytes(),
            }
        }
    };
    bytes_to_js(&ctx, bytes.into())
}

/// Returns the UTF-16 code units of a string, including lone surrogates.
fn units<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> Result<Vec<u16>> {
    match value.as_string().map(JsString::to_string) {
        Some(Ok(text)) => Ok(text.encode_utf16().collect()),
        _ => {
            let split: rquickjs::Function =
                ctx.eval("(text) => Array.from({ length: text.length }, (_, at) => text.charCodeAt(at))")?;
            split.call((value.clone(),))
        }
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.as_bytes().chunks_exact(2).map_while(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

fn from_base64(text: &str) -> Vec<u8> {
    // As in Node, a character counts with the low byte of each of its UTF-16 units.
    let mut clean: Vec<u8> = text
        .encode_utf16()
        .map(|unit| unit.to_le_bytes()[0])
        .take_while(|c| *c != b'=')
        .filter_map(|c| match c {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            c if c.is_ascii_alphanumeric() || c == b'+' || c == b'/' => Some(c),
            _ => None,
        })
        .collect();
    // A single remaining character encodes no byte.
    if clean.len() % 4 == 1 {
        clean.pop();
    }
    BASE64.decode(clean).unwrap_or_default()
}

/// Decodes bytes with one of `Buffer`'s encodings.
fn decode<'js>(ctx: Ctx<'js>, value: Value<'js>, encoding: String) -> Result<Value<'js>> {
    let bytes = bytes_of(&value).unwrap_or_default();
    let text = match encoding.as_str() {
        "hex" => hex::encode(&bytes),
        "base64" => BASE64.encode(&bytes),
        "base64url" => BASE64URL.encode(&bytes),
        "latin1" => bytes.iter().map(|byte| *byte as char).collect(),
        "ascii" => bytes.iter().map(|byte| (byte & 0x7F) as char).collect(),
        "utf16le" => {
            let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        _ => String::from_utf8_lossy(&bytes).into_owned(),
    };
    JsString::from_str(ctx, &text).map(JsString::into_value)
}

/// Decodes UTF-8 that may continue in the next chunk. Returns the text, and the number of trailing bytes that belong to
/// an incomplete character. With `fatal`, invalid UTF-8 throws.
fn decode_utf8<'js>(ctx: Ctx<'js>, value: Value<'js>, more: bool, fatal: bool) -> Result<Option<Array<'js>>> {
    let bytes = bytes_of(&value).unwrap_or_default();
    let kept = if more { incomplete(&bytes) } else { 0 };
    let whole = &bytes[..bytes.len() - kept];
    let text = match std::str::from_utf8(whole) {
        Ok(text) => text.to_owned(),
        Err(_) if fatal => return Ok(None),
        Err(_) => String::from_utf8_lossy(whole).into_owned(),
    };
    let answer = Array::new(ctx.clone())?;
    answer.set(0, text.into_js(&ctx)?)?;
    answer.set(1, kept.into_js(&ctx)?)?;
    Ok(Some(answer))
}

/// Returns the name of an encoding by its label, and a function that makes decoders of it: `decode(bytes, more)` returns
/// the text, or nothing if the bytes are invalid and the decoder is `fatal`.
fn decoder<'js>(ctx: Ctx<'js>, label: String) -> Result<Option<Array<'js>>> {
    let found = Encoding::for_label_no_replacement(label.as_bytes());
    let Some(encoding) = found.filter(|encoding| *encoding != encoding_rs::X_USER_DEFINED) else {
        return Ok(None);
    };
    let answer = Array::new(ctx.clone())?;
    answer.set(0, encoding.name().to_ascii_lowercase())?;
    let make = move |ctx: Ctx<'js>, fatal: bool| {
        let decoder = RefCell::new(encoding.new_decoder_without_bom_handling());
        Function::new(ctx, move |value: Value<'js>, more: bool| {
            let bytes = bytes_of(&value).unwrap_or_default();
            continued(&mut decoder.borrow_mut(), &bytes, more, fatal)
        })
    };
    answer.set(1, Function::new(ctx, make)?)?;
    Ok(Some(answer))
}

/// Decodes the next bytes.
fn continued(decoder: &mut encoding_rs::Decoder, bytes: &[u8], more: bool, fatal: bool) -> Option<String> {
    let mut text = String::with_capacity(decoder.max_utf8_buffer_length(bytes.len())?);
    if fatal {
        let (ended, _) = decoder.decode_to_string_without_replacement(bytes, &mut text, !more);
        (ended == DecoderResult::InputEmpty).then_some(text)
    } else {
        let (ended, ..) = decoder.decode_to_string(bytes, &mut text, !more);
        (ended == CoderResult::InputEmpty).then_some(text)
    }
}

/// Returns the number of trailing bytes that start a character without completing it.
fn incomplete(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => 0,
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        Err(_) => {
            // There is an earlier error, so only the last few bytes are checked.
            let tail = bytes.len().saturating_sub(3);
            (tail..bytes.len())
                .find(|at| {
                    std::str::from_utf8(&bytes[*at..])
                        .is_err_and(|error| error.error_len().is_none() && error.valid_up_to() == 0)
                })
                .map_or(0, |at| bytes.len() - at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_takes_what_node_takes() {
        for (text, bytes) in [
            ("aGk=", "hi"),
            ("aGk", "hi"),
            ("a G\nk=", "hi"),
            ("aGkx", "hi1"),
            ("aGkxaA", "hi1h"),
            ("aGkxa", "hi1"),
            ("", ""),
        ] {
            assert_eq!(from_base64(text), bytes.as_bytes(), "{text}");
        }
        assert_eq!(from_base64("-_8="), from_base64("+/8="));
    }

    #[test]
    fn hex_ends_at_the_first_wrong_pair() {
        assert_eq!(from_hex("00ffAb1"), [0, 255, 171]);
        assert_eq!(from_hex("00zz11"), [0]);
    }

    #[test]
    fn an_incomplete_character_is_kept_back() {
        assert_eq!(incomplete("aé".as_bytes()), 0);
        assert_eq!(incomplete(&"aé".as_bytes()[..2]), 1);
        assert_eq!(incomplete(&"😀".as_bytes()[..3]), 3);
        assert_eq!(incomplete(b"\xff\xe2\x82"), 2);
        assert_eq!(incomplete(b"\xff"), 0);
    }
}
