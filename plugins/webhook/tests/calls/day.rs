//! A day of each sender: deliveries that are repeated as the sender repeats them, to a host that is killed, slow or full, whose secret
//! is changed, or whose answer is lost. What was acknowledged runs once, no answer is later than the sender waits, and what cannot
//! be stored is answered with 503.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::{JsonObject, Value, json};
use ostler_plugin_webhook::tools::{EndpointFacts, Outgoing, SenderFacts, senders};
use ostler_ports::{FileAutomations, FileVault, SqliteSessions, StateDb};
use ostler_testkit::MemoryHost;
use ostler_testkit::wrapped_store::{wrapped_automations, wrapped_records, wrapped_store, wrapped_vault};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::support::{World, automation, endpoint, folder, read, records, request, write};
use crate::unstored_turns::{Fault, Faults};

/// The senders whose deliveries have no id: a call that is repeated because its answer was lost starts another run.
const WITHOUT_ID: [&str; 12] = [
    "meta",
    "dropbox",
    "x",
    "zoom",
    "grafana",
    "calendly",
    "hubspot",
    "netlify",
    "sendgrid",
    "microsoft-graph",
    "basic",
    "hmac",
];

/// What happens while a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happens {
    Nothing,
    /// The answer does not reach the sender.
    AnswerIsLost,
    /// Nothing can be written.
    Full,
    /// What is written takes longer than any sender waits.
    Slow,
    /// The sender has another secret.
    SecretChanges,
    /// The host is killed while it handles the call.
    Killed,
}

use Happens::{AnswerIsLost, Full, Killed, Nothing, SecretChanges, Slow};

/// In an order in which a call that is not stored comes after one that may be.
const ALL: [Happens; 6] = [AnswerIsLost, Full, Slow, SecretChanges, Killed, Nothing];

/// The keys of a sender.
struct Keys {
    secret: String,
    ed25519: Ed25519KeyPair,
    ecdsa: EcdsaKeyPair,
}

impl Keys {
    fn new(seed: u8) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        Self {
            secret: format!("whsec_{}", STANDARD.encode([seed; 6])),
            ed25519: Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap(),
            ecdsa: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random)
                .unwrap(),
        }
    }

    /// The value in the vault.
    fn stored(&self, sender: &str) -> String {
        match sender {
            "discord" => hex::encode(self.ed25519.public_key()),
            "sendgrid" => {
                // The head of a public key of this curve.
                let head = hex::decode("3059301306072a8648ce3d020106082a8648ce3d030107034200").unwrap();
                STANDARD.encode([&head, self.ecdsa.public_key().as_ref()].concat())
            }
            _ => self.secret.clone(),
        }
    }

    fn call(&self, facts: &EndpointFacts, id: &str, at: u64, body: String) -> Outgoing {
        let signed = format!("{at}{body}");
        let headers = match facts.verify() {
            Some("discord") => [
                ("X-Signature-Ed25519", hex::encode(self.ed25519.sign(signed.as_bytes()))),
                ("X-Signature-Timestamp", at.to_string()),
            ],
            Some("sendgrid") => {
                let signature = self.ecdsa.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
                [
                    ("X-Twilio-Email-Event-Webhook-Signature", STANDARD.encode(signature)),
                    ("X-Twilio-Email-Event-Webhook-Timestamp", at.to_string()),
                ]
            }
            _ => return facts.call(&self.secret, id, at, body).unwrap(),
        };
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Outgoing { headers, body, ..Outgoing::default() }
    }
}

/// A delivery of a sender.
struct Delivery {
    sender: SenderFacts,
    facts: EndpointFacts,
    id: String,
    /// What happens while it is sent, first and again.
    tries: Vec<Happens>,
    /// Whether the sender has seen that it was accepted.
    is_acknowledged: bool,
    /// Whether a call can have started a run.
    may_run: bool,
}

impl Delivery {
    fn new(sender: SenderFacts, number: usize) -> Self {
        // Where a sender does not say when, it repeats a few times.
        let repeats = sender.pauses.map_or(3, <[u64]>::len).min(ALL.len());
        let mut tries: Vec<_> = (0..=repeats).map(|at| ALL[(number + at) % ALL.len()]).collect();
        if repeats > 0 {
            // Its last call comes through.
            tries[repeats] = Nothing;
        }
        let record = format!(
            "id: {0}\nautomation: true\nsecret: host:{0}\ndedupe: true\nverify: {1}",
            sender.name, sender.example
        );
        let record = match WITHOUT_ID.contains(&sender.name) {
            true => record.replace("dedupe: true\n", ""),
            false => record,
        };
        let record = ostler_ports::yaml::parse(&record).unwrap();
        Self {
            facts: EndpointFacts::read(record.as_object().unwrap()).unwrap(),
            id: format!("{number}{}", sender.name.len()),
            sender,
            tries,
            is_acknowledged: false,
            may_run: false,
        }
    }

    fn call(&self, keys: &Keys, at: usize) -> Outgoing {
        // Linear and Mailgun sign a repeated call as the first one, with its time.
        let since = match self.sender.name {
            "linear" | "mailgun" => self.sender.pauses.unwrap()[..at].iter().sum(),
            _ => 0,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - since;
        // The id is where one of the senders has it.
        let id = &self.id;
        let body = json!({
            "what": id, "try": at, "id": id, "event_id": id, "update_id": id.parse::<u64>().unwrap(), "event": { "id": id },
            "action": { "id": id }, "payload": { "id": id }, "event-data": { "id": id },
        });
        keys.call(&self.facts, id, now, body.to_string())
    }

    /// Posts it, and returns the status after the time that the sender waits.
    async fn post(&self, world: &World, call: Outgoing) -> u16 {
        let query = call.query.map(|query| format!("?{query}")).unwrap_or_default();
        let mut headers: Vec<_> =
            call.headers.iter().map(|(name, value)| (name.to_lowercase(), value.as_str())).collect();
        headers.push(("content-type".to_owned(), "application/json"));
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let begun = Instant::now();
        let path = format!("{}{query}", self.sender.name);
        let response = world.send(request(&path, call.body, &headers)).await;
        let took = begun.elapsed();
        let waits = Duration::from_secs(self.sender.waits.unwrap_or(u64::MAX));
        assert!(took <= waits, "{}: answers after {took:?}", self.sender.name);
        let status = response.status().as_u16();
        assert_eq!(status == 503, response.headers().contains_key("retry-after"), "{}", self.sender.name);
        drop(read(response).await);
        status
    }

    /// Makes the call of a try, and checks its answer.
    async fn deliver(&mut self, world: &World, keys: &(Keys, Keys), at: usize) {
        let happens = self.tries[at];
        let call = self.call(if happens == SecretChanges { &keys.1 } else { &keys.0 }, at);
        let status = self.post(world, call).await;
        let name = self.sender.name;
        let is_success = status == self.sender.success;
        match happens {
            SecretChanges => assert_eq!(status, 401, "{name}"),
            // What ran before is not stored again.
            Full => assert!(status == 503 || self.may_run && is_success, "{name}, full: {status}"),
            Slow => assert!(status == 503 || is_success, "{name}, slow: {status}"),
            Nothing | AnswerIsLost | Killed => assert!(is_success, "{name}, {happens:?} at {at}: {status}"),
        }
        self.may_run |= !matches!(happens, SecretChanges | Full);
        self.is_acknowledged |= is_success && happens != AnswerIsLost;
    }
}

/// What outlives a host.
struct Day {
    dir: Arc<TempDir>,
    db: Arc<StateDb>,
    faults: Faults,
}

impl Day {
    async fn host(&self) -> World {
        let quiet = ostler_ports::Report::quiet();
        let dir = self.dir.path();
        let automations = FileAutomations::open(dir, self.db.clone(), quiet.clone()).await.unwrap();
        let sessions = SqliteSessions::new(self.db.clone(), quiet.clone());
        let host = MemoryHost::builder()
            .plugin(ostler_plugin_echo::plugin(), json!({}))
            .plugin(ostler_plugin_bot::plugin(), json!({ "root": dir.join("root") }))
            .plugin(ostler_plugin_webhook::plugin(), json!({}))
            .options(|options| options.delta_window_ms = 0)
            .sessions(wrapped_store(&Arc::new(sessions).into_point(), &self.faults))
            .automations(wrapped_automations(&Arc::new(automations).into_point(), &self.faults))
            .records(wrapped_records(&records(dir), &self.faults))
            .vault(wrapped_vault(&Arc::new(FileVault::new(dir, quiet).unwrap()).into_point(), &self.faults));
        let world = World::with(&self.dir, host.start().await);
        world.listening().await;
        world
    }

    /// A host with its runtime, in which time is paused.
    fn start(&self) -> (Runtime, World) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let world = runtime.block_on(self.host());
        (runtime, world)
    }
}

/// The tries of each delivery that have a run.
async fn runs(world: &World) -> BTreeMap<(String, String), Vec<Value>> {
    let state = world.chat("ahp-automations://").await;
    let mut counts: BTreeMap<_, Vec<Value>> = BTreeMap::new();
    for entry in state["entries"].as_array().unwrap() {
        for run in entry["runs"].as_array().unwrap() {
            let event = &run["origin"]["event"];
            let text = |field: &str| event[field].as_str().unwrap().to_owned();
            counts.entry((text("endpoint"), text("what"))).or_default().push(event["try"].clone());
        }
    }
    counts
}

fn vault(dir: &std::path::Path, keys: &Keys) {
    let vault: JsonObject = senders()
        .map(|sender| (format!("host:{}", sender.name), Value::from(keys.stored(sender.name))))
        .collect();
    write(dir, "vault.json", &Value::Object(vault).to_string());
}

#[test]
fn what_a_sender_repeats_in_a_day_runs_once() {
    let keys = (Keys::new(7), Keys::new(8));
    let dir = folder();
    vault(dir.path(), &keys.0);
    let mut all: Vec<Delivery> = senders()
        .flat_map(|sender| (0..ALL.len()).map(move |number| Delivery::new(sender, number)))
        .collect();
    for SenderFacts { name, example, .. } in senders() {
        let dedupe = if WITHOUT_ID.contains(&name) { "" } else { "dedupe: true\n" };
        endpoint(
            dir.path(),
            name,
            &format!("automation: true\nsecret: host:{name}\n{dedupe}verify: {example}"),
        );
        automation(dir.path(), name);
    }
    let day = Day { db: StateDb::open(dir.path()).unwrap(), dir, faults: Faults::default() };
    let tries = all.iter().map(|delivery| delivery.tries.len()).max().unwrap();
    for at in 0..tries {
        let (runtime, world) = day.start();
        let world = Arc::new(world);
        for happens in ALL {
            let now: Vec<&mut Delivery> = all
                .iter_mut()
                .filter(|delivery| delivery.tries.get(at) == Some(&happens) && !delivery.is_acknowledged)
                .collect();
            runtime.block_on(async {
                match happens {
                    Killed => {}
                    Full => day.faults.set(Fault::Fails(Duration::ZERO)),
                    Slow => day.faults.set(Fault::IsLate(Duration::from_secs(200))),
                    Nothing | AnswerIsLost | SecretChanges => {}
                }
                if happens == Killed {
                    return;
                }
                for delivery in now {
                    delivery.deliver(&world, &keys, at).await;
                }
                day.faults.set(None);
                // Time is paused. What is late is written.
                tokio::time::sleep(Duration::from_secs(600)).await;
            });
        }
        for (number, delivery) in all.iter_mut().enumerate() {
            if delivery.tries.get(at) == Some(&Killed) && !delivery.is_acknowledged {
                delivery.may_run = true;
                let (world, call) = (world.clone(), delivery.call(&keys.0, at));
                let killed = Delivery::new(delivery.sender, 0);
                runtime.block_on(async move {
                    let calls = tokio::spawn(async move { killed.post(&world, call).await });
                    for _ in 0..number % 40 {
                        tokio::task::yield_now().await;
                    }
                    drop(calls);
                });
            }
        }
        drop(runtime);
        drop(world);
    }
    let (runtime, world) = day.start();
    runtime.block_on(async {
        let runs = runs(&world).await;
        for Delivery { sender, id, tries, is_acknowledged, may_run, .. } in &all {
            let what = format!("{}, {tries:?}", sender.name);
            let runs = runs.get(&(sender.name.to_owned(), id.clone())).map_or(&[][..], Vec::as_slice);
            assert_eq!(*is_acknowledged, tries.contains(&Nothing), "{what}");
            let least = usize::from(*is_acknowledged);
            let most = if WITHOUT_ID.contains(&sender.name) { tries.len() } else { usize::from(*may_run) };
            assert!((least..=most).contains(&runs.len()), "{what}: the tries that ran: {runs:?}");
        }
    });
}
