//! The six kinds of needs, and valid paths in machines.

use ostler_contract::points::MachineNeed;

/// A need by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape<'a> {
    Directory { path: &'a str, target: &'a str, read_only: bool },
    File { path: &'a str, target: &'a str, read_only: bool },
    Variable { name: &'a str },
    Copy { source: &'a str, target: &'a str },
    Part { part: &'a str, fallback: Option<&'a str> },
    State { path: &'a str, seed: &'a [String] },
}

impl<'a> Shape<'a> {
    /// Returns the path of the need.
    pub fn own(&self) -> Option<&'a str> {
        match self {
            Self::Directory { path, .. } | Self::File { path, .. } | Self::State { path, .. } => Some(path),
            Self::Copy { source, .. } => Some(source),
            Self::Variable { .. } | Self::Part { .. } => None,
        }
    }
}

/// Parses a need, which has exactly one kind.
pub(super) fn shape_of(need: &MachineNeed) -> Result<Shape<'_>, String> {
    let target = |shape: &str| {
        need.target
            .as_deref()
            .filter(|target| !target.is_empty())
            .ok_or_else(|| format!("a {shape} needs a target"))
    };
    let read_only = need.read_only == Some(true);
    let mut shapes = Vec::new();
    if let Some(path) = &need.directory {
        shapes.push(Shape::Directory { path, target: target("directory")?, read_only });
    }
    if let Some(path) = &need.file {
        shapes.push(Shape::File { path, target: target("file")?, read_only });
    }
    if let Some(name) = &need.name {
        // The names of variables that both a shell and a container can set.
        let part = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'_';
        if name.is_empty()
            || name.starts_with(|first: char| first.is_ascii_digit())
            || !name.bytes().all(part)
        {
            return Err(format!(
                "{name:?} is not a name of an environment variable; use letters, digits and _, not a digit first"
            ));
        }
        shapes.push(Shape::Variable { name });
    }
    if let Some(source) = &need.source {
        shapes.push(Shape::Copy { source, target: target("source")? });
    }
    if let Some(part) = &need.part {
        let is_word = part.starts_with(|first: char| first.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if !is_word {
            return Err(format!("{part:?} is not a name of a part"));
        }
        shapes.push(Shape::Part { part, fallback: need.fallback.as_deref() });
    }
    if let Some(path) = &need.state {
        shapes.push(Shape::State { path, seed: need.seed.as_deref().unwrap_or_default() });
    }
    match shapes[..] {
        [shape] => Ok(shape),
        _ => Err("it must name one of directory, file, name, source, part and state".to_owned()),
    }
}

/// Normalizes an absolute path without empty segments and dots; `None` if it is relative or contains `..`.
pub(super) fn absolute(path: &str) -> Option<String> {
    let rest = path.strip_prefix('/').filter(|_| !path.contains('\0'))?;
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.contains(&"..")).then(|| format!("/{}", parts.join("/")))
}

/// Checks a target path in a machine: it must be below the root.
pub(super) fn target(path: &str) -> Option<String> {
    absolute(path).filter(|target| target != "/")
}
