//! An HMAC in a header, the method of most senders, which a record can also describe: the algorithm, the encoding of
//! the signature, its prefix, and whether a time in another header is signed with the body.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::http::header::HeaderName;
use ostler_contract::{JsonObject, Value};
use ring::hmac;

use super::{
    Claim, Greeting, Outgoing, Scheme, Sender, Shell, Signing, TIME, Unsigned, WRONG, from_hex, one,
    seconds_of,
};
use crate::byte_order_mark::text_of;
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "hmac",
    example: "{ scheme: hmac, header: X-Signature }",
    headers: &["X-Signature"],
    body_limit: crate::BODY_LIMIT,
    fields: &["header", "algorithm", "encoding", "prefix", "timestamp"],
    scheme: |fields| Ok(Arc::new(Hmac::read(fields)?)),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

/// The maximum number of checked signatures of a call.
pub(super) const MOST: usize = 8;

/// The hash function, with its name in records and OpenSSL.
pub(super) type Algorithm = (&'static str, &'static hmac::Algorithm);

const SHA256: Algorithm = ("sha256", &hmac::HMAC_SHA256);
pub(super) const SHA1: Algorithm = ("sha1", &hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY);
const ALGORITHMS: &[Algorithm] =
    &[SHA256, SHA1, ("sha384", &hmac::HMAC_SHA384), ("sha512", &hmac::HMAC_SHA512)];

/// The encoding of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Hex,
    Base64,
}

/// An HMAC in a header.
#[derive(Debug)]
pub(super) struct Hmac {
    pub header: Cow<'static, str>,
    pub algorithm: Algorithm,
    pub encoding: Encoding,
    /// The prefix of a signature in the header.
    pub prefix: Cow<'static, str>,
    /// Whether the header has several signatures, each after the prefix and separated by commas.
    pub several: bool,
    /// The time that is signed with the body.
    pub timestamp: Option<Timestamp>,
    /// Whether only bodies that are JSON objects pass: the sender lets anyone have other texts signed.
    pub is_of_objects: bool,
    /// The answer to a verified call that only asks whether the endpoint is there.
    pub greeting: fn(&Head, &[u8]) -> Option<Greeting>,
}

/// A time that is signed before the body.
#[derive(Debug)]
pub(super) struct Timestamp {
    pub header: Cow<'static, str>,
    /// What is signed before the time, and between the time and the body.
    pub around: (Cow<'static, str>, Cow<'static, str>),
}

impl Timestamp {
    /// A header, or `{ header, signed: '{timestamp}.{body}' }`.
    fn read(value: &Value) -> Option<Self> {
        let (name, signed) = match value {
            Value::Object(fields) if fields.keys().all(|key| key == "header" || key == "signed") => (
                fields.get("header")?,
                fields.get("signed").map_or(Some("{timestamp}.{body}"), Value::as_str)?,
            ),
            name => (name, "{timestamp}.{body}"),
        };
        let (before, after) = signed.strip_suffix("{body}")?.split_once("{timestamp}")?;
        // These are also used in a command line.
        if [before, after].iter().any(|part| part.contains(['{', '}', '"', '$', '`', '\\'])) {
            return None;
        }
        let around = (before.to_owned().into(), after.to_owned().into());
        Some(Self { header: header(name)?, around })
    }

    fn signed(&self, time: &str) -> String {
        format!("{}{time}{}", self.around.0, self.around.1)
    }
}

fn header(value: &Value) -> Option<Cow<'static, str>> {
    let name = value.as_str().filter(|name| HeaderName::try_from(*name).is_ok())?;
    Some(name.to_owned().into())
}

impl Hmac {
    /// HMAC-SHA256 of the body in hex, after a prefix.
    pub(super) fn hex(header: &'static str, prefix: &'static str) -> Self {
        Self {
            header: header.into(),
            algorithm: SHA256,
            encoding: Encoding::Hex,
            prefix: prefix.into(),
            several: false,
            timestamp: None,
            is_of_objects: false,
            greeting: |_, _| None,
        }
    }

    fn read(fields: &JsonObject) -> Result<Self, String> {
        let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let text = |name: &str, default| field(name).map_or(Some(default), Value::as_str);
        let header = field("header").and_then(header);
        let algorithm = text("algorithm", SHA256.0)
            .and_then(|name| ALGORITHMS.iter().find(|(algorithm, _)| *algorithm == name));
        let encoding = match text("encoding", "hex") {
            Some("hex") => Some(Encoding::Hex),
            Some("base64") => Some(Encoding::Base64),
            _ => None,
        };
        // Neither is valid in a header, and it precedes a signature in a command line.
        let prefix = text("prefix", "").filter(|prefix| {
            prefix.bytes().all(|byte| byte.is_ascii_graphic() && !br#""'`$\"#.contains(&byte))
        });
        let timestamp = field("timestamp").map(Timestamp::read);
        Ok(Self {
            header: header
                .ok_or("verify hmac must have a header: the name of the header with the signature")?,
            algorithm: *algorithm.ok_or("verify hmac: algorithm must be sha256, sha1, sha384 or sha512")?,
            encoding: encoding.ok_or("verify hmac: encoding must be hex or base64")?,
            prefix: prefix
                .ok_or("verify hmac: prefix must be the text in front of the signature, such as sha256=")?
                .to_owned()
                .into(),
            timestamp: match timestamp {
                Some(None) => {
                    return Err("verify hmac: timestamp must be the name of a header, or { header, signed: \
                                '{timestamp}.{body}' }"
                        .to_owned());
                }
                timestamp => timestamp.flatten(),
            },
            ..Self::hex("", "")
        })
    }

    fn decoded(&self, text: &str) -> Option<Vec<u8>> {
        match self.encoding {
            Encoding::Hex => from_hex(text, self.algorithm.1.digest_algorithm().output_len()),
            Encoding::Base64 => STANDARD.decode(text).ok(),
        }
    }

    fn encoded(&self, signature: &[u8]) -> String {
        match self.encoding {
            Encoding::Hex => hex::encode(signature),
            Encoding::Base64 => STANDARD.encode(signature),
        }
    }

    fn signatures(&self, value: &str) -> Option<Vec<Vec<u8>>> {
        if !self.several {
            return Some(vec![self.decoded(value.strip_prefix(&*self.prefix)?)?]);
        }
        let parts = value.split(',').filter_map(|part| part.trim().strip_prefix(&*self.prefix));
        let signatures: Vec<_> = parts.take(MOST).filter_map(|part| self.decoded(part)).collect();
        (!signatures.is_empty()).then_some(signatures)
    }

    fn made(&self, secret: &str, parts: &[&[u8]]) -> Vec<u8> {
        made(*self.algorithm.1, secret.as_bytes(), parts)
    }
}

impl Scheme for Hmac {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let signatures = self.signatures(one(&head.headers, &self.header)?)?;
        let Some(timestamp) = &self.timestamp else { return Some(Claim { signatures, ..Claim::default() }) };
        let time = one(&head.headers, &timestamp.header)?;
        let prefix = timestamp.signed(time).into_bytes();
        Some(Claim { at: Some(seconds_of(time)?), prefix, signatures, ..Claim::default() })
    }

    fn check(&self, claim: &Claim, secret: &str, body: &[u8], _: u64) -> Result<(), Unsigned> {
        claim.is_one_of(&[self.made(secret, &[&claim.prefix, body])])?;
        let is_object = text_of(body).trim_ascii_start().starts_with(b"{");
        if is_object || !self.is_of_objects { Ok(()) } else { Err(WRONG) }
    }

    fn greeting(&self, head: &Head, body: &[u8]) -> Option<Greeting> {
        (self.greeting)(head, body)
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        let mut prefix = String::new();
        if let Some(timestamp) = &self.timestamp {
            prefix = timestamp.signed(&signing.now.to_string());
            call.header(&timestamp.header, signing.now.to_string());
        }
        let signature = self.made(signing.secret, &[prefix.as_bytes(), call.body.as_bytes()]);
        call.header(&self.header, format!("{}{}", self.prefix, self.encoded(&signature)));
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        let mut shell = Shell::default();
        let mut over = "$B".to_owned();
        if let Some(timestamp) = &self.timestamp {
            shell.before = TIME.to_owned();
            shell.headers.push(format!("{}: $T", timestamp.header));
            over = format!("{}$B", timestamp.signed("${T}"));
        }
        let signature = shell_made(self.algorithm.0, self.encoding, &over);
        shell.headers.push(format!("{}: {}{signature}", self.header, self.prefix));
        Some(shell)
    }
}

/// The HMAC of these parts.
pub(super) fn made(algorithm: hmac::Algorithm, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut made = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
    for part in parts {
        made.update(part);
    }
    made.sign().as_ref().to_vec()
}

/// The HMAC of a text in a shell.
pub(super) fn shell_made(algorithm: &str, encoding: Encoding, over: &str) -> String {
    let written = match encoding {
        Encoding::Hex => "-r | cut -d' ' -f1",
        Encoding::Base64 => "-binary | openssl base64 -A",
    };
    format!("$(printf %s \"{over}\" | openssl dgst -{algorithm} -hmac \"$SECRET\" {written})")
}

#[cfg(test)]
const VECTORS: &[super::Vector] = &[
    super::Vector {
        of: "RFC 4231, test case 2",
        verify: r#"{ "scheme": "hmac", "header": "X-Signature" }"#,
        headers: &[("X-Signature", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")],
        ..JEFE
    },
    super::Vector {
        of: "RFC 2202, test case 2",
        verify: r#"{ "scheme": "hmac", "header": "X-Signature", "algorithm": "sha1", "prefix": "sha1=" }"#,
        headers: &[("X-Signature", "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79")],
        ..JEFE
    },
    super::Vector {
        of: "RFC 4231, test case 2, with SHA-512 in base64",
        verify: r#"{ "scheme": "hmac", "header": "X-Signature", "algorithm": "sha512", "encoding": "base64" }"#,
        headers: &[(
            "X-Signature",
            "Fkt6e/z4GeLjlfvnO1bgo4e9ZCIugx/WECcM1+olBVSXWL91wFqZSm0DT2X48Ob9yuqxo01Ka0tjbgcKOLznNw==",
        )],
        ..JEFE
    },
    super::Vector {
        of: "the vector Slack publishes, described as a record does it",
        verify: r#"{ "scheme": "hmac", "header": "X-Slack-Signature", "prefix": "v0=", "timestamp":
            { "header": "X-Slack-Request-Timestamp", "signed": "v0:{timestamp}:{body}" } }"#,
        headers: &[
            ("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
            ("X-Slack-Request-Timestamp", "1531420618"),
        ],
        secret: "8f742231b10e8888abcd99yyyzzz85a5",
        body: include_bytes!("../../tests/senders/slack-command.form"),
        timed: true,
        at: 1_531_420_618,
        ..super::Vector::UNTIMED
    },
];

#[cfg(test)]
const JEFE: super::Vector =
    super::Vector { secret: "Jefe", body: b"what do ya want for nothing?", ..super::Vector::UNTIMED };

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn read(fields: Value) -> Result<Hmac, String> {
        Hmac::read(fields.as_object().unwrap())
    }

    #[test]
    fn what_a_record_may_describe() {
        let plain = read(json!({ "header": "X-Signature", "timestamp": null })).unwrap();
        assert_eq!((plain.algorithm.0, plain.encoding), ("sha256", Encoding::Hex));
        assert!(plain.timestamp.is_none() && plain.prefix.is_empty());
        let timed = read(json!({ "header": "a", "timestamp": "X-Time" })).unwrap().timestamp.unwrap();
        assert_eq!((&*timed.header, &*timed.signed("1")), ("X-Time", "1."));
        for (fields, why) in [
            (json!({}), "must have a header"),
            (json!({ "header": "not a header" }), "must have a header"),
            (json!({ "header": "a", "algorithm": "md5" }), "algorithm must be"),
            (json!({ "header": "a", "algorithm": 1 }), "algorithm must be"),
            (json!({ "header": "a", "encoding": "base32" }), "encoding must be"),
            (json!({ "header": "a", "prefix": "a b" }), "prefix must be"),
            (json!({ "header": "a", "prefix": "$(id)" }), "prefix must be"),
            (json!({ "header": "a", "timestamp": "not a header" }), "timestamp must be"),
            (json!({ "header": "a", "timestamp": { "signed": "{timestamp}{body}" } }), "timestamp must be"),
            (
                json!({ "header": "a", "timestamp": { "header": "b", "signed": "{body}" } }),
                "timestamp must be",
            ),
            (
                json!({ "header": "a", "timestamp": { "header": "b", "signed": "{body}{timestamp}" } }),
                "timestamp must be",
            ),
            (
                json!({ "header": "a", "timestamp": { "header": "b", "signed": "{timestamp}{timestamp}{body}" } }),
                "timestamp must be",
            ),
            (
                json!({ "header": "a", "timestamp": { "header": "b", "signed": "$(id){timestamp}{body}" } }),
                "timestamp must be",
            ),
            (json!({ "header": "a", "timestamp": { "header": "b", "format": "ms" } }), "timestamp must be"),
        ] {
            let said = read(fields.clone()).unwrap_err();
            assert!(said.starts_with("verify hmac") && said.contains(why), "{fields}: {said}");
        }
    }

    #[test]
    fn a_time_in_milliseconds_is_one_too() {
        let scheme = read(json!({ "header": "s", "timestamp": "t" })).unwrap();
        let at = |time: &str| {
            let headers = [("s", "0".repeat(64)), ("t", time.to_owned())];
            let headers = headers
                .into_iter()
                .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            let head = Head { uri: "/".parse().unwrap(), headers: headers.collect() };
            let claim = scheme.claim(&head)?;
            Some((claim.at?, String::from_utf8(claim.prefix).unwrap()))
        };
        assert_eq!(at("1700000000"), Some((1_700_000_000, "1700000000.".to_owned())));
        assert_eq!(
            at("1700000000123"),
            Some((1_700_000_000, "1700000000123.".to_owned())),
            "signed as it is"
        );
        assert_eq!(at("99999999999").unwrap().0, super::super::MOST_SECONDS);
        assert_eq!(at("2023-11-14T22:13:20Z").unwrap().0, 1_700_000_000);
        assert_eq!(at("100000000000").unwrap().0, 100_000_000);
        assert_eq!(at("-1"), None);
        assert_eq!(at("99999999999999999999999"), None);
    }
}
