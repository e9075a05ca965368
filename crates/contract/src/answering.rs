//! Answers of native functions, which exist already or come later. A panic is an error of that call.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use crate::live::{Pending, ready};
use crate::thrown::Thrown;

/// An answer that exists, or one that comes later. [`Call::within`](crate::Call::within) passes on an answer that exists without
/// an allocation and a timer.
#[must_use]
pub enum Answering<T> {
    /// It exists.
    Now(Result<T, Thrown>),
    /// It comes later.
    Later(Pending<T>),
}

impl<T: Send + 'static> Answering<T> {
    /// Changes the answer, unless it is an error.
    pub fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'static) -> Answering<U> {
        match self {
            Self::Now(answer) => Answering::Now(answer.map(change)),
            Self::Later(answer) => Answering::Later(Box::pin(async move { answer.await.map(change) })),
        }
    }
}

impl<T: Send + 'static> From<Answering<T>> for Pending<T> {
    fn from(answering: Answering<T>) -> Self {
        match answering {
            Answering::Now(answer) => ready(answer),
            Answering::Later(answer) => answer,
        }
    }
}

/// A panic in a native function fails that call, like an exception in a JavaScript function.
pub(crate) fn caught<T: Send + 'static, O>(begin: impl FnOnce() -> O) -> Answering<T>
where
    O: Future<Output = Result<T, Thrown>> + Send + 'static,
{
    match std::panic::catch_unwind(AssertUnwindSafe(begin)) {
        // Not an async block, which would contain the answer twice.
        Ok(answer) => Answering::Later(Box::pin(
            AssertUnwindSafe(answer)
                .catch_unwind()
                .map(|answered| answered.unwrap_or_else(|panic| Err(panicked(&*panic)))),
        )),
        Err(panic) => Answering::Now(Err(panicked(&*panic))),
    }
}

/// Catches a panic before the answer and, if the answer comes later, in its future.
pub(crate) fn caught_either<T: Send + 'static>(call: impl FnOnce() -> Answering<T>) -> Answering<T> {
    match std::panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(Answering::Later(answer)) => caught(|| answer),
        Ok(now) => now,
        Err(panic) => Answering::Now(Err(panicked(&*panic))),
    }
}

pub(crate) fn caught_now<T>(call: impl FnOnce() -> Result<T, Thrown>) -> Result<T, Thrown> {
    std::panic::catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn Any + Send)) -> Thrown {
    let said = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    match said {
        Some(said) => Thrown::new(format_args!("it panicked: {said}")),
        None => Thrown::new("it panicked"),
    }
}
