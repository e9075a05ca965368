//! Errors of agents for users: what happened, where, and what to do.

use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use crate::agent::AuthMethod;
use crate::agent_connection::Failure;
use crate::options::AgentOptions;

/// Why an agent could not take part in a turn.
#[derive(Debug, Clone)]
pub enum AgentError {
    /// Its program is missing.
    NotInstalled,
    /// Its working directory is missing.
    NoFolder(String),
    /// Its program is not executable.
    NotExecutable,
    /// Its program exists and cannot be run, with the reason.
    Unfit(String),
    /// Its program could not be started.
    NotStarted(String),
    /// It ended.
    Ended {
        /// How it ended.
        status: Option<ExitStatus>,
        /// Why its output was no longer read, if it did not end by itself.
        broken: Option<String>,
        /// The last lines of its stderr.
        stderr: String,
        /// The first line of its output that is not a message.
        noise: Option<String>,
    },
    /// It did not answer in time.
    Silent {
        /// The request.
        method: &'static str,
        /// The limit.
        waited: Duration,
        /// The last lines of its stderr.
        stderr: String,
        /// The first line of its output that is not a message.
        noise: Option<String>,
    },
    /// It exceeded the memory limit.
    Memory {
        /// The limit, in bytes.
        limit: u64,
    },
    /// It exceeded the limit of text in one turn.
    Output {
        /// The limit, in bytes.
        limit: usize,
    },
    /// It requires a sign-in.
    SignIn {
        /// The ways that it offers.
        methods: Vec<AuthMethod>,
        /// Its own words, if they say more than that.
        said: Option<String>,
    },
    /// It was started several times for one turn.
    Starts {
        /// The number of starts.
        starts: u32,
        /// The failure of the last start.
        why: Box<AgentError>,
    },
    /// It answered with an error.
    Refused {
        /// The request.
        method: &'static str,
        failure: Failure,
    },
}

/// The type of the error of a turn whose agent requires a sign-in.
pub const NOT_SIGNED_IN: &str = "agentNotSignedIn";
/// The maximum length of an agent's text in an error, in characters.
const QUOTED: usize = 1000;
/// What to do after an agent ended.
const RESTART: &str = "; send the message again to restart it";

impl AgentError {
    /// An agent answered a request with the code for a required sign-in. Some use it for something else too, such as a quota.
    pub fn sign_in(method: &'static str, methods: Vec<AuthMethod>, failure: &Failure) -> Self {
        let said = Some(words(failure)).filter(|said| !is_plain(said));
        match &said {
            Some(said) if methods.is_empty() && !is_of_sign_in(said) => {
                Self::Refused { method, failure: failure.clone() }
            }
            _ => Self::SignIn { methods, said },
        }
    }

    /// The error's type, for clients.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotInstalled => "agentNotInstalled",
            Self::SignIn { .. } => NOT_SIGNED_IN,
            Self::Memory { .. } => "agentMemory",
            Self::Output { .. } => "agentOutput",
            Self::Ended { .. } => "agentEnded",
            Self::Silent { .. } => "agentNotResponding",
            Self::Starts { why, .. } => why.kind(),
            Self::NoFolder(_)
            | Self::NotExecutable
            | Self::Unfit(_)
            | Self::NotStarted(_)
            | Self::Refused { .. } => "agent",
        }
    }

    /// What happened, without what to do after an agent ended.
    pub fn what(&self, agent: &AgentOptions) -> String {
        let mut sentence = self.sentence(agent);
        if sentence.ends_with(RESTART) {
            sentence.truncate(sentence.len() - RESTART.len());
        }
        sentence
    }

    /// Returns the message for users.
    pub fn sentence(&self, agent: &AgentOptions) -> String {
        let AgentOptions { name, command, provider, .. } = agent;
        match self {
            Self::NotInstalled => match &agent.install {
                Some(install) => format!("{name} cannot start: {command} is not installed; {install}"),
                None => format!(
                    "{name} cannot start: {command} is not installed; install it, or correct agents.{provider}.command"
                ),
            },
            Self::NoFolder(folder) => format!("{name} cannot start: the directory {folder} is missing"),
            Self::NotExecutable => format!(
                "{name} cannot start: {command} is not executable; make it an executable program, or correct \
                 agents.{provider}.command"
            ),
            Self::Unfit(why) => {
                format!("{name} cannot start: {command} {why}; correct that, or agents.{provider}.command")
            }
            Self::NotStarted(why) => format!("{name} cannot start: {command}: {why}"),
            Self::Ended { status, broken, stderr, noise } => {
                let mut sentence = match broken {
                    Some(why) => format!("{name} was stopped: {why}"),
                    None => format!("{name} ended {}", how(*status)),
                };
                quote(&mut sentence, stderr, noise.as_deref());
                sentence.push_str(RESTART);
                sentence
            }
            Self::Silent { method, waited, stderr, noise } => {
                let mut sentence = format!(
                    "{name} did not answer {method} within {} seconds and was stopped",
                    waited.as_secs()
                );
                quote(&mut sentence, stderr, noise.as_deref());
                if let Some(downloader) = downloader(command).filter(|_| *method == "initialize") {
                    let _ = write!(
                        sentence,
                        "; {downloader} downloads it at its first start: check that this computer reaches the package registry, or \
                         raise startTimeoutSeconds"
                    );
                }
                sentence.push_str(RESTART);
                sentence
            }
            Self::Memory { limit } => format!(
                "{name} used more than {} MB of memory and was stopped; raise memoryLimitMb, or send the message again to \
                 restart it",
                limit >> 20
            ),
            Self::Output { limit } => format!(
                "{name} sent more than {} MB in one turn and was stopped; raise turnOutputLimitMb, or send the message again \
                 to restart it",
                limit >> 20
            ),
            Self::SignIn { methods, said } => {
                let mut sentence = match said {
                    Some(said) => format!("{name} asks for a sign-in: {said}"),
                    None => format!("{name} is not signed in"),
                };
                // The method for a key is used where the key is configured.
                let of_key = agent.needs.key_method.as_deref();
                let ways = methods.iter().filter(|method| Some(method.id.as_str()) != of_key);
                for (at, method) in ways.enumerate() {
                    let _ = write!(sentence, "{} {}", if at == 0 { ";" } else { ", or" }, method.hint(agent));
                }
                if methods.is_empty() {
                    let _ = write!(sentence, "; sign in with {command} in a terminal");
                }
                let key = agent.needs.key.as_deref().unwrap_or("its API key");
                let _ = write!(sentence, ", or set {key} in agents.{provider}.env");
                sentence
            }
            Self::Starts { starts, why } => {
                format!(
                    "{name} was started {starts} times for this message; the last time: {}",
                    why.sentence(agent)
                )
            }
            Self::Refused { method, failure } => format!("{name} refused {method}: {}", words(failure)),
        }
    }
}

/// Returns the name of a command that downloads the agent before it starts it.
fn downloader(command: &str) -> Option<&str> {
    let name = command.rsplit('/').next()?;
    ["npx", "bunx", "uvx", "pipx"].contains(&name).then_some(name)
}

/// Whether the words of an agent are of a sign-in.
fn is_of_sign_in(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    [
        "auth",
        "sign in",
        "sign-in",
        "signed in",
        "log in",
        "login",
        "logged in",
        "credential",
        "api key",
        "api_key",
    ]
    .iter()
    .any(|word| said.contains(word))
}

/// Whether an agent says no more than that a sign-in is required, in the words of the protocol.
fn is_plain(said: &str) -> bool {
    let said = said.trim().trim_end_matches('.').to_ascii_lowercase();
    ["", "authentication required", "auth required", "auth_required", "unauthenticated"].contains(&&*said)
}

/// Returns the text of an error answer.
pub fn words(failure: &Failure) -> String {
    let Failure::Refused { message, data, .. } = failure else { return "its connection closed".to_owned() };
    // Agents put what happened into the data, and the code's name into the message.
    let detail = data.as_ref().and_then(|data| {
        let text = |name: &str| data.get(name).and_then(|value| value.as_str());
        let text =
            data.as_str().or_else(|| text("message")).or_else(|| text("details")).or_else(|| text("error"));
        text.map(str::to_owned)
    });
    match detail {
        Some(detail) if !message.contains(&detail) => {
            format!("{}: {}", shortened(message), shortened(&detail))
        }
        _ => shortened(message),
    }
}

fn how(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        // The exit code of a shell, and of the program that enters a machine, for an existing program that could not be
        // run.
        Some((Some(126), _)) => "with exit code 126: its program could not be run".to_owned(),
        Some((Some(code), _)) => format!("with exit code {code}"),
        Some((None, Some(signal))) => format!("by signal {signal}"),
        _ => "unexpectedly".to_owned(),
    }
}

fn quote(sentence: &mut String, stderr: &str, noise: Option<&str>) {
    if let Some(noise) = noise {
        let _ = write!(sentence, "; its output is not ACP: {noise:?}");
    }
    if !stderr.is_empty() {
        let _ = write!(sentence, "; its last output was:\n{}\n", shortened(stderr));
    }
}

/// Removes escape sequences and other control characters from a text.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => match rest.next() {
                // A control sequence ends with its first letter or the like.
                Some('[') => while rest.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                // A command of the operating system ends with a bell or the string terminator.
                Some(']') => {
                    let end = rest.find(|c| matches!(c, '\u{7}' | '\u{1b}'));
                    if end == Some('\u{1b}') {
                        rest.next();
                    }
                }
                // A choice of a character set has one more character.
                Some('(' | ')') => {
                    rest.next();
                }
                _ => {}
            },
            '\n' | '\t' => plain.push(c),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

/// Returns the end of a long text, which contains the latest events.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    match count > QUOTED {
        true => format!("…{}", text.chars().skip(count - QUOTED).collect::<String>()),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_wrote_for_a_terminal_is_quoted_as_text() {
        let written = "\u{1b}[1;31merror\u{1b}[0m: no \u{1b}]8;;https://hay.example\u{1b}\\hay\u{1b}]8;;\u{7}\r\n\u{1b}(Bleft\u{7}";
        assert_eq!(plain(written), "error: no hay\nleft");
    }
}
