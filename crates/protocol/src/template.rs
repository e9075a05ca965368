//! Templates with placeholders, such as the message of an automation.

use crate::event_path;

/// A part of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplatePart<'a> {
    /// Text that stays as it is.
    Text(&'a str),
    /// A placeholder.
    Placeholder {
        /// `{{…}}` as it is written.
        written: &'a str,
        /// The name in it.
        name: &'a str,
    },
}

/// Returns the parts of a template. Extra braces are text: `{{{at}}}` is the time in braces.
pub fn parts(template: &str) -> impl Iterator<Item = TemplatePart<'_>> {
    let mut rest = template;
    let mut placeholder = None;
    std::iter::from_fn(move || {
        if let Some(found) = placeholder.take() {
            return Some(found);
        }
        let first = rest.find("{{");
        let close = first.and_then(|first| Some(first + 2 + rest[first + 2..].find("}}")?));
        let Some((first, close)) = first.zip(close) else {
            let text = std::mem::take(&mut rest);
            return (!text.is_empty()).then_some(TemplatePart::Text(text));
        };
        // The placeholder begins at the last pair of braces before its end.
        let open = rest[..close].rfind("{{").unwrap_or(first);
        let (text, written) = (&rest[..open], &rest[open..close + 2]);
        placeholder = Some(TemplatePart::Placeholder { written, name: rest[open + 2..close].trim() });
        rest = &rest[close + 2..];
        Some(TemplatePart::Text(text))
    })
}

/// Returns the [paths](crate::event_path) of the event's fields that a template contains.
pub fn event_paths(template: &str) -> impl Iterator<Item = &str> {
    parts(template).filter_map(|part| match part {
        TemplatePart::Text(_) => None,
        TemplatePart::Placeholder { name, .. } => event_path::of_placeholder(name),
    })
}

/// Returns a message for each placeholder whose path leads to no field.
pub fn invalid_paths(template: &str) -> impl Iterator<Item = String> {
    parts(template).filter_map(|part| {
        let TemplatePart::Placeholder { written, name } = part else { return None };
        let why = event_path::check(event_path::of_placeholder(name)?).err()?;
        Some(format!("{written} {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_without_a_field_are_described() {
        let of = |template| invalid_paths(template).collect::<Vec<_>>();
        assert_eq!(
            of(r#"{{event.a[0]["x.y"]}} {{event["a"]}} {{at}} {{other[}} {{event.items[]}}"#),
            [""; 0]
        );
        assert_eq!(
            of(r#"{{event.a["x}} and {{ event.a..b }}"#),
            [
                r#"{{event.a["x}} has a quoted name without its end, such as ["x.y"]"#,
                "{{ event.a..b }} has an empty name"
            ]
        );
    }
}
