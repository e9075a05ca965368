//! Senders that sign: payloads and headers as they send them. GitHub's signatures hold at any time; the others
//! are of their moment, so what was recorded is refused as old and the same call signed now is taken.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{World, automation, endpoint, folder, write};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::{Value, json};
use ostler_plugin_webhook::tools::EndpointFacts;
use ring::hmac;

const GITHUB: &str = "It's a Secret to Everybody";
const SLACK: &str = "8f742231b10e8888abcd99yyyzzz85a5";
const STRIPE: &str = "webhook_secret";
const STANDARD_KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A recorded call.
struct Recorded {
    headers: Vec<(&'static str, String)>,
    body: &'static [u8],
}

macro_rules! recorded {
    ($name:literal, $kind:literal) => {
        Recorded {
            headers: include_str!(concat!("../senders/", $name, ".headers"))
                .lines()
                .map(|line| line.split_once(": ").expect("a header"))
                .map(|(name, value)| (name, value.to_owned()))
                .collect(),
            body: include_bytes!(concat!("../senders/", $name, ".", $kind)),
        }
    };
}

impl Recorded {
    /// The same with another value of a header.
    fn with(mut self, name: &str, value: String) -> Self {
        let header = self.headers.iter_mut().find(|(held, _)| *held == name).expect("the header");
        header.1 = value;
        self
    }

    async fn send(&self, world: &World, endpoint: &str) -> (u16, Value) {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        world.post_with(endpoint, bytes::Bytes::from_static(self.body), &headers).await
    }
}

fn sign(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &parts.concat()).as_ref().to_vec()
}

fn now() -> String {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string()
}

async fn world() -> World {
    let dir = folder();
    let vault = json!({ "host:github": GITHUB, "host:slack": SLACK, "host:stripe": STRIPE, "host:standard": STANDARD_KEY });
    write(dir.path(), "vault.json", &vault.to_string());
    for scheme in ["github", "slack", "stripe", "standard"] {
        endpoint(dir.path(), scheme, &format!("automation: true\nsecret: host:{scheme}\nverify: {scheme}"));
        automation(dir.path(), scheme);
    }
    endpoint(
        dir.path(),
        "review",
        "bot: bot://echo\nreply: sync\nsecret: host:github\nverify: github\ndedupe: X-GitHub-Delivery",
    );
    World::start(&dir).await
}

/// What the newest run of an endpoint's automation was started with.
async fn event_of(world: &World, endpoint: &str) -> Value {
    let state = world.chat("ahp-automations://").await;
    let entries = state["entries"].as_array().unwrap().clone();
    let entry = entries.iter().find(|entry| entry["resource"].as_str().unwrap().ends_with(endpoint)).unwrap();
    entry["runs"][0]["origin"]["event"].clone()
}

#[tokio::test]
async fn github() {
    let world = world().await;
    let accepted = (202, json!({ "endpoint": "github" }));
    assert_eq!(recorded!("github-ping", "json").send(&world, "github").await, accepted);
    assert_eq!(world.runs("github").await, 0, "a ping only says that the hook was made");
    assert_eq!(recorded!("github-push", "json").send(&world, "github").await, accepted);
    let event = event_of(&world, "github").await;
    assert_eq!((&event["ref"], &event["pusher"]["name"]), (&json!("refs/heads/main"), &json!("ada")));
    assert_eq!(recorded!("github-pull-request", "json").send(&world, "github").await, accepted);
    assert_eq!(world.runs("github").await, 2);

    let forged =
        recorded!("github-push", "json").with("X-Hub-Signature-256", format!("sha256={}", "0".repeat(64)));
    let refusal = json!({ "message": "The sender's signature does not match the endpoint's secret" });
    assert_eq!(forged.send(&world, "github").await, (401, refusal));
    let of_another = recorded!("github-push", "json");
    assert_eq!(of_another.send(&world, "slack").await.0, 401, "another sender's signature says nothing");
    let bearer = world.post_with("github", "{}", &[("authorization", &format!("Bearer {GITHUB}"))]).await;
    assert_eq!(bearer.0, 401, "the signature stands in for the bearer");
    assert_eq!(world.runs("github").await, 2);

    let (status, body) = recorded!("github-pull-request", "json").send(&world, "review?thread=pulls").await;
    assert_eq!((status, &body["thread"]), (200, &json!("pulls")));
    let said: Value = serde_json::from_str(body["text"].as_str().unwrap()).unwrap();
    assert_eq!(said["pull_request"]["title"], "Mend the door", "the bot is told the whole body");
    let again = recorded!("github-pull-request", "json").send(&world, "review?thread=pulls").await;
    assert_eq!(again, (status, body), "and once, however often it is delivered");
}

#[tokio::test]
async fn stripe() {
    let world = world().await;
    let old = json!({ "message": "The sender's signature has expired" });
    assert_eq!(recorded!("stripe-invoice-item", "json").send(&world, "stripe").await, (401, old));
    let recorded = recorded!("stripe-invoice-item", "json");
    let (time, body) = (now(), recorded.body);
    let signature = hex::encode(sign(STRIPE.as_bytes(), &[time.as_bytes(), b".", body]));
    let fresh = recorded.with("Stripe-Signature", format!("t={time},v1={signature},v0={}", "0".repeat(64)));
    assert_eq!(fresh.send(&world, "stripe").await, (202, json!({ "endpoint": "stripe" })));
    let event = event_of(&world, "stripe").await;
    assert_eq!(
        (&event["type"], &event["data"]["object"]["id"]),
        (&json!("invoiceitem.created"), &json!("ii_123"))
    );
    let moved =
        fresh.with("Stripe-Signature", format!("t={},v1={signature}", time.parse::<u64>().unwrap() - 1));
    assert_eq!(moved.send(&world, "stripe").await.0, 401, "the time is signed too");
    assert_eq!(world.runs("stripe").await, 1);
}

#[tokio::test]
async fn slack() {
    let world = world().await;
    assert_eq!(recorded!("slack-command", "form").send(&world, "slack").await.0, 401);
    let time = now();
    let signed = |recorded: Recorded| {
        let signature = hex::encode(sign(SLACK.as_bytes(), &[b"v0:", time.as_bytes(), b":", recorded.body]));
        recorded
            .with("X-Slack-Request-Timestamp", time.clone())
            .with("X-Slack-Signature", format!("v0={signature}"))
    };
    let challenge = signed(recorded!("slack-challenge", "json")).send(&world, "slack").await;
    let expected = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P";
    assert_eq!(challenge, (200, json!({ "challenge": expected })));
    assert_eq!(
        recorded!("slack-challenge", "json").send(&world, "slack").await.0,
        401,
        "signed, like any call"
    );
    assert_eq!(world.runs("slack").await, 0);
    assert_eq!(signed(recorded!("slack-command", "form")).send(&world, "slack").await.0, 200);
    let event = event_of(&world, "slack").await;
    assert_eq!((&event["command"], &event["user_name"]), (&json!("/webhook-collect"), &json!("roadrunner")));
    assert_eq!(signed(recorded!("slack-event", "json")).send(&world, "slack").await.0, 200);
    let event = event_of(&world, "slack").await;
    assert_eq!(event["event_id"], "Ev08MFMKH6");
    assert_eq!(event["event"]["type"], "app_mention", "a field of the body is the body's");
    assert_eq!(event["endpoint"], "slack");
    assert_eq!(world.runs("slack").await, 2);
}

#[tokio::test]
async fn standard_webhooks() {
    let world = world().await;
    let recorded = recorded!("standard-test", "json");
    assert_eq!(recorded.send(&world, "standard").await.0, 401);
    let (time, body) = (now(), recorded.body);
    let key = STANDARD.decode(&STANDARD_KEY[6..]).unwrap();
    let signed = sign(&key, &[b"msg_p5jXN8AQM9LWM0D4loKWxJek.", time.as_bytes(), b".", body]);
    let fresh = recorded
        .with("webhook-timestamp", time)
        .with("webhook-signature", format!("v1,AAAA v1,{}", STANDARD.encode(signed)));
    assert_eq!(fresh.send(&world, "standard").await, (202, json!({ "endpoint": "standard" })));
    let renamed = fresh.with("webhook-id", "msg_other".to_owned());
    assert_eq!(renamed.send(&world, "standard").await.0, 401, "the id is signed too");
    assert_eq!(world.runs("standard").await, 1);
}

/// The commands that `webhook add` prints run in a shell.
#[test]
fn a_shell_decodes_each_form_of_a_secret() {
    let record = json!({ "id": "in", "automation": true, "secret": "host:in", "verify": "standard" });
    let facts = EndpointFacts::read(record.as_object().unwrap()).unwrap();
    let secrets =
        ["whsec_+/+/+/+/YQ==", "whsec_+/+/+/+/YQ", "whsec_-_-_-_-_YQ", "whsec_-_-_-_-_YQ==", "+/+/+/+/YQ=="];
    for secret in secrets {
        let script = format!("set -e; {} printf %s \"$K\"", facts.shell(secret).unwrap().before);
        let mut shell = std::process::Command::new("sh");
        let ran = shell.args(["-c", &script]).env("SECRET", secret).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "fbffbffbffbf61", "{secret}: {ran:?}");
    }
}
