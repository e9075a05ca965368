//! Errors of the operating system in Node's format: `ENOENT: no such file or directory, open '/a'`.

use std::io;

use rquickjs::{Ctx, Error, Result, Value};

/// A failed system call.
#[derive(Debug)]
pub(crate) struct SystemError {
    pub(crate) error: io::Error,
    pub(crate) syscall: &'static str,
    pub(crate) path: Option<String>,
    pub(crate) dest: Option<String>,
    /// The peer of a socket. In these messages, the call comes first, then the code, then the peer.
    peer: Option<String>,
}

impl SystemError {
    pub(crate) fn new(error: io::Error, syscall: &'static str) -> Self {
        Self { error, syscall, path: None, dest: None, peer: None }
    }

    pub(crate) fn at(error: io::Error, syscall: &'static str, path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..Self::new(error, syscall) }
    }

    pub(crate) fn between(error: io::Error, syscall: &'static str, path: &str, dest: &str) -> Self {
        Self { dest: Some(dest.to_owned()), ..Self::at(error, syscall, path) }
    }

    /// Creates the error of a failed call on a socket; `peer` may be empty.
    pub(crate) fn socket(error: io::Error, syscall: &'static str, peer: &str) -> Self {
        Self { peer: Some(peer.to_owned()), ..Self::new(error, syscall) }
    }

    /// Converts the error to a JavaScript value.
    pub(crate) fn into_js<'js>(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let number = self.error.raw_os_error();
        let (code, text) = match number.and_then(known) {
            Some((code, text)) => (code, text.to_owned()),
            None => by_kind(&self.error),
        };
        let mut message = match &self.peer {
            Some(peer) if self.syscall == "listen" => format!("listen {code}: {text} {peer}"),
            Some(peer) => format!("{} {code} {peer}", self.syscall).trim_end().to_owned(),
            None => format!("{code}: {text}, {}", self.syscall),
        };
        if let Some(path) = &self.path {
            message.push_str(&format!(" '{path}'"));
        }
        if let Some(dest) = &self.dest {
            message.push_str(&format!(" -> '{dest}'"));
        }
        let error = rquickjs::Exception::from_message(ctx.clone(), &message)?.into_object();
        error.set("errno", number.map_or(0, |number| -number))?;
        error.set("code", code)?;
        error.set("syscall", self.syscall)?;
        if let Some(path) = self.path {
            error.set("path", path)?;
        }
        if let Some(dest) = self.dest {
            error.set("dest", dest)?;
        }
        Ok(error.into_value())
    }
}

/// Throws a failed system call.
pub(crate) fn system_error(ctx: &Ctx<'_>, error: SystemError) -> Error {
    match error.into_js(ctx) {
        Ok(value) => ctx.throw(value),
        Err(error) => error,
    }
}

fn by_kind(error: &io::Error) -> (&'static str, String) {
    let code = match error.kind() {
        io::ErrorKind::NotFound => "ENOENT",
        io::ErrorKind::PermissionDenied => "EACCES",
        io::ErrorKind::AlreadyExists => "EEXIST",
        io::ErrorKind::ConnectionRefused => "ECONNREFUSED",
        io::ErrorKind::ConnectionReset => "ECONNRESET",
        io::ErrorKind::ConnectionAborted => "ECONNABORTED",
        io::ErrorKind::BrokenPipe => "EPIPE",
        io::ErrorKind::AddrInUse => "EADDRINUSE",
        io::ErrorKind::TimedOut => "ETIMEDOUT",
        io::ErrorKind::InvalidInput => "EINVAL",
        _ => "EIO",
    };
    (code, error.to_string())
}

/// Returns the code and message of the error numbers that programs check.
fn known(number: i32) -> Option<(&'static str, &'static str)> {
    Some(match number {
        libc::EPERM => ("EPERM", "operation not permitted"),
        libc::ENOENT => ("ENOENT", "no such file or directory"),
        libc::ESRCH => ("ESRCH", "no such process"),
        libc::EINTR => ("EINTR", "interrupted system call"),
        libc::EIO => ("EIO", "i/o error"),
        libc::ENXIO => ("ENXIO", "no such device or address"),
        libc::E2BIG => ("E2BIG", "argument list too long"),
        libc::ENOEXEC => ("ENOEXEC", "exec format error"),
        libc::EBADF => ("EBADF", "bad file descriptor"),
        libc::EAGAIN => ("EAGAIN", "resource temporarily unavailable"),
        libc::ENOMEM => ("ENOMEM", "not enough memory"),
        libc::EACCES => ("EACCES", "permission denied"),
        libc::EBUSY => ("EBUSY", "resource busy or locked"),
        libc::EEXIST => ("EEXIST", "file already exists"),
        libc::EXDEV => ("EXDEV", "cross-device link not permitted"),
        libc::ENODEV => ("ENODEV", "no such device"),
        libc::ENOTDIR => ("ENOTDIR", "not a directory"),
        libc::EISDIR => ("EISDIR", "illegal operation on a directory"),
        libc::EINVAL => ("EINVAL", "invalid argument"),
        libc::ENFILE => ("ENFILE", "file table overflow"),
        libc::EMFILE => ("EMFILE", "too many open files"),
        libc::ENOTTY => ("ENOTTY", "inappropriate ioctl for device"),
        libc::ETXTBSY => ("ETXTBSY", "text file is busy"),
        libc::EFBIG => ("EFBIG", "file too large"),
        libc::ENOSPC => ("ENOSPC", "no space left on device"),
        libc::ESPIPE => ("ESPIPE", "invalid seek"),
        libc::EROFS => ("EROFS", "read-only file system"),
        libc::EMLINK => ("EMLINK", "too many links"),
        libc::EPIPE => ("EPIPE", "broken pipe"),
        libc::ENAMETOOLONG => ("ENAMETOOLONG", "name too long"),
        libc::ENOTEMPTY => ("ENOTEMPTY", "directory not empty"),
        libc::ELOOP => ("ELOOP", "too many symbolic links encountered"),
        libc::EADDRINUSE => ("EADDRINUSE", "address already in use"),
        libc::EADDRNOTAVAIL => ("EADDRNOTAVAIL", "address not available"),
        libc::ENETUNREACH => ("ENETUNREACH", "network is unreachable"),
        libc::ECONNABORTED => ("ECONNABORTED", "software caused connection abort"),
        libc::ECONNRESET => ("ECONNRESET", "connection reset by peer"),
        libc::ETIMEDOUT => ("ETIMEDOUT", "connection timed out"),
        libc::ECONNREFUSED => ("ECONNREFUSED", "connection refused"),
        libc::EHOSTUNREACH => ("EHOSTUNREACH", "host is unreachable"),
        libc::ENOTSUP => ("ENOTSUP", "operation not supported on socket"),
        _ => return None,
    })
}
