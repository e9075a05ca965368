//! Handles one call: finds the endpoint, authenticates the sender, and only then parses the body.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::TryFutureExt as _;
use futures::future::{Either, ready};
use ostler_contract::bodies::LONG;
use ostler_contract::call::endpoint_call;
use ostler_contract::http::{Body, BodyError, HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use ostler_contract::problem;
use ostler_contract::read::Read;
use ostler_contract::{Bodies, PluginHost, Slug, Thrown, Value, json};
use tokio::time::Instant;

use crate::byte_order_mark::text_of;
use crate::callbacks::Callbacks;
use crate::cloudevents::{self, Event};
use crate::content_coding::{codings, decode, explained};
use crate::deliveries::{Deliveries, Delivery};
use crate::endpoint::{Endpoint, Target};
use crate::endpoints::Endpoints;
use crate::extras::{Dedupe, Format};
use crate::host_connection::HostConnection;
use crate::limits::Limits;
use crate::log_limit::LogLimit;
use crate::repeats::{Delivered, First, Repeats};
use crate::reply::{Answer, Refusal};
use crate::stored_bodies::{BodyRetention, StoredBodies};
use crate::threads::Threads;
use crate::token::{bearer, is_secret};
use crate::unconfirmed::UnconfirmedTurns;
use crate::verify::{Delivery as DeliveryId, Greeting, MISSING, Proof, Scheme, Success, Verify};
use crate::{automation, bot};

/// The state of the route.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub host: PluginHost,
    pub endpoints: Arc<Endpoints>,
    pub connection: HostConnection,
    pub threads: Threads,
    pub callbacks: Callbacks,
    pub unconfirmed: UnconfirmedTurns,
    pub deliveries: Arc<Deliveries>,
    pub repeats: Arc<Repeats>,
    pub limits: Limits,
    pub stored_bodies: StoredBodies,
    /// The budget of replays, which have no request.
    pub replays: Bodies,
    /// Limits the log lines about problems of endpoints.
    pub told: LogLimit,
    /// The default limit of a `sync` call.
    pub sync_timeout: Duration,
}

/// The head of a request.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub uri: Uri,
    pub headers: HeaderMap,
}

/// How much of each second that a sender waits is for the call. The rest is for the way of the answer.
const ON_TIME: Duration = Duration::from_millis(800);
/// Parts of the names of headers that authenticate a caller.
const CREDENTIALS: [&str; 7] = ["api-key", "apikey", "auth", "cookie", "secret", "signature", "token"];

impl Head {
    /// Returns the headers by their names in lower case, without those that authenticate the caller.
    pub fn facts(&self) -> impl Iterator<Item = (String, String)> {
        let shown = self
            .headers
            .iter()
            .filter(|(name, _)| !CREDENTIALS.iter().any(|credential| name.as_str().contains(credential)));
        shown.map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
    }
}

/// A call of an authenticated sender with its body.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    pub head: Head,
    pub body: Bytes,
}

/// The body. Signatures cover it, so a signed one is read before its sender is authenticated.
pub(crate) enum Unread {
    Not(Body),
    Read(Bytes),
    Event(Box<Event>),
}

impl Webhook {
    /// Answers one request.
    pub fn serve(self: Arc<Self>, request: Request) -> impl Future<Output = Result<Response, Thrown>> + Send {
        let (parts, body) = request.into_parts();
        let (method, bodies) = (parts.method, parts.extensions.get::<Bodies>().cloned().unwrap_or_default());
        let head = Head { uri: parts.uri, headers: parts.headers };
        let mut call = Admitted { head, body: Bytes::new() };
        // Not an async function, whose future would contain the request twice.
        async move {
            let Some(id) = endpoint_id(call.head.uri.path()) else { return Ok(refused(Refusal::NoEndpoint)) };
            let endpoint = match self.endpoints.get(&id).await {
                Read::Known(Some(endpoint)) => endpoint,
                Read::Known(None) => return Ok(refused(Refusal::NoEndpoint)),
                Read::Unknown(why) => {
                    self.say_once_a_minute(&id, &format!("could not be read: {why}"));
                    return Ok(refused(Refusal::Unread));
                }
            };
            if let Some(greeting) = handshake(&endpoint, &method, &call.head) {
                return Ok(Box::pin(self.greet(&endpoint, &method, greeting)).await);
            }
            if method != Method::POST {
                let asks = method == Method::OPTIONS && endpoint.extras.format == Some(Format::CloudEvents);
                let permission =
                    asks.then(|| cloudevents::permission(&endpoint, &call.head.headers)).flatten();
                return Ok(permission.unwrap_or_else(|| self.refuse_method(&id, &method)));
            }
            let (begun, span) = (Instant::now(), endpoint_call(&id));
            let mut seen = Box::new(Delivery::begun());
            let (admitted, outcome) = match self.admit(&endpoint, &call.head, body, &bodies).await {
                Ok(body) => {
                    let answer = self.answer(&endpoint, &mut call, body, &bodies, &mut seen);
                    let answer = Box::pin(in_time(&endpoint, begun, Box::pin(answer))).await;
                    let answer = answer.map(|answer| answer.of_sender(success(&endpoint)));
                    (true, answer.or_else(|why| Ok(self.not_stored(&id, &mut seen, &why.message))))
                }
                Err(refusal) => (false, Ok(refusal.into())),
            };
            seen.answered(&outcome);
            span.record("status", seen.status);
            self.deliveries.add(&id, seen, admitted);
            outcome.map(|answer| answer.linked(&self.host))
        }
    }

    /// Answers a request by which a sender checks the endpoint before it delivers, and adds it to the log.
    async fn greet(&self, endpoint: &Endpoint, method: &Method, greeting: Greeting) -> Response {
        let mut seen = Box::new(Delivery::begun());
        seen.unstarted = vec![format!("{method}: it only checks the endpoint")];
        let answer = match self.greeted(endpoint, greeting).await {
            Ok(answer) => answer,
            Err(refusal) => refusal.into(),
        };
        let response = answer.response();
        seen.answered(&Ok(answer));
        self.deliveries.add(&endpoint.id, seen, false);
        response
    }

    /// Returns the answer to a request that only checks the endpoint.
    pub async fn greeted(&self, endpoint: &Endpoint, greeting: Greeting) -> Result<Answer, Refusal> {
        Ok(match greeting {
            Greeting::Accepted => automation::accepted(endpoint),
            Greeting::Json(body) => Answer::new(StatusCode::OK, body),
            Greeting::Text(text) => Answer::text(text),
            Greeting::Empty => Answer::new(StatusCode::NO_CONTENT, Value::Null),
            Greeting::Keyed(keyed, token) => {
                Answer::new(StatusCode::OK, keyed.answer(&self.secret(endpoint).await?, &token))
            }
        })
    }

    /// Refuses a request that is not a call, such as one by which a sender checks the endpoint, and adds it to the log.
    fn refuse_method(&self, endpoint: &str, method: &Method) -> Response {
        let answer = Answer::from(Refusal::NotPost);
        let mut seen = Box::new(Delivery::begun());
        // Others have names of any length.
        let known = [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::PATCH, Method::DELETE];
        let named = if known.contains(method) { method.as_str() } else { "another method" };
        seen.why = Some(format!("{}, not {named}", Refusal::NotPost.message()));
        let response = answer.response();
        seen.answered(&Ok(answer));
        self.deliveries.add(endpoint, seen, false);
        response
    }

    /// Logs a problem of an endpoint.
    pub fn problem(&self, endpoint: &str, what: &str) {
        crate::say(&self.host, endpoint, what);
    }

    /// Answers a call that cannot be stored, so that its sender repeats it.
    fn not_stored(&self, endpoint: &str, seen: &mut Delivery, why: &str) -> Answer {
        self.say_once_a_minute(endpoint, &format!("cannot store a call: {why}"));
        seen.why = Some(why.to_owned());
        Refusal::NotStored.into()
    }

    /// Returns why nothing can be stored now, if that is the case.
    pub fn lost_storage(&self) -> Option<String> {
        self.host.lost_storage().ok().flatten()
    }

    /// Authenticates the sender. With a token, nothing of the body is read before.
    pub async fn admit(
        &self,
        endpoint: &Endpoint,
        head: &Head,
        body: Body,
        bodies: &Bodies,
    ) -> Result<Unread, Refusal> {
        if let Some(Verify { scheme, .. }) = &endpoint.extras.verify {
            return Box::pin(self.admit_signed(endpoint, scheme, head, body, bodies)).await;
        }
        let token = bearer(&head.headers).ok_or(Refusal::NotAdmitted)?;
        let secret = self.secret(endpoint).await?;
        match is_secret(token, &secret) {
            true => Ok(Unread::Not(body)),
            false => Err(Refusal::NotAdmitted),
        }
    }

    async fn admit_signed(
        &self,
        endpoint: &Endpoint,
        scheme: &Arc<dyn Scheme>,
        head: &Head,
        body: Body,
        bodies: &Bodies,
    ) -> Result<Unread, Refusal> {
        let claim = scheme.claim(head).ok_or(Refusal::NotSigned(MISSING))?;
        let secret = self.secret(endpoint).await?;
        if scheme.admit(&claim, &secret, now()).map_err(Refusal::NotSigned)? == Proof::Sender {
            return Ok(Unread::Not(body));
        }
        let limit = endpoint.body_limit();
        let body = match too_large(head, limit) {
            true => Err(BodyError::TooLarge(limit)),
            false => bodies.read_unverified(body, limit).await,
        };
        let body = body.map_err(|error| unread(&error))?;
        let checked = if body.len() > LONG {
            let (scheme, signed) = (scheme.clone(), body.clone());
            off_shared_threads(move || scheme.check(&claim, &secret, &signed, now())).await?
        } else {
            scheme.check(&claim, &secret, &body, now())
        };
        checked.map_err(|why| Refusal::NotSigned(explained(why, &head.headers)))?;
        Ok(Unread::Read(body))
    }

    /// Logs a problem of an endpoint, once a minute for each text.
    pub fn say_once_a_minute(&self, endpoint: &str, what: &str) {
        if let Some(left_out) = self.told.again(endpoint, what) {
            let more = if left_out > 0 { format!(" ({left_out} more calls since)") } else { String::new() };
            let _ = self.host.log(format!("{} {what}{more}", crate::named(endpoint)));
        }
    }

    async fn secret(&self, endpoint: &Endpoint) -> Result<String, Refusal> {
        let name = &endpoint.secret;
        let read = Read::of_lookup(self.host.secret(name.clone(), None).await);
        let (why, refusal) = match read {
            Read::Known(Some(secret)) if secret.is_empty() => {
                (format!("{name} is empty"), Refusal::NotAdmitted)
            }
            Read::Known(Some(secret)) => match endpoint.unusable(&secret) {
                Some(why) => (format!("{name} {why}"), Refusal::NotAdmitted),
                None => return Ok(secret),
            },
            Read::Known(None) => (problem::no_secret(name), Refusal::NotAdmitted),
            Read::Unknown(why) => (format!("{name} could not be read: {why}"), Refusal::Unread),
        };
        self.say_once_a_minute(&endpoint.id, &format!("is unavailable: {why}"));
        Err(refusal)
    }

    async fn answer(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        call: &mut Admitted,
        body: Unread,
        bodies: &Bodies,
        seen: &mut Delivery,
    ) -> Result<Answer, Thrown> {
        let opened = match Box::pin(open(endpoint, &mut call.head, body, bodies)).await {
            Ok(opened) => opened,
            Err(refusal) => return Ok(refusal.into()),
        };
        let Opened { body, key, size, _memory } = opened;
        seen.bytes = size;
        let first = match key {
            Some(key) => {
                match Box::pin(self.repeats.enter(&endpoint.id, key, &seen.id, span_of(endpoint))).await? {
                    Delivered::Again(answer) => {
                        seen.again = true;
                        seen.repeats.clone_from(&answer.delivery);
                        return Ok(answer);
                    }
                    Delivered::First(first) => Some(first),
                    Delivered::Unknown(why) => {
                        let what = format!("cannot tell whether a delivery is repeated: {why}");
                        self.say_once_a_minute(&endpoint.id, &what);
                        seen.why = Some(why.to_string());
                        return Ok(Refusal::Unread.into());
                    }
                }
            }
            None => None,
        };
        if let Some(limit) = endpoint.extras.limit
            && let Err(wait) = self.limits.take(&endpoint.id, limit)
        {
            return Ok(Refusal::TooMany { wait, is_unavailable: limit.is_unavailable }.into());
        }
        call.body = match Box::pin(whole(endpoint, &mut call.head, body, bodies)).await {
            Ok(body) => body,
            Err(refusal) => return Ok(refusal.into()),
        };
        seen.bytes.get_or_insert(call.body.len());
        let answer = match greeting(endpoint, call) {
            Some(greeting) => {
                seen.unstarted = vec!["it only checks the endpoint".to_owned()];
                match Box::pin(self.greeted(endpoint, greeting)).await {
                    Ok(answer) => answer,
                    Err(refusal) => return Ok(refusal.into()),
                }
            }
            None => {
                if let Some(retention) = &endpoint.extras.body_retention {
                    Box::pin(self.store_body(endpoint, retention, call, seen)).await;
                }
                Box::pin(self.deliver(endpoint, call, bodies, seen, first.as_deref())).await?
            }
        };
        if let Some(first) = first.filter(|_| answer.is_of_delivery()) {
            // The event was fired. The repeated delivery stores the answer, and fires nothing.
            Box::pin((*first).store(&answer)).await?;
        }
        Ok(answer)
    }

    /// Passes the call to the endpoint's target.
    ///
    /// # Errors
    /// The call cannot be stored.
    pub async fn deliver(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        admitted: &Admitted,
        bodies: &Bodies,
        seen: &mut Delivery,
        first: Option<&First>,
    ) -> Result<Answer, Thrown> {
        if let Some(lost) = self.lost_storage() {
            return Err(Thrown::new(lost));
        }
        match &endpoint.target {
            Target::Automation => automation::call(self, endpoint, admitted, bodies, seen, first).await,
            Target::Bot(target) => Box::pin(bot::call(self, endpoint, target, admitted, seen, first)).await,
        }
    }

    /// Stores the body before the call takes effect. The call continues if this fails.
    async fn store_body(
        &self,
        endpoint: &Endpoint,
        retention: &BodyRetention,
        admitted: &Admitted,
        seen: &mut Delivery,
    ) {
        let stored = match self.host.secret(retention.key.clone(), None).await {
            Ok(key) => self.stored_bodies.store(&endpoint.id, seen, retention, key, admitted).await,
            Err(why) => Err(why),
        };
        match stored {
            Ok(until) => seen.kept_until = Some(format!("{until:.3}")),
            Err(why) => {
                let what = format!("cannot store the body of a call with {}: {}", retention.key, why.message);
                self.say_once_a_minute(&endpoint.id, &what);
            }
        }
    }
}

/// What is known of a call before its body is used.
pub(crate) struct Opened {
    pub body: Unread,
    /// The id of the delivery, if repeated ones are recognized. A delivery without an id is never repeated.
    pub key: Option<String>,
    /// The size of the body, if it had to be read.
    size: Option<usize>,
    /// The JSON form of an event uses the memory of the body, which stays charged as long.
    _memory: Option<Bytes>,
}

/// Reads of a call what identifies it. What is not needed for that is read later.
///
/// # Errors
/// How the call is refused.
pub(crate) async fn open(
    endpoint: &Endpoint,
    head: &mut Head,
    mut body: Unread,
    bodies: &Bodies,
) -> Result<Opened, Refusal> {
    let is_needed = matches!(body, Unread::Read(_)) || endpoint.extras.format.is_some();
    if is_needed && head.headers.contains_key(header::CONTENT_ENCODING) {
        body = Unread::Read(decoded(endpoint, head, body, bodies).await?);
    }
    let mut memory = None;
    if endpoint.extras.format == Some(Format::CloudEvents) {
        let bytes = read(endpoint, head, body, bodies).await?;
        body = Unread::Event(Box::new(Event::read(&head.headers, &bytes)?));
        head.headers.insert(header::CONTENT_TYPE, cloudevents::JSON);
        memory = Some(bytes);
    }
    let key = delivery_id(endpoint, head, &body).filter(|key| !key.is_empty());
    Ok(Opened { body, key, size: memory.as_ref().map(Bytes::len), _memory: memory })
}

/// Returns the decoded body of a call.
///
/// # Errors
/// How the call is refused.
pub(crate) async fn whole(
    endpoint: &Endpoint,
    head: &mut Head,
    body: Unread,
    bodies: &Bodies,
) -> Result<Bytes, Refusal> {
    match head.headers.contains_key(header::CONTENT_ENCODING) {
        true => decoded(endpoint, head, body, bodies).await,
        false => read(endpoint, head, body, bodies).await,
    }
}

/// Returns the body of a call of an authenticated sender.
fn read<'a>(
    endpoint: &Endpoint,
    head: &Head,
    body: Unread,
    bodies: &'a Bodies,
) -> impl Future<Output = Result<Bytes, Refusal>> + Send + use<'a> {
    let limit = endpoint.body_limit();
    match body {
        Unread::Not(_) if too_large(head, limit) => {
            Either::Right(ready(Err(unread(&BodyError::TooLarge(limit)))))
        }
        Unread::Not(body) => Either::Left(bodies.read(body, limit).map_err(|error| unread(&error))),
        Unread::Read(body) => Either::Right(ready(Ok(body))),
        Unread::Event(event) => Either::Right(ready(Ok(event.json))),
    }
}

/// Returns the time in which the endpoint's sender repeats a delivery, in seconds.
fn span_of(endpoint: &Endpoint) -> u64 {
    endpoint.extras.verify.as_ref().map_or(0, |verify| verify.sender.retries.span())
}

/// Returns the answer that the endpoint's sender takes for a success.
pub(crate) fn success(endpoint: &Endpoint) -> Success {
    endpoint.extras.verify.as_ref().map_or(Success::Accepted, |verify| verify.sender.success)
}

/// Returns the answer to a call before its sender no longer waits for it and repeats the call. What is stored by then counts: the
/// repeated delivery gets the first answer.
///
/// # Errors
/// The call cannot be stored in that time, or not at all.
async fn in_time(
    endpoint: &Endpoint,
    begun: Instant,
    answer: impl Future<Output = Result<Answer, Thrown>> + Send,
) -> Result<Answer, Thrown> {
    let sender = endpoint.extras.verify.as_ref().map(|verify| verify.sender);
    // The answers of bots have limits of their own.
    let sender = sender.filter(|_| endpoint.target == Target::Automation);
    let Some((sender, waits)) = sender.and_then(|sender| Some((sender, sender.retries.waits?))) else {
        return answer.await;
    };
    match tokio::time::timeout_at(begun + ON_TIME * u32::try_from(waits).unwrap_or(u32::MAX), answer).await {
        Ok(answer) => answer,
        Err(_) => Err(Thrown::new(format_args!(
            "it took longer than {} waits for an answer, {waits} seconds",
            sender.name
        ))),
    }
}

/// Returns whether a call only checks that the endpoint exists; it has no effect.
pub(crate) fn greeting(endpoint: &Endpoint, admitted: &Admitted) -> Option<Greeting> {
    let verify = endpoint.extras.verify.as_ref()?;
    verify.scheme.greeting(&admitted.head, text_of(&admitted.body))
}

/// Returns whether a request, whose sender shows nothing, only checks the address.
pub(crate) fn handshake(endpoint: &Endpoint, method: &Method, head: &Head) -> Option<Greeting> {
    let verify = endpoint.extras.verify.as_ref()?;
    (verify.sender.handshake)(method, head)
}

/// Reads and decodes the body of a call with a content coding.
async fn decoded(
    endpoint: &Endpoint,
    head: &mut Head,
    body: Unread,
    bodies: &Bodies,
) -> Result<Bytes, Refusal> {
    let codings = codings(&head.headers)?;
    let encoded = read(endpoint, head, body, bodies).await?;
    head.headers.remove(header::CONTENT_ENCODING);
    decode(encoded, codings, endpoint.body_limit(), bodies).await
}

/// Returns the id of a delivery, if the endpoint requires one.
fn delivery_id(endpoint: &Endpoint, head: &Head, body: &Unread) -> Option<String> {
    match (endpoint.extras.dedupe.as_ref()?, &endpoint.extras.verify, body) {
        (Dedupe::Headers(names), ..) => {
            let id = names.iter().find_map(|name| head.headers.get(name));
            id.map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned())
        }
        (Dedupe::Body, Some(Verify { sender, .. }), Unread::Read(body)) => match sender.delivery {
            DeliveryId::Body(id) => id(text_of(body)),
            DeliveryId::Header(_) | DeliveryId::FirstOf(_) | DeliveryId::Unknown => None,
        },
        (Dedupe::Event, _, Unread::Event(event)) => Some(json!(event.id).to_string()),
        (Dedupe::Body | Dedupe::Event, ..) => None,
    }
}

/// Returns whether the declared size of a body exceeds the limit; such a body is not read.
fn too_large(head: &Head, limit: usize) -> bool {
    let length = head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length = length.and_then(|length| length.parse::<u64>().ok());
    length.is_some_and(|length| length > u64::try_from(limit).unwrap_or(u64::MAX))
}

/// Runs long work on a separate thread.
pub(crate) async fn off_shared_threads<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::NoMemory)
}

fn refused(refusal: Refusal) -> Response {
    Answer::from(refusal).response()
}

pub(crate) fn unread(error: &BodyError) -> Refusal {
    if *error == BodyError::NoMemory {
        return Refusal::NoMemory;
    }
    let mut text = error.to_string();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    Refusal::Bad(text)
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the single segment after `/plugins/webhook/`.
fn endpoint_id(path: &str) -> Option<Slug> {
    Slug::parse(path.strip_prefix("/plugins/webhook/")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest block that the allocator caches for each thread, in bytes.
    const CACHED: usize = 1032;

    fn size_of_call<O>(_: impl FnOnce(Arc<Webhook>, Request) -> O) -> usize {
        size_of::<O>()
    }

    fn size_of_answer<'a, O>(
        _: impl FnOnce(
            &'a Arc<Webhook>,
            &'a Endpoint,
            &'a mut Admitted,
            Unread,
            &'a Bodies,
            &'a mut Delivery,
        ) -> O,
    ) -> usize {
        size_of::<O>()
    }

    fn size_of_delivery<'a, O>(
        _: impl FnOnce(
            &'a Arc<Webhook>,
            &'a Endpoint,
            &'a Admitted,
            &'a Bodies,
            &'a mut Delivery,
            Option<&'a First>,
        ) -> O,
    ) -> usize {
        size_of::<O>()
    }

    /// A future is moved before it is polled, and the allocator is slower for large ones, so each of the parts is boxed.
    #[test]
    fn each_future_of_a_call_is_small() {
        let sizes = [
            size_of_call(Webhook::serve),
            size_of_answer(Webhook::answer),
            size_of_delivery(Webhook::deliver),
        ];
        assert!(sizes.iter().all(|size| *size <= CACHED - size_of::<usize>()), "{sizes:?} bytes");
    }
}
