//! Tools with which a model makes disposable machines for its session, runs commands in them and removes them.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{
    MachinePlan, MachineProcess, MachineRequest, Tool, ToolContext, ToolEffects, ToolSpec,
};
use ostler_contract::{Call, PluginHost, RpcError, Thrown, Value, json};
use ostler_processes::ChildKind;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use crate::machines::{ADDRESS, HostContainer, Machines, id_of, label, no_machine};

/// The maximum number of machines that tools create for a session.
const MACHINES: usize = 4;
/// The size of the returned end of a command's output, in bytes.
const OUTPUT: usize = 64 << 10;
/// The default limit of a command, in seconds.
const USUAL: u64 = 120;
/// The maximum limit of a command, in seconds.
const LONGEST: u64 = 600;
/// How long the processes of a command can take to end after a signal.
const END: Duration = Duration::from_secs(10);

/// Registers the tools.
pub fn register(host: &PluginHost, machines: &Arc<Machines>) -> Result<(), Thrown> {
    let (requests, runs, releases) = (machines.clone(), machines.clone(), machines.clone());
    let profiles: Vec<&String> = machines.options.profiles.keys().collect();
    host.register_tool(Tool {
        definition: definition(
            "request_disposable_computer",
            "Makes a new container for this session, with the session's directory mounted. Returns its address. It is removed with the session.",
            json!({ "profile": { "type": "string", "enum": profiles, "description": "What it is made from" } }),
            &["profile"],
        ),
        effects: Some(ToolEffects { writes: Some(true), ..ToolEffects::default() }),
        advanced_permission: Some(true),
        run: Call::new(move |(input, at): (Value, ToolContext)| {
            let machines = requests.clone();
            async move { request(&machines, read(input)?, &at).await }
        }),
        ..Tool::default()
    })?;
    host.register_tool(Tool {
        definition: definition(
            "computer_exec",
            "Runs a shell command in a container of this session. Returns its exit code and the end of its output.",
            json!({
                "computer": { "type": "string", "description": "Address of the container, computer://<id>" },
                "command": { "type": "string", "description": "Line for /bin/sh" },
                "cwd": { "type": "string", "description": "Directory in the container" },
                "timeoutSeconds": { "type": "integer", "minimum": 1, "maximum": LONGEST,
                    "description": format!("When the command is ended [default: {USUAL}]") },
            }),
            &["computer", "command"],
        ),
        effects: Some(ToolEffects { writes: Some(true), network: Some(true), ..ToolEffects::default() }),
        advanced_permission: Some(true),
        run: Call::new(move |(input, at): (Value, ToolContext)| {
            let machines = runs.clone();
            async move { run(&machines, read(input)?, &at.session).await }
        }),
        ..Tool::default()
    })?;
    host.register_tool(Tool {
        definition: definition(
            "release_computer",
            "Removes a container that request_disposable_computer made for this session.",
            json!({ "computer": { "type": "string", "description": "Address of the container, computer://<id>" } }),
            &["computer"],
        ),
        effects: Some(ToolEffects { writes: Some(true), destructive: Some(true), ..ToolEffects::default() }),
        advanced_permission: Some(true),
        run: Call::new(move |(input, at): (Value, ToolContext)| {
            let machines = releases.clone();
            async move { release(&machines, read(input)?, &at.session).await }
        }),
        ..Tool::default()
    })
}

fn definition(name: &str, description: &str, properties: Value, required: &[&str]) -> ToolSpec {
    let schema = json!({ "type": "object", "properties": properties, "required": required,
        "additionalProperties": false });
    ToolSpec {
        name: name.into(),
        description: Some(description.to_owned()),
        input_schema: schema.as_object().cloned(),
        ..ToolSpec::default()
    }
}

fn read<T: for<'a> Deserialize<'a>>(input: Value) -> Result<T, Thrown> {
    serde_json::from_value(input).map_err(|why| RpcError::invalid_params(format!("input: {why}")).into())
}

#[derive(Debug, Deserialize)]
struct Requested {
    profile: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Exec {
    computer: String,
    command: String,
    cwd: Option<String>,
    timeout_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Released {
    computer: String,
}

/// Returns the machines that tools created for a session.
pub async fn made_for(machines: &Machines, session: &str) -> Result<Vec<HostContainer>, Thrown> {
    let mut found = machines.list().await?;
    found.retain(|machine| {
        machine.label(label::TOOL).is_some() && machine.label(label::SESSION) == Some(session)
    });
    Ok(found)
}

/// Returns a machine of a session, created for it or by its tools.
async fn own(machines: &Machines, session: &str, computer: &str) -> Result<HostContainer, Thrown> {
    let id = id_of(computer);
    let machine = machines.find(id).await?;
    match machine.label(label::SESSION) == Some(session) {
        true => Ok(machine),
        // The existence of others is not revealed.
        false => Err(no_machine(id).into()),
    }
}

async fn request(machines: &Arc<Machines>, input: Requested, at: &ToolContext) -> Result<Value, Thrown> {
    // One after the other, so that the limit applies.
    let _one = machines.tool_requests.lock().await;
    if made_for(machines, &at.session).await?.len() >= MACHINES {
        let why =
            format!("this session has {MACHINES} containers already; release one with release_computer");
        return Err(RpcError::invalid_params(why).into());
    }
    let sessions = at.sessions.call(()).await?;
    let session = sessions.into_iter().find(|session| session.resource == at.session);
    let directory = session.and_then(|session| session.working_directories?.into_iter().next());
    let directory = directory.as_deref().and_then(|uri| uri.strip_prefix("file://"));
    let directory = directory.map(|path| percent_encoding::percent_decode_str(path).decode_utf8_lossy());
    let request = MachineRequest {
        source: format!("disposable:{}", input.profile),
        profile: Some(input.profile),
        session: at.session.clone(),
        owner: None,
        working_directory: directory.map(std::borrow::Cow::into_owned),
        agents: at.provider.iter().cloned().collect(),
        plan: MachinePlan::default(),
    };
    let making = machines.clone();
    let computer = machines
        .made(async move {
            let address = making.make_disposable(request, true).await?;
            Ok::<_, Thrown>((making.name(id_of(&address)), address))
        })
        .await?;
    let made = machines.find(id_of(&computer)).await?;
    Ok(json!({ "computer": computer, "workdir": made.label(label::WORKDIR) }))
}

async fn release(machines: &Machines, input: Released, session: &str) -> Result<Value, Thrown> {
    let machine = own(machines, session, &input.computer).await?;
    if machine.label(label::TOOL).is_none() {
        let why =
            format!("the session itself runs in {ADDRESS}{}; it is removed with the session", machine.id);
        return Err(RpcError::invalid_params(why).into());
    }
    machines.destroy(&machine.id).await?;
    Ok(json!(format!("{ADDRESS}{} is removed", machine.id)))
}

/// Runs a command to its end, or ends it at its limit.
async fn run(machines: &Machines, input: Exec, session: &str) -> Result<Value, Thrown> {
    let machine = own(machines, session, &input.computer).await?;
    let process = MachineProcess {
        program: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), input.command],
        cwd: input.cwd,
        ..MachineProcess::default()
    };
    let process = machines.how(&machine.id, process).await?;
    let mut command = Command::from(ChildKind::Helper.command(&process.program));
    command.args(&process.args).envs(&process.env).current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|why| Thrown::new(format_args!("{} could not be started: {why}", process.program)))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut end = End::default();
    let limit = Duration::from_secs(input.timeout_seconds.unwrap_or(USUAL).clamp(1, LONGEST));
    let ended = tokio::time::timeout(limit, async {
        gather(&mut end, out, err).await;
        child.wait().await
    });
    let outcome = ended.await;
    let masked = |text: String| {
        process.secrets.iter().fold(text, |text, secret| text.replace(secret.as_str(), "<set>"))
    };
    match outcome {
        Ok(Ok(status)) => {
            Ok(json!({ "exitCode": status.code(), "truncated": end.cut, "output": masked(end.text()) }))
        }
        Ok(Err(why)) => Err(Thrown::new(format_args!("the command was not waited for: {why}"))),
        Err(_) => {
            stop(&mut child).await;
            let (seconds, output) = (limit.as_secs(), masked(end.text()));
            Err(Thrown::new(format_args!(
                "the command did not end within {seconds} seconds and was ended; its output:\n{output}"
            )))
        }
    }
}

/// Ends a command: its process on this host ends those in the machine.
async fn stop(child: &mut Child) {
    if let Some(id) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
        let _ = kill_process(id, Signal::TERM);
    }
    if tokio::time::timeout(END, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// The end of an output.
#[derive(Debug, Default)]
struct End {
    bytes: Vec<u8>,
    cut: bool,
}

impl End {
    fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        if self.bytes.len() > 2 * OUTPUT {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let over = self.bytes.len().saturating_sub(OUTPUT);
        self.cut |= over > 0;
        self.bytes.drain(..over);
    }

    fn text(&mut self) -> String {
        self.trim();
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Reads both outputs to their ends, as they arrive.
async fn gather(end: &mut End, out: Option<impl AsyncRead + Unpin>, err: Option<impl AsyncRead + Unpin>) {
    let (mut out, mut err) = (out, err);
    let (mut one, mut other) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    while out.is_some() || err.is_some() {
        tokio::select! {
            read = piece(&mut out, &mut one) => match read {
                0 => out = None,
                read => end.push(&one[..read]),
            },
            read = piece(&mut err, &mut other) => match read {
                0 => err = None,
                read => end.push(&other[..read]),
            },
        }
    }
}

/// Returns how many bytes were read; 0 at the end.
async fn piece(from: &mut Option<impl AsyncRead + Unpin>, into: &mut [u8]) -> usize {
    match from {
        Some(from) => from.read(into).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::{End, OUTPUT, gather};

    #[tokio::test]
    async fn the_end_of_both_outputs_is_returned() {
        let mut end = End::default();
        gather(&mut end, Some(&b"out\n"[..]), Some(&b"err\n"[..])).await;
        let text = end.text();
        assert!(!end.cut && text.len() == 8 && text.contains("out\n") && text.contains("err\n"), "{text}");

        let mut end = End::default();
        let long = [vec![b'x'; 5 * OUTPUT], b"last".to_vec()].concat();
        gather(&mut end, Some(&long[..]), None::<&[u8]>).await;
        assert!(end.bytes.len() <= 2 * OUTPUT + (16 << 10));
        let text = end.text();
        assert!(end.cut && text.len() == OUTPUT && text.ends_with("xlast"));
    }
}
