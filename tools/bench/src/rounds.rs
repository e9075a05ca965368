//! Measures both sides in alternation: the daemon, the floor, the daemon, the floor.

use std::time::{Duration, Instant};

use super::failure::{During, Failure, Result};
use super::figure::{Figure, Pair, Target};

/// The measured side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The daemon.
    Ostler,
    /// The synthetic floor.
    Floor,
}

/// The number and duration of measurements.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The rounds that count.
    pub rounds: usize,
    /// No round begins after this time.
    pub limit: Duration,
    /// Whether there is a floor to measure.
    pub floor: bool,
}

/// One value of a measurement: its label, its unit, its target.
pub type Column = (&'static str, &'static str, Option<Target>);

/// Measures both sides in alternation until the rounds or the time are used up. Each measurement returns one value per
/// column. The first round warms up caches and does not count.
///
/// # Errors
/// The error of the first failed measurement.
pub fn alternate(
    bounds: Bounds,
    columns: &[Column],
    mut measure: impl FnMut(Side) -> Result<Vec<f64>>,
) -> Result<Vec<Figure>> {
    let mut figures: Vec<Figure> = columns
        .iter()
        .map(|&(label, unit, target)| Figure { label, unit, target, rounds: Vec::new() })
        .collect();
    let begun = Instant::now();
    for round in 0..=bounds.rounds {
        if round > 1 && begun.elapsed() > bounds.limit {
            break;
        }
        let ostler = measure(Side::Ostler).during("ostler")?;
        let floor = match bounds.floor {
            true => Some(measure(Side::Floor).during("the floor")?),
            false => None,
        };
        if [Some(&ostler), floor.as_ref()].into_iter().flatten().any(|values| values.len() != columns.len()) {
            return Err(Failure::new(
                "a measurement has another number of values than its figure has columns",
            ));
        }
        if round == 0 {
            continue;
        }
        for (at, figure) in figures.iter_mut().enumerate() {
            figure.rounds.push(Pair { ostler: ostler[at], floor: floor.as_ref().map(|floor| floor[at]) });
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[("a", "ms", None), ("b", "ms", None)];

    fn bounds(rounds: usize, floor: bool) -> Bounds {
        Bounds { rounds, limit: Duration::from_secs(60), floor }
    }

    #[test]
    fn sides_take_turns_and_the_first_round_does_not_count() {
        let mut order = Vec::new();
        let figures = alternate(bounds(2, true), COLUMNS, |side| {
            order.push(side);
            let at = order.len() as f64;
            Ok(vec![at, at * 10.0])
        })
        .unwrap();
        assert_eq!(order, [Side::Ostler, Side::Floor].repeat(3));
        assert_eq!(
            figures[0].rounds,
            [Pair { ostler: 3.0, floor: Some(4.0) }, Pair { ostler: 5.0, floor: Some(6.0) }]
        );
        assert_eq!(figures[1].rounds[0], Pair { ostler: 30.0, floor: Some(40.0) });
    }

    #[test]
    fn time_that_is_up_still_leaves_one_round_that_counts() {
        let bounds = Bounds { limit: Duration::ZERO, ..bounds(50, false) };
        let figures = alternate(bounds, COLUMNS, |_| Ok(vec![1.0, 2.0])).unwrap();
        assert_eq!(figures[0].rounds, [Pair { ostler: 1.0, floor: None }]);
    }

    #[test]
    fn values_without_a_column_are_refused() {
        assert!(alternate(bounds(1, false), COLUMNS, |_| Ok(vec![1.0])).is_err());
    }
}
