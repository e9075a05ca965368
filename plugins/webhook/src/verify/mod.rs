//! Senders that cannot send a bearer token authenticate in their own way, most of them with a signature over the exact
//! bytes of the body, created with the endpoint's secret. A sender is a file with a [`Sender`] and a row of
//! [`SENDERS`].

mod basic;
mod bitbucket;
mod body_secrets;
mod discord;
mod github;
mod gitlab;
mod hmac;
mod linear;
mod netlify;
mod pagerduty;
mod plain;
mod retries;
mod sendgrid;
mod sentry;
mod shopify;
mod slack;
mod standard;
mod stripe;
mod telegram;
mod timed_header;
mod twilio;
mod twitch;
mod urls;

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use ostler_contract::http::{HeaderMap, Method};
use ostler_contract::protocol::surrogates::{KeyText, read_json};
use ostler_contract::{JsonObject, Value, json};
use serde::Deserialize;
use subtle::ConstantTimeEq;
use url::form_urlencoded;

use crate::route::Head;

pub(crate) use retries::{Pauses, Retries};
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
    &plain::GITEA,
    &plain::FORGEJO,
    &plain::JIRA,
    &plain::META,
    &plain::INTERCOM,
    &plain::TYPEFORM,
    &plain::VERCEL,
    &plain::DROPBOX,
    &plain::X,
    &plain::ZOOM,
    &plain::ZENDESK,
    &plain::GRAFANA,
    &plain::CIRCLECI,
    &timed_header::CALENDLY,
    &timed_header::PADDLE,
    &timed_header::BUILDKITE,
    &urls::TRELLO,
    &urls::SQUARE,
    &urls::HUBSPOT,
    &telegram::SENDER,
    &twitch::SENDER,
    &netlify::SENDER,
    &sendgrid::SENDER,
    &body_secrets::MAILGUN,
    &body_secrets::MICROSOFT_GRAPH,
    &standard::SVIX,
    &standard::CLERK,
    &standard::RESEND,
    &standard::SENDER,
    &basic::SENDER,
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
    /// How long ago a signed time may be, in seconds.
    pub window: u64,
    /// The answer to an accepted call that fires automations.
    pub success: Success,
    /// What it does with a call that failed.
    pub retries: Retries,
    /// The position of the name of the event.
    pub event: Option<EventName>,
    /// The answer to a request by which the sender checks an address before it delivers. Nothing of it is verified.
    pub handshake: fn(&Method, &Head) -> Option<Greeting>,
    /// Creates the verification of its calls from those fields.
    pub scheme: fn(&JsonObject) -> Result<Arc<dyn Scheme>, String>,
    /// Calls with published signatures, or with signatures from another program.
    #[cfg(test)]
    pub vectors: &'static [Vector],
}

impl Sender {
    /// What most senders have in common. A declaration has at least a name, an example, headers and a scheme.
    const PLAIN: Self = Self {
        name: "",
        example: "",
        headers: &[],
        body_limit: 1 << 20,
        delivery: Delivery::Unknown,
        fields: &[],
        window: WINDOW,
        success: Success::Accepted,
        retries: Retries::UNKNOWN,
        event: None,
        handshake: |_, _| None,
        scheme: |_| Err(String::new()),
        #[cfg(test)]
        vectors: &[],
    };
}

/// The answer to an accepted call, where a sender takes another one for a failure or shows it to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Success {
    /// 202 with the endpoint.
    Accepted,
    /// 200 with the endpoint.
    Ok,
    /// 200 without a body.
    Empty,
}

impl Success {
    /// The status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::Accepted => 202,
            Self::Ok | Self::Empty => 200,
        }
    }
}

/// The position of the name of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventName {
    /// In a header.
    Header(&'static str),
    /// In this field of the body, as in `{{event.<field>}}`.
    Field(&'static str),
}

/// The position of the id of a delivery.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Delivery {
    /// In a header.
    Header(&'static str),
    /// In the first of these headers that a call has.
    FirstOf(&'static [&'static str]),
    /// In the body.
    Body(fn(&[u8]) -> Option<String>),
    /// The sender has none, or its header is unknown.
    Unknown,
}

impl Delivery {
    /// Returns the header in which this program sends the id.
    fn header(self) -> Option<&'static str> {
        match self {
            Self::Header(name) => Some(name),
            Self::FirstOf(names) => names.first().copied(),
            Self::Body(_) | Self::Unknown => None,
        }
    }
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
        let at = claim.at.map_or(Ok(()), |at| recent(at, now, self.window()));
        at.map(|()| Proof::Body)
    }

    /// How long ago a time that a header has may be, in seconds.
    fn window(&self) -> u64 {
        WINDOW
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
pub(crate) const WRONG: Unsigned = "The sender's signature does not match the endpoint's secret";

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
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Greeting {
    /// The answer of a call.
    Accepted,
    /// 200 with this body.
    Json(Value),
    /// 200 with this text.
    Text(String),
    /// 204.
    Empty,
    /// 200 with a proof that the endpoint has the secret.
    Keyed(Keyed, String),
}

/// A proof of the secret over a token that the sender chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyed {
    /// `{ plainToken, encryptedToken }`
    Zoom,
    /// `{ response_token }`
    X,
}

impl Keyed {
    /// Returns the answer to a token.
    pub fn answer(self, secret: &str, token: &str) -> Value {
        let made = hmac::made(::ring::hmac::HMAC_SHA256, secret.as_bytes(), &[token.as_bytes()]);
        match self {
            Self::Zoom => json!({ "plainToken": token, "encryptedToken": ::hex::encode(made) }),
            Self::X => json!({ "response_token": format!("sha256={}", STANDARD.encode(made)) }),
        }
    }
}

/// Returns a parameter of a URL that a handshake sends back or signs. Only few characters can be in it: with a JSON object as
/// token, the answer would be the signature of a call.
fn token_of(head: &Head, name: &str) -> Option<String> {
    let query = head.uri.query()?;
    let (_, token) = form_urlencoded::parse(query.as_bytes()).find(|(found, _)| found == name)?;
    is_token(&token).then(|| token.into_owned())
}

fn is_token(token: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~=+/".contains(&byte);
    (1..=MOST_TOKEN).contains(&token.len()) && token.bytes().all(is_plain)
}

/// The maximum length of a token of a handshake, in bytes.
const MOST_TOKEN: usize = 1024;

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
        if let Some(name) = self.sender.delivery.header() {
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
    at.map_or(Ok(()), |at| recent(at, now, WINDOW))
}

/// Returns whether a time is at most `window` seconds ago. A clock may be ahead by [`WINDOW`].
fn recent(at: u64, now: u64, window: u64) -> Result<(), Unsigned> {
    let passes = now.saturating_sub(at) <= window && at.saturating_sub(now) <= WINDOW;
    if passes { Ok(()) } else { Err(OLD) }
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

/// Parses seconds or milliseconds since 1970, or a time of RFC 3339, as seconds.
fn seconds_of(text: &str) -> Option<u64> {
    match seconds(text) {
        Some(at) if at > MOST_SECONDS => Some(at / 1000),
        Some(at) => Some(at),
        None => u64::try_from(text.parse::<Timestamp>().ok()?.as_second()).ok(),
    }
}

/// Times above this are milliseconds since 1970: in seconds they are in the year 5138.
const MOST_SECONDS: u64 = 99_999_999_999;

/// The fields that identify a delivery in the bodies of most senders.
#[derive(Deserialize)]
struct Ids {
    id: Option<KeyText>,
    event_id: Option<KeyText>,
}

/// The field `id` of a body.
fn body_id(body: &[u8]) -> Option<String> {
    read_json::<Ids>(body).ok()?.id.map(|KeyText(id)| id)
}

/// The field `event_id` of a body.
fn body_event_id(body: &[u8]) -> Option<String> {
    read_json::<Ids>(body).ok()?.event_id.map(|KeyText(id)| id)
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
    /// Whether another body does not pass. Few senders sign something else.
    pub is_covered: bool,
    /// Whether the time is signed, so that the call does not pass later.
    pub timed: bool,
    /// When it was signed, in seconds since 1970.
    pub at: u64,
}

/// The body of most calls that were made for the tests.
#[cfg(test)]
const BODY: &[u8] = br#"{"id":"1","event_id":"2","type":"ping-pong"}"#;

/// Such a call.
#[cfg(test)]
const MADE: Vector = Vector {
    of: "a call as the documentation describes it, signed by Python",
    secret: "it is a secret",
    ..Vector::UNTIMED
};

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
        is_covered: true,
        timed: false,
        at: 1_700_000_000,
    };
}

#[cfg(test)]
mod tests;
