//! `ostler plugin new` and `ostler plugin check`: for who writes a plugin.

use ostler_contract::{JsonObject, json};
use ostler_loader::options::place;

use crate::answer::Answer;
use crate::config::ConfigFiles;
use crate::exit::Exit;
use crate::place::Place;
use crate::plugin_check::{Checked, PluginCheck};
use crate::plugin_new::plugin_new;
use crate::progress::Progress;

/// Writes a plugin that works.
pub fn new(at: &Place, name: &str) -> Result<Answer, Exit> {
    let folder = plugin_new(name, &at.working_dir)?;
    let shown = folder.display().to_string();
    let lines = [format!("Wrote {shown}."), format!("Check it with: ostler plugin check ./{name}")];
    Ok(Answer::new(lines, json!({ "name": name, "folder": shown })).named([shown]))
}

/// Loads one plugin against a host in memory and says what came of it; exit code 1 where something would be refused.
pub async fn check(
    at: &Place,
    files: &ConfigFiles,
    spec: String,
    written: &[String],
) -> Result<Answer, Exit> {
    let mut options = JsonObject::new();
    for option in written {
        let (key, value) = option.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
            Exit::usage(format!("{option} is no option of a plugin: write --option <key>=<value>"))
        })?;
        let value = place::typed(value).map_err(|why| Exit::usage(format!("{key}: {why}")))?;
        options.insert(key.to_owned(), value);
    }
    let config_dir = files.dir.clone();
    let _progress = Progress::begin(&at.common, &format!("checking {spec}"));
    let check = PluginCheck { spec, options, working_dir: at.working_dir.clone(), config_dir };
    let checked = check.run().await?;
    let answer = Answer::new(checked.lines(), json(&checked)).named(checked.id.clone());
    let answer = checked.log.iter().fold(answer, |answer, line| answer.note(line));
    Ok(Answer { code: u8::from(!checked.holds()), ..answer })
}

fn json(checked: &Checked) -> ostler_contract::Value {
    let registered = checked
        .registered
        .iter()
        .map(|call| json!({ "method": call.method, "name": call.name, "at": call.at }));
    let refused = checked.refused.iter().map(|refused| json!({ "line": refused.line, "at": refused.at }));
    let tests = checked.tests.iter().flat_map(|(file, results)| {
        let file = file.display().to_string();
        match results {
            Ok(results) => results
                .iter()
                .map(|test| {
                    let outcome = format!("{:?}", test.outcome).to_lowercase();
                    json!({ "file": file, "name": test.name, "outcome": outcome, "why": test.why, "at": test.at })
                })
                .collect(),
            Err(why) => vec![json!({ "file": file, "outcome": "failed", "why": why })],
        }
    });
    json!({
        "id": checked.id,
        "file": checked.file.as_ref().map(|file| file.display().to_string()),
        "holds": checked.holds(),
        "registered": registered.collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
        "tests": tests.collect::<Vec<_>>(),
        "log": checked.log,
    })
}
