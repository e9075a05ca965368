//! A figure: the values of both sides by round, and whether it meets its target.

use super::stats::median;

/// The target of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At most this many times the floor.
    AtMost(f64),
    /// At least this many times the floor.
    AtLeast(f64),
    /// Less than this, regardless of the floor.
    Under(f64),
}

/// One round: both sides measured one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The daemon.
    pub ostler: f64,
    /// The floor; `None` without Node.
    pub floor: Option<f64>,
}

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The measured quantity.
    pub label: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its target; `None` if it is only reported.
    pub target: Option<Target>,
    /// Every round.
    pub rounds: Vec<Pair>,
}

impl Figure {
    /// Returns the daemon's median.
    pub fn ostler(&self) -> Option<f64> {
        median(&self.rounds.iter().map(|pair| pair.ostler).collect::<Vec<_>>())
    }

    /// Returns the floor's median.
    pub fn floor(&self) -> Option<f64> {
        median(&self.rounds.iter().filter_map(|pair| pair.floor).collect::<Vec<_>>())
    }

    /// Returns the median of the rounds' ratios, so that a temporary slowdown of the machine affects both sides of a
    /// ratio.
    pub fn ratio(&self) -> Option<f64> {
        let ratios: Vec<f64> = self
            .rounds
            .iter()
            .filter_map(|pair| pair.floor.map(|floor| pair.ostler / floor))
            .filter(|ratio| ratio.is_finite())
            .collect();
        median(&ratios)
    }

    /// Returns whether it meets its target; `None` if it has none or was not measured.
    pub fn meets(&self) -> Option<bool> {
        match self.target? {
            Target::AtMost(most) => self.ratio().map(|ratio| ratio <= most),
            Target::AtLeast(least) => self.ratio().map(|ratio| ratio >= least),
            Target::Under(limit) => self.ostler().map(|ostler| ostler < limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(target: Target, rounds: &[(f64, f64)]) -> Figure {
        let rounds = rounds.iter().map(|&(ostler, floor)| Pair { ostler, floor: Some(floor) }).collect();
        Figure { label: "a", unit: "ms", target: Some(target), rounds }
    }

    #[test]
    fn the_ratio_is_of_rounds_not_of_medians() {
        // The second round ran on a machine that was ten times slower, for both sides.
        let figure = figure(Target::AtMost(0.5), &[(1.0, 2.0), (10.0, 20.0), (1.2, 2.0)]);
        assert_eq!(figure.ratio(), Some(0.5));
        assert_eq!(figure.meets(), Some(true));
        assert_eq!((figure.ostler(), figure.floor()), (Some(1.2), Some(2.0)));
    }

    #[test]
    fn a_target_is_met_on_its_own_side() {
        let rounds = [(4.0, 2.0)];
        for (target, meets) in [
            (Target::AtMost(2.0), true),
            (Target::AtMost(1.9), false),
            (Target::AtLeast(2.0), true),
            (Target::AtLeast(2.1), false),
            (Target::Under(4.1), true),
            (Target::Under(4.0), false),
        ] {
            assert_eq!(figure(target, &rounds).meets(), Some(meets), "{target:?}");
        }
    }

    #[test]
    fn without_a_floor_only_an_absolute_target_can_be_met() {
        let rounds = vec![Pair { ostler: 1.0, floor: None }];
        let of = |target| Figure { label: "a", unit: "ms", target, rounds: rounds.clone() };
        assert_eq!(of(Some(Target::AtMost(1.0))).meets(), None);
        assert_eq!(of(Some(Target::Under(2.0))).meets(), Some(true));
        assert_eq!(of(None).meets(), None);
        assert_eq!(of(None).ratio(), None);
    }
}
