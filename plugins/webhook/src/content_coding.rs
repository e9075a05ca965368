//! Content codings of bodies: what `Content-Encoding` names is decoded after the sender is authenticated, because a signature
//! covers the bytes as they were sent. Spec: silent; RFC 9110, section 8.4.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use ostler_contract::Bodies;
use ostler_contract::http::{BodyError, HeaderMap, header};

use crate::reply::Refusal;
use crate::route::{off_shared_threads, unread};
use crate::verify::{Unsigned, WRONG};

/// A coding that is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
}

/// The maximum number of codings of a body.
const MOST: usize = 2;
/// The maximum length of the name of a coding in a message.
const LONGEST_NAME: usize = 40;

/// Why a call with a coding is rejected whose signature does not match.
const WRONG_ENCODED: Unsigned = "The sender's signature does not match the endpoint's secret and the body as it was sent, in its content coding";

/// Returns the codings of a body in the order in which they were applied.
///
/// # Errors
/// A coding that is not decoded.
pub(crate) fn codings(headers: &HeaderMap) -> Result<Vec<Coding>, Refusal> {
    let mut codings = Vec::new();
    for value in headers.get_all(header::CONTENT_ENCODING) {
        for name in String::from_utf8_lossy(value.as_bytes()).split(',') {
            codings.extend(match name.trim().to_ascii_lowercase().as_str() {
                "" | "identity" => None,
                "gzip" | "x-gzip" => Some(Coding::Gzip),
                "deflate" => Some(Coding::Deflate),
                "br" => Some(Coding::Brotli),
                other => {
                    let name: String = other.chars().take(LONGEST_NAME).collect();
                    let why =
                        format!("The content coding {name} is not supported; send gzip, deflate, br or none");
                    return Err(Refusal::Bad(why));
                }
            });
        }
    }
    match codings.len() {
        ..=MOST => Ok(codings),
        count => Err(Refusal::Bad(format!("The body has {count} content codings; the limit is {MOST}"))),
    }
}

/// Returns why a signed call is rejected, with its coding if it has one: a sender may have signed the body before.
pub(crate) fn explained(why: Unsigned, headers: &HeaderMap) -> Unsigned {
    let is_coded = why == WRONG && codings(headers).map_or(true, |codings| !codings.is_empty());
    if is_coded { WRONG_ENCODED } else { why }
}

/// Decodes a body of an authenticated sender to at most `limit` bytes, which are charged until they are dropped.
///
/// # Errors
/// The body is malformed or too large, or there is no memory for it.
pub(crate) async fn decode(
    mut body: Bytes,
    codings: Vec<Coding>,
    limit: usize,
    bodies: &Bodies,
) -> Result<Bytes, Refusal> {
    for coding in codings.into_iter().rev() {
        // A small body can become a large one: its size is known before memory is used for it.
        let _window = bodies.charge(coding.window()).await.map_err(|error| unread(&error))?;
        let encoded = body.clone();
        let length = off_shared_threads(move || coding.length(&encoded, limit)).await??;
        let charge = bodies.charge(length).await.map_err(|error| unread(&error))?;
        let decoded = off_shared_threads(move || coding.decoded(&body, length)).await??;
        body = charge.around(decoded.into());
    }
    Ok(body)
}

impl Coding {
    /// The memory of a decoder in addition to its output, in bytes.
    fn window(self) -> usize {
        match self {
            Self::Gzip | Self::Deflate => 64 * 1024,
            Self::Brotli => 16 * 1024 * 1024,
        }
    }

    fn reader<'a>(self, body: &'a [u8]) -> Box<dyn Read + 'a> {
        match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(body)),
            // Senders mean zlib by it, and some of them send the data without its head.
            Self::Deflate if is_zlib(body) => Box::new(ZlibDecoder::new(body)),
            Self::Deflate => Box::new(DeflateDecoder::new(body)),
            // The only head of RFC 7932 that is invalid: it announces the large windows of another format.
            Self::Brotli if body.first().is_some_and(|first| first & 0x7f == 0x11) => Box::new(Malformed),
            Self::Brotli => Box::new(brotli::Decompressor::new(body, 4096)),
        }
    }

    fn malformed(self) -> Refusal {
        let name = match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
        };
        Refusal::Bad(format!("The body is not {name}, as its Content-Encoding says"))
    }

    /// Returns the length of the decoded body.
    fn length(self, body: &[u8], limit: usize) -> Result<usize, Refusal> {
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        let length = io::copy(&mut self.reader(body).take(most), &mut io::sink());
        let length = length.map_err(|_| self.malformed())?;
        match usize::try_from(length) {
            Ok(length) if length <= limit => Ok(length),
            _ => Err(unread(&BodyError::TooLarge(limit))),
        }
    }

    fn decoded(self, body: &[u8], length: usize) -> Result<Vec<u8>, Refusal> {
        let mut decoded = vec![0; length];
        self.reader(body).read_exact(&mut decoded).map_err(|_| self.malformed())?;
        Ok(decoded)
    }
}

/// Data of which nothing can be read.
struct Malformed;

impl Read for Malformed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Returns whether data begins with the two bytes of zlib.
fn is_zlib(body: &[u8]) -> bool {
    let [method, flags, ..] = *body else { return false };
    method & 0x0f == 8 && u16::from_be_bytes([method, flags]) % 31 == 0
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use ostler_contract::http::HeaderValue;

    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        let values = values.iter().map(|value| (header::CONTENT_ENCODING, HeaderValue::from_static(value)));
        values.collect()
    }

    fn gzip(body: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap().into()
    }

    #[test]
    fn codings_are_named_in_any_case_and_in_several_lines() {
        assert_eq!(codings(&headers(&[])), Ok(vec![]));
        assert_eq!(codings(&headers(&["identity"])), Ok(vec![]));
        assert_eq!(codings(&headers(&["GZip"])), Ok(vec![Coding::Gzip]));
        assert_eq!(codings(&headers(&["br, x-gzip"])), Ok(vec![Coding::Brotli, Coding::Gzip]));
        assert_eq!(codings(&headers(&["deflate", "gzip"])), Ok(vec![Coding::Deflate, Coding::Gzip]));
        let why = |values: &[&'static str]| codings(&headers(values)).unwrap_err().message();
        assert_eq!(
            why(&["zstd"]),
            "The content coding zstd is not supported; send gzip, deflate, br or none"
        );
        assert_eq!(why(&["gzip,gzip,gzip"]), "The body has 3 content codings; the limit is 2");
    }

    #[tokio::test]
    async fn each_coding_is_decoded_within_the_limit() {
        let body = b"{\"ref\":\"main\"}".repeat(100);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&body).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
        raw.write_all(&body).unwrap();
        let mut br = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
        br.write_all(&body).unwrap();
        for (coding, encoded) in [
            (Coding::Gzip, gzip(&body)),
            (Coding::Deflate, zlib.finish().unwrap().into()),
            (Coding::Deflate, raw.finish().unwrap().into()),
            (Coding::Brotli, br.into_inner().into()),
        ] {
            let of = async |body: &Bytes, limit| {
                decode(body.clone(), vec![coding], limit, &Bodies::default()).await
            };
            assert_eq!(of(&encoded, body.len()).await.unwrap(), body, "{coding:?}");
            let large = of(&encoded, body.len() - 1).await.unwrap_err().message();
            assert!(large.contains(&(body.len() - 1).to_string()), "{coding:?}: {large}");
            let cut = of(&encoded.slice(..encoded.len() / 2), body.len()).await.unwrap_err().message();
            assert!(cut.starts_with("The body is not "), "{coding:?}: {cut}");
        }
        let bodies = Bodies::default();
        let large_window = Bytes::from_static(&[0x11, 0x1e]);
        assert!(decode(large_window, vec![Coding::Brotli], 100, &bodies).await.is_err());
        let twice = decode(gzip(&gzip(&body)), vec![Coding::Gzip; 2], body.len(), &Bodies::default()).await;
        assert_eq!(twice.unwrap(), body);
    }
}
