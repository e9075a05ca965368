//! Checks that tests wait for real time only where a comment says why.
//!
//! A test that sleeps takes its time in every run, and one that sleeps before it asserts that nothing has happened passes
//! if what it forbids comes later. Code that runs in paused time is not checked: a test with `start_paused = true`, a
//! function that calls `pause()`, a file all of whose tests are paused, and a crate of `PAUSED`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{BinOp, Expr, Lit};

use crate::tidy::{relative, sources};

/// The folders whose tests are checked.
const FOLDERS: [&str; 5] = ["crates", "daemon", "plugins", "tools", "xtask"];
/// The sources that only tests use.
const HELPERS: [&str; 2] = ["crates/testkit/", "crates/simulation/"];
/// The crates that run in paused time.
const PAUSED: [&str; 1] = ["crates/simulation/"];
/// The longest sleep that needs no reason.
const SHORT: Duration = Duration::from_millis(20);
/// Functions that return after a time.
const SLEEPS: [&str; 2] = ["sleep", "sleep_until"];
/// Functions that fail after a time.
const TIMEOUTS: [&str; 3] = ["timeout", "timeout_at", "recv_timeout"];
/// Methods that return the error of a result.
const ERRORS: [&str; 4] = ["is_err", "unwrap_err", "expect_err", "err"];

/// Adds a problem for each wait for real time in tests that has no comment.
pub fn check(root: &Path, problems: &mut Vec<String>) {
    let files: Vec<(PathBuf, String)> = FOLDERS
        .iter()
        .flat_map(|folder| sources(&root.join(folder), &["rs"]))
        .map(|file| (file.clone(), fs::read_to_string(file).unwrap_or_default()))
        .collect();
    let modules: HashSet<PathBuf> = files.iter().flat_map(|(file, text)| test_modules(file, text)).collect();
    for (file, text) in &files {
        let name = relative(root, file);
        if PAUSED.iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        let is_helper = HELPERS.iter().any(|folder| name.starts_with(folder));
        match waits(text, is_helper || name.contains("/tests/") || modules.contains(file)) {
            Ok(waits) => problems.extend(waits.iter().map(|(line, wait)| format!("{name}:{line}: {wait}"))),
            Err(why) => problems.push(format!("{name}: {why}")),
        }
    }
}

/// Returns the files of the test modules that a source declares.
fn test_modules(file: &Path, text: &str) -> Vec<PathBuf> {
    let folder = match file.file_stem() {
        Some(name) if ["lib", "main", "mod"].iter().any(|root| name == *root) => file.with_file_name(""),
        _ => file.with_extension(""),
    };
    let declared = text.split("#[cfg(test)]\nmod ").skip(1).filter_map(|rest| rest.split_once(';'));
    let names = declared.map(|(name, _)| name).filter(|name| !name.contains(char::is_whitespace));
    names.map(|name| folder.join(name).with_extension("rs")).collect()
}

/// Returns the line and the problem of each wait without a comment in the tests of a source. `is_test` is set if all of
/// it is test code.
fn waits(text: &str, is_test: bool) -> Result<Vec<(usize, &'static str)>, String> {
    if !is_test && !text.contains("cfg(test)") {
        return Ok(Vec::new());
    }
    let tokens: TokenStream = text.parse().map_err(|why| format!("not Rust: {why}"))?;
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut tests = Vec::new();
    attributes_of_tests(&tokens, &mut tests);
    let is_paused = !tests.is_empty() && tests.iter().all(|test| *test);
    let mut constants = HashMap::new();
    durations(&tokens, &mut constants);
    let mut scan = Scan { lines: text.lines().collect(), constants, found: Vec::new() };
    scan.block(&tokens, Context { is_test, is_paused, statement: 0 });
    Ok(scan.found)
}

/// Adds for each attribute of a test whether it pauses time.
fn attributes_of_tests(tokens: &[TokenTree], tests: &mut Vec<bool>) {
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let attribute = group.stream().to_string();
        let path = attribute.split('(').next().unwrap_or_default().trim();
        match is_punct(tokens, at.wrapping_sub(1), '#') {
            true if path == "test" || path.ends_with(":: test") => tests.push(pauses(&attribute)),
            _ => attributes_of_tests(&inside(token), tests),
        }
    }
}

fn pauses(attribute: &str) -> bool {
    attribute.contains("start_paused = true")
}

/// Collects the constants that are durations, by name.
fn durations(tokens: &[TokenTree], constants: &mut HashMap<String, Duration>) {
    for (at, token) in tokens.iter().enumerate() {
        durations(&inside(token), constants);
        if !is_ident(tokens, at, "const") {
            continue;
        }
        let rest = &tokens[at + 1..];
        let end = (0..rest.len()).find(|at| is_punct(rest, *at, ';')).unwrap_or(rest.len());
        let Some(begin) = (0..end).find(|at| is_punct(rest, *at, '=')) else { continue };
        let value = rest[begin + 1..end].iter().cloned().collect();
        if let (TokenTree::Ident(name), Some(value)) = (&rest[0], duration(value, constants)) {
            constants.insert(name.to_string(), value);
        }
    }
}

/// Returns the duration that an expression has at most, if that is clear from the file.
fn duration(tokens: TokenStream, constants: &HashMap<String, Duration>) -> Option<Duration> {
    at_most(&syn::parse2(tokens).ok()?, constants)
}

fn at_most(expr: &Expr, constants: &HashMap<String, Duration>) -> Option<Duration> {
    match expr {
        Expr::Paren(inner) => at_most(&inner.expr, constants),
        Expr::Path(path) => {
            let name = path.path.segments.last()?.ident.to_string();
            if name == "ZERO" { Some(Duration::ZERO) } else { constants.get(&name).copied() }
        }
        Expr::Binary(binary) => match (&binary.op, number(&binary.left), number(&binary.right)) {
            (BinOp::Mul(_), Some(times), _) => at_most(&binary.right, constants)?.checked_mul(times),
            (BinOp::Mul(_), _, Some(times)) => at_most(&binary.left, constants)?.checked_mul(times),
            (BinOp::Div(_), _, Some(by)) => at_most(&binary.left, constants)?.checked_div(by),
            _ => None,
        },
        Expr::MethodCall(call) if call.method == "min" => {
            let limit = call.args.first().and_then(|limit| at_most(limit, constants));
            at_most(&call.receiver, constants).into_iter().chain(limit).min()
        }
        Expr::Call(call) => {
            let Expr::Path(path) = &*call.func else { return None };
            let number = u64::from(number(call.args.first()?)?);
            match path.path.segments.last()?.ident.to_string().as_str() {
                "from_secs" => Some(Duration::from_secs(number)),
                "from_millis" => Some(Duration::from_millis(number)),
                "from_micros" => Some(Duration::from_micros(number)),
                "from_nanos" => Some(Duration::from_nanos(number)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn number(expr: &Expr) -> Option<u32> {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// What is known of the code around a token.
#[derive(Clone, Copy)]
struct Context {
    is_test: bool,
    is_paused: bool,
    /// The line on which the statement begins.
    statement: usize,
}

struct Scan<'a> {
    lines: Vec<&'a str>,
    constants: HashMap<String, Duration>,
    found: Vec<(usize, &'static str)>,
}

impl Scan<'_> {
    /// Checks the statements or items of a block.
    fn block(&mut self, tokens: &[TokenTree], around: Context) {
        let mut context = around;
        let mut begins = true;
        for at in 0..tokens.len() {
            if std::mem::take(&mut begins) {
                context = Context { statement: line(&tokens[at]), ..around };
            }
            self.token(tokens, at, &mut context);
            let ends_block =
                matches!(&tokens[at], TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
            begins = ends_block || [';', ','].into_iter().any(|end| is_punct(tokens, at, end));
        }
    }

    /// Checks one token, and what is inside it.
    fn token(&mut self, tokens: &[TokenTree], at: usize, context: &mut Context) {
        let TokenTree::Group(group) = &tokens[at] else {
            return self.call(tokens, at, *context);
        };
        let inside = inside(&tokens[at]);
        match group.delimiter() {
            Delimiter::Brace => {
                let pauses = calls_pause(&inside);
                self.block(&inside, Context { is_paused: context.is_paused || pauses, ..*context });
            }
            Delimiter::Bracket if is_punct(tokens, at.wrapping_sub(1), '#') => {
                let attribute = group.stream().to_string();
                context.is_test |= attribute.contains("cfg (test)");
                context.is_paused |= pauses(&attribute);
            }
            _ => (0..inside.len()).for_each(|at| self.token(&inside, at, context)),
        }
    }

    /// Checks whether a call begins here that waits.
    fn call(&mut self, tokens: &[TokenTree], at: usize, context: Context) {
        let (TokenTree::Ident(name), Some(TokenTree::Group(arguments))) = (&tokens[at], tokens.get(at + 1))
        else {
            return;
        };
        let is_method = is_punct(tokens, at.wrapping_sub(1), '.');
        let is_declared = is_ident(tokens, at.wrapping_sub(1), "fn");
        if !context.is_test
            || context.is_paused
            || is_declared
            || arguments.delimiter() != Delimiter::Parenthesis
        {
            return;
        }
        let name = name.to_string();
        let arguments = split(&arguments.stream().into_iter().collect::<Vec<_>>());
        let time = arguments.first().and_then(|time| duration(time.clone(), &self.constants));
        let problem = if SLEEPS.contains(&name.as_str()) && !is_method {
            match time {
                Some(time) if time <= SHORT => return,
                _ => {
                    "a test waits for real time; wait for what has to happen, pause time, or write the reason \
                     in a comment beside it"
                }
            }
        } else if TIMEOUTS.contains(&name.as_str()) && time != Some(Duration::ZERO) && fails(tokens, at) {
            "a test waits for nothing to happen; send a marker after it and assert the order, pause time, or \
             write the reason in a comment beside it"
        } else {
            return;
        };
        let line = line(&tokens[at]);
        if !self.has_comment(line) && !self.has_comment(context.statement) {
            self.found.push((line, problem));
        }
    }

    /// Whether a line has a comment at its end or directly above it.
    fn has_comment(&self, line: usize) -> bool {
        let text =
            |line: usize| self.lines.get(line.wrapping_sub(1)).copied().unwrap_or_default().trim_start();
        text(line).contains(" // ") || text(line - 1).starts_with("//")
    }
}

/// Whether the error of the call at this token is expected: a method of its result asks for it, `matches!` or `assert_eq!`
/// compares it with one, or a later statement does so by its name. A condition expects nothing.
fn fails(tokens: &[TokenTree], at: usize) -> bool {
    let begin = (0..at).rev().find(|at| is_punct(tokens, *at, ';')).map_or(0, |end| end + 1);
    if (begin..at).any(|at| is_ident(tokens, at, "if") || is_ident(tokens, at, "while")) {
        return false;
    }
    let mut next = at + 2;
    while is_punct(tokens, next, '.') && is_ident(tokens, next + 1, "await") {
        next += 2;
    }
    if is_punct(tokens, next, '.') {
        return ERRORS.iter().any(|error| is_ident(tokens, next + 1, error));
    }
    if is_punct(tokens, next, ',') {
        return is_ident(tokens, next + 1, "Err");
    }
    let Some(let_at) = (begin..at).rev().find(|at| is_ident(tokens, *at, "let")) else { return false };
    match tokens.get(let_at + 1) {
        Some(TokenTree::Ident(name)) if name == "Err" => true,
        Some(TokenTree::Ident(name)) if is_punct(tokens, next, ';') => {
            asks_for_error(&tokens[next..], &name.to_string())
        }
        _ => false,
    }
}

/// Whether a method of the value with this name asks for its error.
fn asks_for_error(tokens: &[TokenTree], name: &str) -> bool {
    (0..tokens.len()).any(|at| {
        let asks = is_ident(tokens, at, name)
            && is_punct(tokens, at + 1, '.')
            && ERRORS.iter().any(|error| is_ident(tokens, at + 2, error));
        asks || asks_for_error(&inside(&tokens[at]), name)
    })
}

/// Whether statements of this block pause time.
fn calls_pause(tokens: &[TokenTree]) -> bool {
    (0..tokens.len()).any(|at| {
        let arguments = tokens.get(at + 1).map(ToString::to_string).unwrap_or_default();
        is_ident(tokens, at, "pause") && arguments == "()"
            || is_ident(tokens, at, "start_paused") && arguments == "(true)"
    })
}

/// Splits arguments at their commas.
fn split(tokens: &[TokenTree]) -> Vec<TokenStream> {
    let mut all = vec![TokenStream::new()];
    for at in 0..tokens.len() {
        match is_punct(tokens, at, ',') {
            true => all.push(TokenStream::new()),
            false => all.last_mut().into_iter().for_each(|last| last.extend([tokens[at].clone()])),
        }
    }
    all
}

fn inside(token: &TokenTree) -> Vec<TokenTree> {
    match token {
        TokenTree::Group(group) => group.stream().into_iter().collect(),
        _ => Vec::new(),
    }
}

fn is_ident(tokens: &[TokenTree], at: usize, name: &str) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Ident(ident)) if ident == name)
}

fn is_punct(tokens: &[TokenTree], at: usize, character: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of a test's body that wait without a reason.
    fn lines(body: &str) -> Vec<usize> {
        let text = format!(
            "const LONG: Duration = Duration::from_secs(2);\n#[tokio::test]\nasync fn a() {{\n{body}\n}}\n"
        );
        waits(&text, true).unwrap().into_iter().map(|(line, _)| line - 3).collect()
    }

    #[test]
    fn sleeps_that_are_long_or_not_constant_are_found() {
        for body in [
            "sleep(Duration::from_millis(21)).await;",
            "tokio::time::sleep(std::time::Duration::from_secs(1)).await;",
            "std::thread::sleep(LONG);",
            "sleep(2 * LONG).await;",
            "sleep(Duration::from_millis(5) * 5).await;",
            "sleep(LONG / 2).await;",
            "sleep(time).await;",
            "sleep(Duration::from_millis(dice.roll(20))).await;",
            "sleep_until(Instant::now() + LONG).await;",
            "tokio::select! { () = sleep(LONG) => {} }",
            "tokio::spawn(async move { sleep(LONG).await });",
            "async fn inner() { sleep(LONG).await }",
        ] {
            assert_eq!(lines(body), [1], "{body}");
        }
        assert_eq!(lines("until(|| {\n  let a = 1;\n  sleep(LONG)\n});"), [3]);
    }

    #[test]
    fn timeouts_that_are_expected_are_found() {
        for body in [
            "assert!(timeout(Duration::from_millis(5), next()).await.is_err());",
            "tokio::time::timeout(LONG, next()).await.unwrap_err();",
            "timeout_at(end, next()).await.expect_err(\"nothing comes\");",
            "let nothing = timeout(LONG, next()).await; assert!(nothing.is_err(), \"nothing comes\");",
            "assert!(matches!(timeout(LONG, next()).await, Err(_)));",
            "assert_eq!(heard.recv_timeout(LONG), Err(RecvTimeoutError::Timeout));",
            "let Err(_) = timeout(LONG, next()).await else { panic!() };",
        ] {
            assert_eq!(lines(body), [1], "{body}");
        }
    }

    #[test]
    fn short_sleeps_and_other_timeouts_are_not_found() {
        for body in [
            "sleep(Duration::from_millis(20)).await;",
            "sleep(LONG / 100).await;",
            "sleep(left.min(Duration::from_millis(5))).await;",
            "session.sleep(LONG);",
            "fn sleep(time: Duration) {}",
            "let text = \"sleep(LONG)\";",
            "if waits.recv_timeout(LONG).is_err() { kill(); }",
            "timeout(LONG, next()).await.unwrap();",
            "assert!(timeout(LONG, next()).await.unwrap().is_err());",
            "let ended = timeout(LONG, next()).await; assert!(ended.is_ok()); other.is_err();",
            "assert!(timeout(Duration::ZERO, next()).await.is_err());",
        ] {
            assert_eq!(lines(body), [0; 0], "{body}");
        }
    }

    #[test]
    fn a_comment_beside_a_wait_is_its_reason() {
        for body in [
            "// The kernel reports it later.\nsleep(LONG).await;",
            "sleep(LONG).await; // The kernel reports it later.",
            "// The kernel reports it later.\nlet nothing =\n  timeout(LONG, next()).await;\nassert!(nothing.is_err());",
            "until(|| {\n// The kernel reports it later.\nsleep(LONG)\n});",
        ] {
            assert_eq!(lines(body), [0; 0], "{body}");
        }
        assert_eq!(lines("// Of another line.\nlet a = \"http://a\";\nsleep(LONG).await;"), [3]);
        assert_eq!(lines("// Of the first.\nsleep(LONG).await;\nsleep(LONG).await;"), [3]);
    }

    #[test]
    fn paused_time_is_not_real() {
        let paused = "#[tokio::test(start_paused = true)]\nasync fn a() { sleep(LONG).await; }\n";
        let real = "#[tokio::test]\nasync fn b() {}\n";
        let helper = "async fn helper() { sleep(LONG).await; }\n";
        let found =
            |text: &str| waits(text, true).unwrap().into_iter().map(|(line, _)| line).collect::<Vec<_>>();
        assert_eq!(found(&format!("{paused}{helper}")), [0; 0], "all tests of the file are paused");
        assert_eq!(found(&format!("{paused}{real}{helper}")), [5]);
        assert_eq!(found(helper), [1]);
        assert_eq!(found("fn a() { tokio::time::pause(); sleep(LONG); }\nfn b() { sleep(LONG); }"), [2]);
        assert_eq!(
            found("fn a() { builder.start_paused(true); spawn(async { sleep(LONG).await }); }"),
            [0; 0]
        );
    }

    #[test]
    fn only_tests_are_checked() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let sleeps = "fn a() { sleep(LONG); }\n";
        write(
            "crates/engine/src/a.rs",
            &format!("{sleeps}#[cfg(test)]\nmod tests {{\n{sleeps}}}\nfn b() {{ sleep(LONG); }}\n"),
        );
        write("crates/engine/tests/a.rs", sleeps);
        write("crates/simulation/src/a.rs", sleeps);
        write("crates/testkit/src/a.rs", sleeps);
        write("daemon/src/a.rs", sleeps);
        write("daemon/src/b.rs", "#[cfg(test)]\nmod tests;\n");
        write("daemon/src/b/tests.rs", sleeps);
        write("daemon/tests/a/b.rs", "fn a() {\n    assert!(timeout(LONG, b()).await.is_err());\n}\n");
        let mut problems = Vec::new();
        check(root.path(), &mut problems);
        let places: Vec<&str> =
            problems.iter().filter_map(|problem| problem.split_once(": ")).map(|(place, _)| place).collect();
        let expected = [
            "crates/engine/src/a.rs:4",
            "crates/engine/tests/a.rs:1",
            "crates/testkit/src/a.rs:1",
            "daemon/src/b/tests.rs:1",
            "daemon/tests/a/b.rs:2",
        ];
        assert_eq!(places, expected);
        assert!(problems[0].contains(": a test waits for real time; "), "{problems:?}");
        assert!(problems[4].contains(": a test waits for nothing to happen; "), "{problems:?}");
    }
}
