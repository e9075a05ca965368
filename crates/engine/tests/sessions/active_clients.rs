//! Clients that say that they are active in a session.

use ostler_contract::json;

use super::world::{SESSION, World};

/// What a session refused does not keep a client active that another connection made so.
#[tokio::test(start_paused = true)]
async fn a_refused_client_is_active_over_no_connection() {
    let mut world = World::new().await;
    let mut open = Vec::new();
    for (at, id) in ["somebody else", "editor"].into_iter().enumerate() {
        let mut editor = world.host.raw();
        editor.initialize("editor").await;
        let active = json!({ "clientId": id, "tools": [] });
        let set = json!({ "type": "session/activeClientSet", "activeClient": active });
        editor.dispatch(SESSION, 1, set).await;
        match at {
            0 => {
                let answer = editor.actions_until("session/activeClientSet").await.pop().unwrap();
                assert_eq!(answer["rejectionReason"], "a client may only set itself active", "{answer}");
            }
            _ => drop(world.client.actions_until("session/activeClientSet").await),
        }
        open.push(editor);
    }
    drop(open.pop());
    world.client.actions_until("session/activeClientRemoved").await;
}

/// A client that took itself out of a session over one connection does not stay active there by what that one said before.
#[tokio::test(start_paused = true)]
async fn a_client_that_left_is_active_over_no_connection() {
    let mut world = World::new().await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut editor = world.host.raw();
        editor.initialize("editor").await;
        open.push(editor);
    }
    let set =
        json!({ "type": "session/activeClientSet", "activeClient": { "clientId": "editor", "tools": [] } });
    let removed = json!({ "type": "session/activeClientRemoved", "clientId": "editor" });
    for (at, action) in [(0, &set), (0, &removed), (1, &set)] {
        open[at].dispatch(SESSION, 1, action.clone()).await;
        world.client.actions_until(action["type"].as_str().unwrap()).await;
    }
    drop(open.pop());
    world.client.actions_until("session/activeClientRemoved").await;
}

/// What a client says before the session has handled what it said before counts.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_and_returns_at_once_is_active_until_it_disconnects() {
    let mut world = World::new().await;
    let mut editor = world.host.raw();
    editor.initialize("editor").await;
    let set = |id: &str| json!({ "type": "session/activeClientSet", "activeClient": { "clientId": id, "tools": [] } });
    let removed = json!({ "type": "session/activeClientRemoved", "clientId": "editor" });
    let at_once = [set("editor"), removed, set("somebody else"), set("editor")];
    for (at, action) in at_once.into_iter().enumerate() {
        editor.dispatch(SESSION, at as i64 + 1, action).await;
    }
    for action in ["session/activeClientSet", "session/activeClientRemoved", "session/activeClientSet"] {
        world.client.actions_until(action).await;
    }
    drop(editor);
    world.client.actions_until("session/activeClientRemoved").await;
}
