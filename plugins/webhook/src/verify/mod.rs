//! Senders that cannot send a bearer token prove in their own way who they are, most of them with a signature that is
//! made with the endpoint's secret over the body as it came, byte for byte. A sender is a file with a [`Sender`] and a
//! row of [`SENDERS`].

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
    /// What a record has in `verify`, as YAML: the name, or an object with the fields it needs.
    pub example: &'static str,
    /// The headers that a call needs, each of them once.
    pub headers: &'static [&'static str],
    /// The largest body it sends.
    pub body_limit: usize,
    /// The id that is the same when it repeats a delivery.
    pub delivery: Delivery,
    /// The fields of `verify` besides `scheme`.
    pub fields: &'static [&'static str],
    /// How its calls are verified, from those fields.
    pub scheme: fn(&JsonObject) -> Result<Arc<dyn Scheme>, String>,
    /// Calls whose signatures are published, or made with another program.
    #[cfg(test)]
    pub vectors: &'static [Vector],
}

/// Where the id of a delivery is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Delivery {
    /// In a header.
    Header(&'static str),
    /// In the body.
    Body(fn(&[u8]) -> Option<String>),
    /// The sender has none, or it is not known which header has it.
    Unknown,
}

/// How calls are verified.
pub(crate) trait Scheme: fmt::Debug + Send + Sync {
    /// Reads what the headers claim. The body of a call that claims nothing, or something malformed, is not read.
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

    /// Why a secret cannot be one of this sender's, whatever the calls are.
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
    /// Why nobody else can make such a call.
    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String>;

    /// How a shell adds it.
    fn shell(&self, secret: &str) -> Option<Shell>;
}

/// How far a sender's clock may be off, in seconds, either way.
const WINDOW: u64 = 300;

/// Why a call does not pass. What was expected is not said.
pub(crate) type Unsigned = &'static str;

pub(crate) const MISSING: Unsigned = "The sender's signature is missing or malformed";
const OLD: Unsigned = "The sender's signature has expired";
const WRONG: Unsigned = "The sender's signature does not match the endpoint's secret";

/// What is left to check after the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The body.
    Body,
    /// Nothing: the sender has shown the secret.
    Sender,
}

/// What the headers of a call claim.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// When it was signed, in seconds since 1970, where a header says so.
    at: Option<u64>,
    /// What is signed in front of the body.
    prefix: Vec<u8>,
    /// Any of these passes: a sender whose secret changes signs with both for a while.
    signatures: Vec<Vec<u8>>,
    /// What may be the secret.
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

/// What a call is signed with, where this program is the sender.
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
    /// The body.
    pub body: String,
}

impl Outgoing {
    pub(crate) fn header(&mut self, name: &str, value: impl Into<String>) {
        self.headers.push((name.to_owned(), value.into()));
    }
}

/// How a shell calls an endpoint as its sender: `$SECRET` is the secret, `$B` the body, `$T` the time.
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

/// How the calls of an endpoint are verified, as its record says.
#[derive(Clone)]
pub(crate) struct Verify {
    pub sender: &'static Sender,
    fields: JsonObject,
    pub scheme: Arc<dyn Scheme>,
}

impl Verify {
    /// Reads the field `verify` of a record: the name of a sender, or `{ scheme: <name>, … }`.
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
    /// Why nobody else can make such a call.
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
    /// Whether one of the signatures is one of these, in a time that does not show which.
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

/// Whether a time is close to now.
fn fresh(at: Option<u64>, now: u64) -> Result<(), Unsigned> {
    if at.is_some_and(|at| at.abs_diff(now) > WINDOW) { Err(OLD) } else { Ok(()) }
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

/// So many bytes in hex.
fn hex(text: &str, length: usize) -> Option<Vec<u8>> {
    if text.len() != 2 * length {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    text.as_bytes().chunks(2).map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
