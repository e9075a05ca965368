//! What a command line needs to know of endpoints: whether a record is one, and what a caller has to send.

use ostler_contract::JsonObject;

use crate::cloudevents::test_headers;
use crate::endpoint::{Endpoint, ReplyMode, Target};
use crate::extras::Format;
pub use crate::verify::{Outgoing, Shell};
use crate::verify::{SENDERS, Signing, sign_standard};

/// The sentence about a record that is no endpoint.
pub fn no_endpoint(why: &str) -> String {
    format!("{why}; a call to it answers 404")
}

/// A sender that a record can name in `verify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderFacts {
    /// Its name.
    pub name: &'static str,
    /// What a record has in `verify`, as YAML: the name, or an object with the fields it needs.
    pub example: &'static str,
    /// The headers that a call needs.
    pub headers: &'static [&'static str],
}

/// A message signed as Standard Webhooks says, `now` being seconds since 1970: its body with the headers `webhook-id`,
/// `webhook-timestamp` and `webhook-signature`.
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
    })
}

/// An endpoint, as its record says it.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointFacts {
    /// The last segment of its URL.
    pub id: String,
    /// The bot it talks to; nothing where it fires automations.
    pub bot: Option<String>,
    /// `callback`, `sync` or `none`, where it talks to a bot.
    pub reply: Option<&'static str>,
    /// What every callback has to start with.
    pub callback_prefix: Option<String>,
    /// The vault name of its secret.
    pub secret: String,
    /// What is odd about the record.
    pub warnings: Vec<String>,
    endpoint: Endpoint,
}

impl EndpointFacts {
    /// Reads a record.
    ///
    /// # Errors
    /// What makes it no endpoint.
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

    /// The sender whose way of signing stands in for the bearer: one of [`senders`].
    pub fn verify(&self) -> Option<&'static str> {
        self.endpoint.extras.verify.as_ref().map(|verify| verify.sender.name)
    }

    /// The vault name of the key that bodies are stored with, where they are.
    pub fn bodies_key(&self) -> Option<&str> {
        self.endpoint.extras.body_retention.as_ref().map(|retention| &*retention.key)
    }

    /// A call with this body, as its sender makes it, `now` being seconds since 1970 and `delivery` the delivery's id.
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

    /// The headers that make a body an event, with this id, where the endpoint takes events.
    pub fn event(&self, id: &str) -> Vec<(String, String)> {
        let headers = match self.endpoint.extras.format {
            Some(Format::CloudEvents) => test_headers(id).to_vec(),
            None => Vec::new(),
        };
        headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// How a shell makes such a call, where a bearer is not enough and it can.
    pub fn shell(&self, secret: &str) -> Option<Shell> {
        self.endpoint.extras.verify.as_ref().and_then(|verify| verify.scheme.shell(secret))
    }

    /// The endpoint's sender, where nobody else can sign its calls, so that a secret made here is of no use.
    pub fn signs_alone(&self) -> Option<&'static str> {
        let verify = self.endpoint.extras.verify.as_ref()?;
        verify.scheme.shell("").is_none().then_some(verify.sender.name)
    }

    /// Why the endpoint's sender cannot have such a secret, after the secret's name.
    pub fn unusable(&self, secret: &str) -> Option<&'static str> {
        self.endpoint.unusable(secret)
    }
}
