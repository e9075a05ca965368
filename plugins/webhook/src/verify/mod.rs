//! Senders that cannot send a bearer token authenticate in their own way, most of them with a signature over the exact
//! bytes of the body, created with the endpoint's secret. A sender is a file with a [`Sender`] and a row of
//! [`SENDERS`].

mod bitbucket;
mod discord;
mod github;
mod gitlab;
mod hmac;
mod linear;
mod pagerduty;
mod sentry;
mod shopify;
mod slack;
mod standard;
mod stripe;
mod twilio;

use std::fmt;
use std::sync::Arc;

use ostler_contract::http::HeaderMap;
use ostler_contract::{JsonObject, Value};
use subtle::ConstantTimeEq;

use crate::route::Head;

pub(crate) use standard::sign as sign_standard;

/// The senders that a record can name in `verify`.
pub(crate) static SENDERS: &[&Sender] = &[
    &github::SENDER,
    &gitlab::SENDER,
    &bitbucket::SENDER,
    &stripe::SENDER,
    &slack::SENDER,
    &linear::SENDER,
    &sentry::SENDER,
    &pagerduty::SENDER,
    &shopify::SENDER,
    &twilio::SENDER,
    &discord::SENDER,
    &standard::SENDER,
    &hmac::SENDER,
];

/// A sender that a record can name in `verify`.
pub(crate) struct Sender {
    /// Its name in a record.
    pub name: &'static str,
    /// The value of `verify` as YAML: the name, or an object with the required fields.
    pub example: &'static str,
    /// The required headers of a call, each exactly once.
    pub headers: &'static [&'static str],
    /// The maximum size of its bodies.
    pub body_limit: usize,
    /// The position of the id that is the same for repeated deliveries.
    pub delivery: Delivery,
    /// The fields of `verify` besides `scheme`.
    pub fields: &'static [&'static str],
    /// Creates the verification of its calls from those fields.
    pub scheme: fn(&JsonObject) -> Result<Arc<dyn Scheme>, String>,
    /// Calls with published signatures, or with signatures from another program.
    #[cfg(test)]
    pub vectors: &'static [Vector],
}

/// The position of the id of a delivery.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Delivery {
    /// In a header.
    Header(&'static str),
    /// In the body.
    Body(fn(&[u8]) -> Option<String>),
    /// The sender has none, or its header is unknown.
    Unknown,
}

/// The verification of calls.
pub(crate) trait Scheme: fmt::Debug + Send + Sync {
    /// Parses the claim in the headers. Without a valid claim, the body is not read.
    fn claim(&self, head: &Head) -> Option<Claim>;

    /// Checks a claim before the body is read.
    ///
    /// # Errors
    /// Why the call does not pass.
    fn admit(&self, claim: &Claim, secret: &str, now: u64) -> Result<Proof, Unsigned> {
        let _ = secret;
        fresh(claim.at, now).map(|()| Proof::Body)
    }

    /// The key that a secret stands for.
    fn key(&self, secret: &str) -> Vec<u8> {
        secret.as_bytes().to_vec()
    }

    /// Checks a claim against the body.
    ///
    /// # Errors
    /// Why the call does not pass.
    fn check(&self, claim: &Claim, secret: &str, body: &[u8], now: u64) -> Result<(), Unsigned> {
        let _ = now;
        claim.is_one_of(&[hmac::made(::ring::hmac::HMAC_SHA256, &self.key(secret), &[&claim.prefix, body])])
    }

    /// Returns why a secret is invalid for this sender, independent of calls.
    fn unusable(&self, secret: &str) -> Option<&'static str> {
        let _ = secret;
        None
    }

    /// The answer to a verified call that only asks whether the endpoint is there.
    fn greeting(&self, head: &Head, body: &[u8]) -> Option<Greeting> {
        let _ = (head, body);
        None
    }

    /// Adds to a call what the sender adds.
    ///
    /// # Errors
    /// Why only the sender can make such a call.
    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String>;

    /// Returns how a shell adds it.
    fn shell(&self, secret: &str) -> Option<Shell>;
}

/// The tolerated deviation of a sender's clock, in seconds.
const WINDOW: u64 = 300;

/// Why a call is rejected. It does not contain the expected value.
pub(crate) type Unsigned = &'static str;

pub(crate) const MISSING: Unsigned = "The sender's signature is missing or malformed";
const OLD: Unsigned = "The sender's signature has expired";
const WRONG: Unsigned = "The sender's signature does not match the endpoint's secret";

/// The remaining checks after the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The body.
    Body,
    /// Nothing: the sender has shown the secret.
    Sender,
}

/// The claim in the headers of a call.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// The time of the signature in seconds since 1970, if a header contains it.
    at: Option<u64>,
    /// The signed text before the body.
    prefix: Vec<u8>,
    /// The signatures, any of which is accepted, because a sender whose secret changes uses both for a while.
    signatures: Vec<Vec<u8>>,
    /// The candidate for the secret.
    token: Option<Vec<u8>>,
}

/// The answer to a call that only asks whether the endpoint is there.
#[derive(Debug, PartialEq)]
pub(crate) enum Greeting {
    /// The answer of a call.
    Accepted,
    /// 200 with this body.
    Json(Value),
    /// 204.
    Empty,
}

/// The inputs of a signature if this program is the sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signing<'a> {
    /// The endpoint's secret.
    pub secret: &'a str,
    /// The delivery's id.
    pub id: &'a str,
    /// Seconds since 1970.
    pub now: u64,
}

/// A call that this program makes to an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// The query of its URL.
    pub query: Option<String>,
    /// The headers, besides `Content-Type`.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Outgoing {
    pub(crate) fn header(&mut self, name: &str, value: impl Into<String>) {
        self.headers.push((name.to_owned(), value.into()));
    }
}

/// The shell commands that call an endpoint like its sender: `$SECRET` is the secret, `$B` the body, `$T` the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shell {
    /// Commands before the call.
    pub before: String,
    /// The query of the URL, for double quotes.
    pub query: Option<String>,
    /// Headers, for double quotes.
    pub headers: Vec<String>,
}

/// The command that sets `$T`.
const TIME: &str = "T=$(date +%s); ";

/// The verification of an endpoint's calls, from its record.
#[derive(Clone)]
pub(crate) struct Verify {
    pub sender: &'static Sender,
    fields: JsonObject,
    pub scheme: Arc<dyn Scheme>,
}

impl Verify {
    /// Parses the field `verify` of a record: the name of a sender, or `{ scheme: <name>, … }`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: &Value) -> Result<Self, String> {
        let (name, fields) = match value {
            Value::String(name) => (Some(name.clone()), JsonObject::new()),
            Value::Object(fields) => {
                let mut fields = fields.clone();
                let name = fields.remove("scheme");
                (name.and_then(|name| name.as_str().map(str::to_owned)), fields)
            }
            _ => (None, JsonObject::new()),
        };
        let sender = SENDERS.iter().find(|sender| Some(sender.name) == name.as_deref());
        let sender = sender.ok_or_else(|| format!("verify must be {}", names()))?;
        if let Some(odd) = fields.keys().find(|field| !sender.fields.contains(&field.as_str())) {
            return Err(match sender.fields {
                [] => format!("verify {} has no fields; {odd} is not one", sender.name),
                fields => {
                    format!("verify {} has the fields {}; {odd} is not one", sender.name, fields.join(", "))
                }
            });
        }
        let scheme = (sender.scheme)(&fields)?;
        Ok(Self { sender, fields, scheme })
    }

    /// Adds to a call what the sender adds.
    ///
    /// # Errors
    /// Why only the sender can make such a call.
    pub fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        if let Delivery::Header(name) = self.sender.delivery {
            call.header(name, signing.id);
        }
        self.scheme.sign(signing, call)
    }
}

impl fmt::Debug for Verify {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Verify").field(&self.sender.name).field(&self.scheme).finish()
    }
}

impl PartialEq for Verify {
    fn eq(&self, other: &Self) -> bool {
        self.sender.name == other.sender.name && self.fields == other.fields
    }
}

/// `github, stripe, slack or standard`
fn names() -> String {
    let names: Vec<&str> = SENDERS.iter().map(|sender| sender.name).collect();
    match names.split_last() {
        Some((last, before)) => format!("{} or {last}", before.join(", ")),
        None => String::new(),
    }
}

impl Claim {
    /// Returns whether one of the signatures is one of these, in a time that does not reveal which.
    fn is_one_of(&self, made: &[Vec<u8>]) -> Result<(), Unsigned> {
        let mut passes = subtle::Choice::from(0);
        for signature in &self.signatures {
            for made in made {
                passes |= signature.as_slice().ct_eq(made);
            }
        }
        if bool::from(passes) { Ok(()) } else { Err(WRONG) }
    }
}

/// Returns whether a time is close to the current one.
fn fresh(at: Option<u64>, now: u64) -> Result<(), Unsigned> {
    if at.is_some_and(|at| at.abs_diff(now) > WINDOW) { Err(OLD) } else { Ok(()) }
}

/// Returns the single value of a header as text; `None` for a repeated header, because its meaning is ambiguous.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Parses seconds since 1970, with only digits.
fn seconds(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses a number of bytes in hex.
fn from_hex(text: &str, length: usize) -> Option<Vec<u8>> {
    hex::decode(text).ok().filter(|bytes| bytes.len() == length)
}

/// A call whose signature is known.
#[cfg(test)]
pub(crate) struct Vector {
    /// What it is a vector of, and where it is from.
    pub of: &'static str,
    /// `verify`, as JSON.
    pub verify: &'static str,
    pub query: &'static str,
    /// All of these are needed, each of them once.
    pub headers: &'static [(&'static str, &'static str)],
    pub secret: &'static str,
    pub body: &'static [u8],
    /// What the signature is checked against.
    pub proof: Proof,
    /// Whether the time is signed, so that the call does not pass later.
    pub timed: bool,
    /// When it was signed, in seconds since 1970.
    pub at: u64,
}

#[cfg(test)]
impl Vector {
    /// A call that signs no time.
    pub const UNTIMED: Self = Self {
        of: "",
        verify: "",
        query: "",
        headers: &[],
        secret: "",
        body: b"",
        proof: Proof::Body,
        timed: false,
        at: 1_700_000_000,
    };
}

#[cfg(test)]
mod tests;
