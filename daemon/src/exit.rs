//! The failures of commands: exit code 2 for an invalid argument or configuration, 1 for a failure of the machine.

use std::fmt;

use ostler_loader::options::without_password;

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// An invalid argument or configuration.
    Usage(String),
    /// A failure of the machine, such as no running daemon.
    Machine(String),
}

impl Exit {
    /// An invalid argument or configuration.
    pub fn usage(why: impl Into<String>) -> Self {
        Self::Usage(why.into())
    }

    /// A failure of the machine, such as no running daemon.
    pub fn machine(why: impl Into<String>) -> Self {
        Self::Machine(why.into())
    }

    /// Returns the message with the name and password of each URL hidden.
    #[must_use]
    pub fn without_passwords(self) -> Self {
        let hidden = |why: String| without_password(&why).into_owned();
        match self {
            Self::Usage(why) => Self::Usage(hidden(why)),
            Self::Machine(why) => Self::Machine(hidden(why)),
        }
    }

    /// Returns the exit code of the process.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Machine(_) => 1,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) | Self::Machine(why) => formatter.write_str(why),
        }
    }
}
