//! Repeated operations of one client and their times.

use std::time::Duration;

use super::failure::{Failure, Result};
use super::stats::percentile;

/// Repeats an operation, with its number; returns the milliseconds of `timed` repetitions after the first `first` ones.
///
/// # Errors
/// The error of the operation.
pub fn timed(
    first: usize,
    timed: usize,
    mut operation: impl FnMut(usize) -> Result<Duration>,
) -> Result<Vec<f64>> {
    let mut took = Vec::with_capacity(timed);
    for at in 0..first + timed {
        let one = operation(at)?;
        if at >= first {
            took.push(one.as_secs_f64() * 1000.0);
        }
    }
    Ok(took)
}

/// Returns a percentile of what was timed.
///
/// # Errors
/// Nothing was timed.
pub fn share(took: &[f64], share: f64) -> Result<f64> {
    percentile(took, share).ok_or_else(|| Failure::new("nothing was timed"))
}
