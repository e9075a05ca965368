//! The output of `git status --porcelain=v2 -z`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// One path that differs from the last commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Below the top of the working tree.
    pub path: PathBuf,
    /// Where a renamed or copied file was.
    pub origin: Option<PathBuf>,
    /// The letter of the staged change, `.` for none.
    pub staged: char,
    /// The letter of the change that is not staged, `.` for none.
    pub unstaged: char,
    /// The content in the last commit, where it is in it. For a conflict, the content of this side.
    pub before: Option<Object>,
    /// The mode in the working tree.
    pub mode: u32,
    pub conflict: bool,
    pub submodule: bool,
    /// The filter without which git did not compare it: the repository's own configuration names its program.
    pub filter: Option<String>,
}

/// An object of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub id: String,
    /// Its mode.
    pub mode: u32,
}

/// The mode of a symbolic link.
pub(crate) const LINK: u32 = 0o120_000;
/// The mode of a submodule.
pub(crate) const SUBMODULE: u32 = 0o160_000;

impl Object {
    pub(crate) fn new(id: &str, mode: u32) -> Option<Self> {
        (mode != 0 && id.bytes().any(|digit| digit != b'0')).then(|| Self { id: id.to_owned(), mode })
    }
}

impl Row {
    /// Whether git does not track it.
    pub(crate) fn is_untracked(&self) -> bool {
        self.staged == '?'
    }

    /// Whether anything of it is staged.
    pub(crate) fn is_staged(&self) -> bool {
        !matches!(self.staged, '.' | '?') && !self.conflict
    }

    /// Whether it is a copy, which leaves its origin as it is.
    pub(crate) fn is_copy(&self) -> bool {
        self.staged == 'C' || self.unstaged == 'C'
    }

    /// Whether a path is that of the file, or of a folder above it.
    pub(crate) fn concerns(&self, path: &Path) -> bool {
        self.path.starts_with(path) || self.origin.as_ref().is_some_and(|origin| origin.starts_with(path))
    }

    /// Whether it is absent from the working tree, or was before it: no content on the new side.
    pub(crate) fn is_deleted(&self) -> bool {
        self.mode == 0
    }
}

/// A branch, as git names it in a status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The name of the branch; `None` where none is checked out.
    pub name: Option<String>,
    /// The commit; `None` before the first one.
    pub commit: Option<String>,
    pub upstream: Option<String>,
    /// Commits that the upstream does not have, and those that only it has.
    pub ahead_behind: Option<(u64, u64)>,
}

/// What a status contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub branch: Branch,
    pub rows: Vec<Row>,
    /// Whether there are more rows.
    pub is_cut: bool,
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

fn letters(word: &str) -> (char, char) {
    let mut letters = word.chars();
    (letters.next().unwrap_or('.'), letters.next().unwrap_or('.'))
}

fn mode(word: &str) -> u32 {
    u32::from_str_radix(word, 8).unwrap_or_default()
}

/// Splits off the first words of an entry, and the path behind them.
fn split<const N: usize>(entry: &[u8]) -> Option<([&str; N], &[u8])> {
    let mut words = [""; N];
    let mut rest = entry;
    for word in &mut words {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        *word = std::str::from_utf8(&rest[..end]).ok()?;
        rest = &rest[end + 1..];
    }
    Some((words, rest))
}

impl Status {
    /// Reads the output. An entry that is not understood is left out.
    pub(crate) fn parse(output: &[u8]) -> Self {
        let mut status = Self::default();
        let mut entries = output.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
        while let Some(entry) = entries.next() {
            match entry[0] {
                b'#' => status.branch.read(&String::from_utf8_lossy(entry)),
                b'?' if entry.len() > 2 => status.rows.push(Row {
                    path: path(&entry[2..]),
                    origin: None,
                    staged: '?',
                    unstaged: '?',
                    before: None,
                    mode: 0o100_644,
                    conflict: false,
                    submodule: false,
                    filter: None,
                }),
                b'1' => status.rows.extend(ordinary(entry)),
                b'2' => {
                    let origin = entries.next().map(path);
                    status.rows.extend(renamed(entry, origin));
                }
                b'u' => status.rows.extend(unmerged(entry)),
                _ => {}
            }
        }
        status.join_untracked();
        status
    }

    /// A file that is deleted in the index and exists in the tree has two entries; they are one change.
    fn join_untracked(&mut self) {
        let deleted = |row: &Row| row.staged == 'D' && row.is_deleted();
        if !self.rows.iter().any(deleted) {
            return;
        }
        let untracked: HashSet<PathBuf> =
            self.rows.iter().filter(|row| row.is_untracked()).map(|row| row.path.clone()).collect();
        let both: HashSet<PathBuf> = self
            .rows
            .iter()
            .filter(|row| deleted(row) && untracked.contains(&row.path))
            .map(|row| row.path.clone())
            .collect();
        self.rows.retain(|row| !(row.is_untracked() && both.contains(&row.path)));
        for row in self.rows.iter_mut().filter(|row| both.contains(&row.path)) {
            (row.unstaged, row.mode) = ('?', 0o100_644);
        }
    }
}

/// The mode of a file in the working tree; 0 for one that was deleted there. A file that is only in the index, as an intended
/// addition, has no mode in the tree.
fn current_mode(unstaged: char, in_index: &str, in_tree: &str) -> u32 {
    match (unstaged, mode(in_tree)) {
        ('D', _) => 0,
        (_, 0) => mode(in_index),
        (_, in_tree) => in_tree,
    }
}

// 1 XY sub mH mI mW hH hI path
fn ordinary(entry: &[u8]) -> Option<Row> {
    let ([_, xy, sub, in_head, in_index, in_tree, head, _], name) = split::<8>(entry)?;
    let (staged, unstaged) = letters(xy);
    let current = current_mode(unstaged, in_index, in_tree);
    Some(Row {
        path: path(name),
        origin: None,
        staged,
        unstaged,
        before: Object::new(head, mode(in_head)),
        mode: if staged == 'D' && unstaged == '.' { 0 } else { current },
        conflict: false,
        submodule: sub.starts_with('S'),
        filter: None,
    })
}

// 2 XY sub mH mI mW hH hI Xscore path, then the origin
fn renamed(entry: &[u8], origin: Option<PathBuf>) -> Option<Row> {
    let ([_, xy, sub, in_head, in_index, in_tree, head, _, _], name) = split::<9>(entry)?;
    let (staged, unstaged) = letters(xy);
    let current = current_mode(unstaged, in_index, in_tree);
    Some(Row {
        path: path(name),
        origin,
        staged,
        unstaged,
        before: Object::new(head, mode(in_head)),
        mode: current,
        conflict: false,
        submodule: sub.starts_with('S'),
        filter: None,
    })
}

// u XY sub m1 m2 m3 mW h1 h2 h3 path
fn unmerged(entry: &[u8]) -> Option<Row> {
    let ([_, xy, sub, base, ours, _, in_tree, at_base, by_us, _], name) = split::<10>(entry)?;
    let (staged, unstaged) = letters(xy);
    Some(Row {
        path: path(name),
        origin: None,
        staged,
        unstaged,
        before: Object::new(by_us, mode(ours)).or_else(|| Object::new(at_base, mode(base))),
        mode: mode(in_tree),
        conflict: true,
        submodule: sub.starts_with('S'),
        filter: None,
    })
}

impl Branch {
    fn read(&mut self, line: &str) {
        let Some((key, value)) = line.strip_prefix("# branch.").and_then(|line| line.split_once(' ')) else {
            return;
        };
        match key {
            "oid" if value != "(initial)" => self.commit = Some(value.to_owned()),
            "head" if value != "(detached)" => self.name = Some(value.to_owned()),
            "upstream" => self.upstream = Some(value.to_owned()),
            "ab" => {
                let count = |word: Option<&str>, sign| word?.strip_prefix(sign)?.parse().ok();
                let mut words = value.split(' ');
                let (ahead, behind) = (count(words.next(), '+'), count(words.next(), '-'));
                self.ahead_behind = ahead.zip(behind);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entries_are_read() {
        let text = "# branch.oid 1234\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +1 -2\0\
            1 .M N... 100644 100644 100644 aa aa a b.txt\0\
            1 D. N... 100644 000000 000000 aa 00 gone\0\
            1 .D N... 100644 100644 000000 aa aa removed\0\
            1 A. N... 000000 100644 100644 00 bb new\0\
            2 R. N... 100644 100644 100644 aa aa R100 to\0from\0\
            u UU N... 100644 100644 100644 100644 aa bb cc both\0\
            1 .M SC.. 160000 160000 160000 aa aa module\0\
            ? with space\0";
        let read = Status::parse(text.as_bytes());
        let branch = Branch {
            name: Some("main".into()),
            commit: Some("1234".into()),
            upstream: Some("origin/main".into()),
            ahead_behind: Some((1, 2)),
        };
        assert_eq!(read.branch, branch);
        let rows: Vec<_> = read
            .rows
            .iter()
            .map(|row| {
                let id = row.before.as_ref().map_or("", |object| &object.id);
                (row.path.to_str().unwrap_or_default(), row.staged, row.unstaged, id, row.is_deleted())
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("a b.txt", '.', 'M', "aa", false),
                ("gone", 'D', '.', "aa", true),
                ("removed", '.', 'D', "aa", true),
                ("new", 'A', '.', "", false),
                ("to", 'R', '.', "aa", false),
                ("both", 'U', 'U', "bb", false),
                ("module", '.', 'M', "aa", false),
                ("with space", '?', '?', "", false),
            ]
        );
        assert_eq!(read.rows[4].origin.as_deref(), Some(std::path::Path::new("from")));
        assert!(read.rows[5].conflict && read.rows[6].submodule);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            Status::parse(&bytes);
        }

        #[test]
        fn any_entry_is_read(text in "(1|2|u|#|\\?)[ .A-Z0-9\0]{0,80}") {
            Status::parse(text.as_bytes());
        }
    }
}
