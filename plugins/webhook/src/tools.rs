//! What a command line needs to know of endpoints: whether a record is one, and what a caller has to send.

use ostler_contract::JsonObject;

use crate::endpoint::{Endpoint, ReplyMode, Target};

/// The sentence about a record that is no endpoint.
pub fn no_endpoint(why: &str) -> String {
    format!("{why}; a call to it answers 404")
}

/// An endpoint, as its record says it.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
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

impl Facts {
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

    /// Whose way of signing stands in for the bearer: `github`, `stripe`, `slack` or `standard`.
    pub fn verify(&self) -> Option<&'static str> {
        self.endpoint.extras.verify.map(|scheme| scheme.name())
    }

    /// The headers a caller adds to be let in with this body, `now` being seconds since 1970 and `delivery` the
    /// call's own name.
    pub fn admission(
        &self,
        secret: &str,
        delivery: &str,
        now: u64,
        body: &[u8],
    ) -> Vec<(&'static str, String)> {
        match self.endpoint.extras.verify {
            Some(scheme) => scheme.headers(secret, delivery, now, body),
            None => vec![("Authorization", format!("Bearer {secret}"))],
        }
    }
}
