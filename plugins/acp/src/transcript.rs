//! The conversation so far, for an agent that cannot load it: the latest messages and answers, within a limit.

use std::collections::VecDeque;

use ostler_contract::wire::state::{ResponsePart, Turn};

/// How much is retained, in bytes.
const LIMIT: usize = 32 << 10;
/// How much of one message or answer is retained, in bytes.
pub const RETAINED: usize = LIMIT / 4;

/// The latest turns of a conversation.
#[derive(Debug, Default)]
pub struct Transcript {
    turns: VecDeque<(String, String)>,
    size: usize,
}

impl Transcript {
    /// Of turns the host knows.
    pub fn of(turns: &[Turn]) -> Self {
        let mut transcript = Self::default();
        for turn in turns {
            let answer: String = turn
                .response_parts
                .iter()
                .filter_map(|part| match part {
                    ResponsePart::Markdown(part) => Some(part.content.as_str()),
                    _ => None,
                })
                .collect();
            transcript.add(&turn.message.text, &answer);
        }
        transcript
    }

    /// Adds a turn. The oldest ones make room.
    pub fn add(&mut self, message: &str, answer: &str) {
        let cut = |text: &str| text[..text.floor_char_boundary(RETAINED)].to_owned();
        let turn = (cut(message), cut(answer));
        self.size += turn.0.len() + turn.1.len();
        self.turns.push_back(turn);
        while self.size > LIMIT {
            let Some((message, answer)) = self.turns.pop_front() else { return };
            self.size -= message.len() + answer.len();
        }
    }

    /// The turns as Markdown, for users; nothing where there are none.
    pub fn markdown(&self) -> Option<String> {
        let turn = |(message, answer): &(String, String)| format!("**User:** {message}\n\n{answer}");
        let turns: Vec<String> = self.turns.iter().map(turn).collect();
        (!turns.is_empty()).then(|| format!("Earlier in this session:\n\n{}", turns.join("\n\n")))
    }

    /// The text an agent is handed before the next message; nothing where there is nothing to tell.
    pub fn text(&self) -> Option<String> {
        let turns: Vec<String> = self
            .turns
            .iter()
            .map(|(message, answer)| format!("User: {message}\n\nAssistant: {answer}"))
            .collect();
        (!turns.is_empty()).then(|| {
            format!(
                "The conversation so far, which an earlier process of yours had:\n\n{}\n\nIt continues with the next message.",
                turns.join("\n\n")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_turns_make_room() {
        let mut transcript = Transcript::default();
        assert_eq!(transcript.text(), None);
        for at in 0..100 {
            transcript.add(&format!("message {at}"), &"é".repeat(LIMIT));
        }
        let text = transcript.text().unwrap();
        assert!(text.len() < LIMIT + 1024 && text.contains("message 99") && !text.contains("message 9\n"));
    }
}
