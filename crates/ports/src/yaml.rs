//! Parsing and formatting of YAML: one document with JSON values. Used by `parseYaml` and `stringifyYaml` of plugins,
//! and for the frontmatter of files.
//!
//! It is YAML 1.2 with anchors, aliases and merge keys, within limits. `yes` and `2026-01-01` are text; a key is always
//! text. Tags of types that JSON does not have, duplicate keys, `.nan` and `.inf` are rejected.

use serde::Serialize;
use serde_json::Value;
use serde_saphyr::{MessageFormatter, Options, UserMessageFormatter};

/// The maximum nesting of lists and objects.
pub const DEPTH: usize = 100;
/// The maximum number of values in a text, including those that aliases repeat.
const NODES: usize = 250_000;

/// An error in YAML text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct YamlError {
    /// From 1.
    pub line: u64,
    /// From 1.
    pub column: u64,
    /// What is wrong at this position.
    pub message: String,
}

impl From<YamlError> for ostler_contract::Thrown {
    fn from(error: YamlError) -> Self {
        Self::new(error)
    }
}

/// Parses YAML text. Empty text is `null`.
pub fn parse(text: &str) -> Result<Value, YamlError> {
    let read = || serde_saphyr::from_str_with_options(text, options());
    on_enough_stack(read).map_err(|error| {
        let location = error.location();
        YamlError {
            line: location.as_ref().map_or(1, |at| at.line().max(1)),
            column: location.as_ref().map_or(1, |at| at.column().max(1)),
            message: UserMessageFormatter.format_message(error.without_snippet()).into_owned(),
        }
    })
}

/// Formats data as YAML text that [`parse`] reads back, unless its nesting exceeds [`DEPTH`].
pub fn stringify(value: &impl Serialize) -> String {
    // Every JSON value has a YAML form, so this does not fail; JSON text is also YAML.
    on_enough_stack(|| serde_saphyr::to_string(value))
        .or_else(|_| serde_json::to_string(value))
        .unwrap_or_default()
}

/// A level uses 4 KiB of stack (40 without optimization), and the caller's thread can have a small one.
fn on_enough_stack<T>(work: impl FnOnce() -> T) -> T {
    let room = DEPTH * if cfg!(debug_assertions) { 40 << 10 } else { 4 << 10 };
    stacker::maybe_grow(room, 2 * room, work)
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH,
            max_nodes: NODES,
            max_events: 4 * NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: NODES,
            max_replay_stack_depth: 32,
        },
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn refusal(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn what_plain_words_mean() {
        let read = parse(
            "a: yes\nb: 1e3\nc: null\nd: ~\ne: 0x1F\nf: 2026-01-01\ng: 017\nh: true\ni: 12:30:45\nj:\n1: k\ntrue: l\n",
        );
        assert_eq!(
            read,
            Ok(json!({
                "a": "yes", "b": 1000.0, "c": null, "d": null, "e": 31, "f": "2026-01-01", "g": "017", "h": true,
                "i": "12:30:45", "j": null, "1": "k", "true": "l",
            }))
        );
        assert_eq!(parse(""), Ok(Value::Null));
        assert_eq!(parse("# nothing\n"), Ok(Value::Null));
        assert_eq!(parse("\u{feff}a: 1\r\nb:\r\n- 2\r\n"), Ok(json!({ "a": 1, "b": [2] })));
    }

    #[test]
    fn anchors_and_merge_keys() {
        let read = parse("base: &b { x: 1 }\nc:\n  <<: *b\n  y: 2\nd: *b\n");
        assert_eq!(read, Ok(json!({ "base": { "x": 1 }, "c": { "y": 2, "x": 1 }, "d": { "x": 1 } })));
    }

    #[test]
    fn what_is_refused() {
        insta::assert_snapshot!(refusal("a: 1\nb: 2\na: 3\n"), @"line 3, column 1: duplicate mapping key `a` is not allowed here");
        insta::assert_snapshot!(refusal("a: [1, 2\nb: 3\n"), @"line 2, column 2: illegal placement of ':' indicator");
        insta::assert_snapshot!(refusal("a: b: c\n"), @"line 1, column 5: mapping values are not allowed in this context");
        insta::assert_snapshot!(refusal("a: 'x\n"), @"line 2, column 1: invalid indentation in multiline quoted scalar");
        insta::assert_snapshot!(refusal("a: .inf\n"), @"line 1, column 4: value `.inf` is not a finite number");
        insta::assert_snapshot!(refusal("a: 1\n---\nb: 2\n"), @"line 3, column 1: only single YAML document expected but multiple found");
        insta::assert_snapshot!(refusal("? [a]\n: 1\n"), @"line 1, column 3: expected string scalar");
        insta::assert_snapshot!(refusal("a: *nobody\n"), @"line 1, column 4: reference to unknown value");
        insta::assert_snapshot!(refusal("a: !!timestamp 2026-01-01\n"), @"line 1, column 16: cannot deserialize tagged scalar into string");
        insta::assert_snapshot!(refusal("a: &a [*a]\n"), @"line 1, column 8: Recursive reference not allowed here");
    }

    #[test]
    fn too_much_is_refused_at_once() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let alias = format!("*a{}", level - 1);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![alias; 10].join(", ")));
        }
        insta::assert_snapshot!(refusal(&bomb), @"line 6, column 10: YAML document too large or too complex: total_replayed_events=250001 > 250000");
        insta::assert_snapshot!(refusal(&"[".repeat(100_000)), @"line 1, column 256: recursion limit exceeded");
        let steps: String = (0..3000).map(|step| format!("{}a:\n", " ".repeat(step))).collect();
        insta::assert_snapshot!(refusal(&steps), @"line 101, column 101: YAML document too large or too complex: limits breached: Depth { depth: 101 }");
        insta::assert_snapshot!(refusal(&"- ".repeat(100_000)), @"line 1, column 201: YAML document too large or too complex: limits breached: Depth { depth: 101 }");
        insta::assert_snapshot!(refusal(&"{a: ".repeat(100_000)), @"line 1, column 1021: recursion limit exceeded");
    }

    #[test]
    fn as_deep_as_json_goes() {
        let mut deep = json!("end");
        for level in 0..DEPTH - 1 {
            deep = if level % 2 == 0 { json!([deep]) } else { json!({ "in": deep }) };
        }
        assert_eq!(parse(&stringify(&deep)), Ok(deep));
    }

    #[test]
    fn what_people_read() {
        let text = stringify(&json!({
            "title": "Stable: nightly", "enabled": true, "answer": "yes", "n": "1e3", "long": "one\ntwo\n",
            "triggers": [{ "id": "a", "events": [{ "id": "call" }], "config": {} }],
        }));
        insta::assert_snapshot!(text, @r#"
        title: "Stable: nightly"
        enabled: true
        answer: "yes"
        "n": "1e3"
        long: |
          one
          two
        triggers:
        - id: a
          events:
          - id: call
          config: {}
        "#);
    }

    /// Text that looks like something else, beside any text.
    fn text() -> impl Strategy<Value = String> {
        let odd = prop::sample::select(vec![
            "",
            "yes",
            "No",
            "on",
            "y",
            "true",
            "True",
            "null",
            "~",
            "1e3",
            "0x1F",
            "0o17",
            "017",
            "1_000",
            "-0",
            "+1",
            ".5",
            "1.",
            ".inf",
            "-.INF",
            ".nan",
            "2026-01-01",
            "2026-01-01T00:00:00Z",
            "12:30:45",
            "<<",
            "=",
            "- a",
            "a: b",
            "a #b",
            "#",
            "&a",
            "*a",
            "!t",
            "!!str x",
            "|",
            ">",
            "%YAML",
            "---",
            "...",
            "@a",
            "`a`",
            "?",
            "? a",
            ":",
            "[",
            "{}",
            "'",
            "\"",
            "\\",
            " lead",
            "trail ",
            "\ttab",
            "a\nb",
            "a\n\nb\n",
            "\n",
            "\n\n",
            " \n a\n",
            "a\r\nb",
            "\r",
            "\u{85}",
            "\u{2028}",
            "\u{feff}",
            "\0",
            "\u{1b}",
            "\u{7f}",
            "\u{e000}",
            "😀",
            "0b1",
            "1:2",
            "1e",
            "e1",
            "0.",
            "-",
            "--",
            "a:",
            ":a",
            "x: |\n  y",
            "key:\n  - 1",
        ])
        .prop_map(str::to_owned);
        prop_oneof![
            odd.clone(),
            ".{0,20}",
            any::<String>(),
            prop::collection::vec(odd, 1..4).prop_map(|parts| parts.join(" ")),
            prop::collection::vec("[ \\t\\n a-z:#-]{0,30}", 1..5).prop_map(|lines| lines.join("\n")),
            "[a-z ]{70,200}",
            "([a-z]{1,12} ){60,220}",
        ]
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("JSON has finite numbers", |number| number.is_finite())
                .prop_map(Value::from),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((text(), inner), 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_is_written_reads_back(value in value()) {
            let text = stringify(&value);
            let read = parse(&text);
            prop_assert_eq!(read.as_ref(), Ok(&value), "{}", text);
        }

        #[test]
        fn no_text_panics_or_hangs(text in text(), more in "[-\\[\\]{}:,&*!|>'\"%@`#? a1\\n\\t]{0,60}") {
            let _ = parse(&text);
            let _ = parse(&more);
        }
    }
}
