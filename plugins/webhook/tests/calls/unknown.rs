//! Calls while the vault or the records cannot be read: they are told to come again, not that they may not, or that there is no
//! endpoint.

use std::sync::Arc;

use ostler_contract::json;
use ostler_contract::points::AutomationStore;
use ostler_ports::{FileVault, MemoryAutomations};
use ostler_testkit::wrapped_store::{Away, WrapCall, wrapped_collection, wrapped_records, wrapped_vault};

use crate::support::{SECRET, World, automation, builder, endpoint, folder, read, records, request};

#[tokio::test]
async fn a_call_is_answered_once_the_endpoint_and_its_secret_can_be_read() {
    let dir = folder();
    endpoint(dir.path(), "hook", "automation: true");
    endpoint(dir.path(), "signed", "automation: true\nverify: github");
    automation(dir.path(), "hook");
    let (vault_away, records_away) = (Away::default(), Away::default());
    let vault = Arc::new(FileVault::new(dir.path(), ostler_ports::Report::quiet()).unwrap()).into_point();
    let stores = builder(dir.path())
        .await
        .vault(wrapped_vault(&vault, &vault_away))
        .records(wrapped_records(&records(dir.path()), &records_away));
    let world = World::of(&dir, stores).await;
    let right = format!("Bearer {SECRET}");
    let call = async |endpoint: &str, header: (&str, &str)| {
        let response = world.send(request(endpoint, "{}", &[header])).await;
        let after = response.headers().get("retry-after").map(|after| after.to_str().unwrap().to_owned());
        let (code, body) = read(response).await;
        (code, after, body["message"].as_str().unwrap_or_default().to_owned())
    };
    let later = (503, Some("5".to_owned()), "The host cannot read this endpoint now; retry later".to_owned());
    for away in [&vault_away, &records_away] {
        away.set(true);
        assert_eq!(call("hook", ("authorization", &right)).await, later);
        away.set(false);
        assert_eq!(call("hook", ("authorization", &right)).await.0, 202);
    }
    vault_away.set(true);
    // Whether the signature is right is not known.
    assert_eq!(call("signed", ("x-hub-signature-256", &format!("sha256={}", "0".repeat(64)))).await, later);
    assert_eq!(call("hook", ("x-nothing", "")).await.0, 401, "no secret would let it in");
    world.host.log.wait_for("host:hook could not be read: the store is away").await;
    vault_away.set(false);
    assert_eq!(call("hook", ("authorization", "Bearer wrong")).await.0, 401);
    assert_eq!(world.runs("hook").await, 2);
}

/// Whether a delivery is repeated, and which thread a message belongs to, is not known while the records cannot be read: nothing
/// runs, and the sender sends it again.
#[tokio::test]
async fn a_call_has_no_effect_while_what_it_depends_on_cannot_be_read() {
    let later = "The host cannot read this endpoint now; retry later";
    let unstored = "The host cannot store this call now; retry later";
    for (collection, fields, body, message) in [
        ("webhook-repeats", "automation: true\ndedupe: X-Delivery", "{}", later),
        ("webhook-threads", "bot: bot://helper\nreply: none", r#"{"thread":"a","text":"hi"}"#, unstored),
    ] {
        let dir = folder();
        endpoint(dir.path(), "hook", fields);
        automation(dir.path(), "hook");
        let away = Away::default();
        let stores = builder(dir.path()).await;
        let world =
            World::of(&dir, stores.records(wrapped_collection(&records(dir.path()), collection, &away)))
                .await;
        let right = format!("Bearer {SECRET}");
        let headers =
            [("authorization", &*right), ("x-delivery", "d1"), ("content-type", "application/json")];
        away.set(true);
        for _ in 0..2 {
            let response = world.send(request("hook", body, &headers)).await;
            assert_eq!(response.headers()["retry-after"], "5", "{collection}");
            let (code, answer) = read(response).await;
            assert_eq!((code, answer["message"].as_str().unwrap()), (503, message), "{collection}");
        }
        world.host.log.wait_for("the store is away").await;
        away.set(false);
        for _ in 0..2 {
            assert_eq!(world.send(request("hook", body, &headers)).await.status(), 202, "{collection}");
        }
        match collection {
            "webhook-repeats" => assert_eq!(world.runs("hook").await, 1),
            _ => {
                let chat = world.chat(&world.chat_of("hook").await).await;
                assert_eq!(chat["turns"].as_array().unwrap().len(), 2, "{chat}");
            }
        }
    }
}

/// The log is stored later. It is not part of what the sender was told.
#[tokio::test]
async fn the_log_of_calls_is_stored_once_the_earlier_one_can_be_read() {
    let dir = folder();
    endpoint(dir.path(), "hook", "automation: true");
    automation(dir.path(), "hook");
    let world = World::start(&dir).await;
    assert_eq!(world.post("hook", "{}").await.0, 202);
    world.deliveries("hook", 1).await;
    world.host.host.close().await;
    drop(world);
    let away = Away::default();
    let stores = builder(dir.path()).await;
    let stores = stores.records(wrapped_collection(&records(dir.path()), "webhook-deliveries", &away));
    let world = World::of(&dir, stores).await;
    away.set(true);
    assert_eq!(world.post("hook", "{}").await.0, 202);
    world.host.log.wait_for("cannot store the log of calls: the store is away").await;
    away.set(false);
    assert_eq!(world.post("hook", "{}").await.0, 202);
    assert_eq!(world.deliveries("hook", 3).await.len(), 3, "the row of the earlier start is still there");
}

/// That no automation waits for a call is known only if the automation of its name can be read.
#[tokio::test]
async fn a_call_that_no_automation_hears_says_what_could_not_be_read() {
    let dir = folder();
    endpoint(dir.path(), "hook", "automation: true");
    let away = Away::default();
    let automations = MemoryAutomations::new(ostler_ports::Report::quiet()).unwrap();
    let automations = Arc::new(automations).into_point();
    let automations = AutomationStore { get: away.wrap(&automations.get, false), ..automations };
    let world = World::of(&dir, builder(dir.path()).await.automations(automations)).await;
    away.set(true);
    assert_eq!(world.post("hook", "{}").await.0, 202);
    let row = world.deliveries("hook", 1).await.remove(0);
    assert_eq!(row["unstarted"], json!(["automation hook: it cannot be read: the store is away"]));
}
