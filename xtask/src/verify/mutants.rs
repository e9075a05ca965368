//! cargo-mutants over the code that decides who may do what.

use super::{OUTPUT, Session, progress};

/// The packages with mutants, each with the tests that decide whether a mutant is caught. Those of packages that depend on
/// them take too long for every mutant.
const MUTATED: &[(&str, &[&str])] = &[
    ("ostler-protocol", &["--lib"]),
    ("ostler-contract", &["--lib"]),
    ("ostler-loader", &["--lib", "--test", "loading"]),
    ("ostler-server", &["--lib", "--test", "connections", "--test", "wire"]),
    ("ostler-engine", &["--lib", "--test", "people"]),
    ("ostler-plugin-webhook", &["--lib", "--test", "calls"]),
];

/// Runs cargo-mutants as `.cargo/mutants.toml` configures it, package by package.
pub(super) fn run(session: &Session) -> Result<String, String> {
    let shard = std::env::var("OSTLER_MUTANTS_SHARD").ok();
    let target = session.root.join(OUTPUT).join("mutants/target");
    let mut sum = MutantCounts::default();
    for (package, tests) in MUTATED {
        progress(format_args!("mutants of {package}"));
        let mut command = crate::cargo::cargo();
        command
            .args(["mutants", "--no-shuffle", "--colors", "never", "--package", package])
            .args(["--output", &format!("{OUTPUT}/mutants/{package}")])
            .args(shard.iter().flat_map(|shard| ["--shard", shard]))
            .args(["--", "--locked"])
            .args(*tests)
            // Each mutant changes one file, and the packages share what they depend on.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", &target);
        let (_, output) = session.output(&mut command)?;
        let counts = MutantCounts::read(&output).ok_or_else(|| {
            format!("cargo mutants did not run for {package}; install it with cargo install cargo-mutants")
        })?;
        progress(format_args!("{package}: {counts}"));
        sum.add(&counts);
    }
    let part = shard.map(|shard| format!(" of shard {shard}")).unwrap_or_default();
    match sum.missed + sum.timeouts {
        0 => Ok(format!("{sum}{part}")),
        _ => Err(format!("{sum}{part}; the mutants are in {OUTPUT}/mutants")),
    }
}

/// The results of mutants.
#[derive(Debug, Default, PartialEq, Eq)]
struct MutantCounts {
    tested: usize,
    caught: usize,
    unviable: usize,
    missed: usize,
    timeouts: usize,
}

impl MutantCounts {
    /// Parses the last line of cargo-mutants: `9 mutants tested in 2m: 1 missed, 7 caught, 1 unviable`.
    fn read(output: &str) -> Option<Self> {
        let line = output.lines().rev().find(|line| line.contains(" tested in "))?;
        let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let before = |names: &[&str]| {
            let at = words.iter().position(|word| names.contains(word))?;
            words.get(at.checked_sub(1)?)?.parse::<usize>().ok()
        };
        Some(Self {
            tested: before(&["mutants", "mutant"])?,
            caught: before(&["caught"]).unwrap_or_default(),
            unviable: before(&["unviable"]).unwrap_or_default(),
            missed: before(&["missed"]).unwrap_or_default(),
            timeouts: before(&["timeouts", "timeout"]).unwrap_or_default(),
        })
    }

    fn add(&mut self, other: &Self) {
        self.tested += other.tested;
        self.caught += other.caught;
        self.unviable += other.unviable;
        self.missed += other.missed;
        self.timeouts += other.timeouts;
    }
}

impl std::fmt::Display for MutantCounts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tested, caught, unviable, missed, timeouts } = self;
        write!(
            formatter,
            "{tested} mutants: {caught} caught, {unviable} unviable, {missed} missed, {timeouts} timeouts"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_mutants_are_read_and_summed() {
        let read = |line: &str| MutantCounts::read(&format!("ok\n{line}\n"));
        let all =
            read("1695 mutants tested in 2h 3m: 12 missed, 1600 caught, 81 unviable, 2 timeouts").unwrap();
        let counts = MutantCounts { tested: 1695, caught: 1600, unviable: 81, missed: 12, timeouts: 2 };
        assert_eq!(all, counts);
        let mut sum = read("1 mutant tested in 9s: 1 caught").unwrap();
        sum.add(&all);
        assert_eq!(sum.to_string(), "1696 mutants: 1601 caught, 81 unviable, 12 missed, 2 timeouts");
        assert_eq!(read("error: no such command: mutants"), None);
    }
}
