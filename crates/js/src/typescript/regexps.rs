//! Regular expressions with the flag `v`. The engine rejects a `-` outside of their classes as if it were inside of one.

use std::path::Path;

use oxc_allocator::Allocator;
use oxc_ast::ast::RegExpLiteral;
use oxc_ast_visit::Visit;
use oxc_parser::Parser;
use oxc_span::SourceType;

use super::edits::Edits;
use super::ending;

/// Returns whether a source may contain a regular expression with the flag `v`; most do not, and need no parsing.
fn may_hold(source: &str) -> bool {
    source.match_indices('/').any(|(at, _)| {
        let rest = &source[at + 1..];
        let flags = rest.len() - rest.trim_start_matches(|c| "dgimsvy".contains(c)).len();
        let next = rest[flags..].chars().next();
        rest[..flags].contains('v') && !next.is_some_and(|c| c.is_alphanumeric() || "_$/".contains(c))
    })
}

/// Returns JavaScript in which such a `-` is written as its code.
pub(super) fn escape(path: &Path, source: String) -> String {
    if !may_hold(&source) {
        return source;
    }
    let kind = match ending(path) {
        "cjs" | "cts" => SourceType::cjs(),
        _ => SourceType::unambiguous(),
    };
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, &source, kind).parse();
    // The engine reports syntax errors.
    if parsed.panicked {
        return source;
    }
    let mut visitor = RegExps { edits: Edits::new(&source) };
    visitor.visit_program(&parsed.program);
    visitor.edits.apply()
}

struct RegExps<'s> {
    edits: Edits<'s>,
}

impl<'a> Visit<'a> for RegExps<'_> {
    fn visit_reg_exp_literal(&mut self, it: &RegExpLiteral<'a>) {
        let text = self.edits.text(it.span.start, it.span.end);
        let Some((pattern, flags)) = text.rsplit_once('/') else { return };
        if flags.contains('v') && pattern.contains('-') {
            self.edits.replace(it.span.start, it.span.end, format!("{}/{flags}", escaped(pattern)));
        }
    }
}

fn escaped(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut classes = 0_usize;
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        match next {
            '\\' => {
                out.push(next);
                out.extend(rest.next());
                continue;
            }
            '[' => classes += 1,
            ']' => classes = classes.saturating_sub(1),
            '-' if classes == 0 => {
                out.push_str(r"\x2d");
                continue;
            }
            // `(?i-m:` changes flags.
            '(' if classes == 0 && rest.as_str().starts_with('?') => {
                let rest_of = rest.as_str();
                let modifiers = rest_of.len() - rest_of[1..].trim_start_matches(|c| "ims-".contains(c)).len();
                out.push(next);
                out.extend(rest.by_ref().take(modifiers));
                continue;
            }
            _ => {}
        }
        out.push(next);
    }
    out
}
