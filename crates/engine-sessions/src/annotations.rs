//! A session's annotations: comments on places in its files, in a separate channel. They are read from the store on
//! first use, outside the mailbox, and a change is stored before clients are notified.

use std::collections::HashSet;

use ahp::reducers::{ReduceOutcome, apply_action_to_annotations};
use futures::future::OptionFuture;
use ostler_contract::points::AnnotationCounts;
use ostler_contract::{Thrown, Value, limit};
use ostler_engine_core::fanout::Origin;
use ostler_engine_core::refusals::Rejection;
use ostler_engine_core::tasks;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{Annotation, AnnotationEntry, AnnotationsState, AnnotationsSummary};
use ostler_protocol::{RpcError, uri};

use super::Place;
use super::actor::Actor;
use super::client_actions::{Refused, refuse, refuse_for_now};
use super::mailbox::{Subscription, ToSession};
use super::queue::Posted;
use super::snapshots::snapshot;

/// Every message about annotations waits until they are read, so that no client sees this.
const NOT_READ: &str = "the annotations have not been read";

/// Maximum size of a session's annotations, in bytes of JSON.
const MAX_BYTES: usize = 4 << 20;

/// The annotations of a session.
#[derive(Debug, Default)]
pub(super) enum Annotations {
    /// Not used since the session woke.
    #[default]
    Unread,
    /// They are being read from the store; messages about them wait in this order.
    #[expect(clippy::vec_box, reason = "messages arrive boxed and are forwarded as they arrived")]
    Reading(Vec<Box<Posted>>),
    /// They are in memory.
    Read(AnnotationsState),
}

/// Returns the summary of a session's annotations that listings show.
pub(super) fn summary(session: &str, counts: AnnotationCounts) -> AnnotationsSummary {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    AnnotationsSummary {
        resource: uri::annotations(session),
        annotation_count: number(counts.annotations),
        entry_count: number(counts.entries),
    }
}

/// Returns the counts in a summary that a listing shows.
pub(super) fn counts_in(shown: &AnnotationsSummary) -> AnnotationCounts {
    let number = |count: i64| u64::try_from(count).unwrap_or_default();
    AnnotationCounts { annotations: number(shown.annotation_count), entries: number(shown.entry_count) }
}

impl Actor {
    /// Whether all annotations of the session are in the store.
    pub(super) fn annotations_rest(&self) -> bool {
        match &self.annotations {
            Annotations::Unread => true,
            Annotations::Reading(_) => false,
            Annotations::Read(state) => {
                state.annotations.is_empty() || self.core.annotation_store().is_some()
            }
        }
    }

    /// Reads the annotations on first use, and holds back messages about them until they are read; returns any other
    /// message.
    pub(super) fn waits_for_annotations(&mut self, posted: Box<Posted>) -> Option<Box<Posted>> {
        if posted.message.place() != Some(&Place::Annotations) {
            return Some(posted);
        }
        match &mut self.annotations {
            Annotations::Read(_) => return Some(posted),
            Annotations::Reading(waiting) => {
                waiting.push(posted);
                return None;
            }
            Annotations::Unread => {}
        }
        let Some(read) = self.core.annotation_store().and_then(|store| store.annotations.clone()) else {
            self.annotations = Annotations::Read(AnnotationsState { annotations: Vec::new() });
            return Some(posted);
        };
        self.annotations = Annotations::Reading(vec![posted]);
        let (id, mailbox) = (self.entry.id.clone(), self.mailbox.clone());
        tasks::spawn(async move {
            let stored = read.read(limit::STORE, (id,)).await;
            let outcome = stored.known().map_err(Thrown::from).and_then(|stored| {
                let annotations = stored.into_iter().map(serde_json::from_value).collect::<Result<_, _>>();
                annotations
                    .map(|annotations| AnnotationsState { annotations })
                    .map_err(|wrong| Thrown::new(format_args!("a stored one is not valid: {wrong}")))
            });
            let _ = mailbox.send(ToSession::AnnotationsRead { outcome });
        });
        None
    }

    /// Continues with the messages that waited for the annotations.
    pub(super) fn annotations_read(&mut self, outcome: Result<AnnotationsState, Thrown>) {
        let Annotations::Reading(waiting) = std::mem::take(&mut self.annotations) else { return };
        let why = match outcome {
            Ok(state) => {
                self.annotations = Annotations::Read(state);
                waiting.into_iter().rev().for_each(|posted| self.again.push_front(posted));
                return;
            }
            Err(why) => why,
        };
        self.core.log.warn(format_args!(
            "{}: the annotations could not be read: {}",
            self.entry.uri,
            why.for_log()
        ));
        let why = format!("the annotations could not be read: {}", why.message);
        for posted in waiting {
            match posted.message {
                ToSession::Subscribe(subscription) => {
                    subscription.answer.fail(RpcError::internal(why.clone()));
                }
                ToSession::Dispatch(dispatch) => self.reject(&dispatch, Rejection::retryable(&*why)),
                _ => {}
            }
        }
    }

    /// Answers a subscription with a snapshot of the annotations; the subscriber then receives the actions after it.
    pub(super) fn watch_annotations(&mut self, subscription: Subscription) {
        let Subscription { spelled, subscriber, answer, room, .. } = subscription;
        self.settle();
        let Annotations::Read(state) = &self.annotations else {
            return answer.fail(RpcError::internal(NOT_READ));
        };
        let text = serde_json::to_string(state).unwrap_or_else(|_| r#"{"annotations":[]}"#.to_owned());
        self.memory.annotations = text.len();
        let seq = self.core.fanout.subscribe(&uri::annotations(&self.entry.uri), subscriber);
        // The answer is charged from here on.
        drop(room);
        answer.give(snapshot(&spelled, &text, seq));
    }

    /// Applies a client's change of the annotations.
    pub(super) async fn annotate(&mut self, action: StateAction, origin: Option<Origin>) -> Refused {
        let mut state = match std::mem::take(&mut self.annotations) {
            Annotations::Read(state) => state,
            other => {
                self.annotations = other;
                return refuse(NOT_READ);
            }
        };
        let outcome = self.annotated(&mut state, &action).await;
        self.annotations = Annotations::Read(state);
        if outcome? {
            self.queue(uri::annotations(&self.entry.uri).into(), &action, origin);
        }
        Ok(())
    }

    /// Applies a change and stores it. Returns whether it changed the annotations. A rejected change leaves the state
    /// as it was.
    async fn annotated(
        &mut self,
        state: &mut AnnotationsState,
        action: &StateAction,
    ) -> Result<bool, Rejection> {
        check(state, action)?;
        let before = state.clone();
        if apply_action_to_annotations(state, action) != ReduceOutcome::Applied || *state == before {
            return Ok(false);
        }
        let shown = Some(summary(&self.entry.uri, counts(state)));
        let counted = shown != self.state.annotations;
        let listed = std::mem::replace(&mut self.state.annotations, shown);
        if let Err(why) = self.store_annotations(state, counted).await {
            self.state.annotations = listed;
            *state = before;
            return Err(why);
        }
        self.dirty = true;
        Ok(true)
    }

    /// Stores the annotations, and their counts if these changed; both writes share one commit.
    async fn store_annotations(&mut self, state: &AnnotationsState, counted: bool) -> Refused {
        let rows: Vec<Value> =
            state.annotations.iter().filter_map(|annotation| serde_json::to_value(annotation).ok()).collect();
        let bytes: usize = rows.iter().map(|row| row.to_string().len()).sum();
        if bytes > MAX_BYTES {
            let most = MAX_BYTES >> 20;
            return refuse(format!("the annotations of this session exceed {most} MiB; remove some"));
        }
        self.memory.annotations = bytes;
        let Some(set) = self.core.annotation_store().and_then(|store| store.set_annotations.as_ref()) else {
            return Ok(());
        };
        let channel = uri::annotations(&self.entry.uri);
        let write = self.keeping(&channel, Some(set.within(limit::STORE, (self.entry.id.clone(), rows))));
        let record = OptionFuture::from(counted.then(|| self.keep_session()));
        match self.stored_session_or_not(futures::future::join(write, record)).await {
            (true, _) => Ok(()),
            (false, _) => refuse_for_now("the annotation could not be stored; try again"),
        }
    }
}

fn counts(state: &AnnotationsState) -> AnnotationCounts {
    let entries = state.annotations.iter().map(|annotation| annotation.entries.len() as u64);
    AnnotationCounts { annotations: state.annotations.len() as u64, entries: entries.sum() }
}

/// Checks whether the protocol permits a change.
fn check(state: &AnnotationsState, action: &StateAction) -> Refused {
    let named = |id: &str| {
        let found = state.annotations.iter().find(|annotation| annotation.id == id);
        found.ok_or_else(|| Rejection::from(format!("there is no annotation {id}")))
    };
    match action {
        StateAction::AnnotationsSet(set) => check_new(&set.annotation),
        StateAction::AnnotationsUpdated(updated) => named(&updated.annotation_id).map(drop),
        StateAction::AnnotationsRemoved(removed) => named(&removed.annotation_id).map(drop),
        StateAction::AnnotationsEntrySet(set) => {
            named(&set.annotation_id)?;
            has_id(&set.entry.id, "entry")
        }
        StateAction::AnnotationsEntryRemoved(removed) => {
            let annotation = named(&removed.annotation_id)?;
            let is_it = |entry: &AnnotationEntry| entry.id == removed.entry_id;
            match (annotation.entries.iter().any(is_it), annotation.entries.len()) {
                (false, _) => refuse(format!("{} has no entry {}", removed.annotation_id, removed.entry_id)),
                (true, 1) => refuse(format!(
                    "{} is the last entry of {}; dispatch annotations/removed instead",
                    removed.entry_id, removed.annotation_id
                )),
                (true, _) => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn check_new(annotation: &Annotation) -> Refused {
    has_id(&annotation.id, "annotation")?;
    if annotation.entries.is_empty() {
        return refuse("an annotation needs at least one entry");
    }
    let mut ids = HashSet::new();
    for entry in &annotation.entries {
        has_id(&entry.id, "entry")?;
        if !ids.insert(entry.id.as_str()) {
            return refuse(format!("{}: duplicate entry id {}", annotation.id, entry.id));
        }
    }
    Ok(())
}

fn has_id(id: &str, what: &str) -> Refused {
    match id.trim().is_empty() {
        true => refuse(format!("an {what} needs an id")),
        false => Ok(()),
    }
}
