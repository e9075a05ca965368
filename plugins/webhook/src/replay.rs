//! Replays of deliveries, each as a separate delivery.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{Description, Method};
use ostler_contract::protocol::RpcError;
use ostler_contract::{Call, JsonObject, PluginHost, Slug, Thrown, Value};

use crate::deliveries::Delivery;
use crate::route::Webhook;
use crate::stored_bodies::{LARGEST, MOST, MOST_BYTES};
use crate::{REPLAY, REPLAY_GRANT};

/// How often expired bodies are searched.
const SWEEP: Duration = Duration::from_secs(600);

/// Registers the command that replays a delivery.
pub(crate) fn register(host: &PluginHost, webhook: &Arc<Webhook>) -> Result<(), Thrown> {
    let webhook = Arc::downgrade(webhook);
    host.register_method(
        REPLAY.into(),
        Method {
            grant: REPLAY_GRANT.into(),
            handle: Call::new(move |(params, _, _, _): (JsonObject, _, _, _)| {
                let webhook = webhook.upgrade();
                async move {
                    let webhook = webhook.ok_or_else(|| Thrown::new("the plugin is closed"))?;
                    let delivery = params.get("delivery").and_then(Value::as_str);
                    let delivery = delivery.and_then(Slug::parse);
                    let delivery = delivery.ok_or_else(|| wrong("delivery must be the id of a delivery"))?;
                    webhook.replay(&delivery).await
                }
            }),
            describe: Some(Call::now(|()| {
                let description = "Delivers a call of a webhook endpoint again whose body is stored.";
                Ok(Description {
                    title: Some("Replay a delivery".to_owned()),
                    description: Some(description.to_owned()),
                })
            })),
            ..Method::default()
        },
    )
}

fn size(bytes: usize) -> String {
    format!("{} MiB", bytes / (1024 * 1024))
}

fn wrong(why: impl Into<String>) -> Thrown {
    Thrown::from(RpcError::invalid_params(why.into()))
}

impl Webhook {
    /// Delivers a stored call again, without checks for repetition and rate limit; returns the row of the new delivery.
    async fn replay(self: &Arc<Self>, delivery: &str) -> Result<Value, Thrown> {
        let mut seen = Box::new(Delivery::begun());
        let stored = self.stored_bodies.find(delivery).await?.ok_or_else(|| {
            wrong(format!(
                "no body of delivery {delivery} is stored; endpoints with keepBodies store bodies of up to {} for as long as it says, the newest {MOST} of at most {} in total",
                size(LARGEST),
                size(MOST_BYTES)
            ))
        })?;
        let of = stored.endpoint.clone();
        let endpoint = match Slug::parse(&of) {
            Some(id) => self.endpoints.get(&id).await.known()?,
            None => None,
        };
        let endpoint = endpoint
            .ok_or_else(|| wrong(format!("endpoint {of} of delivery {delivery} no longer exists")))?;
        let retention = endpoint.extras.body_retention.as_ref();
        let retention = retention
            .ok_or_else(|| wrong(format!("endpoint {of} of delivery {delivery} no longer has keepBodies")))?;
        let admitted = stored.open(delivery, self.host.secret(retention.key.clone(), None).await?).await?;
        seen.replays = Some(delivery.to_owned());
        seen.bytes = Some(admitted.body.len());
        let outcome = self.deliver(&endpoint, &admitted, &self.replays, &mut seen, None).await;
        seen.answered(&outcome);
        let row = serde_json::to_value(&seen).map_err(Thrown::new);
        self.deliveries.add(&of, seen, true);
        outcome?;
        let mut row = row?;
        row["endpoint"] = of.into();
        Ok(row)
    }

    /// Reconciles bodies with their index, and periodically deletes expired ones.
    pub async fn tend_bodies(self: Arc<Self>) {
        let webhook = Arc::downgrade(&self);
        drop(self);
        if let Some(webhook) = webhook.upgrade()
            && let Err(why) = webhook.stored_bodies.reconcile().await
        {
            let _ =
                webhook.host.log(format!("cannot compare bodies of calls with their list: {}", why.message));
        }
        while let Some(webhook) = webhook.upgrade() {
            if let Err(why) = webhook.stored_bodies.forget_expired().await {
                let _ = webhook.host.log(format!("cannot delete expired bodies of calls: {}", why.message));
            }
            drop(webhook);
            tokio::time::sleep(SWEEP).await;
        }
    }
}
