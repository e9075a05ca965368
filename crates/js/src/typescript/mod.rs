//! TypeScript without its types. Types are blanked out, so that every line and column of the running code is the
//! author's; the few constructs with run-time code (enums, parameter properties) are replaced in place.

mod attributes;
mod blank;
mod edits;
mod enums;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod links;
mod regexps;

use std::path::Path;

pub(crate) use links::{Links, links};
pub(crate) use regexps::escaped as escape_sets;

use oxc_allocator::Allocator;
use oxc_ast::ast::Statement;
use oxc_parser::{Parser, ParserReturn};
use oxc_span::SourceType;

/// Returns whether the file contains TypeScript.
fn is_typescript(path: &Path) -> bool {
    matches!(ending(path), "ts" | "mts" | "cts")
}

/// Returns whether a file of unspecified kind is an ES module: it imports or exports something.
pub(crate) fn has_module_syntax(path: &Path, source: &str) -> bool {
    if !source.contains("import") && !source.contains("export") {
        return false;
    }
    let allocator = Allocator::default();
    is_module(&Parser::new(&allocator, source, source_type(path)).parse())
}

/// Returns whether the syntax is that of an ES module. `export =` and `import … = require(…)` are TypeScript's syntax
/// for CommonJS.
fn is_module(parsed: &ParserReturn<'_>) -> bool {
    let commonjs = |statement: &&Statement<'_>| {
        matches!(statement, Statement::TSExportAssignment(_) | Statement::TSImportEqualsDeclaration(_))
    };
    let modern = |statement: &Statement<'_>| statement.is_module_declaration() && !commonjs(&statement);
    parsed.module_record.has_module_syntax
        && (!parsed.program.body.iter().any(|statement| commonjs(&statement))
            || parsed.program.body.iter().any(modern))
}

/// How to treat value imports that the file does not use as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unused {
    /// Drops them, because they may name types.
    Dropped,
    /// Keeps them, as `verbatimModuleSyntax` requires: imports of types are marked with `type`.
    Kept,
}

/// Returns the source as the engine reads it: without types and without import attributes. `unused` is only called for
/// a file that has imports and types. An error contains the problem and its position.
pub(crate) fn strip(path: &Path, source: String, unused: impl FnOnce() -> Unused) -> Result<String, String> {
    let source = if is_typescript(path) {
        let unused =
            if source.contains("import") || source.contains("export") { unused() } else { Unused::Dropped };
        strip_types(path, &source, unused)?
    } else if attributes::may_hold(&source) {
        let allocator = Allocator::default();
        let parsed = Parser::new(&allocator, &source, source_type(path)).parse();
        // The engine reports syntax errors.
        if parsed.panicked { source.clone() } else { attributes::blank(&source, &parsed.program) }
    } else {
        source
    };
    Ok(regexps::escape(path, source))
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

/// A construct that cannot be removed, and its position.
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
