//! Commands that the plugin itself runs in a machine, with bounded output.

use std::collections::BTreeMap;
use std::io;

use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::io::AsyncWrite;

use crate::archive::{self, Read};
use crate::machines::Machines;
use crate::runtime::{Failure, Kind, QUICK};

/// The output of a command, in bytes.
const OUTPUT: usize = 1 << 20;

/// The user of a command and its variables in addition to those of the container.
#[derive(Debug, Clone, Copy)]
pub struct RunAs<'a> {
    /// The user. Default: the user of the container.
    pub user: Option<&'a str>,
    /// The variables.
    pub env: &'a BTreeMap<String, String>,
}

/// The administrator of a container, whose user may be another one.
pub const ROOT: RunAs<'static> = RunAs { user: Some("0"), env: &BTreeMap::new() };

/// A running command, connected to this host.
pub struct Connected {
    /// The runtime's id of it.
    pub id: String,
    pub output:
        std::pin::Pin<Box<dyn futures::Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    pub input: std::pin::Pin<Box<dyn AsyncWrite + Send>>,
}

impl Machines {
    /// Starts a command in a container.
    pub async fn connect(
        &self,
        container: &str,
        command: &[&str],
        input: bool,
        run_as: &RunAs<'_>,
    ) -> Result<Connected, Failure> {
        let what = format!("run {}", command.first().copied().unwrap_or_default());
        let options = CreateExecOptions {
            attach_stdin: Some(input),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            user: run_as.user.map(str::to_owned),
            env: Some(run_as.env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
            cmd: Some(command.iter().map(|word| (*word).to_owned()).collect()),
            ..CreateExecOptions::default()
        };
        let start = StartExecOptions { output_capacity: Some(64 << 10), ..StartExecOptions::default() };
        self.runtime
            .call(&what, QUICK, |docker| async move {
                let id = docker.create_exec(container, options).await?.id;
                match docker.start_exec(&id, Some(start)).await? {
                    StartExecResults::Attached { output, input } => Ok(Connected { id, output, input }),
                    StartExecResults::Detached => Err(io::Error::other("it is not connected").into()),
                }
            })
            .await
    }

    /// Runs a command to its end and returns its output; a failed one is an error with its output.
    pub async fn output(
        &self,
        container: &str,
        command: &[&str],
        run_as: &RunAs<'_>,
    ) -> Result<Read, Failure> {
        let what = format!("run {}", command.first().copied().unwrap_or_default());
        let connected = self.connect(container, command, false, run_as).await?;
        let pieces = connected.output.map(|piece| piece.map(LogOutput::into_bytes));
        let gathered = archive::gather(&what, OUTPUT, pieces.boxed());
        let output = match tokio::time::timeout(QUICK, gathered).await {
            Ok(output) => {
                output?.map_err(|error| Failure::new(Kind::Failed, format_args!("{what}: {error}")))?
            }
            Err(_) => {
                let limit = QUICK.as_secs();
                return Err(Failure::new(
                    Kind::Failed,
                    format_args!("{what}: it did not end within {limit} seconds"),
                ));
            }
        };
        let state = self
            .runtime
            .call(&what, QUICK, |docker| async move { docker.inspect_exec(&connected.id).await })
            .await?;
        match state.exit_code {
            Some(0) => Ok(output),
            code => {
                let said: String = String::from_utf8_lossy(&output.bytes).trim().chars().take(300).collect();
                let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
                Err(Failure::new(Kind::Failed, format_args!("{what}: exit code {code}: {said}")))
            }
        }
    }

    /// Returns the content of a file in a container.
    pub async fn read_file(&self, container: &str, path: &str) -> Result<Read, Failure> {
        let what = format!("read {path}");
        let options =
            bollard::query_parameters::DownloadFromContainerOptionsBuilder::new().path(path).build();
        let what = what.as_str();
        let read = |docker: bollard::Docker| async move {
            let pieces = docker.download_from_container(container, Some(options));
            let pieces: futures::stream::BoxStream<'_, Result<Bytes, bollard::errors::Error>> =
                pieces.boxed();
            // Errors of the content are not failures of the call.
            match archive::one_file(what, pieces).await {
                Ok(Ok(file)) => Ok(Ok(file)),
                Ok(Err(error)) => Err(error),
                Err(why) => Ok(Err(why)),
            }
        };
        self.runtime.call(what, crate::runtime::CHANGE, read).await?
    }
}
