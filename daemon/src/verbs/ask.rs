//! Asking whether somebody is sure.

use std::io::{BufRead, IsTerminal, Write};

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
        return Err(Exit::usage(format!("{question} There is nobody to ask; pass --yes")));
    }
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "{question} [y/N] ");
    let _ = err.flush();
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Exit::usage("nothing is removed")),
    }
}
