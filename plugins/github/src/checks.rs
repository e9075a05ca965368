//! The results of checks, counted.

use ostler_contract::points::{ChecksState, PullRequestChecks};

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Pending,
}

/// The numbers of checks by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    passed: u32,
    failed: u32,
    pending: u32,
}

impl FromIterator<Verdict> for Count {
    fn from_iter<I: IntoIterator<Item = Verdict>>(verdicts: I) -> Self {
        let mut count = Self::default();
        for verdict in verdicts {
            match verdict {
                Verdict::Passed => count.passed += 1,
                Verdict::Failed => count.failed += 1,
                Verdict::Pending => count.pending += 1,
            }
        }
        count
    }
}

impl Count {
    /// Returns the checks of a pull request; `None` if it has none.
    pub(crate) fn of_request(self) -> Option<PullRequestChecks> {
        let Self { passed, failed, pending } = self;
        let state = match (passed, failed, pending) {
            (0, 0, 0) => return None,
            (_, 0, 0) => ChecksState::Passed,
            (_, 0, _) => ChecksState::Pending,
            _ => ChecksState::Failed,
        };
        Some(PullRequestChecks { state, passed, failed, pending })
    }
}
