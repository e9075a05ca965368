//! A call that fires automations.

use ostler_contract::http::{self, BodyError, Request, Response, StatusCode};
use ostler_contract::{JsonObject, PluginHost, Thrown, json};

use crate::endpoint::Endpoint;
use crate::reply::Refusal;
use crate::{CALL, TRIGGER};

/// The largest body taken: as large as the largest sender known sends.
pub(crate) const BODY_LIMIT: usize = 25 * 1024 * 1024;

/// Fires the `webhook` trigger with the body's fields. Answered once every run it starts is kept.
pub(crate) async fn call(
    host: &PluginHost,
    endpoint: &Endpoint,
    request: Request,
) -> Result<Result<Response, Refusal>, Thrown> {
    let body = match request.into_body().read(BODY_LIMIT).await {
        Ok(body) => body,
        Err(error) => return Ok(Err(Refusal::BadBody(unread(&error)))),
    };
    let mut data: JsonObject = match serde_json::from_slice(&body) {
        Ok(data) => data,
        Err(error) => {
            let what = if error.is_data() { "not a JSON object" } else { "not JSON" };
            return Ok(Err(Refusal::BadBody(format!("The body is {what}"))));
        }
    };
    data.insert("endpoint".to_owned(), (*endpoint.id).into());
    let fired = host.fire_trigger(TRIGGER.to_owned(), CALL.to_owned(), data)?;
    fired.kept.call(()).await?;
    Ok(Ok(http::json(StatusCode::ACCEPTED, &json!({ "endpoint": &*endpoint.id }))))
}

fn unread(error: &BodyError) -> String {
    let mut text = error.to_string();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}
