//! The context of a side chat: the text of the conversation up to the turn from which it was opened, copied once.

use ostler_protocol::wire::state::{ChatState, Message, ResponsePart, SideChatSelection};

/// Maximum size of the conversation in a side chat's context, in bytes; the oldest messages are omitted first.
const MOST: usize = 64 * 1024;

/// Returns the conversation up to a turn, including the running turn's output so far; `None` if there is no such turn.
pub(super) fn context_of(
    chat: &ChatState,
    turn: &str,
    selection: Option<&SideChatSelection>,
) -> Option<String> {
    let mut said: Vec<String> = Vec::new();
    let mut found = false;
    for held in &chat.turns {
        said.push(exchange(&held.message, &held.response_parts));
        if held.id == turn {
            found = true;
            break;
        }
    }
    if !found {
        let active = chat.active_turn.as_ref().filter(|active| active.id == turn)?;
        said.push(exchange(&active.message, &active.response_parts));
    }
    let mut room = MOST;
    let mut kept: Vec<&str> = Vec::new();
    for exchange in said.iter().rev() {
        if exchange.len() > room && !kept.is_empty() {
            break;
        }
        let exchange = last_bytes(exchange, room);
        room -= exchange.len();
        kept.push(exchange);
    }
    kept.reverse();
    let mut text = format!(
        "This conversation was opened beside another one. What was said there so far:\n\n{}",
        kept.join("\n\n")
    );
    if let Some(selection) = selection {
        text.push_str("\n\nIt is about these words of it:\n\n");
        text.push_str(&selection.text);
    }
    Some(text)
}

fn exchange(message: &Message, parts: &[ResponsePart]) -> String {
    let answered = parts.iter().filter_map(|part| match part {
        ResponsePart::Markdown(part) if !part.content.trim().is_empty() => Some(part.content.as_str()),
        _ => None,
    });
    let answer = answered.collect::<Vec<_>>().join("\n\n");
    match answer.is_empty() {
        true => format!("Person: {}", message.text),
        false => format!("Person: {}\n\nAgent: {answer}", message.text),
    }
}

/// Returns the end of a text, at most `most` bytes.
fn last_bytes(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use ostler_protocol::json;

    use super::*;

    fn chat(turns: &[(&str, &str, &str)]) -> ChatState {
        let turns: Vec<_> = turns
            .iter()
            .map(|(id, text, answer)| {
                json!({ "id": id, "state": "complete", "message": { "text": text, "origin": { "kind": "user" } },
                    "responseParts": [{ "kind": "markdown", "id": "p", "content": answer }] })
            })
            .collect();
        serde_json::from_value(json!({ "resource": "ahp-chat:/1", "title": "", "status": 1,
            "modifiedAt": "2026-01-01T00:00:00.000Z", "turns": turns,
            "activeTurn": { "id": "now", "startedAt": "2026-01-01T00:00:00.000Z",
                "message": { "text": "and now?", "origin": { "kind": "user" } },
                "responseParts": [{ "kind": "markdown", "id": "p", "content": "half an ans" }] } }))
        .expect("a chat")
    }

    #[test]
    fn what_was_said_up_to_the_turn_is_told() {
        let chat = chat(&[("1", "hay?", "yes"), ("2", "oats?", "no"), ("3", "never", "told")]);
        let told = context_of(&chat, "2", None).expect("a turn");
        assert!(told.ends_with("Person: hay?\n\nAgent: yes\n\nPerson: oats?\n\nAgent: no"), "{told}");
        let words = SideChatSelection { text: "an ans".into(), response_part_id: None };
        let told = context_of(&chat, "now", Some(&words)).expect("the running turn");
        assert!(
            told.contains("Person: never\n\nAgent: told\n\nPerson: and now?\n\nAgent: half an ans"),
            "{told}"
        );
        assert!(told.ends_with("about these words of it:\n\nan ans"), "{told}");
        assert_eq!(context_of(&chat, "4", None), None);
    }

    #[test]
    fn what_was_said_longest_ago_is_left_out_first() {
        let long = "ä".repeat(MOST);
        let chat = chat(&[("1", "first", "gone"), ("2", "second", &long), ("3", "third", "kept")]);
        let told = context_of(&chat, "2", None).expect("a turn");
        assert!(told.len() < MOST + 200 && told.ends_with('ä') && !told.contains("gone"));
        let told = context_of(&chat, "3", None).expect("a turn");
        assert!(told.ends_with("Person: third\n\nAgent: kept") && !told.contains('ä'));
    }
}
