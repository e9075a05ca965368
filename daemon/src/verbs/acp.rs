//! The flags of `ostler acp`, also in a program that was built without it.

use clap::Args;

/// The flags of `ostler acp`.
#[derive(Debug, Clone, Default, Args)]
pub struct AcpFlags {
    /// Backend of new sessions [default: the first one]
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Fail if no daemon is running instead of starting one
    #[arg(long)]
    pub no_start: bool,
}
