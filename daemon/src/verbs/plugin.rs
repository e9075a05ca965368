//! `ostler plugin …`

use clap::Subcommand;

use crate::answer::Answer;
use crate::exit::Exit;
use crate::place::Place;

/// What to do with plugins.
#[derive(Debug, Clone, Subcommand)]
pub enum PluginVerb {
    /// List the configured plugins
    List,
}

/// Does it.
///
/// # Errors
/// Exit 2 for a wrong argument, 1 where the machine cannot.
pub async fn plugin(_: &Place, verb: PluginVerb) -> Result<Answer, Exit> {
    match verb {
        PluginVerb::List => Ok(Answer::default()),
    }
}
