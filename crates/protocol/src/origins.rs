//! Origins: what may happen because of a text or a name, by the way in which it entered the host.
//!
//! The functions below are the table, one for each effect: a new way in or a new effect without a rule does not compile.

use crate::grants::Grant;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$of])* $variant),+ }

        impl $name {
            /// All of them, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Returns the one of a name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

named! {
    /// A way in which text or a name enters the host.
    WayIn {
        /// A client of the protocol in which a person types, for example VS Code.
        Client = "client";
        /// The web console, a client of the protocol.
        Console = "console";
        /// An editor, by `ostler acp`.
        Editor = "editor";
        /// The program's own commands, for example `ostler session start`.
        CommandLine = "command-line";
        /// The HTTP API.
        HttpApi = "http-api";
        /// A call of a bot's endpoint.
        BotCall = "bot-call";
        /// The data of an event that starts an automation.
        AutomationEvent = "automation-event";
        /// What a callback's server answers.
        CallbackAnswer = "callback-answer";
        /// The page of a notification's link.
        NotificationLink = "notification-link";
        /// A plugin: its own connection, its calls of the host, what its functions return.
        Plugin = "plugin";
        /// What an agent sends, its tool calls included.
        Agent = "agent";
        /// What an MCP server sends.
        McpServer = "mcp-server";
        /// A repository: its configuration, its attributes, the names of its branches and files.
        Repository = "repository";
        /// A draft, which a client continues.
        Draft = "draft";
        /// A message that waited in a queue.
        Queue = "queue";
        /// A message for a running turn.
        Steering = "steering";
        /// A queued message that a client replaced.
        Edited = "edited";
        /// An attached file.
        Attachment = "attachment";
    }
}

named! {
    /// What a text or a name could set off.
    Effect {
        /// A line that begins with `!` runs in a terminal.
        CommandLine = "command line";
        /// A word that begins with `/`.
        SlashCommand = "slash command";
        /// A word that begins with `@` or `#`.
        Mention = "mention";
        /// A placeholder such as `{{event.x}}`.
        Template = "template";
        /// The condition of an endpoint or an automation.
        When = "when";
        /// The content of a file or another resource is read because its name or URI is given.
        LookUp = "look-up";
        /// A shell, other than for a command line.
        Shell = "shell";
        /// A program that git starts: a filter, a transport, a hook, a pager.
        GitProgram = "git program";
        /// The content or the name of a record's file.
        RecordFile = "record file";
        /// The markup of a page.
        Html = "html";
        /// Control sequences of a terminal.
        TerminalOutput = "terminal output";
    }
}

/// The header of a WebSocket handshake with which the host's own programs name their way in.
pub const HEADER: &str = "ostler-way-in";

/// Whose grants are asked when the effect happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The sender of the message or of the request.
    Sender,
    /// The owner of the session in which it happens.
    SessionOwner,
}

/// Whether a way in may set off an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// It cannot. What arrives is passed on as it is; the text says where this is ensured.
    Never(&'static str),
    /// It may, if someone has the grants; on a host without a users file always.
    Granted(&'static [Grant], By),
    /// It may, if someone has the grant of this operation on the scheme of the resource; `file` for what a client publishes.
    GrantedOnScheme(&'static str, By),
    /// It may, without a grant; the text says why.
    Always(&'static str),
    /// As the way in by which it first entered, which is stored with it.
    AsEntered,
}

/// The grants of a command line: it opens a terminal and types into it.
pub const COMMAND_LINE: &[Grant] = &[Grant::of("terminal", "create"), Grant::of("terminal", "input")];
pub(crate) const READ: &str = "get";
const LIST: &str = "list";

/// Returns the rule of a cell.
pub const fn rule(way: WayIn, effect: Effect) -> Rule {
    match effect {
        Effect::CommandLine => command_line(way),
        Effect::SlashCommand => slash_command(way),
        Effect::Mention => mention(way),
        Effect::Template => template(way),
        Effect::When => when(way),
        Effect::LookUp => look_up(way),
        Effect::Shell => shell(way),
        Effect::GitProgram => git_program(way),
        Effect::RecordFile => record_file(way),
        Effect::Html => html(way),
        Effect::TerminalOutput => terminal_output(way),
    }
}

/// Ways in that start no turn.
macro_rules! starts_no_turn {
    () => {
        WayIn::HttpApi
            | WayIn::CallbackAnswer
            | WayIn::NotificationLink
            | WayIn::McpServer
            | WayIn::Repository
    };
}

/// Ways in of whoever may write records, each with its own grants.
macro_rules! writes_records {
    () => {
        WayIn::Client | WayIn::Console | WayIn::Editor | WayIn::CommandLine | WayIn::HttpApi | WayIn::Plugin
    };
}

/// What a message can be before, or beside, its turn.
macro_rules! of_a_message {
    () => {
        WayIn::Draft | WayIn::Queue | WayIn::Steering | WayIn::Edited | WayIn::Attachment
    };
}

/// Ways in that are neither a person's nor a record's.
macro_rules! from_elsewhere {
    () => {
        WayIn::CallbackAnswer | WayIn::NotificationLink | WayIn::Agent | WayIn::McpServer | WayIn::Repository
    };
}

const fn command_line(way: WayIn) -> Rule {
    match way {
        // Clients of `initialize` that were offered `terminalCommandPrefix`.
        WayIn::Client | WayIn::Console => Rule::Granted(COMMAND_LINE, By::Sender),
        WayIn::Queue | WayIn::Edited | WayIn::Steering => Rule::AsEntered,
        WayIn::Draft => Rule::Never("it is not a message; its sender is the user who sends it"),
        WayIn::Editor | WayIn::CommandLine => {
            Rule::Never("it is a message: the program is given text by others")
        }
        WayIn::BotCall | WayIn::Plugin => Rule::Never("it is a message of a plugin's connection"),
        WayIn::AutomationEvent | WayIn::Agent => Rule::Never("only a person's message can be one"),
        starts_no_turn!() => Rule::Never("it starts no turn"),
        WayIn::Attachment => Rule::Never("only a message's text is looked at"),
    }
}

const fn slash_command(way: WayIn) -> Rule {
    match way {
        starts_no_turn!() => Rule::Never("it starts no turn"),
        WayIn::Attachment => Rule::Never("it is given to the agent as content"),
        WayIn::Client
        | WayIn::Console
        | WayIn::Editor
        | WayIn::CommandLine
        | WayIn::BotCall
        | WayIn::AutomationEvent
        | WayIn::Plugin
        | WayIn::Agent
        | WayIn::Draft
        | WayIn::Queue
        | WayIn::Steering
        | WayIn::Edited => Rule::Always(
            "the host has no slash commands: the agent receives the text as it receives any prompt",
        ),
    }
}

const fn mention(way: WayIn) -> Rule {
    match way {
        // Of what the completion lists. Its content is looked up as that of any attachment.
        WayIn::Client | WayIn::Console | WayIn::Editor => Rule::GrantedOnScheme(LIST, By::Sender),
        WayIn::CommandLine
        | WayIn::HttpApi
        | WayIn::BotCall
        | WayIn::AutomationEvent
        | WayIn::Plugin
        | from_elsewhere!()
        | of_a_message!() => {
            Rule::Never("a mention is an attachment that a client made of a completion; the words are text")
        }
    }
}

const fn template(way: WayIn) -> Rule {
    match way {
        WayIn::BotCall | WayIn::AutomationEvent => {
            Rule::Never("a template is filled in once; what fills it is not read again")
        }
        writes_records!() => {
            Rule::Always("only in the record of an automation or an endpoint, by a user who may write it")
        }
        from_elsewhere!() | of_a_message!() => Rule::Never("messages are not templates"),
    }
}

const fn when(way: WayIn) -> Rule {
    match way {
        WayIn::BotCall | WayIn::AutomationEvent => Rule::Never("it is the value that a condition compares"),
        writes_records!() => {
            Rule::Always("only in the record of an automation or an endpoint, by a user who may write it")
        }
        from_elsewhere!() | of_a_message!() => Rule::Never("no condition is read from it"),
    }
}

const fn look_up(way: WayIn) -> Rule {
    match way {
        WayIn::Client | WayIn::Console | WayIn::Editor | WayIn::CommandLine => {
            Rule::GrantedOnScheme(READ, By::Sender)
        }
        WayIn::Attachment | WayIn::Agent => Rule::GrantedOnScheme(READ, By::SessionOwner),
        WayIn::Plugin => {
            Rule::Always("with the grants of its configuration entry, or as the code that it is")
        }
        WayIn::Queue | WayIn::Steering | WayIn::Edited => Rule::AsEntered,
        WayIn::Draft => Rule::Never("it is not a message; its sender is the user who sends it"),
        WayIn::BotCall | WayIn::AutomationEvent | starts_no_turn!() => {
            Rule::Never("names and URIs in it are text")
        }
    }
}

const fn shell(way: WayIn) -> Rule {
    match way {
        WayIn::Client | WayIn::Console => Rule::Granted(COMMAND_LINE, By::Sender),
        WayIn::Agent => Rule::Always("an agent could itself run any program that it asks the host to run"),
        WayIn::Plugin => Rule::Always("a plugin is code of the host"),
        WayIn::Editor
        | WayIn::CommandLine
        | WayIn::BotCall
        | WayIn::AutomationEvent
        | starts_no_turn!()
        | of_a_message!() => Rule::Never("programs are started with a list of arguments"),
    }
}

const fn git_program(way: WayIn) -> Rule {
    match way {
        WayIn::Repository => {
            Rule::Never("programs that a repository's own configuration names are disabled for reads")
        }
        WayIn::BotCall
        | WayIn::AutomationEvent
        | WayIn::CallbackAnswer
        | WayIn::NotificationLink
        | WayIn::Agent
        | WayIn::McpServer
        | writes_records!()
        | of_a_message!() => Rule::Never("names are arguments after `--` or are checked to be names"),
    }
}

const fn record_file(way: WayIn) -> Rule {
    match way {
        writes_records!() => {
            Rule::Always("with the grant of the command; the value is encoded, the name is checked")
        }
        WayIn::BotCall | WayIn::AutomationEvent | from_elsewhere!() | of_a_message!() => {
            Rule::Never("no record is written from it")
        }
    }
}

const fn html(_: WayIn) -> Rule {
    Rule::Never("pages set text as text; the notification's page escapes it")
}

const fn terminal_output(_: WayIn) -> Rule {
    Rule::Never("commands print control characters of others as visible characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        for way in WayIn::ALL {
            assert_eq!(WayIn::named(way.name()), Some(*way));
        }
        for effect in Effect::ALL {
            assert_eq!(Effect::named(effect.name()), Some(*effect));
        }
        assert_eq!(WayIn::named(""), None);
    }

    #[test]
    fn a_command_line_needs_a_client_with_grants() {
        let may = |way: &&WayIn| matches!(rule(**way, Effect::CommandLine), Rule::Granted(grants, By::Sender) if grants == COMMAND_LINE);
        let may: Vec<&WayIn> = WayIn::ALL.iter().filter(may).collect();
        assert_eq!(may, [&WayIn::Client, &WayIn::Console]);
        assert!(WayIn::ALL.iter().all(|way| !matches!(rule(*way, Effect::CommandLine), Rule::Always(_))));
    }
}
