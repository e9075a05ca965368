//! The table of ACP agents in `docs/agents.md`, from the presets.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// The page.
pub(super) const PAGE: &str = "docs/agents.md";
const PRESETS: &str = "plugins/acp/presets";
const BEGIN: &str = "<!-- The table is generated from plugins/acp/presets by cargo xtask generate. -->\n";
const END: &str = "<!-- End of the table. -->\n";

/// The page with the table as the presets are now.
pub(super) fn page(root: &Path) -> Result<String, String> {
    let text = fs::read_to_string(root.join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{PAGE} has no place for the table of agents"))?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", table(root)?))
}

fn table(root: &Path) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{PRESETS}: {error}");
    let mut files: Vec<_> = fs::read_dir(root.join(PRESETS))
        .map_err(|error| failed(&error))?
        .filter_map(|entry| Some(entry.ok()?.path().join("agent.json")))
        .collect();
    files.sort_unstable();
    let mut rows = String::from(
        "| preset | agent | runs with | key, or sign-in | sessions | ostler's tools | remarks |\n|---|---|---|---|---|---|---|\n",
    );
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| failed(&error))?;
        let preset: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        rows.push_str(&row(&preset));
    }
    Ok(rows)
}

fn row(preset: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let meta = &preset["_meta"]["ostler"];
    let code = |value: &Value| value.as_str().map(|text| format!("`{text}`"));
    let distribution = &preset["distribution"];
    let runner = ["npx", "uvx", "binary"].into_iter().find(|kind| distribution.get(kind).is_some());
    let access: Vec<String> = [code(&meta["key"]), code(&meta["signIn"])].into_iter().flatten().collect();
    let access =
        if access.is_empty() { "as `ostler agent check` shows".to_owned() } else { access.join(", ") };
    let sessions = match text(&meta["sessions"]) {
        none if none.is_empty() => "—".to_owned(),
        words => words.replace(' ', ", "),
    };
    let tools = if meta["mcp"] == "http" { "HTTP" } else { "stdio, if it uses MCP" };
    let (name, repository) = (text(&preset["name"]), text(&preset["repository"]));
    let agent = if repository.is_empty() { name } else { format!("[{name}]({repository})") };
    format!(
        "| `{}` | {agent} {} | {} | {access} | {sessions} | {tools} | {} |\n",
        text(&preset["id"]),
        text(&preset["version"]),
        runner.unwrap_or_default(),
        text(&meta["note"]),
    )
}
