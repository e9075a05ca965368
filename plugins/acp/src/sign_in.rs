//! Sign-in to an agent with a page that the user opens: each request returns the next step, and identifies the sign-in
//! that continues.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_contract::{Value, json};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::agent::Running;
use crate::agent_connection::Incoming;
use crate::errors::words;
use crate::protocol::member;

/// The limit of a sign-in.
const LIMIT: Duration = Duration::from_secs(600);
/// The maximum number of sign-ins that wait for their next request. One more abandons the oldest.
const WAITING: usize = 16;
/// The maximum number of queued steps of a sign-in.
const STEPS: usize = 8;

/// The sign-ins between two requests.
#[derive(Debug, Default)]
pub struct SignIns {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    steps: BTreeMap<u64, mpsc::Receiver<Step>>,
}

/// A step of a sign-in.
#[derive(Debug)]
enum Step {
    /// The user has to open a page.
    Open { url: String, message: Option<String> },
    /// It is over.
    Ended(Result<Value, String>),
}

impl SignIns {
    /// Begins a sign-in with a method, on a task that closes the agent at its end. Returns the first step.
    ///
    /// # Errors
    /// Why the sign-in failed.
    pub async fn begin(
        &self,
        running: Running,
        incoming: mpsc::Receiver<Incoming>,
        agent: String,
        method: String,
    ) -> Result<Value, String> {
        let id = {
            let mut waiting = self.waiting.lock();
            waiting.last += 1;
            waiting.last
        };
        let (steps, next) = mpsc::channel(STEPS);
        tokio::spawn(async move {
            let outcome = authenticate(&running, incoming, &agent, &method, &steps).await;
            running.close().await;
            let _ = steps.send(Step::Ended(outcome)).await;
        });
        self.next(id, next).await
    }

    /// Returns the next step of a waiting sign-in.
    ///
    /// # Errors
    /// It is complete, or why the sign-in failed.
    pub async fn resume(&self, id: u64) -> Result<Value, String> {
        let next = self.waiting.lock().steps.remove(&id);
        let next = next.ok_or("this sign-in is over; begin again with: ostler agent login")?;
        self.next(id, next).await
    }

    async fn next(&self, id: u64, mut steps: mpsc::Receiver<Step>) -> Result<Value, String> {
        match steps.recv().await {
            Some(Step::Open { url, message }) => {
                let mut waiting = self.waiting.lock();
                waiting.steps.insert(id, steps);
                if waiting.steps.len() > WAITING {
                    waiting.steps.pop_first();
                }
                Ok(json!({ "state": "open", "url": url, "message": message, "signIn": id }))
            }
            Some(Step::Ended(outcome)) => outcome,
            None => Err("the sign-in ended without an answer".to_owned()),
        }
    }
}

async fn authenticate(
    running: &Running,
    mut incoming: mpsc::Receiver<Incoming>,
    agent: &str,
    method: &str,
    steps: &mpsc::Sender<Step>,
) -> Result<Value, String> {
    let asked = running.wire.request("authenticate", json!({ "methodId": method }));
    tokio::pin!(asked);
    let timeout = tokio::time::sleep(LIMIT);
    tokio::pin!(timeout);
    loop {
        tokio::select! {
            answer = &mut asked => {
                return answer
                    .map(|_| json!({ "state": "signedIn", "method": method }))
                    .map_err(|why| format!("{agent}: {}", words(&why)));
            }
            Some(message) = incoming.recv() => take(running, message, steps),
            () = steps.closed() => return Err(format!("{agent}: the sign-in was abandoned")),
            () = &mut timeout => {
                return Err(format!("{agent}: no sign-in within {} seconds", LIMIT.as_secs()));
            }
        }
    }
}

fn take(running: &Running, message: Incoming, steps: &mpsc::Sender<Step>) {
    let Incoming::Request(request) = message else { return };
    let url = member::<String>(&request.params, "url").filter(|_| request.method == "elicitation/create");
    let Some(url) = url else {
        return request.decline("not available outside a session");
    };
    let message = member::<String>(&request.params, "message").map(|text| running.masked(&text));
    let step = Step::Open { url, message };
    match steps.try_send(step) {
        Ok(()) => request.answer(Ok(json!({ "action": "accept" }))),
        Err(_) => request.answer(Ok(json!({ "action": "cancel" }))),
    }
}
