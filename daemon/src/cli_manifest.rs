//! The commands that send requests of the HTTP API, as data for programs that offer them: made from the declaration of the
//! command line and the rows of the API.

use clap::{Arg, ArgAction, Command};
use ostler_protocol::names;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rows::{ROWS, Row};
use crate::cli::Cli;
use crate::remote;

/// Options that the request does not have: with `follow` the command asks for more, `lines` is how much of the answer it
/// prints, and `out` where it writes it.
const BESIDE_REQUEST: &[&str] = &["follow", "lines", "out"];

/// The version of the format.
const FORMAT: u32 = 1;

/// The commands that send requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// The version of this format.
    pub cofold: u32,
    /// The program.
    pub program: Program,
    /// Commands that have others below them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<CommandGroup>,
    /// The commands.
    pub commands: Vec<ListedCommand>,
}

/// The program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Program {
    /// Its name, as it is typed.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A command that has others below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandGroup {
    /// Its word, which is the first of the commands' ids.
    pub id: String,
    /// What it is for.
    pub summary: String,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListedCommand {
    /// Its words, separated by dots.
    pub id: String,
    /// How it is typed: `<name>` is required, `[name]` is not, `...` repeats.
    pub pattern: String,
    /// What it does.
    pub summary: String,
    /// What is typed after its words, in order, and what is piped into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<CommandParameter>,
    /// Its options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<CommandParameter>,
    /// The request it sends; one for each value of an argument that repeats and is a single value in the body.
    pub http: CommandRequest,
}

/// An argument or an option.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandParameter {
    /// Its name, as the request has it.
    pub name: String,
    /// What it is.
    pub summary: String,
    /// How an option is typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
    /// What the help calls its value; absent where it takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The values it can have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// What the request has where an option without a value is typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<bool>,
    /// Whether it has to be given.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Whether it may be given several times.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// Whether the command reads it from standard input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdin: bool,
}

/// The request of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRequest {
    /// `GET` or `POST`
    pub method: String,
    /// The path; `{name}` is the parameter of that name, percent-encoded.
    pub path: String,
    /// Parameters in the query.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<String>,
    /// Parameters that are members of the body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<String>,
}

/// The manifest.
pub fn manifest() -> Manifest {
    let mut cli = Cli::declared();
    cli.build();
    let commands: Vec<ListedCommand> = ROWS.iter().filter_map(|row| listed(&cli, row)).collect();
    let groups = cli.get_subcommands().filter(|sub| {
        let below = format!("{}.", sub.get_name());
        sub.has_subcommands() && commands.iter().any(|command| command.id.starts_with(&below))
    });
    let groups =
        groups.map(|sub| CommandGroup { id: sub.get_name().to_owned(), summary: about(sub) }).collect();
    let program = Program { name: names::HOST.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    Manifest { cofold: FORMAT, program, groups, commands }
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// The declaration of a command by its words.
fn find<'a>(cli: &'a Command, words: &str) -> Option<&'a Command> {
    words.split(' ').try_fold(cli, |command, word| command.find_subcommand(word))
}

/// The command of a row, where a command sends it.
fn listed(cli: &Command, row: &Row) -> Option<ListedCommand> {
    let typed = row.command?;
    let command = find(cli, remote::words(typed))?;
    let in_path = row.parts().1;
    let mut sent: Vec<String> = row.members().into_iter().map(|member| member.name).collect();
    // The words that are typed leave out what the row has besides: `plugin config <name>` only shows.
    let pattern_names: Vec<&str> =
        typed.split(' ').filter_map(|word| word.strip_prefix('<')?.strip_suffix('>')).collect();
    if !pattern_names.is_empty() {
        sent.retain(|name| pattern_names.contains(&name.as_str()));
    }
    let of_command = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        let is_own = !matches!(id, "help" | "version") && !BESIDE_REQUEST.contains(&id);
        !arg.is_global_set() && !arg.is_hide_set() && is_own
    };
    let named = |arg: &&Arg| {
        pattern_names.is_empty() || !arg.is_positional() || pattern_names.contains(&arg.get_id().as_str())
    };
    let args: Vec<&Arg> = command.get_arguments().filter(of_command).filter(named).collect();
    let (positional, flags): (Vec<&Arg>, Vec<&Arg>) = args.into_iter().partition(|arg| arg.is_positional());
    let mut arguments: Vec<CommandParameter> =
        positional.into_iter().map(|arg| parameter(arg, &sent)).collect();
    if !pattern_names.is_empty() {
        arguments.iter_mut().for_each(|argument| argument.required = true);
    }
    let options: Vec<CommandParameter> = flags.into_iter().map(|arg| parameter(arg, &sent)).collect();
    let given = |name: &str| arguments.iter().chain(&options).any(|parameter| parameter.name == name);
    let piped: Vec<CommandParameter> =
        sent.iter().filter(|name| !given(name)).map(|name| piped(name)).collect();
    let mut pattern = typed.to_owned();
    if pattern_names.is_empty() {
        for argument in &arguments {
            let (open, close) = if argument.required { ('<', '>') } else { ('[', ']') };
            let repeats = if argument.repeats { "..." } else { "" };
            pattern.push_str(&format!(" {open}{}{close}{repeats}", argument.name));
        }
    }
    arguments.extend(piped);
    debug_assert!(in_path.is_none_or(|name| arguments.iter().any(|argument| argument.name == name)));
    let http = CommandRequest {
        method: row.method.name().to_owned(),
        path: row.path.to_owned(),
        query: row.query.keys().cloned().collect(),
        body: sent,
    };
    // Where the words have several requests, the path tells them apart.
    let id = match pattern_names.is_empty() {
        true => typed.replace(' ', "."),
        false => row.words().collect::<Vec<_>>().join("."),
    };
    let summary = if pattern_names.is_empty() { about(command) } else { row.summary.to_owned() };
    Some(ListedCommand { id, pattern, summary, arguments, options, http })
}

/// A member of the body that the command reads from standard input.
fn piped(name: &str) -> CommandParameter {
    CommandParameter {
        name: name.to_owned(),
        summary: format!("The {name}, read from standard input"),
        flag: None,
        value: None,
        choices: Vec::new(),
        sets: None,
        required: true,
        repeats: false,
        stdin: true,
    }
}

fn parameter(arg: &Arg, sent: &[String]) -> CommandParameter {
    let id = arg.get_id().as_str();
    let takes_value = arg.get_action().takes_values();
    // `--no-enable` is `enable: false` in the request.
    let negated = id.strip_prefix("no_").filter(|name| sent.iter().any(|sent| sent == name));
    let first = || arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let is_many = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    CommandParameter {
        name: negated.unwrap_or(id).to_owned(),
        summary: arg.get_help().map(ToString::to_string).unwrap_or_default(),
        flag: arg.get_long().map(|long| format!("--{long}")),
        value: takes_value.then(first).flatten().filter(|_| !arg.is_positional()),
        choices: match takes_value {
            true => arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect(),
            false => Vec::new(),
        },
        sets: (!takes_value).then_some(negated.is_none()),
        required: arg.is_required_set(),
        repeats: is_many || matches!(arg.get_action(), ArgAction::Append | ArgAction::Count),
        stdin: false,
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn leaves(command: &Command, words: &str, into: &mut Vec<String>) {
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let words = format!("{words} {}", sub.get_name()).trim_start().to_owned();
            match sub.has_subcommands() {
                true => leaves(sub, &words, into),
                false => into.push(words),
            }
        }
    }

    /// Commands of this computer: its configuration, its processes, its files, its terminal.
    const LOCAL: &[&str] = &[
        "init",
        "doctor",
        "start",
        "stop",
        "plugin new",
        "plugin check",
        "agent login",
        "acp",
        "mcp-bridge",
        "webhook add",
        "webhook rm",
        "backup",
        "restore",
        "migrate",
        "files import",
        "files export",
        "completion",
        "man-pages",
        "demo",
    ];

    #[test]
    fn every_command_sends_a_request_of_a_row_or_of_the_protocol_or_is_of_this_computer() {
        let mut cli = Cli::declared();
        cli.build();
        let mut all = Vec::new();
        leaves(&cli, "", &mut all);
        let of_rows: Vec<&str> = ROWS.iter().filter_map(|row| row.command.map(remote::words)).collect();
        for words in &all {
            let word = words.as_str();
            let kinds =
                [of_rows.contains(&word), remote::OVER_PROTOCOL.contains(&word), LOCAL.contains(&word)];
            assert_eq!(kinds.iter().filter(|is| **is).count(), 1, "{words}: {kinds:?}");
            let help = find(&cli, word).unwrap().clone().render_help().to_string();
            assert_eq!(help.contains("--remote"), !LOCAL.contains(&word), "{help}");
        }
        for words in of_rows.iter().chain(remote::OVER_PROTOCOL).chain(LOCAL) {
            assert!(all.iter().any(|one| one == words), "there is no command {words}");
        }
    }

    #[test]
    fn every_member_of_a_request_comes_from_the_command_line() {
        let manifest = manifest();
        let sent = ROWS.iter().filter(|row| row.command.is_some()).count();
        assert_eq!(manifest.commands.len(), sent);
        for command in &manifest.commands {
            let all = || command.arguments.iter().chain(&command.options);
            for name in &command.http.body {
                assert_eq!(all().filter(|one| one.name == *name).count(), 1, "{}: {name}", command.id);
            }
            for name in &command.http.query {
                assert_eq!(all().filter(|one| one.name == *name).count(), 1, "{}: {name}", command.id);
            }
            // What is typed and not sent is a question of the terminal.
            let is_sent =
                |name: &String| command.http.body.contains(name) || command.http.query.contains(name);
            for one in all().filter(|one| !is_sent(&one.name)) {
                let in_path = command.http.path.contains(&format!("{{{}}}", one.name));
                assert!(in_path || one.name == "yes", "{}: {} is not sent", command.id, one.name);
            }
            let piped = all().filter(|one| one.stdin).count();
            assert_eq!(piped, usize::from(command.id == "vault.set"), "{}", command.id);
            // It can be typed as the pattern says.
            let line = command.pattern.replace("...", "");
            let line = line.split(' ').map(|word| word.trim_matches(['<', '>', '[', ']']).to_owned());
            let line: Vec<String> = std::iter::once("ostler".to_owned()).chain(line).collect();
            assert!(Cli::read(&line).unwrap().is_ok(), "{line:?}");
        }
        let ids: std::collections::BTreeSet<&str> =
            manifest.commands.iter().map(|command| command.id.as_str()).collect();
        assert_eq!(ids.len(), sent, "ids are unique");
    }

    #[test]
    fn a_command_is_told_with_its_request() {
        let told = json!(manifest());
        assert_eq!(told["cofold"], 1);
        assert_eq!(told["program"], json!({ "name": "ostler", "version": env!("CARGO_PKG_VERSION") }));
        let command = |id: &str| {
            let all = told["commands"].as_array().unwrap();
            all.iter().find(|one| one["id"] == id).unwrap_or_else(|| panic!("{id}: {told}")).clone()
        };
        let add = command("user.add");
        assert_eq!(add["pattern"], "user add <id>");
        assert_eq!(
            add["options"][0],
            json!({
                "name": "roles", "flag": "--role", "value": "ROLE", "repeats": true,
                "summary": "Role to assign (repeatable) [default: guest]",
            })
        );
        let http = json!({
            "method": "POST", "path": "/api/user/add", "body": ["id", "roles", "memberships", "primary"],
        });
        assert_eq!(add["http"], http);
        let install = command("plugin.install");
        assert_eq!(install["pattern"], "plugin install <name>...");
        assert_eq!(
            install["options"],
            json!([{
                "name": "enable", "flag": "--no-enable", "sets": false, "summary": "Do not change the configuration",
            }])
        );
        assert_eq!(command("plugin.config")["pattern"], "plugin config <name>");
        assert_eq!(command("plugin.config")["http"]["body"], json!(["name"]));
        assert_eq!(command("plugin.config.set")["pattern"], "plugin config <name> <key> <value>");
        assert_eq!(command("plugin.config.unset")["pattern"], "plugin config unset <name> <key>");
        let set = command("vault.set");
        assert_eq!(
            (&set["http"]["path"], &set["http"]["body"]),
            (&json!("/api/vault/set/{name}"), &json!(["value"]))
        );
        let groups: Vec<&str> =
            told["groups"].as_array().unwrap().iter().map(|group| group["id"].as_str().unwrap()).collect();
        let expected = [
            "plugin",
            "webhook",
            "notify",
            "automation",
            "session",
            "cluster",
            "vault",
            "user",
            "team",
            "project",
        ];
        assert_eq!(groups, expected);
        let list = command("session.list");
        assert_eq!(list["http"]["path"], "/api/sessions");
        let show = command("session.show");
        assert_eq!(show["pattern"], "session show <session>");
        assert_eq!(
            show["http"],
            json!({ "method": "GET", "path": "/api/sessions/{session}", "query": ["turns"] })
        );
        assert_eq!(command("automation.runs")["http"]["path"], "/api/runs");
    }
}
