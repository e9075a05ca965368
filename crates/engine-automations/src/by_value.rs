//! Sessions that the runs of an automation share, one for each value of a field of their events. A record in the host's
//! collection maps each value to its session.

use std::sync::Arc;

use futures::FutureExt as _;
use ostler_contract::points::StoredCollection;
use ostler_contract::read::{Read, Unknown};
use ostler_contract::{JsonObject, Thrown, Value, json, limit};
use ostler_engine_core::tasks;
use ostler_engine_core::titles::tidy_title;
use ostler_engine_sessions::SessionEntry;
use ostler_protocol::uri;
use ring::digest::{Context, SHA256};

use super::Automations;
use super::catalogue::CatalogueEntry;
use super::order::Order;
use super::starting::Unstarted;

/// The host's collection of these records.
pub const COLLECTION: &str = "automation-sessions";
/// The longest value that a record and the title of its session contain, in bytes.
const LONGEST_SHOWN: usize = 120;
/// Characters of a record's id after its first; together they fill a slug.
const ID_LENGTH: usize = 39;

impl Automations {
    async fn values(&self) -> Result<Option<&StoredCollection>, Unknown> {
        let Some(store) = self.core.record_store() else { return Ok(None) };
        let asked = || (COLLECTION.to_owned(), Default::default());
        let open = || store.collection.read(limit::STORE, asked()).map(Read::known);
        self.values.get_or_try_init(open).await.map(Some)
    }

    /// Returns the session of a value if it can take another turn: `None` if there is no such session, it has ended, it
    /// cannot continue, or it has a different owner.
    pub(super) async fn session_of_value(
        &self,
        id: &str,
        entry: &CatalogueEntry,
        order: &Order,
    ) -> Result<Option<Arc<SessionEntry>>, Unstarted> {
        let failed = |why: Unknown| {
            Unstarted::Unread(format!("the session of this {} could not be read: {why}", order.by))
        };
        let Some(values) = self.values().await.map_err(failed)? else { return Ok(None) };
        let record = values.get.read(limit::STORE, (record_id(id, order),)).await.known().map_err(failed)?;
        let session = record.as_ref().and_then(|record| uri::session_id(record.get("session")?.as_str()?));
        let Some(session) = session else { return Ok(None) };
        let session = self.sessions.session(session).await.known().map_err(failed)?;
        let Some(session) = session.filter(|session| !session.is_gone() && session.owner == entry.owner)
        else {
            return Ok(None);
        };
        Ok(self.sessions.can_continue(&session).await.then_some(session))
    }

    /// Stores the session of a value.
    pub(super) async fn keep_session_of_value(&self, id: &str, order: &Order, session: &str) {
        let record = json!({
            "id": record_id(id, order), "automation": id, "field": order.by, "value": shown(&order.value),
            "session": session, "since": self.core.clock.iso(),
        });
        let kept = async {
            let values = self.values().await?.ok_or_else(|| Thrown::new("there is no record store"))?;
            let _alone = self.rewriting.lock().await;
            match record {
                Value::Object(record) => values.put.within(limit::STORE, (record,)).await,
                _ => Ok(()),
            }
        };
        if let Err(why) = kept.await {
            self.core.log.warn(format_args!(
                "automation {id}: the next run of this {} will not continue {session}, which could not be stored: {why}",
                order.by
            ));
        }
    }

    /// Removes the records of a disposed session.
    pub(super) fn forget_session_of_value(self: &Arc<Self>, session: &SessionEntry) {
        let of_automation = session.origin.as_ref().and_then(|origin| origin.get("automation")).is_some();
        if of_automation {
            self.forget_values("session", session.uri.clone());
        }
    }

    /// Removes the records of a removed automation.
    pub(super) fn forget_sessions_of_values(self: &Arc<Self>, id: &str) {
        self.forget_values("automation", id.to_owned());
    }

    /// Removes the records whose field has this value.
    fn forget_values(self: &Arc<Self>, field: &'static str, value: String) {
        let automations = self.clone();
        tasks::spawn(async move {
            let forgotten = async {
                let Some(values) = automations.values().await? else { return Ok(()) };
                // A record that is replaced concurrently is not removed.
                let _alone = automations.rewriting.lock().await;
                let with = JsonObject::from_iter([(field.to_owned(), value.as_str().into())]);
                for record in values.find.read(limit::STORE, (with,)).await.known()? {
                    if let Some(id) = record.get("id").and_then(Value::as_str) {
                        values.remove.within(limit::STORE, (id.to_owned(),)).await?;
                    }
                }
                Ok::<(), Thrown>(())
            };
            if let Err(why) = forgotten.await {
                automations.core.log.warn(format_args!(
                    "the records in {COLLECTION} whose {field} is {value} could not be removed: {why}"
                ));
            }
        });
    }
}

/// Returns the title of the session of a value.
pub(super) fn title(title: &str, order: &Order) -> String {
    let value = match shown(&order.value) {
        Value::Null => return title.to_owned(),
        Value::String(text) => text,
        value => value.to_string(),
    };
    tidy_title(&format!("{title}: {value}")).unwrap_or_else(|| title.to_owned())
}

/// Returns the value for a record or title, or null if it is too long.
fn shown(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > LONGEST_SHOWN => Value::Null,
        value => value.clone(),
    }
}

fn record_id(automation: &str, order: &Order) -> String {
    let mut hash = Context::new(&SHA256);
    for part in [automation.as_bytes(), b"\0", order.key.bytes()] {
        hash.update(part);
    }
    format!("s{}", &hex::encode(hash.finish())[..ID_LENGTH])
}

#[cfg(test)]
mod tests {
    use ostler_contract::host::Routing;
    use ostler_protocol::sent::SentObject;

    use super::*;

    #[test]
    fn the_title_of_a_value_has_the_digits_of_its_sender() {
        for (value, expected) in [
            ("12345678901234567890123", "Desk: 12345678901234567890123"),
            ("1.10", "Desk: 1.10"),
            ("7", "Desk: 7"),
            ("true", "Desk: true"),
            (r#""a b""#, "Desk: a b"),
        ] {
            let data = SentObject::read(format!("{{\"k\":{value}}}").as_bytes()).unwrap();
            let routing = Routing { by: "k".to_owned(), session: true };
            let order = Order::of(&routing, data.as_sent()).unwrap();
            assert_eq!(title("Desk", &order), expected);
        }
    }
}
