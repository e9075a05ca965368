//! The pages that lead through the first minutes: their commands succeed in an empty home, and print what the page shows.

use std::path::Path;
use std::process::Command;

use crate::support::{Ended, ended, program};

/// The line above a block of commands that is run.
const FOLLOWED: &str = "<!-- followed by a test -->\n```sh\n";
/// The beginning of a block with what the commands print, and the sign for what is left out there.
const SHOWN: &str = "```text\n";
const LEFT_OUT: char = '…';
const END: &str = "\n```";

/// A home without a configuration, in which `ostler` is the program to test.
struct Home {
    dir: tempfile::TempDir,
    path: String,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let programs = dir.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        let tested = std::fs::canonicalize(program().get_program()).unwrap();
        std::os::unix::fs::symlink(tested, programs.join("ostler")).unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        Self { dir, path }
    }

    fn run(&self, commands: &str) -> Ended {
        let mut command = Command::new("bash");
        for (name, value) in program().get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["-e", "-o", "pipefail", "-c", commands]);
        command.env("HOME", self.dir.path()).env_remove("XDG_STATE_HOME").current_dir(self.dir.path());
        // No container runtime, whatever this computer has.
        command.env("DOCKER_HOST", self.dir.path().join("docker.sock")).env("PATH", &self.path);
        ended(&mut command)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.run("ostler stop");
    }
}

fn follow(page: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = std::fs::read_to_string(file).unwrap();
    let home = Home::new();
    let mut count = 0;
    for block in text.split(FOLLOWED).skip(1) {
        let (commands, rest) = block.split_once(END).unwrap();
        // Another host of this computer may have the port of the page.
        let ended = home.run(&commands.replace("ostler init ", "ostler init --port 0 "));
        assert_eq!(ended.code, Some(0), "{page}: {commands}: {ended:?}");
        let shown = rest.split_once(SHOWN).and_then(|(_, rest)| rest.split_once(END));
        let mut after = ended.out.as_str();
        for piece in
            shown.map_or("", |(shown, _)| shown).split(LEFT_OUT).map(|piece| piece.trim_matches('\n'))
        {
            let found = after.split_once(piece);
            let (_, rest) =
                found.unwrap_or_else(|| panic!("{page}: {commands} does not print {piece:?}: {ended:?}"));
            after = rest;
        }
        count += 1;
    }
    assert!(count > 0, "{page} has no commands to follow");
}

#[test]
fn the_first_agent() {
    follow("first-agent.md");
}

#[test]
fn the_first_webhook() {
    follow("first-webhook.md");
}

#[test]
fn the_first_plugin() {
    follow("first-plugin.md");
}
