//! Promises that were rejected without a handler.

use std::cell::RefCell;

use rquickjs::{Ctx, Persistent, Value};

/// Rejected promises that have no handler yet.
#[derive(Default)]
pub(crate) struct Rejections(RefCell<Vec<Rejection>>);

pub(crate) struct Rejection {
    pub(crate) promise: Persistent<Value<'static>>,
    pub(crate) reason: Persistent<Value<'static>>,
}

impl Rejections {
    /// Handles a report of the engine: a promise was rejected without a handler, or a handler was added later.
    pub(crate) fn track<'js>(&self, ctx: &Ctx<'js>, promise: Value<'js>, reason: Value<'js>, heard: bool) {
        if heard {
            let is = |known: &Persistent<Value<'static>>, value: &Value<'js>| {
                known.clone().restore(ctx).is_ok_and(|known| known == *value)
            };
            let mut known = self.0.borrow_mut();
            if known.iter().any(|known| is(&known.promise, &promise)) {
                // A module that throws also rejects an internal promise of the engine, which cannot have a handler.
                let (gone, kept) = known.drain(..).partition(|known| is(&known.reason, &reason));
                *known = kept;
                drop(known);
                drop::<Vec<_>>(gone);
            }
        } else {
            let promise = Persistent::save(ctx, promise);
            let reason = Persistent::save(ctx, reason);
            self.0.borrow_mut().push(Rejection { promise, reason });
        }
    }

    /// Takes the promises that have no handler at the end of a turn.
    pub(crate) fn take(&self) -> Vec<Rejection> {
        std::mem::take(&mut *self.0.borrow_mut())
    }

    pub(crate) fn clear(&self) {
        drop(self.take());
    }
}
