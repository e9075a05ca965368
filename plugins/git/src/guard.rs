//! Reads that look into the files of a tree run no program that the repository's own configuration names.
//!
//! Git compares a file with the filter of its path (`filter.<name>.clean`), and the configuration of a repository can name
//! any program there, or where a later version of git runs one. Such reads therefore get another folder in place of git's:
//! links to its data, and a configuration of the keys that name no program ([`Entry::is_plain`]). It is not in the repository,
//! so that nothing that writes there while git reads can change it. The configuration of the user and the system stays,
//! and with it filters such as that of Git LFS.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::program::{Failure, Git};
use crate::repository::Repository;
use crate::status::{Row, Status};

/// What a repository's folder shares with that of the reads, where it exists.
const SHARED: &[&str] = &["objects", "refs", "logs", "worktrees", "modules", "reftable", "lfs"];
/// What git, or the host, can create meanwhile.
const CREATED: &[&str] = &["packed-refs", "shallow", "info"];
/// How many paths are arguments of one call.
const ARGUMENTS: usize = 200;
/// How long a folder is used: the user's own configuration can change, and systems delete old files of temporary folders.
const USED: Duration = Duration::from_secs(60);

/// The beginning of the folders' names.
const PREFIX: &str = "ostler-git-";
/// The age at which no daemon uses a folder any more.
const LEFT_BEHIND: Duration = Duration::from_secs(2 * 3600);

/// Sections whose keys name no program, and change what a read returns.
const SECTIONS: &[&str] = &["branch", "extensions", "feature", "i18n", "index"];
/// Keys of other sections, in lower case and without their subsection.
const KEYS: &[&str] = &[
    "core.abbrev",
    "core.attributesfile",
    "core.autocrlf",
    "core.bigfilethreshold",
    "core.checkroundtripencoding",
    "core.checkstat",
    "core.commitgraph",
    "core.compression",
    "core.eol",
    "core.excludesfile",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.loosecompression",
    "core.multipackindex",
    "core.precomposeunicode",
    "core.preloadindex",
    "core.protecthfs",
    "core.protectntfs",
    "core.repositoryformatversion",
    "core.safecrlf",
    "core.sharedrepository",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.splitindex",
    "core.symlinks",
    "core.trustctime",
    "core.untrackedcache",
    "core.usereplacerefs",
    "diff.algorithm",
    "diff.ignoresubmodules",
    "remote.fetch",
    "remote.pushurl",
    "remote.url",
    "submodule.active",
    "submodule.ignore",
];
/// Keys of those sections that have no place in the other folder: what it is, and where missing objects come from.
const LEFT_OUT: &[&str] = &["extensions.partialclone", "extensions.worktreeconfig"];

/// One entry of a configuration.
struct Entry<'a> {
    section: String,
    subsection: Option<&'a [u8]>,
    name: String,
    /// `None` for a key without a value.
    value: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    fn parse(entry: &'a [u8]) -> Option<Self> {
        let (key, value) = match entry.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&entry[..at], Some(&entry[at + 1..])),
            None => (entry, None),
        };
        let first = key.iter().position(|byte| *byte == b'.')?;
        let last = key.iter().rposition(|byte| *byte == b'.')?;
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_ascii_lowercase);
        Some(Self {
            section: text(&key[..first])?,
            subsection: (first < last).then(|| &key[first + 1..last]),
            name: text(&key[last + 1..])?,
            value,
        })
    }

    /// Returns whether a read can use it.
    fn is_plain(&self) -> bool {
        let key = format!("{}.{}", self.section, self.name);
        if self.section == "filter" {
            // A filter that the repository turns off.
            return matches!(self.value, Some(b"" | b"false"));
        }
        let is_listed = SECTIONS.contains(&self.section.as_str()) || KEYS.contains(&key.as_str());
        is_listed && !LEFT_OUT.contains(&key.as_str())
    }

    /// Returns the name of a filter that this entry gives a program for files that are read.
    fn filter(&self) -> Option<&'a [u8]> {
        let is_program = matches!(self.name.as_str(), "clean" | "process");
        let is_set = self.value.is_some_and(|value| !value.is_empty());
        self.subsection.filter(|_| self.section == "filter" && is_program && is_set)
    }

    /// Writes it in git's format.
    fn write(&self, text: &mut Vec<u8>) {
        let quoted = |text: &mut Vec<u8>, value: &[u8]| {
            text.push(b'"');
            for byte in value {
                match byte {
                    b'\n' => text.extend(b"\\n"),
                    b'"' | b'\\' => text.extend([b'\\', *byte]),
                    byte => text.push(*byte),
                }
            }
            text.push(b'"');
        };
        text.push(b'[');
        text.extend(self.section.as_bytes());
        if let Some(subsection) = self.subsection {
            text.push(b' ');
            quoted(text, subsection);
        }
        text.extend(b"]\n\t");
        text.extend(self.name.as_bytes());
        if let Some(value) = self.value {
            text.extend(b" = ");
            quoted(text, value);
        }
        text.push(b'\n');
    }
}

/// Size, time and inode of a file.
type Stamp = Option<(u64, i64, i64, u64)>;

/// A folder for reads of one tree of a repository.
#[derive(Debug)]
pub(crate) struct Guard {
    folder: tempfile::TempDir,
    repository: Repository,
    /// The filters that only the repository's own configuration defines.
    filters: BTreeSet<Vec<u8>>,
    /// Whether the user has Git LFS.
    lfs: bool,
    /// Of the files with the configuration; `None` if it includes others.
    stamps: Option<[Stamp; 2]>,
    made: Instant,
}

fn stamps(repository: &Repository) -> [Stamp; 2] {
    let files = [repository.common_dir.join("config"), repository.git_dir.join("config.worktree")];
    files.map(|file| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.size(), found.mtime(), found.mtime_nsec(), found.ino()))
    })
}

impl Guard {
    /// Makes the folder.
    pub(crate) async fn of(repository: &Repository) -> Result<Self, Failure> {
        let stamps = stamps(repository);
        let directory = repository.tree.as_deref().unwrap_or(&repository.git_dir);
        let listed = ["config", "--list", "--includes", "--show-scope", "-z"];
        let listed = Git::read(directory).args(listed).run().await?;
        let mut text = Vec::new();
        let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
        let mut includes = false;
        let mut fields = listed.split(|byte| *byte == 0);
        while let (Some(scope), Some(entry)) = (fields.next(), fields.next()) {
            let Some(entry) = Entry::parse(entry) else { continue };
            if !matches!(scope, b"local" | b"worktree") {
                others.extend(entry.filter().map(<[u8]>::to_vec));
                continue;
            }
            own.extend(entry.filter().map(<[u8]>::to_vec));
            includes |= entry.section.starts_with("include");
            if entry.is_plain() {
                entry.write(&mut text);
            }
        }
        let bare = format!("[core]\n\tbare = {}\n", repository.tree.is_none());
        text.extend(bare.as_bytes());
        let made = repository.clone();
        let folder = tokio::task::spawn_blocking(move || make(&made, &text));
        let folder = folder.await.map_err(|why| Failure::Other(why.to_string()))?;
        let folder =
            folder.map_err(|why| Failure::Other(format!("cannot create a temporary folder: {why}")))?;
        let filters = own.difference(&others).cloned().collect();
        let stamps = (!includes).then_some(stamps);
        let lfs = others.contains(&b"lfs"[..]);
        Ok(Self { folder, repository: repository.clone(), filters, lfs, stamps, made: Instant::now() })
    }

    /// Returns whether the repository's configuration is as it was.
    pub(crate) fn is_current(&self) -> bool {
        let is_there = self.folder.path().join("config").exists();
        is_there && self.stamps == Some(stamps(&self.repository)) && self.made.elapsed() < USED
    }

    /// Returns a read of the tree, or of the repository if it is bare.
    pub(crate) fn git(&self) -> Git {
        let Repository { tree, git_dir, common_dir } = &self.repository;
        let git = Git::read(tree.as_deref().unwrap_or(git_dir))
            .env("GIT_DIR", git_dir)
            .env("GIT_COMMON_DIR", self.folder.path())
            // Alternates can be relative to it.
            .env("GIT_OBJECT_DIRECTORY", common_dir.join("objects"));
        match tree {
            Some(tree) => git.env("GIT_WORK_TREE", tree),
            None => git,
        }
    }

    /// Lets Git LFS store in the repository what it cleans.
    pub(crate) fn store_of_filters(&self) -> std::io::Result<()> {
        let (own, shared) = (self.folder.path().join("lfs"), self.repository.common_dir.join("lfs"));
        if !self.lfs || own.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return Ok(());
        }
        std::fs::create_dir_all(&shared)?;
        let _ = std::fs::remove_dir_all(&own);
        std::os::unix::fs::symlink(shared, own)
    }

    /// The changes since the last commit, at some paths or everywhere. Submodules are other repositories, with
    /// configurations of their own: only their commits are compared.
    pub(crate) async fn status(&self, untracked: &str, paths: &[PathBuf]) -> Result<Vec<u8>, Failure> {
        let asked = |renames: &str| {
            self.git()
                .args(["status", "--porcelain=v2", "--branch", "-z", untracked, renames])
                .args(["--ignore-submodules=dirty", "--"])
                .args(paths)
        };
        // Content that a partial clone does not have cannot be compared for renames.
        let out = match asked("--find-renames").run().await {
            Err(Failure::Other(said)) if said.contains("unable to read") || said.contains("fetch") => {
                asked("--no-renames").run().await?
            }
            out => out?,
        };
        Ok(out.into_bytes())
    }

    /// Notes which rows git did not compare, as their filters are left out, and drops those that are as in the index.
    pub(crate) async fn mark(&self, status: &mut Status) -> Result<(), Failure> {
        if self.filters.is_empty() || status.rows.is_empty() {
            return Ok(());
        }
        let paths = status.rows.iter().map(|row| row.path.as_path());
        let told = self.git().args(["check-attr", "-z", "--stdin", "filter"]).paths(paths).run().await?;
        let mut filters: HashMap<&[u8], &[u8]> = HashMap::new();
        let mut fields = told.split(|byte| *byte == 0);
        while let (Some(path), Some(_), Some(value)) = (fields.next(), fields.next(), fields.next()) {
            if self.filters.contains(value) {
                filters.insert(path, value);
            }
        }
        for row in status.rows.iter_mut().filter(|row| !row.submodule && !row.is_deleted()) {
            let filter = filters.get(row.path.as_os_str().as_bytes());
            row.filter = filter.map(|filter| String::from_utf8_lossy(filter).into_owned());
        }
        let modified = |row: &&Row| row.filter.is_some() && row.unstaged == 'M' && !row.conflict;
        let paths: Vec<PathBuf> = status.rows.iter().filter(modified).map(|row| row.path.clone()).collect();
        let Some(root) = self.repository.tree.clone().filter(|_| !paths.is_empty()) else { return Ok(()) };
        let mut same = BTreeSet::new();
        for paths in paths.chunks(ARGUMENTS) {
            let listed = self.git().args(["ls-files", "--debug", "-z", "--"]).args(paths).run().await?;
            same.extend(as_in_index(&root, &listed));
        }
        for row in status.rows.iter_mut().filter(|row| row.unstaged == 'M' && same.contains(&row.path)) {
            row.unstaged = '.';
        }
        status.rows.retain(|row| row.staged != '.' || row.unstaged != '.');
        Ok(())
    }
}

/// Removes the folders that a killed daemon left behind.
pub(crate) fn remove_old_folders() {
    if let Some(before) = SystemTime::now().checked_sub(LEFT_BEHIND) {
        remove_folders(&std::env::temp_dir(), before);
    }
}

fn remove_folders(temporary: &Path, before: SystemTime) {
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        let is_named = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        let is_old =
            || entry.metadata().is_ok_and(|it| it.is_dir() && it.modified().is_ok_and(|at| at < before));
        if is_named && is_old() {
            // Those of other users stay. Links in it are not followed.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn make(repository: &Repository, config: &[u8]) -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
    let link = |name: &&str| {
        let shared = repository.common_dir.join(name);
        std::os::unix::fs::symlink(shared, folder.path().join(name))
    };
    let exists = |name: &&&str| repository.common_dir.join(name).exists();
    SHARED.iter().filter(exists).chain(CREATED).try_for_each(link)?;
    std::fs::write(folder.path().join("config"), config)?;
    Ok(folder)
}

/// Returns the files whose size and time are those that the index has: `git ls-files --debug -z`.
fn as_in_index(root: &Path, listed: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut fields = listed.split(|byte| *byte == 0);
    // After a path, its lines, and the next path behind the last of them.
    let mut path = fields.next().unwrap_or_default();
    for field in fields {
        let text = String::from_utf8_lossy(field);
        let value = |key: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(key));
        let size = value("size: ").and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        let time = value("mtime: ").and_then(|rest| {
            let (seconds, nanos) = rest.trim().split_once(':')?;
            Some((seconds.parse::<i64>().ok()?, nanos.parse::<i64>().ok()?))
        });
        let relative = Path::new(OsStr::from_bytes(path));
        if let (Some(size), Some((seconds, nanos)), Ok(now)) =
            (size, time, std::fs::symlink_metadata(root.join(relative)))
            && (now.size(), now.mtime()) == (size, seconds)
            && (nanos == 0 || now.mtime_nsec() == nanos)
        {
            found.push(relative.to_owned());
        }
        // The line with the flags is the last one.
        let last = field.windows(7).position(|part| part == b"flags: ");
        let end = last.and_then(|at| Some(at + field[at..].iter().position(|byte| *byte == b'\n')? + 1));
        path = end.map_or(&[][..], |end| &field[end..]);
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(text: &str) -> Entry<'_> {
        Entry::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn entries_that_name_programs_are_left_out() {
        for plain in [
            "core.autocrlf\ntrue",
            "branch.a.b.merge\nrefs/heads/a",
            "extensions.objectformat\nsha256",
            "remote.origin.url\next::sh -c x",
            "filter.lfs.process\n",
            "filter.lfs.required\nfalse",
            "core.filemode",
        ] {
            assert!(entry(plain).is_plain(), "{plain}");
        }
        for program in [
            "filter.x.clean\nx",
            "filter.x.process\nx",
            "filter.x.required\ntrue",
            "core.fsmonitor\nx",
            "core.hookspath\nx",
            "core.worktree\n/",
            "core.sshcommand\nx",
            "remote.origin.uploadpack\nx",
            "remote.origin.vcs\nx",
            "remote.origin.promisor\ntrue",
            "extensions.partialclone\norigin",
            "extensions.worktreeconfig\ntrue",
            "diff.x.textconv\nx",
            "diff.external\nx",
            "hook.x.command\nx",
            "include.path\nx",
            "lfs.extension.x.clean\nx",
        ] {
            assert!(!entry(program).is_plain(), "{program}");
        }
    }

    #[test]
    fn files_as_in_the_index_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b c", "d"] {
            std::fs::write(folder.path().join(name), "text").unwrap();
        }
        let found = std::fs::metadata(folder.path().join("a")).unwrap();
        let lines = |mtime: &str, size: u64| {
            format!(
                "  ctime: 1:2\n  mtime: {mtime}\n  dev: 1\tino: 2\n  uid: 0\tgid: 0\n  size: {size}\tflags: 0\n"
            )
        };
        let now = |name: &str| {
            let found = std::fs::metadata(folder.path().join(name)).unwrap();
            format!("{}:{}", found.mtime(), found.mtime_nsec())
        };
        let text =
            format!("a\0{}b c\0{}d\0{}", lines(&now("a"), 4), lines(&now("b c"), 4), lines(&now("d"), 5));
        assert_eq!(as_in_index(folder.path(), text.as_bytes()), [PathBuf::from("a"), PathBuf::from("b c")]);
        let other = format!("a\0{}", lines(&format!("{}:{}", found.mtime() + 1, found.mtime_nsec()), 4));
        assert!(as_in_index(folder.path(), other.as_bytes()).is_empty());
    }

    #[test]
    fn old_folders_are_removed_and_nothing_that_they_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("repository/refs")).unwrap();
        for name in ["ostler-git-old", "other"] {
            std::fs::create_dir(at(name)).unwrap();
            std::os::unix::fs::symlink(at("repository/refs"), at(name).join("refs")).unwrap();
        }
        let made = std::fs::metadata(at("ostler-git-old")).unwrap().modified().unwrap();
        remove_folders(folder.path(), made);
        assert!(at("ostler-git-old").exists(), "it is not older");
        remove_folders(folder.path(), made + Duration::from_secs(1));
        assert!(!at("ostler-git-old").exists() && at("other").exists() && at("repository/refs").exists());
    }

    proptest! {
        #[test]
        fn an_entry_is_read_by_git_as_it_was_written(
            section in "[a-z]{1,5}", subsection in "[ -~é]{1,8}", value in "[ -~\n\té]{0,12}"
        ) {
            let text = format!("{section}.{subsection}.key\n{value}");
            let mut config = Vec::new();
            entry(&text).write(&mut config);
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("config"), config).unwrap();
            let out = ostler_processes::ChildKind::Git.command("git")
                .args(["config", "--list", "-z", "--file"]).arg(folder.path().join("config")).output().unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&out.stdout), format!("{text}\0"));
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            as_in_index(Path::new("/nonexistent"), &bytes);
            Entry::parse(&bytes);
        }
    }
}
