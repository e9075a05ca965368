//! The states of a working tree before and after turns, as tree objects that refs below `refs/ostler/` retain.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use ostler_contract::Thrown;
use parking_lot::Mutex;

use crate::changes::{After, Change};
use crate::guard::Guard;
use crate::program::{Failure, Git};
use crate::raw_diff::{self, RAW, RawEntry};
use crate::recorder::{NAMES, Recorder, Request};
use crate::repository::Repository;
use crate::selected::{LeftOut, Selected, Stored};
use crate::session_trees::SessionTree;
use crate::status::{Object, SUBMODULE};
use crate::tree::Tree;

const REFS: &str = "refs/ostler";
/// How many trees are remembered before those that are not in use are forgotten.
const REMEMBERED: usize = 256;

/// Locked while refs of a tree are changed.
pub(crate) type Changing = Arc<tokio::sync::Mutex<()>>;

#[derive(Default)]
pub(crate) struct Snapshots {
    /// The recorders of the trees, by their tops.
    recorders: Mutex<HashMap<PathBuf, Arc<Recorder>>>,
    /// Why the files before the first turn of a session are not recorded, by session and tree.
    missed: Arc<Mutex<HashMap<(String, PathBuf), String>>>,
    /// The trees of sessions that had a turn.
    sessions: Mutex<HashMap<String, Vec<Arc<Tree>>>>,
    /// Locked for reading by what is recorded without a request that waits for it.
    unattended: Arc<tokio::sync::RwLock<()>>,
}

/// A part of a ref's name that stands for any text.
fn part(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match !text.is_empty() && text.len() <= 100 && text.bytes().all(plain) && !text.starts_with("x-") {
        true => text.to_owned(),
        false => format!("x-{}", hex::encode(text)),
    }
}

fn of_session(session: &str) -> String {
    let id = session.split_once(":/").map_or(session, |(_, id)| id.trim_start_matches('/'));
    format!("{REFS}/{}", part(id))
}

pub(crate) fn of_turn(session: &str, turn: &str, side: &str) -> String {
    format!("{}/turns/{}/{side}", of_session(session), part(turn))
}

/// The ref with the state in which the first turn of a session found the tree.
pub(crate) fn base(session: &str) -> String {
    format!("{}/base", of_session(session))
}

/// The ref of a session whose first turn began without a snapshot.
pub(crate) fn missed(session: &str) -> String {
    format!("{}/missed", of_session(session))
}

impl Snapshots {
    /// The state in which the session's first turn found the tree.
    pub(crate) async fn base(&self, tree: &Tree, session: &str) -> Result<Option<String>, Failure> {
        self.recorder(tree).get(tree, base(session)).await
    }

    /// The state before a turn, and after it if it has ended.
    pub(crate) async fn turn(
        &self,
        tree: &Tree,
        session: &str,
        turn: &str,
    ) -> Result<(Option<String>, Option<String>), Failure> {
        let recorder = self.recorder(tree);
        let (before, after) = futures::join!(
            recorder.get(tree, of_turn(session, turn, "before")),
            recorder.get(tree, of_turn(session, turn, "after")),
        );
        Ok((before?, after?))
    }

    /// Records the state before a turn.
    pub(crate) async fn begin(&self, tree: &Arc<Tree>, session: &str, turn: &str) -> Result<(), Failure> {
        self.remember(tree, session);
        let recorder = self.recorder(tree);
        let mut missing = Missing::new(self.missed.clone(), recorder.clone(), tree.clone(), session, turn);
        let (session, turn) = (session.to_owned(), turn.to_owned());
        let request = Request::Before { session, turn, first: missing.first.clone() };
        if let Err(why) = recorder.record(tree, request).await {
            missing.why = Thrown::from(why.clone()).message;
            return Err(why);
        }
        missing.recorded();
        Ok(())
    }

    /// Why the state before the session's first turn is not known, if it had one without.
    pub(crate) async fn missed(&self, tree: &Tree, session: &str) -> Result<Option<String>, Failure> {
        let why = self.missed.lock().get(&(session.to_owned(), tree.root.clone())).cloned();
        let why = match why {
            Some(why) => Some(why),
            None => self.recorder(tree).get(tree, missed(session)).await?.map(|_| String::new()),
        };
        Ok(why.map(|why| {
            let root = tree.root.display();
            let colon = if why.is_empty() { "" } else { ": " };
            format!("the files of {root} before the session's first turn are not recorded, so its changes are not known{colon}{why}")
        }))
    }

    /// Records the state after a turn, before that of a later turn whose start follows this call.
    pub(crate) fn end(&self, session: &str, turn: &str) -> BoxFuture<'static, Result<(), Failure>> {
        let trees = self.sessions.lock().get(session).cloned().unwrap_or_default();
        let request = || Request::After { session: session.to_owned(), turn: turn.to_owned() };
        self.in_each(&trees, request)
    }

    /// Records that a session has snapshots in a tree, so that they are removed with it.
    pub(crate) fn remember(&self, tree: &Arc<Tree>, session: &str) {
        let mut sessions = self.sessions.lock();
        let trees = sessions.entry(session.to_owned()).or_default();
        trees.retain(|known| known.root != tree.root);
        trees.push(tree.clone());
    }

    /// Waits for what is recorded, and forgets all trees, and with them their temporary folders. The snapshots stay.
    pub(crate) async fn close(&self) {
        let _all = self.unattended.write().await;
        let recorders: Vec<Arc<Recorder>> = self.recorders.lock().values().cloned().collect();
        for recorder in recorders {
            recorder.settled().await;
        }
        self.sessions.lock().clear();
    }

    /// Removes the snapshots of a session that is disposed of.
    pub(crate) fn forget(&self, session: &str) -> BoxFuture<'static, Result<(), Failure>> {
        let trees = self.sessions.lock().remove(session).unwrap_or_default();
        self.missed.lock().retain(|(of, _), _| of != session);
        self.in_each(&trees, || Request::Forget { session: session.to_owned() })
    }

    fn in_each(
        &self,
        trees: &[Arc<Tree>],
        request: impl Fn() -> Request,
    ) -> BoxFuture<'static, Result<(), Failure>> {
        let recorded: Vec<_> = trees.iter().map(|tree| self.recorder(tree).record(tree, request())).collect();
        let unattended = self.unattended.clone().try_read_owned();
        Box::pin(async move {
            let recorded = futures::future::join_all(recorded).await;
            drop(unattended);
            recorded.into_iter().collect()
        })
    }

    /// The tree object of the state now: of tracked files and of those that are not ignored.
    pub(crate) async fn now(&self, tree: &Arc<Tree>) -> Result<String, Failure> {
        self.recorder(tree).now(tree).await
    }

    fn recorder(&self, tree: &Tree) -> Arc<Recorder> {
        let mut recorders = self.recorders.lock();
        if recorders.len() >= REMEMBERED {
            recorders.retain(|_, recorder| Arc::strong_count(recorder) > 1);
        }
        recorders.entry(tree.root.clone()).or_default().clone()
    }
}

/// Notes that a turn began without a snapshot, unless one is recorded: also where the host does not wait any longer.
struct Missing {
    missed: Arc<Mutex<HashMap<(String, PathBuf), String>>>,
    recorder: Arc<Recorder>,
    tree: Arc<Tree>,
    session: String,
    /// Whether it is the first turn of the session, once that is known.
    first: Arc<OnceLock<bool>>,
    why: String,
    done: bool,
}

impl Missing {
    fn new(
        missed: Arc<Mutex<HashMap<(String, PathBuf), String>>>,
        recorder: Arc<Recorder>,
        tree: Arc<Tree>,
        session: &str,
        turn: &str,
    ) -> Self {
        let why = format!("the snapshot before the turn {turn} took too long");
        Self { missed, recorder, tree, session: session.to_owned(), first: Arc::default(), why, done: false }
    }

    fn recorded(mut self) {
        self.done = true;
        self.missed.lock().remove(&(self.session.clone(), self.tree.root.clone()));
    }
}

impl Drop for Missing {
    fn drop(&mut self) {
        if self.done || self.first.get() == Some(&false) {
            return;
        }
        let key = (self.session.clone(), self.tree.root.clone());
        self.missed.lock().insert(key.clone(), std::mem::take(&mut self.why));
        let (recorder, tree, missed) = (self.recorder.clone(), self.tree.clone(), self.missed.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // It is known after a restart too.
            runtime.spawn(async move {
                // Of a later turn, only the changeset of that turn is missing.
                if let Ok(false) = recorder.miss(&tree, key.0.clone()).await {
                    missed.lock().remove(&key);
                }
            });
        }
    }
}

/// Removes the snapshots of sessions from a repository.
pub(crate) async fn remove(
    repository: &Repository,
    sessions: &[&str],
    changing: &Changing,
) -> Result<(), Failure> {
    let common = repository.common_dir.clone();
    let mut refs = Vec::new();
    for sessions in sessions.chunks(NAMES) {
        let listed = Git::read(&common).args(["for-each-ref", "--format=delete %(refname)"]);
        refs.extend_from_slice(&listed.args(sessions.iter().map(|session| of_session(session))).run().await?);
    }
    if refs.is_empty() {
        return Ok(());
    }
    let bare = Repository { tree: None, git_dir: common.clone(), common_dir: common };
    change_refs(Arc::new(Guard::of(&bare).await?), refs, changing).await
}

/// Changes refs, all or none of them. No hook takes part.
pub(crate) async fn update(tree: &Tree, refs: Vec<u8>, changing: &Changing) -> Result<(), Failure> {
    change_refs(tree.guard().await?, refs, changing).await
}

/// A change that has begun ends also if it is not waited for any more: git that is killed leaves its locks, and later changes
/// of the same refs fail.
async fn change_refs(guard: Arc<Guard>, refs: Vec<u8>, changing: &Changing) -> Result<(), Failure> {
    let locked = changing.clone().lock_owned().await;
    let change = tokio::spawn(async move {
        let update = guard.git().args(["update-ref", "--no-deref", "--stdin"]);
        let changed = update.input(refs).run().await.map(drop);
        drop(locked);
        changed
    });
    change.await.map_err(|why| Failure::Other(format!("cannot change the refs of snapshots: {why}")))?
}

/// Writes the tree object: with a copy of the index, so that the index itself stays as it is, and with a folder for new
/// objects that is only emptied into the repository when git is done.
pub(crate) async fn write(
    tree: &Tree,
    selected: &Selected,
) -> Result<(String, Vec<(PathBuf, String)>), Failure> {
    let failed = |why: std::io::Error| Failure::Other(format!("cannot copy the index: {why}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    let index = folder.path().join("index");
    let (from, to) = (tree.repository.git_dir.join("index"), index.clone());
    match tokio::task::spawn_blocking(move || copy_index(&from, &to)).await {
        Ok(Err(why)) if why.kind() != std::io::ErrorKind::NotFound => return Err(failed(why)),
        _ => {}
    }
    let objects = NewObjects::beside(&tree.repository.common_dir).map_err(failed)?;
    let guard = tree.guard().await?;
    let on = || {
        let git = guard.git().env("GIT_INDEX_FILE", &index);
        git.env("GIT_OBJECT_DIRECTORY", objects.folder.path())
    };
    let mut entries = Vec::new();
    let mut entry = |path: &Path, mode: u32, id: &str| {
        entries.extend_from_slice(format!("{mode:o} {id}\t").as_bytes());
        entries.extend_from_slice(path.as_os_str().as_bytes());
        entries.push(0);
    };
    for file in &selected.stored {
        entry(&file.path, file.mode, &file.id);
    }
    // The content is not stored: ids that change with the files stand for them.
    let ids = stand_ins(&folder, &on, &selected.left_out).await?;
    for (file, id) in selected.left_out.iter().zip(&ids) {
        entry(&file.path, file.mode, id);
    }
    if !entries.is_empty() {
        on().args(["update-index", "--add", "-z", "--index-info"]).input(entries).run().await?;
    }
    let mut new = Vec::new();
    if !selected.hashed.is_empty() {
        guard
            .store_of_filters()
            .map_err(|why| Failure::Other(format!("cannot create the folder of Git LFS: {why}")))?;
        let add = on().args(["update-index", "--add", "--remove", "-z", "--stdin"]);
        add.paths(selected.hashed.iter().map(PathBuf::as_path)).run().await?;
        let listed = on().args(["ls-files", "--stage", "-z"]);
        let listed = match selected.hashed.len() {
            0..=200 => listed.arg("--").args(&selected.hashed),
            _ => listed,
        };
        let hashed: HashSet<&Path> = selected.hashed.iter().map(PathBuf::as_path).collect();
        for line in listed.run().await?.split(|byte| *byte == 0) {
            let Some(tab) = line.iter().position(|byte| *byte == b'\t') else { continue };
            let path = Path::new(OsStr::from_bytes(&line[tab + 1..]));
            let words = String::from_utf8_lossy(&line[..tab]).into_owned();
            if let Some(id) = words.split(' ').nth(1).filter(|_| hashed.contains(path)) {
                new.push((path.to_owned(), id.to_owned()));
            }
        }
    }
    let id = on().args(["write-tree", "--missing-ok"]).text().await?;
    tokio::task::spawn_blocking(move || objects.keep())
        .await
        .map_err(|why| Failure::Other(why.to_string()))?
        .map_err(|why| Failure::Other(format!("cannot store the objects of a snapshot: {why}")))?;
    Ok((id, new))
}

/// The contents that the repository no longer has.
pub(crate) async fn gone(tree: &Tree, stored: &[Stored]) -> Result<HashSet<String>, Failure> {
    if stored.is_empty() {
        return Ok(HashSet::new());
    }
    let ids: String = stored.iter().map(|file| format!("{}\n", file.id)).collect();
    let looked = Git::read(&tree.root).args(["cat-file", "--batch-check"]).input(ids.into_bytes());
    let looked = looked.text().await?;
    Ok(looked.lines().filter_map(|line| line.strip_suffix(" missing")).map(str::to_owned).collect())
}

/// The ids that stand for contents that are not stored.
async fn stand_ins(
    folder: &tempfile::TempDir,
    on: &impl Fn() -> Git,
    files: &[LeftOut],
) -> Result<Vec<String>, Failure> {
    let failed = |why: std::io::Error| Failure::Other(format!("cannot write a temporary file: {why}"));
    let mut paths = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let path = folder.path().join(format!("left-out-{at}"));
        tokio::fs::write(&path, &file.what).await.map_err(failed)?;
        paths.extend_from_slice(path.as_os_str().as_bytes());
        paths.push(b'\n');
    }
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let ids = on().args(["hash-object", "--no-filters", "--stdin-paths"]).input(paths).text().await?;
    Ok(ids.lines().map(str::to_owned).collect())
}

/// A folder for new objects. It goes with the snapshot that fails or is not waited for; git removes one that remains after
/// a crash.
struct NewObjects {
    folder: tempfile::TempDir,
    objects: PathBuf,
}

impl NewObjects {
    fn beside(common: &Path) -> std::io::Result<Self> {
        let objects = common.join("objects");
        let folder = tempfile::Builder::new().prefix("tmp_objdir-ostler-").tempdir_in(&objects)?;
        std::fs::create_dir(folder.path().join("info"))?;
        let mut known = std::fs::canonicalize(&objects)?.into_os_string();
        known.push("\n");
        std::fs::write(folder.path().join("info/alternates"), known.as_bytes())?;
        Ok(Self { folder, objects })
    }

    /// Moves the objects into the repository.
    fn keep(self) -> std::io::Result<()> {
        let rights = std::fs::metadata(&self.objects)?.permissions();
        for entry in std::fs::read_dir(self.folder.path())?.flatten() {
            let name = entry.file_name();
            if name.len() != 2 || !entry.file_type()?.is_dir() {
                continue;
            }
            let to = self.objects.join(&name);
            match std::fs::create_dir(&to) {
                Ok(()) => std::fs::set_permissions(&to, rights.clone())?,
                Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(why) => return Err(why),
            }
            for object in std::fs::read_dir(entry.path())?.flatten() {
                if !object.file_name().as_bytes().starts_with(b"tmp_") {
                    std::fs::rename(object.path(), to.join(object.file_name()))?;
                }
            }
        }
        Ok(())
    }
}

/// Copies an index with its time. Git compares seconds, and looks into the files that changed in the second in which the
/// index was written: with a later time, it would take them for unchanged.
pub(crate) fn copy_index(from: &Path, to: &Path) -> std::io::Result<()> {
    let written = std::fs::metadata(from)?.modified()?;
    std::fs::copy(from, to)?;
    std::fs::File::options().write(true).open(to)?.set_modified(written)
}

/// The changes between two states in the directories of a session. With `live`, the later one is the tree as it is now.
pub(crate) async fn between(
    place: &SessionTree,
    before: &str,
    after: &str,
    live: bool,
) -> Result<Vec<Change>, Thrown> {
    if before == after {
        return Ok(Vec::new());
    }
    let diff = |renames: &str| {
        Git::read(&place.tree.root).args(["diff-tree", "-r"]).args(RAW).args([renames, before, after])
    };
    // Content that is not stored cannot be compared for renames.
    let out = match diff("--find-renames").run().await {
        Ok(out) => out,
        Err(_) => diff("--no-renames").run().await?,
    };
    let mut changes = Vec::new();
    for RawEntry { old, new, kind, path, moved_to } in raw_diff::entries(&out) {
        let last = moved_to.unwrap_or_else(|| path.clone());
        if !place.holds(&path) && !place.holds(&last) {
            continue;
        }
        let later = Object::new(&new.id, new.mode).map(|object| match (live, object.mode) {
            (true, SUBMODULE) => After::Submodule,
            (true, mode) => After::File(mode),
            (false, _) => After::Object(object),
        });
        let earlier = Object::new(&old.id, old.mode).filter(|_| kind != b'C');
        changes.push(Change {
            before: earlier.map(|object| (path, object)),
            after: later.map(|after| (last, after)),
            meta: None,
        });
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Trees;

    #[tokio::test]
    async fn a_change_of_refs_ends_also_if_it_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        Git::write(folder.path()).args(["init", "--quiet"]).run().await.unwrap();
        let tree = Trees::default().of(folder.path()).await.unwrap().unwrap();
        let id = Git::read(&tree.root).args(["mktree"]).text().await.unwrap();
        let name = base("echo:/one");
        let guard = tree.guard().await.unwrap();
        let changing = Changing::default();
        let refs = format!("create {name} {id}\n").into_bytes();
        let mut change = Box::pin(change_refs(guard, refs, &changing));
        assert!(futures::poll!(&mut change).is_pending());
        drop(change);
        drop(changing.lock().await);
        let found = Git::read(&tree.root).args(["rev-parse", "--verify", &name]).text().await;
        assert_eq!(found, Ok(id));
    }

    #[test]
    fn any_text_is_a_part_of_a_ref() {
        assert_eq!(of_session("echo:/8d-1"), "refs/ostler/8d-1");
        assert_eq!(part("a/b"), "x-612f62");
        assert_eq!(part(""), "x-");
        assert_ne!(part("x-61"), part("a"));
    }
}
