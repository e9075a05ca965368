//! `ostler plugin check`: loads one plugin against a host in memory, reports its registrations and problems, and runs
//! its tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::events::Event;
use ostler_contract::points::Vault;
use ostler_contract::problem::Problem;
use ostler_contract::{Call, Caller, HostFacts, Module, PluginHost, Slug, Thrown};
use ostler_engine::{Gate, Host, HostOptions, Log, PluginHostCalls};
use ostler_js::{
    Engine, HeapSummary, JsOptions, JsSource, Outcome, Profiler, Profiling, TestResult, TestRun, Tested,
    run_tests,
};
use ostler_loader::{Loader, State};
use ostler_ports::{MemoryAutomations, SqliteSessions, StateDb, memory_records};
use ostler_protocol::names;
use ostler_telemetry::clock;
use ostler_telemetry::printable::one_line;

use crate::api::profile_shapes::PluginMemory;
use crate::bundled;
use crate::compose::{host_yaml, javascript};
use crate::config::JavaScriptLimits;
use crate::control::not_javascript;
use crate::exit::Exit;
use crate::sources::Sources;

mod entry;
mod output;

pub use entry::{CheckedEntry, EntryFlags};
use output::Output;
pub use output::Print;

/// The value in place of every secret, because the check has no vault.
const SECRET: &str = "a-secret-stands-here";
/// The limit of its listeners to `listening`, and of the summary of its heap.
const LISTENING: Duration = Duration::from_secs(10);
/// How long a check waits for timers and other pending work.
const TIMERS: Duration = Duration::from_secs(2);

/// The inputs of a check.
#[derive(Debug, Clone)]
pub struct PluginCheck {
    pub entry: CheckedEntry,
    /// The limits of its engine.
    pub javascript: JavaScriptLimits,
    /// The working directory.
    pub working_dir: PathBuf,
    /// The folder of installed packages.
    pub config_dir: PathBuf,
    /// What is measured.
    pub measures: Measures,
}

/// What a check measures.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measures {
    /// Record a CPU profile from the import to the end of the tests.
    pub cpu: bool,
    /// Summarize the heap before the host is closed.
    pub heap: bool,
}

/// A registration of the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    pub method: &'static str,
    pub name: Option<String>,
    /// `<file>:<line>` of the call, if known.
    pub at: Option<String>,
}

/// A problem of the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The line that a start prints, and what to do in a check.
    pub line: String,
    /// `<file>:<line>:<column>` in the plugin's source.
    pub at: Option<String>,
}

/// The result of a check.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    /// The plugin's id, if known.
    pub id: Option<String>,
    /// The imported file.
    pub file: Option<PathBuf>,
    /// Its registrations.
    pub registered: Vec<Registered>,
    /// Its problems.
    pub refused: Vec<Refused>,
    /// Log lines of the plugin, its host and its stores.
    pub log: Vec<String>,
    /// Its announcements.
    pub said: Vec<String>,
    /// Uncaught errors: unhandled rejections, errors of timers, of other callbacks, of listeners and at the close.
    pub uncaught: Vec<String>,
    /// Log lines of its loading.
    pub loading: Vec<String>,
    /// Its tests, by file.
    pub tests: Vec<(PathBuf, Tested)>,
    /// What it has in memory once it has started, if that is measured.
    pub memory: Option<PluginMemory>,
    /// Its CPU profile, if that is measured.
    pub profile: Option<ostler_js::CpuProfile>,
    /// The printed lines.
    pub lines: Vec<String>,
}

impl PluginCheck {
    /// Loads the plugin, opens and closes a host with it, and runs its tests. Records its files in `sources`, and prints
    /// each line when it is known: the registrations first, then log lines, and tests when they end.
    ///
    /// # Errors
    /// Exit 1 if no host can be composed, exit 2 if a plugin that is not in JavaScript is measured; problems of the plugin are
    /// in the result.
    pub async fn run(&self, sources: &Sources, print: Print) -> Result<Checked, Exit> {
        let spec = &self.entry.plugin.name;
        let machine = |error: &dyn std::fmt::Display| Exit::machine(format!("cannot create a host: {error}"));
        // What the plugin writes beside the configuration is removed after the check.
        let scratch = tempfile::tempdir().map_err(|error| machine(&error))?;
        let output = Output::new(print);
        let (hidden, log) = (output.hidden.clone(), output.log());
        let facts = Arc::new(HostFacts {
            paths: vec![self.working_dir.to_string_lossy().into_owned()],
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host_name: "check".to_owned(),
            config_dir: scratch.path().to_string_lossy().into_owned(),
        });
        let options = HostOptions {
            host_name: facts.host_name.clone(),
            paths: facts.paths.clone(),
            ..HostOptions::default()
        };
        let host = Host::new(options, clock(), log.clone(), host_yaml(), Gate::default());
        let calls = PluginHostCalls::new(&host.front);
        let own = own(&facts, &calls, &log).map_err(|thrown| machine(&thrown))?;
        let of_loader = output.clone();
        // Before the import, and also of a plugin that cannot be imported.
        let profiler = self.measures.cpu.then(Profiler::default);
        let profiling = profiler.as_ref().and_then(Profiler::start);
        let js = JsOptions {
            profiler: profiler.clone(),
            listen: self.entry.listen_rule(),
            listen_advice: format!("{}, or pass --listen", JsOptions::default().listen_advice),
            ..self.js_options(&output, sources)
        };
        let loader = Loader {
            bundled: bundled::plugins(),
            source: Arc::new(JsSource::new(js)),
            config_dir: self.config_dir.clone(),
            facts,
            calls,
            log: Arc::new(move |_, line| of_loader.loading(line)),
            hidden: hidden.clone(),
        };
        let loaded = loader.load(std::slice::from_ref(&self.entry.plugin), own).await;
        let base = self.entry.plugin.base.as_deref().unwrap_or(&self.working_dir);
        let resolved = ostler_loader::resolve(spec, base, &self.config_dir);
        let file = resolved.ok().map(|found| found.path);
        match &file {
            Some(file) => sources.add_module(file),
            None => sources.add(&base.join(spec)),
        }
        let said = output.loaded();
        let row = loaded.plugins.first();
        let id = row.and_then(|row| row.id.clone());
        let source = file.as_deref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let registered = id
            .as_ref()
            .map(|id| registered(loaded.registry.registered_by(id), &source, file.as_deref()))
            .unwrap_or_default();
        let mut left_out = registered.iter().filter(|call| call.method == "problem");
        let mut lost = Vec::new();
        let mut refused = Vec::new();
        for problem in &loaded.problems {
            let line = hidden.hide(&problem.to_string()).into_owned();
            let at = match problem {
                Problem::Said { .. } => left_out.next().and_then(|call| call.at.clone()),
                Problem::Clash(_) | Problem::PortHeld { .. } => {
                    let call = call_of(&line, &registered);
                    lost.extend(call.cloned());
                    call.and_then(|call| call.at.clone())
                }
                _ => thrown_at(&line, &said, file.as_deref()),
            };
            let advice = self.advice(problem);
            refused.push(Refused { line: format!("{line}{advice}"), at });
        }
        let kept = |call: &Registered| call.method != "problem" && !lost.contains(call);
        let mut checked = Checked {
            registered: output.hide_names(registered.iter().filter(|call| kept(call)).cloned()),
            refused,
            id: id.map(|id| id.to_string()),
            file,
            ..Checked::default()
        };
        self.print_loaded(&checked, &output);
        output.open();
        if (self.measures.cpu || self.measures.heap)
            && let Some(id) = &checked.id
            && row.is_some_and(|row| row.imported && row.path.is_none())
        {
            return Err(Exit::usage(not_javascript(id)));
        }
        if row.is_some_and(|row| row.state == State::Applied) {
            host.build(loaded.registry).await;
            let (said, heap) = open_and_close(&host, &loaded.modules, self.measures.heap).await;
            checked.said = output.hide(said);
            checked.memory = heap.map(|heap| PluginMemory::of(checked.id.as_deref().unwrap_or(spec), heap));
            for line in &checked.said {
                output.line(&format!("announced: {}", one_line(line)));
            }
            for line in checked.memory.iter().flat_map(PluginMemory::lines) {
                output.line(&line);
            }
        }
        checked.tests = self.tests(checked.file.as_deref(), &output, sources, profiler.as_ref()).await;
        checked.profile = profiling.map(Profiling::end);
        if let Some(summary) = checked.summary() {
            output.line(&summary);
        }
        output.end(&mut checked);
        Ok(checked)
    }

    fn js_options(&self, output: &Output, sources: &Sources) -> JsOptions {
        output.js_options(javascript(&self.javascript, JsOptions::default().log), sources)
    }

    /// Prints the plugin, its registrations and its problems.
    fn print_loaded(&self, checked: &Checked, output: &Output) {
        if let (Some(id), Some(file)) = (&checked.id, &checked.file) {
            output.line(&format!("plugin {id} from {}", file.display()));
        }
        if let Some(place) = &self.entry.configured {
            output.line(&format!("configured in {place}"));
        }
        for Registered { method, name, at } in &checked.registered {
            let name = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
            let at = at.as_ref().map(|at| format!(" ({at})")).unwrap_or_default();
            output.line(&format!("registered: {method}{name}{at}"));
        }
        if checked.registered.is_empty() && checked.refused.is_empty() {
            output.line("registered: nothing");
        }
        for Refused { line, at } in &checked.refused {
            let at = at.as_ref().map(|at| format!(" ({at})")).unwrap_or_default();
            output.line(&format!("refused: {line}{at}"));
        }
    }

    /// What to do about a problem in a check; empty where the problem says it.
    fn advice(&self, problem: &Problem) -> String {
        match problem {
            Problem::NotInstalled { name, hint, .. }
                if hint.is_empty() && self.working_dir.join(name).exists() =>
            {
                format!(" Did you mean ./{name}?")
            }
            Problem::Option { path, .. } => {
                let key = path.trim_start_matches('.');
                match key.is_empty() || key.contains('[') {
                    true => "; set options with --option <key>=<value>".to_owned(),
                    false => format!("; set it with --option {key}=<value>"),
                }
            }
            _ => String::new(),
        }
    }

    /// Runs the tests beside the plugin's file.
    async fn tests(
        &self,
        file: Option<&Path>,
        output: &Output,
        sources: &Sources,
        profiler: Option<&Profiler>,
    ) -> Vec<(PathBuf, Tested)> {
        let mut ran = Vec::new();
        // All tests in the folder of a package belong to it; only those of its name belong to a bare file.
        for test in file.map(test_files).unwrap_or_default() {
            let name = test.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let js = JsOptions {
                profiler: profiler.cloned(),
                listen: self.entry.listen_rule_of_tests(),
                listen_advice: "listen on 127.0.0.1, or pass --listen".to_owned(),
                ..self.js_options(output, sources)
            };
            let (lines, file) = (output.clone(), name.clone());
            let ended = Arc::new(move |test: &TestResult| lines.line(&test_line(&file, test)));
            let tested =
                output.hide_tested(run_tests(&test, js, TestRun { ended, ..TestRun::default() }).await);
            if let Some(problem) = &tested.problem {
                output.line(&format!("test: {name} could not run: {}", problem.for_log()));
            }
            ran.push((test, tested));
        }
        ran
    }
}

/// Raises `listening`, waits for timers, and closes the host. Returns the announcements of the plugin, and the summary of its
/// heap before the close if it `measures` that.
async fn open_and_close(
    host: &Arc<Host>,
    modules: &[Module],
    measures: bool,
) -> (Vec<String>, Option<HeapSummary>) {
    host.core.listening();
    let listening = Event::Listening {
        runtime: names::HOST.to_owned(),
        host: "check".to_owned(),
        port: 0,
        guarded: false,
    };
    // A timer that never ends is closed with the host.
    let _ = tokio::time::timeout(LISTENING, host.core.events.raise_and_wait(listening)).await;
    let said = host.end_announcements();
    let mut heap = None;
    for module in modules {
        let engine = module.keep.clone().and_then(|kept| kept.downcast::<Engine>().ok());
        if let Some(engine) = engine {
            engine.rest(TIMERS).await;
            if measures {
                heap = tokio::time::timeout(LISTENING, engine.heap()).await.ok().and_then(Result::ok);
            }
        }
    }
    host.close().await;
    (said, heap)
}

/// Registers stores in memory, and a vault with a fixed value for every secret.
fn own(
    facts: &Arc<HostFacts>,
    calls: &Arc<PluginHostCalls>,
    log: &Log,
) -> Result<ostler_contract::recorder::Recorder, Thrown> {
    let lines = log.clone();
    let report = ostler_ports::Report::new(move |line| lines.warn(line));
    let plugin = Slug::parse("host").ok_or_else(|| Thrown::new("host is not a slug"))?;
    let host =
        PluginHost::new(facts.clone(), Caller { plugin, grants: Arc::new([]), vault: None }, calls.clone());
    host.register_sessions(
        Arc::new(SqliteSessions::new(StateDb::memory()?, report.clone())).into_point(),
        None,
    )?;
    host.register_automations(Arc::new(MemoryAutomations::new(report)?).into_point(), None)?;
    host.register_records(memory_records(), None)?;
    host.register_vault(
        Vault {
            get: Call::now(|_| Ok(Some(SECRET.to_owned()))),
            set: Call::now(|_| Ok(())),
            delete: Call::now(|_| Ok(false)),
            list: Call::now(|()| Ok(Vec::new())),
            ..Vault::default()
        },
        None,
    )?;
    Ok(host.seal())
}

/// Returns each registration with the line of its call, which is known if the number of call sites of a method is one
/// or equals the number of its calls.
fn registered(
    methods: &[(&'static str, Option<String>)],
    source: &str,
    file: Option<&Path>,
) -> Vec<Registered> {
    let name =
        file.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    methods
        .iter()
        .enumerate()
        .map(|(at, (method, key))| {
            let call = format!(".{method}(");
            let places: Vec<usize> = source
                .lines()
                .enumerate()
                .filter(|(_, line)| line.contains(&call) && !line.trim_start().starts_with("//"))
                .map(|(at, _)| at + 1)
                .collect();
            let times = methods.iter().filter(|(other, _)| other == method).count();
            let before = methods[..at].iter().filter(|(other, _)| other == method).count();
            let line = match places.len() {
                1 => places.first(),
                many if many == times => places.get(before),
                _ => None,
            };
            Registered { method, name: key.clone(), at: line.map(|line| format!("{name}:{line}")) }
        })
        .collect()
}

/// Returns where a problem was thrown: the first position of the plugin in the logged stack.
fn thrown_at(problem: &str, said: &[String], file: Option<&Path>) -> Option<String> {
    let folder = format!("{}/", file?.parent()?.display());
    let (_, stack) = said
        .iter()
        .filter_map(|line| line.split_once('\n'))
        .find(|(first, _)| first.split_once(": ").is_some_and(|(_, message)| problem.ends_with(message)))?;
    if let Some(frame) = stack.lines().find(|frame| frame.contains(&folder)) {
        return Some(frame.split_once(&folder)?.1.trim_end_matches(')').to_owned());
    }
    // The sources of a built plugin are elsewhere.
    let places = stack.lines().filter_map(|frame| frame.trim().strip_prefix("at "));
    let places = places.map(|place| place.rsplit_once(" (").map_or(place, |(_, place)| place));
    let place = places.into_iter().find(|place| place.starts_with('/'))?;
    Some(place.trim_end_matches(')').to_owned())
}

/// Returns the call that registered the name in a problem.
fn call_of<'a>(problem: &str, registered: &'a [Registered]) -> Option<&'a Registered> {
    let words: Vec<&str> = problem.split(|c: char| c.is_whitespace() || c == ',').collect();
    let named = |call: &&Registered| call.name.as_deref().is_some_and(|name| words.contains(&name));
    registered.iter().find(named)
}

/// Returns the files beside a module that are tests by their names.
fn test_files(module: &Path) -> Vec<PathBuf> {
    let is_package = module.file_stem().is_some_and(|stem| stem == "index");
    let own = module.file_stem().map(|stem| format!("{}.test.", stem.to_string_lossy())).unwrap_or_default();
    let folder = module.parent().unwrap_or(module);
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let is_test =
                [".test.ts", ".test.mts", ".test.js", ".test.mjs"].iter().any(|end| name.ends_with(end));
            is_test && (is_package || name.starts_with(&own))
        })
        .collect();
    found.sort();
    found
}

impl Checked {
    /// Returns whether there are no problems, no uncaught errors and no failed tests.
    pub fn holds(&self) -> bool {
        let tested = |tested: &Tested| {
            tested.problem.is_none() && tested.results.iter().all(|test| test.outcome != Outcome::Failed)
        };
        self.refused.is_empty()
            && self.uncaught.is_empty()
            && self.tests.iter().all(|(_, results)| tested(results))
    }

    /// Returns the number of tests by outcome, if there is a file of tests.
    fn summary(&self) -> Option<String> {
        let tests = || self.tests.iter().flat_map(|(_, tested)| &tested.results);
        let count = |outcome| tests().filter(|test| test.outcome == outcome).count();
        let (passed, failed, skipped) =
            (count(Outcome::Passed), count(Outcome::Failed), count(Outcome::Skipped));
        (!self.tests.is_empty())
            .then(|| format!("tests: {passed} passed, {failed} failed, {skipped} skipped"))
    }
}

fn test_line(file: &str, test: &TestResult) -> String {
    let outcome = match test.outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "failed",
        Outcome::Skipped => "skipped",
    };
    let why = test.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let at = test.at.as_ref().and_then(|at| {
        let place = at.rsplit_once('(').map_or(at.as_str(), |(_, place)| place.trim_end_matches(')'));
        place.rsplit('/').next().map(|place| format!(" ({place})"))
    });
    format!("test {outcome}: {file}: {}{why}{}", test.name, at.unwrap_or_default())
}
