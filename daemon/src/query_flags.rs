//! The parameters of a query as flags of the command that sends it, made from the same declaration.

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use ostler_contract::{JsonObject, Value};

use crate::api::query::{self, Query};

/// The parameter that a command accepts without its name.
const POSITIONAL: &str = "automation";
/// The parameter with a short name, and that name.
const SHORT: (&str, char) = ("limit", 'n');
/// Begins the description of a parameter's default value.
const DEFAULT: &str = ". Default: ";

/// The flags of a query.
#[derive(Debug, Clone)]
pub struct QueryFlags<Q>(pub Q);

impl<Q: Query> Args for QueryFlags<Q> {
    fn augment_args(command: Command) -> Command {
        command.args(Q::parameters().iter().map(|(name, node)| argument(name, node)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<Q: Query> FromArgMatches for QueryFlags<Q> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = Q::parameters().iter().filter_map(|(name, node)| {
            let value = query::value(matches.get_one::<String>(name)?, node).ok()?;
            Some((name.clone(), value))
        });
        let query = serde_json::from_value(Value::Object(given.collect::<JsonObject>()));
        Ok(Self(query.map_err(|error| Error::raw(ErrorKind::ValueValidation, error))?))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(name: &'static str, node: &'static Value) -> Arg {
    let arg = Arg::new(name).help(help(node["description"].as_str().unwrap_or_default()));
    let choices = match node["enum"].as_array() {
        Some(choices) => choices.iter().filter_map(Value::as_str).collect::<Vec<_>>(),
        None if node["type"] == "boolean" => vec!["true", "false"],
        None => Vec::new(),
    };
    let arg = match choices.is_empty() {
        // Without a value it is what its name says.
        false if node["type"] == "boolean" => arg
            .value_name("VALUE")
            .value_parser(PossibleValuesParser::new(choices))
            .num_args(0..=1)
            .default_missing_value("true"),
        false => arg.value_name("VALUE").value_parser(PossibleValuesParser::new(choices)),
        true => {
            let shown = match (node["type"].as_str(), node["format"].as_str()) {
                (Some("integer"), _) => "N",
                (_, Some("date-time")) => "TIME",
                _ if name == POSITIONAL => "ID",
                _ => "TEXT",
            };
            let check = move |text: &str| match query::value(text, node) {
                Ok(_) => Ok(text.to_owned()),
                Err(expected) => Err(format!("it must be {expected}")),
            };
            arg.value_name(shown).value_parser(check)
        }
    };
    match name {
        POSITIONAL => arg,
        name if name == SHORT.0 => arg.long(name).short(SHORT.1),
        name => arg.long(name),
    }
}

/// The help of a parameter: the first sentence of its description, and its default value.
fn help(description: &str) -> String {
    let (description, default) = match description.split_once(DEFAULT) {
        Some((before, default)) => (before, format!(" [default: {}]", default.trim_end_matches('.'))),
        None => (description, String::new()),
    };
    let first = description.split(". ").next().unwrap_or_default();
    let first = first.trim_end_matches('.').replace('`', "");
    let mut rest = first.chars();
    let begin = rest.next().into_iter().flat_map(char::to_uppercase).collect::<String>();
    format!("{begin}{}{default}", rest.as_str())
}

#[cfg(test)]
mod tests {
    use ostler_protocol::run_list::RunFilter;

    use super::*;

    fn read(line: &[&str]) -> Result<RunFilter, String> {
        let command = QueryFlags::<RunFilter>::augment_args(Command::new("runs"));
        let matches = command.try_get_matches_from([&["runs"], line].concat());
        let matches = matches.map_err(|error| error.to_string())?;
        Ok(QueryFlags::from_arg_matches(&matches).unwrap().0)
    }

    #[test]
    fn a_command_accepts_what_the_query_of_its_request_accepts() {
        let line = [
            "deploy",
            "--state",
            "failed",
            "--owner",
            "user:ada",
            "--since",
            "2027-01-01T00:00:00Z",
            "--text",
            "exit 13",
            "--cursor",
            "x",
            "-n",
            "3",
        ];
        let expected = RunFilter {
            automation: Some("deploy".to_owned()),
            state: Some("failed".to_owned()),
            owner: Some("user:ada".to_owned()),
            since: Some("2027-01-01T00:00:00Z".to_owned()),
            until: None,
            text: Some("exit 13".to_owned()),
            cursor: Some("x".to_owned()),
            limit: Some(3),
        };
        assert_eq!(read(&line), Ok(expected));
        assert_eq!(read(&[]), Ok(RunFilter::default()));
        for (line, says) in [
            (["--limit", "501"], "it must be an integer between 1 and 500"),
            (["--until", "yesterday"], "it must be a time such as 2027-01-01T00:00:00Z"),
            (["--state", "ended"], "[possible values: pending, running, completed, failed, cancelled]"),
        ] {
            let why = read(&line).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn help_is_the_first_sentence_without_a_full_stop() {
        assert_eq!(help("Maximum number of runs. Default: 50."), "Maximum number of runs [default: 50]");
        assert_eq!(help("A word. More about `it`."), "A word");
        assert_eq!(help("`next` of the previous page."), "Next of the previous page");
    }
}
