//! Contents behind `git-blob:` URIs: objects of repositories, and changed files of working trees.
//!
//! `git-blob://<tree>/<path>?<object>` is an object, `git-blob://<tree>/<path>?tree` a changed file as it is now. `<tree>`
//! stands for a working tree that a session asked for: contents of no other repository can be named. Both sides of a
//! change have the same path, because VS Code shows different paths as a rename.

use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ostler_contract::points::{Reader, ResourceContent, ResourceProvider, SchemeDescription, served_trees};
use ostler_contract::{Call, Grant, RpcError, Thrown};
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use crate::program::{Failure, Git};
use crate::tree::{Tree, Trees};

pub(crate) const SCHEME: &str = "git-blob";
/// The maximum size of content that is read, in bytes.
const LARGEST: u64 = 32 << 20;
/// The name of the working tree in place of an object.
const TREE: &str = "tree";
/// The beginning of the pointer that Git LFS stores in place of a file.
pub(crate) const LFS: &[u8] = b"version https://git-lfs.github.com/spec/v1\n";

const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The trees whose contents can be named.
#[derive(Default)]
pub(crate) struct Contents {
    trees: Arc<Trees>,
    named: Mutex<HashMap<String, PathBuf>>,
    /// The directories the host serves.
    served: Vec<PathBuf>,
}

impl Contents {
    pub(crate) fn new(trees: Arc<Trees>, served: &[String]) -> Self {
        let real = |path: &String| std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        Self { trees, named: Mutex::default(), served: served.iter().map(real).collect() }
    }

    /// Returns whether the host serves the files of a tree below a folder.
    fn serves(&self, tree: &Tree, folder: &Path) -> bool {
        let beside = |root: &PathBuf| {
            let is_repository = |above: &Path| above.join(".git").exists();
            let of_root = |above: &Path| tree.repository.common_dir == above.join(".git");
            root.ancestors().any(of_root) && served_trees(root, folder, is_repository).is_some()
        };
        self.served.iter().any(|root| folder.starts_with(root) || beside(root))
    }

    /// The URI of an object that is the content of a path.
    pub(crate) fn object(&self, tree: &Tree, id: &str, path: &Path) -> String {
        self.uri(tree, id, path)
    }

    /// The URI of a file as it is now.
    pub(crate) fn file(&self, tree: &Tree, path: &Path) -> String {
        self.uri(tree, TREE, path)
    }

    fn uri(&self, tree: &Tree, what: &str, path: &Path) -> String {
        let key = key(&tree.root);
        self.named.lock().entry(key.clone()).or_insert_with(|| tree.root.clone());
        format!("{SCHEME}://{key}/{}?{what}", percent_encode(path.as_os_str().as_bytes(), ESCAPED))
    }

    /// The provider of the scheme.
    pub(crate) fn into_point(self: Arc<Self>) -> ResourceProvider {
        ResourceProvider {
            read: Call::new(move |(uri, _): (String, Option<Reader>)| {
                let contents = self.clone();
                async move { contents.read(&uri).await }
            }),
            // Changes in a directory are available to callers that can read its files.
            authorize: Some(Call::now(|(_, reader): (String, Reader)| {
                Ok(reader.holds(&Grant::of("file", "get")))
            })),
            describe: Some(Call::now(|()| {
                Ok(SchemeDescription {
                    title: Some("Git".to_owned()),
                    description: Some(
                        "Contents of changed files: git-blob://<tree>/<path>?<object>.".to_owned(),
                    ),
                    manifest: None,
                })
            })),
            ..ResourceProvider::default()
        }
    }

    async fn read(&self, uri: &str) -> Result<ResourceContent, Thrown> {
        let none = || Thrown::from(RpcError::not_found(format!("no content at {uri}")));
        let rest = uri.strip_prefix(SCHEME).and_then(|rest| rest.strip_prefix("://")).ok_or_else(none)?;
        let parts = rest.rsplit_once('?').and_then(|(rest, what)| Some((rest.split_once('/')?, what)));
        let ((key, path), what) = parts.ok_or_else(none)?;
        let path = PathBuf::from(std::ffi::OsString::from_vec(percent_decode_str(path).collect()));
        let root = self.named.lock().get(key).cloned().ok_or_else(none)?;
        let tree = match self.trees.known(&root) {
            Some(tree) => tree,
            None => self.trees.of(&root).await?.ok_or_else(none)?,
        };
        match what {
            TREE => self.read_file(&tree, &path, uri).await,
            id if id.len() >= 40 && id.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                read_object(&tree, id, &path, uri).await
            }
            _ => Err(none()),
        }
    }

    /// Returns the current content of a changed or served file. Links are not followed.
    async fn read_file(&self, tree: &Arc<Tree>, path: &Path, uri: &str) -> Result<ResourceContent, Thrown> {
        let none = || Thrown::from(RpcError::not_found(format!("no changed file at {uri}")));
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || path.components().any(|part| part.as_os_str() == ".git") {
            return Err(none());
        }
        let full = tree.root.join(path);
        let folder = full.parent().map(Path::to_owned).unwrap_or_default();
        // A parent folder may have become a link.
        let real = tokio::fs::canonicalize(&folder).await.map_err(|_| none())?;
        let root = tokio::fs::canonicalize(&tree.root).await.map_err(|_| none())?;
        if !real.starts_with(root) || !(self.serves(tree, &real) || tree.lists(path).await?) {
            return Err(none());
        }
        if let Ok(target) = tokio::fs::read_link(&full).await {
            return Ok(ResourceContent::bytes(target.into_os_string().into_vec()));
        }
        read_bounded(full, uri).await?.map(ResourceContent::bytes).ok_or_else(none)
    }
}

/// A name for a tree, the same after a restart.
fn key(root: &Path) -> String {
    let hash = root.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

fn too_large(uri: &str) -> Thrown {
    RpcError::invalid_params(format!("{uri} is larger than {} MiB, the limit of a read", LARGEST >> 20))
        .into()
}

async fn read_object(tree: &Tree, id: &str, path: &Path, uri: &str) -> Result<ResourceContent, Thrown> {
    let gone =
        || Thrown::from(RpcError::not_found(format!("{uri}: the repository does not have this content")));
    let header =
        Git::read(&tree.root).args(["cat-file", "--batch-check"]).input(format!("{id}\n").into_bytes());
    let header = header.text().await?;
    let mut words = header.split(' ').skip(1);
    let size: u64 = match (words.next(), words.next()) {
        (Some("blob"), Some(size)) => size.parse().map_err(|_| gone())?,
        _ => return Err(gone()),
    };
    if size > LARGEST {
        return Err(too_large(uri));
    }
    let bytes = Git::read(&tree.root).args(["cat-file", "blob", id]).run().await?.into_bytes();
    if size < 1024 && bytes.starts_with(LFS) {
        return stored_elsewhere(tree, path, bytes, uri).await;
    }
    Ok(ResourceContent::bytes(bytes))
}

/// The content that a pointer of Git LFS names: from the store of this repository, as nothing is fetched for a read. Where
/// the file in the tree is a pointer too, both are shown.
async fn stored_elsewhere(
    tree: &Tree,
    path: &Path,
    pointer: Vec<u8>,
    uri: &str,
) -> Result<ResourceContent, Thrown> {
    let text = String::from_utf8_lossy(&pointer);
    let id = text.lines().find_map(|line| line.strip_prefix("oid sha256:")).unwrap_or_default().to_owned();
    if id.len() == 64 && id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        let stored = tree.repository.common_dir.join("lfs/objects").join(&id[..2]).join(&id[2..4]).join(&id);
        if let Some(bytes) = read_bounded(stored, uri).await? {
            return Ok(ResourceContent::bytes(bytes));
        }
    }
    let current = read_start(tree.root.join(path)).await;
    match current.starts_with(LFS) {
        true => Ok(ResourceContent::bytes(pointer)),
        false => Err(RpcError::not_found(format!(
            "{uri}: the content is in Git LFS and not on this machine; run git lfs fetch in {}",
            tree.root.display()
        ))
        .into()),
    }
}

async fn read_start(path: PathBuf) -> Vec<u8> {
    let read = move || {
        let mut start = Vec::new();
        if std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
            let _ = std::fs::File::open(path).map(|file| file.take(LFS.len() as u64).read_to_end(&mut start));
        }
        start
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

/// The bytes of a regular file; `None` if there is none.
async fn read_bounded(path: PathBuf, uri: &str) -> Result<Option<Vec<u8>>, Thrown> {
    let read = move || {
        if !std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(Some(bytes))
    };
    let bytes = tokio::task::spawn_blocking(read).await.map_err(Thrown::new)?;
    let bytes = bytes.map_err(|why| Thrown::new(format_args!("{uri}: {why}")))?;
    match bytes {
        Some(bytes) if bytes.len() as u64 > LARGEST => Err(too_large(uri)),
        bytes => Ok(bytes),
    }
}

/// The contents of several objects, but for those that are large or missing.
pub(crate) async fn objects(
    tree: &Tree,
    ids: &[String],
    most: u64,
) -> Result<HashMap<String, Vec<u8>>, Failure> {
    let mut found = HashMap::new();
    if ids.is_empty() {
        return Ok(found);
    }
    let asked = |ids: &[&str]| {
        ids.iter().flat_map(|id| [id.as_bytes(), b"\n"]).flatten().copied().collect::<Vec<u8>>()
    };
    let all: Vec<&str> = ids.iter().map(String::as_str).collect();
    let sizes = Git::read(&tree.root).args(["cat-file", "--batch-check"]).input(asked(&all)).text().await?;
    let small: Vec<&str> = sizes
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (id, kind, size) = (words.next()?, words.next()?, words.next()?.parse::<u64>().ok()?);
            (kind == "blob" && size <= most).then_some(id)
        })
        .collect();
    let out = Git::read(&tree.root).args(["cat-file", "--batch"]).input(asked(&small)).run().await?;
    let mut rest = &out[..];
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let header = String::from_utf8_lossy(&rest[..end]).into_owned();
        let mut words = header.split(' ');
        let (id, size) =
            (words.next().unwrap_or_default(), words.nth(1).and_then(|size| size.parse::<usize>().ok()));
        let Some(size) = size.filter(|size| end + 1 + size < rest.len()) else { break };
        found.insert(id.to_owned(), rest[end + 1..end + 1 + size].to_vec());
        rest = &rest[end + 2 + size..];
    }
    Ok(found)
}
