//! Scripts in prompts that begin with `/`.

use std::time::Duration;

use ostler_contract::Value;
use ostler_contract::duration::read_duration;

/// The commands with their descriptions, in the order of the listing.
pub const COMMANDS: &[(&str, &str)] = &[
    ("fail", "/fail [sentence]: the turn fails with the sentence"),
    ("slow", "/slow 5s [text]: waits, then says the text"),
    ("tool", "/tool <name> {json}: calls a tool of the host or of a client and says what it answered"),
    ("confirm", "/confirm <name> {json}: the same, once somebody approved"),
    (
        "worker",
        "/worker <prompt>: has a worker say the prompt in a chat of its own; /hang waits to be stopped",
    ),
    ("ask", "/ask <question>: asks, and says the answer"),
    ("think", "/think <text>: thinks the text before it says so"),
    ("heard", "/heard [text]: says everything it was handed for this turn, hidden context first"),
    ("read", "/read <uri>: reads a resource and says what it holds, its type first where it is not text"),
    ("settings", "/settings: says which settings of the session's editors it was handed"),
    ("words", "/words <n>: says n words, as fast as it can"),
    ("throw", "/throw [sentence]: the backend throws instead of running the turn"),
    ("hang", "/hang: says nothing until it is stopped"),
];

/// A parsed prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum Script {
    /// Streams the text.
    Say(String),
    /// Fails.
    Fail(String),
    /// Throws at the start of the turn.
    Throw(String),
    /// Waits, then streams the text.
    Slow(Duration, String),
    /// Calls a tool.
    Tool {
        name: String,
        input: Value,
        /// Whether it requires approval.
        confirm: bool,
    },
    /// Asks the user.
    Ask(String),
    /// Makes a worker stream text.
    Worker(String),
    /// Streams reasoning, then the text.
    Think(String),
    /// Streams the additional context, then the text.
    Heard(String),
    /// Reads a resource and streams its content.
    Read(String),
    /// Streams the settings of the session's editors.
    Settings,
    /// Streams a number of words.
    Words(usize),
    /// Waits to be stopped.
    Hang,
}

impl Script {
    /// Parses a prompt. Text that is not a command is streamed back unchanged.
    pub fn read(prompt: &str) -> Self {
        let said = || Self::Say(prompt.to_owned());
        let Some(line) = prompt.trim().strip_prefix('/') else { return said() };
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let or = |default: &str| if rest.is_empty() { default.to_owned() } else { rest.to_owned() };
        match command {
            "fail" => Self::Fail(or("failed, as it was asked to")),
            "throw" => Self::Throw(or("threw, as it was asked to")),
            "slow" => {
                let (wait, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                match read_duration(wait, &["ms", "s", "m"]) {
                    Some(wait) => Self::Slow(wait, text.trim().to_owned()),
                    None => said(),
                }
            }
            "tool" | "confirm" => {
                let (name, input) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                let input = match input.trim() {
                    "" => Value::Object(Default::default()),
                    // Text after the input, such as lines from an automation, is ignored.
                    text => match serde_json::Deserializer::from_str(text).into_iter().next() {
                        Some(Ok(input)) => input,
                        _ => return said(),
                    },
                };
                match name {
                    "" => said(),
                    name => Self::Tool { name: name.to_owned(), input, confirm: command == "confirm" },
                }
            }
            "worker" if !rest.is_empty() => Self::Worker(rest.to_owned()),
            "ask" if !rest.is_empty() => Self::Ask(rest.to_owned()),
            "read" if !rest.is_empty() => Self::Read(rest.to_owned()),
            "settings" => Self::Settings,
            "heard" => Self::Heard(rest.to_owned()),
            "think" => Self::Think(or("…")),
            "words" => rest.parse().map_or_else(|_| said(), Self::Words),
            "hang" => Self::Hang,
            _ => said(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    #[test]
    fn commands_are_read_and_anything_else_is_said() {
        assert_eq!(Script::read("hello /there"), Script::Say("hello /there".into()));
        assert_eq!(Script::read("/nonsense"), Script::Say("/nonsense".into()));
        assert_eq!(Script::read("/fail"), Script::Fail("failed, as it was asked to".into()));
        assert_eq!(Script::read("/slow 5s done"), Script::Slow(Duration::from_secs(5), "done".into()));
        assert_eq!(Script::read("/slow 20ms"), Script::Slow(Duration::from_millis(20), String::new()));
        assert_eq!(Script::read("/slow soon"), Script::Say("/slow soon".into()));
        assert_eq!(
            Script::read(r#"/tool shout {"text":"a b"}"#),
            Script::Tool { name: "shout".into(), input: json!({ "text": "a b" }), confirm: false }
        );
        assert_eq!(
            Script::read("/tool shout {} \n\nCount: 1"),
            Script::Tool { name: "shout".into(), input: json!({}), confirm: false }
        );
        assert_eq!(Script::read("/tool shout {"), Script::Say("/tool shout {".into()));
        assert_eq!(Script::read("/words 1000"), Script::Words(1000));
        assert_eq!(Script::read("/words many"), Script::Say("/words many".into()));
        assert_eq!(Script::read("/hang"), Script::Hang);
        for (name, _) in COMMANDS {
            let filled = format!("/{name} 5s {{}}");
            assert!(name == &"words" || !matches!(Script::read(&filled), Script::Say(_)), "{filled}");
        }
    }
}
