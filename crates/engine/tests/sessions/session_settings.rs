//! Settings plugins contribute to sessions, where time, a backend's own schema and completions come in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler_contract::points::{Agent, AgentSession, Offered, OfferedCommand, SettingQuery};
use ostler_contract::{Call, JsonObject, Plugin, Value, json};
use ostler_testkit::{MemoryHost, RawClient};
use tokio::time::Instant;

fn object(value: Value) -> JsonObject {
    value.as_object().cloned().unwrap()
}

/// A session of a backend that does nothing.
fn quiet_session() -> AgentSession {
    AgentSession {
        begin: Call::now(|_| Ok(())),
        cancel: Call::now(|_| Ok(())),
        close: Call::now(|_| Ok(())),
        ..AgentSession::default()
    }
}

/// A backend with a setting `branch` of its own and commands.
fn backend() -> Plugin {
    Plugin::new("@test/backend", |host, _| {
        Box::pin(async move {
            host.register_agent(Agent {
                provider: "backend".into(),
                display_name: "Backend".into(),
                schema: Call::now(|()| Ok(json!({ "properties": { "branch": { "title": "The backend's" } } }))),
                defaults: Call::now(|()| Ok(JsonObject::new())),
                create: Call::now(|_| Ok(quiet_session())),
                probe: Some(Call::now(|()| {
                    let command = |name: &str, description: Option<&str>| OfferedCommand {
                        name: name.to_owned(),
                        description: description.map(str::to_owned),
                    };
                    let skills = json!([
                        { "type": "plugin", "id": "p", "uri": "https://inn.example/p", "name": "P", "children": [
                            { "type": "skill", "id": "s", "uri": "file:///s", "name": "shoe", "description": "Shoes a horse." },
                            { "type": "skill", "id": "h", "uri": "file:///h", "name": "hidden", "disableUserInvocation": true },
                            { "type": "skill", "id": "o", "uri": "file:///o", "name": "off", "enabled": false },
                            { "type": "prompt", "id": "q", "uri": "file:///q", "name": "water" },
                            { "type": "rule", "id": "r", "uri": "file:///r", "name": "rule" },
                        ] },
                        { "type": "directory", "id": "d", "uri": "file:///d", "name": "D", "enabled": false, "contents": "skill",
                          "writable": false, "children": [{ "type": "skill", "id": "t", "uri": "file:///t", "name": "there" }] },
                    ]);
                    Ok(Offered {
                        commands: vec![
                            command("wash", Some("Washes a horse.")),
                            command("/shoe", Some("The backend's own.")),
                            command("rewash", None),
                        ],
                        customizations: serde_json::from_value(skills).ok(),
                        ..Offered::default()
                    })
                })),
                ..Agent::default()
            })
        })
    })
}

/// A plugin with a picker of this key that hangs while its query is `never`.
fn pickers(keys: &'static [&'static str]) -> Plugin {
    Plugin::new("@test/pickers", move |host, _| {
        Box::pin(async move {
            for key in keys {
                let answerer = Call::new(move |(_,): (SettingQuery,)| async move {
                    match *key {
                        "never" => std::future::pending().await,
                        _ => Ok(Vec::new()),
                    }
                });
                host.register_session_config(
                    (*key).into(),
                    object(json!({ "type": "string" })),
                    Some(answerer),
                )?;
            }
            Ok(())
        })
    })
}

async fn client(host: &MemoryHost) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    client
}

#[tokio::test(start_paused = true)]
async fn a_picker_that_never_answers_is_not_waited_for() {
    let host = MemoryHost::builder()
        .plugin(backend(), json!({}))
        .plugin(pickers(&["never", "quick"]), json!({}))
        .start()
        .await;
    let mut client = client(&host).await;
    let begun = Instant::now();
    let resolved = client.request("resolveSessionConfig", json!({})).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    let properties = &resolved["schema"]["properties"];
    assert!(properties["never"].get("enum").is_none(), "{properties}");
    assert_eq!(properties["quick"]["enum"], json!([]));
    let completed = client.request("sessionConfigCompletions", json!({ "property": "never" })).await.unwrap();
    assert_eq!(completed, json!({ "items": [] }));
}

#[tokio::test]
async fn a_setting_a_backend_declares_is_the_backends() {
    let host = MemoryHost::builder()
        .plugin(backend(), json!({}))
        .plugin(pickers(&["branch", "else"]), json!({}))
        .start()
        .await;
    let mut client = client(&host).await;
    for _ in 0..2 {
        let resolved = client.request("resolveSessionConfig", json!({})).await.unwrap();
        let properties = &resolved["schema"]["properties"];
        assert_eq!(properties["branch"], json!({ "type": "string", "title": "The backend's" }));
        assert_eq!(properties["else"]["enumDynamic"], true);
    }
    let completed =
        client.request("sessionConfigCompletions", json!({ "property": "branch" })).await.unwrap();
    assert_eq!(completed, json!({ "items": [] }));
    let line = "plugin pickers registers session setting branch, which a backend's own schema already declares: backend";
    assert_eq!(host.log.all().iter().filter(|said| *said == line).count(), 1, "{:?}", host.log.all());
}

async fn names(client: &mut RawClient, channel: &str, text: &str) -> Vec<String> {
    let params = json!({ "channel": channel, "kind": "userMessage", "text": text, "offset": text.encode_utf16().count() });
    let completed = client.request("completions", params).await.unwrap();
    let items = completed["items"].as_array().unwrap();
    items.iter().map(|item| item["insertText"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_slash_is_completed_from_what_the_session_has_and_its_backend_offers() {
    let host = MemoryHost::builder().plugin(backend(), json!({})).start().await;
    let mut client = client(&host).await;
    client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let session = "backend:/1";
    client.request("createSession", json!({ "channel": session })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(session);
    // What is offered is asked for once the host is up.
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while names(&mut client, session, "/").await.is_empty() {
        assert!(std::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(names(&mut client, session, "/").await, ["/shoe ", "/water ", "/wash ", "/rewash "]);
    assert_eq!(names(&mut client, &chat, "/wa").await, ["/water ", "/wash ", "/rewash "]);
    let params = json!({ "channel": chat, "kind": "userMessage", "text": "  /SHo and more", "offset": 6 });
    let completed = client.request("completions", params).await.unwrap();
    assert_eq!(
        completed["items"],
        json!([{ "insertText": "/shoe ", "rangeStart": 2, "rangeEnd": 6, "attachment": { "type": "simple",
            "label": "/shoe", "displayKind": "command",
            "_meta": { "command": "shoe", "description": "Shoes a horse.", "isSkill": true } } }])
    );
    for (channel, text) in [
        (session, "/none"),
        (session, "wash"),
        (session, "to /wash"),
        ("backend:/2", "/"),
        ("ahp-root://", "/"),
    ] {
        assert!(names(&mut client, channel, text).await.is_empty(), "{channel} {text}");
    }
    let other = json!({ "channel": session, "kind": "mention", "text": "/", "offset": 1 });
    assert_eq!(client.request("completions", other).await.unwrap(), json!({ "items": [] }));
}

/// A backend that judges `hay` itself, has a `stall` that never changes, and counts the sessions it closed.
fn stable(closed: Arc<AtomicUsize>) -> Plugin {
    Plugin::new("@test/stable", move |host, _| {
        let closed = closed.clone();
        Box::pin(async move {
            let schema = json!({ "properties": {
                "hay": { "type": "number", "title": "Hay" },
                "stall": { "type": "string", "title": "Stall", "enum": ["north", "south"], "sessionMutable": false },
                "brand": { "title": "Says no type", "sessionMutable": false },
            } });
            host.register_agent(Agent {
                provider: "stable".into(),
                display_name: "Stable".into(),
                schema: Call::now(move |()| Ok(schema.clone())),
                defaults: Call::now(|()| Ok(object(json!({ "hay": 1 })))),
                create: Call::now(move |_| {
                    let closed = closed.clone();
                    Ok(AgentSession {
                        begin: Call::now(|_| Ok(())),
                        cancel: Call::now(|_| Ok(())),
                        set_config: Some(Call::now(|(_, value): (String, Value)| match value.as_u64() {
                            Some(_) => Ok(Value::Bool(true)),
                            None => Ok("hay has to be a whole number of bales".into()),
                        })),
                        close: Call::now(move |(removing,)| {
                            assert_eq!(removing, Some(true));
                            closed.fetch_add(1, Ordering::Relaxed);
                            Ok(())
                        }),
                        ..AgentSession::default()
                    })
                }),
                ..Agent::default()
            })
        })
    })
}

#[tokio::test]
async fn what_a_session_is_made_with_holds_to_the_same_as_what_it_is_changed_to() {
    let closed = Arc::new(AtomicUsize::new(0));
    let host = MemoryHost::builder()
        .plugin(stable(closed.clone()), json!({}))
        .plugin(pickers(&["color"]), json!({}))
        .start()
        .await;
    let mut client = client(&host).await;
    let asked = |config: Value| json!({ "channel": "stable:/1", "provider": "stable", "config": config });
    for (config, says) in [
        (json!({ "hay": 1.5 }), "hay has to be a whole number of bales"),
        (json!({ "hay": "much" }), r#"hay does not fit: "much" is not of type "number""#),
        (json!({ "hay": null }), r#"hay does not fit: null is not of type "number""#),
        (json!({ "stall": 1 }), r#"stall does not fit: 1 is not of type "string""#),
        (json!({ "stall": "west" }), r#"stall does not fit: "west" is not one of "north" or "south""#),
        (json!({ "color": 5 }), r#"color does not fit: 5 is not of type "string""#),
    ] {
        let refused = client.request("createSession", asked(config.clone())).await.unwrap_err();
        assert_eq!((&refused["code"], &refused["message"]), (&json!(-32602), &json!(says)), "{config}");
    }
    assert_eq!(closed.load(Ordering::Relaxed), 1, "what had begun is closed again");
    let config = json!({
        "hay": 3, "stall": "north", "brand": 7, "color": "grey", "isolation": "folder", "zz": 1, "other": { "host": true },
    });
    client.request("createSession", asked(config)).await.unwrap();
    let snapshot = client.request("subscribe", json!({ "channel": "stable:/1" })).await.unwrap();
    let values = &snapshot["snapshot"]["state"]["config"]["values"];
    assert_eq!(
        values,
        &json!({ "hay": 3, "brand": 7, "stall": "north", "color": "grey", "isolation": "folder" })
    );
    // A word of another host is the backend's default, and no choice; one that asks for less is shown to the user.
    for (id, stall, notes) in [("2", "interactive", 0), ("3", "plan", 1)] {
        let session = format!("stable:/{id}");
        let chat = ostler_protocol::uri::default_chat(&session);
        let mut config = asked(json!({ "stall": stall }));
        config["channel"] = session.as_str().into();
        client.request("createSession", config).await.unwrap();
        let snapshot = client.request("subscribe", json!({ "channel": session })).await.unwrap();
        assert_eq!(snapshot["snapshot"]["state"]["config"]["values"], json!({ "hay": 1 }));
        client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let begin = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "t" } });
        client.dispatch(&chat, 1, begin).await;
        client.actions_until("chat/turnStarted").await;
        let state = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let parts = state["snapshot"]["state"]["activeTurn"]["responseParts"].as_array().unwrap().clone();
        assert_eq!(parts.len(), notes, "{parts:?}");
        if let [note] = &parts[..] {
            assert_eq!(note["kind"], "systemNotification");
            assert!(
                note["content"].as_str().unwrap().contains("no Stall = plan, which was chosen"),
                "{note}"
            );
        }
    }
    assert!(
        host.log.has("stable:/3: stall has no value \"plan\"; the agent's own is used"),
        "{:?}",
        host.log.all()
    );
    let line = "stable:/1: zz is not a setting of this session (nor 1 more); left out";
    assert_eq!(host.log.all().iter().filter(|said| *said == line).count(), 1, "{:?}", host.log.all());
    // Later, in the same words.
    for (seq, config, says) in [
        (1, json!({ "hay": 1.5 }), "hay has to be a whole number of bales"),
        (2, json!({ "hay": "much" }), r#"hay does not fit: "much" is not of type "number""#),
        (3, json!({ "zz": 1 }), "zz is not a setting of this session"),
    ] {
        client.dispatch("stable:/1", seq, json!({ "type": "session/configChanged", "config": config })).await;
        let echo = client.actions_until("session/configChanged").await.pop().unwrap();
        assert_eq!(echo["rejectionReason"], says);
    }
}

/// A backend that declares its setting once a turn has begun, with these values.
fn late(values: JsonObject) -> Plugin {
    let begun = Arc::new(AtomicUsize::default());
    Plugin::new("@test/late", move |host, _| {
        let (begun, values) = (begun.clone(), values.clone());
        Box::pin(async move {
            let (begins, schemas, defaults) = (begun.clone(), begun.clone(), begun);
            host.register_agent(Agent {
                provider: "late".into(),
                display_name: "Late".into(),
                schema: Call::now(move |()| {
                    Ok(match schemas.load(Ordering::SeqCst) {
                        0 => json!({ "properties": {} }),
                        _ => json!({ "properties": { "mode": { "type": "string", "title": "Mode",
                            "enum": ["ask", "auto"], "sessionMutable": true } } }),
                    })
                }),
                defaults: Call::now(move |()| {
                    Ok(match defaults.load(Ordering::SeqCst) {
                        0 => JsonObject::new(),
                        _ => values.clone(),
                    })
                }),
                create: Call::now(move |_| {
                    let (begins, names) = (begins.clone(), begins.clone());
                    Ok(AgentSession {
                        begin: Call::now(move |_| {
                            begins.fetch_add(1, Ordering::SeqCst);
                            Ok(())
                        }),
                        agent_id: Some(Call::now(move |()| {
                            Ok((names.load(Ordering::SeqCst) > 0).then(|| "own".to_owned()))
                        })),
                        set_config: Some(Call::now(|_| Ok(Value::Bool(true)))),
                        cancel: Call::now(|_| Ok(())),
                        close: Call::now(|_| Ok(())),
                        ..AgentSession::default()
                    })
                }),
                ..Agent::default()
            })
        })
    })
}

#[tokio::test(start_paused = true)]
async fn settings_that_a_backend_declares_later_are_in_its_first_session() {
    // Clients subscribe again when they hear of settings, even of one without a value.
    for values in [json!({ "mode": "ask" }), json!({})] {
        let host = MemoryHost::builder().plugin(late(object(values.clone())), json!({})).start().await;
        let mut client = host.raw();
        client.initialize("c").await;
        let session = "late:/1";
        client.request("createSession", json!({ "channel": session })).await.unwrap();
        let seen = client.request("subscribe", json!({ "channel": session })).await.unwrap();
        assert_eq!(seen["snapshot"]["state"]["config"]["schema"]["properties"], json!({}));
        let chat = ostler_protocol::uri::default_chat(session);
        let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Hello" } });
        client.dispatch(&chat, 1, turn).await;
        let changed = client.actions_until("session/configChanged").await.pop().unwrap();
        assert_eq!(changed["action"]["config"], values);
        let seen = client.request("subscribe", json!({ "channel": session })).await.unwrap();
        let config = &seen["snapshot"]["state"]["config"];
        assert_eq!(config["schema"]["properties"]["mode"]["enum"], json!(["ask", "auto"]));
        // They can be changed.
        let set = json!({ "type": "session/configChanged", "config": { "mode": "auto" } });
        client.dispatch(session, 2, set).await;
        let changed = client.actions_until("session/configChanged").await.pop().unwrap();
        assert_eq!(
            (&changed["action"]["config"]["mode"], changed.get("rejectionReason")),
            (&json!("auto"), None)
        );
    }
}

/// The names of a schema's properties, as they arrive, with those of the property `nested` behind it.
fn order(schema: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for (name, property) in schema["properties"].as_object().unwrap() {
        names.push(name.clone());
        names.extend(
            property["properties"].as_object().into_iter().flatten().map(|(name, _)| format!(".{name}")),
        );
    }
    names
}

#[tokio::test]
async fn settings_come_in_the_order_of_their_declarations() {
    let own = ["zebra", "yak", "xerus", "nested", "wolf", "vole", "urial", "tapir"];
    let mut properties = JsonObject::new();
    for name in own {
        properties.insert(name.to_owned(), json!({ "type": "string", "title": name }));
    }
    let within = json!({ "stall": { "type": "string", "title": "1" }, "rope": { "type": "string", "title": "2" },
        "queue": { "type": "string", "title": "3" }, "pen": { "type": "string", "title": "4" } });
    properties["nested"] = json!({ "type": "object", "title": "nested", "properties": within });
    let plugin = || {
        let properties = properties.clone();
        Plugin::new("@test/ordered", move |host, _| {
            let schema = json!({ "properties": properties });
            Box::pin(async move {
                host.register_agent(Agent {
                    provider: "ordered".into(),
                    display_name: "Ordered".into(),
                    schema: Call::now(move |()| Ok(schema.clone())),
                    defaults: Call::now(|()| Ok(JsonObject::new())),
                    create: Call::now(|_| Ok(quiet_session())),
                    ..Agent::default()
                })
            })
        })
    };
    let expected = [
        "zebra", "yak", "xerus", "nested", ".stall", ".rope", ".queue", ".pen", "wolf", "vole", "urial",
        "tapir", "later", "earlier",
    ];
    for _ in 0..3 {
        let builder = MemoryHost::builder().plugin(plugin(), json!({}));
        let host = builder.plugin(pickers(&["later", "earlier"]), json!({})).start().await;
        let mut client = client(&host).await;
        let resolved = client.request("resolveSessionConfig", json!({})).await.unwrap();
        assert_eq!(order(&resolved["schema"]), expected);
        let session = "ordered:/1";
        client.request("createSession", json!({ "channel": session })).await.unwrap();
        let subscribed = client.request("subscribe", json!({ "channel": session })).await.unwrap();
        assert_eq!(order(&subscribed["snapshot"]["state"]["config"]["schema"]), expected);
    }
}
