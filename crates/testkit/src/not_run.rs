//! Tests that cannot run on this computer say so.

use std::io::Write as _;

/// Reports that the test of this thread did not run, with the reason, past libtest's capture of output.
///
/// `.ci/test` lists these lines, which begin with `NOT RUN:`, at its end.
pub fn not_run(reason: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "NOT RUN: {}: {reason}", thread.name().unwrap_or_default());
}
