//! A parser of HTTP/1 messages on a connection that JavaScript reads: heads, bodies and trailers in order.

use std::cell::RefCell;

use bytes::{Buf, Bytes, BytesMut};
use httparse::{EMPTY_HEADER, Error as Malformed, Header, Status};
use rquickjs::{Array, Ctx, Function, IntoJs, Object, Result, Value};

use super::natives;
use crate::errors::plain_error;
use crate::values::{bytes_of, bytes_to_js};

/// The default maximum size of a head, in bytes.
const LONGEST_HEAD: usize = 16 << 10;
/// The maximum number of headers of a message.
const MOST_HEADERS: usize = 2000;
/// The maximum size of the line before a chunk, in bytes.
const LONGEST_CHUNK_LINE: usize = 4 << 10;

/// The next part of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Head,
    /// JavaScript has not decided yet whether this message has a body.
    Decision,
    Bytes(u64),
    ChunkLine,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// Everything until the connection ends.
    Rest,
    End,
    /// The connection uses another protocol from here on.
    Upgraded,
}

/// How the length of a body is determined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Unknown,
    Bytes(u64),
    Chunked,
    /// Uses a coding other than `chunked`, so the body lasts until the connection ends.
    Coded,
}

struct Parser {
    requests: bool,
    longest_head: usize,
    bytes: BytesMut,
    next: Next,
    length: Length,
}

/// A parse error: Node's code and message.
struct Refused(&'static str, &'static str);

type Parsed<T> = std::result::Result<T, Refused>;

/// Returns the native functions for `internal/http1`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx; "parser": parser }
}

/// Creates a parser of requests or responses: `push(bytes)`, `next()`, `body(how)`, `finish()`, `rest()`.
fn parser<'js>(ctx: Ctx<'js>, requests: bool, longest_head: Option<usize>) -> Result<Object<'js>> {
    let parser = std::rc::Rc::new(RefCell::new(Parser {
        requests,
        longest_head: longest_head.filter(|bytes| *bytes > 0).unwrap_or(LONGEST_HEAD),
        bytes: BytesMut::new(),
        next: Next::Head,
        length: Length::Unknown,
    }));
    let object = Object::new(ctx.clone())?;
    let shared = parser.clone();
    object.set(
        "push",
        Function::new(ctx.clone(), move |bytes: Value<'js>| {
            shared.borrow_mut().bytes.extend_from_slice(&bytes_of(&bytes).unwrap_or_default());
        }),
    )?;
    let shared = parser.clone();
    object.set(
        "next",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let step = shared.borrow_mut().step();
            step.map_err(|refused| refuse(&ctx, refused))?.into_value(&ctx)
        }),
    )?;
    let shared = parser.clone();
    object.set(
        "body",
        Function::new(ctx.clone(), move |how: Option<String>| shared.borrow_mut().decide(how.as_deref())),
    )?;
    let shared = parser.clone();
    object.set(
        "finish",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let ended = shared.borrow_mut().finish();
            ended.map_err(|refused| refuse(&ctx, refused))
        }),
    )?;
    object.set(
        "rest",
        Function::new(ctx, move |ctx: Ctx<'js>| {
            let rest = parser.borrow_mut().bytes.split().freeze();
            bytes_to_js(&ctx, rest)
        }),
    )?;
    Ok(object)
}

fn refuse(ctx: &Ctx<'_>, Refused(code, words): Refused) -> rquickjs::Error {
    let error = plain_error(ctx, format_args!("Parse Error: {words}"));
    let value = ctx.catch();
    if let Some(thrown) = value.as_object() {
        // Best effort: the message contains the same.
        let _ = thrown.set("code", code);
        let _ = thrown.set("reason", words);
    }
    drop(error);
    ctx.throw(value)
}

/// One part of a message.
enum Step {
    /// More bytes are needed.
    Wait,
    Head(Box<Head>),
    Body(Bytes),
    End(Vec<(String, String)>),
}

struct Head {
    minor: u8,
    method: String,
    target: String,
    status: u16,
    reason: String,
    headers: Vec<(String, String)>,
    length: Length,
}

impl Step {
    /// Returns null, `['head', minor, method, target, status, reason, pairs, length]`, `['body', bytes]` or `['end',
    /// pairs]`.
    fn into_value<'js>(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let array = Array::new(ctx.clone())?;
        match self {
            Self::Wait => return Ok(Value::new_null(ctx.clone())),
            Self::Head(head) => {
                array.set(0, "head")?;
                array.set(1, head.minor)?;
                array.set(2, head.method)?;
                array.set(3, head.target)?;
                array.set(4, head.status)?;
                array.set(5, head.reason)?;
                array.set(6, flat(head.headers))?;
                let length = match head.length {
                    #[allow(clippy::cast_precision_loss, reason = "no body has more bytes")]
                    Length::Bytes(bytes) => (bytes as f64).into_js(ctx)?,
                    Length::Chunked => "chunked".into_js(ctx)?,
                    Length::Coded | Length::Unknown => Value::new_null(ctx.clone()),
                };
                array.set(7, length)?;
            }
            Self::Body(bytes) => {
                array.set(0, "body")?;
                array.set(1, bytes_to_js(ctx, bytes)?)?;
            }
            Self::End(trailers) => {
                array.set(0, "end")?;
                array.set(1, flat(trailers))?;
            }
        }
        Ok(array.into_value())
    }
}

fn flat(pairs: Vec<(String, String)>) -> Vec<String> {
    pairs.into_iter().flat_map(|(name, value)| [name, value]).collect()
}

/// Decodes a header, in which each byte is one character.
fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn pairs(headers: &[Header<'_>]) -> Vec<(String, String)> {
    headers.iter().map(|header| (header.name.to_owned(), latin1(header.value))).collect()
}

fn malformed(error: Malformed) -> Refused {
    match error {
        Malformed::HeaderName => Refused("HPE_INVALID_HEADER_TOKEN", "Invalid header token"),
        Malformed::HeaderValue => Refused("HPE_INVALID_HEADER_TOKEN", "Invalid header value char"),
        Malformed::NewLine => Refused("HPE_CR_EXPECTED", "Missing expected CR after header value"),
        Malformed::Status => Refused("HPE_INVALID_STATUS", "Invalid status code"),
        Malformed::Token => Refused("HPE_INVALID_METHOD", "Invalid method encountered"),
        Malformed::TooManyHeaders => Refused("HPE_HEADER_OVERFLOW", "Header overflow"),
        Malformed::Version => Refused("HPE_INVALID_VERSION", "Invalid HTTP version"),
    }
}

impl Parser {
    fn step(&mut self) -> Parsed<Step> {
        loop {
            match self.next {
                Next::Head => match self.head()? {
                    Some(head) => {
                        self.length = head.length;
                        self.next = Next::Decision;
                        return Ok(Step::Head(Box::new(head)));
                    }
                    None => return Ok(Step::Wait),
                },
                Next::Decision | Next::Upgraded => return Ok(Step::Wait),
                Next::End => {
                    self.next = Next::Head;
                    return Ok(Step::End(Vec::new()));
                }
                Next::Bytes(0) => self.next = Next::End,
                Next::Bytes(left) => match self.take(left) {
                    Some(bytes) => {
                        self.next = Next::Bytes(left - bytes.len() as u64);
                        return Ok(Step::Body(bytes));
                    }
                    None => return Ok(Step::Wait),
                },
                Next::Rest => {
                    return Ok(self.take(u64::MAX).map_or(Step::Wait, Step::Body));
                }
                Next::ChunkLine => match self.chunk_line()? {
                    Some(0) => self.next = Next::Trailers,
                    Some(size) => self.next = Next::Chunk(size),
                    None => return Ok(Step::Wait),
                },
                Next::Chunk(0) => self.next = Next::ChunkEnd,
                Next::Chunk(left) => match self.take(left) {
                    Some(bytes) => {
                        self.next = Next::Chunk(left - bytes.len() as u64);
                        return Ok(Step::Body(bytes));
                    }
                    None => return Ok(Step::Wait),
                },
                Next::ChunkEnd => match self.bytes.get(..2) {
                    Some(b"\r\n") => {
                        self.bytes.advance(2);
                        self.next = Next::ChunkLine;
                    }
                    Some(_) => return Err(Refused("HPE_STRICT", "Expected LF after chunk data")),
                    None => return Ok(Step::Wait),
                },
                Next::Trailers => match self.trailers()? {
                    Some(trailers) => {
                        self.next = Next::Head;
                        return Ok(Step::End(trailers));
                    }
                    None => return Ok(Step::Wait),
                },
            }
        }
    }

    /// Takes up to `most` of the available bytes.
    fn take(&mut self, most: u64) -> Option<Bytes> {
        let many = usize::try_from(most).unwrap_or(usize::MAX).min(self.bytes.len());
        (many > 0).then(|| self.bytes.split_to(many).freeze())
    }

    /// Decides whether the current message has a body: `none`, `upgrade`, or as its head declares.
    fn decide(&mut self, how: Option<&str>) {
        if self.next != Next::Decision {
            return;
        }
        self.next = match (how, self.length) {
            (Some("upgrade"), _) => Next::Upgraded,
            (Some("none"), _) => Next::End,
            (_, Length::Bytes(bytes)) => Next::Bytes(bytes),
            (_, Length::Chunked) => Next::ChunkLine,
            (_, Length::Unknown) if self.requests => Next::End,
            (_, Length::Unknown | Length::Coded) => Next::Rest,
        };
    }

    /// Handles the end of the connection; returns whether that completes a message.
    fn finish(&mut self) -> Parsed<bool> {
        match self.next {
            Next::Rest => {
                self.next = Next::Head;
                Ok(true)
            }
            Next::Head if self.bytes.is_empty() => Ok(false),
            Next::Upgraded | Next::End => Ok(false),
            _ => Err(Refused("HPE_INVALID_EOF_STATE", "Invalid EOF state")),
        }
    }

    fn head(&mut self) -> Parsed<Option<Head>> {
        // Empty lines between two messages are ignored.
        while self.bytes.starts_with(b"\r\n") {
            self.bytes.advance(2);
        }
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let mut room = 64;
        loop {
            let mut headers = vec![EMPTY_HEADER; room];
            let parsed = if self.requests {
                self.request_head(&mut headers)
            } else {
                self.response_head(&mut headers)
            };
            match parsed {
                Err(Malformed::TooManyHeaders) if room < MOST_HEADERS => room *= 4,
                Err(error) => return Err(malformed(error)),
                Ok(None) if self.bytes.len() > self.longest_head => {
                    return Err(Refused("HPE_HEADER_OVERFLOW", "Header overflow"));
                }
                Ok(None) => return Ok(None),
                Ok(Some((read, mut head))) => {
                    if read > self.longest_head {
                        return Err(Refused("HPE_HEADER_OVERFLOW", "Header overflow"));
                    }
                    head.length = self.body_length(&head.headers)?;
                    self.bytes.advance(read);
                    return Ok(Some(head));
                }
            }
        }
    }

    fn request_head<'a>(
        &'a self,
        headers: &mut [Header<'a>],
    ) -> std::result::Result<Option<(usize, Head)>, Malformed> {
        let mut request = httparse::Request::new(headers);
        let Status::Complete(read) = request.parse(&self.bytes)? else { return Ok(None) };
        let head = Head {
            minor: request.version.unwrap_or(1),
            method: request.method.unwrap_or_default().to_owned(),
            target: request.path.unwrap_or_default().to_owned(),
            status: 0,
            reason: String::new(),
            headers: pairs(request.headers),
            length: Length::Unknown,
        };
        Ok(Some((read, head)))
    }

    fn response_head<'a>(
        &'a self,
        headers: &mut [Header<'a>],
    ) -> std::result::Result<Option<(usize, Head)>, Malformed> {
        let mut response = httparse::Response::new(headers);
        let Status::Complete(read) = response.parse(&self.bytes)? else { return Ok(None) };
        let head = Head {
            minor: response.version.unwrap_or(1),
            method: String::new(),
            target: String::new(),
            status: response.code.unwrap_or_default(),
            reason: response.reason.unwrap_or_default().to_owned(),
            headers: pairs(response.headers),
            length: Length::Unknown,
        };
        Ok(Some((read, head)))
    }

    /// Returns the length of the body from the headers. Two lengths are rejected, because another parser could read the
    /// message as two (request smuggling).
    fn body_length(&self, headers: &[(String, String)]) -> Parsed<Length> {
        let mut length = None;
        let mut codings = Vec::new();
        for (name, value) in headers {
            if name.eq_ignore_ascii_case("content-length") {
                if length.is_some() {
                    return Err(Refused("HPE_UNEXPECTED_CONTENT_LENGTH", "Content-Length already present"));
                }
                let digits = value.trim();
                let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                length =
                    Some(digits.parse().ok().filter(|_| valid).ok_or(Refused(
                        "HPE_INVALID_CONTENT_LENGTH",
                        "Invalid character in Content-Length",
                    ))?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                codings.extend(value.split(',').map(|coding| coding.trim().to_ascii_lowercase()));
            }
        }
        if codings.is_empty() {
            return Ok(length.map_or(Length::Unknown, Length::Bytes));
        }
        if length.is_some() {
            return Err(Refused(
                "HPE_INVALID_TRANSFER_ENCODING",
                "Transfer-Encoding can't be present with Content-Length",
            ));
        }
        if codings.last().is_some_and(|coding| coding == "chunked") {
            return Ok(Length::Chunked);
        }
        if self.requests {
            return Err(Refused("HPE_INVALID_TRANSFER_ENCODING", "Request has invalid `Transfer-Encoding`"));
        }
        Ok(Length::Coded)
    }

    fn chunk_line(&mut self) -> Parsed<Option<u64>> {
        match httparse::parse_chunk_size(&self.bytes) {
            Ok(Status::Complete((read, size))) => {
                self.bytes.advance(read);
                Ok(Some(size))
            }
            Ok(Status::Partial) if self.bytes.len() > LONGEST_CHUNK_LINE => {
                Err(Refused("HPE_CHUNK_EXTENSIONS_OVERFLOW", "Chunk extensions overflow"))
            }
            Ok(Status::Partial) => Ok(None),
            Err(_) => Err(Refused("HPE_INVALID_CHUNK_SIZE", "Invalid character in chunk size")),
        }
    }

    fn trailers(&mut self) -> Parsed<Option<Vec<(String, String)>>> {
        let mut room = 64;
        loop {
            let mut headers = vec![EMPTY_HEADER; room];
            match httparse::parse_headers(&self.bytes, &mut headers) {
                Ok(Status::Complete((read, headers))) => {
                    let trailers = pairs(headers);
                    self.bytes.advance(read);
                    return Ok(Some(trailers));
                }
                Err(Malformed::TooManyHeaders) if room < MOST_HEADERS => room *= 4,
                Ok(Status::Partial) if self.bytes.len() > self.longest_head => {
                    return Err(Refused("HPE_HEADER_OVERFLOW", "Header overflow"));
                }
                Ok(Status::Partial) => return Ok(None),
                Err(error) => return Err(malformed(error)),
            }
        }
    }
}
