//! What there is of Node and the web for plugins in JavaScript, asked of the engine.

use std::fmt::Write as _;

use ostler_js::Surface;

const HEAD: &str = "\
# What JavaScript plugins find

A plugin in JavaScript or TypeScript runs on an engine embedded in the daemon, without Node. It finds the parts of Node
and of the web that are listed here; what is not listed is not there, and importing it says so. This page is made by
asking the engine: `cargo xtask generate` writes it, and `cargo xtask tidy` fails when it says something else than the
engine does.

";

/// What an engine says it has.
pub fn surface() -> Result<Surface, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(ostler_js::surface()).map_err(|thrown| thrown.for_log())
}

/// The page.
pub fn page(surface: &Surface) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("## Globals\n\n");
    page.push_str(&list(surface.globals.iter()));
    page.push_str("\n## Modules\n");
    for (name, exports) in &surface.modules {
        let name = if name.starts_with('@') { name.clone() } else { format!("node:{name}") };
        let _ =
            write!(page, "\n### `{name}`\n\n{}", list(exports.iter().filter(|export| *export != "default")));
    }
    page
}

/// Names, in lines of a readable length.
fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for name in names {
        let name = format!("`{name}`");
        if line.len() + name.len() + 2 > 118 {
            text.push_str(line.trim_end());
            text.push('\n');
            line.clear();
        }
        line.push_str(&name);
        line.push_str(", ");
    }
    text.push_str(line.trim_end_matches(", "));
    text.push('\n');
    text
}
