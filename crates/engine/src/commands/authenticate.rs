//! `authenticate`: tokens for the resources the host asks for, and who a connection is.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::events::Event;
use ostler_protocol::message::encode;
use ostler_protocol::wire::commands as c;
use ostler_protocol::wire::state::ProtectedResourceMetadata;
use ostler_protocol::{RpcError, Value, json, uri};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::people::{People, Person};
use crate::principal::Principal;

impl Connection {
    pub(super) fn handle_authenticate(
        self: &Arc<Self>,
        params: &c::AuthenticateParams,
    ) -> Result<Value, RpcError> {
        let lasts = match params.expires_in {
            None => None,
            Some(seconds) => match u64::try_from(seconds) {
                Ok(seconds) if seconds > 0 => Some(Duration::from_secs(seconds)),
                _ => return Err(RpcError::invalid_params("expiresIn has to be a number of seconds above 0")),
            },
        };
        let host = self.host().clone();
        let sign_in = host.gate.people().filter(|people| people.sign_in().resource == params.resource);
        let (record, nth) = match sign_in {
            Some(people) => (people.sign_in().clone(), self.sign_in(people, &params.token)?),
            None => {
                let agents = host.root.agents();
                let asked = agents.iter().flat_map(|agent| agent.protected_resources.iter().flatten());
                let record = asked.into_iter().find(|asked| asked.resource == params.resource).cloned();
                let record = record.ok_or_else(|| {
                    RpcError::invalid_params(format!(
                        "{} is not a resource this host asks for",
                        params.resource
                    ))
                })?;
                (record, Some(self.keep_credential(&params.resource, &params.token)))
            }
        };
        if let (Some(nth), Some(lasts), false) = (nth, lasts, params.token.is_empty()) {
            self.expire(record, nth, lasts);
        }
        host.events.raise(Event::Authenticated {
            client: self.client_id().unwrap_or_default(),
            resource: params.resource.clone(),
        });
        Ok(json!({}))
    }

    /// Makes the connection the person's whose token it is; an empty token makes it nobody's. The host itself and
    /// plugins are who they are.
    fn sign_in(self: &Arc<Self>, people: &Arc<People>, token: &str) -> Result<Option<u64>, RpcError> {
        let resource = &people.sign_in().resource;
        match self.principal() {
            Principal::Root => return Ok(None),
            Principal::Plugin { id, .. } => {
                return Err(RpcError::permission_denied(format!(
                    "the connection of plugin {id} stays its own"
                )));
            }
            Principal::Anyone | Principal::Person(_) => {}
        }
        if token.is_empty() {
            self.become_principal(resource, Principal::Anyone);
            self.drop_forbidden();
            return Ok(None);
        }
        let person = people.person_of_token(token).ok_or_else(|| {
            RpcError::auth_required("this token is nobody's here; ask whoever runs this host for a new one")
                .with_data(json!({ "resources": [people.sign_in()] }))
        })?;
        let nth = self.become_principal(resource, Principal::Person(person.clone()));
        self.drop_forbidden();
        self.put_down_first_sign_in(people, &person);
        Ok(Some(nth))
    }

    /// Work of a person starts by itself only once that person was here, so the first time is kept.
    fn put_down_first_sign_in(&self, people: &People, person: &Person) {
        if person.has_signed_in {
            return;
        }
        let (host, id, at) = (self.host().clone(), person.id.clone(), self.host().clock.iso());
        let who = id.clone();
        let kept = people.change(Box::new(move |file| file.set_signed_in(&id, &at)));
        tokio::spawn(async move {
            if let Err(why) = kept.await {
                host.log.line(format_args!("that user {who} was here could not be kept: {why}"));
            }
        });
    }

    /// Ends what a token gave once its time is over, and says so to this connection alone.
    fn expire(self: &Arc<Self>, record: ProtectedResourceMetadata, nth: u64, lasts: Duration) {
        // Longer than the clock counts is forever.
        let Some(end) = Instant::now().checked_add(lasts) else { return };
        let connection = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(end).await;
            let Some(connection) =
                connection.upgrade().filter(|open| open.still_spends(&record.resource, nth))
            else {
                return;
            };
            let sign_in = connection.host().gate.people().map(|people| people.sign_in().resource.clone());
            match sign_in.as_ref() == Some(&record.resource) {
                true => {
                    connection.become_principal(&record.resource, Principal::Anyone);
                    connection.drop_forbidden();
                }
                false => drop(connection.keep_credential(&record.resource, "")),
            }
            let params = json!({ "channel": uri::ROOT, "resource": record, "reason": "expired" });
            if let Ok(frame) = encode::notification("auth/required", &params) {
                connection.outbox.send(frame);
            }
        });
    }
}
