//! The folders of bots.

use std::path::{Component, Path, PathBuf};

use ostler_contract::{RpcError, Thrown};

/// Returns the root of bots' folders as an absolute path; `~` is the home folder.
pub(crate) fn root(written: &str, home: Option<&Path>) -> Result<PathBuf, Thrown> {
    let path = match (written.strip_prefix('~'), home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        (Some(_), None) => return Err(Thrown::new("root begins with ~ but there is no home folder")),
        _ => PathBuf::from(written),
    };
    match plain(&path) {
        Some(path) => Ok(path),
        None => Err(Thrown::new(format_args!("root must be an absolute path, not {written}"))),
    }
}

/// Checks that a requested folder is below the root.
pub(crate) fn named(written: &str, root: &Path) -> Result<PathBuf, RpcError> {
    plain(Path::new(written)).filter(|path| path.starts_with(root) && path != root).ok_or_else(|| {
        let root = root.display();
        RpcError::invalid_params(format!("{written} is not under {root}; a bot's folder is one there"))
    })
}

/// Creates a folder and its parents.
pub(crate) async fn make(path: &str) -> Result<(), Thrown> {
    let made = path.to_owned();
    let failed =
        |why: &dyn std::fmt::Display| Thrown::new(format_args!("{path} could not be created: {why}"));
    match tokio::task::spawn_blocking(move || std::fs::create_dir_all(made)).await {
        Ok(made) => made.map_err(|why| failed(&why)),
        Err(why) => Err(failed(&why)),
    }
}

/// Normalizes a path without dots; `None` if it is not absolute or leaves the root directory.
fn plain(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !plain.pop() {
                    return None;
                }
            }
            other => plain.push(other),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_under_the_root() {
        let home = Path::new("/home/a");
        assert_eq!(root("~/.bots", Some(home)).unwrap(), Path::new("/home/a/.bots"));
        assert_eq!(root("/srv/x/../bots", Some(home)).unwrap(), Path::new("/srv/bots"));
        assert!(root("bots", Some(home)).is_err());
        assert!(root("~/x", None).is_err());
        let under = Path::new("/srv/bots");
        assert_eq!(named("/srv/bots/./a", under).unwrap(), Path::new("/srv/bots/a"));
        for outside in ["/srv/bots", "/srv/bots/", "/srv/bots/../x", "/srv/botsy", "a", "/", "/srv/bots/a/.."]
        {
            let error = named(outside, under).unwrap_err();
            assert_eq!(error.code, -32602);
            let expected = format!("{outside} is not under /srv/bots; a bot's folder is one there");
            assert_eq!(error.message, expected);
        }
    }
}
