//! What is asked of whoever types: whether they are sure, and what is not to stand on the command line.

use std::io::{BufRead, IsTerminal, Read, Write};

use crate::exit::Exit;
use crate::place::Place;

/// Asks at a terminal; where there is none, only `--yes` is an answer.
///
/// # Errors
/// Exit 2 where nobody says yes.
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

/// A text that is piped in, without the line break it ends with.
///
/// # Errors
/// Exit 2 at a terminal, where typing would show it, and for a text that does not read.
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
