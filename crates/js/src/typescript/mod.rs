//! TypeScript without its types. What is only a type is blanked out, so that every line and column of what
//! runs is the author's own; the few things that stand for code (enums, parameter properties) are written in
//! place.

mod attributes;
mod blank;
mod edits;
mod enums;

use std::path::Path;

use oxc_allocator::Allocator;
use oxc_ast::ast::Statement;
use oxc_parser::{Parser, ParserReturn};
use oxc_span::SourceType;

/// Whether the file has types to be taken out.
fn is_typescript(path: &Path) -> bool {
    matches!(ending(path), "ts" | "mts" | "cts")
}

/// Whether a file that does not say so is an ES module: it imports or exports something.
pub(crate) fn has_module_syntax(path: &Path, source: &str) -> bool {
    if !source.contains("import") && !source.contains("export") {
        return false;
    }
    let allocator = Allocator::default();
    is_module(&Parser::new(&allocator, source, source_type(path)).parse())
}

/// `export =` and `import … = require(…)` are how TypeScript spells CommonJS.
fn is_module(parsed: &ParserReturn<'_>) -> bool {
    let commonjs = |statement: &&Statement<'_>| {
        matches!(statement, Statement::TSExportAssignment(_) | Statement::TSImportEqualsDeclaration(_))
    };
    let modern = |statement: &Statement<'_>| statement.is_module_declaration() && !commonjs(&statement);
    parsed.module_record.has_module_syntax
        && (!parsed.program.body.iter().any(|statement| commonjs(&statement))
            || parsed.program.body.iter().any(modern))
}

/// Which imports of values stay that no value of the file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unused {
    /// None: they may name types only.
    Dropped,
    /// All, as `verbatimModuleSyntax` demands: what is only a type is marked with `type`.
    Kept,
}

/// The source as the engine reads it: without types, and without import attributes. `unused` is asked for a file that
/// has imports and types. An error says what is wrong and where.
pub(crate) fn strip(path: &Path, source: String, unused: impl FnOnce() -> Unused) -> Result<String, String> {
    if is_typescript(path) {
        let unused =
            if source.contains("import") || source.contains("export") { unused() } else { Unused::Dropped };
        strip_types(path, &source, unused)
    } else if attributes::may_hold(&source) {
        let allocator = Allocator::default();
        let parsed = Parser::new(&allocator, &source, source_type(path)).parse();
        // What does not parse is the engine's to complain about.
        Ok(if parsed.panicked { source.clone() } else { attributes::blank(&source, &parsed.program) })
    } else {
        Ok(source)
    }
}

fn strip_types(path: &Path, source: &str, unused: Unused) -> Result<String, String> {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, source_type(path)).parse();
    if let Some(error) = parsed.diagnostics.iter().next() {
        let at = error.labels.iter().next().map_or(0, |label| label.offset() as usize);
        return Err(problem(path, source, at, &error.message));
    }
    blank::strip(source, &parsed.program, is_module(&parsed), unused)
        .map_err(|wrong| problem(path, source, wrong.at as usize, wrong.what))
}

/// Something that cannot be taken out, and where it stands.
#[derive(Debug)]
struct Unsupported {
    at: u32,
    what: &'static str,
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

fn source_type(path: &Path) -> SourceType {
    match ending(path) {
        "mts" => SourceType::ts().with_module(true),
        "cts" => SourceType::ts().with_commonjs(true),
        "ts" => SourceType::ts().with_unambiguous(true),
        _ => SourceType::unambiguous(),
    }
}

fn problem(path: &Path, source: &str, at: usize, what: &str) -> String {
    let before = source.get(..at).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{what} ({}:{line}:{column})", path.display())
}

#[cfg(test)]
mod tests;
