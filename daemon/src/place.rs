//! The context of a command: its configuration, working directory and output format.

use std::path::PathBuf;

use crate::answer::Common;
use crate::config::{self, ConfigFiles, Environment, Folders};
use crate::exit::Exit;
use crate::remote::Remote;

/// The context of a command.
#[derive(Debug, Clone)]
pub struct Place {
    /// The global flags.
    pub common: Common,
    /// The environment that determines the paths of the configuration.
    pub environment: Environment,
    /// The working directory.
    pub working_dir: PathBuf,
}

impl Place {
    /// Creates the context of this process.
    ///
    /// # Errors
    /// Exit 1 if the working directory no longer exists.
    pub fn of_process(common: &Common) -> Result<Self, Exit> {
        let working_dir = std::env::current_dir()
            .map_err(|error| Exit::machine(format!("the working directory no longer exists: {error}")))?;
        Ok(Self { common: common.clone(), environment: Environment::of_process(), working_dir })
    }

    /// Returns the daemon of `--remote`, if given.
    ///
    /// # Errors
    /// Like [`Remote::of`].
    pub fn remote(&self) -> Result<Option<Remote>, Exit> {
        Remote::of(&self.common)
    }

    /// Reads the configuration files.
    ///
    /// # Errors
    /// An invalid file: exit 2.
    pub fn files(&self) -> Result<ConfigFiles, Exit> {
        config::read(self.common.config_file.as_deref(), &self.environment)
    }

    /// Returns whether configuration files have a place: one is named, or there is a home directory.
    pub fn can_have_files(&self) -> bool {
        let Environment { config_home, home, named, .. } = &self.environment;
        self.common.config_file.is_some() || [config_home, home, named].iter().any(|path| path.is_some())
    }

    /// Returns the folders of the host, for commands that work without the configuration files.
    ///
    /// # Errors
    /// A named file that is missing: exit 2.
    pub fn folders(&self) -> Result<Folders, Exit> {
        config::folders(self.common.config_file.as_deref(), &self.environment)
    }

    /// Returns the folders that the host will have, for a command that creates the configuration.
    ///
    /// # Errors
    /// Like [`config::future_folders`].
    pub fn future_folders(&self) -> Result<Folders, Exit> {
        config::future_folders(self.common.config_file.as_deref(), &self.environment)
    }
}
