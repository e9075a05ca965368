//! A thread that owns a blocking resource and serves calls in their order.

use std::io;
use std::sync::mpsc;
use std::thread;

use ostler_contract::Thrown;
use ostler_contract::live::{Pending, ready};
use tokio::sync::oneshot;

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// The thread ends once this is dropped and all calls are done.
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

    /// Queues a job now and returns its future answer.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut S) -> Result<T, Thrown> + Send + 'static,
    ) -> Pending<T> {
        let (answer, answered) = oneshot::channel();
        let job = move |state: &mut S| {
            // The caller may no longer wait; the job is done anyway.
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
