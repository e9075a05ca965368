//! The lines of a check: printed as soon as they are known, and retained.

use std::sync::Arc;

use ostler_contract::Thrown;
use ostler_engine::Log;
use ostler_js::{JsOptions, Level, Line, TestResult, Tested};
use ostler_loader::Hidden;
use ostler_telemetry::printable::tamed_lines;
use parking_lot::Mutex;

use super::Registered;
use crate::sources::Sources;

/// Prints a line of a check.
pub type Print = Arc<dyn Fn(&str) + Send + Sync>;

/// The lines of a check. Clones share them.
#[derive(Clone)]
pub(super) struct Output {
    print: Print,
    state: Arc<Mutex<State>>,
    pub(super) hidden: Hidden,
}

#[derive(Default)]
struct State {
    printed: Vec<String>,
    /// Log lines that wait for the registrations, which are printed first.
    waiting: Option<Vec<String>>,
    log: Vec<String>,
    uncaught: Vec<String>,
    loading: Vec<String>,
}

impl Output {
    pub(super) fn new(print: Print) -> Self {
        let state = State { waiting: Some(Vec::new()), ..State::default() };
        Self { print, state: Arc::new(Mutex::new(state)), hidden: Hidden::default() }
    }

    /// Prints a line. What a plugin logs and throws can have several, with a stack.
    pub(super) fn line(&self, line: &str) {
        let line = self.hidden.hide(line);
        self.print(&mut self.state.lock(), &line);
    }

    fn print(&self, state: &mut State, line: &str) {
        for line in tamed_lines(line) {
            (self.print)(&line);
            state.printed.push(line);
        }
    }

    /// Prints the log lines that waited, and from now on each when it is logged.
    pub(super) fn open(&self) {
        let mut state = self.state.lock();
        for line in state.waiting.take().unwrap_or_default() {
            self.print(&mut state, &line);
        }
    }

    fn logged(&self, is_uncaught: bool, line: &str) {
        let line = self.hidden.hide(line).into_owned();
        let mut state = self.state.lock();
        let shown = format!("{}: {line}", if is_uncaught { "uncaught" } else { "log" });
        match &mut state.waiting {
            Some(waiting) => waiting.push(shown),
            None => self.print(&mut state, &shown),
        }
        let all = if is_uncaught { &mut state.uncaught } else { &mut state.log };
        all.push(line);
    }

    /// Returns texts of the plugin without secrets.
    pub(super) fn hide(&self, texts: Vec<String>) -> Vec<String> {
        texts.into_iter().map(|text| self.hidden.hide(&text).into_owned()).collect()
    }

    /// Returns registrations without secrets.
    pub(super) fn hide_names(&self, registered: impl Iterator<Item = Registered>) -> Vec<Registered> {
        let hide = |name: String| self.hidden.hide(&name).into_owned();
        registered.map(|call| Registered { name: call.name.map(hide), ..call }).collect()
    }

    /// Returns the results of tests without secrets.
    pub(super) fn hide_tested(&self, tested: Tested) -> Tested {
        let hide = |text: String| self.hidden.hide(&text).into_owned();
        let result = |test: TestResult| TestResult {
            name: hide(test.name),
            why: test.why.map(hide),
            at: test.at.map(hide),
            ..test
        };
        let problem = tested.problem.map(|thrown| Thrown {
            message: hide(thrown.message),
            stack: thrown.stack.map(hide),
            ..thrown
        });
        Tested { results: tested.results.into_iter().map(result).collect(), problem }
    }

    /// Records a log line of the loading of the plugin.
    pub(super) fn loading(&self, line: &str) {
        let line = self.hidden.hide(line).into_owned();
        self.state.lock().loading.push(line);
    }

    pub(super) fn loaded(&self) -> Vec<String> {
        self.state.lock().loading.clone()
    }

    pub(super) fn log(&self) -> Log {
        let (lines, uncaught) = (self.clone(), self.clone());
        Log::new(move |line| lines.logged(false, line)).with_uncaught(move |line| uncaught.logged(true, line))
    }

    pub(super) fn js_options(&self, base: JsOptions, sources: &Sources) -> JsOptions {
        let lines = self.clone();
        let log = move |line: Line| lines.logged(line.level == Level::Uncaught, &line.to_string());
        JsOptions { log: Arc::new(log), read: sources.sink(), ..base }
    }

    /// Moves the lines into the result of the check.
    pub(super) fn end(&self, checked: &mut super::Checked) {
        self.open();
        let state = std::mem::take(&mut *self.state.lock());
        checked.lines = state.printed;
        checked.log = state.log;
        checked.uncaught = state.uncaught;
        checked.loading = state.loading;
    }
}
