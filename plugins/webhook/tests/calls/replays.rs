//! Deliveries replayed, where an endpoint keeps bodies.

use std::path::Path;

use crate::support::{SECRET, World, automation, endpoint, folder, write};
use ostler_contract::{Value, json};

const KEY: &str = "0123456789abcdef-a-key";
const HUSH: &str = "hush-hush";

fn vault(dir: &Path, key: &str) {
    write(dir, "vault.json", &json!({ "host:hook": SECRET, "host:webhook-bodies": key }).to_string());
}

async fn replay(world: &World, delivery: &Value) -> Result<Value, Value> {
    world.client().await.request("x-webhook/replay", json!({ "delivery": delivery })).await
}

/// Everything in a folder, as text.
fn all_text(dir: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => text.push_str(&all_text(&path)),
            false => text.push_str(&String::from_utf8_lossy(&std::fs::read(path).unwrap())),
        }
    }
    text
}

#[tokio::test]
async fn a_delivery_is_delivered_again() {
    let dir = folder();
    vault(dir.path(), KEY);
    endpoint(
        dir.path(),
        "fire",
        "automation: true\nkeepBodies: 7d\ndedupe: X-Delivery\nlimit: { calls: 1, per: 1h }\nwhen: headers[\"x-kind\"] == \"a\"",
    );
    endpoint(
        dir.path(),
        "talk",
        "bot: bot://echo\nreply: sync\nkeepBodies: { for: 1h, key: host:webhook-bodies }",
    );
    automation(dir.path(), "fire");
    let world = World::start(&dir).await;
    let bearer = format!("Bearer {SECRET}");
    let headers = [("authorization", &*bearer), ("x-delivery", "1"), ("x-kind", "a"), ("x-api-token", HUSH)];
    let body = json!({ "what": HUSH }).to_string();
    assert_eq!(world.post_with("fire", body, &headers).await.0, 202);
    assert_eq!(world.say("talk", "t", "hello").await.0, 200);

    let first = world.deliveries("fire", 1).await[0].clone();
    assert!(first["keptUntil"].is_string(), "{first}");
    let row = replay(&world, &first["id"]).await.unwrap();
    assert_eq!(
        (&row["status"], &row["endpoint"], &row["replays"]),
        (&json!(202), &json!("fire"), &first["id"])
    );
    assert_ne!(row["id"], first["id"]);
    assert_ne!(row["runs"][0], first["runs"][0], "a run of its own, whatever was sent before and how often");
    let event = |state: &Value| state["origin"]["event"]["what"].clone();
    assert_eq!(event(&world.chat(row["runs"][0].as_str().unwrap()).await), HUSH);
    assert_eq!(world.runs("fire").await, 2);
    let rows = world.deliveries("fire", 2).await;
    assert_eq!(rows[1]["replays"], first["id"], "it is in the log");

    let talked = world.deliveries("talk", 1).await[0].clone();
    let row = replay(&world, &talked["id"]).await.unwrap();
    assert_eq!((&row["status"], &row["thread"]), (&json!(200), &json!("t")));
    assert_eq!(world.chat(&world.chat_of("talk").await).await["turns"].as_array().unwrap().len(), 2);

    // The next start has them still, and nothing of a body can be read in its files.
    let text = all_text(&dir.path().join("webhook-bodies"));
    assert!(text.contains("sealed") && !text.contains(HUSH) && !text.contains(SECRET), "{text}");
    let world = world.again().await;
    assert_eq!(replay(&world, &first["id"]).await.unwrap()["status"], 202);
}

#[tokio::test]
async fn a_delivery_that_failed_can_be_replayed() {
    let dir = folder();
    vault(dir.path(), KEY);
    endpoint(dir.path(), "fire", "automation: true\nkeepBodies: 7d\nwhen: event.a");
    automation(dir.path(), "fire");
    let world = World::start(&dir).await;
    assert_eq!(world.post("fire", r#"{"a":1}"#).await.0, 500);
    let first = world.deliveries("fire", 1).await[0].clone();
    assert_eq!(replay(&world, &first["id"]).await.unwrap()["status"], 500);
    endpoint(dir.path(), "fire", "automation: true\nkeepBodies: 7d\nwhen: event.a == 1");
    let world = world.again().await;
    assert_eq!(replay(&world, &first["id"]).await.unwrap()["status"], 202);
    assert_eq!(world.runs("fire").await, 1);
}

#[tokio::test]
async fn what_cannot_be_replayed_is_said() {
    let dir = folder();
    vault(dir.path(), KEY);
    endpoint(dir.path(), "fire", "automation: true\nkeepBodies: 1s");
    endpoint(dir.path(), "long", "automation: true\nkeepBodies: 7d");
    endpoint(dir.path(), "none", "automation: true");
    let world = World::start(&dir).await;
    let message = async |world: &World, delivery: &Value| {
        replay(world, delivery).await.unwrap_err()["message"].as_str().unwrap().to_owned()
    };
    for id in ["fire", "long", "none"] {
        assert_eq!(world.post(id, "{}").await.0, 202);
    }
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(1024 * 1024));
    assert_eq!(
        world.post("long", large).await.0,
        202,
        "a body that is too large is no reason to refuse a call"
    );
    let none = world.deliveries("none", 1).await[0].clone();
    assert_eq!(none.get("keptUntil"), None);
    let stored_by = "endpoints with keepBodies store bodies of up to 1 MiB for as long as it says, the newest 50 of at most 16 MiB in total";
    let unknown = |id: &Value| format!("no body of delivery {} is stored; {stored_by}", id.as_str().unwrap());
    assert_eq!(message(&world, &none["id"]).await, unknown(&none["id"]));
    assert_eq!(message(&world, &json!("../x")).await, "delivery must be the id of a delivery");
    let rows = world.deliveries("long", 2).await;
    assert_eq!(rows[1].get("keptUntil"), None);
    world
        .host
        .log
        .wait_for("cannot store the body of a call with host:webhook-bodies: the body is larger")
        .await;

    // Bodies are stored for a second of the real clock, which is the shortest time that can be configured.
    tokio::time::sleep(std::time::Duration::from_millis(1050)).await;
    let fire = world.deliveries("fire", 1).await[0].clone();
    assert_eq!(message(&world, &fire["id"]).await, unknown(&fire["id"]), "too old");
    vault(dir.path(), "another-key-of-the-vault");
    let world = world.again().await;
    crate::support::until(async || (world.kept("webhook-bodies").await.len() == 1).then_some(())).await;
    let why = message(&world, &rows[0]["id"]).await;
    assert_eq!(why, "the stored body cannot be decrypted: its key is another one, or it is damaged");
    vault(dir.path(), "short");
    let world = world.again().await;
    assert_eq!(world.post("long", "{}").await.0, 202);
    world.host.log.wait_for("the key must have at least 16 bytes").await;
    endpoint(dir.path(), "long", "automation: true");
    let world = world.again().await;
    let why = message(&world, &rows[0]["id"]).await;
    let id = rows[0]["id"].as_str().unwrap();
    assert_eq!(why, format!("endpoint long of delivery {id} no longer has keepBodies"));
}

#[tokio::test]
async fn only_so_many_bodies_are_kept() {
    let dir = folder();
    vault(dir.path(), KEY);
    endpoint(dir.path(), "fire", "automation: true\nkeepBodies: 7d");
    let world = World::start(&dir).await;
    for _ in 0..53 {
        assert_eq!(world.post("fire", "{}").await.0, 202);
    }
    assert_eq!(world.kept("webhook-bodies").await.len(), 50);
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(1000 * 1024));
    for _ in 0..18 {
        assert_eq!(world.post("fire", large.clone()).await.0, 202);
    }
    assert_eq!(world.kept("webhook-bodies").await.len(), 16, "so many bytes");
}

#[tokio::test]
async fn bodies_and_their_list_agree_after_a_start_that_reads_no_listed_body() {
    let dir = folder();
    vault(dir.path(), KEY);
    endpoint(dir.path(), "fire", "automation: true\nkeepBodies: 7d");
    let world = World::start(&dir).await;
    for _ in 0..4 {
        assert_eq!(world.post("fire", "{}").await.0, 202);
    }
    let rows = world.deliveries("fire", 4).await;
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    let file = |collection: &str, id: &str| dir.path().join(collection).join(format!("{id}.md"));
    let listed = async |world: &World, ids: &[&str]| {
        crate::support::until(async || {
            let kept = world.kept("webhook-kept").await;
            let rows = kept.first()?["bodies"].as_array()?.clone();
            let mut found: Vec<_> = rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
            let mut wanted = ids.to_vec();
            found.sort();
            wanted.sort_unstable();
            (found == wanted).then_some(())
        })
        .await;
    };
    // One body is lost, and one cannot be read.
    std::fs::remove_file(file("webhook-bodies", ids[0])).unwrap();
    std::fs::write(file("webhook-bodies", ids[1]), "---\nsealed: [\n---\n").unwrap();
    let world = world.again().await;
    listed(&world, &ids[1..]).await;
    assert!(!world.host.log.has("webhook-bodies"), "no body was read: {:?}", world.host.log.all());
    assert!(replay(&world, &json!(ids[1])).await.is_err());

    std::fs::remove_file(file("webhook-kept", "fire")).unwrap();
    let world = world.again().await;
    listed(&world, &ids[2..]).await;
    assert_eq!(replay(&world, &json!(ids[2])).await.unwrap()["status"], 202);
    assert!(file("webhook-bodies", ids[1]).exists(), "what cannot be read is left");
}
