//! What holds for every source. The fuzz target of `fuzz/`, which includes this folder without the engine, looks for one for
//! which it does not; the test applies it to the inputs in `fuzz/corpus`.

use std::path::Path;

use oxc_allocator::Allocator;
use oxc_parser::Parser;
use oxc_span::SourceType;

use super::{Unused, strip, strip_types};

/// The deepest brackets of a source. The parser calls itself for each.
const MOST_LEVELS: usize = 60;
/// The words whose code is replaced by other code.
const REPLACED: &[&str] = &["enum", "constructor", "require", "export"];

/// Stripped TypeScript is JavaScript with the lines of its source. It has the same characters at the same places, or blanks
/// and the marks that separate statements, unless it has code in place of other code. Stripped again, it stays the same.
pub(crate) fn typescript(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    if is_deep(source) {
        return;
    }
    for ending in ["ts", "mts", "cts"] {
        for unused in [Unused::Dropped, Unused::Kept] {
            stripped(&format!("/p/a.{ending}"), source, unused);
        }
    }
    // Import attributes and regular expressions are changed in JavaScript, too.
    if let Ok(text) = strip(Path::new("/p/a.js"), source.to_owned(), || Unused::Kept) {
        assert_eq!(breaks(&text), breaks(source));
        if is_javascript(source, SourceType::unambiguous()) {
            assert!(is_javascript(&text, SourceType::unambiguous()), "{source:?} becomes {text:?}");
        }
    }
}

fn stripped(path: &str, source: &str, unused: Unused) {
    let path = Path::new(path);
    let Ok(text) = strip_types(path, source, unused) else { return };
    assert_eq!(breaks(&text), breaks(source), "{source:?} becomes {text:?}");
    // An assertion of several lines, `<\nT>a`, gets brackets.
    let brackets = |text: &str| text.matches(')').count();
    if !REPLACED.iter().any(|word| source.contains(word)) && brackets(&text) <= brackets(source) {
        let same = source.chars().zip(text.chars()).all(|(was, is)| was == is || " ;()".contains(is));
        assert!(same && source.chars().count() == text.chars().count(), "{source:?} becomes {text:?}");
    }
    let kind = match super::ending(path) {
        "mts" => SourceType::mjs(),
        "cts" => SourceType::cjs(),
        _ => SourceType::unambiguous(),
    };
    assert!(text == source || is_parsed(&text, kind), "{source:?} becomes {text:?}, which is no JavaScript");
    // With these brackets, JavaScript can be TypeScript of another meaning: `a < b > (c)`. An `import a = require('a')` is never
    // dropped, and the import that it becomes is.
    if !source.contains('<') && (unused == Unused::Kept || !source.contains("require")) {
        let again = strip_types(path, &text, unused);
        assert_eq!(again.as_ref(), Ok(&text), "{source:?}");
    }
}

fn breaks(text: &str) -> usize {
    text.matches('\n').count()
}

/// Returns whether a text has the syntax of JavaScript. The parser reports less of TypeScript that has it and is wrong, such as
/// two default exports.
fn is_parsed(source: &str, kind: SourceType) -> bool {
    let allocator = Allocator::default();
    !Parser::new(&allocator, source, kind).parse().panicked
}

fn is_javascript(source: &str, kind: SourceType) -> bool {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, kind).parse();
    !parsed.panicked && parsed.diagnostics.is_empty()
}

fn is_deep(source: &str) -> bool {
    let (mut depth, mut most) = (0_usize, 0);
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' | b'<' | b'!' | b'~' | b'-' | b'+' | b'?' | b'=' => depth += 1,
            b')' | b']' | b'}' | b';' | b'\n' => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most > MOST_LEVELS
}

#[cfg(test)]
mod tests {
    /// Applies the law to the inputs of its fuzz target.
    #[test]
    fn typescript_holds() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/typescript");
        let inputs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{} is empty", folder.display());
        for input in inputs {
            super::typescript(&std::fs::read(input).unwrap());
        }
    }
}
