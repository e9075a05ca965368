//! Files a person may mean who typed the beginning of a path.

use std::collections::VecDeque;
use std::path::PathBuf;

use cap_std::fs::Dir;
use ostler_contract::RpcError;
use ostler_contract::points::ResourceCompletion;

use super::place::{Roots, real, uri_of};

/// How many are answered.
const ANSWERED: usize = 50;
/// How many entries are looked at.
const LOOKED_AT: usize = 20_000;
/// Directories nobody means who does not say so.
const PASSED_OVER: &[&str] = &["node_modules", "target"];

impl Roots {
    /// First what goes on as it was typed, then what lies deeper and holds it in its path.
    pub fn complete(&self, directory: &str, typed: &str) -> Result<Vec<ResourceCompletion>, RpcError> {
        let place = self.locate(directory)?;
        let root = self.at(&place, |root, path| root.open_dir(path))?;
        let base = self.real(&place)?;
        let found =
            |path: String| ResourceCompletion { uri: uri_of(&base.join(path.trim_end_matches('/'))), path };
        let typed = typed.trim_start_matches("./");
        if typed.split('/').any(|part| part == "..") || typed.starts_with('/') {
            return Ok(Vec::new());
        }
        let (folder, beginning) = typed.rsplit_once('/').unwrap_or(("", typed));
        let mut paths = going_on(&root, folder, &beginning.to_lowercase());
        if paths.len() < ANSWERED && !beginning.is_empty() {
            for deeper in holding(&root, &typed.to_lowercase()) {
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

/// Each entry's name, and whether it is a directory; links are told as files.
fn entries(dir: &Dir) -> Vec<(String, bool)> {
    let listed = dir.entries().into_iter().flatten().take(LOOKED_AT).filter_map(|entry| {
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

fn going_on(root: &Dir, folder: &str, beginning: &str) -> Vec<String> {
    let dir = if folder.is_empty() { root.try_clone() } else { root.open_dir(folder) };
    let Ok(dir) = dir else { return Vec::new() };
    let meant = |name: &str| {
        name.to_lowercase().starts_with(beginning) && (beginning.starts_with('.') || !name.starts_with('.'))
    };
    entries(&dir)
        .iter()
        .filter(|(name, _)| meant(name))
        .map(|(name, dir)| joined(folder, name, *dir))
        .collect()
}

/// What holds the text in its path, nearest first.
fn holding(root: &Dir, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut looked_at = 0;
    let mut folders = VecDeque::from([PathBuf::new()]);
    while let Some(folder) = folders.pop_front() {
        let dir = if folder.as_os_str().is_empty() { root.try_clone() } else { root.open_dir(&folder) };
        let (Ok(dir), Some(shown)) = (dir, folder.to_str()) else { continue };
        for (name, directory) in entries(&dir) {
            looked_at += 1;
            if looked_at > LOOKED_AT || found.len() >= ANSWERED {
                return found;
            }
            if name.starts_with('.') || PASSED_OVER.contains(&name.as_str()) {
                continue;
            }
            let path = joined(shown, &name, directory);
            if path.to_lowercase().contains(text) {
                found.push(path);
            }
            if directory {
                folders.push_back(folder.join(&name));
            }
        }
    }
    found
}
