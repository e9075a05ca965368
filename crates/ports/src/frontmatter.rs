//! Markdown with YAML frontmatter: fields between two lines of `---`, then a body.

use std::borrow::Cow;

use ostler_contract::{JsonObject, Value};

use crate::yaml::{self, YamlError};

const FENCE: &str = "---";

/// Splits a file. The body is exactly what follows the second fence. If the first line ends with CRLF, as some editors
/// write it, line ends are read as LF.
pub fn split(text: &str) -> Result<(JsonObject, Cow<'_, str>), YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let wrong = |line, message: &str| Err(YamlError { line, column: 1, message: message.to_owned() });

    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if first.trim_end() != FENCE {
        return wrong(1, "the file must begin with frontmatter between two lines of ---");
    }
    let mut at = 0;
    let end = rest.split_inclusive('\n').find_map(|line| {
        let start = at;
        at += line.len();
        (line.trim_end() == FENCE).then_some((start, at))
    });
    let Some((yaml_end, body_start)) = end else {
        return wrong(1, "the frontmatter is not closed by a line of ---");
    };

    let fields = match yaml::parse(&rest[..yaml_end]) {
        Ok(Value::Object(fields)) => fields,
        Ok(Value::Null) => JsonObject::new(),
        Ok(_) => return wrong(2, "the frontmatter must contain fields of the form `name: value`"),
        Err(error) => return Err(YamlError { line: error.line + 1, ..error }),
    };
    let body = &rest[body_start..];
    let body =
        if first.ends_with('\r') { Cow::Owned(body.replace("\r\n", "\n")) } else { Cow::Borrowed(body) };
    Ok((fields, body))
}

/// Joins a file; [`split`] returns the same parts.
pub fn join(fields: &JsonObject, body: &str) -> String {
    let mut text = format!("{FENCE}\n");
    if !fields.is_empty() {
        text.push_str(&yaml::stringify(fields));
    }
    text.push_str(FENCE);
    text.push('\n');
    text.push_str(body);
    text
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;
    use proptest::prelude::*;

    use super::*;

    fn fields(value: Value) -> JsonObject {
        match value {
            Value::Object(fields) => fields,
            _ => panic!("no object"),
        }
    }

    fn refusal(text: &str) -> String {
        split(text).unwrap_err().to_string()
    }

    #[test]
    fn fields_and_a_body() {
        let text = "---\nid: a\ntags: [x]\n---\n\n# Title\n---\nmore";
        let (read, body) = split(text).unwrap();
        assert_eq!(read, fields(json!({ "id": "a", "tags": ["x"] })));
        assert_eq!(body, "\n# Title\n---\nmore");
        assert_eq!(join(&JsonObject::new(), ""), "---\n---\n");
        assert_eq!(split("---\n---").unwrap(), (JsonObject::new(), "".into()));
        assert_eq!(split("--- \n# none\n---  \nx").unwrap(), (JsonObject::new(), "x".into()));
    }

    #[test]
    fn a_file_from_another_editor() {
        let (read, body) = split("\u{feff}---\r\nid: a\r\n---\r\none\r\ntwo\r\n").unwrap();
        assert_eq!(read, fields(json!({ "id": "a" })));
        assert_eq!(body, "one\ntwo\n");
    }

    #[test]
    fn where_it_is_broken() {
        insta::assert_snapshot!(refusal(""), @"line 1, column 1: the file must begin with frontmatter between two lines of ---");
        insta::assert_snapshot!(refusal("# Title\n"), @"line 1, column 1: the file must begin with frontmatter between two lines of ---");
        insta::assert_snapshot!(refusal("---\nid: a\n"), @"line 1, column 1: the frontmatter is not closed by a line of ---");
        insta::assert_snapshot!(refusal("---\n- a\n---\n"), @"line 2, column 1: the frontmatter must contain fields of the form `name: value`");
        insta::assert_snapshot!(refusal("---\nid: a\nid: b\n---\n"), @"line 3, column 1: duplicate mapping key `id` is not allowed here");
        insta::assert_snapshot!(refusal("---\nid: a: b\n---\nbody\n"), @"line 2, column 6: mapping values are not allowed in this context");
    }

    proptest! {
        #[test]
        fn what_is_joined_splits_the_same(
            text in prop::collection::vec(("[a-z-]{0,6}", "[-a-z \\n:#']{0,40}"), 0..4),
            body in prop_oneof![any::<String>(), "(---|\\r\\n|\\n|[a-z ]){0,20}"],
        ) {
            let fields: JsonObject = text.into_iter().map(|(key, value)| (key, value.into())).collect();
            let file = join(&fields, &body);
            prop_assert_eq!(split(&file), Ok((fields, body.into())));
        }

        #[test]
        fn no_text_panics(text in "(---|\\r|\\n|: |- |[a-z]|.){0,40}") {
            let _ = split(&text);
        }
    }
}
