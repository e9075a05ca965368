//! Shells report their commands: where a prompt begins and ends, which command runs, how it ended, and the working
//! directory. A script that runs after the user's startup files enables this; the host removes the reports from the
//! output.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::program::name_of;

const BASH: &str = include_str!("bash.sh");
const ZSH: &str = include_str!("zshenv.zsh");
const FISH: &str = include_str!("integration.fish");

/// The variable in which zsh finds the folder of the user's startup files.
const ZDOTDIR: &str = "OSTLER_ZDOTDIR";

/// The scripts, written for the first shell.
#[derive(Debug, Default)]
pub struct Integration(Mutex<Option<TempDir>>);

impl Integration {
    /// Returns the arguments that make a shell run its script, and adds the variables to `env`. Unknown shells run
    /// without a script, and so do all if it cannot be written.
    pub fn inject(&self, shell: &str, env: &mut BTreeMap<String, String>) -> Vec<String> {
        match name_of(shell) {
            "bash" => match self.file("bash", "integration.sh", BASH) {
                Ok(file) => vec!["--init-file".to_owned(), file.display().to_string()],
                Err(_) => Vec::new(),
            },
            "zsh" => {
                if let Ok(file) = self.file("zsh", ".zshenv", ZSH)
                    && let Some(folder) = file.parent()
                {
                    let own = env.get("ZDOTDIR").cloned().or_else(|| std::env::var("ZDOTDIR").ok());
                    env.extend(own.map(|own| (ZDOTDIR.to_owned(), own)));
                    env.insert("ZDOTDIR".to_owned(), folder.display().to_string());
                }
                Vec::new()
            }
            "fish" => vec!["--init-command".to_owned(), FISH.to_owned()],
            _ => Vec::new(),
        }
    }

    /// Returns the file of a script, in a folder that only this user can read.
    fn file(&self, folder: &str, name: &str, text: &str) -> io::Result<PathBuf> {
        let mut scripts = self.0.lock();
        let scripts = match &mut *scripts {
            Some(scripts) if scripts.path().is_dir() => scripts,
            scripts => scripts.insert(tempfile::Builder::new().prefix("ostler-terminal-").tempdir()?),
        };
        let folder = scripts.path().join(folder);
        fs::create_dir_all(&folder)?;
        let file = folder.join(name);
        if !file.is_file() {
            fs::write(&file, text)?;
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_shells_are_given_their_script() {
        let integration = Integration::default();
        let mut env = BTreeMap::new();
        let bash = integration.inject("/usr/bin/bash", &mut env);
        assert_eq!((bash[0].as_str(), fs::read_to_string(&bash[1]).unwrap().as_str()), ("--init-file", BASH));
        assert!(env.is_empty());
        env.insert("ZDOTDIR".to_owned(), "/own".to_owned());
        assert!(integration.inject("zsh", &mut env).is_empty());
        assert_eq!(env["OSTLER_ZDOTDIR"], "/own");
        assert_eq!(fs::read_to_string(format!("{}/.zshenv", env["ZDOTDIR"])).unwrap(), ZSH);
        assert_eq!(integration.inject("fish", &mut env)[0], "--init-command");
        assert!(integration.inject("/bin/sh", &mut env).is_empty());
    }
}
