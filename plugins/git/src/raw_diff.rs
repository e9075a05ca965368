//! Git's raw form of differences: how it is asked for and read, for trees and the index alike.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::program::{Failure, Git};

/// What every command that lists differences is asked with, beside what it compares.
pub(crate) const RAW: [&str; 5] = ["--raw", "-z", "--no-abbrev", "--no-ext-diff", "--ignore-submodules=none"];

/// One difference. A mode is octal; a mode and an id of zeros say that there is nothing on that side.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawEntry {
    pub(crate) old: Side,
    pub(crate) new: Side,
    /// The letter of the kind: `A`, `C`, `D`, `M`, `R`, `T` or `U`.
    pub(crate) kind: u8,
    pub(crate) path: PathBuf,
    /// Where the file of a rename or a copy is now.
    pub(crate) moved_to: Option<PathBuf>,
}

/// An entry of a tree or of the index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) mode: u32,
    pub(crate) id: String,
}

impl Side {
    /// Whether there is an entry.
    pub(crate) fn exists(&self) -> bool {
        self.mode != 0
    }
}

/// Reads what a command with [`RAW`] printed, up to what is not understood.
pub(crate) fn entries(out: &[u8]) -> impl Iterator<Item = RawEntry> {
    let mut parts = out.split(|byte| *byte == 0);
    let mut next_path = move || parts.next().filter(|part| !part.is_empty());
    std::iter::from_fn(move || {
        let header = std::str::from_utf8(next_path()?).ok()?;
        let mut words = header.strip_prefix(':')?.split(' ');
        let mut mode = || u32::from_str_radix(words.next()?, 8).ok();
        let (old_mode, new_mode) = (mode()?, mode()?);
        let (old, new) = (words.next()?.to_owned(), words.next()?.to_owned());
        let kind = *words.next()?.as_bytes().first()?;
        let mut path = || Some(PathBuf::from(OsStr::from_bytes(next_path()?)));
        let from = path()?;
        let moved_to = if matches!(kind, b'R' | b'C') { Some(path()?) } else { None };
        let (old, new) = (Side { mode: old_mode, id: old }, Side { mode: new_mode, id: new });
        Some(RawEntry { old, new, kind, path: from, moved_to })
    })
}

/// Adds a line of `git update-index -z --index-info`.
pub(crate) fn add_index_line(lines: &mut Vec<u8>, side: &Side, path: &Path) {
    lines.extend_from_slice(format!("{:o} {}\t", side.mode, side.id).as_bytes());
    lines.extend_from_slice(path.as_os_str().as_bytes());
    lines.push(0);
}

/// The id of the tree without entries, which exists in the repository afterwards.
pub(crate) async fn empty_tree(root: &Path) -> Result<String, Failure> {
    Git::read(root).args(["mktree"]).text().await
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "1111111111111111111111111111111111111111";
    const NEW: &str = "2222222222222222222222222222222222222222";
    const NOTHING: &str = "0000000000000000000000000000000000000000";

    fn read(out: &str) -> Vec<RawEntry> {
        entries(out.as_bytes()).collect()
    }

    #[test]
    fn each_kind_is_read_with_its_paths() {
        let out = format!(
            ":000000 100644 {NOTHING} {NEW} A\0new\0:100644 100755 {OLD} {NEW} R087\0a b\0c\nd\0:100644 000000 {OLD} {NOTHING} D\0gone\0"
        );
        let found: Vec<_> = read(&out)
            .into_iter()
            .map(|entry| {
                let exist = (entry.old.exists(), entry.new.exists());
                (entry.kind as char, exist, entry.path, entry.moved_to)
            })
            .collect();
        let expected: [(char, (bool, bool), PathBuf, Option<PathBuf>); 3] = [
            ('A', (false, true), "new".into(), None),
            ('R', (true, true), "a b".into(), Some("c\nd".into())),
            ('D', (true, false), "gone".into(), None),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_cut_ends_the_list() {
        let whole = format!(":100644 100644 {OLD} {NEW} M\0one\0");
        assert_eq!(read(&whole).len(), 1);
        for end in [":100644", ":100644 100644 1 2 R1\0from\0", "what", ":x y 1 2 M\0path\0"] {
            assert_eq!(read(&format!("{whole}{end}")).len(), 1, "{end}");
        }
        assert_eq!(read(""), []);
    }

    #[test]
    fn a_line_for_the_index_has_six_digits_or_zero() {
        let mut lines = Vec::new();
        add_index_line(&mut lines, &Side { mode: 0o100_644, id: OLD.to_owned() }, Path::new("a b"));
        add_index_line(&mut lines, &Side { mode: 0, id: NOTHING.to_owned() }, Path::new("c"));
        let expected = format!("100644 {OLD}\ta b\x000 {NOTHING}\tc\0");
        assert_eq!(String::from_utf8(lines).unwrap(), expected);
    }
}
