//! The frames of every connection, one JSON object a line, in a file for whoever looks for a fault in a client:
//! `{ at, connection, from, frame }`, and `bytes` where the frame is larger than a line may be.

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

/// The most of a frame that is written, in bytes.
const CUT: usize = 1 << 20;
/// A file larger than that is put aside, in bytes.
const ROLL: u64 = 75 << 20;
/// How many files are kept, the one written to among them.
const KEPT: usize = 5;
/// The most that waits to be written, in bytes. What comes beside it is counted and lost.
const MOST_WAITING: usize = 64 << 20;

/// The command that hands a token over.
const SIGN_IN: &str = "authenticate";
/// The action that sets options, credentials among them.
const CHANGE: &str = "root/configChanged";

/// Writes frames on a thread of its own, so that no client waits for the disk.
#[derive(Debug)]
pub struct WireFile {
    lines: Mutex<Option<mpsc::Sender<RecordedFrame>>>,
    waiting: Arc<AtomicUsize>,
    lost: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A frame as it was taken.
#[derive(Debug)]
struct RecordedFrame {
    at: Timestamp,
    connection: u64,
    sender: Sender,
    /// How long the frame is; the text may be the first part of it.
    bytes: usize,
    text: Vec<u8>,
    /// How many frames before it were lost.
    lost: u64,
}

impl WireFile {
    /// Opens the file to add to it; it is made where it is missing, for its owner alone.
    ///
    /// # Errors
    /// Exit 1 where it cannot be written.
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
            // Its credentials could not be found in a part of it.
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
            // Nobody takes it once the file cannot be written any more; the log has said so.
            let _ = lines.send(taken);
        }
    }
}

impl Drop for WireFile {
    fn drop(&mut self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // What was taken is written before the end.
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
            log.line(format_args!("wire: cannot write {path}: {error}; recording stopped"));
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
        (Sender::Host, Some(frame)) => without_refused(frame.get()),
        (Sender::Client, Some(frame)) => without_credentials(frame.get()),
        // A client that writes no JSON may hand over a token all the same.
        (Sender::Client, None) if text.contains(SIGN_IN) || text.contains(CHANGE) => json!(SET).to_string(),
        (_, None) => Value::from(&*text).to_string(),
    };
    // A frame may have line breaks between its parts.
    line.push_str(r#","frame":"#);
    line.extend(
        frame.chars().map(|character| if matches!(character, '\n' | '\r') { ' ' } else { character }),
    );
    line.push_str("}\n");
    line
}

/// A host's frame without the values of a change that it refuses: those come back as they were sent.
fn without_refused(frame: &str) -> String {
    match is_refused_change(frame).then(|| serde_json::from_str::<Value>(frame)) {
        Some(Ok(mut value)) => {
            hide(value.pointer_mut("/params/action/config"));
            value.to_string()
        }
        _ => frame.to_owned(),
    }
}

fn is_refused_change(frame: &str) -> bool {
    frame.contains("\"rejectionReason\"") && frame.contains(CHANGE)
}

/// Whether a frame too large to be looked through may hold credentials.
fn may_hold_credentials(frame: &Passing<'_>) -> bool {
    match frame.sender {
        Sender::Client => names_credentials(frame.text).is_some(),
        Sender::Host => std::str::from_utf8(frame.text).is_ok_and(is_refused_change),
    }
}

fn hide(values: Option<&mut Value>) {
    match values {
        Some(Value::Object(values)) => values.iter_mut().for_each(|(_, value)| *value = json!(SET)),
        Some(value) => *value = json!(SET),
        None => {}
    }
}

/// Where a client's frame may hold credentials.
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

/// A client's frame without the tokens it hands over and the values it sets: nothing of the host shows those again.
fn without_credentials(frame: &str) -> String {
    let Some(member) = names_credentials(frame.as_bytes()) else { return frame.to_owned() };
    let Ok(mut value) = read_json::<Value>(frame.as_bytes()) else { return json!(SET).to_string() };
    hide(value.pointer_mut(member));
    value.to_string()
}

/// A file that is put aside when it is large: `<file>.1` is the newest of those, and the oldest goes.
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
        let refused = r#"{ "params": { "action": { "type": "root/configChanged", "config": { "a": "s3cret" } },
            "rejectionReason": "no" } }"#;
        assert_eq!(line(&taken(Sender::Host, refused))["frame"]["params"]["action"]["config"]["a"], "<set>");
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
