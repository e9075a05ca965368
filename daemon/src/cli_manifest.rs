//! The command line as data, for programs that offer it: every command with its arguments, made from the same
//! declaration as the help.

use clap::{Arg, ArgAction, Command, CommandFactory};
use ostler_contract::{Value, json};

use crate::cli::Cli;

/// `{ name, version, about, options, commands: [{ name, about, arguments, options, commands }] }`.
pub fn manifest() -> Value {
    let mut cli = Cli::command();
    cli.build();
    let mut shown = described(&cli);
    shown["version"] = cli.get_version().unwrap_or_default().into();
    shown
}

fn described(command: &Command) -> Value {
    let shown = |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    let (arguments, options): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(shown).partition(|arg| arg.is_positional());
    let commands = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    json!({
        "name": command.get_name(),
        "about": command.get_about().map(ToString::to_string),
        "arguments": arguments.into_iter().map(argument).collect::<Vec<_>>(),
        "options": options.into_iter().map(argument).collect::<Vec<_>>(),
        "commands": commands.map(described).collect::<Vec<_>>(),
    })
}

fn argument(arg: &Arg) -> Value {
    let takes_value = arg.get_action().takes_values();
    let value = takes_value
        .then(|| arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string))
        .flatten();
    let choices: Vec<String> = match takes_value {
        true => arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect(),
        false => Vec::new(),
    };
    json!({
        "name": arg.get_long().map_or_else(|| arg.get_id().to_string(), |long| format!("--{long}")),
        "about": arg.get_help().map(ToString::to_string),
        "value": value,
        "choices": choices,
        "required": arg.is_required_set(),
        "repeats": matches!(arg.get_action(), ArgAction::Append | ArgAction::Count),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_told_with_what_it_takes() {
        let told = manifest();
        assert_eq!(told["name"], "ostler");
        let named = |of: &Value, name: &str| {
            of.as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap()
        };
        let add = named(&named(&told["commands"], "user")["commands"], "add");
        assert_eq!(add["arguments"][0]["name"], "id");
        assert_eq!(add["arguments"][0]["required"], true);
        let role = named(&add["options"], "--role");
        assert_eq!((&role["value"], &role["repeats"]), (&json!("ROLE"), &json!(true)));
        assert!(named(&told["options"], "--json")["about"].as_str().unwrap().contains("JSON"));
    }
}
