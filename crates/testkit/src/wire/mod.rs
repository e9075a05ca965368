//! Wire transcripts: the messages of a client and the expected messages of the host, line by line, played over any
//! transport. `crates/testkit/wire/README.md` describes the files.

mod pattern;
mod player;
mod record;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ostler_contract::{JsonObject, Value, json};
use tokio::sync::mpsc;

pub use player::play;
pub use record::recording;

/// A client's end of a transport. It closes when it is dropped.
#[derive(Debug)]
pub struct End {
    /// The client's messages, one each.
    pub say: mpsc::UnboundedSender<String>,
    /// The host's messages; ends when the host closes.
    pub hear: mpsc::UnboundedReceiver<Value>,
    /// Whether answers and notifications arrive in the order in which the host sent them. A plugin's own connection
    /// passes each one to its receiver instead.
    pub ordered: bool,
}

/// A parsed transcript.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// The path of its file.
    pub path: PathBuf,
    /// The setup of the host for it.
    pub setup: JsonObject,
    lines: Vec<(usize, Line)>,
    /// The transports that some lines are limited to, by line number.
    over: BTreeMap<usize, Vec<String>>,
}

/// One line, with the name of its connection; the default name is `a`.
#[derive(Debug, Clone)]
enum Line {
    /// The client sends a message.
    Client(String, Value),
    /// The client sends text that may not be a message.
    Text(String, String),
    /// The host must send this message next.
    Host(String, Value),
    /// The host must close the connection.
    Ends(String),
    /// The client closes the connection.
    Drop(String),
}

impl Transcript {
    /// Returns every transcript of this crate, sorted by name.
    ///
    /// # Panics
    /// If one cannot be read.
    pub fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("wire");
        let entries = std::fs::read_dir(folder).expect("the transcripts");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a transcript");
        let mut setup = JsonObject::new();
        let mut lines = Vec::new();
        let mut over = BTreeMap::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let place = format!("{}:{}", path.display(), at + 1);
            let line: JsonObject =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{place}: {error}"));
            let on = |line: &JsonObject| line.get("at").and_then(Value::as_str).unwrap_or("a").to_owned();
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let (key, value) = line.iter().next().unwrap_or_else(|| panic!("{place}: an empty line"));
            let read = match key.as_str() {
                "about" => continue,
                "setup" => {
                    setup.extend(value.as_object().cloned().unwrap_or_default());
                    continue;
                }
                "client" => Some(Line::Client(on(&line), value.clone())),
                "text" => text(value).map(|text| Line::Text(on(&line), text)),
                "host" => Some(Line::Host(on(&line), value.clone())),
                "ends" => text(value).map(Line::Ends),
                "drop" => text(value).map(Line::Drop),
                _ => None,
            };
            if let Some(doors) = line.get("over").and_then(Value::as_array) {
                over.insert(at + 1, doors.iter().filter_map(text).collect());
            }
            lines.push((at + 1, read.unwrap_or_else(|| panic!("{place}: no line of a transcript"))));
        }
        Self { path: path.to_owned(), setup, lines, over }
    }

    /// Returns the transcript for a transport, without the lines for others.
    #[must_use]
    pub fn over(&self, door: &str) -> Self {
        let mut played = self.clone();
        played
            .lines
            .retain(|(at, _)| self.over.get(at).is_none_or(|doors| doors.iter().any(|own| own == door)));
        played
    }

    /// Returns the name of its file without the extension.
    pub fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether any line leaves the host's message open.
    pub fn is_open(&self) -> bool {
        self.lines.iter().any(|(_, line)| matches!(line, Line::Host(_, frame) if frame == record::OPEN))
    }

    /// Whether it can be played over the transport of this name.
    pub fn plays_over(&self, door: &str) -> bool {
        match self.setup.get("only").and_then(Value::as_array) {
            Some(doors) => doors.contains(&json!(door)),
            None => true,
        }
    }
}
