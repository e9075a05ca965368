//! Regular expressions with the flag `v`. Outside of their classes, the engine rejects some characters that it
//! would only have to reject inside of one.

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

/// Returns JavaScript in which such characters are written as their codes.
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
        if let (true, Some(pattern)) = (flags.contains('v'), pattern.strip_prefix('/')) {
            let escaped = escaped(pattern);
            if escaped != pattern {
                self.edits.replace(it.span.start, it.span.end, format!("/{escaped}/{flags}"));
            }
        }
    }
}

/// Characters that are reserved inside of a class where two of them follow each other.
const DOUBLED: &str = "&!#%,:;<=>@`~";

/// Returns a pattern in which the engine accepts what is an ordinary character outside of classes.
pub(crate) fn escaped(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut classes = 0_usize;
    let mut rest = pattern.chars();
    let mut before = '\0';
    while let Some(next) = rest.next() {
        let last = std::mem::replace(&mut before, next);
        match next {
            '\\' => {
                out.push(next);
                out.extend(rest.next());
                before = '\0';
                continue;
            }
            '[' => classes += 1,
            ']' => classes = classes.saturating_sub(1),
            '-' | '/' if classes == 0 => {
                out.push_str(&format!("\\x{:02x}", u32::from(next)));
                continue;
            }
            _ if classes == 0 && next == last && DOUBLED.contains(next) => {
                out.push_str(&format!("\\x{:02x}", u32::from(next)));
                continue;
            }
            // `(?i-m:` changes flags.
            '(' if classes == 0 && rest.as_str().starts_with('?') => {
                let rest_of = rest.as_str();
                let modifiers = rest_of.len() - rest_of[1..].trim_start_matches(|c| "ims-".contains(c)).len();
                out.push(next);
                out.extend(rest.by_ref().take(modifiers));
                before = '?';
                continue;
            }
            _ => {}
        }
        out.push(next);
    }
    out
}
