//! The state of one terminal for subscribers: its stored output, and the actions that change it. Every change is
//! reduced and published under one lock, so that a snapshot is always between two actions. Of a pseudoterminal's output
//! that is no longer stored, [`Past`] has what it drew and switched on.

use std::sync::Arc;

use ahp::reducers::{ReduceOutcome, apply_action_to_terminal};
use ostler_contract::Budget;
use ostler_engine_core::envelope::Encoded;
use ostler_engine_core::fanout::{Fanout, Origin, Outgoing, Stream, Subscriber};
use ostler_engine_core::file_uris::file_uri;
use ostler_engine_core::titles::tidy_title;
use ostler_protocol::Version;
use ostler_protocol::wire::actions::{
    StateAction, TerminalClaimedAction, TerminalClearedAction, TerminalCommandDetectionAvailableAction,
    TerminalCommandExecutedAction, TerminalCommandFinishedAction, TerminalCwdChangedAction,
    TerminalDataAction, TerminalExitedAction, TerminalResizedAction, TerminalTitleChangedAction,
};
use ostler_protocol::wire::state::{
    TerminalContentPart, TerminalInfo, TerminalLifecycleState, TerminalState, TerminalUnclassifiedPart,
};

use super::SIZE;
use super::marks::{Marks, Piece, plain, typed_line};
use super::past::Past;

/// The size of the stored output, in characters.
pub(super) const KEPT: usize = 200_000;
/// The excess from which the oldest output is dropped, so that not every write moves all of it.
const SLACK: usize = KEPT / 4;
/// The maximum number of stored parts, and the maximum size of the lines of stored commands, in characters.
const MOST_PARTS: usize = 2000;
const MOST_LINES: usize = 2 * KEPT;
/// The maximum size of the text after a prompt that can be a line, in bytes.
const TYPED_MAX: usize = 64 << 10;
/// The maximum length of a shell's reason for reporting no commands, in characters.
const REASON: usize = 200;
/// The size of the stored output before the terminal is open, in bytes. It is cut to this at twice the size.
const EARLY_MAX: usize = 4 * KEPT;

/// The state of a terminal for subscribers.
#[derive(Debug)]
pub(super) struct Screen {
    uri: String,
    pub state: TerminalState,
    /// The number of characters in the content.
    held: usize,
    /// The number of characters of its command lines.
    lines: usize,
    /// The state before the content.
    past: Past,
    /// Parses marks, if it is a pseudoterminal.
    marks: Option<Marks>,
    /// Why the shell does not report its commands, if it says so.
    pub off: Off,
    /// Whether a user set the title, which processes cannot change then.
    pub named: bool,
    /// Whether clients may see it.
    pub listed: bool,
    /// The output before that, in which marks are not parsed yet.
    early: String,
    /// Its end before that, if it ended.
    early_exit: Option<Option<i64>>,
    /// Whether it was disposed of, after which nothing is published.
    pub gone: bool,
    /// Its subscribers, once clients can see it.
    pub stream: Option<Arc<Stream>>,
    commands: Commands,
}

/// Why a shell does not report its commands.
#[derive(Debug, Default)]
pub(super) enum Off {
    #[default]
    Unknown,
    Said(String),
    /// Once is enough: any program can write the mark.
    Logged,
}

impl Off {
    /// Returns a reason that is not logged yet.
    pub fn take(&mut self) -> Option<String> {
        match std::mem::replace(self, Self::Logged) {
            Self::Said(why) => Some(why),
            Self::Unknown => {
                *self = Self::Unknown;
                None
            }
            Self::Logged => None,
        }
    }
}

/// The current command of a shell.
#[derive(Debug, Default)]
struct Commands {
    count: u64,
    /// The text typed since the prompt, if known.
    typed: Option<String>,
    /// The line from the shell.
    line: Option<String>,
    /// The running command and its start, in milliseconds.
    running: Option<(String, i64)>,
}

impl Screen {
    pub fn new(uri: String, state: TerminalState, budget: Budget) -> Self {
        Self {
            uri,
            state,
            held: 0,
            lines: 0,
            past: Past::new(budget),
            marks: None,
            off: Off::default(),
            named: false,
            listed: false,
            early: String::new(),
            early_exit: None,
            gone: false,
            stream: None,
            commands: Commands::default(),
        }
    }

    /// Makes it visible to clients; parses marks if it is a pseudoterminal.
    pub fn list(&mut self, fanout: &Fanout, is_pty: bool, now: i64) {
        self.state.is_pty = Some(is_pty);
        self.marks = is_pty.then(Marks::default);
        if !is_pty {
            self.past.forget();
        }
        self.listed = true;
        self.stream = Some(fanout.open_stream(&self.uri));
        let early = std::mem::take(&mut self.early);
        self.said(fanout, &early, now);
        if let Some(exit_code) = self.early_exit.take() {
            self.exited(fanout, exit_code, now);
        }
    }

    /// Returns whether its process has ended.
    pub fn has_exited(&self) -> bool {
        matches!(self.state.lifecycle, TerminalLifecycleState::Exited(_))
    }

    /// Returns its entry on the root channel.
    pub fn info(&self) -> TerminalInfo {
        TerminalInfo {
            resource: self.uri.clone(),
            title: self.state.title.clone(),
            claim: self.state.claim.clone(),
            lifecycle: self.state.lifecycle.clone(),
        }
    }

    /// Returns its stored output.
    pub fn output(&mut self) -> String {
        self.trim(0);
        self.state.content.iter().map(text_of).collect()
    }

    /// Adds a subscriber; returns the snapshot and its number, or `None` if the terminal was disposed of.
    pub fn subscribe(&mut self, fanout: &Fanout, subscriber: Subscriber) -> Option<(String, u64)> {
        if self.gone {
            return None;
        }
        self.trim(0);
        let state = match self.past.dump() {
            None => serde_json::to_string(&self.state).ok()?,
            Some(before) => {
                let mut state = self.state.clone();
                begin_with(&mut state.content, before);
                serde_json::to_string(&state).ok()?
            }
        };
        Some((state, fanout.subscribe(&self.uri, subscriber)))
    }

    /// Reduces an action and sends it to subscribers; returns whether it changed anything.
    pub fn apply(&mut self, fanout: &Fanout, action: &StateAction, origin: Option<Origin>) -> bool {
        if self.gone {
            return false;
        }
        if let StateAction::TerminalCleared(_) = action {
            self.clear();
        }
        if apply_action_to_terminal(&mut self.state, action) != ReduceOutcome::Applied {
            return false;
        }
        if let StateAction::TerminalResized(_) = action {
            self.past.resize(size_of(&self.state));
        }
        // A client waits for the echo of its action, while missed output is replaced by the state.
        if origin.is_some() {
            if let Ok(text) = serde_json::to_string(action) {
                fanout.publish(&self.uri, vec![Outgoing { origin, ..Outgoing::host(text, Version::V0_9) }]);
            }
        } else {
            let followed = fanout.is_followed(&self.uri);
            let encoded = followed.then(|| Encoded::framed(&self.uri, action).ok()).flatten();
            fanout.publish_stream(&self.uri, encoded);
        }
        true
    }

    /// Sends the whole state to subscribers that were left behind; returns whether there was memory for it.
    pub fn bring_up(&mut self, fanout: &Fanout) -> bool {
        if self.gone {
            return true;
        }
        self.trim(0);
        fanout.publish_state(&self.uri, || {
            let actions = self.actions();
            actions.iter().filter_map(|action| serde_json::to_string(action).ok()).collect()
        })
    }

    /// Returns the actions that create this state from any earlier one.
    fn actions(&self) -> Vec<StateAction> {
        let state = &self.state;
        let mut actions = vec![StateAction::TerminalCleared(TerminalClearedAction {})];
        let data = |data: &str| StateAction::TerminalData(TerminalDataAction { data: data.to_owned() });
        // What the subscriber has seen can have switched on anything.
        if state.is_pty == Some(true) {
            actions.push(data(self.past.dump().as_deref().unwrap_or(ostler_screen::RESET)));
        }
        for part in &state.content {
            match part {
                TerminalContentPart::Unclassified(part) => actions.push(data(&part.value)),
                TerminalContentPart::Command(part) => {
                    let id = &part.command_id;
                    actions.push(StateAction::TerminalCommandExecuted(TerminalCommandExecutedAction {
                        command_id: id.clone(),
                        command_line: part.command_line.clone(),
                        timestamp: part.timestamp,
                    }));
                    if !part.output.is_empty() {
                        actions.push(data(&part.output));
                    }
                    if part.is_complete {
                        actions.push(StateAction::TerminalCommandFinished(TerminalCommandFinishedAction {
                            command_id: id.clone(),
                            exit_code: part.exit_code,
                            duration_ms: part.duration_ms,
                        }));
                    }
                }
                TerminalContentPart::Unknown(_) => {}
            }
        }
        if state.supports_command_detection == Some(true) {
            let available = TerminalCommandDetectionAvailableAction {};
            actions.push(StateAction::TerminalCommandDetectionAvailable(available));
        }
        if let Some(cwd) = state.cwd.clone() {
            actions.push(StateAction::TerminalCwdChanged(TerminalCwdChangedAction { cwd }));
        }
        let title = state.title.clone();
        actions.push(StateAction::TerminalTitleChanged(TerminalTitleChangedAction { title }));
        if let (Some(cols), Some(rows)) = (state.cols, state.rows) {
            actions.push(StateAction::TerminalResized(TerminalResizedAction { cols, rows }));
        }
        let claim = state.claim.clone();
        actions.push(StateAction::TerminalClaimed(TerminalClaimedAction { claim }));
        if let TerminalLifecycleState::Exited(exited) = &state.lifecycle {
            let exit_code = exited.exit_code;
            actions.push(StateAction::TerminalExited(TerminalExitedAction { exit_code }));
        }
        actions
    }

    /// Adds output; returns whether the entry in the list changes.
    pub fn said(&mut self, fanout: &Fanout, data: &str, now: i64) -> bool {
        if self.has_exited() || data.is_empty() {
            return false;
        }
        if !self.listed {
            if self.early_exit.is_some() {
                return false;
            }
            self.early.push_str(data);
            if self.early.len() > 2 * EARLY_MAX {
                let over = self.early.ceil_char_boundary(self.early.len() - EARLY_MAX);
                let least = self.early[..over].chars().count();
                let (taken, _) = self.past.take(size_of(&self.state), &self.early, least);
                self.early.drain(..taken);
            }
            return false;
        }
        let Some(mut marks) = self.marks.take() else {
            self.text(fanout, data);
            return false;
        };
        // Titles are between parts of text. Only the last one counts, so that a program that sets many causes one
        // action.
        let (mut text, mut title) = (String::new(), None);
        for piece in marks.read(data) {
            match piece {
                Piece::Text(more) if text.is_empty() => text = more,
                Piece::Text(more) => text.push_str(&more),
                Piece::Title(new) => title = Some(new),
                piece => {
                    self.printed(fanout, &std::mem::take(&mut text));
                    self.piece(fanout, piece, now);
                }
            }
        }
        self.printed(fanout, &text);
        self.marks = Some(marks);
        title.is_some_and(|title| self.calls_itself(fanout, &title))
    }

    /// Adds text between marks.
    fn printed(&mut self, fanout: &Fanout, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(typed) = &mut self.commands.typed {
            if typed.len() + text.len() > TYPED_MAX {
                self.commands.typed = None;
            } else {
                typed.push_str(text);
            }
        }
        self.text(fanout, text);
    }

    fn piece(&mut self, fanout: &Fanout, piece: Piece, now: i64) {
        match piece {
            Piece::Text(_) | Piece::Title(_) => {}
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
            Piece::Off(why) => {
                if let Off::Unknown = self.off {
                    self.off = Off::Said(plain(&why).chars().take(REASON).collect());
                }
            }
        }
    }

    fn text(&mut self, fanout: &Fanout, data: &str) {
        let said = StateAction::TerminalData(TerminalDataAction { data: data.to_owned() });
        if self.apply(fanout, &said, None) {
            self.held += data.chars().count();
            self.trim(SLACK);
        }
    }

    fn begin(&mut self, fanout: &Fanout, line: Option<String>, now: i64) {
        let typed = self.commands.typed.take().and_then(|typed| typed_line(&typed));
        self.finish(fanout, None, now);
        let line = line.or(self.commands.line.take()).or(typed).unwrap_or_default();
        self.lines += line.chars().count();
        self.commands.count += 1;
        let id = self.commands.count.to_string();
        let executed =
            TerminalCommandExecutedAction { command_id: id.clone(), command_line: line, timestamp: now };
        self.commands.running = Some((id, now));
        self.apply(fanout, &StateAction::TerminalCommandExecuted(executed), None);
        self.trim(SLACK);
    }

    fn finish(&mut self, fanout: &Fanout, exit_code: Option<i64>, now: i64) {
        self.commands.typed = None;
        let Some((command_id, begun)) = self.commands.running.take() else { return };
        let duration_ms = Some((now - begun).max(0));
        let finished = TerminalCommandFinishedAction { command_id, exit_code, duration_ms };
        self.apply(fanout, &StateAction::TerminalCommandFinished(finished), None);
    }

    /// Changes the working directory of the process.
    pub fn works_at(&mut self, fanout: &Fanout, cwd: &str) {
        let cwd = file_uri(cwd);
        if self.state.cwd.as_deref() != Some(&cwd) {
            let changed = StateAction::TerminalCwdChanged(TerminalCwdChangedAction { cwd });
            self.apply(fanout, &changed, None);
        }
    }

    /// Sets the title from the process; returns whether it was changed.
    pub fn calls_itself(&mut self, fanout: &Fanout, title: &str) -> bool {
        let title = tidy_title(&plain(title)).filter(|title| !self.named && *title != self.state.title);
        let Some(title) = title else { return false };
        let changed = StateAction::TerminalTitleChanged(TerminalTitleChangedAction { title });
        self.apply(fanout, &changed, None)
    }

    /// Records the end of the process; returns whether it is new.
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

    /// Drops the oldest output beyond the limits. That of a pseudoterminal is only cut between two sequences.
    fn trim(&mut self, slack: usize) {
        let has_room = self.held <= KEPT + slack && !self.has_too_many_parts();
        if has_room && self.past.is_between() {
            return;
        }
        let is_pty = self.state.is_pty == Some(true);
        while let Some(first) = self.state.content.first() {
            let whole = self.has_too_many_parts();
            let over = self.held.saturating_sub(KEPT);
            if over == 0 && !whole && self.past.is_between() {
                return;
            }
            let text = text_of(first);
            let least = if whole { usize::MAX } else { over };
            let (bytes, characters) = match is_pty {
                true => self.past.take(size_of(&self.state), text, least),
                false => characters_of(text, least),
            };
            let is_all = bytes == text.len();
            self.held -= characters;
            // The output of a running command goes to its part, also if there is none yet.
            if is_all && self.state.content.len() > 1 {
                if let TerminalContentPart::Command(first) = self.state.content.remove(0) {
                    self.lines -= first.command_line.chars().count();
                }
            } else {
                match self.state.content.first_mut() {
                    Some(TerminalContentPart::Unclassified(part)) => drop(part.value.drain(..bytes)),
                    Some(TerminalContentPart::Command(part)) => drop(part.output.drain(..bytes)),
                    _ => {}
                }
                return;
            }
        }
    }

    fn has_too_many_parts(&self) -> bool {
        self.state.content.len() > MOST_PARTS || (self.lines > MOST_LINES && self.state.content.len() > 1)
    }

    /// Drops what is drawn. What was switched on stays.
    fn clear(&mut self) {
        if self.state.is_pty == Some(true) {
            let size = size_of(&self.state);
            for part in &self.state.content {
                self.past.take(size, text_of(part), usize::MAX);
            }
            self.past.erase();
        }
        (self.held, self.lines) = (0, 0);
    }
}

/// Returns the size of a terminal in columns and rows.
fn size_of(state: &TerminalState) -> (u16, u16) {
    let size = |size: Option<i64>, usual| size.and_then(|size| u16::try_from(size).ok()).unwrap_or(usual);
    (size(state.cols, SIZE.0), size(state.rows, SIZE.1))
}

/// Returns the length of the first characters of a text in bytes, and their number.
fn characters_of(text: &str, count: usize) -> (usize, usize) {
    match text.char_indices().nth(count) {
        Some((at, _)) => (at, count),
        None => (text.len(), text.chars().count()),
    }
}

/// Puts text before a content.
fn begin_with(content: &mut Vec<TerminalContentPart>, mut before: String) {
    match content.first_mut() {
        Some(TerminalContentPart::Unclassified(first)) => {
            before.push_str(&first.value);
            first.value = before;
        }
        _ => {
            let part = TerminalUnclassifiedPart { value: before };
            content.insert(0, TerminalContentPart::Unclassified(part));
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
