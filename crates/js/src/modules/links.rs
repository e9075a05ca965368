//! Completes errors of linking: the engine cuts the names in its messages.

use std::path::Path;

use rquickjs::Ctx;

use super::names;
use super::resolve::{self, How};
use crate::engine::State;
use crate::typescript::{self, Links};

/// The most bytes of a name in a message.
const CUT: usize = 63;

/// Returns the message with the whole name of the module and with the module that imports from it, if they can be told.
pub(super) fn complete(ctx: Ctx<'_>, message: String) -> Option<String> {
    let (head, rest) = message.split_once("export '")?;
    let (export, rest) = rest.split_once("' in module '")?;
    let (module, tail) = rest.rsplit_once('\'')?;
    let state = State::of(&ctx).ok()?;
    let names = state.modules.files.borrow().clone();
    let mut found = Vec::new();
    for importer in &names {
        let Some(links) = links(importer) else { continue };
        for (specifier, name) in links.imports {
            if !is_cut(&name, export) {
                continue;
            }
            let Ok(target) = resolve::specify(&state.modules.resolvers, importer, &specifier, How::Import)
            else {
                continue;
            };
            if is_cut(&target, module) && lacks(&target, &name) {
                found.push((name, target, importer.clone()));
            }
        }
    }
    // Several imports of the same: the first one stands for all.
    let (name, target, importer) = found.first()?;
    if found.iter().any(|(_, other, _)| other != target) {
        return None;
    }
    Some(format!("{head}export '{name}' in module '{target}'{tail} imported from '{importer}'"))
}

/// Returns whether a message shows this name so.
fn is_cut(name: &str, shown: &str) -> bool {
    name == shown || (shown.len() >= CUT - 3 && name.starts_with(shown))
}

/// Returns whether a module is known not to export a name. What another kind of module exports is not known.
fn lacks(module: &str, name: &str) -> bool {
    links(module).is_none_or(|links| links.exports_all || !links.exports.iter().any(|known| known == name))
}

fn links(module: &str) -> Option<Links> {
    let path = Path::new(names::split(module).0);
    path.is_absolute()
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
        .map(|source| typescript::links(path, &source))
}
