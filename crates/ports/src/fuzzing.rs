//! What holds for every input of this crate's readers. The fuzz targets of `fuzz/` look for an input for which it does not;
//! the tests apply it to the inputs in `fuzz/corpus`.

use ostler_contract::{JsonObject, Value};

use crate::{frontmatter, yaml};

/// A file that is split has the same parts when they are joined; any text is a body; YAML that is parsed has the same value
/// when it is formatted; and JSON is YAML with the same value.
pub fn frontmatter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match frontmatter::split(text) {
        Ok((fields, body)) => {
            assert!(body.len() <= text.len(), "the body is a part of the file");
            let joined = frontmatter::join(&fields, &body);
            assert_eq!(frontmatter::split(&joined), Ok((fields, body)), "joined: {joined}");
        }
        Err(error) => {
            let lines = u64::try_from(text.split('\n').count()).unwrap_or(u64::MAX);
            assert!(error.line >= 1 && error.line <= lines + 1, "line {} of {lines}", error.line);
        }
    }
    let joined = frontmatter::join(&JsonObject::new(), text);
    assert_eq!(frontmatter::split(&joined), Ok((JsonObject::new(), text.into())));
    if let Ok(value) = yaml::parse(text) {
        let written = yaml::stringify(&value);
        assert_eq!(yaml::parse(&written).as_ref(), Ok(&value), "written: {written}");
    }
    if let Ok(value) = serde_json::from_str::<Value>(text)
        && depth(&value) < yaml::DEPTH
    {
        let json = value.to_string();
        assert_eq!(yaml::parse(&json).as_ref(), Ok(&value), "{json}");
        let written = yaml::stringify(&value);
        assert_eq!(yaml::parse(&written).as_ref(), Ok(&value), "written: {written}");
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(entries) => 1 + entries.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    /// Applies the law to the inputs of its fuzz target.
    #[test]
    fn frontmatter_holds() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/frontmatter");
        let inputs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{} is empty", folder.display());
        for input in inputs {
            super::frontmatter(&std::fs::read(input).unwrap());
        }
    }
}
