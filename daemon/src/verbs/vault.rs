//! `ostler vault …`

use clap::Subcommand;

use crate::answer::Answer;
use crate::exit::Exit;
use crate::place::Place;

/// What to do with secrets.
#[derive(Debug, Clone, Subcommand)]
pub enum VaultVerb {
    /// List the names of the secrets
    List,
}

/// Does it.
///
/// # Errors
/// Exit 2 for a wrong argument, 1 where the machine cannot.
pub async fn vault(_: &Place, verb: VaultVerb) -> Result<Answer, Exit> {
    match verb {
        VaultVerb::List => Ok(Answer::default()),
    }
}
