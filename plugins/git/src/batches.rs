//! Requests that are processed together.

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use ostler_processes::shared_work::SharedWork;

/// Requests of one kind. Those that wait at the same time are one batch; a request that is no longer waited for is in none.
pub(crate) struct Batches<I, O> {
    waiting: Arc<Mutex<Vec<Waiting<I, O>>>>,
    runs: SharedWork<()>,
}

struct Waiting<I, O> {
    request: I,
    reply: oneshot::Sender<O>,
}

impl<I, O> Default for Batches<I, O> {
    fn default() -> Self {
        Self { waiting: Arc::default(), runs: SharedWork::default() }
    }
}

impl<I: Send + 'static, O: Send + 'static> Batches<I, O> {
    /// Adds a request to the next batch, in the order of these calls. Returns its result, in the order of `work`'s requests;
    /// `None` if `work` returned none.
    pub(crate) fn add<F>(
        &self,
        request: I,
        work: impl FnOnce(Vec<I>) -> F + Send + 'static,
    ) -> BoxFuture<'static, Option<O>>
    where
        F: Future<Output = Vec<O>> + Send + 'static,
    {
        let (reply, replied) = oneshot::channel();
        let add = || {
            let mut waiting = self.waiting.lock();
            waiting.retain(|other| !other.reply.is_closed());
            waiting.push(Waiting { request, reply });
        };
        let waiting = self.waiting.clone();
        let process = move || {
            let batch = std::mem::take(&mut *waiting.lock());
            async move {
                let batch = batch.into_iter().filter(|it| !it.reply.is_closed());
                let (requests, replies): (Vec<I>, Vec<_>) = batch.map(|it| (it.request, it.reply)).unzip();
                for (reply, result) in replies.into_iter().zip(work(requests).await) {
                    let _ = reply.send(result);
                }
            }
        };
        let run = self.runs.join(add, process);
        Box::pin(async move {
            run.await;
            replied.await.ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_that_wait_are_one_batch_without_those_that_were_abandoned() {
        let batches = Batches::<u32, (u32, usize)>::default();
        let add = |number| {
            batches.add(number, |all: Vec<u32>| async move {
                let count = all.len();
                all.into_iter().map(|number| (number, count)).collect()
            })
        };
        let mut requests: Vec<_> = (0..500).map(add).collect();
        drop(requests.drain(100..));
        let results = futures::future::join_all(requests).await;
        let expected: Vec<_> = (0..100).map(|number| Some((number, 100))).collect();
        assert_eq!(results, expected);
        assert_eq!(add(7).await, Some((7, 1)));
    }
}
