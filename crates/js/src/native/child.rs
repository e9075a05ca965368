//! Child processes. Each leads a process group, which is killed when the engine or the process ends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Child as BlockingChild, ExitStatus, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_processes::ChildKind;
use rquickjs::{Array, Ctx, Function, IntoJs, Object, Promise, Result, Value};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Mutex, watch};

use super::children::{Awaited, Group, end_with_thread, hear_signals, signal};
use super::descriptors::{Descriptors, Reserved};
use super::fs::Files;
use super::net::end_of_pair;
use super::pipes::{Slot, write_to};
use super::{SystemError, natives, system_error};
use crate::engine::State;
use crate::values::{bytes_of, bytes_to_js};

/// The maximum size of one read.
const CHUNK: usize = 64 << 10;

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx;
        "spawn": spawn,
        "run": run,
    }
}

/// The process to start.
struct Start {
    file: String,
    command: process::Command,
    detached: bool,
    ends: Vec<Option<UnixStream>>,
    /// Lives until the child has started.
    reserved: Reserved,
}

/// What a descriptor of the child is.
enum Way {
    Pipe,
    Nothing,
    File(Arc<File>),
}

impl Way {
    fn read(files: &Files, value: &Value<'_>) -> io::Result<Self> {
        if let Some(handle) = value.as_int() {
            return files.get(u32::try_from(handle).unwrap_or_default()).map(Self::File);
        }
        let is_pipe =
            value.as_string().and_then(|word| word.to_string().ok()).is_some_and(|word| word == "pipe");
        Ok(if is_pipe { Self::Pipe } else { Self::Nothing })
    }

    fn stdio(self) -> io::Result<Stdio> {
        Ok(match self {
            Self::Pipe => Stdio::piped(),
            Self::Nothing => Stdio::null(),
            Self::File(file) => file.try_clone()?.into(),
        })
    }
}

impl Start {
    fn read(options: &Object<'_>) -> Result<Self> {
        let file: String = options.get("file")?;
        let arguments: Vec<String> = options.get("args")?;
        let detached: bool = options.get("detached")?;
        let mut command = ChildKind::Plugin.command(&file);
        command.args(&arguments);
        if let Some(name) = options.get::<_, Option<String>>("argv0")? {
            command.arg0(name);
        }
        if let Some(folder) = options.get::<_, Option<String>>("cwd")? {
            command.current_dir(folder);
        }
        command.env_clear().envs(options.get::<_, HashMap<String, String>>("env")?);
        if let Some(id) = options.get::<_, Option<u32>>("uid")? {
            command.uid(id);
        }
        if let Some(id) = options.get::<_, Option<u32>>("gid")? {
            command.gid(id);
        }
        let ctx = options.ctx();
        let failed = |error| system_error(ctx, SystemError::at(error, "spawn", file.as_str()));
        let files = State::of(ctx)?.files.clone();
        let mut descriptors = Descriptors::default();
        for (at, value) in options.get::<_, Array>("stdio")?.iter::<Value>().enumerate() {
            let way = Way::read(&files, &value?).map_err(failed)?;
            let done = match at {
                0 => way.stdio().map(|way| {
                    command.stdin(way);
                }),
                1 => way.stdio().map(|way| {
                    command.stdout(way);
                }),
                2 => way.stdio().map(|way| {
                    command.stderr(way);
                }),
                _ => match way {
                    Way::Pipe => descriptors.pipe(),
                    Way::Nothing => descriptors.nothing(),
                    Way::File(file) => descriptors.file(&file),
                },
            };
            done.map_err(failed)?;
        }
        command.process_group(0);
        hear_signals(&mut command);
        if !detached {
            end_with_thread(&mut command);
        }
        let (ends, reserved) = descriptors.give(&mut command).map_err(failed)?;
        Ok(Self { file, command, detached, ends, reserved })
    }
}

/// A running child process. When it is dropped with the engine, its whole group is killed.
struct Running {
    id: i32,
    detached: bool,
    ended: RefCell<bool>,
    /// `None` if the child outlives the plugin.
    group: RefCell<Option<Group>>,
    awaited: RefCell<Option<Awaited>>,
}

impl Running {
    fn signal(&self, number: i32) -> io::Result<()> {
        signal(self.id, number)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.detached && !*self.ended.borrow() {
            // The group may have ended already.
            let _ = signal(-self.id, libc::SIGKILL);
        }
    }
}

fn spawn<'js>(ctx: Ctx<'js>, options: Object<'js>) -> Result<Object<'js>> {
    let start = Start::read(&options)?;
    let mut command = Command::from(start.command);
    command.kill_on_drop(!start.detached);
    let id_of = |child: &Child| child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
    let started = match start.detached {
        true => command.spawn().map(|child| (child, None)),
        false => Group::start(|| command.spawn(), id_of).map(|(child, group)| (child, Some(group))),
    };
    let (mut child, group) =
        started.map_err(|error| system_error(&ctx, SystemError::at(error, "spawn", start.file.as_str())))?;
    // The child's own ends are closed, so that the end of what it writes is seen.
    drop((command, start.reserved));
    let id = id_of(&child);
    let running = Rc::new(Running {
        id,
        detached: start.detached,
        ended: RefCell::new(false),
        group: RefCell::new(group),
        awaited: RefCell::new(Some(Awaited::new(id))),
    });
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let handle = Object::new(ctx.clone())?;
    handle.set("pid", id)?;
    let killed = running.clone();
    handle.set(
        "kill",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, number: i32| {
            if *killed.ended.borrow() {
                return Ok(false);
            }
            match killed.signal(number) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
                Err(error) => Err(system_error(&ctx, SystemError::new(error, "kill"))),
                Ok(()) => Ok(true),
            }
        }),
    )?;
    if let Some(input) = input {
        set_input(&ctx, &handle, input)?;
    }
    if let Some(output) = output {
        handle.set("stdout", reader(&ctx, output)?)?;
    }
    if let Some(errors) = errors {
        handle.set("stderr", reader(&ctx, errors)?)?;
    }
    let extra = Array::new(ctx.clone())?;
    for (at, end) in start.ends.into_iter().enumerate() {
        match end {
            Some(end) => extra.set(at, end_of_pair(&ctx, end)?)?,
            None => extra.set(at, Value::new_null(ctx.clone()))?,
        }
    }
    handle.set("extra", extra)?;
    handle.set("ended", wait(&ctx, child, running)?)?;
    Ok(handle)
}

/// Returns a promise of the child's exit: its code, or the signal that ended it.
fn wait<'js>(ctx: &Ctx<'js>, mut child: Child, running: Rc<Running>) -> Result<Promise<'js>> {
    let inside = ctx.clone();
    Promise::wrap_future(ctx, async move {
        let status = child.wait().await;
        *running.ended.borrow_mut() = true;
        // The system may now reuse the process id.
        drop((running.group.borrow_mut().take(), running.awaited.borrow_mut().take()));
        let status = status.map_err(|error| system_error(&inside, SystemError::new(error, "wait")))?;
        outcome(&inside, status)
    })
}

fn outcome<'js>(ctx: &Ctx<'js>, status: ExitStatus) -> Result<Array<'js>> {
    let list = Array::new(ctx.clone())?;
    list.set(0, status.code().into_js(ctx)?)?;
    list.set(1, status.signal().into_js(ctx)?)?;
    Ok(list)
}

/// Sets `write(bytes)` and `end()`.
fn set_input<'js>(ctx: &Ctx<'js>, handle: &Object<'js>, input: ChildStdin) -> Result<()> {
    let input: Slot<_> = Rc::new(Mutex::new(Some(input)));
    handle.set("write", write_to(ctx, input.clone(), |error| SystemError::new(error, "write"))?)?;
    handle.set(
        "end",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let input = input.clone();
            Promise::wrap_future(&ctx, async move {
                drop(input.lock().await.take());
                Ok::<_, rquickjs::Error>(())
            })
        }),
    )
}

/// Returns a function that returns the next bytes, or null at the end.
fn reader<'js, R>(ctx: &Ctx<'js>, pipe: R) -> Result<Function<'js>>
where
    R: AsyncRead + Unpin + 'static,
{
    let pipe = Rc::new(Mutex::new(pipe));
    Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
        let (pipe, inside) = (pipe.clone(), ctx.clone());
        Promise::wrap_future(&ctx, async move {
            let mut bytes = vec![0; CHUNK];
            let read = pipe.lock().await.read(&mut bytes).await;
            let read = read.map_err(|error| system_error(&inside, SystemError::new(error, "read")))?;
            bytes.truncate(read);
            match read {
                0 => Ok(Value::new_null(inside)),
                _ => bytes_to_js(&inside, bytes.into()),
            }
        })
    })
}

/// Runs a child process to its end, while the plugin blocks.
fn run<'js>(ctx: Ctx<'js>, options: Object<'js>) -> Result<Object<'js>> {
    let mut start = Start::read(&options)?;
    let input = bytes_of(&options.get("input")?).unwrap_or_default();
    let timeout: Option<f64> = options.get("timeout")?;
    let limit = timeout.and_then(|timeout| Duration::try_from_secs_f64(timeout / 1000.0).ok());
    let most: Option<usize> = options.get("maxBuffer")?;
    let kill: i32 = options.get("killSignal")?;
    let done = run_to_end(&mut start.command, &input, limit, most.unwrap_or(usize::MAX), kill);
    let answer = Object::new(ctx.clone())?;
    match done {
        Ok(done) => {
            answer.set("pid", done.id)?;
            answer.set("ended", outcome(&ctx, done.status)?)?;
            answer.set("stdout", bytes_to_js(&ctx, done.output.into())?)?;
            answer.set("stderr", bytes_to_js(&ctx, done.errors.into())?)?;
            answer.set("timedOut", done.timed_out)?;
            answer.set("overflowed", done.overflowed)?;
        }
        Err(error) => {
            answer.set("error", SystemError::at(error, "spawnSync", start.file.as_str()).into_js(&ctx)?)?
        }
    }
    Ok(answer)
}

struct Finished {
    id: u32,
    status: ExitStatus,
    output: Vec<u8>,
    errors: Vec<u8>,
    timed_out: bool,
    overflowed: bool,
}

fn run_to_end(
    command: &mut process::Command,
    input: &[u8],
    limit: Option<Duration>,
    most: usize,
    kill: i32,
) -> io::Result<Finished> {
    let id_of = |child: &BlockingChild| i32::try_from(child.id()).unwrap_or_default();
    let (mut child, _ends) = Group::start(|| command.spawn(), id_of)?;
    let (id, group) = (child.id(), id_of(&child));
    let (ended, mut hears) = watch::channel(false);
    let overflow = std::sync::atomic::AtomicBool::new(false);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let collect = |pipe: Option<Box<dyn Read + Send>>| {
            let overflow = &overflow;
            scope.spawn(move || {
                let mut all = Vec::new();
                let mut chunk = vec![0; CHUNK];
                let Some(mut pipe) = pipe else { return all };
                while let Ok(read @ 1..) = pipe.read(&mut chunk) {
                    all.extend_from_slice(&chunk[..read]);
                    if all.len() > most {
                        all.truncate(most);
                        overflow.store(true, std::sync::atomic::Ordering::Relaxed);
                        // A child that continues to write would block on the full pipe and never exit.
                        let _ = signal(-group, kill);
                        break;
                    }
                }
                all
            })
        };
        let output = collect(stdout.map(|pipe| Box::new(pipe) as _));
        let errors = collect(stderr.map(|pipe| Box::new(pipe) as _));
        let feeding = stdin.map(|mut pipe| scope.spawn(move || pipe.write_all(input)));
        let watching = limit.map(|limit| {
            scope.spawn(move || {
                let until = Instant::now() + limit;
                while Instant::now() < until {
                    if *hears.borrow_and_update() {
                        return false;
                    }
                    std::thread::sleep((until - Instant::now()).min(Duration::from_millis(5)));
                }
                signal(-group, kill).is_ok()
            })
        });
        let status = child.wait();
        // This fails if no thread is watching.
        let _ = ended.send(true);
        let timed_out = watching.and_then(|watching| watching.join().ok()).unwrap_or(false);
        if let Some(feeding) = feeding {
            // A child may close its input without reading it.
            let _ = feeding.join();
        }
        Ok(Finished {
            id,
            status: status?,
            output: output.join().unwrap_or_default(),
            errors: errors.join().unwrap_or_default(),
            timed_out,
            overflowed: overflow.load(std::sync::atomic::Ordering::Relaxed),
        })
    })
}
