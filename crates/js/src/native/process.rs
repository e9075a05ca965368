//! The native part of `node:process` and `node:os`.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use ostler_processes::ChildKind;
use rquickjs::{Ctx, Function, Object, Persistent, Result, Value};

use super::{SystemError, natives, system_error};
use crate::engine::State;
use crate::options::Level;

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let started = Instant::now();
    let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let natives: Result<Object<'js>> = natives! { ctx;
        "env": || ChildKind::Plugin.environment()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect::<BTreeMap<_, _>>(),
        "cwd": |ctx: Ctx<'js>| std::env::current_dir()
            .map(|path| path.to_string_lossy().into_owned())
            .map_err(|error| system_error(&ctx, SystemError::new(error, "uv_cwd"))),
        "argv": || std::env::args().collect::<Vec<_>>(),
        "pid": std::process::id,
        "now": move || started.elapsed().as_secs_f64() * 1000.0,
        "memoryUsed": |ctx: Ctx<'js>| Ok::<_, rquickjs::Error>(State::of(&ctx)?.watch.memory_used()),
        "residentMemory": resident_memory,
        "cpu": cpu,
        "waited": waited,
        "label": |ctx: Ctx<'js>| Ok::<_, rquickjs::Error>(State::of(&ctx)?.shared.label()),
        "log": log,
        "listen": listen,
        "kill": kill,
        "hostname": hostname,
        "osFacts": os_facts,
        "parallelism": || std::thread::available_parallelism().map_or(1, usize::from),
        "interfaces": super::interfaces::interfaces,
        "user": user,
        "priority": priority,
        "setPriority": set_priority,
        "isProxy": is_proxy,
        "proxied": proxied,
        "settled": settled,
        "isTerminal": is_terminal,
        "find": find,
    };
    let natives = natives?;
    natives.set("timeOrigin", epoch.as_secs_f64() * 1000.0)?;
    natives.set("version", env!("CARGO_PKG_VERSION"))?;
    natives.set("engine", engine_version())?;
    natives.set("platform", platform())?;
    natives.set("arch", arch())?;
    natives.set(
        "exec",
        std::env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
    )?;
    Ok(natives)
}

/// Returns the first executable file of a name in the folders of a `PATH`.
fn find(name: String, path: String) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(&name))
        .find(|file| {
            file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
        .map(|file| file.to_string_lossy().into_owned())
}

/// Returns the nice value of a process; 0 is this one.
fn priority(ctx: Ctx<'_>, process: u32) -> Result<i32> {
    // SAFETY: neither call accesses this process's memory, and signal 0 only checks whether the process exists.
    let (nice, there) = unsafe {
        (libc::getpriority(libc::PRIO_PROCESS, process), libc::kill(process.cast_signed(), 0) == 0)
    };
    let error = std::io::Error::last_os_error();
    if nice == -1 && !there && error.raw_os_error() == Some(libc::ESRCH) {
        return Err(system_error(&ctx, SystemError::new(error, "uv_os_getpriority")));
    }
    Ok(nice)
}

fn set_priority(ctx: Ctx<'_>, process: u32, nice: i32) -> Result<()> {
    // SAFETY: it accesses no memory of this process.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, process, nice) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(system_error(&ctx, SystemError::new(error, "uv_os_setpriority")));
    }
    Ok(())
}

fn is_proxy(value: Value<'_>) -> bool {
    // SAFETY: it only inspects a live value.
    unsafe { rquickjs::qjs::JS_IsProxy(value.as_raw()) }
}

/// Returns the target and the handler of a proxy; both are null if it was revoked.
fn proxied<'js>(ctx: Ctx<'js>, proxy: Value<'js>) -> Vec<Value<'js>> {
    // SAFETY: the value is alive, and the returned values are owned references.
    unsafe {
        let raw = ctx.as_raw().as_ptr();
        [
            rquickjs::qjs::JS_GetProxyTarget(raw, proxy.as_raw()),
            rquickjs::qjs::JS_GetProxyHandler(raw, proxy.as_raw()),
        ]
        .map(|part| Value::from_raw(ctx.clone(), part))
        .to_vec()
    }
}

/// Returns the result of a promise: an array of whether it was fulfilled, and the value; `None` while it is pending.
fn settled<'js>(ctx: Ctx<'js>, promise: rquickjs::Promise<'js>) -> Result<Option<Vec<Value<'js>>>> {
    use rquickjs::promise::PromiseState;
    let fulfilled = match promise.state() {
        PromiseState::Pending => return Ok(None),
        PromiseState::Resolved => true,
        PromiseState::Rejected => false,
    };
    // SAFETY: both are alive, and the returned value is an owned reference.
    let value = unsafe {
        let raw = rquickjs::qjs::JS_PromiseResult(ctx.as_raw().as_ptr(), promise.as_value().as_raw());
        Value::from_raw(ctx.clone(), raw)
    };
    Ok(Some(vec![Value::new_bool(ctx, fulfilled), value]))
}

/// Returns the version of the JavaScript engine.
fn engine_version() -> String {
    // SAFETY: it returns a static string.
    let version = unsafe { std::ffi::CStr::from_ptr(rquickjs::qjs::JS_GetVersion()) };
    version.to_string_lossy().into_owned()
}

fn platform() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    }
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        "x86" => "ia32",
        other => other,
    }
}

/// Logs one line under the plugin's name.
fn log(ctx: Ctx<'_>, level: String, line: String) -> Result<()> {
    let level = match level.as_str() {
        "debug" => Level::Debug,
        "warn" => Level::Warn,
        "error" => Level::Error,
        _ => Level::Info,
    };
    State::of(&ctx)?.shared.log(level, line);
    Ok(())
}

/// Sets the listener for uncaught errors; it returns whether it handled the error.
fn listen<'js>(ctx: Ctx<'js>, listener: Function<'js>) -> Result<()> {
    let listener = Persistent::save(&ctx, listener);
    *State::of(&ctx)?.listener.borrow_mut() = Some(listener);
    Ok(())
}

fn kill(ctx: Ctx<'_>, pid: i32, signal: i32) -> Result<()> {
    // SAFETY: `kill` takes two numbers and accesses no memory of ours.
    if unsafe { libc::kill(pid, signal) } == 0 {
        Ok(())
    } else {
        Err(system_error(&ctx, SystemError::new(std::io::Error::last_os_error(), "kill")))
    }
}

/// Returns the CPU time of the plugin's thread in microseconds: user time and system time.
fn cpu() -> Vec<f64> {
    #[cfg(target_os = "linux")]
    const WHO: libc::c_int = libc::RUSAGE_THREAD;
    #[cfg(not(target_os = "linux"))]
    const WHO: libc::c_int = libc::RUSAGE_SELF;
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to our own variable; if it fails, the numbers stay zero.
    unsafe { libc::getrusage(WHO, &raw mut used) };
    #[expect(clippy::cast_precision_loss)]
    let micros = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    vec![micros(used.ru_utime), micros(used.ru_stime)]
}

/// Returns how long the plugin's thread waited for work, and how long it has run, in milliseconds.
fn waited() -> Vec<f64> {
    let (waited, all) = crate::engine::waited();
    vec![waited.as_secs_f64() * 1000.0, all.as_secs_f64() * 1000.0]
}

fn resident_memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.as_deref().and_then(|statm| statm.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}

fn hostname() -> String {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|name| name.trim().to_owned());
    read("/proc/sys/kernel/hostname")
        .or_else(|| read("/etc/hostname"))
        .or_else(|| std::env::var("HOSTNAME").ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Returns load, memory and uptime, as far as the system reports them.
fn os_facts(ctx: Ctx<'_>) -> Result<Object<'_>> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let facts = Object::new(ctx)?;
    let memory = read("/proc/meminfo");
    let kilobytes = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    facts.set("totalmem", kilobytes("MemTotal") * 1024.0)?;
    facts.set("freemem", kilobytes("MemAvailable") * 1024.0)?;
    let numbers =
        |text: String| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<f64>>();
    let load: Vec<f64> = numbers(read("/proc/loadavg")).into_iter().take(3).collect();
    facts.set("loadavg", if load.len() == 3 { load } else { vec![0.0; 3] })?;
    facts.set("uptime", numbers(read("/proc/uptime")).first().copied().unwrap_or_default())?;
    facts.set("release", read("/proc/sys/kernel/osrelease").trim())?;
    facts.set("version", read("/proc/sys/kernel/version").trim())?;
    let models = read("/proc/cpuinfo");
    let models: Vec<String> = models
        .lines()
        .filter_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned()))
        .collect();
    facts.set("cpus", models)?;
    Ok(facts)
}

/// Returns the user that the daemon runs as.
fn user(ctx: Ctx<'_>) -> Result<Object<'_>> {
    // SAFETY: both calls only return a number.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let entries = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry: Vec<&str> = entries
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2).and_then(|id| id.parse().ok()) == Some(uid))
        .unwrap_or_default();
    let field = |at: usize, variable: &str| {
        entry
            .get(at)
            .map(|field| (*field).to_owned())
            .or_else(|| std::env::var(variable).ok())
            .unwrap_or_default()
    };
    let user = Object::new(ctx)?;
    user.set("uid", uid)?;
    user.set("gid", gid)?;
    user.set("username", field(0, "USER"))?;
    user.set("homedir", field(5, "HOME"))?;
    user.set("shell", field(6, "SHELL"))?;
    Ok(user)
}

fn is_terminal(descriptor: Value<'_>) -> bool {
    use std::io::IsTerminal;
    match descriptor.as_int() {
        Some(0) => std::io::stdin().is_terminal(),
        Some(1) => std::io::stdout().is_terminal(),
        Some(2) => std::io::stderr().is_terminal(),
        _ => false,
    }
}
