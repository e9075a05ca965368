//! Promises that were rejected while nobody listened.

use std::cell::RefCell;

use rquickjs::{Ctx, Persistent, Value};

/// Rejected promises nobody has listened to yet.
#[derive(Default)]
pub(crate) struct Rejections(RefCell<Vec<Rejection>>);

pub(crate) struct Rejection {
    pub(crate) promise: Persistent<Value<'static>>,
    pub(crate) reason: Persistent<Value<'static>>,
}

impl Rejections {
    /// What the engine reports: a promise was rejected unheard, or is heard after all.
    pub(crate) fn track<'js>(&self, ctx: &Ctx<'js>, promise: Value<'js>, reason: Value<'js>, heard: bool) {
        if heard {
            let is = |known: &Persistent<Value<'static>>, value: &Value<'js>| {
                known.clone().restore(ctx).is_ok_and(|known| known == *value)
            };
            let mut known = self.0.borrow_mut();
            if known.iter().any(|known| is(&known.promise, &promise)) {
                // A module that throws rejects a promise of the engine's own as well, which nobody can hear.
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

    /// Those nobody has listened to by the end of a turn.
    pub(crate) fn take(&self) -> Vec<Rejection> {
        std::mem::take(&mut *self.0.borrow_mut())
    }

    pub(crate) fn clear(&self) {
        drop(self.take());
    }
}
