//! Resolution of URIs to files in served directories. Nothing outside them is opened, even through links, because paths
//! are resolved below an open directory, never from the root.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use ostler_contract::points::served_trees;
use ostler_contract::{RpcError, problem};
use url::Url;

use super::git_folder::{Alone, alone_for, is_in_git_folder};
use super::path_index::PathIndex;

/// The served directories, and private ones, which are not served even below served ones.
#[derive(Debug, Clone)]
pub(super) struct Roots {
    served: Vec<PathBuf>,
    private: Vec<PathBuf>,
    /// The paths of large directories.
    pub(super) names: PathIndex,
}

/// A path below a served directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServedPath {
    /// The URI from the request, for messages.
    pub uri: String,
    root: PathBuf,
    /// Below the root; empty for the root itself.
    path: PathBuf,
}

/// A file or directory by its name in an open directory.
pub(super) struct NamedFile {
    pub folder: Dir,
    pub name: OsString,
    /// Held while a name is changed that makes a folder one of git's.
    _alone: Option<Alone>,
}

impl Roots {
    pub fn new(served: &[PathBuf], private: &[PathBuf]) -> Self {
        let found = |path: &PathBuf| real(path).unwrap_or_else(|| path.clone());
        Self {
            served: served.iter().map(found).collect(),
            private: private.iter().map(found).collect(),
            names: PathIndex::default(),
        }
    }

    /// Resolves a URI.
    pub fn locate(&self, uri: &str) -> Result<ServedPath, RpcError> {
        let path = path_of(uri)?;
        let there = real(&path).unwrap_or_else(|| path.clone());
        let place = self
            .below(&path)
            .or_else(|| self.below(&there))
            .map(|(root, path)| ServedPath { uri: uri.to_owned(), root, path })
            .ok_or_else(|| outside(uri))?;
        if self.is_private(&there) { Err(private(uri)) } else { Ok(place) }
    }

    /// Returns whether a real path is private to the host. A directory below a private one that is explicitly served is
    /// not.
    pub fn is_private(&self, path: &Path) -> bool {
        self.private.iter().filter(|own| path.starts_with(own)).any(|own| {
            let meant = |root: PathBuf| root != *own && root.starts_with(own);
            !self.roots_of(path).any(meant)
        })
    }

    /// Rejects an operation on a directory that contains private files.
    pub fn holds_nothing_private(&self, place: &ServedPath) -> Result<(), RpcError> {
        let path = place.path();
        let path = real(&path).unwrap_or(path);
        match self.private.iter().any(|own| own.starts_with(&path)) {
            true => Err(RpcError::permission_denied(format!(
                "{} contains this host's configuration folder, which is not served; name the other files in it one by one",
                place.uri
            ))),
            false => Ok(()),
        }
    }

    /// Rejects a change in one of git's own folders, also through links.
    pub fn is_changeable(&self, place: &ServedPath) -> Result<(), RpcError> {
        let path = place.path();
        // A link at the end is not followed.
        let there =
            path.parent().and_then(real).zip(path.file_name()).map(|(folder, name)| folder.join(name));
        let followed = real(&path);
        let paths = [Some(path.clone()), there, followed];
        match paths.into_iter().flatten().any(|path| is_in_git_folder(&path)) {
            true => Err(in_git_folder(&place.uri)),
            false => Ok(()),
        }
    }

    /// Returns the roots above a path: served directories, and the folders of their working trees.
    fn roots_of(&self, path: &Path) -> impl Iterator<Item = PathBuf> {
        let served = self.served.iter().filter(move |root| path.starts_with(root)).cloned();
        served.chain(self.served.iter().filter_map(move |root| trees_of(root, path)))
    }

    /// Returns the nearest root above a path, and the rest of the path.
    fn below(&self, path: &Path) -> Option<(PathBuf, PathBuf)> {
        let root = self.roots_of(path).max_by_key(|root| root.components().count())?;
        let rest = path.strip_prefix(&root).ok()?.to_owned();
        Some((root, rest))
    }

    /// Runs an operation on a path. A link that leaves its root is followed if its target is served; other links are
    /// rejected.
    pub fn at<T>(
        &self,
        place: &ServedPath,
        work: impl Fn(&Dir, &Path) -> io::Result<T>,
    ) -> Result<T, RpcError> {
        let on = |place: &ServedPath| {
            let root = Dir::open_ambient_dir(&place.root, ambient_authority())?;
            work(&root, place.below_root())
        };
        match on(place) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => match self.where_it_leads(place) {
                Some(real) => on(&real).map_err(|error| refusal(&place.uri, &error)),
                None => Err(refusal(&place.uri, &error)),
            },
            done => done.map_err(|error| refusal(&place.uri, &error)),
        }
    }

    fn where_it_leads(&self, place: &ServedPath) -> Option<ServedPath> {
        let real = std::fs::canonicalize(place.root.join(&place.path)).ok()?;
        if self.is_private(&real) {
            return None;
        }
        let (root, path) = self.below(&real)?;
        let real = ServedPath { uri: place.uri.clone(), root, path };
        (real != *place).then_some(real)
    }

    /// Opens the parent directory of a path and returns it with the name, for operations that must not follow a link at
    /// the end.
    pub fn named(&self, place: &ServedPath) -> Result<NamedFile, RpcError> {
        let Some(name) = place.path.file_name().map(OsString::from) else {
            let why = format!("{} is a directory this host serves; it cannot be moved or deleted", place.uri);
            return Err(RpcError::permission_denied(why));
        };
        let parent =
            ServedPath { path: place.path.parent().unwrap_or(Path::new("")).to_owned(), ..place.clone() };
        let folder = self.at(&parent, |root, path| root.open_dir(path))?;
        Ok(NamedFile { folder, name, _alone: None })
    }

    /// Opens the parent directory of a path for a change, which is not in one of git's own folders.
    pub fn changed(&self, place: &ServedPath) -> Result<NamedFile, RpcError> {
        let alone = place.path.file_name().and_then(alone_for);
        self.is_changeable(place)?;
        let named = NamedFile { _alone: alone, ..self.named(place)? };
        // A folder above can have become a link since.
        match opened(&named.folder).is_some_and(|folder| is_in_git_folder(&folder.join(&named.name))) {
            true => Err(in_git_folder(&place.uri)),
            false => Ok(named),
        }
    }

    /// Returns the real path, with links followed, if it is served.
    pub fn real(&self, place: &ServedPath) -> Result<PathBuf, RpcError> {
        // Opened first, so that only readable files are reported.
        self.at(place, |root, path| root.metadata(path).map(drop))?;
        let real = std::fs::canonicalize(place.root.join(&place.path))
            .map_err(|error| refusal(&place.uri, &error))?;
        self.below(&real).map(|_| real).ok_or_else(|| outside(&place.uri))
    }
}

/// Returns the folder with the working trees of a served directory, if a path is in it.
fn trees_of(root: &Path, path: &Path) -> Option<PathBuf> {
    let trees = served_trees(root, path, |folder| folder.join(".git").exists())?;
    // A link would lead outside the repository.
    std::fs::canonicalize(&trees).is_ok_and(|real| real == trees).then_some(trees)
}

impl ServedPath {
    /// Returns the path below the root in a form that can be opened.
    fn below_root(&self) -> &Path {
        if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path }
    }

    /// Returns the path as requested.
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.path)
    }

    /// Returns the path of a name in this directory.
    pub fn inside(mut self, name: &str) -> Self {
        self.path.push(name);
        self
    }

    /// Returns whether another path is this one, or below it.
    pub fn holds(&self, other: &Self) -> bool {
        other.root.join(&other.path).starts_with(self.root.join(&self.path))
    }
}

/// Converts a `file:` URI or an absolute path to a path without `..`.
fn path_of(uri: &str) -> Result<PathBuf, RpcError> {
    let wrong = |why: &str| RpcError::invalid_params(format!("{uri} {why}"));
    let path = match uri.starts_with('/') {
        true => PathBuf::from(uri),
        false => {
            let url = Url::parse(uri).ok().filter(|url| url.scheme() == "file");
            let url = url.ok_or_else(|| wrong("is neither a file: URI nor an absolute path"))?;
            if url.query().is_some() || url.fragment().is_some() {
                return Err(wrong("has a ? or a # that is not encoded"));
            }
            url.to_file_path().map_err(|()| wrong("is not a file of this computer"))?
        }
    };
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(wrong("contains a zero byte"));
    }
    if !path.is_absolute() || path.components().any(|part| matches!(part, Component::ParentDir)) {
        return Err(wrong("contains ..; name the file itself"));
    }
    Ok(path.components().filter(|part| !matches!(part, Component::CurDir)).collect())
}

/// Follows the links in the existing part of a path.
pub(super) fn real(path: &Path) -> Option<PathBuf> {
    let there = path.ancestors().find_map(|part| Some((part, std::fs::canonicalize(part).ok()?)))?;
    let rest = path.strip_prefix(there.0).ok()?;
    Some(there.1.join(rest))
}

/// Returns the path of an open directory, on systems that know it.
fn opened(folder: &Dir) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).ok()
}

fn in_git_folder(uri: &str) -> RpcError {
    RpcError::permission_denied(format!(
        "{uri} is in git's own folder, which is not written for clients, as its files name programs that git runs; use git"
    ))
}

fn private(uri: &str) -> RpcError {
    RpcError::permission_denied(format!("{uri} is this host's configuration, which is not served"))
}

fn outside(uri: &str) -> RpcError {
    RpcError::permission_denied(problem::outside(uri))
}

/// Converts an error of the operating system for clients.
pub(super) fn refusal(uri: &str, error: &io::Error) -> RpcError {
    match error.kind() {
        ErrorKind::NotFound => RpcError::not_found(format!("{uri} does not exist")),
        ErrorKind::AlreadyExists => RpcError::already_exists(format!("{uri} already exists")),
        // The library's rejection has no error number of the system.
        ErrorKind::PermissionDenied if error.raw_os_error().is_none() => outside(uri),
        ErrorKind::PermissionDenied => {
            RpcError::permission_denied(format!("the operating system denies access to {uri}"))
        }
        ErrorKind::NotADirectory => RpcError::invalid_params(format!("{uri} is not a directory")),
        ErrorKind::IsADirectory => RpcError::invalid_params(format!("{uri} is a directory")),
        ErrorKind::DirectoryNotEmpty => {
            RpcError::invalid_params(format!("{uri} is a directory that is not empty"))
        }
        ErrorKind::InvalidInput | ErrorKind::InvalidFilename => {
            RpcError::invalid_params(format!("{uri} is not a valid file name on this system"))
        }
        _ => RpcError::internal(format!("{uri}: {error}")),
    }
}

/// Returns the URI of a path.
pub(super) fn uri_of(path: &Path) -> String {
    Url::from_file_path(path).map_or_else(|()| path.display().to_string(), String::from)
}
