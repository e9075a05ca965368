//! What a process did to the files of a folder, as `strace` recorded it, and the folder as a power cut at any moment leaves
//! it: with what had been synced, and nothing else.
//!
//! The strict reading of POSIX: the content of a file is safe after `fsync` or `fdatasync` of that file, and an entry of
//! a folder, with its creation, removal or new name, after `fsync` of that folder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// The system calls that change files or make changes safe.
const CALLS: &str = "open,openat,openat2,creat,write,lseek,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,syncfs,sync,rename,renameat,\
    renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,ftruncate,truncate,link,linkat,symlink,symlinkat,copy_file_range,\
    sendfile,fallocate";

/// Where `strace` is.
pub fn strace() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = [PathBuf::from("/usr/bin")];
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join("strace")).find(|path| path.is_file())
}

/// A command that becomes a program under `strace`, which writes what it sees to `log`, and fails and delays what `faults` say
/// (in the form of its option `--inject`). The process keeps the id of what is started.
pub fn traced(strace: &Path, log: &Path, faults: &[&str]) -> Command {
    let mut command = Command::new(strace);
    command.args(["-D", "-f", "--seccomp-bpf", "-y", "-xx", "-s", "16777216", "--quiet=all"]);
    command.args(["--absolute-timestamps=format:unix,precision:ns", "--syscall-times=ns"]);
    command.arg(format!("--trace={CALLS}")).arg("--output").arg(log);
    command.args(faults.iter().map(|fault| format!("--inject={fault}")));
    command
}

#[derive(Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Cut(usize),
}

impl Change {
    /// Where it begins, and how many bytes it writes.
    fn place(&self) -> (usize, usize) {
        match self {
            Self::Write { at, bytes } => (*at, bytes.len()),
            Self::Cut(to) => (*to, 0),
        }
    }
}

#[derive(Debug)]
enum Content {
    File {
        changes: Vec<Change>,
        length: usize,
    },
    /// Its entries as they are now, and every change of them.
    Folder {
        entries: BTreeMap<OsString, usize>,
        changes: Vec<(OsString, Option<usize>)>,
    },
}

#[derive(Debug)]
struct Node {
    content: Content,
    /// How many of its changes were safe from when on.
    synced: Vec<(SystemTime, usize)>,
}

impl Node {
    fn file() -> Self {
        Self { content: Content::File { changes: Vec::new(), length: 0 }, synced: Vec::new() }
    }

    fn folder() -> Self {
        Self {
            content: Content::Folder { entries: BTreeMap::new(), changes: Vec::new() },
            synced: Vec::new(),
        }
    }

    fn changes(&self) -> usize {
        match &self.content {
            Content::File { changes, .. } => changes.len(),
            Content::Folder { changes, .. } => changes.len(),
        }
    }

    /// How many of its changes were safe at a time.
    fn safe(&self, at: SystemTime) -> usize {
        self.synced.iter().filter(|(from, _)| *from <= at).map(|(_, count)| *count).max().unwrap_or(0)
    }

    fn change(&mut self, change: Change) {
        let Content::File { changes, length } = &mut self.content else { panic!("{change:?} in a folder") };
        match &change {
            Change::Write { at, bytes } => *length = (*length).max(at + bytes.len()),
            Change::Cut(to) => *length = *to,
        }
        changes.push(change);
    }

    /// The content of a file after so many changes.
    fn bytes(&self, count: usize) -> Vec<u8> {
        let Content::File { changes, .. } = &self.content else { panic!("a folder has no content") };
        let mut all = Vec::new();
        for change in &changes[..count] {
            match change {
                Change::Write { at, bytes } => {
                    all.resize(all.len().max(at + bytes.len()), 0);
                    all[*at..at + bytes.len()].copy_from_slice(bytes);
                }
                Change::Cut(to) => all.resize(*to, 0),
            }
        }
        all
    }

    /// Whether it is a file with this content.
    fn is_whole(&self, content: &[u8]) -> bool {
        matches!(&self.content, Content::File { changes, .. } if self.bytes(changes.len()) == content)
    }
}

/// A folder and its history.
#[derive(Debug)]
pub struct Recorded {
    top: PathBuf,
    /// The first one is the folder itself.
    nodes: Vec<Node>,
    /// Where the next `write` of each open file goes: the file and the place, or none for the end.
    positions: HashMap<u32, (usize, Option<usize>)>,
    /// Files without a name (`O_TMPFILE`), by the path that the kernel shows for them.
    unnamed: HashMap<PathBuf, usize>,
    /// Files in the middle of whose change the process was killed, and whether that happened to a name.
    cut: BTreeSet<usize>,
    is_name_cut: bool,
    /// The files in the middle of whose move it was killed, each with the path where it went.
    cut_moves: Vec<(usize, PathBuf)>,
}

impl Recorded {
    /// A folder as it is on the disk now, all of it safe.
    pub fn of(top: &Path) -> Self {
        let mut recorded = Self {
            top: top.canonicalize().unwrap(),
            nodes: vec![Node::folder()],
            positions: HashMap::new(),
            unnamed: HashMap::new(),
            cut: BTreeSet::new(),
            is_name_cut: false,
            cut_moves: Vec::new(),
        };
        recorded.take(top, 0);
        for node in &mut recorded.nodes {
            node.synced.push((SystemTime::UNIX_EPOCH, node.changes()));
        }
        recorded
    }

    fn take(&mut self, folder: &Path, node: usize) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let child = if entry.file_type().unwrap().is_dir() {
                let child = self.add(Node::folder());
                self.take(&entry.path(), child);
                child
            } else {
                let mut file = Node::file();
                file.change(Change::Write { at: 0, bytes: fs::read(entry.path()).unwrap() });
                self.add(file)
            };
            self.set(node, entry.file_name(), Some(child));
        }
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn set(&mut self, folder: usize, name: OsString, to: Option<usize>) {
        let Content::Folder { entries, changes } = &mut self.nodes[folder].content else {
            panic!("{name:?} in a file")
        };
        match to {
            Some(node) => entries.insert(name.clone(), node),
            None => entries.remove(&name),
        };
        changes.push((name, to));
    }

    /// The file or folder at a path below the top, as it is now.
    fn node(&self, path: &Path) -> Option<usize> {
        let mut node = 0;
        for name in path.strip_prefix(&self.top).ok()? {
            let Content::Folder { entries, .. } = &self.nodes[node].content else { return None };
            node = *entries.get(name)?;
        }
        Some(node)
    }

    /// The folder of a path below the top, and the name in it. Another thread can have made the folder in a call whose end
    /// is recorded later.
    fn parent(&mut self, path: &Path) -> Option<(usize, OsString)> {
        let folder = path.parent().filter(|folder| folder.starts_with(&self.top))?;
        if self.node(folder).is_none() {
            self.made(folder);
        }
        Some((self.node(folder)?, path.file_name()?.to_owned()))
    }

    /// Reads what `strace` wrote.
    pub fn read(&mut self, log: &str) {
        // The first half of a call during which another thread was seen, by thread.
        let mut begun: HashMap<&str, (String, Vec<usize>)> = HashMap::new();
        for line in log.lines() {
            let (thread, rest) = line.split_once(' ').unwrap();
            let (time, rest) = rest.trim_start().split_once(' ').unwrap();
            if rest.starts_with("+++") || rest.starts_with("---") {
                continue;
            }
            let time = seconds(time);
            if rest.starts_with("<... ") && rest.contains(" <unfinished ...>") {
                // The process was killed as the call ended.
                let (first, _) = begun.remove(thread).unwrap_or_else(|| panic!("the first half of {line}"));
                self.killed_in(&first);
            } else if let Some(first) = rest.strip_suffix(" <unfinished ...>") {
                begun.insert(thread, (first.to_owned(), self.counts_of(first)));
            } else if let Some((_, second)) =
                rest.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>"))
            {
                let (first, counts) =
                    begun.remove(thread).unwrap_or_else(|| panic!("the first half of {line}"));
                self.call(&format!("{first}{second}"), SystemTime::UNIX_EPOCH + time, Some(&counts));
            } else {
                let took = rest.rsplit_once('<').filter(|(_, took)| took.ends_with('>'));
                let took = took
                    .filter(|_| !rest.ends_with(" = ?") && !rest.ends_with("<unavailable>"))
                    .map(|(_, took)| seconds(took.trim_end_matches('>')));
                let Some(took) = took else {
                    self.killed_in(rest);
                    continue;
                };
                self.call(rest, SystemTime::UNIX_EPOCH + time + took, None);
            }
        }
        for (call, _) in begun.into_values() {
            self.killed_in(&call);
        }
    }

    /// Notes a call during which the process was killed: its change may be there or not.
    fn killed_in(&mut self, call: &str) {
        let argument =
            call.split_once('(').map_or("", |(_, rest)| rest).split(", ").next().unwrap_or_default();
        let name = call.split('(').next().unwrap_or_default();
        match self.open_node(argument.trim_end_matches(')')) {
            Some((_, node)) if !name.ends_with("at") => drop(self.cut.insert(node)),
            _ => self.is_name_cut = true,
        }
        if name.starts_with("rename") {
            let arguments = call.split_once('(').map_or("", |(_, rest)| rest);
            let paths: Vec<PathBuf> = arguments
                .split(", ")
                .filter(|argument| argument.starts_with('"'))
                .filter_map(|argument| argument.split('"').nth(1))
                .map(|path| PathBuf::from(text(path)))
                .collect();
            // A path that is not whole names no file here.
            if let [from, to] = &paths[..]
                && let Some(node) = self.node(from)
            {
                self.cut_moves.push((node, to.clone()));
            }
        }
    }

    /// How many changes the file or folder had that is being synced.
    fn counts_of(&self, call: &str) -> Vec<usize> {
        if !call.starts_with("fsync(") && !call.starts_with("fdatasync(") {
            return Vec::new();
        }
        let argument = call.split_once('(').map_or("", |(_, rest)| rest).trim_end_matches(')');
        self.open_node(argument).map(|(_, node)| self.nodes[node].changes()).into_iter().collect()
    }

    /// The number of an open file, and the file, of an argument such as `3<path>`.
    fn open_node(&self, argument: &str) -> Option<(u32, usize)> {
        let (number, path) = argument.split_once('<')?;
        let (path, mark) = path.split_once('>')?;
        let path = PathBuf::from(text(path));
        let node = match mark {
            // Without a name: never had one, or does no longer, and then what is written to it is lost in any case.
            mark if mark.starts_with("(deleted") => self.unnamed.get(&path).copied(),
            _ => self.node(&path),
        };
        Some((number.parse().ok()?, node?))
    }

    /// One call that ended at a time; `counts` is what [`Self::counts_of`] said at its beginning.
    fn call(&mut self, call: &str, ended: SystemTime, counts: Option<&[usize]>) {
        let (name, rest) = call.split_once('(').unwrap_or_else(|| panic!("{call:.200}"));
        // Strings are written as hexadecimal numbers, so nothing in them is taken for the end.
        let Some((arguments, result)) = rest.rsplit_once(" = ") else { return };
        let arguments: Vec<&str> = arguments.trim_end().trim_end_matches(')').split(", ").collect();
        // The registers of a thread that is killed as its call ends are not read well: `strace` knows no such error.
        if result.starts_with('?') || result.starts_with("-1 (errno ") {
            return self.killed_in(call);
        }
        if result.starts_with('-') {
            return;
        }
        let count: usize = result.split([' ', '<']).next().unwrap().parse().unwrap_or(0);
        let path = |at: usize| PathBuf::from(text(arguments[at].trim_matches('"')));
        let opened = |at: usize| self.open_node(arguments[at]);
        let below = |at: usize| {
            let given = path(at + 1);
            let folder = arguments[at].split_once('<').map(|(_, path)| text(path.trim_end_matches('>')));
            folder.map_or(given.clone(), |folder| Path::new(&folder).join(given))
        };
        match name {
            "open" | "creat" => self.opened(&path(0), result, arguments.get(1).unwrap_or(&"O_CREAT|O_TRUNC")),
            "openat" | "openat2" => self.opened(&below(0), result, arguments[2]),
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => {
                let Some((number, node)) = opened(0) else { return };
                let vectors = name.contains('v');
                let bytes = if vectors { vector(&arguments) } else { bytes(arguments[1]) };
                let bytes = bytes[..count].to_vec();
                let at = match name {
                    "pwrite64" => Some(arguments[3].parse().unwrap()),
                    "pwritev" | "pwritev2" => panic!("the place of {name} is not read"),
                    _ => None,
                };
                self.wrote(number, node, at, bytes);
            }
            "copy_file_range" | "sendfile" => {
                let (from, to) = if name == "sendfile" { (1, 0) } else { (0, 2) };
                let Some((number, node)) = opened(to) else { return };
                let (other, source) =
                    opened(from).unwrap_or_else(|| panic!("a copy from outside of the folder: {call:.400}"));
                let source_at = self.positions.get(&other).and_then(|(_, at)| *at).unwrap_or(0);
                let bytes = self.nodes[source].bytes(self.nodes[source].changes());
                self.positions.insert(other, (source, Some(source_at + count)));
                self.wrote(number, node, None, bytes[source_at..source_at + count].to_vec());
            }
            "lseek" => {
                let Some((number, node)) = opened(0) else { return };
                if let Content::File { .. } = self.nodes[node].content {
                    self.positions.insert(number, (node, Some(count)));
                }
            }
            "ftruncate" => {
                let Some((_, node)) = opened(0) else { return };
                self.nodes[node].change(Change::Cut(arguments[1].parse().unwrap()));
            }
            "truncate" => {
                let Some(node) = self.node(&path(0)) else { return };
                self.nodes[node].change(Change::Cut(arguments[1].parse().unwrap()));
            }
            "fsync" | "fdatasync" => {
                let Some((_, node)) = opened(0) else { return };
                let safe =
                    counts.map_or(self.nodes[node].changes(), |counts| counts.first().copied().unwrap_or(0));
                self.nodes[node].synced.push((ended, safe));
            }
            "mkdir" => self.made(&path(0)),
            "mkdirat" => self.made(&below(0)),
            "rename" => self.renamed(&path(0), &path(1)),
            "renameat" | "renameat2" => self.renamed(&below(0), &below(2)),
            "link" => self.linked(&path(0), &path(1)),
            "linkat" => self.linked(&below(0), &below(2)),
            "unlink" | "rmdir" => self.removed(&path(0)),
            "unlinkat" => self.removed(&below(0)),
            "symlink" | "symlinkat" | "fallocate" | "sync" | "syncfs" => {
                let here = arguments.iter().any(|part| part.contains(&*hexadecimal(&self.top)));
                assert!(!here, "{name} is not read: {call:.400}");
            }
            other => panic!("{other} is recorded and not read"),
        }
    }

    fn opened(&mut self, path: &Path, result: &str, flags: &str) {
        let number: Option<u32> = result.split(['<', ' ']).next().and_then(|number| number.parse().ok());
        if flags.contains("O_TMPFILE") {
            let shown = result.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
            let shown = PathBuf::from(text(shown.map_or("", |(shown, _)| shown)));
            if let (true, Some(number)) = (shown.starts_with(&self.top), number) {
                let file = self.add(Node::file());
                self.unnamed.insert(shown, file);
                self.positions.insert(number, (file, Some(0)));
            }
            return;
        }
        if self.node(path).is_none() && flags.contains("O_CREAT") {
            let Some((folder, name)) = self.parent(path) else { return };
            let file = self.add(Node::file());
            self.set(folder, name, Some(file));
        }
        let (Some(number), Some(node)) = (number, self.node(path)) else { return };
        if flags.contains("O_TRUNC") {
            self.nodes[node].change(Change::Cut(0));
        }
        self.positions.insert(number, (node, (!flags.contains("O_APPEND")).then_some(0)));
    }

    fn wrote(&mut self, number: u32, node: usize, at: Option<usize>, bytes: Vec<u8>) {
        if let Some(at) = at {
            return self.nodes[node].change(Change::Write { at, bytes });
        }
        let Content::File { length, .. } = self.nodes[node].content else { panic!("a write to a folder") };
        let position = self.positions.get(&number).filter(|(of, _)| *of == node).and_then(|(_, at)| *at);
        let at = position.unwrap_or(length);
        if position.is_some() {
            self.positions.insert(number, (node, Some(at + bytes.len())));
        }
        self.nodes[node].change(Change::Write { at, bytes });
    }

    fn made(&mut self, path: &Path) {
        if self.node(path).is_some() {
            return;
        }
        let Some((folder, name)) = self.parent(path) else { return };
        let made = self.add(Node::folder());
        self.set(folder, name, Some(made));
    }

    fn renamed(&mut self, from: &Path, to: &Path) {
        let Some(node) = self.node(from) else {
            assert!(self.parent(to).is_none(), "{} comes from outside of the folder", to.display());
            return;
        };
        self.removed(from);
        let (folder, name) = self.parent(to).unwrap_or_else(|| panic!("{} leaves the folder", to.display()));
        self.set(folder, name, Some(node));
    }

    fn linked(&mut self, from: &Path, to: &Path) {
        let Some((folder, name)) = self.parent(to) else { return };
        // A file without a name gets one by its number: `/proc/<process>/fd/<number>`.
        let open = (from.starts_with("/proc") && from.parent().is_some_and(|folder| folder.ends_with("fd")))
            .then(|| from.file_name()?.to_str()?.parse().ok())
            .flatten();
        let open = open.and_then(|number: u32| self.positions.get(&number)).map(|(node, _)| *node);
        let node = open.or_else(|| self.node(from));
        let node = node.unwrap_or_else(|| panic!("{} is not there", from.display()));
        self.set(folder, name, Some(node));
    }

    fn removed(&mut self, path: &Path) {
        if self.node(path).is_none() {
            return;
        }
        let Some((folder, name)) = self.parent(path) else { return };
        self.set(folder, name, None);
    }

    /// Replaces the folder on the disk by what a power cut at a time would have left of it.
    pub fn rebuild(&self, at: SystemTime) {
        for entry in fs::read_dir(&self.top).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
        self.build(0, &self.top, at);
    }

    fn build(&self, node: usize, path: &Path, at: SystemTime) {
        let safe = self.nodes[node].safe(at);
        let Content::Folder { changes, .. } = &self.nodes[node].content else {
            unreachable!("a folder is built")
        };
        let entries: BTreeMap<_, _> = changes[..safe].iter().map(|(name, node)| (name, *node)).collect();
        for (name, child) in entries.into_iter().filter_map(|(name, node)| Some((name, node?))) {
            let (path, node) = (path.join(name), &self.nodes[child]);
            if let Content::File { .. } = node.content {
                fs::write(&path, node.bytes(node.safe(at))).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            } else {
                fs::create_dir(&path).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
                self.build(child, &path, at);
            }
        }
    }

    /// Fails where the folder on the disk is not what was read: then something that changes files was not recorded. What is
    /// written through memory, and what others write, is `but`.
    pub fn assert_is_on_the_disk(&self, but: impl Fn(&Path) -> bool) {
        self.compare(0, &self.top, &but);
    }

    fn compare(&self, node: usize, path: &Path, but: &impl Fn(&Path) -> bool) {
        match &self.nodes[node].content {
            _ if but(path) => {}
            Content::File { .. } if self.cut.contains(&node) => {}
            Content::File { changes, .. } => {
                let there = fs::read(path).unwrap();
                let recorded = self.nodes[node].bytes(changes.len());
                // The process was killed while it moved another file here.
                let is_moved = || {
                    let mut moves = self.cut_moves.iter().filter(|(_, to)| to == path);
                    moves.any(|(from, _)| self.nodes[*from].is_whole(&there))
                };
                let differs = || there.iter().zip(&recorded).position(|(there, recorded)| there != recorded);
                assert!(
                    there == recorded || is_moved(),
                    "{}: {} bytes, of which {} were recorded, are different from byte {:?} on; the last change wrote {:?}",
                    path.display(),
                    there.len(),
                    recorded.len(),
                    differs(),
                    changes.last().map(Change::place)
                );
            }
            Content::Folder { entries, .. } => {
                let mut there: Vec<_> =
                    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                there.retain(|name| !but(&path.join(name)));
                there.sort();
                let recorded: Vec<_> =
                    entries.keys().filter(|name| !but(&path.join(name))).cloned().collect();
                assert!(self.is_name_cut || there == recorded, "{}: {there:?} {recorded:?}", path.display());
                for (name, child) in entries.iter().filter(|(name, _)| there.contains(name)) {
                    self.compare(*child, &path.join(name), but);
                }
            }
        }
    }
}

/// Seconds and nanoseconds.
fn seconds(text: &str) -> Duration {
    let (seconds, nanoseconds) = text.split_once('.').unwrap_or_else(|| panic!("{text} is no time"));
    Duration::new(seconds.parse().unwrap(), nanoseconds.parse().unwrap())
}

/// Bytes written as `\x..` each.
fn bytes(text: &str) -> Vec<u8> {
    let text = text.trim_matches('"');
    assert!(!text.ends_with("..."), "a string is cut");
    text.split("\\x")
        .skip(1)
        .map(|byte| u8::from_str_radix(byte, 16).unwrap_or_else(|why| panic!("{text:.300}: {why}")))
        .collect()
}

fn text(text: &str) -> OsString {
    OsString::from_vec(bytes(text))
}

fn hexadecimal(path: &Path) -> String {
    path.as_os_str().as_encoded_bytes().iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// The bytes of `[{iov_base="..", iov_len=..}, ..]`.
fn vector(arguments: &[&str]) -> Vec<u8> {
    arguments
        .iter()
        .filter_map(|part| part.split_once("iov_base="))
        .flat_map(|(_, base)| bytes(base.trim_matches(['{', '}', '[', ']'])))
        .collect()
}
