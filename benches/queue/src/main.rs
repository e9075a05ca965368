//! A synthetic floor: a job queue on PostgreSQL, `graphile_worker`, whose jobs do nothing.
//!
//! `ostler-queue-floor <url> <schema> <jobs> <callers>` adds jobs, each committed before its caller adds the next one, works
//! on as many at the same time as there are callers, and prints `jobs per second: <n>` once none is left.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use graphile_worker::{IntoTaskHandlerResult, JobSpec, TaskHandler, Worker, WorkerContext, WorkerOptions};
use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;

/// The jobs of the warm-up, as a share of those that are timed.
const FIRST: usize = 10;
/// How often the queue is read for the end of the jobs.
const LOOK: Duration = Duration::from_millis(5);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A job with what a webhook call carries.
#[derive(Serialize, Deserialize)]
struct Job {
    number: usize,
    body: String,
}

impl TaskHandler for Job {
    const IDENTIFIER: &'static str = "nothing";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        Ok::<(), String>(())
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = match arguments.as_slice() {
        [url, schema, jobs, callers] => match (jobs.parse(), callers.parse()) {
            (Ok(jobs), Ok(callers)) => measure(url, schema, jobs, callers),
            _ => Err("<jobs> and <callers> are numbers".into()),
        },
        _ => Err("usage: ostler-queue-floor <url> <schema> <jobs> <callers>".into()),
    };
    let written = match &ended {
        Ok(rate) => writeln!(std::io::stdout(), "jobs per second: {rate}"),
        Err(why) => writeln!(std::io::stderr(), "{why}"),
    };
    if ended.is_ok() && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(url: &str, schema: &str, jobs: usize, callers: usize) -> Result<f64, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let worker = WorkerOptions::default()
            .database_url(url)
            .schema(schema)
            .concurrency(callers)
            .max_pg_conn(u32::try_from(callers)?)
            .define_job::<Job>()
            .init()
            .await?;
        let worker = Arc::new(worker);
        let working = worker.clone();
        let running = tokio::spawn(async move { working.run().await.map_err(|why| why.to_string()) });
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let is_left =
            client.prepare(&format!("SELECT EXISTS (SELECT 1 FROM {schema}._private_jobs)")).await?;
        let mut begun = Instant::now();
        for jobs in [jobs / FIRST, jobs] {
            // As for the other side: the server does this within a minute by itself.
            client.batch_execute("VACUUM ANALYZE").await?;
            begun = Instant::now();
            add(&worker, jobs, callers).await?;
            while client.query_one(&is_left, &[]).await?.get(0) {
                tokio::time::sleep(LOOK).await;
            }
        }
        let rate = jobs as f64 / begun.elapsed().as_secs_f64();
        worker.request_shutdown();
        running.await??;
        Ok(rate)
    })
}

/// Adds jobs, each of the callers one after the other.
async fn add(worker: &Arc<Worker>, jobs: usize, callers: usize) -> Result<(), Failure> {
    let next = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let (worker, next) = (worker.clone(), next.clone());
            tokio::spawn(async move {
                let utils = worker.create_utils();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= jobs {
                        return Ok::<(), String>(());
                    }
                    let job = Job { number, body: "x".repeat(200) };
                    utils.add_job(job, JobSpec::default()).await.map_err(|why| why.to_string())?;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(())
}
