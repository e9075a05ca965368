//! A message as a webhook, signed as Standard Webhooks says.

use ostler_contract::http::{HeaderValue, Request, header};
use ostler_contract::json;
use ostler_plugin_webhook::tools::signed;

use super::{Failure, Message, data, post_of};

/// The type of the message.
pub const TYPE: &str = "input.requested";

/// The request that sends a message.
pub(super) fn request(url: &str, secret: &str, message: &Message) -> Result<Request, Failure> {
    let at = jiff::Timestamp::from_second(message.now).map(|at| at.to_string()).unwrap_or_default();
    let body = json!({ "type": TYPE, "timestamp": at, "data": data(message) }).to_string();
    let now = u64::try_from(message.now).unwrap_or_default();
    let call = signed(secret, &message.id, now, body);
    let mut request =
        post_of(url, call.body).ok_or_else(|| "the URL of the webhook is not valid".to_owned())?;
    for (name, value) in call.headers {
        let name = header::HeaderName::try_from(name);
        let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) else {
            return Err("the webhook's signature cannot be written as a header".to_owned());
        };
        request.headers_mut().insert(name, value);
    }
    Ok(request)
}
