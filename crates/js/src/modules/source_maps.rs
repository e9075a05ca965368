//! Source maps: the places of built code in the files it was built from.
//!
//! A map is read when the first stack with its file is shown, because each error has a stack and few are shown. Only files that the
//! plugin has loaded are read: a stack begins with a message, which others may have written.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oxc_sourcemap::SourceMap;
use url::Url;

use super::kind::Kind;
use super::{commonjs, names};
use crate::engine::{Memory, State};

/// The maximum size of a file and of its map.
const LARGEST: u64 = 32 << 20;
/// The maximum number of maps that are remembered.
const MOST: usize = 256;
/// The maximum length of the name of a file.
const LONGEST_NAME: usize = 4096;
/// The maximum length of the names of loaded files together. Those that are loaded later have no map.
const LONGEST_NAMES: usize = 1 << 20;
/// The comment that names the map of a file.
const COMMENT: &str = "sourceMappingURL=";

/// The names of the files that the engines of a plugin have loaded. They share it, because an error of a worker is shown by
/// the engine that started it.
#[derive(Default)]
pub(crate) struct Loaded(Mutex<LoadedNames>);

#[derive(Default)]
struct LoadedNames {
    names: HashSet<String>,
    length: usize,
}

impl Loaded {
    fn names(&self) -> MutexGuard<'_, LoadedNames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the full name of a module, or the name of a script.
    pub(super) fn add(&self, name: &str) {
        let mut loaded = self.names();
        let length = loaded.length + name.len();
        let fits = name.len() <= LONGEST_NAME && length <= LONGEST_NAMES;
        if fits && name.starts_with('/') && loaded.names.insert(name.to_owned()) {
            loaded.length = length;
        }
    }

    fn has(&self, name: &str) -> bool {
        self.names().names.contains(name)
    }
}

/// The source maps of an engine.
pub(crate) struct SourceMaps {
    enabled: Cell<bool>,
    /// By path, also of loaded files without a map.
    files: RefCell<HashMap<String, Option<Rc<Map>>>>,
}

impl Default for SourceMaps {
    fn default() -> Self {
        Self { enabled: Cell::new(true), files: RefCell::default() }
    }
}

impl SourceMaps {
    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.enabled.set(enabled);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.get()
    }

    pub(super) fn clear(&self) {
        self.files.take();
    }

    /// Returns a stack in which each place of built code is replaced with its origin.
    pub(crate) fn apply(&self, state: &State, stack: &str) -> String {
        if !self.enabled.get() || !stack.contains("    at ") {
            return stack.to_owned();
        }
        let mut shown = String::with_capacity(stack.len());
        for (at, line) in stack.split('\n').enumerate() {
            if at > 0 {
                shown.push('\n');
            }
            match frame(line)
                .and_then(|(before, place, after)| Some((before, self.origin(state, place)?, after)))
            {
                Some((before, place, after)) => {
                    let _ = write!(shown, "{before}{place}{after}");
                }
                None => shown.push_str(line),
            }
        }
        shown
    }

    /// Returns the origin of `<file>:<line>:<column>`.
    fn origin(&self, state: &State, place: &str) -> Option<String> {
        let mut parts = place.rsplitn(3, ':');
        let (column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
        let at = (line.parse().ok()?, column.parse().ok()?);
        let (source, (line, column)) = self.origin_of(state, file, at)?;
        Some(format!("{source}:{line}:{column}"))
    }

    /// Returns the origin of a place: its file, line and column.
    pub(crate) fn origin_of(
        &self,
        state: &State,
        file: &str,
        (line, column): Place,
    ) -> Option<(String, Place)> {
        let map = self.enabled.get().then(|| self.map(state, file))??;
        map.origin(line.checked_sub(1)?, column)
    }

    fn map(&self, state: &State, file: &str) -> Option<Rc<Map>> {
        if !state.shared.family.loaded.has(file) {
            return None;
        }
        let (path, _) = names::split(file);
        if let Some(known) = self.files.borrow().get(path) {
            return known.clone();
        }
        let map = Map::read(state, Path::new(path)).map(Rc::new);
        let mut files = self.files.borrow_mut();
        if files.values().flatten().count() >= MOST {
            files.retain(|_, map| map.is_none());
        }
        files.insert(path.to_owned(), map.clone());
        map
    }
}

/// Splits a stack frame into the text before its place, the place, and the text after it.
fn frame(line: &str) -> Option<(&str, &str, &str)> {
    let call = line.find("at ").filter(|at| line[..*at].trim().is_empty())? + 3;
    match line.strip_suffix(')').and_then(|rest| rest.rfind(" (")) {
        Some(open) => Some((&line[..open + 2], &line[open + 2..line.len() - 1], ")")),
        None => Some((&line[..call], &line[call..], "")),
    }
}

/// A line and a column, counted from 1.
pub(crate) type Place = (u32, u32);

/// A place of built code, and its origin.
type Token = (u32, u32, Origin);

struct Origin {
    source: u32,
    line: u32,
    column: u32,
}

/// The map of a file.
struct Map {
    /// By line and column of the built code.
    tokens: Vec<Token>,
    sources: Vec<String>,
    /// The columns before the first line of the file.
    indent: u32,
    memory: Rc<Memory>,
    charged: usize,
}

impl Map {
    /// Reads the map of a file, if it has one and its memory is within the limit of the plugin.
    fn read(state: &State, path: &Path) -> Option<Self> {
        let source = text(path)?;
        let base = Url::from_file_path(path).ok()?;
        let (json, base) = named(&source, &base)?;
        let memory = state.watch.memory();
        // Until the tokens are known: about as much as the library and they need.
        let estimate = json.len().saturating_mul(4);
        if !memory.charge(estimate) {
            return None;
        }
        let read = Self::parse(&json, &base);
        memory.discharge(estimate);
        let (tokens, sources) = read?;
        let charged = tokens.len() * size_of::<Token>() + sources.iter().map(String::len).sum::<usize>();
        if !memory.charge(charged) {
            return None;
        }
        let is_wrapped = state.modules.kinds.of(path, &source) == Kind::CommonJs;
        let indent = if is_wrapped { u32::try_from(commonjs::WRAPPER.len()).ok()? } else { 0 };
        Some(Self { tokens, sources, indent, memory, charged })
    }

    fn parse(json: &str, base: &Url) -> Option<(Vec<Token>, Vec<String>)> {
        // Senders of maps may precede them with a line against their use as scripts.
        let json =
            json.strip_prefix(")]}'").map_or(json, |json| json.split_once('\n').map_or("", |(_, json)| json));
        let map = SourceMap::from_json_string(json).ok()?;
        let root = map.get_source_root().unwrap_or_default().trim_end_matches('/');
        let sources = map.get_sources().map(|source| {
            let source = if root.is_empty() { source.to_owned() } else { format!("{root}/{source}") };
            located(&source, base)
        });
        let mut tokens: Vec<Token> = map
            .get_tokens()
            .filter_map(|token| {
                let (line, column) = (token.get_src_line(), token.get_src_col());
                let origin = Origin { source: token.get_source_id()?, line, column };
                Some((token.get_dst_line(), token.get_dst_col(), origin))
            })
            .collect();
        tokens.sort_by_key(|(line, column, _)| (*line, *column));
        tokens.shrink_to_fit();
        Some((tokens, sources.collect()))
    }

    /// Returns the origin of a place, whose line is counted from 0 and whose column is the engine's.
    fn origin(&self, line: u32, column: u32) -> Option<(String, Place)> {
        // The engine counts columns from 1, but those of the first line from 0, except for some names.
        let column = if line == 0 { column.saturating_sub(self.indent) } else { column.checked_sub(1)? };
        let after = self.tokens.partition_point(|(at, on, _)| (*at, *on) <= (line, column));
        let (at, _, Origin { source, line: origin, column }) = self.tokens.get(after.checked_sub(1)?)?;
        let source = self.sources.get(usize::try_from(*source).ok()?).filter(|_| *at == line)?;
        Some((source.clone(), (origin + 1, column + 1)))
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        self.memory.discharge(self.charged);
    }
}

/// Returns the text of the map that a file names, and the URL that its sources are relative to.
fn named(source: &str, file: &Url) -> Option<(String, Url)> {
    let comment = source.rfind(COMMENT)?;
    let before = source[..comment].trim_end_matches([' ', '\t']);
    if !["//#", "//@", "/*#"].iter().any(|mark| before.ends_with(mark)) {
        return None;
    }
    let named = source[comment + COMMENT.len()..].split(|end: char| end.is_whitespace()).next()?;
    if names::is_data(named) {
        let (_, bytes) = names::data(named)?;
        return Some((String::from_utf8(bytes).ok()?, file.clone()));
    }
    let url = file.join(named).ok().filter(|url| url.scheme() == "file")?;
    Some((text(&url.to_file_path().ok()?)?, url))
}

/// Returns where a source is: its path if it is a file, or its URL.
fn located(source: &str, base: &Url) -> String {
    match base.join(source) {
        Ok(url) if url.scheme() == "file" => {
            url.to_file_path().map_or_else(|()| source.to_owned(), |path| path.to_string_lossy().into_owned())
        }
        _ => source.to_owned(),
    }
}

fn text(path: &Path) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > LARGEST {
        return None;
    }
    Some(String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned())
}
