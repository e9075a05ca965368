//! Reading the files of a folder.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;
use std::thread;

use super::Format;
use crate::stamp::Stamp;

/// The largest file that is read.
const LARGEST: u64 = 64 << 20;
/// The number of files from which several threads read them.
const MANY: usize = 500;

/// A file as it was read.
pub(super) struct Read<V> {
    pub(super) stamp: Stamp,
    /// The value, or what is wrong with the file.
    pub(super) value: Result<V, String>,
    pub(super) ignored: Vec<String>,
}

/// Reads one file; `None` if it does not exist.
pub(super) fn read<F: Format>(format: &F, path: &Path, id: &str) -> Option<Read<F::Value>> {
    let (mut file, found) = match open(path) {
        Ok(opened) => opened?,
        Err(error) => {
            let stamp = fs::metadata(path).map_or(Stamp::unknown(), |found| Stamp::before_reading(&found));
            return Some(Read { stamp, value: Err(error.to_string()), ignored: Vec::new() });
        }
    };
    let stamp = Stamp::before_reading(&found);
    let mut ignored = Vec::new();
    let value = text_of(&mut file, found.len())
        .and_then(|text| format.read(id, &text, &mut ignored))
        .map(|value| format.date(value, &found));
    Some(Read { stamp, value, ignored })
}

fn open(path: &Path) -> io::Result<Option<(File, fs::Metadata)>> {
    match open_file(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        opened => opened,
    }
}

fn open_file(path: &Path) -> io::Result<Option<(File, fs::Metadata)>> {
    // Opening a pipe would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = File::open(path)?;
    let found = file.metadata()?;
    Ok(Some((file, found)))
}

fn text_of(file: &mut File, size: u64) -> Result<String, String> {
    if size > LARGEST {
        return Err(format!("the file exceeds {} MiB", LARGEST >> 20));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    file.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line}: not UTF-8 text")
    })
}

/// Returns the text of a file, or why it cannot be read.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    match open(path) {
        Ok(Some((mut file, found))) => text_of(&mut file, found.len()),
        Ok(None) => Err("not a regular file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads many files, by id and name, in their order.
pub(super) fn read_all<F: Format>(
    format: &F,
    folder: &Path,
    files: Vec<(String, String)>,
) -> Vec<(String, String, Option<Read<F::Value>>)> {
    let read_some = |files: Vec<(String, String)>| -> Vec<_> {
        let read = |(id, name): (String, String)| {
            let found = read(format, &folder.join(&name), &id);
            (id, name, found)
        };
        files.into_iter().map(read).collect()
    };
    let hands = thread::available_parallelism().map_or(1, |hands| hands.get().min(8));
    if files.len() < MANY || hands == 1 {
        return read_some(files);
    }
    let share = files.len().div_ceil(hands);
    let mut files = files.into_iter();
    thread::scope(|scope| {
        let mut shares = Vec::new();
        loop {
            let share: Vec<_> = files.by_ref().take(share).collect();
            if share.is_empty() {
                break;
            }
            shares.push(scope.spawn(|| read_some(share)));
        }
        let resume = |panic| std::panic::resume_unwind(panic);
        shares.into_iter().flat_map(|share| share.join().unwrap_or_else(resume)).collect()
    })
}
