//! Recording of the frames of every connection to a file, for debugging of clients: one JSON object per line, `{ at,
//! connection, from, frame }`, and `bytes` if the frame was truncated.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use jiff::Timestamp;
use ostler_contract::secret::SET;
use ostler_contract::{Value, json};
use ostler_engine::Log;
use ostler_engine::clock::iso;
use ostler_engine::wire::{FrameRecorder, Passing, Sender};
use ostler_loader::Hidden;
use ostler_protocol::surrogates::read_json;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::exit::Exit;

/// The maximum written size of a frame, in bytes.
const CUT: usize = 1 << 20;
/// The size from which the file is rotated, in bytes.
const ROLL: u64 = 75 << 20;
/// The number of retained files, including the current one.
const KEPT: usize = 5;
/// The maximum size of the queue, in bytes. Further frames are dropped and counted.
const MOST_WAITING: usize = 64 << 20;

/// The command that contains a token.
const SIGN_IN: &str = "authenticate";
/// The action that sets options, including credentials.
const CHANGE: &str = "root/configChanged";

/// Writes frames on a separate thread, so that no client waits for the disk.
#[derive(Debug)]
pub struct WireFile {
    lines: Mutex<Option<mpsc::Sender<RecordedFrame>>>,
    waiting: Arc<AtomicUsize>,
    lost: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A queued frame.
#[derive(Debug)]
struct RecordedFrame {
    at: Timestamp,
    connection: u64,
    sender: Sender,
    /// The length of the frame, whose text can be truncated.
    bytes: usize,
    text: Vec<u8>,
    /// How many frames before it were dropped.
    lost: u64,
}

impl WireFile {
    /// Opens the file for appending; a missing one is created, readable only by its owner.
    ///
    /// # Errors
    /// Exit 1 if it cannot be written.
    pub fn open(path: &Path, hidden: Hidden, log: Log) -> Result<Self, Exit> {
        let written = RotatedFile::open(path.to_owned(), ROLL)
            .map_err(|error| Exit::machine(format!("wire: cannot write {}: {error}", path.display())))?;
        let (lines, taken) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let thread = std::thread::Builder::new()
            .name("wire".to_owned())
            .spawn({
                let waiting = waiting.clone();
                move || write(written, &taken, &waiting, &hidden, &log)
            })
            .map_err(|error| Exit::machine(format!("wire: {error}")))?;
        Ok(Self {
            lines: Mutex::new(Some(lines)),
            waiting,
            lost: AtomicU64::new(0),
            thread: Mutex::new(Some(thread)),
        })
    }
}

impl FrameRecorder for WireFile {
    fn record(&self, frame: Passing<'_>) {
        let text = match frame.text.len() > CUT {
            false => frame.text,
            // Credentials could not be found in a truncated frame.
            true if may_hold_credentials(&frame) => b"",
            true => &frame.text[..CUT],
        };
        if self.waiting.fetch_add(text.len(), Ordering::Relaxed) > MOST_WAITING {
            self.waiting.fetch_sub(text.len(), Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let taken = RecordedFrame {
            at: Timestamp::now(),
            connection: frame.connection.0,
            sender: frame.sender,
            bytes: frame.text.len(),
            text: text.to_vec(),
            lost: self.lost.swap(0, Ordering::Relaxed),
        };
        if let Some(lines) = &*self.lines.lock().unwrap_or_else(PoisonError::into_inner) {
            // The receiver ends once the file cannot be written any more, which is logged.
            let _ = lines.send(taken);
        }
    }
}

impl Drop for WireFile {
    fn drop(&mut self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Queued frames are written before the end.
        let _ = thread.map(JoinHandle::join);
    }
}

fn write(
    mut written: RotatedFile,
    taken: &mpsc::Receiver<RecordedFrame>,
    waiting: &AtomicUsize,
    hidden: &Hidden,
    log: &Log,
) {
    for taken in taken {
        waiting.fetch_sub(taken.text.len(), Ordering::Relaxed);
        let line = hidden.hide(&line_of(&taken)).into_owned();
        if let Err(error) = written.add(&line) {
            let path = written.path.display();
            log.warn(format_args!("wire: cannot write {path}: {error}; recording stopped"));
            return;
        }
    }
}

fn line_of(taken: &RecordedFrame) -> String {
    let text = String::from_utf8_lossy(&taken.text);
    let from = match taken.sender {
        Sender::Client => "client",
        Sender::Host => "host",
    };
    let mut line = format!(r#"{{"at":"{}","connection":{},"from":"{from}""#, iso(taken.at), taken.connection);
    if taken.lost > 0 {
        line.push_str(&format!(r#","lostBefore":{}"#, taken.lost));
    }
    let whole = taken.text.len() == taken.bytes;
    if !whole {
        line.push_str(&format!(r#","bytes":{}"#, taken.bytes));
    }
    let frame = match (taken.sender, whole.then(|| serde_json::from_str::<&RawValue>(&text).ok()).flatten()) {
        (Sender::Host, Some(frame)) => without_changed(frame.get()),
        (Sender::Client, Some(frame)) => without_credentials(frame.get()),
        // Invalid JSON of a client can also contain a token.
        (Sender::Client, None) if text.contains(SIGN_IN) || text.contains(CHANGE) => json!(SET).to_string(),
        (_, None) => Value::from(&*text).to_string(),
    };
    // A frame can have line breaks between its tokens.
    line.push_str(r#","frame":"#);
    line.extend(
        frame.chars().map(|character| if matches!(character, '\n' | '\r') { ' ' } else { character }),
    );
    line.push_str("}\n");
    line
}

/// Returns a host's frame without the values of changed settings, which its sender receives as sent.
fn without_changed(frame: &str) -> String {
    match is_change(frame).then(|| serde_json::from_str::<Value>(frame)) {
        Some(Ok(mut value)) => {
            hide(value.pointer_mut("/params/action/config"));
            value.to_string()
        }
        _ => frame.to_owned(),
    }
}

fn is_change(frame: &str) -> bool {
    frame.contains(CHANGE)
}

/// Returns whether a frame that is too large to be searched can contain credentials.
fn may_hold_credentials(frame: &Passing<'_>) -> bool {
    match frame.sender {
        Sender::Client => names_credentials(frame.text).is_some(),
        Sender::Host => std::str::from_utf8(frame.text).is_ok_and(is_change),
    }
}

fn hide(values: Option<&mut Value>) {
    match values {
        Some(Value::Object(values)) => values.iter_mut().for_each(|(_, value)| *value = json!(SET)),
        Some(value) => *value = json!(SET),
        None => {}
    }
}

/// The parts of a client's frame that can contain credentials.
fn names_credentials(frame: &[u8]) -> Option<&'static str> {
    #[derive(Deserialize)]
    struct Head {
        method: Option<String>,
    }
    match read_json::<Head>(frame).ok()?.method?.as_str() {
        SIGN_IN => Some("/params/token"),
        "dispatchAction" => Some("/params/action/config"),
        _ => None,
    }
}

/// Returns a client's frame without tokens and values of settings, which the host never shows.
fn without_credentials(frame: &str) -> String {
    let Some(member) = names_credentials(frame.as_bytes()) else { return frame.to_owned() };
    let Ok(mut value) = read_json::<Value>(frame.as_bytes()) else { return json!(SET).to_string() };
    hide(value.pointer_mut(member));
    value.to_string()
}

/// A file with rotation: `<file>.1` is the newest rotated one, and the oldest is removed.
#[derive(Debug)]
struct RotatedFile {
    path: PathBuf,
    file: File,
    size: u64,
    most: u64,
}

impl RotatedFile {
    fn open(path: PathBuf, most: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, file, size, most })
    }

    fn add(&mut self, line: &str) -> io::Result<()> {
        if self.size > 0 && self.size + line.len() as u64 > self.most {
            self.roll()?;
        }
        self.file.write_all(line.as_bytes())?;
        self.size += line.len() as u64;
        Ok(())
    }

    fn roll(&mut self) -> io::Result<()> {
        let aside = |number: usize| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..KEPT - 1).rev() {
            match std::fs::rename(aside(number), aside(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, aside(1))?;
        *self = Self::open(self.path.clone(), self.most)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sender: Sender, text: &str) -> RecordedFrame {
        let text = text.as_bytes().to_vec();
        RecordedFrame { at: Timestamp::UNIX_EPOCH, connection: 3, sender, bytes: text.len(), text, lost: 0 }
    }

    #[test]
    fn a_line_is_a_json_object_whatever_the_frame_is() {
        let line = |taken: &RecordedFrame| {
            let line = line_of(taken);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            serde_json::from_str::<Value>(&line).unwrap()
        };
        assert_eq!(
            line(&taken(Sender::Client, "{ \"jsonrpc\": \"2.0\",\n \"method\": \"ping\" }")),
            json!({ "at": "1970-01-01T00:00:00.000Z", "connection": 3, "from": "client",
                "frame": { "jsonrpc": "2.0", "method": "ping" } })
        );
        assert_eq!(line(&taken(Sender::Client, "no\njson"))["frame"], "no\njson");
        let broken = r#"{ "method": "authenticate", "params": { "token": "s3cret" }, }"#;
        assert_eq!(line(&taken(Sender::Client, broken))["frame"], "<set>");
        for more in [r#", "rejectionReason": "no""#, ""] {
            let frame = format!(
                r#"{{ "params": {{ "action": {{ "type": "root/configChanged", "config": {{ "a": "s3cret" }} }}{more} }} }}"#
            );
            let line = line(&taken(Sender::Host, &frame));
            assert_eq!(line["frame"]["params"]["action"]["config"]["a"], "<set>", "{frame}");
        }
        let cut = RecordedFrame { bytes: 10, lost: 2, ..taken(Sender::Host, "{\"long\"") };
        let said = line(&cut);
        assert_eq!(
            (&said["bytes"], &said["lostBefore"], &said["frame"]),
            (&json!(10), &json!(2), &json!("{\"long\""))
        );
    }

    #[test]
    fn no_credential_of_a_client_is_written() {
        for (frame, member, keeps) in [
            (
                json!({ "id": 1, "method": "authenticate", "params": { "resource": "r", "token": "s3cret" } }),
                "/frame/params/token",
                "/frame/params/resource",
            ),
            (
                json!({ "method": "dispatchAction", "params": { "action": { "type": "root/configChanged",
                    "config": { "plugins.a": { "options": { "key": "s3cret" } } } } } }),
                "/frame/params/action/config/plugins.a",
                "/frame/params/action/type",
            ),
        ] {
            // However the name is spelt.
            for text in [frame.to_string(), frame.to_string().replace("authenticate", "\\u0061uthenticate")] {
                let line = line_of(&taken(Sender::Client, &text));
                assert!(!line.contains("s3cret"), "{line}");
                let said: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(said.pointer(member), Some(&json!("<set>")), "{line}");
                assert!(said.pointer(keeps).is_some(), "{line}");
                // Half a character, which the host reads all the same; a number that it does not.
                for more in [r#""\ud800""#, "1e999"] {
                    let text = text.replacen("\"params\":{", &format!(r#""params":{{"more":{more},"#), 1);
                    let line = line_of(&taken(Sender::Client, &text));
                    assert!(line.contains("<set>") && !line.contains("s3cret"), "{line}");
                }
            }
        }
    }

    #[test]
    fn five_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wire.jsonl");
        let mut written = RotatedFile::open(path.clone(), 10).unwrap();
        for number in 0..8 {
            written.add(&format!("line {number}\n")).unwrap();
        }
        let mut names: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["wire.jsonl", "wire.jsonl.1", "wire.jsonl.2", "wire.jsonl.3", "wire.jsonl.4"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "line 7\n");
        assert_eq!(std::fs::read_to_string(dir.path().join("wire.jsonl.4")).unwrap(), "line 3\n");
    }
}
