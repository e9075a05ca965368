//! `@ostler/git` compared with git itself: the changes of a repository with 100,000 files after an edit, and sessions
//! in separate working trees.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::context::Context;
use super::super::failure::{During, Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::ws::Ws;
use super::super::ostler::{Folder, folder_on_disk};
use super::super::rounds::{Bounds, Column, Side, alternate};
use super::super::stats::percentile;

/// The large repository: folders, and files in each.
const LARGE: (usize, usize) = (1_000, 100);
/// The repository for working trees: folders, and files in each.
const SMALL: (usize, usize) = (50, 20);
/// Edits per round.
const EDITS: usize = 9;
/// Working trees per round.
const TREES: usize = 5;
/// The timeout until the daemon responds from its file watcher.
const WARM: Duration = Duration::from_secs(120);

const ASKED: &[Column] =
    &[("changes of 100,000 files after an edit, beside git status: p50", "ms", Some(Target::Under(300.0)))];
const TOLD: &[Column] = &[("an edit to its watcher, in the same: p50", "ms", None)];
const MEANWHILE: &[Column] = &[
    ("its changes for the first time", "ms", None),
    ("createSession meanwhile, the slowest", "ms", Some(Target::Under(100.0))),
];
const TREE: &[Column] =
    &[("session in a working tree of 1,000 files, beside git worktree add: p50", "ms", None)];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let plugins = [json!({ "name": "@ostler/echo" }), json!({ "name": "@ostler/git" })];
    let beside = Bounds { floor: true, ..context.bounds(5, Duration::from_secs(120)) };
    let alone = Bounds { floor: false, ..beside };
    let large = Repository::new(&context.root, LARGE)?;
    let mut figures = Vec::new();
    {
        let folder = Folder::new(&context.root, &plugins)?;
        let (_daemon, address) = context.ostler.start_serving(&folder, &large.path)?;
        let mut client = Ws::introduced(address, "bench")?;
        let changeset = session(&mut client, "large", &large.path)?;
        warm(&mut client, &changeset)?;
        figures.extend(alternate(beside, ASKED, |side| {
            let mut edit = large.edits();
            timed(EDITS, || {
                let (name, _) = edit()?;
                let begun = Instant::now();
                match side {
                    Side::Ostler => lists(&ask(&mut client, &changeset)?, &name)?,
                    Side::Floor => {
                        let status = ["status", "--porcelain=v2", "-z", "--untracked-files=all"];
                        let listed = git(&large.path, &status)?;
                        listed.contains(&name).then_some(()).ok_or_else(|| missing(&name))?;
                    }
                }
                Ok(begun.elapsed())
            })
        })?);
        figures.extend(alternate(alone, TOLD, |_| {
            client.ask("subscribe", json!({ "channel": changeset }))?;
            let mut edit = large.edits();
            let took = timed(EDITS, || {
                let (name, content) = edit()?;
                let begun = Instant::now();
                // The nonce contains the size of the new content.
                let told = client.find(format!("\"nonce\":\"{:x}-", content.len()).as_bytes())?;
                let took = begun.elapsed();
                memchr::memmem::find(&told, name.as_bytes()).map(|_| took).ok_or_else(|| missing(&name))
            });
            client.write(&unsubscribe(&changeset))?;
            took
        })?);
    }
    figures.extend(alternate(alone, MEANWHILE, |_| meanwhile(context, &plugins, &large.path))?);
    let small = Repository::new(&context.root, SMALL)?;
    let folder = Folder::new(&context.root, &plugins)?;
    let (_daemon, address) = context.ostler.start_serving(&folder, &small.path)?;
    let mut client = Ws::introduced(address, "bench")?;
    let mut made = 0;
    figures.extend(alternate(beside, TREE, |side| {
        timed(TREES, || {
            made += 1;
            match side {
                Side::Ostler => isolated(&mut client, &format!("tree-{made}"), &small.path),
                Side::Floor => worktree(&small.path, &format!("floor-{made}")),
            }
        })
    })?);
    Ok(figures)
}

/// Returns the median of several measurements, in milliseconds.
fn timed(times: usize, mut measure: impl FnMut() -> Result<Duration>) -> Result<Vec<f64>> {
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        took.push(measure()?.as_secs_f64() * 1000.0);
    }
    Ok(vec![percentile(&took, 0.5).ok_or_else(|| Failure::new("nothing was timed"))?])
}

fn missing(name: &str) -> Failure {
    Failure::new(format!("{name} is not among the changes"))
}

fn lists(state: &Value, name: &str) -> Result<()> {
    let files = state["files"].as_array().into_iter().flatten();
    let ends = |file: &Value| file["id"].as_str().is_some_and(|id| id.ends_with(name));
    files.into_iter().any(ends).then_some(()).ok_or_else(|| missing(name))
}

/// Returns the current changes, for a client that is not subscribed.
fn ask(client: &mut Ws, changeset: &str) -> Result<Value> {
    let mut told = client.ask("subscribe", json!({ "channel": changeset }))?;
    client.write(&unsubscribe(changeset))?;
    Ok(told["snapshot"]["state"].take())
}

fn unsubscribe(channel: &str) -> Vec<u8> {
    let frame = json!({ "jsonrpc": "2.0", "method": "unsubscribe", "params": { "channel": channel } });
    super::super::net::frames::text(&frame.to_string())
}

/// Creates a session and returns the URI of its uncommitted changes.
fn session(client: &mut Ws, id: &str, directory: &Path) -> Result<String> {
    let directories = [format!("file://{}", directory.display())];
    let params =
        json!({ "channel": format!("echo:/{id}"), "provider": "echo", "workingDirectories": directories });
    client.ask("createSession", params)?;
    Ok(format!("echo:/{id}/changeset/uncommitted"))
}

/// Repeats the request until the response comes from the file watcher.
fn warm(client: &mut Ws, changeset: &str) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < WARM {
        let asked = Instant::now();
        ask(client, changeset)?;
        if asked.elapsed() < Duration::from_millis(250) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Err(Failure::new("the changes never came from what is watched"))
}

/// Requests the changes from a new daemon, while another client creates sessions.
fn meanwhile(context: &Context, plugins: &[Value], directory: &Path) -> Result<Vec<f64>> {
    let folder = Folder::new(&context.root, plugins)?;
    let (_daemon, address) = context.ostler.start_serving(&folder, directory)?;
    let mut asking = Ws::introduced(address, "asking")?;
    let changeset = session(&mut asking, "large", directory)?;
    let mut other = Ws::introduced(address, "other")?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let begun = Instant::now();
            let outcome = ask(&mut asking, &changeset);
            done.store(true, Ordering::Release);
            outcome.map(|_| begun.elapsed())
        });
        let mut slowest = Duration::ZERO;
        let mut at = 0;
        while !done.load(Ordering::Acquire) || at == 0 {
            at += 1;
            let params = json!({ "channel": format!("echo:/{at:032x}"), "provider": "echo" });
            let begun = Instant::now();
            other.ask("createSession", params)?;
            slowest = slowest.max(begun.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        let first = asked.join().map_err(|_| Failure::new("the client that asked panicked"))??;
        Ok(vec![first.as_secs_f64() * 1000.0, slowest.as_secs_f64() * 1000.0])
    })
}

/// Creates a session in a working tree; removes both without timing.
fn isolated(client: &mut Ws, id: &str, directory: &Path) -> Result<Duration> {
    let channel = format!("echo:/{id}");
    let params = json!({ "channel": channel, "provider": "echo",
        "workingDirectories": [format!("file://{}", directory.display())],
        "config": { "isolation": "worktree", "branch": "main" } });
    let begun = Instant::now();
    client.ask("createSession", params)?;
    let took = begun.elapsed();
    client.ask("disposeSession", json!({ "channel": channel }))?;
    let place = trees(directory).join(id);
    let gone = Instant::now();
    while place.exists() {
        if gone.elapsed() > Duration::from_secs(30) {
            return Err(Failure::new(format!("{} was not removed", place.display())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(took)
}

/// Creates a working tree with git only.
fn worktree(directory: &Path, name: &str) -> Result<Duration> {
    let place = trees(directory).join(name);
    let place = place.to_str().ok_or_else(|| Failure::new("the folder has no plain name"))?;
    let begun = Instant::now();
    git(directory, &["worktree", "add", "--quiet", "--no-track", "-b", name, place, "main"])?;
    let took = begun.elapsed();
    git(directory, &["worktree", "remove", place])?;
    Ok(took)
}

fn trees(directory: &Path) -> PathBuf {
    directory.with_file_name("repo.worktrees")
}

/// A repository in a temporary folder.
struct Repository {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Repository {
    /// Creates a repository with this many folders and files in one commit.
    fn new(root: &Path, (folders, files): (usize, usize)) -> Result<Self> {
        let folder = folder_on_disk(root)?;
        let path = folder.path().canonicalize()?.join("repo");
        for at in 0..folders {
            let below = path.join(format!("folder-{at}"));
            fs::create_dir_all(&below).during(below.display())?;
            for file in 0..files {
                fs::write(below.join(format!("file-{file}.txt")), format!("{at} {file}\n"))?;
            }
        }
        git(&path, &["init", "--quiet", "--initial-branch=main"])?;
        // Git would start to pack in the background, which would distort the measurement.
        git(&path, &["config", "gc.auto", "0"])?;
        git(&path, &["add", "--all"])?;
        git(&path, &["commit", "--quiet", "--message=All"])?;
        Ok(Self { _folder: folder, path })
    }

    /// Edits one file after the other; returns the name and the new content of each.
    fn edits(&self) -> impl FnMut() -> Result<(String, String)> + '_ {
        let mut at = 0;
        move || {
            at += 1;
            let name = format!("folder-{}/file-{at}.txt", at * 7);
            // No two edits have the same size.
            let size =
                usize::try_from(std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() % 9_000))
                    .unwrap_or_default();
            let content = format!("{}\n", "x".repeat(1_000 + size));
            fs::write(self.path.join(&name), &content)?;
            Ok((name, content))
        }
    }
}

/// Runs git without this machine's configuration; returns its output.
fn git(directory: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_OPTIONAL_LOCKS", "0");
    for (name, value) in [("NAME", "Bench"), ("EMAIL", "bench@example.com")] {
        command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
    }
    let ran = command.arg("-C").arg(directory).args(arguments).output().during("git")?;
    match ran.status.success() {
        true => Ok(String::from_utf8_lossy(&ran.stdout).into_owned()),
        false => Err(Failure::new(format!("git {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr)))),
    }
}
