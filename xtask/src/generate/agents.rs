//! The table of ACP agents in `docs/agents.md`, from the presets and the agents' reports.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::agents;

/// The path of the page.
pub(super) const PAGE: &str = "docs/agents.md";
const BEGIN: &str =
    "<!-- The table is generated from plugins/acp/presets and probes.json by cargo xtask generate. -->\n";
const END: &str = "<!-- End of the table. -->\n";

/// Returns the page with the current table.
pub(super) fn page(root: &Path) -> Result<String, String> {
    let text = fs::read_to_string(root.join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{PAGE} has no place for the table of agents"))?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", table(root)?))
}

fn table(root: &Path) -> Result<String, String> {
    let probes = agents::read(root)?;
    let mut rows = String::from(
        "| preset | agent | runs with | key | sign-in | sessions | prompts | ostler's tools | remarks |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for preset in agents::presets(root)? {
        let id = preset["id"].as_str().unwrap_or_default();
        let probe = probes.get(id).filter(|probe| probe["version"] == preset["version"]);
        rows.push_str(&row(&preset, probe));
    }
    Ok(rows)
}

fn row(preset: &Value, probe: Option<&Value>) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let meta = &preset["_meta"]["ostler"];
    let code = |value: &Value| value.as_str().map(|text| format!("`{text}`"));
    let distribution = &preset["distribution"];
    let runner = ["npx", "uvx", "binary"].into_iter().find(|kind| distribution.get(kind).is_some());
    let listed = |member: &str, shown: &dyn Fn(&str) -> String| match probe {
        None => "not probed".to_owned(),
        Some(probe) => {
            let words = probe[member].as_array().into_iter().flatten().filter_map(Value::as_str);
            let words: Vec<String> = words.map(shown).collect();
            if words.is_empty() { "—".to_owned() } else { words.join(", ") }
        }
    };
    let plain = |word: &str| word.to_owned();
    let methods = listed("signIn", &|id| format!("`{id}`"));
    let sign_in = match code(&meta["signIn"]) {
        Some(command) if methods == "—" || methods == "not probed" => command,
        Some(command) => format!("{methods}; {command}"),
        None => methods,
    };
    let tools = match probe {
        None => "not probed",
        Some(probe) if probe["mcp"].as_array().is_some_and(|kinds| kinds.contains(&"mcpHttp".into())) => {
            "HTTP"
        }
        Some(_) => "stdio, if it uses MCP",
    };
    let (name, repository) = (text(&preset["name"]), text(&preset["repository"]));
    let agent = if repository.is_empty() { name } else { format!("[{name}]({repository})") };
    format!(
        "| `{}` | {agent} {} | {} | {} | {sign_in} | {} | {} | {tools} | {} |\n",
        text(&preset["id"]),
        text(&preset["version"]),
        runner.unwrap_or_default(),
        code(&meta["key"]).unwrap_or_else(|| "—".to_owned()),
        listed("sessions", &plain),
        listed("prompts", &plain),
        text(&meta["note"]),
    )
}
