//! What watchers see of one terminal: its state, the last of what it said, and the actions that change them. Every
//! change is reduced and published under one lock, so that a snapshot falls between two actions and never into one.

use ahp::reducers::{ReduceOutcome, apply_action_to_terminal};
use ostler_protocol::Version;
use ostler_protocol::wire::actions::{
    StateAction, TerminalCommandDetectionAvailableAction, TerminalCommandExecutedAction,
    TerminalCommandFinishedAction, TerminalCwdChangedAction, TerminalDataAction, TerminalExitedAction,
    TerminalTitleChangedAction,
};
use ostler_protocol::wire::state::{
    TerminalContentPart, TerminalInfo, TerminalLifecycleState, TerminalState,
};

use super::marks::{Marks, Piece, plain};
use crate::core::fanout::{Fanout, Origin, Outgoing, Subscriber};
use crate::core::file_uris::file_uri;
use crate::core::titles::tidy_title;

/// How much of what a terminal said is kept, in characters.
pub(super) const KEPT: usize = 200_000;
/// How much more may gather before the oldest is dropped, so that not every write moves all of it.
const SLACK: usize = KEPT / 4;
/// How much of what a terminal says before it is open is kept, in bytes.
const EARLY_MAX: usize = 4 * KEPT;

/// One terminal as it is seen.
#[derive(Debug)]
pub(super) struct Screen {
    uri: String,
    pub state: TerminalState,
    /// How many characters the content holds.
    held: usize,
    /// Reads marks where a pseudoterminal stands behind it.
    marks: Option<Marks>,
    /// Whether a person gave the title: no process takes it back.
    pub named: bool,
    /// Whether clients may see it.
    pub listed: bool,
    /// What it said before that: whether it holds marks is not known yet.
    early: String,
    /// How it ended before that, if it did.
    early_exit: Option<Option<i64>>,
    /// Whether it was disposed of: nothing more is said.
    pub gone: bool,
    commands: Commands,
}

/// The command a shell is at.
#[derive(Debug, Default)]
struct Commands {
    count: u64,
    /// What was typed since the prompt, where that is known.
    typed: Option<String>,
    /// The line the shell named.
    line: Option<String>,
    /// The command that runs and when it began, in milliseconds.
    running: Option<(String, i64)>,
}

impl Screen {
    pub fn new(uri: String, state: TerminalState) -> Self {
        Self {
            uri,
            state,
            held: 0,
            marks: None,
            named: false,
            listed: false,
            early: String::new(),
            early_exit: None,
            gone: false,
            commands: Commands::default(),
        }
    }

    /// Lets clients see it; marks are read where it is a pseudoterminal.
    pub fn list(&mut self, fanout: &Fanout, is_pty: bool, now: i64) {
        self.state.is_pty = Some(is_pty);
        self.marks = is_pty.then(Marks::default);
        self.listed = true;
        let early = std::mem::take(&mut self.early);
        self.said(fanout, &early, now);
        if let Some(exit_code) = self.early_exit.take() {
            self.exited(fanout, exit_code, now);
        }
    }

    /// Whether its process has ended.
    pub fn has_exited(&self) -> bool {
        matches!(self.state.lifecycle, TerminalLifecycleState::Exited(_))
    }

    /// As the root channel lists it.
    pub fn info(&self) -> TerminalInfo {
        TerminalInfo {
            resource: self.uri.clone(),
            title: self.state.title.clone(),
            claim: self.state.claim.clone(),
            lifecycle: self.state.lifecycle.clone(),
        }
    }

    /// Everything it said, as far as it is kept.
    pub fn output(&mut self) -> String {
        self.trim(0);
        self.state.content.iter().map(text_of).collect()
    }

    /// Adds a watcher; answers the state it begins with and the number it was taken at.
    pub fn subscribe(&mut self, fanout: &Fanout, subscriber: Subscriber) -> Option<(String, u64)> {
        self.trim(0);
        let state = serde_json::to_string(&self.state).ok()?;
        Some((state, fanout.subscribe(&self.uri, subscriber)))
    }

    /// Reduces an action and sends it to whoever watches; answers whether it changed anything.
    pub fn apply(&mut self, fanout: &Fanout, action: &StateAction, origin: Option<Origin>) -> bool {
        if self.gone || apply_action_to_terminal(&mut self.state, action) != ReduceOutcome::Applied {
            return false;
        }
        if let StateAction::TerminalCleared(_) = action {
            self.held = 0;
        }
        if let Ok(text) = serde_json::to_string(action) {
            fanout.publish(&self.uri, vec![Outgoing { origin, ..Outgoing::host(text, Version::V0_9) }]);
        }
        true
    }

    /// Takes output; answers whether a listing shows something else now.
    pub fn said(&mut self, fanout: &Fanout, data: &str, now: i64) -> bool {
        if self.has_exited() || data.is_empty() {
            return false;
        }
        if !self.listed {
            if self.early_exit.is_some() {
                return false;
            }
            self.early.push_str(data);
            let over = self.early.len().saturating_sub(EARLY_MAX);
            self.early.drain(..self.early.ceil_char_boundary(over));
            return false;
        }
        let Some(mut marks) = self.marks.take() else {
            self.text(fanout, data);
            return false;
        };
        let mut retitled = false;
        for piece in marks.read(data) {
            retitled |= self.piece(fanout, piece, now);
        }
        self.marks = Some(marks);
        retitled
    }

    fn piece(&mut self, fanout: &Fanout, piece: Piece, now: i64) -> bool {
        match piece {
            Piece::Text(text) => {
                if let Some(typed) = &mut self.commands.typed {
                    typed.push_str(&text);
                }
                self.text(fanout, &text);
            }
            Piece::Prompt => {
                self.finish(fanout, None, now);
                if self.state.supports_command_detection != Some(true) {
                    let available = StateAction::TerminalCommandDetectionAvailable(
                        TerminalCommandDetectionAvailableAction {},
                    );
                    self.apply(fanout, &available, None);
                }
            }
            Piece::Typing => self.commands.typed = Some(String::new()),
            Piece::Line(line) => self.commands.line = Some(line),
            Piece::Executed(line) => self.begin(fanout, line, now),
            Piece::Finished(code) => self.finish(fanout, code, now),
            Piece::Cwd(cwd) => self.works_at(fanout, &cwd),
            Piece::Title(title) => return self.calls_itself(fanout, &title),
        }
        false
    }

    fn text(&mut self, fanout: &Fanout, data: &str) {
        let said = StateAction::TerminalData(TerminalDataAction { data: data.to_owned() });
        if self.apply(fanout, &said, None) {
            self.held += data.chars().count();
            self.trim(SLACK);
        }
    }

    fn begin(&mut self, fanout: &Fanout, line: Option<String>, now: i64) {
        let typed = self.commands.typed.take().map(|typed| plain(&typed));
        self.finish(fanout, None, now);
        let line = line.or(self.commands.line.take()).or(typed).unwrap_or_default();
        self.commands.count += 1;
        let id = self.commands.count.to_string();
        let executed =
            TerminalCommandExecutedAction { command_id: id.clone(), command_line: line, timestamp: now };
        self.commands.running = Some((id, now));
        self.apply(fanout, &StateAction::TerminalCommandExecuted(executed), None);
    }

    fn finish(&mut self, fanout: &Fanout, exit_code: Option<i64>, now: i64) {
        self.commands.typed = None;
        let Some((command_id, begun)) = self.commands.running.take() else { return };
        let duration_ms = Some((now - begun).max(0));
        let finished = TerminalCommandFinishedAction { command_id, exit_code, duration_ms };
        self.apply(fanout, &StateAction::TerminalCommandFinished(finished), None);
    }

    /// The process works somewhere else now.
    pub fn works_at(&mut self, fanout: &Fanout, cwd: &str) {
        let cwd = file_uri(cwd);
        if self.state.cwd.as_deref() != Some(&cwd) {
            let changed = StateAction::TerminalCwdChanged(TerminalCwdChangedAction { cwd });
            self.apply(fanout, &changed, None);
        }
    }

    /// The process calls itself something; answers whether it is called that now.
    pub fn calls_itself(&mut self, fanout: &Fanout, title: &str) -> bool {
        let title = tidy_title(&plain(title)).filter(|title| !self.named && *title != self.state.title);
        let Some(title) = title else { return false };
        let changed = StateAction::TerminalTitleChanged(TerminalTitleChangedAction { title });
        self.apply(fanout, &changed, None)
    }

    /// The process has ended; answers whether that is new.
    pub fn exited(&mut self, fanout: &Fanout, exit_code: Option<i64>, now: i64) -> bool {
        if self.has_exited() || self.early_exit.is_some() || self.gone {
            return false;
        }
        if !self.listed {
            self.early_exit = Some(exit_code);
            return true;
        }
        if let Some(rest) = self.marks.as_mut().and_then(Marks::rest) {
            self.text(fanout, &rest);
        }
        self.finish(fanout, None, now);
        self.apply(fanout, &StateAction::TerminalExited(TerminalExitedAction { exit_code }), None)
    }

    /// Drops the oldest of what is too much.
    fn trim(&mut self, slack: usize) {
        if self.held <= KEPT + slack {
            return;
        }
        let mut over = self.held - KEPT;
        self.held = KEPT;
        while let Some(first) = self.state.content.first_mut() {
            let text = match first {
                TerminalContentPart::Unclassified(part) => &mut part.value,
                TerminalContentPart::Command(part) => &mut part.output,
                TerminalContentPart::Unknown(_) => break,
            };
            match text.char_indices().nth(over) {
                Some((at, _)) => {
                    text.drain(..at);
                    break;
                }
                None => {
                    over -= text.chars().count();
                    self.state.content.remove(0);
                }
            }
        }
    }
}

fn text_of(part: &TerminalContentPart) -> &str {
    match part {
        TerminalContentPart::Unclassified(part) => &part.value,
        TerminalContentPart::Command(part) => &part.output,
        TerminalContentPart::Unknown(_) => "",
    }
}
