//! `cargo xtask verify --long`: the checks that take too long for every change.
//!
//! Each check is a row of [`CHECKS`]. `.ci/run` runs a fixed subset of each, which the row describes; this command runs
//! all of it and records date, commit and result in `docs/verification.md`.

mod mutants;

use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The path of the recorded results.
const RECORD: &str = "docs/verification.md";
/// The folder of the checks' output.
const OUTPUT: &str = "target/verify";
/// The version of mdBook that the book was built with.
const MDBOOK: &str = "0.5.4";
/// The heading of the recorded table.
const TABLE: &str = "| check | date | commit | took | result |\n|---|---|---|---|---|\n";

/// A long-running check.
struct Check {
    /// Its name on the command line.
    name: &'static str,
    /// The scope of the check.
    what: &'static str,
    /// The subset that `.ci/run` runs.
    subset: &'static str,
    run: fn(&Session) -> Result<String, String>,
}

/// Every check, in the order of execution. A new one is a row here; `cargo xtask verify --long <name>` records it.
const CHECKS: &[Check] = &[
    Check {
        name: "properties",
        what: "every property whose number of cases is not fixed, with 8,192 cases each; clients that reconnect, with \
               4,000 histories on a host in memory and 60 on a daemon that is killed",
        subset: "256 cases each; 64 and 6 histories; the same ones in each run",
        run: properties,
    },
    Check {
        name: "crash",
        what: "the process killed at 150 random moments under load; 200 power cuts; a slow, a failing, a full and a lost disk",
        subset: "12 moments, 24 power cuts",
        run: |session| {
            session.tests(
                &["test", "--package", "ostler", "--test", "crash", "--locked"],
                &[("OSTLER_CRASH_ROUNDS", "150"), ("OSTLER_POWER_CUTS", "200")],
            )
        },
    },
    Check {
        name: "conversations",
        what: "random conversations with a session that sleeps, stops and is killed: 400 of 100 steps",
        subset: "the first 24",
        run: |session| {
            session.tests(
                &["test", "--package", "ostler-engine", "--test", "sessions", "--locked", "random::"],
                &[("OSTLER_CONVERSATIONS", "400")],
            )
        },
    },
    Check {
        name: "simulation",
        what: "the simulation of a cluster of three hosts: 2,000 random schedules of faults, with new seeds in each run",
        subset: "the first 4 seeds, and one of them twice",
        run: simulation,
    },
    Check {
        name: "stores",
        what: "the stores with 20,000 sessions and records",
        subset: "300 sessions and records",
        run: |session| {
            session.tests(
                &["test", "--release", "--package", "ostler-ports", "--test", "measure", "--locked"],
                &[("OSTLER_MEASURE", "20000")],
            )
        },
    },
    Check {
        name: "growth",
        what: "the tables of PostgreSQL while the rows of ten million calls are written and removed: their sizes are bounded, \
               queries look at as much as before, and nobody waits",
        subset: "20,000 calls",
        run: growth,
    },
    Check {
        name: "terminals",
        what: "a terminal that prints 1 GiB to clients of which some do not read",
        subset: "24 MiB",
        run: |session| {
            session.tests(
                &["test", "--release", "--package", "ostler", "--test", "terminals", "--locked"],
                &[("OSTLER_TERMINAL_MEBIBYTES", "1024")],
            )
        },
    },
    Check {
        name: "cluster",
        what: "three daemons on one PostgreSQL with 50 kills, and with 60 random faults of the network, of clocks, of queries and of \
               hosts; 60 drains while a bot is called; needs root and an idle computer",
        subset: "5 kills, 3 random faults, always the same, and each kind of fault once; 3 drains; takeovers may take twice as long",
        run: cluster,
    },
    Check {
        name: "deployment",
        what: "the containers of examples/cluster, those of the compose file and those of the manifests: one is killed and comes back, \
               another one is stopped while a turn runs; needs root",
        subset: "the files are valid, all containers serve clients and calls, and one of the manifests is killed",
        run: deployment,
    },
    Check {
        name: "soak",
        what: "the daemon under mixed load for 20 minutes: everything is answered, dirty memory does not grow",
        subset: "15 seconds and at least 300 rounds",
        run: |session| session.benchmarks(&["soak", "--seconds", "1200"]),
    },
    Check {
        name: "nightly",
        what: "the program of a release: its size, its packages on clean systems, and its three main figures; the tests of a program \
               without its optional parts; needs root and an idle computer",
        subset: "the packages, of the program that the tests built",
        run: |session| session.script(".ci/nightly", "nightly: "),
    },
    Check {
        name: "fuzz",
        what: "fuzz targets for frames, URIs, front matter, JSON with surrogates, CloudEvents, form bodies and the stripping of \
               TypeScript, 10 minutes each",
        subset: "unit tests apply the same laws to the corpora",
        run: |session| session.script(".ci/fuzz", "fuzz: "),
    },
    Check {
        name: "packages",
        what: "programs that use npm packages, under Node and in a plugin",
        subset: "those that docs/packages.md marks with *",
        run: |session| session.benchmarks(&["packages"]),
    },
    Check {
        name: "agents",
        what: "every preset, downloaded and started by npx or uvx, compared with the table in docs/agents.md",
        subset: "the presets whose agents other tests need",
        run: agents,
    },
    Check {
        name: "vscode",
        what: "VS Code's web UI against the daemon, step by step with screenshots",
        subset: "none: tests send what it sends",
        run: |session| crate::vscode::run(session.root, &[]),
    },
    Check {
        name: "console",
        what: "the web console in Chromium, with its figures as required; the computer has to be idle",
        subset: "the same, with figures that may be eight times as large",
        run: console,
    },
    Check {
        name: "mutants",
        what: "cargo-mutants over the webhook plugin, guards, policies, grants and options, as .cargo/mutants.toml lists them; \
               takes many hours, or a part of it with OSTLER_MUTANTS_SHARD=0/8",
        subset: "none: the tests that kill the mutants run",
        run: mutants::run,
    },
    Check {
        name: "book",
        what: "docs/ built by mdBook",
        subset: "its pages, links and quoted messages, without mdBook",
        run: book,
    },
    Check {
        name: "advisories",
        what: "the dependencies against the advisory database",
        subset: "the same, where the database can be fetched",
        run: advisories,
    },
];

/// One run of the command.
struct Session<'a> {
    root: &'a Path,
    check: &'static str,
}

/// Runs the checks that the arguments name, or all, and records each when it ends.
///
/// # Errors
/// Invalid arguments, or the names of the failed checks.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let wanted = wanted(arguments)?;
    let commit = commit(root)?;
    let mut failed = Vec::new();
    for check in wanted {
        progress(format_args!("{}: {}", check.name, check.what));
        let begun = Instant::now();
        let result = (check.run)(&Session { root, check: check.name });
        let row = Row {
            check: check.name.to_owned(),
            date: today()?,
            commit: commit.clone(),
            took: minutes(begun.elapsed()),
            result: match &result {
                Ok(what) => format!("passed: {what}"),
                // A row of the table is one line.
                Err(why) => {
                    format!("**failed**: {}", why.lines().map(str::trim).collect::<Vec<_>>().join("; "))
                }
            },
        };
        progress(format_args!("{}: {}", check.name, row.result));
        record(root, row)?;
        if result.is_err() {
            failed.push(check.name);
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        names => Err(format!("failed: {}; the output is in {OUTPUT}", names.join(", "))),
    }
}

fn wanted(arguments: &[String]) -> Result<Vec<&'static Check>, String> {
    let names = || CHECKS.iter().map(|check| check.name).collect::<Vec<_>>().join(", ");
    let (long, named): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| *argument == "--long");
    if long.is_empty() {
        return Err(format!("use cargo xtask verify --long [<name>…]; the checks are {}", names()));
    }
    if named.is_empty() {
        return Ok(CHECKS.iter().collect());
    }
    named
        .into_iter()
        .map(|name| {
            let check = CHECKS.iter().find(|check| check.name == name);
            check.ok_or_else(|| format!("unknown check {name}; the checks are {}", names()))
        })
        .collect()
}

impl Session<'_> {
    /// Runs cargo's tests; returns how many passed.
    fn tests(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<String, String> {
        let mut command = crate::cargo::cargo();
        command.args(arguments).envs(variables.iter().copied());
        let (success, output) = self.output(&mut command)?;
        let (passed, failed) = test_counts(&output);
        match success && passed > 0 {
            true => Ok(format!("{passed} tests")),
            false => Err(format!("{passed} tests passed, {failed} failed")),
        }
    }

    /// Runs a task of `cargo benchmarks`; returns its last line, which is its result.
    fn benchmarks(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = crate::cargo::cargo();
        command
            .args(["run", "--quiet", "--release", "--package", "ostler-bench", "--locked", "--"])
            .args(arguments);
        let (success, output) = self.output(&mut command)?;
        let last =
            output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").to_owned();
        if success { Ok(last) } else { Err(last) }
    }

    /// Runs a script that runs cargo; returns its lines with a mark. A part that could not run here is a failure.
    fn script(&self, path: &str, mark: &str) -> Result<String, String> {
        let mut command = Command::new(self.root.join(path));
        let (success, output) = self.output(crate::cargo::without_own(&mut command))?;
        let lines: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix(mark)).collect();
        match success && !output.contains("NOT CHECKED") {
            true => Ok(lines.join("; ")),
            false => Err(format!("{}; see the output", lines.join("; "))),
        }
    }

    /// Runs a command in the repository and writes its output to a file; returns whether it succeeded, and the output.
    fn output(&self, command: &mut Command) -> Result<(bool, String), String> {
        let folder = self.root.join(OUTPUT);
        let path = folder.join(format!("{}.log", self.check));
        let failed = |error: std::io::Error| format!("{} could not be run: {error}", self.check);
        fs::create_dir_all(&folder).map_err(failed)?;
        let file = fs::File::create(&path).map_err(failed)?;
        let status = command
            .current_dir(self.root)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(failed)?)
            .stderr(file)
            .status()
            .map_err(failed)?;
        let output = fs::read(&path).map_err(failed)?;
        Ok((status.success(), String::from_utf8_lossy(&output).into_owned()))
    }
}

/// Runs the properties with other cases than every run of the tests has.
fn properties(session: &Session) -> Result<String, String> {
    let seed = RandomState::new().hash_one(session.check).to_string();
    progress(format_args!("PROPTEST_RNG_SEED={seed}"));
    let properties = session.tests(
        &["test", "--workspace", "--lib", "--locked"],
        &[("PROPTEST_RNG_SEED", &seed), ("PROPTEST_CASES", "8192")],
    );
    // Histories have their own numbers, which `PROPTEST_CASES` would override.
    let histories = Session { check: "reconnect", ..*session }.tests(
        &["test", "--workspace", "--test", "reconnect", "--locked"],
        &[
            ("PROPTEST_RNG_SEED", &seed),
            ("OSTLER_RECONNECT_CASES", "4000"),
            ("OSTLER_RECONNECT_DAEMON_CASES", "60"),
        ],
    );
    let both = format!(
        "properties: {}; histories: {}",
        properties.as_ref().unwrap_or_else(|why| why),
        histories.as_ref().unwrap_or_else(|why| why)
    );
    properties.and(histories).map(|_| both.clone()).map_err(|_| both)
}

/// Runs the simulation of a cluster from a random seed on.
fn simulation(session: &Session) -> Result<String, String> {
    // Seeds that are short enough to be typed.
    let first = 1_000 + RandomState::new().hash_one(session.check) % 1_000_000_000;
    progress(format_args!("OSTLER_SIMULATION_FIRST={first}"));
    let arguments =
        ["test", "--profile", "simulation", "--package", "ostler-simulation", "--test", "seeds", "--locked"];
    let seeds = std::env::var("OSTLER_SIMULATION_SEEDS").unwrap_or_else(|_| "2000".to_owned());
    let variables =
        [("OSTLER_SIMULATION_FIRST", first.to_string()), ("OSTLER_SIMULATION_SEEDS", seeds.clone())];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    session.tests(&arguments, &variables)?;
    Ok(format!("{seeds} seeds from {first} on"))
}

/// Runs the faults with a new seed on the program that is released; the result has the times of takeovers.
fn cluster(session: &Session) -> Result<String, String> {
    let mut build = crate::cargo::cargo();
    let (is_built, _) =
        session.output(build.args(["build", "--profile", "dist", "--package", "ostler", "--locked"]))?;
    if !is_built {
        return Err("the program could not be built".to_owned());
    }
    let seed = RandomState::new().hash_one(session.check).to_string();
    progress(format_args!("OSTLER_FAULT_SEED={seed}"));
    let record = session.root.join(OUTPUT).join("takeovers");
    drop(fs::remove_file(&record));
    let mut command = Command::new(session.root.join(".ci/postgres"));
    command
        .args(["cargo", "test", "--package", "ostler", "--locked", "--test", "postgres"])
        // One after the other: the times of takeovers are those of three hosts, not of nine.
        .args(["--", "--ignored", "--test-threads", "1", "cluster::faults::", "cluster::drains::"])
        .env("OSTLER_FAULT_KILLS", "50")
        .env("OSTLER_FAULT_ROUNDS", "60")
        .env("OSTLER_DRAIN_ROUNDS", "20")
        .env("OSTLER_FAULT_SEED", &seed)
        .env("OSTLER_FAULT_RECORD", &record)
        .env("OSTLER_TEST_PROGRAM", crate::cargo::target(session.root).join("dist/ostler"));
    let (success, output) = session.output(&mut command)?;
    let (passed, failed) = test_counts(&output);
    let times = fs::read_to_string(&record).unwrap_or_default();
    match success && passed > 0 {
        true => Ok(format!("{passed} tests; {times}")),
        false => Err(format!("{passed} tests passed, {failed} failed; seed {seed}; {times}")),
    }
}

/// Writes the rows of many calls; the result has the sizes of the tables after the last ones.
fn growth(session: &Session) -> Result<String, String> {
    let mut command = Command::new(session.root.join(".ci/postgres"));
    command
        .args(["cargo", "test", "--package", "ostler-plugin-postgres", "--locked", "--test", "database"])
        .args(["--", "--ignored", "--nocapture", "growth::"])
        .env("OSTLER_GROWTH_CALLS", "10000000");
    let (success, output) = session.output(&mut command)?;
    let (passed, failed) = test_counts(&output);
    let figures: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix("growth: ")).collect();
    match success && passed > 0 {
        true => Ok(format!("{passed} tests; {}", figures.join("; "))),
        false => Err(format!("{passed} tests passed, {failed} failed; see the output")),
    }
}

/// Runs the containers of examples/cluster; a part that cannot run here is a failure.
fn deployment(session: &Session) -> Result<String, String> {
    let mut build = crate::cargo::cargo();
    let (built, _) = session.output(build.args(["build", "--package", "ostler", "--locked"]))?;
    let (success, output) = session.output(&mut Command::new(session.root.join(".ci/cluster")))?;
    let lines: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix("cluster: ")).collect();
    match built && success && !output.contains("NOT CHECKED") {
        true => Ok(lines.join("; ")),
        false => Err("see the output".to_owned()),
    }
}

fn agents(session: &Session) -> Result<String, String> {
    let mut build = crate::cargo::cargo();
    let (success, _) = session.output(build.args(["build", "--package", "ostler", "--locked"]))?;
    match success {
        true => crate::agents::run(session.root, &["--check", "--download"].map(str::to_owned)),
        false => Err("the program does not build; see the output".to_owned()),
    }
}

fn console(session: &Session) -> Result<String, String> {
    let mut command = Command::new(session.root.join(".ci/console"));
    let (success, output) = session.output(command.env("OSTLER_CONSOLE_FIGURES", "exact"))?;
    let lines = |mark: &str| output.lines().filter(|line| line.contains(mark)).collect::<Vec<_>>();
    match (success, lines(" FAIL ").as_slice()) {
        (true, _) => Ok(format!("{} checks", lines(" ok  ").len())),
        (false, []) => Err("did not run; see the output".to_owned()),
        (false, failed) => Err(failed.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; ")),
    }
}

fn book(session: &Session) -> Result<String, String> {
    let mut command = Command::new("mdbook");
    let (success, output) = session.output(command.args(["build", "docs"])).map_err(|why| {
        format!("{why}; install it with cargo install mdbook@{MDBOOK} --no-default-features --locked")
    })?;
    let warned = output.lines().find(|line| line.contains("WARN") || line.contains("ERROR"));
    match (success, warned) {
        (true, None) => Ok("no warning".to_owned()),
        (_, Some(line)) => Err(line.trim().to_owned()),
        (false, None) => Err("see the output".to_owned()),
    }
}

/// Runs the dependency checks of `.ci/lint`, whose output says whether advisories were checked.
fn advisories(session: &Session) -> Result<String, String> {
    let (success, output) = session.output(&mut Command::new(session.root.join(".ci/lint")))?;
    let skipped = output.lines().find(|line| line.contains("NOT CHECKED"));
    match (success, skipped) {
        (true, None) => Ok("no advisory".to_owned()),
        (true, Some(why)) => {
            Err(format!("did not run: {}", why.trim_start_matches("advisories: NOT CHECKED: ")))
        }
        (false, _) => Err("see the output".to_owned()),
    }
}

/// Returns how many tests passed and failed, over all test programs that cargo ran.
fn test_counts(output: &str) -> (usize, usize) {
    let count = |word: &str| -> usize {
        let lines = output.lines().filter_map(|line| line.strip_prefix("test result: "));
        lines
            .filter_map(|line| {
                let before = line.split_once(&format!(" {word}"))?.0;
                before.rsplit(' ').next()?.parse::<usize>().ok()
            })
            .sum()
    };
    (count("passed"), count("failed"))
}

/// One row of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    check: String,
    date: String,
    commit: String,
    took: String,
    result: String,
}

/// Replaces the check's last row.
fn record(root: &Path, row: Row) -> Result<(), String> {
    let path = root.join(RECORD);
    let mut rows = rows(&fs::read_to_string(&path).unwrap_or_default());
    rows.retain(|other| other.check != row.check);
    rows.push(row);
    fs::write(&path, page(&rows)).map_err(|error| format!("{RECORD}: {error}"))
}

/// Reads the rows of a recorded page.
fn rows(page: &str) -> Vec<Row> {
    let Some((_, table)) = page.split_once(TABLE) else { return Vec::new() };
    let rows = table.lines().map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.filter_map(|row| {
        let [check, date, commit, took, result] = row.splitn(5, " | ").collect::<Vec<_>>().try_into().ok()?;
        let owned = str::to_owned;
        Some(Row {
            check: owned(check),
            date: owned(date),
            commit: owned(commit),
            took: owned(took),
            result: owned(result),
        })
    })
    .collect()
}

/// Formats the whole page: each check, and the result of its last run.
fn page(rows: &[Row]) -> String {
    let mut page = String::from(
        "# Long verification\n\n\
         `cargo xtask verify --long` runs the checks that take too long for every change, or those it is given by name, and\n\
         records the last run of each here. `.ci/run` runs a fixed subset of each.\n\n\
         ## What it does not do\n\n\
         A result is as old as the date of its row: runs in workflows are not recorded here. No check uses an account of a\n\
         provider of models, and none runs on arm64, macOS or Windows.\n\n\
         ## Checks\n\n\
         | check | what it checks | in `.ci/run` |\n|---|---|---|\n",
    );
    for Check { name, what, subset, .. } in CHECKS {
        let _ = writeln!(page, "| {name} | {what} | {subset} |");
    }
    let _ = write!(page, "\n## Last runs\n\n{TABLE}");
    for check in CHECKS {
        match rows.iter().find(|row| row.check == check.name) {
            Some(Row { check, date, commit, took, result }) => {
                let _ = writeln!(page, "| {check} | {date} | {commit} | {took} | {result} |");
            }
            None => {
                let _ = writeln!(page, "| {} | never | | | |", check.name);
            }
        }
    }
    page
}

/// Adds a problem if the page does not list the current checks.
pub fn check_page(root: &Path, problems: &mut Vec<String>) {
    let text = fs::read_to_string(root.join(RECORD)).unwrap_or_default();
    if page(&rows(&text)) != text {
        problems.push(format!(
            "{RECORD} does not list the checks of xtask/src/verify.rs; run cargo xtask generate"
        ));
    }
}

/// Writes the page with the current checks and the recorded results.
///
/// # Errors
/// The page cannot be written.
pub fn write_page(root: &Path) -> Result<(), String> {
    let path = root.join(RECORD);
    let rows = rows(&fs::read_to_string(&path).unwrap_or_default());
    fs::write(&path, page(&rows)).map_err(|error| format!("{RECORD}: {error}"))
}

/// Adds the main figures of a report of the benchmarks to their history, with this day and commit.
///
/// # Errors
/// What [`history::add`](crate::history::add) refuses, and a `git` or `date` that cannot be run.
pub fn add_figures(root: &Path, report: &Path) -> Result<String, String> {
    crate::history::add(root, report, &today()?, &commit(root)?)
}

/// Returns the checked commit, and whether the working tree differs from it.
fn commit(root: &Path) -> Result<String, String> {
    let git = |arguments: &[&str]| -> Result<String, String> {
        let output = Command::new("git").args(arguments).current_dir(root).output();
        let output = output.map_err(|error| format!("git could not be run: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let recorded = [RECORD, crate::history::FILE, crate::history::DRAWING].map(|file| format!(":!{file}"));
    let changed =
        git(&[&["status", "--porcelain", "--", "."], recorded.each_ref().map(String::as_str).as_slice()]
            .concat())?;
    Ok(if changed.is_empty() { commit } else { format!("{commit}, changed") })
}

fn today() -> Result<String, String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    let output = output.map_err(|error| format!("date could not be run: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn minutes(took: Duration) -> String {
    format!("{} min {} s", took.as_secs() / 60, took.as_secs() % 60)
}

fn progress(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(check: &str, result: &str) -> Row {
        Row {
            check: check.to_owned(),
            date: "2026-01-02".to_owned(),
            commit: "0123456789, changed".to_owned(),
            took: "3 min 4 s".to_owned(),
            result: result.to_owned(),
        }
    }

    #[test]
    fn a_result_replaces_the_last_one_of_its_check_alone() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("docs")).unwrap();
        for (check, result) in
            [("crash", "passed: 1 test"), ("soak", "**failed**: a | b"), ("crash", "passed: 2 tests")]
        {
            record(root.path(), row(check, result)).unwrap();
        }
        let text = fs::read_to_string(root.path().join(RECORD)).unwrap();
        let recorded: Vec<Row> = rows(&text).into_iter().filter(|row| !row.result.is_empty()).collect();
        assert_eq!(recorded, [row("crash", "passed: 2 tests"), row("soak", "**failed**: a | b")]);
        let mut problems = Vec::new();
        check_page(root.path(), &mut problems);
        assert_eq!(problems, [""; 0]);
        fs::write(root.path().join(RECORD), text.replace("150 random", "15 random")).unwrap();
        check_page(root.path(), &mut problems);
        assert_eq!(problems.len(), 1);
        write_page(root.path()).unwrap();
        assert_eq!(fs::read_to_string(root.path().join(RECORD)).unwrap(), text);
    }

    #[test]
    fn checks_are_named_and_long() {
        let names = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
            wanted(&arguments).map(|checks| checks.iter().map(|check| check.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["--long", "soak", "crash"]).unwrap(), ["soak", "crash"]);
        assert_eq!(names(&["--long"]).unwrap().len(), CHECKS.len());
        assert!(names(&[]).unwrap_err().contains("--long"));
        assert!(names(&["--long", "soap"]).unwrap_err().contains("soak"));
    }

    #[test]
    fn tests_of_all_programs_are_counted() {
        let output = "test result: ok. 12 passed; 0 failed; 1 ignored\nnoise\n\
                      test result: FAILED. 3 passed; 2 failed; 0 ignored\n";
        assert_eq!(test_counts(output), (15, 2));
        assert_eq!(test_counts("error: could not compile"), (0, 0));
    }

    #[test]
    fn a_command_that_fails_keeps_its_output() {
        let root = tempfile::tempdir().unwrap();
        let session = Session { root: root.path(), check: "crash" };
        let (success, output) = session.output(Command::new("sh").args(["-c", "echo one; exit 3"])).unwrap();
        assert!(!success && output == "one\n", "{output}");
        assert!(root.path().join("target/verify/crash.log").exists());
    }
}
