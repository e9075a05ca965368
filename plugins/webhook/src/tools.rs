//! Facts about endpoints for the command line: whether a record is valid, and what a caller has to send.

use ostler_contract::JsonObject;

use crate::cloudevents::test_headers;
use crate::endpoint::{Endpoint, ReplyMode, Target};
use crate::extras::Format;
use crate::verify::{Delivery, EventName, Pauses, SENDERS, Signing, sign_standard};
pub use crate::verify::{Outgoing, Shell};

/// Returns the message about an invalid record.
pub fn no_endpoint(why: &str) -> String {
    format!("{why}; a call to it answers 404")
}

/// A sender that a record can name in `verify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderFacts {
    pub name: &'static str,
    /// The value of `verify` as YAML: the name, or an object with the required fields.
    pub example: &'static str,
    /// The required headers of a call.
    pub headers: &'static [&'static str],
    /// The status of the answer to an accepted call that fires automations.
    pub success: u16,
    /// How long it waits for an answer, in seconds, if it says so.
    pub waits: Option<u64>,
    /// The pauses before it repeats a failed call, in seconds, if it says so; empty if it never does.
    pub pauses: Option<&'static [u64]>,
    /// The time from a delivery's first call to its last one, in seconds.
    pub span: u64,
    /// The position of the name of the event: a header, or a field of the body.
    pub event: Option<&'static str>,
}

/// Signs a message according to Standard Webhooks, with `now` in seconds since 1970: returns its body with the headers
/// `webhook-id`, `webhook-timestamp` and `webhook-signature`.
pub fn signed(secret: &str, id: &str, now: u64, body: String) -> Outgoing {
    let mut call = Outgoing { body, ..Outgoing::default() };
    sign_standard(&Signing { secret, id, now }, &mut call);
    call
}

/// The senders that a record can name in `verify`.
pub fn senders() -> impl Iterator<Item = SenderFacts> {
    SENDERS.iter().map(|sender| SenderFacts {
        name: sender.name,
        example: sender.example,
        headers: sender.headers,
        success: sender.success.status(),
        waits: sender.retries.waits,
        pauses: match sender.retries.pauses {
            Pauses::After(pauses) => Some(pauses),
            Pauses::Never => Some(&[]),
            Pauses::Unknown | Pauses::Within(..) => None,
        },
        span: sender.retries.span(),
        event: sender.event.map(|event| match event {
            EventName::Header(name) | EventName::Field(name) => name,
        }),
    })
}

/// A description of an endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointFacts {
    /// The last segment of its URL.
    pub id: String,
    /// Its bot; `None` if it fires automations.
    pub bot: Option<String>,
    /// `callback`, `sync` or `none`, for a bot.
    pub reply: Option<&'static str>,
    /// The required prefix of callbacks.
    pub callback_prefix: Option<String>,
    /// The vault name of its secret.
    pub secret: String,
    /// Harmless problems of the record.
    pub warnings: Vec<String>,
    endpoint: Endpoint,
}

impl EndpointFacts {
    /// Parses a record.
    ///
    /// # Errors
    /// Why it is not an endpoint.
    pub fn read(record: &JsonObject) -> Result<Self, String> {
        let (endpoint, warnings) = Endpoint::read(record)?;
        let (bot, reply, prefix) = match &endpoint.target {
            Target::Automation => (None, None, None),
            Target::Bot(target) => {
                let reply = match target.reply {
                    ReplyMode::Callback => "callback",
                    ReplyMode::Sync => "sync",
                    ReplyMode::None => "none",
                };
                let prefix = target.callback_prefix.as_ref().map(|prefix| prefix.as_str().to_owned());
                (Some(target.bot.clone()), Some(reply), prefix)
            }
        };
        Ok(Self {
            id: endpoint.id.to_string(),
            bot,
            reply,
            callback_prefix: prefix,
            secret: endpoint.secret.clone(),
            warnings,
            endpoint,
        })
    }

    /// Returns the sender whose signature replaces the bearer token: one of [`senders`].
    pub fn verify(&self) -> Option<&'static str> {
        self.endpoint.extras.verify.as_ref().map(|verify| verify.sender.name)
    }

    /// Returns the sender if it has an id for each delivery by which repeated ones could be recognized, and are not.
    pub fn without_dedupe(&self) -> Option<&'static str> {
        let verify =
            self.endpoint.extras.verify.as_ref().filter(|_| self.endpoint.extras.dedupe.is_none())?;
        (!matches!(verify.sender.delivery, Delivery::Unknown)).then_some(verify.sender.name)
    }

    /// Returns in one sentence what the endpoint's sender does with a call that failed.
    pub fn retries(&self) -> Option<String> {
        let sender = self.endpoint.extras.verify.as_ref()?.sender;
        Some(sender.retries.said(sender.name))
    }

    /// Returns the vault name of the key for stored bodies, if they are stored.
    pub fn bodies_key(&self) -> Option<&str> {
        self.endpoint.extras.body_retention.as_ref().map(|retention| &*retention.key)
    }

    /// Creates a call with this body like the sender, with `now` in seconds since 1970 and `delivery` as the delivery's
    /// id.
    ///
    /// # Errors
    /// Why only the sender can make such a call.
    pub fn call(&self, secret: &str, delivery: &str, now: u64, body: String) -> Result<Outgoing, String> {
        let mut call = Outgoing { body, headers: self.event(delivery), ..Outgoing::default() };
        match &self.endpoint.extras.verify {
            Some(verify) => verify.sign(&Signing { secret, id: delivery, now }, &mut call)?,
            None => call.header("Authorization", format!("Bearer {secret}")),
        }
        Ok(call)
    }

    /// Returns the headers that make a body an event with this id, if the endpoint accepts events.
    pub fn event(&self, id: &str) -> Vec<(String, String)> {
        let headers = match self.endpoint.extras.format {
            Some(Format::CloudEvents) => test_headers(id).to_vec(),
            None => Vec::new(),
        };
        headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns how a shell makes such a call, if a bearer token is not enough and a shell can.
    pub fn shell(&self, secret: &str) -> Option<Shell> {
        self.endpoint.extras.verify.as_ref().and_then(|verify| verify.scheme.shell(secret))
    }

    /// Returns the endpoint's sender if only it can sign calls, so that a secret created here is useless.
    pub fn signs_alone(&self) -> Option<&'static str> {
        let verify = self.endpoint.extras.verify.as_ref()?;
        verify.scheme.shell("").is_none().then_some(verify.sender.name)
    }

    /// Returns why a secret is invalid for the endpoint's sender, after the secret's name.
    pub fn unusable(&self, secret: &str) -> Option<&'static str> {
        self.endpoint.unusable(secret)
    }
}
