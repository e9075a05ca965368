//! Files: one operation per name, synchronously or on a blocking thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rquickjs::function::Rest;
use rquickjs::{Array, Ctx, Function, IntoJs, Object, Promise, Result, Value};

use super::{SystemError, system_error};
use crate::engine::State;
use crate::errors::type_error;
use crate::values::{bytes_of, bytes_to_js, text};

/// The first handle number of an open file, above the descriptors of the daemon.
const FIRST_HANDLE: u32 = 10_000;

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let files = State::of(ctx)?.files.clone();
    let native = Object::new(ctx.clone())?;
    let now = files.clone();
    native.set(
        "now",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, name: String, arguments: Rest<Value<'js>>| {
            let operation = Operation::read(&ctx, &now, name, &arguments)?;
            now.finish(&ctx, operation.run())
        }),
    )?;
    native.set(
        "later",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, name: String, arguments: Rest<Value<'js>>| {
            let operation = Operation::read(&ctx, &files, name, &arguments)?;
            let (files, inside) = (files.clone(), ctx.clone());
            Promise::wrap_future(&ctx, async move {
                let done = tokio::task::spawn_blocking(move || operation.run()).await;
                let done = done
                    .unwrap_or_else(|_| Err(SystemError::new(io::Error::other("it was cut short"), "fs")));
                files.finish(&inside, done)
            })
        }),
    )?;
    Ok(native)
}

/// The open files of an engine.
pub(crate) struct Files {
    open: RefCell<HashMap<u32, Arc<File>>>,
    next: Cell<u32>,
}

impl Default for Files {
    fn default() -> Self {
        Self { open: RefCell::default(), next: Cell::new(FIRST_HANDLE) }
    }
}

impl Files {
    /// Returns the open file with this handle.
    pub(super) fn get(&self, handle: u32) -> io::Result<Arc<File>> {
        let found = self.open.borrow().get(&handle).cloned();
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn finish<'js>(
        &self,
        ctx: &Ctx<'js>,
        done: std::result::Result<Done, SystemError>,
    ) -> Result<Value<'js>> {
        match done.map_err(|error| system_error(ctx, error))? {
            Done::Opened(file) => {
                let handle = self.next.get();
                self.next.set(handle + 1);
                self.open.borrow_mut().insert(handle, Arc::new(file));
                handle.into_js(ctx)
            }
            Done::Closed(handle) => {
                drop(self.open.borrow_mut().remove(&handle));
                ().into_js(ctx)
            }
            other => other.into_value(ctx),
        }
    }
}

/// The result of an operation.
enum Done {
    Nothing,
    Bytes(Vec<u8>),
    Text(String),
    Number(f64),
    Stat(Box<Metadata>),
    /// Names, each with the kind of its file.
    Entries(Vec<(String, u32)>),
    Opened(File),
    Closed(u32),
}

impl Done {
    fn into_value<'js>(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        match self {
            Self::Bytes(bytes) => bytes_to_js(ctx, bytes.into()),
            Self::Text(text) => text.into_js(ctx),
            Self::Number(number) => number.into_js(ctx),
            Self::Stat(stat) => stat_to_js(ctx, &stat),
            Self::Entries(entries) => {
                let list = Array::new(ctx.clone())?;
                for (at, (name, kind)) in entries.into_iter().enumerate() {
                    list.set(at * 2, name)?;
                    list.set(at * 2 + 1, kind)?;
                }
                Ok(list.into_value())
            }
            Self::Nothing | Self::Opened(_) | Self::Closed(_) => ().into_js(ctx),
        }
    }
}

/// An operation with its arguments, ready for another thread.
struct Operation {
    name: String,
    given: Vec<Given>,
    file: Option<Arc<File>>,
}

enum Given {
    Nothing,
    Text(String),
    Number(f64),
    Flag(bool),
    Bytes(Bytes),
}

impl Operation {
    fn read<'js>(ctx: &Ctx<'js>, files: &Files, name: String, arguments: &[Value<'js>]) -> Result<Self> {
        let given: Vec<Given> = arguments.iter().map(given).collect();
        // Names of operations on open files begin with `f`.
        let file = match name.starts_with('f').then(|| given.first()).flatten() {
            Some(Given::Number(handle)) => {
                let found = files.open.borrow().get(&handle_number(*handle)).cloned();
                if found.is_none() {
                    let closed = io::Error::from_raw_os_error(libc::EBADF);
                    return Err(system_error(ctx, SystemError::new(closed, syscall(&name))));
                }
                found
            }
            Some(_) => return Err(type_error(ctx, "The \"fd\" argument must be of type number")),
            None => None,
        };
        Ok(Self { name, given, file })
    }

    fn text(&self, at: usize) -> &str {
        match self.given.get(at) {
            Some(Given::Text(text)) => text,
            _ => "",
        }
    }

    fn flag(&self, at: usize) -> bool {
        matches!(self.given.get(at), Some(Given::Flag(true)))
    }

    fn number(&self, at: usize) -> Option<f64> {
        match self.given.get(at) {
            Some(Given::Number(number)) => Some(*number),
            _ => None,
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn whole(&self, at: usize) -> Option<u64> {
        self.number(at).filter(|number| *number >= 0.0).map(|number| number as u64)
    }

    fn mode(&self, at: usize, default: u32) -> u32 {
        self.whole(at).and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default)
    }

    fn bytes(&self, at: usize) -> Bytes {
        match self.given.get(at) {
            Some(Given::Bytes(bytes)) => bytes.clone(),
            Some(Given::Text(text)) => Bytes::copy_from_slice(text.as_bytes()),
            _ => Bytes::new(),
        }
    }

    /// Returns a time given in milliseconds.
    fn moment(&self, at: usize) -> SystemTime {
        let milliseconds = self.number(at).unwrap_or_default();
        UNIX_EPOCH + Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or_default()
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_deref().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn run(self) -> std::result::Result<Done, SystemError> {
        self.perform().map_err(|error| {
            let syscall = syscall(&self.name);
            let has_path = self.file.is_none();
            match self.name.as_str() {
                // Opening a folder succeeds; only reading it fails.
                "readFile" if error.raw_os_error() == Some(libc::EISDIR) => SystemError::new(error, "read"),
                "rename" | "copyFile" | "link" | "symlink" | "cp" => {
                    SystemError::between(error, syscall, self.text(0), self.text(1))
                }
                _ if has_path => SystemError::at(error, syscall, self.text(0)),
                _ => SystemError::new(error, syscall),
            }
        })
    }

    fn perform(&self) -> io::Result<Done> {
        let path = Path::new(self.text(0));
        let other = Path::new(self.text(1));
        match self.name.as_str() {
            "readFile" => fs::read(path).map(Done::Bytes),
            "writeFile" => {
                let mut file = open(path, self.text(2), self.mode(3, 0o666))?;
                file.write_all(&self.bytes(1))?;
                if self.flag(4) {
                    file.sync_all()?;
                }
                Ok(Done::Nothing)
            }
            "open" => open(path, self.text(1), self.mode(2, 0o666)).map(Done::Opened),
            "stat" => fs::metadata(path).map(|stat| Done::Stat(Box::new(stat))),
            "lstat" => fs::symlink_metadata(path).map(|stat| Done::Stat(Box::new(stat))),
            "readdir" => entries(path, self.flag(1)).map(Done::Entries),
            "mkdir" => make_folder(path, self.flag(1), self.mode(2, 0o777)),
            "mkdtemp" => make_temporary(self.text(0)).map(Done::Text),
            "rmdir" => fs::remove_dir(path).map(|()| Done::Nothing),
            "unlink" => fs::remove_file(path).map(|()| Done::Nothing),
            "rm" => remove(path, self.flag(1), self.flag(2)).map(|()| Done::Nothing),
            "rename" => fs::rename(path, other).map(|()| Done::Nothing),
            "copyFile" => copy(path, other, self.flag(2)),
            "cp" => copy_tree(path, other, self.flag(2), !self.flag(3)).map(|()| Done::Nothing),
            "link" => fs::hard_link(path, other).map(|()| Done::Nothing),
            "symlink" => std::os::unix::fs::symlink(path, other).map(|()| Done::Nothing),
            "readlink" => fs::read_link(path).map(|to| Done::Text(to.to_string_lossy().into_owned())),
            "realpath" => fs::canonicalize(path).map(|to| Done::Text(to.to_string_lossy().into_owned())),
            "chmod" => {
                fs::set_permissions(path, fs::Permissions::from_mode(self.mode(1, 0))).map(|()| Done::Nothing)
            }
            "chown" => {
                let id = |at| self.whole(at).and_then(|id| u32::try_from(id).ok());
                std::os::unix::fs::chown(path, id(1), id(2)).map(|()| Done::Nothing)
            }
            "utimes" => {
                let times = fs::FileTimes::new().set_accessed(self.moment(1)).set_modified(self.moment(2));
                File::open(path)?.set_times(times).map(|()| Done::Nothing)
            }
            "access" => access(path, self.mode(1, 0)).map(|()| Done::Nothing),
            "truncate" => {
                OpenOptions::new().write(true).open(path)?.set_len(self.whole(1).unwrap_or_default())?;
                Ok(Done::Nothing)
            }
            _ => self.perform_on_file(),
        }
    }

    fn perform_on_file(&self) -> io::Result<Done> {
        let file = self.file()?;
        match self.name.as_str() {
            "fclose" => Ok(Done::Closed(handle_number(self.number(0).unwrap_or_default()))),
            "fread" => {
                let length = usize::try_from(self.whole(1).unwrap_or_default()).unwrap_or_default();
                let mut bytes = vec![0; length.min(64 << 20)];
                let read = match self.whole(2) {
                    Some(at) => file.read_at(&mut bytes, at)?,
                    None => (&*file).read(&mut bytes)?,
                };
                bytes.truncate(read);
                Ok(Done::Bytes(bytes))
            }
            "fwrite" => {
                let bytes = self.bytes(1);
                match self.whole(2) {
                    Some(at) => file.write_all_at(&bytes, at)?,
                    None => (&*file).write_all(&bytes)?,
                }
                #[allow(clippy::cast_precision_loss)]
                Ok(Done::Number(bytes.len() as f64))
            }
            "freadFile" => {
                let mut bytes = Vec::new();
                (&*file).read_to_end(&mut bytes)?;
                Ok(Done::Bytes(bytes))
            }
            "fstat" => file.metadata().map(|stat| Done::Stat(Box::new(stat))),
            "fsync" => file.sync_all().map(|()| Done::Nothing),
            "fdatasync" => file.sync_data().map(|()| Done::Nothing),
            "ftruncate" => file.set_len(self.whole(1).unwrap_or_default()).map(|()| Done::Nothing),
            "fchmod" => {
                file.set_permissions(fs::Permissions::from_mode(self.mode(1, 0))).map(|()| Done::Nothing)
            }
            "futimes" => {
                let times = fs::FileTimes::new().set_accessed(self.moment(1)).set_modified(self.moment(2));
                file.set_times(times).map(|()| Done::Nothing)
            }
            _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }
}

/// Returns the system call that Node names in the error.
fn syscall(name: &str) -> &'static str {
    const CALLS: &[(&str, &str)] = &[
        ("readFile", "open"),
        ("writeFile", "open"),
        ("open", "open"),
        ("stat", "stat"),
        ("lstat", "lstat"),
        ("readdir", "scandir"),
        ("mkdir", "mkdir"),
        ("mkdtemp", "mkdtemp"),
        ("rmdir", "rmdir"),
        ("unlink", "unlink"),
        ("rm", "rm"),
        ("rename", "rename"),
        ("copyFile", "copyfile"),
        ("cp", "cp"),
        ("link", "link"),
        ("symlink", "symlink"),
        ("readlink", "readlink"),
        ("realpath", "realpath"),
        ("chmod", "chmod"),
        ("chown", "chown"),
        ("utimes", "utime"),
        ("access", "access"),
        ("truncate", "open"),
        ("fclose", "close"),
        ("fread", "read"),
        ("freadFile", "read"),
        ("fwrite", "write"),
        ("fstat", "fstat"),
        ("fsync", "fsync"),
        ("fdatasync", "fdatasync"),
        ("ftruncate", "ftruncate"),
        ("fchmod", "fchmod"),
        ("futimes", "futime"),
    ];
    CALLS.iter().find(|(known, _)| *known == name).map_or("fs", |(_, call)| call)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn handle_number(handle: f64) -> u32 {
    handle as u32
}

fn given(value: &Value<'_>) -> Given {
    if let Some(flag) = value.as_bool() {
        return Given::Flag(flag);
    }
    if let Some(number) = value.as_number() {
        return Given::Number(number);
    }
    if value.is_string() {
        return text(value).map_or(Given::Nothing, Given::Text);
    }
    bytes_of(value).map_or(Given::Nothing, Given::Bytes)
}

/// Opens a file with flags as for `fopen`.
fn open(path: &Path, flags: &str, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let plus = flags.contains('+');
    match flags.trim_end_matches(['+', 's', 'x']) {
        "r" | "" => options.read(true).write(plus),
        "w" => options.write(true).create(true).truncate(true).read(plus),
        "a" => options.append(true).create(true).read(plus),
        _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
    };
    if flags.contains('x') {
        options.create_new(true);
    }
    options.mode(mode).open(path)
}

fn access(path: &Path, mode: u32) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the path is a null-terminated string that outlives the call.
    let answer = unsafe { libc::access(path.as_ptr(), i32::try_from(mode).unwrap_or_default()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the kind as a `uv_dirent_t`, which Node's `Dirent` reads.
fn kind(of: fs::FileType) -> u32 {
    if of.is_file() {
        1
    } else if of.is_dir() {
        2
    } else if of.is_symlink() {
        3
    } else if of.is_fifo() {
        4
    } else if of.is_socket() {
        5
    } else if of.is_char_device() {
        6
    } else if of.is_block_device() {
        7
    } else {
        0
    }
}

fn entries(path: &Path, recursive: bool) -> io::Result<Vec<(String, u32)>> {
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let of = entry.file_type()?;
            let name = entry.path();
            let name = name.strip_prefix(path).unwrap_or(&name).to_string_lossy().into_owned();
            found.push((name, kind(of)));
            if recursive && of.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Creates a folder. With `recursive`, returns the topmost folder that was created.
fn make_folder(path: &Path, recursive: bool, mode: u32) -> io::Result<Done> {
    let first = path.ancestors().take_while(|above| !above.exists() && !above.as_os_str().is_empty()).last();
    let first = first.map(|path| path.to_string_lossy().into_owned());
    fs::DirBuilder::new().recursive(recursive).mode(mode).create(path)?;
    Ok(match first.filter(|_| recursive) {
        Some(first) => Done::Text(first),
        None => Done::Nothing,
    })
}

fn make_temporary(prefix: &str) -> io::Result<String> {
    for _ in 0..100 {
        let path = format!("{prefix}{}", super::random_letters(6));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done.map(|()| path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EEXIST))
}

fn remove(path: &Path, recursive: bool, force: bool) -> io::Result<()> {
    let stat = match fs::symlink_metadata(path) {
        Err(error) if force && error.kind() == io::ErrorKind::NotFound => return Ok(()),
        stat => stat?,
    };
    if !stat.is_dir() {
        fs::remove_file(path)
    } else if recursive {
        fs::remove_dir_all(path)
    } else {
        Err(io::Error::from_raw_os_error(libc::EISDIR))
    }
}

fn copy(from: &Path, to: &Path, only_new: bool) -> io::Result<Done> {
    if only_new && to.exists() {
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    fs::copy(from, to).map(|_| Done::Nothing)
}

fn copy_tree(from: &Path, to: &Path, recursive: bool, force: bool) -> io::Result<()> {
    let stat = fs::symlink_metadata(from)?;
    if stat.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    if !stat.is_dir() {
        return if force || !to.exists() { fs::copy(from, to).map(drop) } else { Ok(()) };
    }
    if !recursive {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if to.starts_with(from) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_tree(&entry.path(), &to.join(entry.file_name()), true, force)?;
    }
    Ok(())
}

fn stat_to_js<'js>(ctx: &Ctx<'js>, stat: &Metadata) -> Result<Value<'js>> {
    #[allow(clippy::cast_precision_loss)]
    let milliseconds = |seconds: i64, nanos: i64| seconds as f64 * 1000.0 + nanos as f64 / 1e6;
    let born = stat.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let changed = milliseconds(stat.ctime(), stat.ctime_nsec());
    #[allow(clippy::cast_precision_loss)]
    let numbers = [
        ("dev", stat.dev() as f64),
        ("mode", f64::from(stat.mode())),
        ("nlink", stat.nlink() as f64),
        ("uid", f64::from(stat.uid())),
        ("gid", f64::from(stat.gid())),
        ("rdev", stat.rdev() as f64),
        ("blksize", stat.blksize() as f64),
        ("ino", stat.ino() as f64),
        ("size", stat.size() as f64),
        ("blocks", stat.blocks() as f64),
        ("atimeMs", milliseconds(stat.atime(), stat.atime_nsec())),
        ("mtimeMs", milliseconds(stat.mtime(), stat.mtime_nsec())),
        ("ctimeMs", changed),
        ("birthtimeMs", born.map_or(changed, |born| born.as_secs_f64() * 1000.0)),
    ];
    let object = Object::new(ctx.clone())?;
    for (name, number) in numbers {
        object.set(name, number)?;
    }
    Ok(object.into_value())
}
