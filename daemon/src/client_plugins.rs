//! The folders that the plugins of clients are copied to: `client-plugins/<session>/<copy>` in the state directory.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::{BoxFuture, FutureExt};
use ostler_engine::PluginFolders;

/// The directory with all of them.
const FOLDER: &str = "client-plugins";
/// How many bytes of a session's id its folder's name has.
const NAME_MAX: usize = 64;

/// Folders for copies, on the disk.
#[derive(Debug)]
pub struct ClientPluginFolders {
    root: PathBuf,
    next: Arc<AtomicU64>,
}

impl ClientPluginFolders {
    /// The folders in a state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { root: state_dir.join(FOLDER), next: Arc::default() }
    }

    /// Removes what a daemon left that was killed. Only one that alone uses the state directory may.
    pub fn sweep(state_dir: &Path) {
        let _ = fs::remove_dir_all(state_dir.join(FOLDER));
    }
}

impl PluginFolders for ClientPluginFolders {
    fn make<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<String, String>> {
        let (session, next) = (self.root.join(name_of(session)), self.next.clone());
        on_disk(move || {
            // Another copy's end may remove the session's folder meanwhile, and another daemon may have the number.
            let mut tries = 0..100;
            loop {
                let folder = session.join(next.fetch_add(1, Ordering::Relaxed).to_string());
                let made =
                    private().recursive(true).create(&session).and_then(|()| private().create(&folder));
                match made {
                    Ok(()) => {
                        let path = folder.to_str().map(str::to_owned);
                        return path.ok_or_else(|| format!("{} is not UTF-8 text", folder.display()));
                    }
                    Err(error) if tries.next().is_none() => return Err(failed(&folder, &error)),
                    Err(_) => {}
                }
            }
        })
    }

    fn write<'a>(
        &'a self,
        folder: &'a str,
        path: &'a [String],
        bytes: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), String>> {
        let mut file = PathBuf::from(folder);
        file.extend(path);
        on_disk(move || {
            let write = || -> io::Result<()> {
                if let Some(directory) = file.parent() {
                    private().recursive(true).create(directory)?;
                }
                // A new one: names that differ in case alone may be one file here.
                OpenOptions::new().write(true).create_new(true).open(&file)?.write_all(&bytes)
            };
            write().map_err(|error| failed(&file, &error))
        })
    }

    fn remove(&self, folder: &str) {
        let folder = PathBuf::from(folder);
        let remove = move || {
            let _ = fs::remove_dir_all(&folder);
            // Not while the session has others.
            let _ = folder.parent().map(fs::remove_dir);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// Readable by nobody else.
fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{} could not be written: {error}", path.display())
}

/// The name of a session's folder: its id, as far as that is a file name.
fn name_of(session: &str) -> String {
    let plain = |character: char| match character.is_ascii_alphanumeric() || character == '-' {
        true => character,
        false => '_',
    };
    session.chars().map(plain).take(NAME_MAX).chain((session.is_empty()).then_some('_')).collect()
}

fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> BoxFuture<'static, Result<T, String>> {
    let done = tokio::task::spawn_blocking(work);
    async move { done.await.map_err(|error| error.to_string())? }.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_for_its_session_and_stays_in_its_place() {
        assert_eq!(name_of("3f-a"), "3f-a");
        assert_eq!(name_of("../../etc"), "______etc");
        assert_eq!(name_of(&"a".repeat(300)).len(), NAME_MAX);
        assert_eq!(name_of(""), "_");
    }

    #[tokio::test]
    async fn a_file_is_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let folders = ClientPluginFolders::new(dir.path());
        let folder = folders.make("one").await.unwrap();
        let path = ["skills".to_owned(), "a.md".to_owned()];
        folders.write(&folder, &path, b"one".to_vec()).await.unwrap();
        assert!(folders.write(&folder, &path, b"two".to_vec()).await.is_err());
        assert_eq!(fs::read(Path::new(&folder).join("skills/a.md")).unwrap(), b"one");
    }
}
