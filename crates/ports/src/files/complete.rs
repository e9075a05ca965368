//! Completion of file paths, from the beginning of a path or from a name in a deeper directory.

use std::collections::VecDeque;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cap_std::fs::Dir;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ostler_contract::RpcError;
use ostler_contract::points::ResourceCompletion;

use super::served_path::{Roots, real, uri_of};

/// The maximum number of completions.
const ANSWERED: usize = 50;
/// The maximum number of entries of a directory, and the maximum time for them, because the user is typing.
const LOOKED_AT: usize = 200_000;
const LOOKED_FOR: Duration = Duration::from_millis(1_000);
/// How long deeper directories are read in the background.
const READ_FOR: Duration = Duration::from_secs(60);
/// The maximum size of a pattern file in bytes.
const PATTERNS: u64 = 1 << 20;
/// Directories that are completed only if they are typed.
const PASSED_OVER: &[&str] = &["node_modules"];
/// Further such directories, if there are no ignore patterns.
const PASSED_OVER_WITHOUT_PATTERNS: &[&str] = &["target"];
/// The data of git, which is never completed.
const GIT: &str = ".git";
/// The pattern files, in ascending priority.
const IGNORE_FILES: &[&str] = &[".git/info/exclude", ".gitignore", ".ignore"];

impl Roots {
    /// Returns paths that continue the typed text first, then deeper ones that contain it in their name, then in their
    /// path. Ignored files are only found by their own path: below an ignored directory that is typed, and by their whole
    /// name.
    pub fn complete(&self, directory: &str, typed: &str) -> Result<Vec<ResourceCompletion>, RpcError> {
        let place = self.locate(directory)?;
        let named = place.path();
        let (root, rules) =
            self.at(&place, |root, path| Ok((root.open_dir(path)?, Rules::above(root, path, &named))))?;
        let base = self.real(&place)?;
        let found =
            |path: String| ResourceCompletion { uri: uri_of(&base.join(path.trim_end_matches('/'))), path };
        let typed = typed.trim_start_matches("./");
        if typed.split('/').any(|part| part == ".." || part == GIT) || typed.starts_with('/') {
            return Ok(Vec::new());
        }
        let (folder, beginning) = typed.rsplit_once('/').unwrap_or(("", typed));
        let end = Instant::now() + LOOKED_FOR;
        let mut paths = going_on(&root, (&named, rules.clone()), folder, &beginning.to_lowercase(), end);
        let walks = Box::new(move |each: &mut dyn FnMut(String) -> bool| walk(&root, &named, rules, each));
        if beginning.is_empty() {
            // The user will probably type more.
            self.names.prepare(&base, walks);
        } else if paths.len() < ANSWERED {
            for deeper in self.names.find(&base, &typed.to_lowercase(), ANSWERED, walks) {
                if !paths.contains(&deeper) {
                    paths.push(deeper);
                }
            }
        }
        paths.truncate(ANSWERED);
        paths.retain(|path| real(&base.join(path)).is_none_or(|path| !self.is_private(&path)));
        Ok(paths.into_iter().map(found).collect())
    }
}

/// The patterns of a directory, with priority over those of its parents.
struct Rules {
    own: Gitignore,
    above: Option<Arc<Rules>>,
}

impl Rules {
    /// Returns the patterns of the directories above a path, from the served directory.
    fn above(root: &Dir, path: &Path, named: &Path) -> Option<Arc<Self>> {
        let depth = path.components().filter(|part| part.as_os_str() != ".").count();
        let mut folders: Vec<&Path> = named.ancestors().skip(1).take(depth).collect();
        folders.reverse();
        let mut rules = None;
        let mut below = PathBuf::new();
        for (folder, part) in folders.into_iter().zip(path.components()) {
            rules = Self::of(root, &below, folder, rules);
            below.push(part);
        }
        rules
    }

    /// Adds the patterns of a directory: `below` is its path from the root, `named` its whole path.
    fn of(root: &Dir, below: &Path, named: &Path, above: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let mut builder = GitignoreBuilder::new(named);
        let mut any = false;
        for file in IGNORE_FILES {
            let Ok(file) = root.open(below.join(file)) else { continue };
            let mut text = String::new();
            if file.take(PATTERNS).read_to_string(&mut text).is_err() {
                continue;
            }
            for line in text.lines() {
                // An invalid pattern matches nothing, as in git.
                any |= builder.add_line(None, line).is_ok();
            }
        }
        match any.then(|| builder.build()) {
            Some(Ok(own)) => Some(Arc::new(Self { own, above })),
            Some(Err(_)) | None => above,
        }
    }

    /// The nearest directory with a matching pattern decides.
    fn ignores(&self, path: &Path, directory: bool) -> bool {
        let mut rules = Some(self);
        while let Some(here) = rules {
            let said = here.own.matched(path, directory);
            if !said.is_none() {
                return said.is_ignore();
            }
            rules = here.above.as_deref();
        }
        false
    }
}

/// Returns the name of each entry and whether it is a directory, until the time limit. Links count as files.
fn entries(dir: &Dir, end: Instant) -> Vec<(String, bool)> {
    let in_time = |_: &_| Instant::now() < end;
    let listed =
        dir.entries().into_iter().flatten().take(LOOKED_AT).take_while(in_time).filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().into_string().ok()?, entry.file_type().ok()?.is_dir()))
        });
    let mut listed: Vec<_> = listed.collect();
    listed.sort();
    listed
}

fn joined(folder: &str, name: &str, directory: bool) -> String {
    let slash = if directory { "/" } else { "" };
    match folder.is_empty() {
        true => format!("{name}{slash}"),
        false => format!("{folder}/{name}{slash}"),
    }
}

/// Returns whether an entry is found only by its own path.
fn is_left_out(rules: Option<&Rules>, path: &Path, name: &str, directory: bool) -> bool {
    let is_passed_over = PASSED_OVER.contains(&name)
        || rules.is_none() && PASSED_OVER_WITHOUT_PATTERNS.contains(&name)
        // Where nothing says which hidden files belong to the project, they are those of tools.
        || name == GIT
        || rules.is_none() && name.starts_with('.');
    is_passed_over || rules.is_some_and(|rules| rules.ignores(path, directory))
}

/// Returns the paths in a folder that begin with the typed name. `above` are the path of the root and the patterns above it.
fn going_on(
    root: &Dir,
    (named, above): (&Path, Option<Arc<Rules>>),
    folder: &str,
    beginning: &str,
    end: Instant,
) -> Vec<String> {
    let mut rules = Rules::of(root, Path::new(""), named, above);
    let (mut below, mut is_inside_ignored) = (PathBuf::new(), false);
    for part in folder.split('/').filter(|part| !part.is_empty()) {
        below.push(part);
        let path = named.join(&below);
        is_inside_ignored |= is_left_out(rules.as_deref(), &path, part, true);
        rules = Rules::of(root, &below, &path, rules);
    }
    let dir = if folder.is_empty() { root.try_clone() } else { root.open_dir(folder) };
    let Ok(dir) = dir else { return Vec::new() };
    let here = named.join(&below);
    let is_meant = |name: &str, directory: bool| {
        let lower = name.to_lowercase();
        if name == GIT
            || !lower.starts_with(beginning)
            || name.starts_with('.') && !beginning.starts_with('.')
        {
            return false;
        }
        let is_hidden = name.starts_with('.') && rules.is_none();
        let is_own_path = is_inside_ignored || is_hidden || lower == beginning;
        is_own_path || !is_left_out(rules.as_deref(), &here.join(name), name, directory)
    };
    let listed = entries(&dir, end);
    let meant = listed.iter().filter(|(name, directory)| is_meant(name, *directory));
    meant.map(|(name, directory)| joined(folder, name, *directory)).collect()
}

/// Calls a function with everything below a directory that is not ignored, nearest first, until it returns `false`.
fn walk(root: &Dir, named: &Path, above: Option<Arc<Rules>>, each: &mut dyn FnMut(String) -> bool) {
    let begun = Instant::now();
    let mut folders = VecDeque::from([(PathBuf::new(), above)]);
    while let Some((folder, above)) = folders.pop_front() {
        if begun.elapsed() > READ_FOR {
            return;
        }
        let dir = if folder.as_os_str().is_empty() { root.try_clone() } else { root.open_dir(&folder) };
        let (Ok(dir), Some(shown)) = (dir, folder.to_str()) else { continue };
        let here = named.join(&folder);
        let rules = Rules::of(&dir, Path::new(""), &here, above);
        for (name, directory) in entries(&dir, begun + READ_FOR) {
            if is_left_out(rules.as_deref(), &here.join(&name), &name, directory) {
                continue;
            }
            if !each(joined(shown, &name, directory)) {
                return;
            }
            if directory {
                folders.push_back((folder.join(&name), rules.clone()));
            }
        }
    }
}
