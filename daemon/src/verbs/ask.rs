//! Prompts: confirmations, and secrets that do not belong on the command line.

use std::io::{BufRead, IsTerminal, Read, Write};

use crate::exit::Exit;
use crate::place::Place;

/// Prompts on a terminal; without one, `--yes` is required.
///
/// # Errors
/// Exit 2 without a confirmation.
pub fn sure(at: &Place, yes: bool, question: &str) -> Result<(), Exit> {
    if yes {
        return Ok(());
    }
    if at.common.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Exit::usage(format!("{question} Confirm with --yes; standard input is not a terminal")));
    }
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "{question} [y/N] ");
    let _ = err.flush();
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Exit::usage("cancelled")),
    }
}

/// Reads piped text, without its trailing line break.
///
/// # Errors
/// Exit 2 on a terminal, which would show the typed text, and for invalid text.
pub fn piped(what: &str) -> Result<String, Exit> {
    if std::io::stdin().is_terminal() {
        return Err(Exit::usage(format!("pipe the {what} on standard input")));
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Exit::usage(format!("the {what} could not be read: {error}")))?;
    Ok(without_last_line_break(&text).to_owned())
}

fn without_last_line_break(text: &str) -> &str {
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::without_last_line_break;

    #[test]
    fn one_line_break_is_the_pipes_and_the_rest_is_the_text() {
        for (piped, text) in
            [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("a\r", "a\r"), ("\n", ""), ("", "")]
        {
            assert_eq!(without_last_line_break(piped), text, "{piped:?}");
        }
    }
}
