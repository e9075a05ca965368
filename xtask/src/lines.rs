//! `cargo xtask lines`: counts the lines of the product by crate.
//!
//! A line counts if it has code of the product: blank lines, comments, documentation and tests do not count, nor do crates
//! that only test, measure or build the product.

use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tidy::{relative, sources};

/// The crates and folders of crates that are no part of the product.
const APART: [&str; 6] =
    ["benches", "crates/simulation", "crates/test-features", "crates/testkit", "tools", "xtask"];
/// The folders of a crate with JavaScript of the product: what the engine provides, and pages.
const SCRIPTS: [&str; 2] = ["std", "web"];

/// The lines of a crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    rust: usize,
    javascript: usize,
}

/// Counts the lines of each crate of the product; returns a table.
///
/// # Errors
/// cargo cannot read the workspace, or a source cannot be read.
pub fn run(root: &Path) -> Result<String, String> {
    let packages = crate::cargo::packages(root)?;
    let manifests = packages.iter().filter_map(|package| package["manifest_path"].as_str());
    let mut folders: Vec<&Path> = manifests.filter_map(|manifest| Path::new(manifest).parent()).collect();
    folders.retain(|folder| !APART.iter().any(|apart| folder.starts_with(root.join(apart))));
    folders.sort_unstable();
    let counted = std::thread::scope(|scope| {
        // All threads are started before the first one is waited for.
        let threads: Vec<_> =
            folders.into_iter().map(|folder| (folder, scope.spawn(move || count(root, folder)))).collect();
        let mut counted = Vec::new();
        for (folder, thread) in threads {
            let name = relative(root, folder);
            let lines = thread.join().map_err(|_| format!("{name} could not be counted"))??;
            counted.push((name, lines));
        }
        Ok::<_, String>(counted)
    })?;
    Ok(table(&counted))
}

fn table(crates: &[(String, Lines)]) -> String {
    let width = crates.iter().map(|(name, _)| name.len()).max().unwrap_or_default().max("crate".len());
    let mut total = Lines::default();
    let mut table = format!("{:width$}  {:>7}  {:>10}\n", "crate", "Rust", "JavaScript");
    for (name, lines) in crates {
        let _ = writeln!(table, "{name:width$}  {:>7}  {:>10}", lines.rust, lines.javascript);
        total.rust += lines.rust;
        total.javascript += lines.javascript;
    }
    let _ = writeln!(table, "{:width$}  {:>7}  {:>10}", "total", total.rust, total.javascript);
    table
}

/// Counts the lines of one crate.
fn count(root: &Path, folder: &Path) -> Result<Lines, String> {
    let read =
        |file: &Path| fs::read_to_string(file).map_err(|error| format!("{}: {error}", relative(root, file)));
    let mut tests: Vec<PathBuf> = Vec::new();
    let mut counts = Vec::new();
    for file in product(folder, "src", &["rs"]) {
        let source =
            Source::read(&read(&file)?).map_err(|why| format!("{}: {why}", relative(root, &file)))?;
        tests.extend(source.tests.iter().flat_map(|module| module.files(&file)));
        counts.push((file, source.lines));
    }
    counts.retain(|(file, _)| !tests.iter().any(|test| file.starts_with(test)));
    let rust = counts.iter().map(|(_, lines)| lines).sum();
    let mut javascript = 0;
    for file in SCRIPTS.iter().flat_map(|scripts| product(folder, scripts, &["js", "mjs"])) {
        javascript += script_lines(&read(&file)?);
    }
    Ok(Lines { rust, javascript })
}

/// Returns the files below a folder of a crate that are not below a folder of tests.
fn product(folder: &Path, inside: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut files = sources(&folder.join(inside), extensions);
    files.retain(|file| {
        let inside = file.strip_prefix(folder).unwrap_or(file);
        inside.components().all(|part| part.as_os_str() != "tests")
    });
    files
}

/// Counts the lines of a formatted script: a comment has lines of its own.
fn script_lines(text: &str) -> usize {
    let mut in_comment = false;
    let is_code = |line: &&str| {
        let line = line.trim();
        let is_comment = in_comment || line.starts_with("//") || line.starts_with("/*");
        in_comment = (in_comment || line.starts_with("/*")) && !line.contains("*/");
        !is_comment && !line.is_empty()
    };
    text.lines().filter(is_code).count()
}

/// A Rust source.
struct Source {
    /// The lines of the product.
    lines: usize,
    /// The modules of other files that only tests compile.
    tests: Vec<Module>,
}

/// A module in another file.
#[derive(Debug, PartialEq, Eq)]
struct Module {
    name: String,
    /// The file that an attribute names.
    path: Option<String>,
}

impl Module {
    /// Returns the files and folders that the module can consist of, declared in this file.
    fn files(&self, declared_in: &Path) -> Vec<PathBuf> {
        let beside = declared_in.with_file_name("");
        if let Some(path) = &self.path {
            return vec![beside.join(path)];
        }
        let is_folder = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| declared_in.ends_with(name));
        let module = if is_folder { beside } else { declared_in.with_extension("") }.join(&self.name);
        vec![module.with_extension("rs"), module]
    }
}

impl Source {
    fn read(text: &str) -> Result<Self, String> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let mut reader =
            Reader { has_code: vec![false; lines.len()], lines, ranges: Vec::new(), tests: Vec::new() };
        let tokens: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
        reader.read(tokens);
        // Spans are kept for the thread otherwise.
        proc_macro2::extra::invalidate_current_thread_spans();
        let Reader { mut has_code, ranges, tests, .. } = reader;
        for range in ranges {
            has_code[range].fill(false);
        }
        Ok(Self { lines: has_code.into_iter().filter(|has_code| *has_code).count(), tests })
    }
}

/// Finds the lines with code and the items of tests.
struct Reader<'a> {
    lines: Vec<&'a str>,
    has_code: Vec<bool>,
    ranges: Vec<RangeInclusive<usize>>,
    tests: Vec<Module>,
}

impl Reader<'_> {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at..] {
                [TokenTree::Punct(mark), TokenTree::Punct(inner), TokenTree::Group(attribute), ..]
                    if mark.as_char() == '#' && inner.as_char() == '!' && is_test(&attribute.stream()) =>
                {
                    // The file or the module is one of tests.
                    self.ranges.extend(span(&tokens));
                    return;
                }
                [TokenTree::Punct(mark), TokenTree::Group(attribute), ..]
                    if mark.as_char() == '#' && is_test(&attribute.stream()) =>
                {
                    let item = &tokens[at..at + item_length(&tokens[at..])];
                    self.tests.extend(module(item));
                    self.ranges.extend(span(item));
                    at += item.len();
                    continue;
                }
                [TokenTree::Group(group), ..] => {
                    self.mark(group.span_open());
                    self.read(group.stream());
                    self.mark(group.span_close());
                }
                [token, ..] => self.mark(token.span()),
                [] => {}
            }
            at += 1;
        }
    }

    /// Marks the lines of a token.
    fn mark(&mut self, span: proc_macro2::Span) {
        let (start, end) = (span.start().line - 1, span.end().line - 1);
        // The tokens of documentation have the place of the comment.
        if ["//", "/*"].iter().any(|comment| self.lines[start].starts_with(comment)) {
            return;
        }
        for line in start..=end {
            self.has_code[line] |= !self.lines[line].is_empty();
        }
    }
}

/// Returns the lines from the first to the last of these tokens.
fn span(tokens: &[TokenTree]) -> Option<RangeInclusive<usize>> {
    let (first, last) = (tokens.first()?, tokens.last()?);
    Some(first.span().start().line - 1..=last.span().end().line - 1)
}

/// Returns whether an attribute limits an item to tests: `cfg(test)` or `cfg(all(test, …))`.
fn is_test(attribute: &TokenStream) -> bool {
    let condition = |tokens: &TokenStream, name: &str| -> Option<TokenStream> {
        let mut tokens = tokens.clone().into_iter();
        match (tokens.next()?, tokens.next()?) {
            (TokenTree::Ident(ident), TokenTree::Group(group)) if ident == name => Some(group.stream()),
            _ => None,
        }
    };
    let Some(cfg) = condition(attribute, "cfg") else { return false };
    let conditions = condition(&cfg, "all").unwrap_or(cfg);
    let mut after_comma = true;
    conditions.into_iter().any(|token| {
        let is_first = std::mem::replace(
            &mut after_comma,
            matches!(&token, TokenTree::Punct(comma) if comma.as_char() == ','),
        );
        is_first && matches!(&token, TokenTree::Ident(ident) if ident == "test")
    })
}

/// Returns the number of tokens of the item or member that begins with these tokens, its attributes included.
fn item_length(tokens: &[TokenTree]) -> usize {
    let begin = after_attributes(tokens);
    let mut words = tokens[begin..].iter().filter_map(|token| match token {
        TokenTree::Ident(word) if word != "pub" => Some(word.to_string()),
        _ => None,
    });
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_function = ["async", "extern", "fn", "unsafe"].contains(&second.as_str());
    let (by_comma, by_brace) = match first.as_str() {
        "let" | "static" | "type" | "use" => (false, false),
        "const" => (false, is_function),
        "async" | "enum" | "extern" | "fn" | "impl" | "macro_rules" | "mod" | "struct" | "trait"
        | "union" | "unsafe" => (false, true),
        // A field, a variant or an arm.
        _ => (true, true),
    };
    let is_end = |token: &TokenTree| match token {
        TokenTree::Punct(end) => end.as_char() == ';' || by_comma && end.as_char() == ',',
        TokenTree::Group(group) => by_brace && group.delimiter() == Delimiter::Brace,
        _ => false,
    };
    tokens[begin..].iter().position(is_end).map_or(tokens.len(), |end| begin + end + 1)
}

/// Returns the number of tokens of the attributes that these tokens begin with.
fn after_attributes(tokens: &[TokenTree]) -> usize {
    let attributes = tokens.chunks_exact(2).take_while(
        |pair| matches!(pair, [TokenTree::Punct(mark), TokenTree::Group(_)] if mark.as_char() == '#'),
    );
    2 * attributes.count()
}

/// Returns the module that an item declares, if it is in another file.
fn module(item: &[TokenTree]) -> Option<Module> {
    let (attributes, declaration) = item.split_at(after_attributes(item));
    let [.., TokenTree::Ident(keyword), TokenTree::Ident(name), TokenTree::Punct(_)] = declaration else {
        return None;
    };
    let path = attributes.iter().find_map(|attribute| {
        let TokenTree::Group(attribute) = attribute else { return None };
        let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
        match tokens.as_slice() {
            [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(path)] if name == "path" => {
                Some(path.to_string().trim_matches('"').to_owned())
            }
            _ => None,
        }
    });
    (keyword == "mod").then(|| Module { name: name.to_string(), path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> usize {
        Source::read(text).unwrap().lines
    }

    #[test]
    fn lines_with_code_count() {
        let text = "//! Text.\n\n// A comment.\nuse a::b; // Of b.\n\n/* A\n   block. */\n/// Documentation\n/** of f. */\n\
                    fn f() {\n    let url = \"\nhttp://a\n\n// b\";\n}\n";
        // The use, the function, and the string without its blank line.
        assert_eq!(lines(text), 6);
    }

    #[test]
    fn each_kind_of_test_item_is_left_out() {
        for item in [
            "#[cfg(test)]\nmod tests {\n    fn g() {}\n}",
            "#[cfg(test)]\n#[allow(dead_code)]\npub(crate) fn g<A, B>() -> [u8; 2] {\n    [1, 2]\n}",
            "#[cfg(test)]\nuse a::{\n    b,\n    c,\n};",
            "#[cfg(test)]\nconst A: B = B {\n    c: 1,\n};",
            "#[cfg(test)]\nconst fn a() {\n}",
            "#[cfg(test)]\nimpl A {\n    const B: u8 = 1;\n}",
            "#[cfg(all(unix, test))]\nstruct A(\n    u8,\n);",
            "/// Documentation.\n#[cfg(test)]\n/// More.\nstatic A: u8 = 1;",
            "#[cfg(test)]\nmacro_rules! m {\n    () => {};\n}",
        ] {
            assert_eq!(lines(&format!("fn before() {{}}\n{item}\nfn after() {{}}\n")), 2, "{item}");
        }
        assert_eq!(lines("struct A {\n    b: u8,\n    #[cfg(test)]\n    c: u8,\n}\n"), 3);
        assert_eq!(lines("const A: B = B {\n    #[cfg(test)]\n    c: C,\n    d: D,\n};\n"), 3);
        assert_eq!(lines("#![cfg(test)]\n\nfn f() {}\n"), 0);
    }

    #[test]
    fn code_that_others_compile_too_counts() {
        for attribute in
            ["cfg(not(test))", "cfg(any(test, unix))", "cfg(feature = \"test\")", "cfg_attr(test, a)"]
        {
            assert_eq!(lines(&format!("#[{attribute}]\nfn f() {{}}\n")), 2, "{attribute}");
        }
    }

    #[test]
    fn scripts_are_counted_without_comments() {
        let text = "// Text.\n/* One line. */\n/**\n * Several.\n */\nimport 'a'; // Of a.\n\nconst b = '/*';\nb();\n";
        assert_eq!(script_lines(text), 3);
    }

    #[test]
    fn modules_and_folders_of_tests_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            (
                "src/lib.rs",
                "mod a;\n#[cfg(test)]\nmod page;\n#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;\n",
            ),
            ("src/page.rs", "fn f() {}\n"),
            ("src/page/inner.rs", "fn f() {}\n"),
            ("src/b_tests.rs", "fn f() {}\n"),
            ("src/a.rs", "#[cfg(test)]\nmod tests;\nfn f() {}\n"),
            ("src/a/tests.rs", "fn f() {}\n"),
            ("src/tests.rs", "fn f() {}\nfn g() {}\n"),
            ("src/a/tests/more.rs", "fn f() {}\n"),
            ("tests/outside.rs", "fn f() {}\n"),
            ("std/a.js", "a();\n"),
            ("web/tests/a.js", "a();\n"),
            ("packages/a.js", "a();\n"),
        ] {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let lines = count(root.path(), root.path()).unwrap();
        assert_eq!(lines, Lines { rust: 4, javascript: 1 });
    }

    #[test]
    fn the_table_ends_with_the_total() {
        let crates = [
            ("crates/a".to_owned(), Lines { rust: 1200, javascript: 30 }),
            ("daemon".to_owned(), Lines { rust: 5, javascript: 0 }),
        ];
        assert_eq!(
            table(&crates),
            "crate        Rust  JavaScript\ncrates/a     1200          30\ndaemon          5           0\n\
             total        1205          30\n"
        );
    }
}
