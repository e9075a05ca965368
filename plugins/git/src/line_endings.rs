//! How git compares a file of a working tree: with the line endings that it would store, and by lines or not at all, as
//! `core.autocrlf` and the attributes of its path say.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::program::{Failure, Git};

/// Which CRLF git stores as LF.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Converts {
    /// None.
    #[default]
    Nothing,
    /// All.
    Text,
    /// All, if the content is text and the stored one has no CRLF.
    Guessed,
}

/// How one path is compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    converts: Converts,
    /// Whether its lines are not compared.
    is_binary: bool,
}

/// The attributes of a path that matter.
#[derive(Debug, Default)]
struct Attributes<'a> {
    text: &'a str,
    crlf: &'a str,
    eol: &'a str,
    diff: &'a str,
}

impl Comparison {
    fn of(attributes: &Attributes<'_>, autocrlf: &str) -> Self {
        let named = |value: &str| match value {
            "set" | "input" => Some(Converts::Text),
            "unset" => Some(Converts::Nothing),
            "auto" => Some(Converts::Guessed),
            _ => None,
        };
        // A path with an explicit end of line is text.
        let by_eol = || matches!(attributes.eol, "lf" | "crlf").then_some(Converts::Text);
        let configured = match autocrlf {
            "true" | "input" => Converts::Guessed,
            _ => Converts::Nothing,
        };
        let converts =
            named(attributes.text).or_else(|| named(attributes.crlf)).or_else(by_eol).unwrap_or(configured);
        Self { converts, is_binary: attributes.diff == "unset" }
    }

    /// Whether git compares its lines.
    pub(crate) fn has_lines(self) -> bool {
        !self.is_binary
    }

    /// Returns the content of a file as git would store it.
    pub(crate) fn stored(self, content: Vec<u8>, before: &[u8]) -> Vec<u8> {
        let converts = match self.converts {
            Converts::Nothing => false,
            Converts::Text => true,
            Converts::Guessed => is_text(&content) && !(has_crlf(before) && is_text(before)),
        };
        if converts && has_crlf(&content) { unix(&content) } else { content }
    }
}

fn has_crlf(content: &[u8]) -> bool {
    content.windows(2).any(|pair| pair == b"\r\n")
}

/// Whether git takes content for text when it guesses.
fn is_text(content: &[u8]) -> bool {
    let (mut printable, mut other) = (0_usize, 0_usize);
    let content = content.strip_suffix(b"\x1a").unwrap_or(content);
    for (at, byte) in content.iter().enumerate() {
        match byte {
            0 => return false,
            b'\r' if content.get(at + 1) != Some(&b'\n') => return false,
            b'\r' | b'\n' => {}
            b'\t' | 0x08 | 0x0c | 0x1b => printable += 1,
            0x7f | 0..=0x1f => other += 1,
            _ => printable += 1,
        }
    }
    printable >> 7 >= other
}

fn unix(content: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(content.len());
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(line) => text.extend(line.iter().chain(b"\n")),
            None => text.extend(line),
        }
    }
    text
}

/// Returns how paths, from the top of a tree, are compared.
pub(crate) async fn comparisons<'a>(
    tree: &Path,
    paths: impl IntoIterator<Item = &'a Path>,
) -> Result<HashMap<PathBuf, Comparison>, Failure> {
    let asked =
        Git::read(tree).args(["check-attr", "-z", "--stdin", "text", "crlf", "eol", "diff"]).paths(paths);
    let autocrlf = Git::read(tree).args(["config", "--get", "core.autocrlf"]);
    let (told, autocrlf) = futures::try_join!(asked.run(), autocrlf.maybe())?;
    let autocrlf = autocrlf.unwrap_or_default().to_ascii_lowercase();
    let mut found: HashMap<PathBuf, Attributes<'_>> = HashMap::new();
    let mut fields = told.split(|byte| *byte == 0);
    while let (Some(path), Some(name), Some(value)) = (fields.next(), fields.next(), fields.next()) {
        let of_path = found.entry(PathBuf::from(OsStr::from_bytes(path))).or_default();
        let value = std::str::from_utf8(value).unwrap_or_default();
        match name {
            b"text" => of_path.text = value,
            b"crlf" => of_path.crlf = value,
            b"eol" => of_path.eol = value,
            b"diff" => of_path.diff = value,
            _ => {}
        }
    }
    let of = |(path, attributes): (PathBuf, Attributes<'_>)| (path, Comparison::of(&attributes, &autocrlf));
    Ok(found.into_iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, eol: &str, autocrlf: &str) -> Comparison {
        Comparison::of(&Attributes { text, eol, ..Attributes::default() }, autocrlf)
    }

    #[test]
    fn content_is_compared_as_git_stores_it() {
        let windows = || b"a\r\nb\r\n".to_vec();
        for (comparison, before, stored) in [
            (of("unspecified", "unspecified", ""), "", "a\r\nb\r\n"),
            (of("unspecified", "unspecified", "true"), "a\n", "a\nb\n"),
            (of("unspecified", "unspecified", "input"), "a\n", "a\nb\n"),
            (of("unspecified", "unspecified", "true"), "a\r\n", "a\r\nb\r\n"),
            (of("unset", "lf", "true"), "a\n", "a\r\nb\r\n"),
            (of("auto", "unspecified", ""), "a\n", "a\nb\n"),
            (of("auto", "unspecified", ""), "a\r\n", "a\r\nb\r\n"),
            (of("set", "unspecified", ""), "a\r\n", "a\nb\n"),
            (of("unspecified", "crlf", ""), "a\r\n", "a\nb\n"),
        ] {
            assert_eq!(comparison.stored(windows(), before.as_bytes()), stored.as_bytes(), "{comparison:?}");
        }
        let guessed = of("auto", "", "");
        for binary in [&b"a\0\r\n"[..], b"a\rb\r\n", b"\x01\x02\x03\r\n"] {
            assert_eq!(guessed.stored(binary.to_vec(), b""), binary);
        }
    }
}
