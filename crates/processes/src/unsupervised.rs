//! No supervisor: systems other than Linux do not assign a process the descendants whose parent has ended.

/// The first argument of a supervisor.
pub const SUPERVISE: &str = "supervise";

pub(crate) fn arguments(_marker: (&str, &str), _mark: Option<u64>) -> Vec<String> {
    Vec::new()
}

pub(crate) fn marking(_mark: Option<u64>) -> Vec<String> {
    Vec::new()
}

/// Runs nothing.
pub fn main(_arguments: &[String]) -> u8 {
    126
}
