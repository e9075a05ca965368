//! Calls while the vault or the records cannot be read: they are told to come again, not that they may not, or that there is no
//! endpoint.

use std::sync::Arc;

use ostler_ports::FileVault;
use ostler_testkit::wrapped_store::{Away, wrapped_records, wrapped_vault};

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
