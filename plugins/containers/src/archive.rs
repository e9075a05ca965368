//! Transfer of files into and out of machines: tar archives with bounded memory.

use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use ostler_contract::{Budget, Charge};
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;

use crate::runtime::{Failure, Kind};

/// The maximum size of a file that is read from a machine or written into one, in bytes.
pub const FILE_LIMIT: usize = 16 << 20;
/// The overhead of the archive of one file.
const ENVELOPE: usize = 64 << 10;
/// The budget of files that are read concurrently.
const MEMORY: usize = 64 << 20;
/// The size of a piece, and the maximum number of queued pieces.
const PIECE: usize = 64 << 10;
const PIECES: usize = 4;

static FILES: LazyLock<Budget> = LazyLock::new(|| Budget::new(MEMORY));

/// A file or directory for an archive.
#[derive(Debug, Clone)]
pub enum Packed {
    /// A directory, empty.
    Directory(String),
    /// A file or directory of this host, with everything below it.
    Copy(PathBuf, String),
}

/// An archive of a file in memory.
pub fn file(name: &str, data: &[u8], mode: u32) -> io::Result<Bytes> {
    let mut archive = Builder::new(Vec::with_capacity(data.len() + ENVELOPE));
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(mode);
    header.set_size(data.len() as u64);
    archive.append_data(&mut header, name, data)?;
    Ok(archive.into_inner()?.into())
}

/// An archive of files of this host, read while it is sent.
pub fn pack(entries: Vec<Packed>) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
    let (send, receive) = mpsc::channel::<io::Result<Bytes>>(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut archive = Builder::new(Pieces { send: send.clone(), piece: Vec::with_capacity(PIECE) });
        // A link inside a directory stays a link, so that no file outside is copied.
        archive.follow_symlinks(false);
        if let Err(error) = entries
            .iter()
            .try_for_each(|entry| add(&mut archive, entry))
            .and_then(|()| archive.finish())
            .and_then(|()| archive.get_mut().flush())
        {
            let _ = send.blocking_send(Err(error));
        }
    });
    futures::stream::unfold(receive, |mut receive| async move { Some((receive.recv().await?, receive)) })
}

fn add(archive: &mut Builder<Pieces>, entry: &Packed) -> io::Result<()> {
    match entry {
        Packed::Directory(name) => {
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Directory);
            header.set_mode(0o755);
            header.set_size(0);
            archive.append_data(&mut header, format!("{}/", name.trim_matches('/')), io::empty())
        }
        Packed::Copy(source, name) => {
            let real = source.canonicalize()?;
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", source.display()));
            if real.is_dir() {
                copy_directory(archive, &real, Path::new(name))
            } else {
                copy_file(archive, &real, Path::new(name))
            }
            .map_err(named)
        }
    }
}

/// Owners are those of the machine: its root.
fn header_of(facts: &std::fs::Metadata, kind: EntryType, size: u64) -> Header {
    use std::os::unix::fs::PermissionsExt as _;
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(facts.permissions().mode() & 0o777);
    header.set_size(size);
    header
}

fn copy_file(archive: &mut Builder<Pieces>, path: &Path, name: &Path) -> io::Result<()> {
    let file = std::fs::File::open(path)?;
    let facts = file.metadata()?;
    let mut header = header_of(&facts, EntryType::Regular, facts.len());
    // A file that grows in the meantime would make the archive invalid.
    archive.append_data(&mut header, name, file.take(facts.len()))
}

fn copy_directory(archive: &mut Builder<Pieces>, path: &Path, name: &Path) -> io::Result<()> {
    let facts = path.metadata()?;
    let mut header = header_of(&facts, EntryType::Directory, 0);
    archive.append_data(&mut header, name.join(""), io::empty())?;
    for entry in path.read_dir()? {
        let entry = entry?;
        let (path, name, kind) = (entry.path(), name.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            copy_directory(archive, &path, &name)?;
        } else if kind.is_symlink() {
            let mut header = header_of(&path.symlink_metadata()?, EntryType::Symlink, 0);
            archive.append_link(&mut header, name, std::fs::read_link(&path)?)?;
        } else if kind.is_file() {
            copy_file(archive, &path, &name)?;
        }
    }
    Ok(())
}

/// A writer that collects data into pieces.
struct Pieces {
    send: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.send.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Bytes that were read, charged to a budget until they are dropped.
#[derive(Debug)]
pub struct Read {
    pub bytes: Vec<u8>,
    _charge: Charge,
}

/// Collects the data of a stream up to a limit; the rest is not read.
pub async fn gather<E>(
    what: &str,
    limit: usize,
    pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<Result<Read, E>, Failure> {
    gather_within(&FILES, what, limit, pieces).await
}

async fn gather_within<E>(
    budget: &Budget,
    what: &str,
    limit: usize,
    mut pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<Result<Read, E>, Failure> {
    let too_large = || Failure::new(Kind::Invalid, format_args!("{what}: more than {} KiB", limit >> 10));
    let busy = || Failure::new(Kind::Failed, format_args!("{what}: no memory is left for it; try again"));
    let mut charge = budget.try_take(0).ok_or_else(busy)?;
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => return Ok(Err(error)),
        };
        if bytes.len() + piece.len() > limit {
            return Err(too_large());
        }
        if bytes.len() + piece.len() > bytes.capacity() {
            let capacity = (bytes.len() + piece.len()).max(bytes.capacity() * 2).min(limit);
            let more = budget.try_take(capacity).ok_or_else(busy)?;
            bytes.reserve_exact(capacity - bytes.len());
            charge = more;
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Ok(Read { bytes, _charge: charge }))
}

/// Collects an archive of one file and returns its content.
pub async fn one_file<E>(
    what: &str,
    pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<Result<Read, E>, Failure> {
    let archive = match gather(what, FILE_LIMIT + ENVELOPE, pieces).await? {
        Ok(archive) => archive,
        Err(error) => return Ok(Err(error)),
    };
    let unreadable = |error: io::Error| Failure::new(Kind::Failed, format_args!("{what}: {error}"));
    let mut entries = tar::Archive::new(&archive.bytes[..]);
    let mut entry = match entries.entries().map_err(unreadable)?.next() {
        Some(entry) => entry.map_err(unreadable)?,
        None => return Err(Failure::new(Kind::Missing, format_args!("{what}: does not exist"))),
    };
    if entry.header().entry_type() != EntryType::Regular {
        return Err(Failure::new(Kind::Invalid, format_args!("{what}: not a file")));
    }
    let mut bytes = Vec::with_capacity(archive.bytes.len());
    entry.read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(Ok(Read { bytes, _charge: archive._charge }))
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;
    use futures::stream;

    use super::*;

    async fn whole(entries: Vec<Packed>) -> io::Result<Vec<u8>> {
        let pieces: Vec<Bytes> = pack(entries).try_collect().await?;
        Ok(pieces.concat())
    }

    #[tokio::test]
    async fn a_directory_arrives_as_it_is_and_links_stay_links() {
        let from = tempfile::tempdir().unwrap();
        std::fs::create_dir(from.path().join("deep")).unwrap();
        std::fs::write(from.path().join("deep/large"), vec![7; 300_000]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.path().join("link")).unwrap();
        let packed =
            vec![Packed::Directory("/home".into()), Packed::Copy(from.path().to_owned(), "home/it".into())];
        let bytes = whole(packed).await.unwrap();
        let to = tempfile::tempdir().unwrap();
        tar::Archive::new(&bytes[..]).unpack(to.path()).unwrap();
        assert_eq!(std::fs::read(to.path().join("home/it/deep/large")).unwrap(), vec![7; 300_000]);
        let link = to.path().join("home/it/link");
        assert_eq!(std::fs::read_link(link).unwrap(), Path::new("/etc/passwd"));
    }

    #[tokio::test]
    async fn a_missing_file_fails_the_archive() {
        assert!(whole(vec![Packed::Copy("/no/such/file".into(), "x".into())]).await.is_err());
    }

    #[tokio::test]
    async fn a_flood_is_not_read() {
        let piece = Bytes::from(vec![0; 1 << 20]);
        let flood = stream::repeat_with(|| Ok::<_, ()>(piece.clone()));
        // Other tests of this process read at the same time.
        let budget = Budget::new(MEMORY);
        let limit = FILE_LIMIT + ENVELOPE;
        let why = gather_within(&budget, "/flood", limit, Box::pin(flood)).await.unwrap_err();
        assert_eq!(why.message, format!("/flood: more than {} KiB", limit >> 10));
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn one_file_is_read_and_a_directory_is_none() {
        let sent = file("hay", b"green", 0o600).unwrap();
        let read = one_file("hay", stream::iter([Ok::<_, ()>(sent)])).await.unwrap().unwrap();
        assert_eq!(read.bytes, b"green");
        let sent = whole(vec![Packed::Directory("d".into())]).await.unwrap().into();
        let why = one_file("d", stream::iter([Ok::<_, ()>(sent)])).await.unwrap_err();
        assert_eq!(why.message, "d: not a file");
    }
}
