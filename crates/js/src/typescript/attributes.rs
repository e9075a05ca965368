//! Import attributes. The engine recognizes a JSON module by its name, and its parser does not support `with`.

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::GetSpan;

use super::edits::Edits;

/// Returns whether a source may contain import attributes; most do not, and need no parsing.
pub(super) fn may_hold(source: &str) -> bool {
    source.match_indices("with").any(|(at, _)| {
        let (before, after) = (source[..at].trim_end(), source[at + 4..].trim_start());
        (before.ends_with(['"', '\'']) && after.starts_with('{')) || after.starts_with(':')
    })
}

/// Returns the source without import attributes.
pub(super) fn blank(source: &str, program: &Program<'_>) -> String {
    let mut visitor = Attributes { edits: Edits::new(source) };
    visitor.visit_program(program);
    visitor.edits.apply()
}

pub(super) fn blank_clause(
    edits: &mut Edits<'_>,
    after: &StringLiteral<'_>,
    clause: Option<&WithClause<'_>>,
) {
    if let Some(clause) = clause {
        edits.blank(after.span.end, clause.span.end);
    }
}

pub(super) fn blank_options(edits: &mut Edits<'_>, import: &ImportExpression<'_>) {
    if let Some(options) = &import.options {
        edits.blank(import.source.span().end, options.span().end);
    }
}

struct Attributes<'s> {
    edits: Edits<'s>,
}

impl<'a> Visit<'a> for Attributes<'_> {
    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        blank_clause(&mut self.edits, &it.source, it.with_clause.as_deref());
    }

    fn visit_export_from_declaration(&mut self, it: &ExportFromDeclaration<'a>) {
        blank_clause(&mut self.edits, &it.source, it.with_clause.as_deref());
    }

    fn visit_export_all_declaration(&mut self, it: &ExportAllDeclaration<'a>) {
        blank_clause(&mut self.edits, &it.source, it.with_clause.as_deref());
    }

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        blank_options(&mut self.edits, it);
        walk::walk_import_expression(self, it);
    }
}
