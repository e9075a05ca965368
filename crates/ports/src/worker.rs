//! A thread that owns something blocking and serves callers in the order they ask.

use std::io;
use std::sync::mpsc;
use std::thread;

use ostler_contract::Thrown;
use ostler_contract::live::{Pending, ready};
use tokio::sync::oneshot;

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// The thread ends once this is dropped and what was asked is done.
pub(crate) struct Worker<S> {
    jobs: mpsc::Sender<Job<S>>,
}

impl<S: Send + 'static> Worker<S> {
    pub(crate) fn start(name: &str, mut state: S) -> io::Result<Self> {
        let (jobs, asked) = mpsc::channel::<Job<S>>();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            for job in asked {
                job(&mut state);
            }
        })?;
        Ok(Self { jobs })
    }

    /// Takes its place among the jobs now; the answer comes later.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut S) -> Result<T, Thrown> + Send + 'static,
    ) -> Pending<T> {
        let (answer, answered) = oneshot::channel();
        let job = move |state: &mut S| {
            // Nobody waits any more: what was asked is done all the same.
            let _ = answer.send(job(state));
        };
        match self.jobs.send(Box::new(job)) {
            Ok(()) => Box::pin(async move { answered.await.unwrap_or_else(|_| Err(stopped())) }),
            Err(_) => ready(Err(stopped())),
        }
    }
}

pub(crate) fn stopped() -> Thrown {
    Thrown::new("this store has stopped; restart the host")
}
