//! How a command ends when it cannot do what was asked: 2 for a wrong argument or configuration, 1 for a
//! machine that cannot.

use std::fmt;

use ostler_loader::options::without_password;

/// Why a command could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// A wrong argument or configuration.
    Usage(String),
    /// Nothing runs, or nothing could be started.
    Machine(String),
}

impl Exit {
    /// A wrong argument or configuration.
    pub fn usage(why: impl Into<String>) -> Self {
        Self::Usage(why.into())
    }

    /// Nothing runs, or nothing could be started.
    pub fn machine(why: impl Into<String>) -> Self {
        Self::Machine(why.into())
    }

    /// The sentence with the name and password of each URL in it hidden.
    #[must_use]
    pub fn without_passwords(self) -> Self {
        let hidden = |why: String| without_password(&why).into_owned();
        match self {
            Self::Usage(why) => Self::Usage(hidden(why)),
            Self::Machine(why) => Self::Machine(hidden(why)),
        }
    }

    /// The process's exit code.
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
