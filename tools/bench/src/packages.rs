//! `cargo benchmarks packages`: runs small programs that use npm packages under Node and in a plugin, and compares the
//! results.
//!
//! A program is a file in `crates/js/packages/uses`. Its default export returns its observations as JSON. Programs only
//! connect to the servers of `servers.mjs`, which run under Node. The page of the packages is generated from the programs
//! and the section `ostler` of `package.json`, with which a run compares the results.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ostler_js::{JsOptions, Level, Outcome, TestRun, Tested, run_tests};
use serde_json::Value;
use xtask::node::node;
use xtask::packages::{Programs, SOURCE};

use super::progress;

/// The folder of the installed packages.
const INSTALLED: &str = "target/packages";
/// The timeout of a program.
const LIMIT: Duration = Duration::from_secs(30);
/// Precedes the result of a program in the log of its plugin.
const MARK: &str = "packages answer ";

/// The outcome of a program.
enum Ended {
    /// The plugin's result is the same as under Node.
    Same,
    /// The result differs, or the program fails.
    Differs(String),
}

/// Runs the programs that the arguments name: all, or those of the list `subset` (`--subset`).
///
/// # Errors
/// The programs cannot be run, or some fail unexpectedly.
pub fn run(root: &Path, arguments: &[String]) -> Result<String, String> {
    let (flags, named): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.starts_with("--"));
    let subset = flags.iter().any(|flag| *flag == "--subset");
    let programs = Programs::read(root)?;
    install(root, &programs)?;
    let servers = Servers::start(root)?;
    let mut results = BTreeMap::new();
    for name in programs.names() {
        let wanted = !subset || programs.in_subset(name);
        if !wanted || !(named.is_empty() || named.contains(&name)) {
            continue;
        }
        let begun = Instant::now();
        let ended = compare(root, name, &servers)?;
        let shown = match &ended {
            Ended::Same => "same".to_owned(),
            Ended::Differs(why) => format!("DIFFERS: {why}"),
        };
        progress(format_args!("{name} ({:.1} s): {shown}", begun.elapsed().as_secs_f32()));
        results.insert(name, ended);
    }
    drop(servers);
    let failed: Vec<&str> = results
        .iter()
        .filter(|(name, ended)| {
            matches!(ended, Ended::Differs(_)) && programs.known_difference(name).is_none()
        })
        .map(|(name, _)| name.as_str())
        .collect();
    let repaired: Vec<&str> = results
        .iter()
        .filter(|(name, ended)| matches!(ended, Ended::Same) && programs.known_difference(name).is_some())
        .map(|(name, _)| name.as_str())
        .collect();
    let same = results.values().filter(|ended| matches!(ended, Ended::Same)).count();
    if !failed.is_empty() {
        return Err(format!(
            "{same} of {} programs answer as under Node; not: {}",
            results.len(),
            failed.join(", ")
        ));
    }
    if !repaired.is_empty() {
        return Err(format!("remove from \"known\" in {SOURCE}/package.json: {}", repaired.join(", ")));
    }
    Ok(format!("{same} of {} programs answer as under Node", results.len()))
}

/// Installs the packages of the lock file, unless they are installed, and copies the programs next to them.
fn install(root: &Path, programs: &Programs) -> Result<(), String> {
    let (source, target) = (root.join(SOURCE), root.join(INSTALLED));
    fs::create_dir_all(target.join("uses")).map_err(|error| error.to_string())?;
    let lock = fs::read(source.join("package-lock.json")).map_err(|error| format!("{SOURCE}: {error}"))?;
    if fs::read(target.join("installed.json")).ok().as_deref() != Some(&lock) {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(source.join(file), target.join(file)).map_err(|error| error.to_string())?;
        }
        let status = Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"])
            .current_dir(&target)
            .status();
        if !status.map_err(|error| format!("npm: {error}"))?.success() {
            return Err("npm ci failed in target/packages".to_owned());
        }
        fs::write(target.join("installed.json"), lock).map_err(|error| error.to_string())?;
    }
    let copy = |from: &Path, to: PathBuf| fs::copy(from, to).map(drop).map_err(|error| error.to_string());
    for name in programs.names() {
        let file = format!("uses/{name}.mjs");
        copy(&source.join(&file), target.join(&file))?;
    }
    for file in ["servers.mjs", "node.mjs", "key.pem", "cert.pem"] {
        copy(&source.join(file), target.join(file))?;
    }
    Ok(())
}

/// The servers for the programs, and their addresses as JSON.
struct Servers {
    child: Child,
    addresses: String,
}

impl Servers {
    fn start(root: &Path) -> Result<Self, String> {
        let mut child = Command::new(node(root))
            .arg("servers.mjs")
            .current_dir(root.join(INSTALLED))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("node: {error}"))?;
        let mut addresses = String::new();
        let output = child.stdout.take().ok_or("the servers have no output")?;
        BufReader::new(output).read_line(&mut addresses).map_err(|error| error.to_string())?;
        let servers = Self { child, addresses: addresses.trim().to_owned() };
        if servers.addresses.is_empty() {
            return Err("the servers ended before they listened".to_owned());
        }
        Ok(servers)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn compare(root: &Path, name: &str, servers: &Servers) -> Result<Ended, String> {
    let folder = root.join(INSTALLED);
    let node = Command::new(node(root))
        .args(["node.mjs", name, servers.addresses.as_str()])
        .current_dir(&folder)
        .output()
        .map_err(|error| format!("node: {error}"))?;
    let said = String::from_utf8_lossy(&node.stdout);
    let Some(expected) = said.lines().rev().find_map(|line| line.strip_prefix(MARK)) else {
        return Err(format!("{name} fails under Node: {}", String::from_utf8_lossy(&node.stderr).trim()));
    };
    let expected: Value = serde_json::from_str(expected).map_err(|error| error.to_string())?;
    Ok(match plugin(&folder, name, &servers.addresses) {
        Ok(answer) if answer == expected => Ended::Same,
        Ok(answer) => Ended::Differs(format!("plugin {answer}, Node {expected}")),
        Err(why) => Ended::Differs(why),
    })
}

/// Returns the program's result in a plugin.
fn plugin(folder: &Path, name: &str, servers: &str) -> Result<Value, String> {
    let file = folder.join(format!("plugin-{name}.mjs"));
    let text = format!(
        "import {{ test }} from 'node:test';\nglobalThis.servers = {servers};\n\
         test('answers', async () => {{\n  const {{ default: run }} = await import('./uses/{name}.mjs');\n  \
         console.log('{MARK}' + JSON.stringify(await run()));\n}});\n"
    );
    fs::write(&file, text).map_err(|error| error.to_string())?;
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let (sink, verbose) = (lines.clone(), std::env::var_os("OSTLER_PACKAGES_LOG").is_some());
    let options = JsOptions {
        log: Arc::new(move |line| {
            if verbose {
                progress(&line);
            }
            if let Ok(mut lines) = sink.lock() {
                let errs = matches!(line.level, Level::Uncaught | Level::Error);
                lines.push(if errs { format!("! {}", line.text) } else { line.text });
            }
        }),
        listen: Arc::new(|_, place| place.starts_with("127.0.0.1:") || place.starts_with('/')),
        ..JsOptions::default()
    };
    let run = TestRun { limit: LIMIT, ..TestRun::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let ran = runtime.block_on(async { tokio::time::timeout(LIMIT, run_tests(&file, options, run)).await });
    runtime.shutdown_timeout(Duration::from_secs(1));
    let logged = lines.lock().map(|lines| lines.clone()).unwrap_or_default();
    let complaints = || {
        let errors: Vec<&str> = logged.iter().filter_map(|line| line.strip_prefix("! ")).collect();
        if errors.is_empty() { String::new() } else { format!("; logged: {}", errors.join(" | ")) }
    };
    let results = match ran {
        Err(_) => return Err(format!("no answer in {} seconds{}", LIMIT.as_secs(), complaints())),
        Ok(Tested { problem: Some(thrown), .. }) => return Err(thrown.for_log()),
        Ok(Tested { results, .. }) => results,
    };
    if let Some(failed) = results.iter().find(|result| result.outcome != Outcome::Passed) {
        let at = failed.at.clone().unwrap_or_default();
        return Err(format!("{} at {at}{}", failed.why.clone().unwrap_or_default(), complaints()));
    }
    let answer = logged.iter().rev().find_map(|line| line.strip_prefix(MARK)).ok_or("no answer")?;
    serde_json::from_str(answer).map_err(|error| error.to_string())
}
