//! A host whose automations are kept in memory and whose sessions do what a test says, in paused time.

#![allow(dead_code)]

pub mod shared;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ostler_contract::points::{AutomationProgress, AutomationStore, Emit, KeptAutomation, RunPage};
use ostler_contract::{Call, JsonObject, Thrown, Value, json};
use ostler_engine::Principal;
use ostler_protocol::wire::state::{AutomationRunLifecycle, AutomationRunState};
use ostler_testkit::{Builder, MemoryHost, RawClient, Stage, builds};

/// Outlives a host, as files and a database do.
#[derive(Clone, Default)]
pub struct Kept {
    pub definitions: Arc<Mutex<BTreeMap<String, KeptAutomation>>>,
    pub runs: Arc<Mutex<Vec<AutomationRunState>>>,
    pub progress: Arc<Mutex<HashMap<String, AutomationProgress>>>,
    /// Runs are taken and never kept.
    pub stuck: Arc<AtomicBool>,
    /// The next run is kept at once, and the answer to that is given when this is.
    pub late: Arc<Mutex<Option<tokio::sync::oneshot::Receiver<()>>>>,
    /// How long a run takes to be kept.
    pub slow: Arc<Mutex<Option<std::time::Duration>>>,
    /// How many runs the store was told to keep.
    pub writes: Arc<AtomicUsize>,
    /// Automations that cannot be read, and are not listed.
    pub unreadable: Arc<Mutex<BTreeSet<String>>>,
    /// Whether automations cannot be listed.
    pub unlisted: Arc<AtomicBool>,
    /// Whether unfinished runs cannot be read.
    pub unfinished_fails: Arc<AtomicBool>,
}

impl Kept {
    /// An automation of a file: `more` over a minimal definition.
    pub fn put(&self, id: &str, more: Value) {
        self.put_of(id, None, more);
    }

    pub fn put_of(&self, id: &str, owner: Option<&str>, more: Value) {
        let mut definition = json!({
            "title": id, "enabled": true, "session": { "provider": "stage" }, "triggers": [],
            "message": { "text": "Go.", "origin": { "kind": "automation" } },
        });
        for (key, value) in more.as_object().unwrap() {
            definition[key] = value.clone();
        }
        let at = "2026-01-01T00:00:00.000Z".to_owned();
        let kept = KeptAutomation {
            id: id.to_owned(),
            definition: serde_json::from_value(definition).unwrap(),
            owner: owner.map(str::to_owned),
            created_at: at.clone(),
            modified_at: at,
        };
        self.definitions.lock().unwrap().insert(id.to_owned(), kept);
    }

    pub fn meta(&self, id: &str) -> Value {
        json!(self.definitions.lock().unwrap()[id].definition.meta)
    }

    pub fn enabled(&self, id: &str) -> bool {
        self.definitions.lock().unwrap()[id].definition.enabled
    }

    /// The runs of an automation, oldest first.
    pub fn runs_of(&self, id: &str) -> Vec<Value> {
        let of = ostler_protocol::uri::automation(id);
        let runs = self.runs.lock().unwrap();
        runs.iter().filter(|run| run.automation == of).map(|run| json!(run)).collect()
    }

    /// Stores a run.
    pub fn put_run(&self, state: AutomationRunState) {
        let mut runs = self.runs.lock().unwrap();
        match runs.iter_mut().find(|held| held.resource == state.resource) {
            Some(held) => *held = state,
            None => runs.push(state),
        }
    }

    pub fn store(&self) -> AutomationStore {
        let (list, get, create, update) = (self.clone(), self.clone(), self.clone(), self.clone());
        let (remove, run, run_of, runs, unfinished) =
            (self.clone(), self.clone(), self.clone(), self.clone(), self.clone());
        let (progress, keep) = (self.clone(), self.clone());
        AutomationStore {
            list: Call::now(move |()| {
                if list.unlisted.load(Ordering::SeqCst) {
                    return Err(Thrown::new("the disk is away"));
                }
                let unreadable = list.unreadable.lock().unwrap();
                let definitions = list.definitions.lock().unwrap();
                Ok(definitions.values().filter(|kept| !unreadable.contains(&kept.id)).cloned().collect())
            }),
            get: Call::now(move |(id,): (String,)| match get.unreadable.lock().unwrap().contains(&id) {
                true => Err(Thrown::new("line 3 is wrong")),
                false => Ok(get.definitions.lock().unwrap().get(&id).cloned()),
            }),
            triggers: Call::now(|()| Ok(vec![])),
            create: Call::now(move |(id, definition, owner): (String, _, Option<String>)| {
                create.put_of(&id, owner.as_deref(), json!({}));
                let mut kept = create.definitions.lock().unwrap();
                kept.get_mut(&id).unwrap().definition = definition;
                Ok(kept[&id].clone())
            }),
            update: Call::now(
                move |(id, patch): (String, ostler_protocol::wire::state::AutomationDefinitionPatch)| {
                    let mut kept = update.definitions.lock().unwrap();
                    let held = kept.get_mut(&id).unwrap();
                    let mut definition = json!(held.definition);
                    for (key, value) in json!(patch).as_object().unwrap() {
                        definition[key] = value.clone();
                    }
                    held.definition = serde_json::from_value(definition).unwrap();
                    Ok(held.clone())
                },
            ),
            remove: Call::now(move |(id,): (String,)| {
                remove
                    .runs
                    .lock()
                    .unwrap()
                    .retain(|run| run.automation != ostler_protocol::uri::automation(&id));
                Ok(remove.definitions.lock().unwrap().remove(&id).is_some())
            }),
            run: Call::new(move |(state,): (AutomationRunState,)| {
                let run = run.clone();
                run.writes.fetch_add(1, Ordering::SeqCst);
                async move {
                    let slow = *run.slow.lock().unwrap();
                    if let Some(slow) = slow {
                        // Tests that set it pause time.
                        tokio::time::sleep(slow).await;
                    }
                    if run.stuck.load(Ordering::SeqCst) {
                        return std::future::pending().await;
                    }
                    run.put_run(state);
                    let late = run.late.lock().unwrap().take();
                    if let Some(late) = late {
                        let _ = late.await;
                    }
                    Ok(())
                }
            }),
            run_of: Call::now(move |(uri,): (String,)| {
                Ok(run_of.runs.lock().unwrap().iter().find(|run| run.resource == uri).cloned())
            }),
            runs: Call::now(move |(id, _): (String, Option<String>)| {
                let of = ostler_protocol::uri::automation(&id);
                let runs = runs.runs.lock().unwrap();
                let runs = runs.iter().rev().filter(|run| run.automation == of).take(20).cloned().collect();
                Ok(RunPage { runs, next_cursor: None })
            }),
            find_runs: None,
            watch_removed_runs: None,
            watch: None,
            unfinished: Some(Call::now(move |()| {
                if unfinished.unfinished_fails.load(Ordering::SeqCst) {
                    return Err(Thrown::new("the disk is away"));
                }
                let open = |run: &&AutomationRunState| {
                    matches!(
                        run.lifecycle,
                        AutomationRunLifecycle::Pending(_) | AutomationRunLifecycle::Running(_)
                    )
                };
                Ok(unfinished.runs.lock().unwrap().iter().filter(open).cloned().collect())
            })),
            progress: Some(Call::now(move |(id,): (String,)| {
                Ok(progress.progress.lock().unwrap().get(&id).cloned())
            })),
            keep_progress: Some(Call::now(move |(id, progress): (String, AutomationProgress)| {
                keep.progress.lock().unwrap().insert(id, progress);
                Ok(())
            })),
            place: None,
            close: None,
        }
    }
}

/// A definition that waits for the build, with settings of this host's.
pub fn on_build(own: Value) -> Value {
    json!({
        "triggers": [{ "id": "t", "kind": "event", "type": "build", "title": "A build",
            "events": [{ "id": "done", "title": "Done" }] }],
        "message": { "text": "Build {{event.n}}, {{count}} so far.", "origin": { "kind": "automation" } },
        "_meta": { "ostler": own },
    })
}

pub struct Yard {
    pub host: MemoryHost,
    pub stage: Stage,
    pub kept: Kept,
    pub client: RawClient,
}

impl Yard {
    pub async fn new(kept: &Kept) -> Self {
        Self::with(kept, Stage::default(), |builder| builder).await
    }

    pub async fn with(kept: &Kept, stage: Stage, more: impl FnOnce(Builder) -> Builder) -> Self {
        let builder = MemoryHost::builder()
            .plugin(stage.plugin(), json!({}))
            .plugin(builds(), json!({}))
            .options(|options| options.delta_window_ms = 0)
            .automations(kept.store());
        let builder = more(builder);
        let host = builder.start().await;
        let mut client = host.raw_as(Principal::Root);
        client.initialize("c").await;
        settle().await;
        Self { host, stage, kept: kept.clone(), client }
    }

    /// Fires the build; answers the runs it came to.
    pub async fn fire(&self, n: u64) -> Vec<String> {
        let data: JsonObject = json!({ "n": n }).as_object().cloned().unwrap();
        let fired = self.host.plugin("builds").fire_trigger("build".into(), "done".into(), data).unwrap();
        let runs = fired.kept.call(()).await.unwrap();
        settle().await;
        runs
    }

    /// The turns backends were told to begin: id and text.
    pub fn begun(&self) -> Vec<(String, String)> {
        let begun = self.stage.told().into_iter().filter_map(|told| {
            let begun = told.get("begin")?.clone();
            Some((begun[0].as_str()?.to_owned(), begun[1].as_str()?.to_owned()))
        });
        begun.collect()
    }

    pub fn emit(&self, session: usize, action: Value) {
        self.stage.emit(session, Emit::Chat, action);
    }

    /// Ends the `turn`th turn, which runs in the `session`th session.
    pub async fn end(&self, session: usize, turn: usize) {
        let (id, _) = self.begun()[turn].clone();
        self.emit(session, json!({ "type": "chat/turnComplete", "turnId": id, "duration": 1 }));
        settle().await;
    }

    pub async fn entry(&mut self, id: &str) -> Value {
        let asked =
            self.client.request("subscribe", json!({ "channel": "ahp-automations://" })).await.unwrap();
        let of = ostler_protocol::uri::automation(id);
        let entries = asked["snapshot"]["state"]["entries"].as_array().unwrap();
        entries.iter().find(|entry| entry["resource"] == json!(of)).cloned().unwrap()
    }

    pub async fn press(&mut self, id: &str, request: &str) -> Result<Value, Value> {
        let of = ostler_protocol::uri::automation(id);
        let answer =
            self.client.request("runAutomation", json!({ "automation": of, "requestId": request })).await;
        settle().await;
        answer
    }

    /// Changes a definition as a client does; the sentence where it is refused.
    pub async fn update(&mut self, id: &str, changes: Value) -> Option<String> {
        let of = ostler_protocol::uri::automation(id);
        self.client.request("subscribe", json!({ "channel": "ahp-automations://" })).await.unwrap();
        self.client.ready_frames().await;
        let update = json!({ "type": "automation/updateRequested", "resource": of, "changes": changes });
        self.client.dispatch("ahp-automations://", 1, update).await;
        settle().await;
        let answered = self.client.next_action().await;
        answered["rejectionReason"].as_str().map(str::to_owned)
    }
}

/// Lets everything that can go on without time passing go on.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Lets time pass.
pub async fn pass(seconds: u64) {
    // Time is paused.
    tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
    settle().await;
}

pub fn statuses(runs: &[Value]) -> Vec<String> {
    runs.iter().map(|run| run["lifecycle"]["status"].as_str().unwrap().to_owned()).collect()
}
