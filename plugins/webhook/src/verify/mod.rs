//! Senders that cannot send a bearer sign what they send. The signature is made with the endpoint's secret over
//! the body as it came, byte for byte.

mod github;
mod slack;
mod standard;
mod stripe;

use ostler_contract::http::HeaderMap;
use ring::hmac;
use subtle::ConstantTimeEq;

/// Whose way of signing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Github,
    Stripe,
    Slack,
    Standard,
}

/// How far a sender's clock may be off, in seconds, either way.
const WINDOW: u64 = 300;

/// Why a call does not pass. What was expected is not said.
pub(crate) type Unsigned = &'static str;

const MISSING: Unsigned = "The sender's signature is missing or malformed";
const OLD: Unsigned = "The sender's signature has expired";
const WRONG: Unsigned = "The sender's signature does not match the endpoint's secret";

/// What a signature has to be held against, read from the headers before anything of the body is.
#[derive(Debug)]
pub(crate) struct Claim {
    scheme: Scheme,
    /// What is signed in front of the body.
    prefix: Vec<u8>,
    /// Any of these passes: a sender whose secret changes signs with both for a while.
    signatures: Vec<Vec<u8>>,
}

impl Scheme {
    /// As a record names it.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Github, Self::Stripe, Self::Slack, Self::Standard]
            .into_iter()
            .find(|scheme| scheme.name() == name)
    }

    /// Its name in a record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Stripe => "stripe",
            Self::Slack => "slack",
            Self::Standard => "standard",
        }
    }

    /// The largest body such a sender sends.
    pub fn body_limit(self) -> usize {
        match self {
            Self::Github => crate::BODY_LIMIT,
            _ => 1 << 20,
        }
    }

    /// Reads what the headers claim; a call that claims nothing, or something old, has its body left unread.
    pub fn claim(self, headers: &HeaderMap, now: u64) -> Result<Claim, Unsigned> {
        let (signed_at, prefix, signatures) = match self {
            Self::Github => github::read(headers),
            Self::Stripe => stripe::read(headers),
            Self::Slack => slack::read(headers),
            Self::Standard => standard::read(headers),
        }
        .ok_or(MISSING)?;
        if signed_at.is_some_and(|at| at.abs_diff(now) > WINDOW) {
            return Err(OLD);
        }
        Ok(Claim { scheme: self, prefix, signatures })
    }
}

impl Scheme {
    /// The headers a sender of this kind adds to a body.
    pub fn headers(self, secret: &str, id: &str, now: u64, body: &[u8]) -> Vec<(&'static str, String)> {
        let made = |prefix: String| {
            let claim = Claim { scheme: self, prefix: prefix.into_bytes(), signatures: Vec::new() };
            claim.sign(secret, body)
        };
        let time = now.to_string();
        match self {
            Self::Github => vec![
                ("X-GitHub-Delivery", id.to_owned()),
                ("X-Hub-Signature-256", format!("sha256={}", to_hex(&made(String::new())))),
            ],
            Self::Stripe => {
                let signature = to_hex(&made(format!("{time}.")));
                vec![("Stripe-Signature", format!("t={time},v1={signature}"))]
            }
            Self::Slack => {
                let signature = to_hex(&made(format!("v0:{time}:")));
                vec![("X-Slack-Request-Timestamp", time), ("X-Slack-Signature", format!("v0={signature}"))]
            }
            Self::Standard => {
                let signature = standard::written(&made(format!("{id}.{time}.")));
                vec![
                    ("webhook-id", id.to_owned()),
                    ("webhook-timestamp", time),
                    ("webhook-signature", signature),
                ]
            }
        }
    }
}

/// When it was signed, where it says; what stands in front of the body; the signatures.
type Read = (Option<u64>, Vec<u8>, Vec<Vec<u8>>);

impl Claim {
    /// Holds the claim against the body.
    pub fn check(&self, secret: &str, body: &[u8]) -> Result<(), Unsigned> {
        let made = self.sign(secret, body);
        let mut passes = subtle::Choice::from(0);
        for signature in &self.signatures {
            passes |= signature.as_slice().ct_eq(&made);
        }
        if bool::from(passes) { Ok(()) } else { Err(WRONG) }
    }

    fn sign(&self, secret: &str, body: &[u8]) -> Vec<u8> {
        let key = match self.scheme {
            Scheme::Standard => standard::key(secret),
            _ => secret.as_bytes().to_vec(),
        };
        let mut made = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key));
        made.update(&self.prefix);
        made.update(body);
        made.sign().as_ref().to_vec()
    }
}

/// The one value of a header, as text. One that comes twice is none: what signed which is not known.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Seconds since 1970, in digits alone.
fn seconds(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The 32 bytes of a signature in hex.
fn hex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 64 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    text.as_bytes().chunks(2).map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use ostler_contract::http::header::HeaderName;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::try_from(*name).unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn verify(
        scheme: Scheme,
        pairs: &[(&str, &str)],
        secret: &str,
        body: &[u8],
        now: u64,
    ) -> Result<(), Unsigned> {
        scheme.claim(&headers(pairs), now)?.check(secret, body)
    }

    /// A published vector has to pass, and nothing beside it.
    fn holds(scheme: Scheme, pairs: &[(&str, &str)], secret: &str, body: &[u8], now: u64) {
        assert_eq!(verify(scheme, pairs, secret, body, now), Ok(()), "{scheme:?}");
        assert_eq!(verify(scheme, pairs, &format!("{secret}x"), body, now), Err(WRONG));
        assert_eq!(verify(scheme, pairs, secret, &[body, b" "].concat(), now), Err(WRONG));
        assert_eq!(verify(scheme, pairs, secret, &body[1..], now), Err(WRONG));
        for at in 0..pairs.len() {
            let mut fewer = pairs.to_vec();
            fewer.remove(at);
            assert_eq!(verify(scheme, &fewer, secret, body, now), Err(MISSING), "without {}", pairs[at].0);
            let mut twice = pairs.to_vec();
            twice.push(pairs[at]);
            assert_eq!(verify(scheme, &twice, secret, body, now), Err(MISSING), "{} twice", pairs[at].0);
        }
        if scheme != Scheme::Github {
            assert_eq!(verify(scheme, pairs, secret, body, now + WINDOW), Ok(()));
            assert_eq!(verify(scheme, pairs, secret, body, now - WINDOW), Ok(()));
            assert_eq!(verify(scheme, pairs, secret, body, now + WINDOW + 1), Err(OLD));
            assert_eq!(verify(scheme, pairs, secret, body, now - WINDOW - 1), Err(OLD));
        }
    }

    #[test]
    fn the_vector_github_publishes() {
        holds(
            Scheme::Github,
            &[(
                "X-Hub-Signature-256",
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
            )],
            "It's a Secret to Everybody",
            b"Hello, World!",
            0,
        );
    }

    #[test]
    fn the_vector_slack_publishes() {
        holds(
            Scheme::Slack,
            &[
                ("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
                ("X-Slack-Request-Timestamp", "1531420618"),
            ],
            "8f742231b10e8888abcd99yyyzzz85a5",
            include_bytes!("../../tests/senders/slack-command.form"),
            1_531_420_618,
        );
    }

    #[test]
    fn the_vector_of_stripes_own_library() {
        let signature = "t=1533204620,v1=f0bdba6d4eacbd8ad8a3bbadd7248e633ec1477f7899c124c51b39405fa36613,\
                         v0=63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef";
        holds(
            Scheme::Stripe,
            &[("Stripe-Signature", signature)],
            "webhook_secret",
            include_bytes!("../../tests/senders/stripe-invoice-item.json"),
            1_533_204_620,
        );
        let rolled = format!("t=1533204620,v1={},{}", "0".repeat(64), &signature[13..]);
        let body = include_bytes!("../../tests/senders/stripe-invoice-item.json");
        let checked =
            verify(Scheme::Stripe, &[("Stripe-Signature", &rolled)], "webhook_secret", body, 1_533_204_620);
        assert_eq!(checked, Ok(()), "any of the signatures passes while a secret is rolled");
    }

    #[test]
    fn the_vector_standard_webhooks_publishes() {
        let pairs = [
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ];
        let (body, now) = (br#"{"test": 2432232314}"#, 1_614_265_330);
        holds(Scheme::Standard, &pairs, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", body, now);
        let bare = verify(Scheme::Standard, &pairs, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", body, now);
        assert_eq!(bare, Ok(()), "the prefix of the secret may be left out");
        let several = format!("v1a,AAAA v1,AAAA {}", pairs[2].1);
        let several = [pairs[0], pairs[1], ("webhook-signature", several.as_str())];
        assert_eq!(verify(Scheme::Standard, &several, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", body, now), Ok(()));
    }

    #[test]
    fn what_is_signed_here_passes_here() {
        for scheme in [Scheme::Github, Scheme::Stripe, Scheme::Slack, Scheme::Standard] {
            let signed = scheme.headers("whsec_c2VjcmV0", "id", 1000, b"{}");
            let pairs: Vec<_> = signed.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(verify(scheme, &pairs, "whsec_c2VjcmV0", b"{}", 1000), Ok(()), "{scheme:?}");
            assert_eq!(verify(scheme, &pairs, "whsec_c2VjcmV0", b"{ }", 1000), Err(WRONG), "{scheme:?}");
        }
    }

    proptest::proptest! {
        /// Whatever the headers say, only the secret's own signature passes.
        #[test]
        fn no_header_passes_by_itself(
            scheme in 0..4_usize,
            value in "(sha256=|v0=|v1,|t=1,v1=)?[ -~]{0,80}",
            time in "[0-9]{0,12}",
        ) {
            let scheme = [Scheme::Github, Scheme::Stripe, Scheme::Slack, Scheme::Standard][scheme];
            let pairs = [
                ("x-hub-signature-256", value.as_str()), ("stripe-signature", &value), ("x-slack-signature", &value),
                ("x-slack-request-timestamp", &time), ("webhook-id", "id"), ("webhook-timestamp", &time),
                ("webhook-signature", &value),
            ];
            let now = time.parse().unwrap_or_default();
            let checked = verify(scheme, &pairs, "secret", b"[]", now);
            proptest::prop_assert!(checked.is_err());
        }
    }
}
