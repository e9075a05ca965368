//! Runs a plugin author's `node:test` tests in a separate engine.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::live::{Callable, Pending};
use ostler_contract::shape::{FunctionShape, Shape};
use rquickjs::{Ctx, Function, Persistent};
use tokio::time::Instant;

use crate::engine::Engine;
use crate::functions;
use crate::modules::builtin;
use crate::options::JsOptions;
use crate::source;

/// The default of [`TestRun::limit`].
const LIMIT: Duration = Duration::from_secs(30);
/// The interval at which the engine is asked whether it still answers.
const LOOK: Duration = Duration::from_millis(500);

/// The outcome of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It failed or threw.
    Failed,
    /// It was skipped.
    Skipped,
}

/// The result of one test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestResult {
    /// Its name, after the names of its suites.
    pub name: String,
    /// Its outcome.
    pub outcome: Outcome,
    /// The error, if it failed.
    pub why: Option<String>,
    /// The position of the failure: `function (file:line:column)`.
    pub at: Option<String>,
}

/// How to run the tests of a file.
#[derive(Clone)]
pub struct TestRun {
    /// The time limit of a test or hook that sets none, and of the import.
    pub limit: Duration,
    /// Receives each test when it ends.
    pub ended: Arc<dyn Fn(&TestResult) + Send + Sync>,
}

impl Default for TestRun {
    fn default() -> Self {
        Self { limit: LIMIT, ended: Arc::new(|_| ()) }
    }
}

impl fmt::Debug for TestRun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TestRun").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// The tests of a file that ran.
#[derive(Debug, Clone, Default)]
pub struct Tested {
    /// Their results, in the order in which they ended.
    pub results: Vec<TestResult>,
    /// Why no further test could run.
    pub problem: Option<Thrown>,
}

/// Imports a module and runs its tests in sequence.
pub async fn run_tests(path: &Path, options: JsOptions, run: TestRun) -> Tested {
    let progress = Arc::new(Progress { run, now: Mutex::new(Now::default()) });
    let problem = drive(path, options, &progress).await.err();
    let results = std::mem::take(&mut progress.now().results);
    Tested { results, problem }
}

async fn drive(path: &Path, options: JsOptions, progress: &Arc<Progress>) -> Result<(), Thrown> {
    let host =
        tokio::runtime::Handle::try_current().map_err(|_| Thrown::new("tests are run on a tokio runtime"))?;
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let label = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let engine = Engine::start(&label, Arc::new(options), host)?;
    let work = async {
        observe(&engine, progress.clone()).await?;
        source::import(&engine, &path, |_, _, _| Ok(())).await?;
        progress.now().imported = true;
        finish(&engine).await
    };
    tokio::select! {
        done = work => done,
        stuck = progress.stuck(&engine) => {
            engine.kill();
            Err(stuck)
        }
    }
}

/// The progress of the tests of a file.
struct Progress {
    run: TestRun,
    now: Mutex<Now>,
}

struct Now {
    results: Vec<TestResult>,
    /// The tests that began and did not end.
    running: Vec<String>,
    /// The longest time limit of the tests and hooks that are awaited.
    longest: Duration,
    imported: bool,
    /// When a test last began or ended.
    since: Instant,
}

impl Default for Now {
    fn default() -> Self {
        Self {
            results: Vec::new(),
            running: Vec::new(),
            longest: Duration::ZERO,
            imported: false,
            since: Instant::now(),
        }
    }
}

impl Progress {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn began(&self, name: String) {
        let mut now = self.now();
        now.running.push(name);
        now.since = Instant::now();
    }

    fn changed(&self, longest: f64) {
        self.now().longest = Duration::try_from_secs_f64(longest / 1000.0).unwrap_or(Duration::MAX);
    }

    fn ended(&self, result: TestResult) {
        let mut now = self.now();
        if let Some(at) = now.running.iter().rposition(|name| *name == result.name) {
            now.running.remove(at);
        }
        now.since = Instant::now();
        now.results.push(result.clone());
        drop(now);
        (self.run.ended)(&result);
    }

    /// Waits until the engine makes no progress: it does not answer for longer than its tests may take, or its module
    /// is not imported within the limit. All other limits are those of `internal/test`.
    async fn stuck(&self, engine: &Engine) -> Thrown {
        let mut answered = Instant::now();
        loop {
            let asked = engine.ask(|_, _, reply| reply.send(Ok(())));
            let mut asked = std::pin::pin!(asked);
            while tokio::time::timeout(LOOK, &mut asked).await.is_err() {
                let now = self.now();
                let limit = self.run.limit.max(now.longest);
                if answered.elapsed() > limit {
                    let limit = limit.as_millis();
                    return Thrown::new(match now.running.last() {
                        Some(name) => format!("{name} did not return within {limit} ms"),
                        None if now.imported => format!("a hook did not return within {limit} ms"),
                        None => format!("its import did not end within {limit} ms"),
                    });
                }
            }
            tokio::time::sleep(LOOK).await;
            answered = Instant::now();
            let now = self.now();
            if !now.imported && now.running.is_empty() && now.since.elapsed() > self.run.limit {
                let limit = self.run.limit.as_millis();
                return Thrown::new(format_args!("its import did not end within {limit} ms"));
            }
        }
    }
}

/// Lets `internal/test` report its tests, and fail what nothing can settle.
fn observe(engine: &Engine, progress: Arc<Progress>) -> Pending<()> {
    engine.ask(move |ctx, state, reply| {
        let observed = stalled(ctx, progress).map(|stalled| {
            *state.stalled.borrow_mut() = Some(Persistent::save(ctx, stalled));
        });
        reply.send(observed.map_err(|error| crate::errors::caught(ctx, state, error)));
    })
}

fn stalled<'js>(ctx: &Ctx<'js>, progress: Arc<Progress>) -> rquickjs::Result<Function<'js>> {
    let observe: Function = builtin(ctx, "internal/test")?.get("observe")?;
    let limit = progress.run.limit.as_secs_f64() * 1000.0;
    let beginning = progress.clone();
    let began = Function::new(ctx.clone(), move |name: String| beginning.began(name))?;
    let changing = progress.clone();
    let changed = Function::new(ctx.clone(), move |longest: f64| changing.changed(longest))?;
    let ended = Function::new(
        ctx.clone(),
        move |name: String, outcome: String, why: Option<String>, at: Option<String>| {
            let outcome = match outcome.as_str() {
                "passed" => Outcome::Passed,
                "skipped" => Outcome::Skipped,
                _ => Outcome::Failed,
            };
            progress.ended(TestResult { name, outcome, why, at });
        },
    )?;
    observe.call((limit, began, ended, changed))
}

/// Waits until all tests have ended.
async fn finish(engine: &Engine) -> Result<(), Thrown> {
    let finish = engine.ask(|ctx, state, reply| {
        let held = builtin(ctx, "internal/test")
            .and_then(|module| module.get::<_, Function>("finish"))
            .map(|finish| functions::hold(ctx, state, &finish, None, finish_shape()));
        reply.send(held.map_err(|error| crate::errors::caught(ctx, state, error)));
    });
    match finish.await? {
        Some(finish) => finish.call(Vec::new()).await.map(drop),
        None => Err(Thrown::new("the tests are being stopped")),
    }
}

fn finish_shape() -> &'static FunctionShape {
    static SHAPE: OnceLock<FunctionShape> = OnceLock::new();
    SHAPE.get_or_init(|| FunctionShape { params: Vec::new(), returns: Shape::Nothing, now: false })
}
