//! The input and output of tool calls in the form for clients.

use ostler_contract::protocol::uri::inline;
use ostler_contract::{Value, json};

use crate::protocol::{Content, Diff, ToolCallChange, ToolContent, ToolStatus};
use crate::terminals::Terminals;

/// The maximum text of a file in an edit, in bytes. Of a longer one only the path is sent.
const LONGEST_TEXT: usize = 256 << 10;

pub fn content(call: &ToolCallChange, terminals: &Terminals) -> Vec<Value> {
    call.content.iter().flatten().map(|content| one(content, terminals)).collect()
}

fn one(content: &ToolContent, terminals: &Terminals) -> Value {
    match content {
        ToolContent::Block(Content::Text(text)) => json!({ "type": "text", "text": text }),
        ToolContent::Block(Content::Media { data, mime }) => {
            json!({ "type": "embeddedResource", "data": data, "contentType": mime })
        }
        ToolContent::Block(Content::Link { uri, mime, .. }) => {
            let mut link = json!({ "type": "resource", "uri": uri });
            if let Some(mime) = mime {
                link["contentType"] = mime.as_str().into();
            }
            link
        }
        ToolContent::Block(Content::Embedded { uri, text }) => {
            json!({ "type": "text", "text": format!("{uri}\n{text}") })
        }
        ToolContent::Block(Content::Unknown(kind)) => json!({ "type": "text", "text": format!("[{kind}]") }),
        ToolContent::Diff(diff) => {
            let mut edit = edit(diff);
            edit["type"] = "fileEdit".into();
            edit
        }
        ToolContent::Terminal(id) => terminals.content(id),
    }
}

/// Returns the edits of a call, for its approval.
pub fn edits(call: &ToolCallChange) -> Option<Value> {
    let diffs = call.content.iter().flatten().filter_map(|content| match content {
        ToolContent::Diff(diff) => Some(edit(diff)),
        _ => None,
    });
    let items: Vec<Value> = diffs.collect();
    (!items.is_empty()).then(|| json!({ "items": items }))
}

/// Returns the result of an ended call.
pub fn result(call: &ToolCallChange, title: &str, terminals: &Terminals) -> Value {
    let success = call.status != Some(ToolStatus::Failed);
    let mut content = content(call, terminals);
    if let (true, Some(output)) = (content.is_empty(), &call.raw_output) {
        content.push(json!({ "type": "text", "text": text_of(output) }));
    }
    let mut result = json!({ "success": success, "pastTenseMessage": title });
    if !success {
        let why = content.iter().find_map(|part| part["text"].as_str()).unwrap_or("the tool call failed");
        result["error"] = json!({ "message": why });
    }
    if !content.is_empty() {
        result["content"] = content.into();
    }
    if let Some(output @ Value::Object(_)) = &call.raw_output {
        result["structuredContent"] = output.clone();
    }
    result
}

pub fn locations(call: &ToolCallChange) -> Option<Value> {
    let locations = call.locations.as_ref().filter(|locations| !locations.is_empty())?;
    let place = |location: &crate::protocol::Location| {
        let mut place = json!({ "uri": file_uri(&location.path) });
        if let Some(line) = location.line {
            place["line"] = line.into();
        }
        place
    };
    Some(locations.iter().map(place).collect())
}

/// Formats a JSON value for users; text is unchanged.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the URI of a path.
pub fn file_uri(path: &str) -> String {
    url::Url::from_file_path(path).map_or_else(|()| path.to_owned(), |uri| uri.to_string())
}

fn edit(diff: &Diff) -> Value {
    let uri = file_uri(&diff.path);
    let side = |text: &str| {
        let content = match text.len() <= LONGEST_TEXT {
            true => inline(&uri, text),
            false => uri.clone(),
        };
        json!({ "uri": uri, "content": { "uri": content, "sizeHint": text.len(), "contentType": "text/plain" } })
    };
    let before = diff.old_text.as_deref();
    let (added, removed) = changed_lines(before.unwrap_or_default(), &diff.new_text);
    let mut edit = json!({ "after": side(&diff.new_text), "diff": { "added": added, "removed": removed } });
    if let Some(before) = before {
        edit["before"] = side(before);
    }
    edit
}

/// Returns how many lines differ between the equal beginning and the equal end.
fn changed_lines(before: &str, after: &str) -> (usize, usize) {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = |count: usize, at: fn(&[&str], usize) -> usize| {
        (0..count).take_while(|step| before[at(&before, *step)] == after[at(&after, *step)]).count()
    };
    let shorter = before.len().min(after.len());
    let head = same(shorter, |_, step| step);
    let tail = same(shorter - head, |lines, step| lines.len() - 1 - step);
    (after.len() - head - tail, before.len() - head - tail)
}

/// Returns an agent's title for readers. Many write commands and names as Markdown code; what else is in a title, such as
/// `**/*.rs`, is not Markdown.
pub fn shown_title(title: &str) -> Value {
    match title.matches('`').count() {
        0 | 1 => title.into(),
        _ => json!({ "markdown": title }),
    }
}

impl ToolCallChange {
    /// Merges the members of another message.
    pub fn merge(&mut self, change: Self) {
        fn take<T>(into: &mut Option<T>, from: Option<T>) {
            if from.is_some() {
                *into = from;
            }
        }
        self.id = change.id;
        take(&mut self.title, change.title);
        take(&mut self.name, change.name);
        take(&mut self.kind, change.kind);
        take(&mut self.status, change.status);
        take(&mut self.content, change.content);
        take(&mut self.locations, change.locations);
        take(&mut self.raw_input, change.raw_input);
        take(&mut self.raw_output, change.raw_output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_changed_are_counted() {
        assert_eq!(changed_lines("a\nb\nc", "a\nx\ny\nc"), (2, 1));
        assert_eq!(changed_lines("", "a\nb"), (2, 0));
        assert_eq!(changed_lines("a\na", "a"), (0, 1));
        assert_eq!(changed_lines("same", "same"), (0, 0));
    }

    #[test]
    fn a_new_file_has_no_text_before() {
        let edit = edit(&Diff { path: "/a b".into(), old_text: None, new_text: "50 %\n".into() });
        assert_eq!(edit["after"]["uri"], "file:///a%20b");
        assert_eq!(edit["after"]["content"]["uri"], "ostler-inline:/a%20b?NTAgJQo");
        assert!(edit.get("before").is_none());
    }
}
