//! Twilio: `X-Twilio-Signature: <base64>`, an HMAC-SHA1 over the URL and the sorted fields of the form, or over the URL
//! alone where its query has the body's hash in `bodySHA256`. It signs no time.
//! <https://www.twilio.com/docs/usage/security#validating-requests>

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::JsonObject;
use ostler_contract::http::header;
use ring::digest::{SHA256, digest};
use ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY as HMAC_SHA1;
use url::{Url, form_urlencoded};

use super::hmac::made;
use super::{
    Claim, Delivery, MISSING, Outgoing, Pauses, Retries, Scheme, Sender, Shell, Signing, Success, Unsigned,
    WRONG, one,
};
use crate::route::Head;

pub(super) static SENDER: Sender = Sender {
    name: "twilio",
    example: "{ scheme: twilio, url: https://hooks.example/plugins/webhook/sms }",
    headers: &["X-Twilio-Signature"],
    delivery: Delivery::Header("I-Twilio-Idempotency-Token"),
    fields: &["url"],
    // It reads an answer with a body as TwiML.
    success: Success::Empty,
    retries: Retries { waits: Some(15), pauses: Pauses::Unknown, failures: "" },
    scheme: |fields| Ok(Arc::new(Twilio::read(fields)?)),
    #[cfg(test)]
    vectors: VECTORS,
    ..Sender::PLAIN
};

/// The parameter of a URL that has the hash of the body.
const HASH: &str = "bodySHA256";
/// The maximum number of fields of a form.
const MOST_FIELDS: usize = 1000;

#[derive(Debug)]
struct Twilio {
    /// The URL that Twilio calls, without its query.
    url: String,
}

impl Twilio {
    fn read(fields: &JsonObject) -> Result<Self, String> {
        let url = fields.get("url").and_then(|url| url.as_str()).unwrap_or_default();
        let good = Url::parse(url).is_ok_and(|parsed| {
            matches!(parsed.scheme(), "http" | "https")
                && parsed.has_host()
                && parsed.query().is_none()
                && parsed.fragment().is_none()
        });
        match good {
            true => Ok(Self { url: url.to_owned() }),
            false => Err("verify twilio must have the url that Twilio calls, https://… without a query: \
                          { scheme: twilio, url: … }"
                .to_owned()),
        }
    }

    /// The URL with its port and without it: Twilio signs either.
    fn urls(&self) -> [String; 2] {
        let start = self.url.find("://").map_or(0, |at| at + 3);
        let (scheme, rest) = self.url.split_at(start);
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host_at = authority.rfind('@').map_or(0, |at| at + 1);
        // An IPv6 address has colons in brackets.
        let host_end = authority[host_at..].rfind(']').map_or(host_at, |at| host_at + at);
        let port_at = authority[host_end..].find(':').map(|at| host_end + at);
        let bare = &authority[..port_at.unwrap_or(authority.len())];
        let port = match (port_at, scheme) {
            (Some(at), _) => &authority[at..],
            (None, "http://") => ":80",
            (None, _) => ":443",
        };
        [format!("{scheme}{bare}{path}"), format!("{scheme}{bare}{port}{path}")]
    }

    fn made(&self, secret: &str, query: &[u8], fields: &[(Cow<'_, str>, Cow<'_, str>)]) -> Vec<Vec<u8>> {
        let urls = self.urls();
        let over = |url: &String| {
            let fields = fields.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
            let parts: Vec<&[u8]> = [url.as_bytes(), query].into_iter().chain(fields).collect();
            made(HMAC_SHA1, secret.as_bytes(), &parts)
        };
        urls.iter().map(over).collect()
    }
}

/// Returns the hash in a query; `None` if there are several.
fn hash(query: &[u8]) -> Option<Cow<'_, str>> {
    let query = query.strip_prefix(b"?").unwrap_or(query);
    let mut hashes = form_urlencoded::parse(query).filter(|(name, _)| name == HASH);
    let (_, hash) = hashes.next()?;
    hashes.next().is_none().then_some(hash)
}

impl Scheme for Twilio {
    /// A body that is neither a form nor hashed would not be signed.
    fn claim(&self, head: &Head) -> Option<Claim> {
        let signature = STANDARD.decode(one(&head.headers, "x-twilio-signature")?).ok()?;
        let prefix = head.uri.query().map(|query| format!("?{query}").into_bytes()).unwrap_or_default();
        if hash(&prefix).is_none() && !is_form(one(&head.headers, header::CONTENT_TYPE.as_str())?) {
            return None;
        }
        Some(Claim { prefix, signatures: vec![signature], ..Claim::default() })
    }

    fn check(&self, claim: &Claim, secret: &str, body: &[u8], _: u64) -> Result<(), Unsigned> {
        if let Some(hash) = hash(&claim.prefix) {
            let same = hex::encode(digest(&SHA256, body)).eq_ignore_ascii_case(&hash);
            return if same { claim.is_one_of(&self.made(secret, &claim.prefix, &[])) } else { Err(WRONG) };
        }
        if body.iter().filter(|byte| **byte == b'&').count() >= MOST_FIELDS {
            return Err(MISSING);
        }
        let mut fields: Vec<_> = form_urlencoded::parse(body).collect();
        fields.sort_unstable();
        fields.dedup();
        claim.is_one_of(&self.made(secret, &claim.prefix, &fields))
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        let hash = hex::encode(digest(&SHA256, call.body.as_bytes()));
        let query = format!("{HASH}={hash}");
        let made = self.made(signing.secret, format!("?{query}").as_bytes(), &[]);
        call.header("X-Twilio-Signature", STANDARD.encode(&made[0]));
        call.query = Some(query);
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        let [url, _] = self.urls();
        let signature = format!(
            "printf %s \"{url}?{HASH}=$H\" | openssl dgst -sha1 -hmac \"$SECRET\" -binary | openssl base64 -A"
        );
        Some(Shell {
            before: "H=$(printf %s \"$B\" | openssl dgst -sha256 -r | cut -d' ' -f1); ".to_owned(),
            query: Some(format!("{HASH}=$H")),
            headers: vec![format!("X-Twilio-Signature: $({signature})")],
        })
    }
}

fn is_form(kind: &str) -> bool {
    kind.split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
}

/// <https://github.com/twilio/twilio-python/blob/main/tests/unit/test_request_validator.py>
#[cfg(test)]
const VECTORS: &[super::Vector] = &[
    super::Vector { of: "the vector Twilio publishes", ..FORM },
    super::Vector {
        of: "with the port",
        headers: &[("X-Twilio-Signature", "kvajT1Ptam85bY51eRf/AJRuM3w="), FORM_TYPE],
        ..FORM
    },
    super::Vector {
        of: "with the port of http",
        verify: r#"{ "scheme": "twilio", "url": "http://mycompany.com/myapp.php" }"#,
        headers: &[("X-Twilio-Signature", "0ZXoZLH/DfblKGATFgpif+LLRf4="), FORM_TYPE],
        ..FORM
    },
    super::Vector {
        of: "without the port",
        verify: r#"{ "scheme": "twilio", "url": "https://mycompany.com:1234/myapp.php" }"#,
        ..FORM
    },
    super::Vector {
        of: "with a port that is not the default",
        verify: r#"{ "scheme": "twilio", "url": "http://mycompany.com:1234/myapp.php" }"#,
        headers: &[("X-Twilio-Signature", "Zmvh+3yNM1Phv2jhDCwEM3q5ebU="), FORM_TYPE],
        ..FORM
    },
    super::Vector {
        of: "with a user and the port",
        verify: r#"{ "scheme": "twilio", "url": "https://user:pass@mycompany.com/myapp.php" }"#,
        headers: &[("X-Twilio-Signature", "ZQFR1PTIZXF2MXB8ZnKCvnnA+rI="), FORM_TYPE],
        ..FORM
    },
    super::Vector {
        of: "with fields that come twice",
        headers: &[("X-Twilio-Signature", "IK+Dwps556ElfBT0I3Rgjkr1wJU="), FORM_TYPE],
        body: b"Sid=CA123&SidAccount=AC123&Digits=5678&Digits=1234&Digits=1234",
        ..FORM
    },
    super::Vector {
        of: "with the hash of a body",
        query: "?foo=1&bar=2&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620",
        headers: &[("X-Twilio-Signature", "a9nBmqA0ju/hNViExpshrM61xv4=")],
        body: br#"{"property": "value", "boolean": true}"#,
        ..FORM
    },
];

#[cfg(test)]
const FORM_TYPE: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8");

#[cfg(test)]
const FORM: super::Vector = super::Vector {
    verify: r#"{ "scheme": "twilio", "url": "https://mycompany.com/myapp.php" }"#,
    query: "?foo=1&bar=2",
    headers: &[("X-Twilio-Signature", "RSOYDt4T1cUTdK1PDd93/VVr8B8="), FORM_TYPE],
    secret: "12345",
    body:
        b"CallSid=CA1234567890ABCDE&Digits=1234&From=%2B14158675309&To=%2B18005551212&Caller=%2B14158675309",
    ..super::Vector::UNTIMED
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_signed_with_its_port_or_without() {
        for (url, bare, port) in [
            ("https://a.example/x", "https://a.example/x", "https://a.example:443/x"),
            ("http://a.example", "http://a.example", "http://a.example:80"),
            ("https://a.example:8443/x:1", "https://a.example/x:1", "https://a.example:8443/x:1"),
            ("https://u:pw@a.example/x", "https://u:pw@a.example/x", "https://u:pw@a.example:443/x"),
            ("https://u:@a.example/x", "https://u:@a.example/x", "https://u:@a.example:443/x"),
            ("https://u:pw@a.example:1/x", "https://u:pw@a.example/x", "https://u:pw@a.example:1/x"),
            ("https://[::1]/x", "https://[::1]/x", "https://[::1]:443/x"),
            ("https://u:pw@[::1]:1/x", "https://u:pw@[::1]/x", "https://u:pw@[::1]:1/x"),
        ] {
            assert_eq!(Twilio { url: url.to_owned() }.urls(), [bare, port], "{url}");
        }
    }
}
