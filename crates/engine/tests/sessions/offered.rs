//! What backends offer, which some know once one of their conversations has begun.

use std::time::Duration;

use ostler_contract::points::{Agent, Emit, Offered, OfferedModel};
use ostler_contract::{Call, JsonObject, Plugin, Value, json};
use ostler_ports::StateDb;
use ostler_testkit::{MemoryHost, Stage};

use super::world::{SESSION, World, connected, host, store_of};

fn models(state: &Value) -> Vec<String> {
    let models = state["agents"][0]["models"].as_array().cloned().unwrap_or_default();
    models.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn models_that_a_backend_announces_late_reach_clients() {
    let stage = Stage::default().with_plain_chats().naming_conversations();
    stage.offer_models(&["default"]);
    let store = store_of(StateDb::memory().unwrap());
    let host = host(&stage, &store).await;
    let mut client = connected(&host).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(models(&root["snapshot"]["state"]), ["default"]);
    stage.offer_models(&["small", "large"]);
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let changed = client.actions_until("root/agentsChanged").await.pop().unwrap();
    assert_eq!(models(&changed["action"]), ["small", "large"], "its conversation has begun");
    let mut world = World::of(stage, store, host, client);
    world.watch().await;
    world.begin("t1").await;
    world.end("t1").await;
    // In the middle of a conversation, with a setting that was not there before.
    world.stage.offer_models(&["small", "large", "huge"]);
    let later = json!({ "type": "session/configChanged", "config": { "model": "huge" } });
    world.stage.emit(world.own_backend(), Emit::Session, later);
    let changed = world.client.actions_until("root/agentsChanged").await.pop().unwrap();
    assert_eq!(models(&changed["action"]), ["small", "large", "huge"]);
}

/// A backend that answers at once is listed with its models before a slow one has answered, whose answer changes nothing else.
#[tokio::test(start_paused = true)]
async fn a_slow_backend_delays_only_its_own_description() {
    let offering = |provider: &'static str, pause: Duration| {
        Plugin::new(provider, move |host, _| {
            Box::pin(async move {
                host.register_agent(Agent {
                    provider: provider.into(),
                    display_name: provider.into(),
                    schema: Call::now(|()| Ok(json!({}))),
                    defaults: Call::now(|()| Ok(JsonObject::new())),
                    create: Call::new(|_| std::future::pending()),
                    probe: Some(Call::new(move |()| async move {
                        tokio::time::sleep(pause).await;
                        let model = OfferedModel { id: provider.to_owned(), ..OfferedModel::default() };
                        Ok(Offered { models: vec![model], ..Offered::default() })
                    })),
                    ..Agent::default()
                })
            })
        })
    };
    let host = MemoryHost::builder()
        .plugin(offering("quick", Duration::from_secs(1)), json!({}))
        .plugin(offering("slow", Duration::from_secs(60)), json!({}))
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    let mut listed = async |after: u64| {
        tokio::time::sleep(Duration::from_secs(after)).await;
        let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
        let agents = root["snapshot"]["state"]["agents"].as_array().unwrap().clone();
        agents.iter().map(|agent| models(&json!({ "agents": [agent] })).len()).collect::<Vec<_>>()
    };
    assert_eq!(listed(5).await, [1, 0]);
    assert_eq!(listed(60).await, [1, 1]);
}

/// A backend may report settings that it never declares, as often as it likes.
#[tokio::test(start_paused = true)]
async fn undeclared_settings_are_read_once_for_many_reports() {
    let stage = Stage::default().with_plain_chats().naming_conversations();
    let store = store_of(StateDb::memory().unwrap());
    let host = host(&stage, &store).await;
    let mut client = connected(&host).await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let mut world = World::of(stage, store, host, client);
    world.watch().await;
    world.begin("t1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.stage.probes();
    let backend = world.own_backend();
    for value in 0..50 {
        let report = json!({ "type": "session/configChanged", "config": { "never": value.to_string() } });
        world.stage.emit(backend, Emit::Session, report);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let probes = world.stage.probes() - before;
    assert!((1..=2).contains(&probes), "{probes}");
}
