//! `--plugin-option <id>.<key>[.<key>…]=<value>`: one option of a plugin, for one run.

use ostler_contract::secret::SET;
use ostler_loader::InspectedPlugin;
use ostler_loader::options::{contains_placeholder, option_path};

use crate::exit::Exit;

/// Applies options over the configured ones. The longest id or spec at the beginning of a line selects the plugin.
///
/// # Errors
/// Exit 2 with the path, but never the value.
pub fn apply(lines: &[String], looked: &mut [InspectedPlugin]) -> Result<(), Exit> {
    for line in lines {
        let refuse = |why: String| Exit::usage(format!("--plugin-option: {why}"));
        let (target, typed) =
            line.split_once('=').ok_or_else(|| refuse("expected <id>.<key>=<value>".to_owned()))?;
        let rest = |looked: &InspectedPlugin| {
            let id = looked.id.as_ref().map(|id| target.strip_prefix(&**id));
            let spec = Some(target.strip_prefix(looked.entry.name.as_str()));
            let keys = [id, spec].into_iter().flatten().flatten().filter_map(|rest| rest.strip_prefix('.'));
            // The shortest rest belongs to the longest name.
            keys.min_by_key(|rest| rest.len()).map(str::to_owned)
        };
        let found = looked.iter_mut().filter_map(|looked| rest(looked).map(|keys| (keys, looked)));
        let Some((keys, plugin)) = found.min_by_key(|(keys, _)| keys.len()) else {
            let known: Vec<String> =
                looked.iter().filter_map(|looked| looked.id.as_ref().map(ToString::to_string)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(refuse(format!("{target}: no such plugin in this run; plugins are {known}")));
        };
        if !plugin.entry.enabled {
            return Err(refuse(format!("{target}: the plugin is disabled")));
        }
        let value = option_path::typed(typed).map_err(|why| refuse(format!("{target}: {why}")))?;
        // There is no stored value that it could stand for.
        if contains_placeholder(&value) {
            return Err(refuse(format!("{target} contains {SET}; write the value itself")));
        }
        option_path::set(&mut plugin.entry.options, &keys, value).map_err(|why| refuse(why.to_string()))?;
    }
    Ok(())
}
