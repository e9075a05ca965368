//! Where a command works: the configuration it reads, the directory it stands in, how it is to answer.

use std::path::PathBuf;

use crate::answer::Common;
use crate::config::{self, ConfigFiles, Environment, Folders};
use crate::exit::Exit;
use crate::remote::Remote;

/// Where a command works.
#[derive(Debug, Clone)]
pub struct Place {
    /// How it answers, and which file alone it reads.
    pub common: Common,
    /// Where configuration is looked for.
    pub environment: Environment,
    /// Where it stands.
    pub working_dir: PathBuf,
}

impl Place {
    /// Where this process stands.
    ///
    /// # Errors
    /// Exit 1 where the working directory is gone.
    pub fn of_process(common: &Common) -> Result<Self, Exit> {
        let working_dir = std::env::current_dir()
            .map_err(|error| Exit::machine(format!("the working directory no longer exists: {error}")))?;
        Ok(Self { common: common.clone(), environment: Environment::of_process(), working_dir })
    }

    /// The daemon that `--remote` names, where it is given.
    ///
    /// # Errors
    /// As [`Remote::of`].
    pub fn remote(&self) -> Result<Option<Remote>, Exit> {
        Remote::of(&self.common)
    }

    /// The configuration, as the files say it now.
    ///
    /// # Errors
    /// What is wrong in them: exit 2.
    pub fn files(&self) -> Result<ConfigFiles, Exit> {
        config::read(self.common.config_file.as_deref(), &self.environment)
    }

    /// The folders of the host: for commands that do not read the configuration files, and work where those cannot be
    /// read.
    ///
    /// # Errors
    /// A file that is missing though it was named: exit 2.
    pub fn folders(&self) -> Result<Folders, Exit> {
        config::folders(self.common.config_file.as_deref(), &self.environment)
    }

    /// The folders that the host has once its files are there: for a command that brings them.
    ///
    /// # Errors
    /// As [`config::future_folders`].
    pub fn future_folders(&self) -> Result<Folders, Exit> {
        config::future_folders(self.common.config_file.as_deref(), &self.environment)
    }
}
