//! Bodies of requests, read within a budget.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::TryFutureExt as _;
use ostler_protocol::message::count_values;
use ostler_protocol::surrogates::read_json;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::budget::{Budget, Charge, SMALL, VALUE};
use crate::http::{Body, BodyError};

/// A body that arrives in one piece of up to this size is not charged.
const FREE: usize = 16 * 1024;
/// A longer body is parsed on a separate thread.
pub const LONG: usize = 256 * 1024;
/// How long a body waits for memory.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a body of an unverified sender may take before it makes room for others.
const SLOW: Duration = Duration::from_secs(2);

/// The memory for bodies of requests. The server attaches it to each request of a plugin route, as an extension.
#[derive(Debug, Clone)]
pub struct Bodies {
    admitted: Budget,
    unverified: Budget,
    readers: Arc<Mutex<Readers>>,
    /// Why a body of this request was refused.
    refused: Arc<OnceLock<BodyError>>,
}

/// Bodies of unverified senders being read, oldest first.
#[derive(Debug, Default)]
struct Readers {
    next: u64,
    all: BTreeMap<u64, Reader>,
}

#[derive(Debug)]
struct Reader {
    since: Instant,
    /// The bytes that were read and are in memory.
    budget: Budget,
    given_up: Arc<Notify>,
}

impl Default for Bodies {
    fn default() -> Self {
        Self::new(Budget::new(usize::MAX / 2), usize::MAX / 2)
    }
}

/// A JSON body of an authenticated sender, with its charge.
#[derive(Debug)]
pub struct JsonBody {
    /// Its value; `None` if the body is empty.
    pub value: Option<Value>,
    /// The memory that the value uses.
    pub charge: Charge,
}

/// Why a JSON body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum JsonBodyError {
    /// The body itself could not be read.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// It is not JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl Bodies {
    /// Bodies of authenticated senders share `admitted`; those of all others share `unverified` bytes.
    pub fn new(admitted: Budget, unverified: usize) -> Self {
        let unverified = Budget::new(unverified);
        Self { admitted, unverified, readers: Arc::default(), refused: Arc::default() }
    }

    /// The same memory for one request, whose refusal [`Bodies::refused`] returns.
    #[must_use]
    pub fn of_request(&self) -> Self {
        Self { refused: Arc::default(), ..self.clone() }
    }

    /// The memory for bodies of senders that are not verified.
    pub fn unverified(&self) -> &Budget {
        &self.unverified
    }

    /// Why a body of this request was refused: it was too large, or there was no memory for it.
    pub fn refused(&self) -> Option<&BodyError> {
        self.refused.get()
    }

    /// Reads a body of at most `limit` bytes whose sender is authenticated. It is charged until it is dropped.
    ///
    /// # Errors
    /// The body is too large, was cut short or did not arrive in time, or there is no memory for it.
    pub fn read(
        &self,
        body: Body,
        limit: usize,
    ) -> impl Future<Output = Result<Bytes, BodyError>> + Send + use<'_> {
        read(body, limit, &self.admitted, || {}).map_ok(|(bytes, charge)| charge.around(bytes))
    }

    /// Reads a JSON body of at most `limit` bytes whose sender is authenticated, a long one on a separate thread. The
    /// text is charged until it is parsed, the values until they are dropped.
    ///
    /// # Errors
    /// The body is not JSON, is too large, was cut short or did not arrive in time, or there is no memory for it.
    pub async fn read_json(&self, body: Body, limit: usize) -> Result<JsonBody, JsonBodyError> {
        let text = self.read(body, limit).await?;
        let mut charge = self.admitted.take_anyway(0);
        if text.len() > FREE {
            let values = match text.len() {
                ..=LONG => count_values(&text),
                _ => {
                    let text = text.clone();
                    let counted = tokio::task::spawn_blocking(move || count_values(&text)).await;
                    counted.map_err(|_| BodyError::NoMemory)?
                }
            };
            let most = self.admitted.largest() / VALUE;
            if values > most {
                return Err(BodyError::TooManyValues { values, most }.into());
            }
            grow(&mut charge, values * VALUE, &|| {}).await?;
        }
        let value = match text.len() {
            0 => None,
            1..=LONG => Some(read_json(&text)?),
            _ => {
                let parsed = tokio::task::spawn_blocking(move || read_json(&text)).await;
                Some(parsed.map_err(|_| BodyError::NoMemory)??)
            }
        };
        Ok(JsonBody { value, charge })
    }

    /// Charges memory that is used in addition to the body itself, as soon as it is available.
    ///
    /// # Errors
    /// No memory is available for too long.
    pub async fn charge(&self, bytes: usize) -> Result<Charge, BodyError> {
        let mut charge = self.admitted.take_anyway(0);
        grow(&mut charge, bytes, &|| {}).await?;
        Ok(charge)
    }

    /// Reads a body whose content verifies its sender. If no memory is available, a body that takes long is given up
    /// for one that has just begun.
    ///
    /// # Errors
    /// The body is too large, was cut short or did not arrive in time, or there is no memory for it.
    pub async fn read_unverified(&self, body: Body, limit: usize) -> Result<Bytes, BodyError> {
        let (bytes, charge) = Reading::new(self).read(body, limit).await?;
        Ok(charge.around(bytes))
    }

    /// The body of a request whose sender the host does not know, for code that reads it in pieces.
    pub fn pieces(&self, body: Body) -> Pieces {
        Pieces { body, bodies: self.clone(), reading: None }
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records why the host refused a body of this request.
    fn note<T>(&self, read: Result<T, BodyError>) -> Result<T, BodyError> {
        if let Err(error @ (BodyError::NoMemory | BodyError::TooLarge(_))) = &read {
            let _ = self.refused.set(error.clone());
        }
        read
    }
}

/// A body that is read in pieces, of a sender that the host has not verified. A piece is charged until its charge is
/// dropped. If no memory is available, a body that takes long is given up for one that has just begun.
#[derive(Debug)]
pub struct Pieces {
    body: Body,
    bodies: Bodies,
    /// The charge, from the first piece to the end.
    reading: Option<Reading>,
}

impl Pieces {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The body was cut short or did not arrive in time, or there is no memory for it.
    pub async fn next(&mut self) -> Option<Result<(Bytes, Charge), BodyError>> {
        let Self { body, bodies, reading } = self;
        let reading = reading.get_or_insert_with(|| Reading::new(bodies));
        let next = async {
            let bytes = match body.next().await {
                Some(Ok(bytes)) => bytes,
                Some(Err(error)) => return Some(Err(error)),
                None => return None,
            };
            let mut charge = reading.budget.take_anyway(0);
            let grown = grow(&mut charge, bytes.len(), &|| reading.make_room()).await;
            Some(grown.map(|()| (bytes, charge)))
        };
        let read = tokio::select! {
            biased;
            () = reading.given_up.notified() => Some(Err(BodyError::NoMemory)),
            read = next => read,
        };
        let read = read.map(|read| bodies.note(read));
        if !matches!(read, Some(Ok(_))) {
            self.end();
        }
        read
    }

    /// The rest of the body, of at most three quarters of the memory for all such bodies.
    ///
    /// # Errors
    /// The body is too large, was cut short or did not arrive in time, or there is no memory for it.
    pub async fn all(&mut self) -> Result<(Bytes, Charge), BodyError> {
        let reading = self.reading.take().unwrap_or_else(|| Reading::new(&self.bodies));
        let body = std::mem::take(&mut self.body);
        let read = reading.read(body, self.bodies.unverified.largest()).await;
        self.bodies.note(read)
    }

    fn end(&mut self) {
        self.body = Body::Empty;
        self.reading = None;
    }
}

/// One body of an unverified sender.
#[derive(Debug)]
struct Reading {
    bodies: Bodies,
    number: u64,
    budget: Budget,
    given_up: Arc<Notify>,
}

impl Reading {
    fn new(bodies: &Bodies) -> Self {
        let given_up = Arc::<Notify>::default();
        let budget = bodies.unverified.part(usize::MAX / 2);
        let reader = Reader { since: Instant::now(), budget: budget.clone(), given_up: given_up.clone() };
        let mut readers = bodies.readers();
        readers.next += 1;
        let number = readers.next;
        readers.all.insert(number, reader);
        drop(readers);
        Self { bodies: bodies.clone(), number, budget, given_up }
    }

    async fn read(&self, body: Body, limit: usize) -> Result<(Bytes, Charge), BodyError> {
        tokio::select! {
            biased;
            read = read(body, limit, &self.budget, || self.make_room()) => read,
            () = self.given_up.notified() => Err(BodyError::NoMemory),
        }
    }

    /// Gives up the oldest body whose time is over. A body with little in memory is given up only if all are like that.
    fn make_room(&self) {
        let mut readers = self.bodies.readers();
        let slow = |more_than: usize| {
            let mut slow = readers.all.iter().filter(|(number, reader)| {
                **number != self.number && reader.since.elapsed() >= SLOW && reader.budget.used() > more_than
            });
            slow.next().map(|(number, _)| *number)
        };
        let Some(number) = slow(SMALL).or_else(|| slow(0)) else { return };
        if let Some(reader) = readers.all.remove(&number) {
            reader.given_up.notify_one();
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.bodies.readers().all.remove(&self.number);
    }
}

async fn read(
    mut body: Body,
    limit: usize,
    budget: &Budget,
    make_room: impl Fn(),
) -> Result<(Bytes, Charge), BodyError> {
    let mut charge = budget.take_anyway(0);
    let Some(first) = body.next().await.transpose()? else { return Ok((Bytes::new(), charge)) };
    if first.len() > limit {
        return Err(BodyError::TooLarge(limit));
    }
    match body.next().await.transpose()? {
        // Few bodies have several chunks, and the futures of the others are smaller.
        Some(next) => {
            let all = Box::pin(gather([first, next], body, limit, &mut charge, &make_room)).await?;
            Ok((all.into(), charge))
        }
        None => {
            if first.len() > FREE {
                grow(&mut charge, first.len(), &make_room).await?;
            }
            Ok((first, charge))
        }
    }
}

/// Returns the bytes of a body that begins with these chunks.
async fn gather(
    [first, next]: [Bytes; 2],
    mut body: Body,
    limit: usize,
    charge: &mut Charge,
    make_room: &impl Fn(),
) -> Result<Vec<u8>, BodyError> {
    let mut next = Some(next);
    let mut all = Vec::new();
    let mut chunk = Some(first);
    while let Some(bytes) = chunk {
        let length = all.len() + bytes.len();
        if length > limit {
            return Err(BodyError::TooLarge(limit));
        }
        if length > all.capacity() {
            let mut capacity = length.max(2 * all.capacity()).min(limit);
            // Without memory to grow, there may still be enough for the bytes that arrived.
            if !charge.try_grow(capacity - charge.bytes()) {
                capacity = length;
                let more = capacity - charge.bytes();
                grow(charge, more, make_room).await?;
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
    Ok(all)
}

async fn grow(charge: &mut Charge, more: usize, make_room: &impl Fn()) -> Result<(), BodyError> {
    if charge.try_grow(more) {
        return Ok(());
    }
    make_room();
    timeout(PATIENCE, charge.grow(more)).await.map_err(|_| BodyError::NoMemory)
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

    #[tokio::test(start_paused = true)]
    async fn a_body_read_piece_by_piece_is_charged_for_the_pieces_in_use() {
        let bodies = Bodies::new(Budget::new(MIB), MIB);
        let mut pieces = bodies.pieces(whole(8 * MIB));
        while let Some(piece) = pieces.next().await {
            let (piece, charge) = piece.unwrap();
            assert_eq!(
                (bodies.unverified.used(), charge.bytes()),
                (piece.len(), piece.len()),
                "the others are free"
            );
        }
        assert!(bodies.unverified.used() == 0 && bodies.readers().all.is_empty());
        let mut kept = Vec::new();
        let request = bodies.of_request();
        let mut pieces = request.pieces(whole(8 * MIB));
        let refused = loop {
            match pieces.next().await.unwrap() {
                Ok((_, charge)) => kept.push(charge),
                Err(error) => break error,
            }
        };
        assert_eq!((request.refused(), bodies.refused()), (Some(&refused), None), "of this request alone");
        assert_eq!(refused, BodyError::NoMemory);
        assert!(bodies.unverified.used() > MIB / 2 && bodies.readers().all.is_empty());
        kept.clear();
        let (all, charge) = bodies.pieces(whole(MIB / 2)).all().await.unwrap();
        assert!(charge.bytes() >= all.len() && bodies.readers().all.is_empty());
        drop(charge);
        let request = bodies.of_request();
        assert!(request.pieces(whole(2 * MIB)).all().await.is_err());
        assert_eq!(request.refused(), Some(&BodyError::TooLarge(MIB / 4 * 3)));
        assert_eq!(bodies.unverified.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_body_that_takes_much_makes_room_before_one_that_takes_little() {
        let bodies = Bodies::new(Budget::new(MIB), MIB);
        let (send_little, little) = slow();
        let (send_much, much) = slow();
        let mut little = bodies.pieces(little);
        send_little.send(vec![0; 20_000].into()).unwrap();
        let _piece = little.next().await.unwrap().unwrap();
        let reader = bodies.clone();
        let much = tokio::spawn(async move { reader.read_unverified(much, MIB).await });
        for _ in 0..15 {
            send_much.send(vec![0; 40_000].into()).unwrap();
        }
        tokio::time::sleep(SLOW).await;
        assert!(bodies.read_unverified(whole(MIB / 2), MIB).await.is_ok());
        assert!(much.await.unwrap() == Err(BodyError::NoMemory));
        send_little.send(vec![0; 20_000].into()).unwrap();
        assert!(little.next().await.unwrap().is_ok(), "the older one goes on");
    }

    #[tokio::test]
    async fn the_values_of_a_json_body_are_charged_until_they_are_dropped() {
        let budget = Budget::new(8 * MIB);
        let bodies = Bodies::new(budget.clone(), MIB);
        for (text, values) in [("[1,2]".to_owned(), 0), (format!("[{}1]", "1,".repeat(20_000)), 20_002)] {
            let read = bodies.read_json(text.into(), MIB).await.unwrap();
            assert_eq!((budget.used(), read.charge.bytes()), (values * VALUE, values * VALUE));
            assert!(read.value.is_some());
        }
        assert_eq!(budget.used(), 0);
        assert_eq!(bodies.read_json(Body::Empty, MIB).await.unwrap().value, None);
        let long = format!("[{}1]", " ".repeat(LONG));
        assert_eq!(bodies.read_json(long.into(), MIB).await.unwrap().value, Some(serde_json::json!([1])));
        let read = bodies.read_json(format!("[{}1]", "1,     ".repeat(45_000)).into(), MIB).await;
        assert_eq!(read.unwrap().charge.bytes(), 45_002 * VALUE);
        assert!(matches!(bodies.read_json("{".into(), MIB).await, Err(JsonBodyError::Json(_))));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn another_thread_counts_the_values_of_a_long_text() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // The only other thread is busy until the read has begun to wait for it.
            let (free, busy) = std::sync::mpsc::channel::<()>();
            let other = tokio::task::spawn_blocking(move || busy.recv());
            let bodies = Bodies::new(Budget::new(8 * MIB), MIB);
            // The error follows from the count alone, so nothing else can make the read wait.
            let many = bodies.read_json(format!("[{}1]", "1,     ".repeat(100_000)).into(), MIB);
            tokio::pin!(many);
            assert!(futures::poll!(&mut many).is_pending());
            free.send(()).unwrap();
            other.await.unwrap().unwrap();
            let many = many.await.unwrap_err();
            assert_eq!(many.to_string(), "the body contains 100002 JSON values; the limit is 49152");
        });
    }
}
