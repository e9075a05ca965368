//! Runs a plugin author's `node:test` tests in a separate engine.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use ostler_contract::live::{Callable, Live};
use ostler_contract::shape::{FunctionShape, Shape};
use ostler_contract::{Thrown, Value};
use rquickjs::{Function, Module};

use crate::engine::Engine;
use crate::functions;
use crate::modules::builtin;
use crate::options::JsOptions;

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

/// Imports a module and runs its tests in sequence.
///
/// # Errors
/// The error that the module threw during the import.
pub async fn run_tests(path: &Path, options: JsOptions) -> Result<Vec<TestResult>, Thrown> {
    let host =
        tokio::runtime::Handle::try_current().map_err(|_| Thrown::new("tests are run on a tokio runtime"))?;
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let label = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let engine = Engine::start(&label, Arc::new(options), host)?;
    let path = path.to_string_lossy().into_owned();
    let imported = engine.ask(move |ctx, state, reply| match Module::import(ctx, path) {
        Ok(promise) => functions::answer(ctx, state, promise.into_value(), reply, |_, _, _| Ok(())),
        Err(error) => reply.send(Err(crate::errors::caught(ctx, state, error))),
    });
    imported.await?;
    let outcomes = engine.ask(|ctx, state, reply| {
        let held = builtin(ctx, "internal/test")
            .and_then(|module| module.get::<_, Function>("outcomes"))
            .map(|outcomes| functions::hold(ctx, state, &outcomes, None, outcomes_shape()));
        reply.send(held.map_err(|error| crate::errors::caught(ctx, state, error)));
    });
    let Some(outcomes) = outcomes.await? else { return Err(Thrown::new("the tests are being stopped")) };
    match outcomes.call(Vec::new()).await? {
        Live::Data(Value::Array(rows)) => Ok(rows.iter().map(result).collect()),
        _ => Ok(Vec::new()),
    }
}

fn result(row: &Value) -> TestResult {
    let text = |key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
    TestResult {
        name: text("name").unwrap_or_default(),
        outcome: match row.get("outcome").and_then(Value::as_str) {
            Some("passed") => Outcome::Passed,
            Some("skipped") => Outcome::Skipped,
            _ => Outcome::Failed,
        },
        why: text("why"),
        at: text("at"),
    }
}

fn outcomes_shape() -> &'static FunctionShape {
    static SHAPE: OnceLock<FunctionShape> = OnceLock::new();
    SHAPE.get_or_init(|| FunctionShape { params: Vec::new(), returns: Shape::Any, now: false })
}
