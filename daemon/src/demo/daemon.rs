//! The daemon of the demonstration: this program in a separate process.

use std::fs::File;
use std::process::Stdio;

use ostler_processes::ChildKind;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::folder::Folder;
use crate::announce::skipped_of;
use crate::config::FILE;
use crate::exit::Exit;
use crate::process::{self, Signal};
use crate::signals::Signals;

/// A running daemon.
pub(super) struct Daemon {
    child: Child,
    /// Stays open, so that the daemon can continue to write.
    _out: Lines<BufReader<ChildStdout>>,
    /// `ws://127.0.0.1:<port>`
    pub url: String,
    /// Its first line of output.
    pub announced: String,
    /// How long each plugin took to load.
    pub plugins: Vec<String>,
}

impl Daemon {
    /// Starts a daemon and waits for its announcement.
    pub async fn start(folder: &Folder) -> Result<Self, Exit> {
        let failed = |why: String| Exit::machine(format!("cannot start the host: {why}"));
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let log = File::create(folder.log()).map_err(|error| failed(error.to_string()))?;
        let mut command = Command::from(ChildKind::Host.command(program));
        if let Some(state) = folder.state() {
            command.env("XDG_STATE_HOME", state);
        }
        let mut child = command
            .arg("--config-file")
            .arg(folder.dir.join(FILE))
            .current_dir(&folder.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let out = child.stdout.take().ok_or_else(|| failed("it has no output".to_owned()))?;
        let mut out = BufReader::new(out).lines();
        let Ok(Some(announced)) = out.next_line().await else {
            let said = std::fs::read_to_string(folder.log()).unwrap_or_default();
            return Err(failed(said.trim().to_owned()));
        };
        let url = announced
            .split_whitespace()
            .find(|word| word.starts_with("ws://"))
            .map(str::to_owned)
            .ok_or_else(|| failed(announced.clone()))?;
        while let Ok(Some(line)) = out.next_line().await {
            if skipped_of(&line).is_some() {
                return Err(failed(line));
            }
            // The last line of the announcement.
            if line.contains("connection token") {
                break;
            }
        }
        let log = std::fs::read_to_string(folder.log()).unwrap_or_default();
        let plugins = log
            .lines()
            .filter_map(|line| line.split_once(' ').map(|(_, line)| line))
            .filter(|line| line.starts_with("plugin ") && line.ends_with(" ms"))
            .map(str::to_owned)
            .collect();
        Ok(Self { child, _out: out, url, announced, plugins })
    }

    /// Returns its HTTP address.
    pub fn http(&self) -> String {
        self.url.replacen("ws://", "http://", 1)
    }

    /// Waits until the daemon ends or this program receives a signal to stop.
    pub async fn wait(&mut self, signals: &mut Signals) {
        tokio::select! {
            _ = self.child.wait() => {}
            () = signals.stop() => self.stop().await,
        }
    }

    /// Sends a signal to stop and waits for its end.
    pub async fn stop(&mut self) {
        if let Some(pid) = self.child.id()
            && process::send_signal(pid, Signal::Stop).is_ok()
        {
            let limit = std::time::Duration::from_secs(10);
            if tokio::time::timeout(limit, self.child.wait()).await.is_ok() {
                return;
            }
        }
        let _ = self.child.kill().await;
    }
}
