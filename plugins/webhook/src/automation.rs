//! A call that fires automations.

use ostler_contract::http::{StatusCode, header};
use ostler_contract::protocol::surrogates::read_json;
use ostler_contract::{JsonObject, PluginHost, Thrown, Value, json};

use crate::deliveries::Delivery;
use crate::endpoint::Endpoint;
use crate::reply::{Answer, Refusal};
use crate::route::Admitted;
use crate::{CALL, TRIGGER};

/// Fires the `webhook` trigger with the body's fields. Answered once every run it starts is kept.
pub(crate) async fn call(
    host: &PluginHost,
    endpoint: &Endpoint,
    admitted: &Admitted,
    seen: &mut Delivery,
) -> Result<Answer, Thrown> {
    let mut data = match fields(endpoint, admitted) {
        Ok(data) => data,
        Err(what) => return Ok(Refusal::Bad(format!("The body is {what}")).into()),
    };
    data.insert("endpoint".to_owned(), (*endpoint.id).into());
    let fired = host.fire_trigger(TRIGGER.to_owned(), CALL.to_owned(), data)?;
    seen.runs = fired.kept.call(()).await?;
    Ok(Answer::new(StatusCode::ACCEPTED, json!({ "endpoint": &*endpoint.id })))
}

fn fields(endpoint: &Endpoint, admitted: &Admitted) -> Result<JsonObject, &'static str> {
    // Senders that sign may send forms: a command of Slack's, a hook of GitHub's set up so.
    if endpoint.extras.verify.is_some() && is_form(admitted) {
        return Ok(form(&admitted.body));
    }
    read_json(&admitted.body).map_err(|error| if error.is_data() { "not a JSON object" } else { "not JSON" })
}

fn is_form(admitted: &Admitted) -> bool {
    let kind = admitted.head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
}

/// A form's fields as text. One that holds a JSON object under `payload` and nothing else is that object.
fn form(body: &[u8]) -> JsonObject {
    let fields: JsonObject = url::form_urlencoded::parse(body)
        .map(|(name, value)| (name.into_owned(), Value::from(value.into_owned())))
        .collect();
    let payload = fields.get("payload").filter(|_| fields.len() == 1).and_then(Value::as_str);
    payload.and_then(|payload| read_json(payload.as_bytes()).ok()).unwrap_or(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_its_fields_or_the_object_it_carries() {
        let of = |body: &str| Value::Object(form(body.as_bytes()));
        assert_eq!(of("a=1&b=x%20y&a=2"), json!({ "a": "2", "b": "x y" }));
        assert_eq!(of("payload=%7B%22ref%22%3A%22main%22%7D"), json!({ "ref": "main" }));
        assert_eq!(of("payload=5"), json!({ "payload": "5" }));
        assert_eq!(of("payload=%7B%7D&token=t"), json!({ "payload": "{}", "token": "t" }));
    }
}
