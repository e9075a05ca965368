//! Which of the changed files a snapshot hashes: few enough that no turn waits for it, and none twice.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::status::Row;
use crate::tree::Tree;

/// The largest file whose content is retained, in bytes. Of a larger one, only whether it changed is known.
const LARGEST: u64 = 16 << 20;
/// The most bytes that one snapshot hashes. Of files beyond it, the largest ones, only whether they changed is known.
const HASHED: u64 = 32 << 20;
/// A file that changed so short before it was looked at can change again without another time.
const RACY: Duration = Duration::from_millis(100);
/// The most bytes of the file that remembers contents.
const REMEMBERED: u64 = 16 << 20;

/// Size, times, inode and rights of a file.
type Stamp = (u64, i64, i64, i64, i64, u64, u32);

fn stamp(found: &std::fs::Metadata) -> Stamp {
    (
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
        found.ino(),
        found.mode(),
    )
}

/// A file whose content is stored already.
pub(crate) struct Stored {
    pub path: PathBuf,
    pub mode: u32,
    pub id: String,
}

/// A file whose content is not stored.
pub(crate) struct LeftOut {
    pub path: PathBuf,
    pub mode: u32,
    /// A text that changes with it.
    pub what: String,
}

/// The changed files of a snapshot.
#[derive(Default)]
pub(crate) struct Selected {
    /// Of what the snapshot is made of.
    pub hash: u64,
    /// Files as an earlier snapshot stored them.
    pub stored: Vec<Stored>,
    /// Files to hash, and to remove where they do not exist.
    pub hashed: Vec<PathBuf>,
    pub left_out: Vec<LeftOut>,
    stamps: HashMap<PathBuf, Stamp>,
    looked: u128,
}

/// What the last snapshot of a tree knew.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub hash: u64,
    pub id: String,
    /// The content of each file; none for one that was left out. A content that may have changed since is not reused, but
    /// the file is hashed before others.
    files: HashMap<PathBuf, (Stamp, Option<(String, bool)>)>,
}

/// The mode that git stores.
fn mode(found: &std::fs::Metadata) -> u32 {
    if found.mode() & 0o100 == 0 { 0o100_644 } else { 0o100_755 }
}

/// Selects the files of a snapshot.
pub(crate) fn select(root: &Path, rows: Vec<Row>, commit: Option<&str>, known: &Known) -> Selected {
    let mut hash = DefaultHasher::new();
    commit.hash(&mut hash);
    let looked = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut selected = Selected { looked, ..Selected::default() };
    // Those that were stored before, tracked ones, then small ones come first.
    let mut open: Vec<(bool, bool, u64, PathBuf, u32)> = Vec::new();
    let leave_out = |selected: &mut Selected, path: PathBuf, mode: u32, found: Stamp| {
        let what = format!("size {} time {}.{}\n", found.0, found.1, found.2);
        selected.left_out.push(LeftOut { path, mode, what });
    };
    for row in rows {
        let untracked = row.is_untracked();
        // Without its filter, git would store other content than it restores.
        let uncompared = row.filter.is_some();
        for path in [Some(row.path), row.origin].into_iter().flatten() {
            path.hash(&mut hash);
            (row.staged, row.unstaged).hash(&mut hash);
            let Ok(found) = std::fs::symlink_metadata(root.join(&path)) else {
                selected.hashed.push(path);
                continue;
            };
            let (now, mode) = (stamp(&found), mode(&found));
            now.hash(&mut hash);
            if found.is_dir() && !row.submodule {
                // A repository inside that git does not track.
                continue;
            }
            if !found.is_file() {
                selected.hashed.push(path);
                continue;
            }
            selected.stamps.insert(path.clone(), now);
            let before = known.files.get(&path).filter(|(before, _)| *before == now).map(|(_, id)| id);
            match before {
                _ if uncompared => leave_out(&mut selected, path, mode, now),
                Some(Some((id, true))) => selected.stored.push(Stored { path, mode, id: id.clone() }),
                Some(None) => leave_out(&mut selected, path, mode, now),
                _ if found.len() > LARGEST => leave_out(&mut selected, path, mode, now),
                _ => open.push((before.is_none(), untracked, found.len(), path, mode)),
            }
        }
    }
    open.sort_by(|one, other| (one.0, one.1, one.2, &one.3).cmp(&(other.0, other.1, other.2, &other.3)));
    let mut bytes = 0;
    for (new, _, size, path, mode) in open {
        bytes += size;
        match selected.stamps.get(&path).copied() {
            Some(now) if new && bytes > HASHED => {
                bytes -= size;
                leave_out(&mut selected, path, mode, now);
            }
            _ => selected.hashed.push(path),
        }
    }
    selected.hash = hash.finish();
    selected
}

impl Selected {
    /// Hashes files again whose content is gone.
    pub(crate) fn hash_again(&mut self, gone: &HashSet<String>) {
        let (again, stored) =
            std::mem::take(&mut self.stored).into_iter().partition(|file| gone.contains(&file.id));
        self.stored = stored;
        let again: Vec<Stored> = again;
        self.hashed.extend(again.into_iter().map(|file| file.path));
    }
}

impl Known {
    /// What a snapshot with this id knows.
    pub(crate) fn of(selected: Selected, id: String, new: Vec<(PathBuf, String)>) -> Self {
        let Selected { hash, stored, left_out, stamps, looked, .. } = selected;
        let mut files = HashMap::new();
        let mut add = |path: PathBuf, content: Option<(String, bool)>| {
            if let Some(stamp) = stamps.get(&path) {
                files.insert(path, (*stamp, content));
            }
        };
        left_out.into_iter().for_each(|file| add(file.path, None));
        stored.into_iter().for_each(|file| add(file.path, Some((file.id, true))));
        for (path, id) in new {
            let calm = stamps.get(&path).is_some_and(|stamp| {
                let last = (stamp.1, stamp.2).max((stamp.3, stamp.4));
                let last = i128::from(last.0) * 1_000_000_000 + i128::from(last.1);
                last + i128::try_from(RACY.as_nanos()).unwrap_or_default()
                    < i128::try_from(looked).unwrap_or_default()
            });
            add(path, Some((id, calm)));
        }
        Self { hash, id, files }
    }

    /// Where it is stored, so that a file that was left out remains so after a restart, and none is hashed again.
    pub(crate) fn file(tree: &Tree) -> PathBuf {
        tree.repository.git_dir.join("ostler-snapshot")
    }

    pub(crate) fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (path, (stamp, content)) in &self.files {
            let (size, seconds, nanos, changed, changed_nanos, ino, mode) = stamp;
            let (id, calm) = match content {
                Some((id, calm)) => (id.as_str(), *calm),
                None => ("-", true),
            };
            let words = format!(
                "{size} {seconds} {nanos} {changed} {changed_nanos} {ino} {mode} {id} {} ",
                u8::from(calm)
            );
            text.extend_from_slice(words.as_bytes());
            text.extend_from_slice(path.as_os_str().as_bytes());
            text.push(0);
        }
        text
    }

    fn parse(text: &[u8]) -> Self {
        let read = |line: &[u8]| {
            let mut words = line.splitn(10, |byte| *byte == b' ');
            let mut word = || std::str::from_utf8(words.next()?).ok();
            let stamp = (
                word()?.parse().ok()?,
                word()?.parse().ok()?,
                word()?.parse().ok()?,
                word()?.parse().ok()?,
                word()?.parse().ok()?,
                word()?.parse().ok()?,
                word()?.parse().ok()?,
            );
            let (id, calm) = (word()?, word()? == "1");
            let id = match id {
                "-" => None,
                id if id.len() >= 40 && id.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                    Some((id.to_owned(), calm))
                }
                _ => return None,
            };
            Some((PathBuf::from(OsStr::from_bytes(words.next()?)), (stamp, id)))
        };
        let lines = text.split(|byte| *byte == 0).filter(|line| !line.is_empty());
        Self { files: lines.filter_map(read).collect(), ..Self::default() }
    }

    /// Reads it; nothing is known without it.
    pub(crate) fn read(file: &Path) -> Self {
        let small = std::fs::metadata(file).is_ok_and(|found| found.len() <= REMEMBERED);
        let text = if small { std::fs::read(file).unwrap_or_default() } else { Vec::new() };
        Self::parse(&text)
    }

    pub(crate) fn write(file: &Path, text: &[u8]) -> std::io::Result<()> {
        use std::io::Write as _;
        let folder = file.parent().unwrap_or(Path::new("/"));
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(text)?;
        new.persist(file)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_known_survives() {
        let content = Some(("a".repeat(40), true));
        let files = HashMap::from([
            (PathBuf::from("a b\nc"), ((1, 2, 3, 4, 5, 6, 7), content.clone())),
            (PathBuf::from("left"), ((8, -2, 3, 4, 5, 6, 7), None)),
        ]);
        let known = Known { files: files.clone(), ..Known::default() };
        assert_eq!(Known::parse(&known.text()).files, files);
    }

    #[test]
    fn the_largest_files_are_left_out_and_stay_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut output = Vec::new();
        for number in 0..4_u64 {
            let name = format!("f{number}");
            let file = std::fs::File::create(folder.path().join(&name)).unwrap();
            file.set_len((10 + number) << 20).unwrap();
            output.extend_from_slice(format!("? {name}\0").as_bytes());
        }
        let rows = || crate::status::Status::parse(&output).rows;
        let first = select(folder.path(), rows(), None, &Known::default());
        let names = |selected: &Selected| -> Vec<String> {
            selected.left_out.iter().map(|file| file.path.display().to_string()).collect()
        };
        assert_eq!(names(&first), ["f2", "f3"]);
        let ids = first.hashed.iter().map(|path| (path.clone(), "b".repeat(40))).collect();
        let known = Known::of(first, "c".repeat(40), ids);
        let second = select(folder.path(), rows(), None, &known);
        assert_eq!(names(&second), ["f2", "f3"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            Known::parse(&bytes);
        }
    }
}
