//! Ten JavaScript plugins of ten modules each: the time from the spawn until all are applied, and the memory of each.
//! In the daemon each has a separate engine; in Node all share one.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::Figure;
use super::super::ostler::Folder;
use super::super::process::{Output, Process};
use super::super::rounds::{Column, Side, alternate};
use super::plugins::applied;

/// Plugins of the larger measurement.
const PLUGINS: usize = 10;
/// Modules of each plugin, including its entry.
const MODULES: usize = 10;

const COLUMNS: &[Column] = &[
    ("start until ten plugins of ten modules are applied", "ms", None),
    ("memory of each further such plugin", "MB", None),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let (one, many) = (folder(context, 1)?, folder(context, PLUGINS)?);
    alternate(context.bounds(7, Duration::from_secs(90)), COLUMNS, |side| {
        let start = |folder: &Folder, plugins: usize| -> Result<(Process, f64)> {
            let process = match (side, &context.node) {
                (Side::Ostler, _) => context.ostler.spawn(folder, Output::Err)?,
                (Side::Floor, Some(node)) => {
                    let paths: Vec<String> = (0..plugins)
                        .map(|at| folder.path().join(name(at)).join("index.mjs").display().to_string())
                        .collect();
                    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                    node.spawn("floor-plugins.mjs", &paths, Output::Err)?
                }
                (Side::Floor, None) => return Err(Failure::new("there is no node")),
            };
            applied(process, plugins)
        };
        let small = start(&one, 1)?.0.memory_when_idle()?;
        let (process, took) = start(&many, PLUGINS)?;
        let large = process.memory_when_idle()?;
        Ok(vec![took, (large.written - small.written) * 1.024 / 1000.0 / (PLUGINS - 1) as f64])
    })
}

fn name(at: usize) -> String {
    format!("small-{at}")
}

/// Creates a daemon's folder with the echo backend and this many plugins, each a folder of modules that import each
/// other.
fn folder(context: &Context, plugins: usize) -> Result<Folder> {
    let mut entries: Vec<Value> = vec![json!({ "name": "@ostler/echo" })];
    entries.extend((0..plugins).map(|at| json!({ "name": format!("./{}", name(at)) })));
    let folder = Folder::new(&context.root, &entries)?;
    for plugin in 0..plugins {
        let mut entry = String::new();
        for module in 1..MODULES {
            let text = format!(
                "export class Stall{module} {{\n  #horses = new Map();\n  stable(name, age) {{\n    this.#horses.set(name, \
                 {{ name, age, stall: {module} }});\n    return this;\n  }}\n  get horses() {{\n    return \
                 [...this.#horses.values()].toSorted((a, b) => a.age - b.age);\n  }}\n}}\n\nexport const stall{module} = \
                 new Stall{module}().stable('Bess', {module}).stable('Duke', {plugin});\n"
            );
            folder.write(&format!("{}/stall{module}.mjs", name(plugin)), &text)?;
            entry.push_str(&format!("import {{ stall{module} }} from './stall{module}.mjs';\n"));
        }
        let all: Vec<String> = (1..MODULES).map(|module| format!("stall{module}")).collect();
        entry.push_str(&format!(
            "\nexport function apply(host) {{\n  host.registerTool({{\n    definition: {{ name: 'horses{plugin}', \
             description: 'Lists the horses.', inputSchema: {{ type: 'object' }} }},\n    run: async () => \
             [{}].flatMap((stall) => stall.horses),\n  }});\n}}\n",
            all.join(", ")
        ));
        folder.write(&format!("{}/index.mjs", name(plugin)), &entry)?;
    }
    Ok(folder)
}
