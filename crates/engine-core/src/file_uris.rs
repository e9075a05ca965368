//! Paths as `file:` URIs, and back.

use std::path::PathBuf;

/// Returns a path as a `file:` URI; a URI stays unchanged.
pub fn file_uri(path: &str) -> String {
    if path.starts_with("file:") {
        return path.to_owned();
    }
    url::Url::from_file_path(path).map_or_else(|()| format!("file://{path}"), String::from)
}

/// Returns a `file:` URI as a path; a path stays unchanged.
pub fn file_path(uri: &str) -> String {
    path_of(uri).map_or_else(|| uri.to_owned(), |path| path.to_string_lossy().into_owned())
}

fn path_of(uri: &str) -> Option<PathBuf> {
    let url = url::Url::parse(uri).ok().filter(|url| url.scheme() == "file")?;
    url.to_file_path().ok()
}

/// Returns whether a text is a directory to work in: a `file:` URI or an absolute path.
pub fn names_a_directory(text: &str) -> bool {
    text.starts_with('/') || path_of(text).is_some()
}
