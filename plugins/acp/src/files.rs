//! `fs/*`: reading and writing of files by agents through the host, within the session's directories.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, OpenOptions, OpenOptionsExt as _};
use ostler_contract::{Value, json};

use crate::agent_connection::Failure;
use crate::buffers::Unsaved;
use crate::protocol::member;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 16 << 20;
/// The flag that opens a pipe without waiting for its other end.
const NONBLOCK: i32 = if cfg!(target_os = "linux") { 0o4000 } else { 0x4 };

/// The directories of a session.
#[derive(Debug, Clone)]
pub struct Files {
    directories: Vec<PathBuf>,
    unsaved: Option<Unsaved>,
}

/// A file by its path below a directory of the session, both without links.
#[derive(Debug)]
struct Inside {
    directory: PathBuf,
    below: PathBuf,
}

impl Files {
    /// Creates it for these directories.
    pub fn within(directories: Vec<PathBuf>) -> Self {
        Self { directories, unsaved: None }
    }

    /// Adds unsaved text of clients.
    pub fn with(self, unsaved: Unsaved) -> Self {
        Self { unsaved: Some(unsaved), ..self }
    }

    /// Answers an `fs/*` request.
    ///
    /// # Errors
    /// The file is outside the session's directories, or cannot be read or written.
    pub async fn serve(&self, method: &str, params: &Value) -> Result<Value, Failure> {
        let path: PathBuf = member(params, "path").ok_or_else(|| Failure::bad_params("path is missing"))?;
        let file = self.inside(&path).await?;
        match method {
            "fs/read_text_file" => {
                let open = match &self.unsaved {
                    Some(unsaved) => unsaved.text(&path).await,
                    None => None,
                };
                let text = match open {
                    Some(text) => text,
                    None => blocking(move || file.read()).await.map_err(|why| refused(&path, &why))?,
                };
                let lines = |name| member::<usize>(params, name);
                Ok(json!({ "content": part(&text, lines("line"), lines("limit")) }))
            }
            "fs/write_text_file" => {
                let text: String =
                    member(params, "content").ok_or_else(|| Failure::bad_params("content is missing"))?;
                blocking(move || file.write(&text)).await.map_err(|why| refused(&path, &why))?;
                Ok(json!({}))
            }
            other => Err(Failure::unknown_method(other)),
        }
    }

    /// Returns the place of a file, if it is inside one of the directories.
    async fn inside(&self, path: &Path) -> Result<Inside, Failure> {
        if !path.is_absolute() {
            return Err(Failure::bad_params(format!("{} is not an absolute path", path.display())));
        }
        let real = real(path).await.map_err(|why| refused(path, &why))?;
        for directory in &self.directories {
            if let Ok(directory) = tokio::fs::canonicalize(directory).await
                && let Ok(below) = real.strip_prefix(&directory)
            {
                let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
                return Ok(Inside { below: below.to_owned(), directory });
            }
        }
        Err(Failure::bad_params(format!("{} is outside the session's directories", path.display())))
    }
}

impl Inside {
    /// Opens the file below the open directory. A link that has replaced a part of the path since it was resolved does
    /// not lead out of the directory.
    fn open(&self, options: &mut OpenOptions) -> io::Result<cap_std::fs::File> {
        let directory = Dir::open_ambient_dir(&self.directory, ambient_authority())?;
        if let Ok(there) = directory.metadata(&self.below) {
            regular(&there)?;
        }
        let file = directory.open_with(&self.below, options.custom_flags(NONBLOCK))?;
        regular(&file.metadata()?)?;
        Ok(file)
    }

    fn read(&self) -> io::Result<String> {
        let file = self.open(OpenOptions::new().read(true))?;
        let too_large = || io::Error::other(format!("the file is larger than {LARGEST} bytes"));
        if file.metadata()?.len() > LARGEST {
            return Err(too_large());
        }
        // The size of some files is not known before they are read.
        let mut text = String::new();
        file.take(LARGEST + 1).read_to_string(&mut text)?;
        match u64::try_from(text.len()) {
            Ok(length) if length <= LARGEST => Ok(text),
            _ => Err(too_large()),
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut file = self.open(OpenOptions::new().write(true).create(true).truncate(false))?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())
    }
}

/// Runs work on files outside the runtime's threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Returns whether a real path is inside one of the directories.
pub async fn contains(directories: &[PathBuf], real: &Path) -> bool {
    for directory in directories {
        if let Ok(directory) = tokio::fs::canonicalize(directory).await
            && real.starts_with(&directory)
        {
            return true;
        }
    }
    false
}

/// Rejects everything but regular files, because reading a pipe or a device can block forever.
fn regular(there: &Metadata) -> io::Result<()> {
    match there.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Resolves a path whose last parts may not exist yet.
async fn real(path: &Path) -> io::Result<PathBuf> {
    match tokio::fs::canonicalize(path).await {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            // Writing would follow a dangling link.
            if tokio::fs::symlink_metadata(path).await.is_ok() {
                return Err(why);
            }
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(why) };
            Ok(tokio::fs::canonicalize(parent).await?.join(name))
        }
        other => other,
    }
}

/// Returns `limit` lines from `line` on, which counts from 1.
fn part(text: &str, line: Option<usize>, limit: Option<usize>) -> String {
    if line.is_none() && limit.is_none() {
        return text.to_owned();
    }
    let from = line.unwrap_or(1).saturating_sub(1);
    text.split_inclusive('\n').skip(from).take(limit.unwrap_or(usize::MAX)).collect()
}

fn refused(path: &Path, why: &io::Error) -> Failure {
    const RESOURCE_NOT_FOUND: i32 = -32002;
    match why.kind() {
        io::ErrorKind::NotFound => Failure::Refused {
            code: RESOURCE_NOT_FOUND,
            message: format!("{} is missing", path.display()),
            data: Some(json!({ "uri": crate::tool_content::file_uri(&path.display().to_string()) })),
        },
        _ => Failure::internal(format!("{}: {why}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one() {
        let text = "a\nb\nc\n";
        assert_eq!(part(text, None, None), text);
        assert_eq!(part(text, Some(2), None), "b\nc\n");
        assert_eq!(part(text, Some(2), Some(1)), "b\n");
        assert_eq!(part(text, None, Some(2)), "a\nb\n");
        assert_eq!(part(text, Some(9), None), "");
    }

    #[tokio::test]
    async fn nothing_outside_the_directories_is_read_or_written() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::write(&outside, "secret").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("nowhere"), inside.join("dangling")).unwrap();
        let files = Files::within(vec![inside.clone()]);
        let (read, write) = ("fs/read_text_file", "fs/write_text_file");
        for path in [
            outside.clone(),
            inside.join("link"),
            inside.join("../out"),
            inside.join("dangling"),
            "out".into(),
        ] {
            let params = json!({ "sessionId": "s", "path": path, "content": "changed" });
            files.serve(read, &params).await.unwrap_err();
            files.serve(write, &params).await.unwrap_err();
        }
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "secret");
        assert!(!folder.path().join("nowhere").exists());
        let params = json!({ "path": inside.join("new"), "content": "a\nb\n", "line": 2 });
        files.serve(write, &params).await.unwrap();
        assert_eq!(files.serve(read, &params).await.unwrap(), json!({ "content": "b\n" }));
    }

    #[tokio::test]
    async fn a_link_that_replaces_a_folder_after_the_check_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        std::fs::create_dir_all(inside.join("d")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "secret").unwrap();
        let files = Files::within(vec![inside.clone()]);
        for (name, target) in [("d/new", "out"), ("d/secret", "out"), ("f", "out/secret")] {
            let link = inside.join(name.split('/').next().unwrap());
            let place = files.inside(&inside.join(name)).await.unwrap();
            std::fs::remove_dir_all(&link).or_else(|_| std::fs::remove_file(&link)).ok();
            for to in [folder.path().join(target), Path::new("..").join(target)] {
                std::os::unix::fs::symlink(to, &link).unwrap();
                place.write("changed").unwrap_err();
                place.read().unwrap_err();
                std::fs::remove_file(&link).unwrap();
            }
            std::fs::create_dir(inside.join("d")).ok();
        }
        assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "secret");
        assert!(!outside.join("new").exists());
        // A link that stays inside is one of the session's own files.
        std::fs::write(inside.join("own"), "").unwrap();
        let place = files.inside(&inside.join("g")).await.unwrap();
        std::os::unix::fs::symlink("own", inside.join("g")).unwrap();
        place.write("changed").unwrap();
        assert_eq!(std::fs::read_to_string(inside.join("own")).unwrap(), "changed");
    }
}
