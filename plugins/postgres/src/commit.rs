//! The protocol of a transaction: when it is sent again, and when it was committed although its answer was lost. Independent of
//! the database, so that the simulation of a cluster runs it too.
//!
//! A transaction has the next number of its host, and the database refuses it if the host has no lease or the number was used.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Thrown;
use tokio::time::Instant;

use crate::lease::Lease;

/// The first pause before another try.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a transaction waits before that is reported.
const LATE: Duration = Duration::from_secs(2);

/// Why a transaction failed.
pub enum Failed<R> {
    /// It was not committed, or that is unknown; contains the result if the commit was sent.
    Unavailable(String, Option<R>),
    /// The database rejected a statement.
    Refused(Thrown),
    /// The host has no lease.
    NoLease,
    /// The transaction's number was used.
    Committed,
}

/// A transaction, and the connection that sends it.
pub trait Transaction: Send {
    /// The result of a committed transaction.
    type Result: Send;

    /// Sends it once, with a number.
    fn attempt(
        &mut self,
        number: i64,
    ) -> impl Future<Output = Result<Self::Result, Failed<Self::Result>>> + Send;

    /// Returns the number of the last transaction of the host that was committed, if the host has a row. Waits for one that has
    /// not ended.
    fn last_committed(&mut self) -> impl Future<Output = Result<Option<i64>, String>> + Send;

    /// It was committed.
    fn settle(&mut self, result: &Self::Result);

    /// It was not committed, or that is unknown, so the positions of its sessions are too.
    fn forget(&mut self);

    /// The connection is no longer used.
    fn disconnect(&mut self);

    /// It has waited long, because of this.
    fn is_late(&mut self, why: &str);
}

/// Commits a transaction of a run of the host, and tries as often as necessary. `number` is that of the last transaction that
/// was committed.
///
/// # Errors
/// The database rejected it, or the host has lost its lease; then it may have been committed.
pub async fn commit<T: Transaction>(
    transaction: &mut T,
    lease: &Lease,
    incarnation: &Arc<str>,
    number: &mut i64,
) -> Result<T::Result, Thrown> {
    // The result of a transaction whose commit was sent.
    let mut unsure: Option<T::Result> = None;
    let (begun, mut pause) = (Instant::now(), PAUSE);
    loop {
        if let Err(why) = lease.check_for(incarnation) {
            transaction.forget();
            let unsure = unsure.map_or("", |_| "; this write may have been stored");
            return Err(Thrown::new(format_args!("{}{unsure}", why.message)));
        }
        let outcome = match unsure.take() {
            None => transaction.attempt(*number + 1).await,
            // The transaction that may have been committed ends first.
            Some(result) => match transaction.last_committed().await {
                Ok(Some(last)) if last > *number => {
                    *number = last;
                    transaction.settle(&result);
                    return Ok(result);
                }
                Ok(Some(_)) => continue,
                Ok(None) => {
                    unsure = Some(result);
                    Err(Failed::NoLease)
                }
                Err(why) => Err(Failed::Unavailable(why, Some(result))),
            },
        };
        match outcome {
            Ok(result) => {
                *number += 1;
                transaction.settle(&result);
                return Ok(result);
            }
            Err(Failed::Refused(why)) => {
                transaction.forget();
                return Err(why);
            }
            Err(Failed::NoLease) => {
                transaction.forget();
                // The row of a host that was taken over is gone; one that has expired can be renewed.
                if let Ok(None) = transaction.last_committed().await {
                    lease.lose(incarnation);
                }
            }
            Err(Failed::Committed) => {
                transaction.forget();
                match transaction.last_committed().await {
                    Ok(Some(last)) => *number = last,
                    Ok(None) => lease.lose(incarnation),
                    Err(_) => transaction.disconnect(),
                }
            }
            Err(Failed::Unavailable(why, result)) => {
                if begun.elapsed() > LATE {
                    transaction.is_late(&why);
                }
                transaction.disconnect();
                transaction.forget();
                unsure = result;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
