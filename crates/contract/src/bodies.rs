//! Bodies of requests, read within a budget.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::budget::{Budget, Charge};
use crate::http::{Body, BodyError};

/// A body of one piece up to this size is taken without a charge.
const FREE: usize = 16 * 1024;
/// How long a body that finds no memory waits for some.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a body of an unverified sender may take before it makes room for others.
const SLOW: Duration = Duration::from_secs(2);

/// The memory for bodies of requests. The server attaches it to each request of a plugin route, as an extension.
#[derive(Debug, Clone)]
pub struct Bodies {
    admitted: Budget,
    unverified: Budget,
    readers: Arc<Mutex<Readers>>,
}

/// Bodies of unverified senders being read, oldest first.
#[derive(Debug, Default)]
struct Readers {
    next: u64,
    all: BTreeMap<u64, (Instant, Arc<Notify>)>,
}

impl Default for Bodies {
    fn default() -> Self {
        Self::new(Budget::new(usize::MAX / 2), usize::MAX / 2)
    }
}

impl Bodies {
    /// Bodies of authenticated senders share `admitted`; those of all others share `unverified` bytes.
    pub fn new(admitted: Budget, unverified: usize) -> Self {
        Self { admitted, unverified: Budget::new(unverified), readers: Arc::default() }
    }

    /// Reads a body of at most `limit` bytes whose sender is authenticated. It is charged until it is dropped.
    ///
    /// # Errors
    /// The body is too large, was cut short or did not arrive in time, or there is no memory for it.
    pub async fn read(&self, body: Body, limit: usize) -> Result<Bytes, BodyError> {
        read(body, limit, &self.admitted, || {}).await
    }

    /// Reads a body whose sender is verified by what it says. Where there is no memory, one that takes long is given
    /// up for one that has just begun.
    ///
    /// # Errors
    /// The body is too large, was cut short or did not arrive in time, or there is no memory for it.
    pub async fn read_unverified(&self, body: Body, limit: usize) -> Result<Bytes, BodyError> {
        let reading = Reading::new(self);
        tokio::select! {
            biased;
            read = read(body, limit, &self.unverified, || reading.make_room()) => read,
            () = reading.given_up.notified() => Err(BodyError::NoMemory),
        }
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One body of an unverified sender.
struct Reading<'a> {
    bodies: &'a Bodies,
    number: u64,
    given_up: Arc<Notify>,
}

impl<'a> Reading<'a> {
    fn new(bodies: &'a Bodies) -> Self {
        let given_up = Arc::<Notify>::default();
        let mut readers = bodies.readers();
        readers.next += 1;
        let number = readers.next;
        readers.all.insert(number, (Instant::now(), given_up.clone()));
        Self { bodies, number, given_up }
    }

    /// Gives up the oldest body that has had its time.
    fn make_room(&self) {
        let mut readers = self.bodies.readers();
        let oldest = readers.all.iter().find(|(number, _)| **number != self.number);
        let Some((number, (since, given_up))) = oldest else { return };
        if since.elapsed() >= SLOW {
            given_up.notify_one();
            let number = *number;
            readers.all.remove(&number);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.bodies.readers().all.remove(&self.number);
    }
}

async fn read(
    mut body: Body,
    limit: usize,
    budget: &Budget,
    make_room: impl Fn(),
) -> Result<Bytes, BodyError> {
    let Some(first) = body.next().await.transpose()? else { return Ok(Bytes::new()) };
    if first.len() > limit {
        return Err(BodyError::TooLarge(limit));
    }
    let mut next = body.next().await.transpose()?;
    let mut charge = budget.take_anyway(0);
    if next.is_none() {
        if first.len() <= FREE {
            return Ok(first);
        }
        grow(&mut charge, budget, first.len(), &make_room).await?;
        return Ok(charge.around(first));
    }
    let mut all = Vec::new();
    let mut chunk = Some(first);
    while let Some(bytes) = chunk {
        let length = all.len() + bytes.len();
        if length > limit {
            return Err(BodyError::TooLarge(limit));
        }
        if length > all.capacity() {
            let mut capacity = length.max(2 * all.capacity()).min(limit);
            // Where there is no memory to grow at ease, there may be some for what came.
            if !charge.try_grow(capacity - charge.bytes()) {
                capacity = length;
                let more = capacity - charge.bytes();
                grow(&mut charge, budget, more, &make_room).await?;
            }
            all.reserve_exact(capacity - all.len());
        }
        all.extend_from_slice(&bytes);
        drop(bytes);
        chunk = match next.take() {
            Some(bytes) => Some(bytes),
            None => body.next().await.transpose()?,
        };
    }
    Ok(charge.around(all.into()))
}

async fn grow(
    charge: &mut Charge,
    budget: &Budget,
    more: usize,
    make_room: &impl Fn(),
) -> Result<(), BodyError> {
    if charge.try_grow(more) {
        return Ok(());
    }
    make_room();
    match timeout(PATIENCE, budget.take(more)).await {
        Ok(Some(grown)) => {
            charge.merge(grown);
            Ok(())
        }
        _ => Err(BodyError::NoMemory),
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::sync::mpsc;

    use super::*;

    const MIB: usize = 1024 * 1024;

    /// A body somebody sends bit by bit.
    fn slow() -> (mpsc::UnboundedSender<Bytes>, Body) {
        let (send, mut sent) = mpsc::unbounded_channel();
        let chunks = futures::stream::poll_fn(move |context| sent.poll_recv(context)).map(Ok);
        (send, Body::stream(chunks))
    }

    fn whole(length: usize) -> Body {
        let chunks = vec![Bytes::from(vec![1; 40_000]); length / 40_000];
        Body::stream(futures::stream::iter(chunks.into_iter().map(Ok)))
    }

    #[tokio::test]
    async fn a_body_is_charged_until_it_is_dropped() {
        let budget = Budget::new(8 * MIB);
        let bodies = Bodies::new(budget.clone(), MIB);
        let read = bodies.read(whole(2 * MIB), 3 * MIB).await.unwrap();
        assert!(budget.used() >= read.len() && budget.used() <= 3 * MIB, "{}", budget.used());
        drop(read);
        assert_eq!(budget.used(), 0);
        assert_eq!(bodies.read(whole(2 * MIB), MIB).await, Err(BodyError::TooLarge(MIB)));
        assert_eq!(bodies.read(Bytes::from("{}").into(), 10).await.unwrap(), "{}");
        assert_eq!(budget.used(), 0, "a short one costs nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_makes_room_for_one_that_has_just_begun() {
        let bodies = Bodies::new(Budget::new(MIB), MIB);
        let (send, body) = slow();
        let reader = bodies.clone();
        let slow = tokio::spawn(async move { reader.read_unverified(body, MIB).await });
        for _ in 0..12 {
            send.send(vec![0; 40_000].into()).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let refused = bodies.read_unverified(whole(MIB / 2), MIB).await;
        assert!(refused == Err(BodyError::NoMemory), "the first one has hardly begun");
        tokio::time::sleep(SLOW).await;
        assert!(bodies.read_unverified(whole(MIB / 2), MIB).await.is_ok());
        assert!(slow.await.unwrap() == Err(BodyError::NoMemory));
        assert_eq!(bodies.unverified.used(), 0);
        assert!(bodies.readers().all.is_empty());
    }
}
