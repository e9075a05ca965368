//! A list as server-sent events: each change of its entries, from the place on that the reader has seen.
//!
//! Nothing is queued for a reader but what it is being sent: it follows the host's feed at its own pace. One that falls
//! behind what the feed retains, or takes nothing for a while, is closed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use ostler_contract::Value;
use ostler_contract::http::{Body, HeaderMap, HeaderValue, Response, header};
use ostler_engine::feed::{Change, Feed, FeedPosition, FeedRead};
use ostler_engine::users::Credential;
use ostler_engine::{Core, Principal};
use ostler_protocol::grants::Grant;
use ostler_server::HangUp;
use serde::Serialize;
use tokio::sync::watch;

use super::rows::Ask;
use super::streams::Place;
use super::{Refused, hide};
use crate::config_redaction::without_userinfo;
use crate::control::Control;
use crate::exit::Exit;

/// The content type of a stream.
pub(super) const MEDIA: &str = "text/event-stream";
/// How often something is sent to a reader, so that both sides notice an end of the connection. The reader may close its
/// sending side, so that only sending shows that it no longer reads; its place is free after the second heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// How long a reader may take nothing that waits for it.
const STALLED: Duration = Duration::from_secs(60);

/// What a reader is sent of a change.
pub(super) struct Seen {
    pub(super) event: &'static str,
    pub(super) data: Value,
}

/// The changes of a list, for one reader.
pub(super) struct Events {
    next: Box<dyn FnMut(&mut String) -> Step + Send>,
    changes: watch::Receiver<()>,
    first: String,
    place: Box<dyn Fn() -> FeedPosition + Send + Sync>,
    control: Arc<Control>,
    caller: Principal,
    by: Credential,
    grant: Grant,
    _place: Place,
}

/// What came of a look at the feed.
enum Step {
    /// Changes were written, though maybe none that this reader is sent.
    More,
    /// Nothing happened since.
    Nothing,
    /// The feed no longer has what follows.
    Lost,
}

/// Whether a request asks for a stream.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accepted| accepted.to_str().ok());
    let mut media = accepted.flat_map(|accepted| accepted.split(','));
    media.any(|media| {
        let mut parts = media.split(';').map(str::trim);
        let is_stream = parts.next().is_some_and(|media| media.eq_ignore_ascii_case(MEDIA));
        is_stream && !parts.any(is_unacceptable)
    })
}

/// Whether a parameter of a media type is the quality 0, which means that the client does not accept it.
fn is_unacceptable(parameter: &str) -> bool {
    let quality = parameter.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    quality.and_then(|(_, value)| value.trim().parse().ok()).is_some_and(|quality: f32| quality <= 0.0)
}

/// Refuses parameters that have no meaning for a stream.
pub(super) fn only(others: &[(&str, bool)]) -> Result<(), Refused> {
    match others.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((name, _)) => {
            Err(Exit::usage(format!("{name} is not a parameter of the stream; filter its events")).into())
        }
    }
}

impl Events {
    /// The changes that `seen` shows of a feed, for a caller with a grant. They begin after the place in the request's
    /// `Last-Event-ID`, or now.
    pub(super) fn of<T: Serialize + Send + Sync + 'static>(
        ask: &Ask,
        (subject, operation): (&'static str, &'static str),
        feed: fn(&Core) -> &Feed<T>,
        seen: impl Fn(&Change<T>) -> Option<Seen> + Send + 'static,
    ) -> Result<Self, Refused> {
        let control = ask.control.clone();
        let taken = control.streams.take(&ask.caller).map_err(Refused::Streams)?;
        let of = feed(&control.host.core);
        let changes = of.changes();
        let last = ask.page.headers.get("last-event-id").and_then(|id| id.to_str().ok());
        let now = of.place();
        let resumed = last
            .and_then(FeedPosition::parse)
            .filter(|place| matches!(of.read(*place), FeedRead::Changes(_)));
        // Whoever is told so reads the list: nothing of it is missed from here on.
        let first = match (last, resumed) {
            (_, Some(_)) => String::new(),
            (None, None) => block("ready", &now, &Value::Object(Default::default())),
            (Some(_), None) => block("reload", &now, &Value::Object(Default::default())),
        };
        let place = Arc::new(parking_lot::Mutex::new(resumed.unwrap_or(now)));
        let (core, shown, reached) = (control.host.core.clone(), control.clone(), place.clone());
        let next = move |text: &mut String| {
            let after = *reached.lock();
            let changes = match feed(&core).read(after) {
                FeedRead::Lost => return Step::Lost,
                FeedRead::Changes(changes) if changes.is_empty() => return Step::Nothing,
                FeedRead::Changes(changes) => changes,
            };
            for (place, change) in changes {
                if let Some(Seen { event, data }) = seen(&change) {
                    text.push_str(&block(event, &place, &hide(&shown, without_userinfo(data))));
                }
                *reached.lock() = place;
            }
            Step::More
        };
        Ok(Self {
            next: Box::new(next),
            changes,
            first,
            place: Box::new(move || *place.lock()),
            control: control.clone(),
            caller: ask.caller.clone(),
            by: ask.by.clone(),
            grant: Grant::of(subject, operation),
            _place: taken,
        })
    }

    /// The answer. `hang_up` ends the connection of a reader that takes nothing.
    pub(super) fn response(self, hang_up: Option<HangUp>) -> Response {
        let progress = Arc::new(Progress::default());
        if let Some(hang_up) = hang_up {
            let progress = Arc::downgrade(&progress);
            tokio::spawn(async move {
                if is_stalled(progress).await {
                    hang_up.now();
                }
            });
        }
        let frames = futures::stream::unfold((self, progress), |(mut events, progress)| async move {
            progress.taken.fetch_add(1, Ordering::AcqRel);
            let frame = events.frame(&progress.waits).await?;
            Some((Ok(Bytes::from(frame)), (events, progress)))
        });
        let mut response = Response::new(Body::stream(frames));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // Otherwise nginx gathers events before it sends them on.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }

    /// The next text to send; nothing where the stream ends.
    async fn frame(&mut self, waits: &AtomicBool) -> Option<String> {
        if !self.first.is_empty() {
            return Some(std::mem::take(&mut self.first));
        }
        let beat = tokio::time::Instant::now() + HEARTBEAT;
        let mut text = String::new();
        loop {
            self.changes.borrow_and_update();
            if !self.may_read() {
                return None;
            }
            match (self.next)(&mut text) {
                Step::More if text.is_empty() => tokio::task::yield_now().await,
                Step::More => return Some(text),
                Step::Lost => return None,
                Step::Nothing => {
                    waits.store(true, Ordering::Release);
                    let changed = tokio::time::timeout_at(beat, self.changes.changed()).await;
                    waits.store(false, Ordering::Release);
                    match changed {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return None,
                        // With its place, as what was left out since counts as seen.
                        Err(_) => return Some(format!(": heartbeat\nid: {}\n\n", (self.place)())),
                    }
                }
            }
        }
    }

    /// Whether the caller still holds the grant, by a token or a sign-in that is still valid.
    fn may_read(&self) -> bool {
        let gate = &self.control.host.access.gate;
        !self.control.host.core.is_stopping()
            && self.by.is_valid()
            && (!matches!(self.caller, Principal::Person(_)) || gate.check_users().is_ok())
            && gate.require(&gate.now(self.caller.clone()), &self.grant).is_ok()
    }
}

/// What a reader takes.
#[derive(Default)]
struct Progress {
    /// How often it asked for more.
    taken: AtomicU64,
    /// Whether it waits for something to happen.
    waits: AtomicBool,
}

/// Whether a reader takes nothing for too long though something waits for it; returns when it does, or when the stream ends.
async fn is_stalled(progress: Weak<Progress>) -> bool {
    let mut last = None;
    loop {
        tokio::time::sleep(STALLED).await;
        let Some(progress) = progress.upgrade() else { return false };
        let taken = progress.taken.load(Ordering::Acquire);
        if last == Some(taken) && !progress.waits.load(Ordering::Acquire) {
            return true;
        }
        last = Some(taken);
    }
}

fn block(event: &str, place: &FeedPosition, data: &Value) -> String {
    format!("event: {event}\nid: {place}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_closed_and_one_that_waits_is_not() {
        let progress = Arc::new(Progress::default());
        progress.waits.store(true, Ordering::Release);
        let watched = tokio::spawn(is_stalled(Arc::downgrade(&progress)));
        tokio::time::sleep(10 * STALLED).await;
        assert!(!watched.is_finished(), "nothing waits for it");
        progress.waits.store(false, Ordering::Release);
        for _ in 0..10 {
            progress.taken.fetch_add(1, Ordering::AcqRel);
            tokio::time::sleep(STALLED / 2).await;
        }
        assert!(!watched.is_finished(), "it takes what comes");
        assert!(watched.await.unwrap());
        let ended = tokio::spawn(is_stalled(Arc::downgrade(&progress)));
        drop(progress);
        assert!(!ended.await.unwrap());
    }

    #[test]
    fn a_stream_is_asked_for_by_its_type() {
        let wanted = |accepted: &[&'static str]| {
            let header = |text: &&'static str| (header::ACCEPT, HeaderValue::from_static(text));
            is_wanted(&accepted.iter().map(header).collect())
        };
        assert!(
            wanted(&["text/event-stream"]) && wanted(&["application/json", "a/b, Text/Event-Stream;q=0.9"])
        );
        assert!(
            !wanted(&["application/json, text/event-stream;q=0"]) && !wanted(&["text/event-stream; Q=0.000"])
        );
        assert!(!wanted(&[]) && !wanted(&["*/*"]) && !wanted(&["text/event-streams"]));
    }
}
