//! Runs that webhook calls start, until they have ended, beside the jobs of a queue on the same server, which do nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::super::context::Context;
use super::super::super::failure::{During, Failure, Result};
use super::super::super::figure::Figure;
use super::super::super::net::http_load::{Until, load};
use super::super::super::postgres::Postgres;
use super::super::super::progress;
use super::super::super::rounds::{Bounds, Column, Side, alternate};
use super::hosts::{CONNECTIONS, Hosts, Runs};

/// Runs, and jobs.
const RUNS: u64 = 1000;
/// Runs of the warm-up.
const FIRST: u64 = 100;

const COLUMNS: &[Column] = &[("runs fired and ended, beside jobs of graphile_worker", "runs/s", None)];

pub fn measure(context: &Context, server: &Postgres) -> Result<Vec<Figure>> {
    let floor = build(&context.root);
    if let Err(why) = &floor {
        progress(format_args!("{why}; runs are measured alone"));
    }
    let bounds = Bounds { floor: floor.is_ok(), ..context.bounds(3, Duration::from_secs(45)) };
    let mut schemas = 0;
    alternate(bounds, COLUMNS, |side| match (side, &floor) {
        (Side::Floor, Ok(program)) => {
            schemas += 1;
            jobs(program, server, &format!("queue_{schemas}"))
        }
        _ => runs(context, server),
    })
}

fn runs(context: &Context, server: &Postgres) -> Result<Vec<f64>> {
    let hosts = Hosts::alone(context, server)?;
    let calls = hosts.calls(Runs::End);
    load(&calls, 202, Until::Answers(FIRST))?;
    hosts.until_runs_end(server)?;
    server.analyze()?;
    let begun = Instant::now();
    load(&calls, 202, Until::Answers(RUNS))?;
    hosts.until_runs_end(server)?;
    Ok(vec![RUNS as f64 / begun.elapsed().as_secs_f64()])
}

fn jobs(program: &Path, server: &Postgres, schema: &str) -> Result<Vec<f64>> {
    let ended = Command::new(program)
        .args([&server.url_with_password(), schema, &RUNS.to_string(), &CONNECTIONS.to_string()])
        .stdin(Stdio::null())
        .output()
        .during(program.display())?;
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    let rate = out.trim().strip_prefix("jobs per second: ").and_then(|rate| rate.parse().ok());
    Ok(vec![rate.ok_or_else(|| Failure::new(format!("the queue: {}{}", out.trim(), err.trim())))?])
}

/// Builds the program, which is a workspace of its own, and returns its path.
fn build(root: &Path) -> Result<PathBuf> {
    let target = root.join("target/bench-queue");
    let built = xtask::cargo::cargo()
        .args(["build", "--quiet", "--release", "--locked", "--manifest-path"])
        .arg(root.join("benches/queue/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .current_dir(root)
        .status()
        .during("cargo build")?;
    match built.success() {
        true => Ok(target.join("release/ostler-queue-floor")),
        false => Err(Failure::new("benches/queue does not build")),
    }
}
