//! A call that fires automations.

use std::sync::Arc;

use bytes::Bytes;
use ostler_contract::bodies::LONG;
use ostler_contract::budget::{Charge, VALUE};
use ostler_contract::host::{EventData, Firing};
use ostler_contract::http::{StatusCode, header};
use ostler_contract::protocol::message::count_values;
use ostler_contract::protocol::sent::{SentObject, has_literals};
use ostler_contract::protocol::surrogates::what_it_is;
use ostler_contract::shared_runs::{EventRecords, FiredOnce};
use ostler_contract::{Bodies, JsonObject, Thrown, Value, json};

use crate::byte_order_mark::without_mark;
use crate::condition::{self, ConditionError};
use crate::deliveries::{Delivery, RowWithRuns};
use crate::endpoint::Endpoint;
use crate::form_fields;
use crate::repeats::First;
use crate::reply::{About, Answer, Refusal};
use crate::route::{Admitted, Webhook, unread};
use crate::{CALL, TRIGGER};
use crate::{json_values, multipart};

/// A body up to this size is not charged.
const SMALL: usize = 16 * 1024;
/// The maximum number of fields of a form.
pub(crate) const MOST_FIELDS: usize = 10_000;

/// Whether a call fires automations.
pub(crate) enum Decision {
    /// It does, with this event.
    Fires(Box<CallEvent>),
    /// The endpoint's `when` excludes it; its fields.
    LeftOut(Data),
    /// It is refused.
    Refused(Refusal),
    /// `when` failed, for this reason.
    Failed(String),
}

/// The event of a call, with the memory that it uses until the runs are stored.
pub(crate) struct CallEvent {
    pub data: EventData,
    _memory: (Option<Charge>, Charge),
}

/// Decides whether a call fires automations.
///
/// # Errors
/// A task of the host failed.
pub(crate) async fn decide(
    endpoint: &Endpoint,
    admitted: &Admitted,
    bodies: &Bodies,
) -> Result<Decision, Thrown> {
    let bad = |what: &str| Ok(Decision::Refused(Refusal::Bad(format!("The body is {what}"))));
    let turn = match &endpoint.extras.when {
        Some(when) => when.turn().await,
        None => None,
    };
    // Signing senders can send forms, such as commands of Slack and webhooks of GitHub with that setting, and lists.
    let is_form = endpoint.extras.verify.is_some() && is_form(admitted);
    let mut body = without_mark(&admitted.body);
    let mut copy = None;
    let is_text = is_text(admitted);
    let parts = multipart::boundary(&admitted.head.headers);
    let is_other = parts.is_some() || is_text || json_values::is_other(&body);
    if endpoint.extras.verify.is_some() && !is_form && is_other {
        let size = match &parts {
            Some(_) => multipart::measured(&body),
            None if body.len() > SMALL => json_values::measured(&body, is_text),
            None => 0,
        };
        copy = match bodies.charge(size).await {
            Ok(charge) => Some(charge),
            Err(error) => return Ok(Decision::Refused(unread(&error))),
        };
        let whole = body.clone();
        let object = move |body: &[u8]| match parts {
            Some(boundary) => multipart::as_object(&whole, &boundary),
            None => json_values::as_object(body, is_text),
        };
        body = match long_work(&body, object).await? {
            Ok(object) => object.into(),
            Err(what) => return bad(&what),
        };
    }
    let size = Size::of(&body, is_form, turn.is_some()).await?;
    let mut charge = match bodies.charge(size.fields + size.evaluation).await {
        Ok(charge) => charge,
        Err(error) => return Ok(Decision::Refused(unread(&error))),
    };
    let data = fields(&body, is_form).await?;
    if let (Some(when), Ok(data)) = (&endpoint.extras.when, &data) {
        let call = condition::Call { event: data.clone(), head: admitted.head.clone() };
        match Box::pin(when.holds(call)).await {
            Ok(true) => {}
            Ok(false) => return Ok(Decision::LeftOut(data.clone())),
            Err(ConditionError::Call(what)) => return bad(&what),
            Err(ConditionError::Expression(why)) => {
                return Ok(Decision::Failed(format!("cannot evaluate when: {why}")));
            }
        }
    }
    drop(turn);
    // Retained until the runs are stored, like the fields.
    charge.set(size.fields);
    let (name, id) = ("endpoint", Value::from(&*endpoint.id));
    let data = match data {
        Ok(Data::Fields(data)) => {
            let mut data = Arc::unwrap_or_clone(data);
            data.insert(name, id);
            EventData::Fields(data)
        }
        Ok(Data::Text(text)) => {
            EventData::Text { text, over: JsonObject::from_iter([(name.to_owned(), id)]) }
        }
        Err(what) => return bad(&what),
    };
    Ok(Decision::Fires(Box::new(CallEvent { data, _memory: (copy, charge) })))
}

/// Fires the `webhook` trigger with the body's fields, unless the endpoint's `when` excludes the call. Answers once all
/// started runs are stored.
pub(crate) async fn call(
    webhook: &Webhook,
    endpoint: &Endpoint,
    admitted: &Admitted,
    bodies: &Bodies,
    seen: &mut Delivery,
    first: Option<&First>,
) -> Result<Answer, Thrown> {
    let host = &webhook.host;
    let event = match Box::pin(decide(endpoint, admitted, bodies)).await? {
        Decision::Fires(event) => event,
        Decision::LeftOut(_) => {
            seen.left_out = true;
            return Ok(accepted(endpoint));
        }
        Decision::Refused(refusal) => return Ok(refusal.into()),
        Decision::Failed(problem) => {
            webhook.say_once_a_minute(&endpoint.id, &problem);
            seen.why = Some(problem);
            return Ok(Refusal::NoFilter.into());
        }
    };
    let CallEvent { data, _memory } = *event;
    let routing = endpoint.extras.routing.clone();
    let (r#type, event) = (TRIGGER.to_owned(), CALL.to_owned());
    let once = first.map(|first| {
        let answer = accepted(endpoint);
        first.once(move || answer.clone())
    });
    let row = webhook.deliveries.row_with_runs(&endpoint.id, seen);
    let records = EventRecords { once, log: row.as_ref().map(|row| row.record.clone()) };
    let fired = host.fire_event(r#type, event, data, routing, records).await;
    let (firing, is_recorded) = match fired {
        Ok(FiredOnce::Fired(firing)) => (firing, false),
        Ok(FiredOnce::Recorded(firing)) => (firing, true),
        Ok(FiredOnce::Repeated) => {
            seen.again = true;
            let answer = match first {
                Some(first) => first.repeated().await?,
                None => accepted(endpoint),
            };
            seen.repeats.clone_from(&answer.delivery);
            return Ok(answer.recorded(true));
        }
        Err(refused) if refused.rpc.is_some() => {
            return Ok(Refusal::Bad(format!("The body is {}", refused.message)).into());
        }
        Err(why) => return Err(why),
    };
    let stored = row.as_ref().map(RowWithRuns::runs);
    let runs = match firing {
        Firing::Started { runs, unstarted } => {
            seen.runs.clone_from(&runs);
            seen.unstarted = unstarted;
            runs
        }
        Firing::Requested => {
            seen.runs = stored.unwrap_or_default().to_vec();
            Vec::new()
        }
        Firing::Full => return Ok(Refusal::NoRoom.into()),
    };
    // Where the owner of an automation merged its run into another one, or dropped it.
    if stored.is_some_and(|stored| !stored.is_empty() && stored != seen.runs)
        && let Err(why) = Box::pin(webhook.deliveries.replace(&endpoint.id, seen)).await
    {
        webhook.problem(&endpoint.id, &format!("cannot store the runs of a call in its log: {why}"));
    }
    let about = About { runs, session: None };
    Ok(accepted(endpoint).about(about).recorded(is_recorded))
}

pub(crate) fn accepted(endpoint: &Endpoint) -> Answer {
    Answer::new(StatusCode::ACCEPTED, json!({ "endpoint": &*endpoint.id }))
}

/// The content of a body.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Fields(Arc<SentObject>),
    /// Long JSON text that is not parsed yet.
    Text(Bytes),
}

/// The memory of a call in addition to its body, in bytes.
struct Size {
    /// Its fields, if they are parsed here.
    fields: usize,
    /// The input of an expression.
    evaluation: usize,
}

impl Size {
    /// Returns the memory of a body, of a form or JSON, which an expression reads if `evaluates`.
    async fn of(body: &Bytes, form: bool, evaluates: bool) -> Result<Self, Thrown> {
        // The fields of long JSON are parsed only for an expression.
        let parsed = form || body.len() <= LONG;
        if body.len() <= SMALL || !(parsed || evaluates) {
            return Ok(Self { fields: 0, evaluation: 0 });
        }
        let (evaluation, fields) = long_work(body, move |body| measured(body, form)).await?;
        Ok(match (parsed, evaluates) {
            (true, true) => Self { fields, evaluation },
            (true, false) => Self { fields, evaluation: 0 },
            (false, _) => Self { fields: 0, evaluation: fields + evaluation },
        })
    }
}

/// Returns the memory of the input of an expression, and of the fields of a body.
pub(crate) fn measured(body: &[u8], form: bool) -> (usize, usize) {
    // Separators can be encoded in a form.
    let encoded = if form { body.iter().filter(|byte| **byte == b'%').count() } else { 0 };
    // Each byte of a form that is not UTF-8 becomes a character of three.
    let replaced = if form { 2 * body.iter().filter(|byte| !byte.is_ascii()).count() } else { 0 };
    let evaluation = body.len() + replaced + (count_values(body) + encoded) * VALUE;
    // A list allocates several values, even if it has fewer.
    let opened = body.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() + encoded;
    let fields = evaluation + 2 * opened * VALUE;
    // What the values do not keep of the text has at most their memory.
    let literals = if has_literals(body) { fields } else { 0 };
    (evaluation, fields + literals)
}

/// Does work on a body, on a separate thread if it is long.
async fn long_work<T: Send + 'static>(
    body: &Bytes,
    work: impl FnOnce(&[u8]) -> T + Send + 'static,
) -> Result<T, Thrown> {
    if body.len() <= LONG {
        return Ok(work(body));
    }
    let body = body.clone();
    tokio::task::spawn_blocking(move || work(&body)).await.map_err(Thrown::new)
}

async fn fields(body: &Bytes, is_form: bool) -> Result<Result<Data, String>, Thrown> {
    if is_form {
        return long_work(body, form).await;
    }
    if body.len() > LONG {
        return Ok(Ok(Data::Text(body.clone())));
    }
    let fields = SentObject::read(body);
    Ok(fields.map(Arc::new).map(Data::Fields).map_err(|error| what_it_is(&error)))
}

fn is_form(admitted: &Admitted) -> bool {
    media_type(admitted) == "application/x-www-form-urlencoded"
}

/// Returns whether a body that is no JSON is text.
fn is_text(admitted: &Admitted) -> bool {
    let media = media_type(admitted);
    media.starts_with("text/") || media.ends_with("/xml") || media.ends_with("+xml")
}

/// Returns the media type of a call in lower case, without its parameters.
fn media_type(admitted: &Admitted) -> String {
    let kind = admitted.head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim().to_ascii_lowercase()
}

/// Parses a form's fields as text, nested as their names say. A form with only a JSON object in `payload` is that object.
pub(crate) fn form(body: &[u8]) -> Result<Data, String> {
    if body.iter().filter(|byte| **byte == b'&').count() >= MOST_FIELDS {
        return Err(format!("a form with more than {MOST_FIELDS} fields"));
    }
    let mut fields = JsonObject::new();
    for (name, value) in url::form_urlencoded::parse(body) {
        form_fields::put(&mut fields, &name, value.into_owned().into());
    }
    if fields.len() == 1
        && let Some(Value::String(payload)) = fields.get_mut("payload")
    {
        if payload.len() > LONG && payload.trim_start().starts_with('{') {
            return Ok(Data::Text(std::mem::take(payload).into()));
        }
        if let Ok(object) = SentObject::read(payload.as_bytes()) {
            return Ok(Data::Fields(Arc::new(object)));
        }
    }
    Ok(Data::Fields(Arc::new(fields.into())))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_long_body_is_measured_only_for_who_reads_it_and_elsewhere() {
        let body = Bytes::from(format!("[{}1]", "1,".repeat(LONG)));
        let of = |form, evaluates| Size::of(&body, form, evaluates);
        let size = of(false, false).now_or_never().expect("nothing is measured").unwrap();
        assert_eq!((size.fields, size.evaluation), (0, 0));
        for (form, evaluates) in [(false, true), (true, false), (true, true)] {
            assert!(of(form, evaluates).now_or_never().is_none(), "it is measured on another thread");
            let size = of(form, evaluates).await.unwrap();
            let (evaluation, fields) = measured(&body, form);
            let expected = match (form, evaluates) {
                (true, true) => (fields, evaluation),
                (true, false) => (fields, 0),
                // The expression needs the fields as well.
                (false, _) => (0, evaluation + fields),
            };
            assert_eq!((size.fields, size.evaluation), expected);
        }
        assert!(fields(&body, true).now_or_never().is_none());
        let longest = Bytes::from(format!("{{{}}}", " ".repeat(LONG - 2)));
        let parsed = fields(&longest, false).now_or_never();
        assert!(matches!(parsed, Some(Ok(Ok(Data::Fields(_))))), "one of {LONG} bytes is parsed here");
    }

    #[test]
    fn separators_of_values_are_encoded_in_forms_alone() {
        for (body, form, encoded) in [("a=%7B&b=[1", true, 1), (r#"{"a":["%",1]}"#, false, 0)] {
            let evaluation = body.len() + (count_values(body.as_bytes()) + encoded) * VALUE;
            assert_eq!(measured(body.as_bytes(), form), (evaluation, evaluation + 2 * 2 * VALUE), "{body}");
        }
        assert_eq!(measured(b"a=\xff\xff", true).0, 4 + 2 * 2 + VALUE);
        let (kept, sent) = (measured(b"[1.5]", false), measured(b"[1.50]", false));
        assert!(sent.1 > 2 * (kept.1 - 1), "the digits of the sender have memory: {kept:?} {sent:?}");
    }

    #[test]
    fn a_form_is_its_fields_or_the_object_it_carries() {
        let of = |body: &str| match form(body.as_bytes()) {
            Ok(Data::Fields(fields)) => Value::Object(Arc::unwrap_or_clone(fields).fields),
            Ok(Data::Text(text)) => Value::from(text.len()),
            Err(why) => why.into(),
        };
        assert_eq!(of("a=1&b=x%20y&a=2"), json!({ "a": "2", "b": "x y" }));
        assert_eq!(of("a%5Bb%5D=1&l[]=x&l[]=y"), json!({ "a": { "b": "1" }, "l": ["x", "y"] }));
        assert_eq!(of("payload=%7B%22ref%22%3A%22main%22%7D"), json!({ "ref": "main" }));
        assert_eq!(of("payload=5"), json!({ "payload": "5" }));
        assert_eq!(of("payload=%7B%7D&token=t"), json!({ "payload": "{}", "token": "t" }));
        assert_eq!(
            of(&format!("payload={{{}}}", " ".repeat(LONG))),
            json!(LONG + 2),
            "long text is not read here"
        );
        assert_eq!(of(&"a&".repeat(MOST_FIELDS)), json!("a form with more than 10000 fields"));
    }
}
