//! The conversation so far, for an agent that cannot load it: the latest messages and answers, within a limit.

use std::collections::VecDeque;

use ostler_contract::wire::state::{ResponsePart, Turn};

/// The size of the transcript, in bytes.
const LIMIT: usize = 32 << 10;
/// The maximum size of a message or answer in it, in bytes.
pub const RETAINED: usize = LIMIT / 4;

/// The latest turns of a conversation.
#[derive(Debug, Default)]
pub struct Transcript {
    /// The hidden context before the first message, which is as large as the host lets it be.
    context: Option<String>,
    turns: VecDeque<(String, String)>,
    size: usize,
}

impl Transcript {
    /// Creates it from turns of the host, and the hidden context that an agent has received before the first one.
    pub fn of(turns: &[Turn], context: Option<String>) -> Self {
        let mut transcript = Self { context, ..Self::default() };
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

    /// Adds hidden context that the agent has received.
    pub fn add_context(&mut self, context: String) {
        self.context = Some(context);
    }

    /// Adds a turn, and drops the oldest beyond the limit.
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

    /// Drops the latest turn.
    pub fn forget_last(&mut self) {
        if let Some((message, answer)) = self.turns.pop_back() {
            self.size -= message.len() + answer.len();
        }
    }

    /// Returns the turns as Markdown for users; `None` if there are none.
    pub fn markdown(&self) -> Option<String> {
        let turn = |(message, answer): &(String, String)| format!("**User:** {message}\n\n{answer}");
        let turns: Vec<String> = self.turns.iter().map(turn).collect();
        (!turns.is_empty()).then(|| format!("Earlier in this session:\n\n{}", turns.join("\n\n")))
    }

    /// Returns the text for an agent before the next message; `None` if there are no turns.
    pub fn text(&self) -> Option<String> {
        let turns =
            self.turns.iter().map(|(message, answer)| format!("User: {message}\n\nAssistant: {answer}"));
        let parts: Vec<String> = self.context.iter().cloned().chain(turns).collect();
        (!self.turns.is_empty()).then(|| {
            format!(
                "The conversation so far, which an earlier process of yours had:\n\n{}\n\nIt continues with the next message.",
                parts.join("\n\n")
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
