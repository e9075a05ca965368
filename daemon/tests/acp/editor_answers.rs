//! Every request of an editor has an answer, whatever the agent, the host and other clients do meanwhile.

use agent_client_protocol::v1::schema as acp;
use serde_json::{Value, json};

use crate::editor::{Editor, Heard, fits, joined, said};
use crate::support::{Folder, LIMIT};
use crate::talk::{Stage, Talk, last, text_of};

fn settings() -> Value {
    let values = |ids: [&str; 2]| ids.map(|id| json!({ "value": id, "name": id }));
    json!({
        "configOptions": [{ "id": "level", "name": "Level", "type": "select", "currentValue": "a", "options": values(["a", "b"]) }],
        "modes": { "currentModeId": "ask",
            "availableModes": [{ "id": "ask", "name": "Ask" }, { "id": "plan", "name": "Plan" }] },
    })
}

fn value_of<'a>(options: &'a Value, id: &str) -> &'a Value {
    let all = options.as_array().unwrap();
    &all.iter().find(|option| option["id"] == id).unwrap()["currentValue"]
}

/// Chooses a value, and returns the answer's options.
async fn choose(editor: &Editor, session: &str, id: &str, value: &str) -> Value {
    if id == "mode" {
        let params = json!({ "sessionId": session, "modeId": value });
        return editor.ask("session/set_mode", params).await.unwrap();
    }
    let params = json!({ "sessionId": session, "configId": id, "value": value });
    let answer = editor.ask("session/set_config_option", params).await.unwrap();
    fits::<acp::SetSessionConfigOptionResponse>(&answer);
    assert_eq!(value_of(&answer["configOptions"], id), value);
    answer
}

/// A client's presence, by which it can answer in place of the editor.
async fn present(talk: &mut Talk, is_present: bool) {
    let session = talk.session.clone();
    let client = json!({ "clientId": "desk", "customizations": [], "tools": [] });
    let (action, echo) = match is_present {
        true => {
            (json!({ "type": "session/activeClientSet", "activeClient": client }), "session/activeClientSet")
        }
        false => (
            json!({ "type": "session/activeClientRemoved", "clientId": "desk" }),
            "session/activeClientRemoved",
        ),
    };
    talk.act_on(&session, action).await;
    talk.until(&[echo]).await;
}

fn form() -> String {
    let schema =
        json!({ "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } });
    let form = json!({ "mode": "form", "message": "Who are you?", "requestedSchema": schema });
    format!("!request elicitation/create {form}")
}

#[tokio::test]
async fn a_setting_that_does_not_change_or_that_the_agent_announces_first_is_answered() {
    for announces in [false, true] {
        let stage = Stage::new(json!({ "new": settings(), "announces": announces }));
        stage.talk().await.say("hello").await;
        let mut editor = Editor::start(&stage.folder, &[]).await;
        let (session, _) = editor.open(&stage.work()).await;
        let mut talk = joined(&stage, "desk", &session).await;
        // Before the agent runs, and while it runs.
        for _ in 0..2 {
            for (id, values) in [("mode", ["ask", "plan"]), ("level", ["a", "b"])] {
                for value in [values[0], values[1], values[1], values[0]] {
                    choose(&editor, &session, id, value).await;
                }
                // One that another client has set.
                let other = json!({ "type": "session/configChanged", "config": { id: values[1] } });
                talk.act_on(&session, other).await;
                talk.until(&["session/configChanged"]).await;
                choose(&editor, &session, id, values[1]).await;
                choose(&editor, &session, id, values[0]).await;
            }
            editor.say(&session, "!say on").await;
        }
        // Several at a time.
        let modes = ["plan", "ask", "ask", "plan"].map(|mode| choose(&editor, &session, "mode", mode));
        futures::future::join_all(modes).await;
    }
}

#[tokio::test]
async fn an_agents_first_session_gets_its_settings_during_the_session() {
    let stage = Stage::new(json!({ "new": settings() }));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, answer) = editor.open(&stage.work()).await;
    assert_eq!(answer.get("modes"), None, "{answer}");
    let prompted = editor.prompt(&session, "!say hello");
    let options = loop {
        let updates = editor.until("config_option_update").await;
        let options = &last(&updates)["configOptions"];
        if options.as_array().is_some_and(|options| options.len() == 2) {
            break options.clone();
        }
    };
    assert_eq!((value_of(&options, "mode"), value_of(&options, "level")), (&json!("ask"), &json!("a")));
    assert_eq!(prompted.await.unwrap()["stopReason"], "end_turn");
    choose(&editor, &session, "mode", "plan").await;
    choose(&editor, &session, "level", "b").await;
    let state = stage.daemon.initialized("desk").await.subscribe(&session).await;
    assert_eq!(state["config"]["values"], json!({ "level": "b", "mode": "plan" }));
}

#[tokio::test]
async fn a_question_that_an_editor_does_not_support_is_cancelled_unless_another_client_is_active() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::able(&stage.folder, &[], json!({ "elicitation": null })).await;
    let (session, _) = editor.open(&stage.work()).await;
    let cancelled = "{\"action\":\"cancel\"}";
    for _ in 0..2 {
        let (reason, updates) = editor.say(&session, &form()).await;
        assert_eq!(
            (reason.as_str(), said(&updates, "agent_message_chunk").as_str()),
            ("end_turn", cancelled)
        );
    }
    let mut talk = joined(&stage, "desk", &session).await;
    let accepted = |id: &Value| {
        let answers =
            json!({ "name": { "state": "submitted", "value": { "kind": "text", "value": "Ada" } } });
        json!({ "type": "chat/inputCompleted", "requestId": id, "response": "accept", "answers": answers })
    };
    // Another client's turn waits for that client, as long as no prompt of the editor waits for it.
    talk.begin(&form()).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    // Answered after the editor has heard of it.
    editor.ask("session/list", json!({})).await.unwrap();
    talk.act(accepted(&last(&seen)["request"]["id"])).await;
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert!(text_of(&seen).contains("Ada"), "{seen:?}");
    talk.begin(&form()).await;
    talk.until(&["session/inputNeededSet"]).await;
    assert_eq!(editor.say(&session, "!say next").await.0, "end_turn");
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert_eq!(text_of(&seen), cancelled);
    talk.until(&["chat/turnComplete"]).await;
    // One that is active answers, or leaves.
    present(&mut talk, true).await;
    let prompted = editor.prompt(&session, &form());
    let seen = talk.until(&["session/inputNeededSet"]).await;
    editor.ask("session/list", json!({})).await.unwrap();
    talk.act(accepted(&last(&seen)["request"]["id"])).await;
    assert_eq!(prompted.await.unwrap()["stopReason"], "end_turn");
    let answered = said(&editor.updates(), "agent_message_chunk");
    assert!(answered.contains("Ada"), "{answered}");
    let prompted = editor.prompt(&session, &form());
    talk.until(&["session/inputNeededSet"]).await;
    present(&mut talk, false).await;
    assert_eq!(prompted.await.unwrap()["stopReason"], "end_turn");
    assert_eq!(said(&editor.updates(), "agent_message_chunk"), cancelled);
}

#[tokio::test]
async fn an_answer_that_the_host_rejects_cancels_the_question() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let prompted = editor.prompt(&session, &form());
    let (_, _, responder) = editor.request().await;
    responder.respond(json!({ "action": "accept", "content": {} })).unwrap();
    assert_eq!(prompted.await.unwrap()["stopReason"], "end_turn");
    assert_eq!(said(&editor.updates(), "agent_message_chunk"), "{\"action\":\"cancel\"}");
}

/// A backend whose turns wait for what a worker asks for, or, by their text, for a sign-in; it never answers for its setting.
const BACKEND: &str = "
export const name = 'backend';
export function apply(host) {
  host.registerAgent({
    provider: 'script', displayName: 'Script', defaults: () => ({ mode: 'ask' }),
    schema: () => ({ type: 'object', properties: { mode: { type: 'string', title: 'Mode', enum: ['ask', 'plan'], sessionMutable: true } } }),
    create(start) {
      let turnId, worker, nested;
      const unanswered = [];
      const chat = (emit, turnId) => (type, more) => emit({ type, turnId, ...more });
      const need = (kind, id, more) => start.emit('session',
        { type: 'session/inputNeededSet', request: { kind, id, chat: nested.uri, turnId: nested.turnId, ...more } });
      const lead = (type, more) => start.emit('chat', { type, turnId, ...more });
      const call = (emit, id, more) => {
        emit('chat/toolCallStart', { toolCallId: id, toolName: id, displayName: id });
        emit('chat/toolCallReady', { toolCallId: id, invocationMessage: id, ...more });
      };
      return {
        async begin(turn, text) {
          turnId = turn;
          if (text === 'sign in') {
            call(lead, 'mcp', { confirmed: 'not-needed' });
            const toolCall = { status: 'auth-required', toolCallId: 'mcp', toolName: 'mcp', displayName: 'mcp', invocationMessage: 'mcp',
              confirmed: 'not-needed', contributor: { kind: 'mcp', customizationId: 'm' }, auth: { kind: 'required', reason: 'required',
                resource: { resource: 'https://mcp.example' } } };
            nested = { uri: start.chatUri, turnId };
            return need('toolAuthentication', 'mcp', { toolCall });
          }
          call(lead, 'dig', { confirmed: 'not-needed' });
          worker = await start.subagent('dig', { title: 'Digger', prompt: 'Dig.' });
          call(chat(worker.emit, worker.turnId), 'deep', { confirmed: 'not-needed' });
          nested = await start.subagent('deep', { title: 'Deep', prompt: 'Deeper.', parentToolCallId: 'dig' });
          call(chat(nested.emit, nested.turnId), 'rm', {});
          need('toolConfirmation', 'rm', { toolCall: { status: 'pending-confirmation', toolCallId: 'rm', toolName: 'rm', displayName: 'rm', invocationMessage: 'rm' } });
        },
        confirm(toolCallId, approved) {
          lead('chat/responsePart', { part: { kind: 'markdown', id: turnId + 'a', content: `approved ${approved} ` } });
          const request = { id: 'q', message: 'How deep?', questions: [{ kind: 'text', id: 'depth', message: 'Depth' }] };
          nested.emit({ type: 'chat/inputRequested', request });
          need('chatInput', 'q', { request });
        },
        answer(id, accepted) {
          lead('chat/responsePart', { part: { kind: 'markdown', id: turnId + 'b', content: `accepted ${accepted}` } });
          nested.end('complete');
          worker.end('complete');
          lead('chat/turnComplete', { duration: 0 });
          return true;
        },
        setConfig: () => new Promise((resolve) => unanswered.push(resolve)),
        cancel() {},
        close() {},
      };
    },
  });
}
";

fn scripted() -> Stage {
    Stage::configured(crate::agent::entry(json!({})), json!({}), json!({}), Some(BACKEND))
}

async fn editor_of(folder: &Folder, more: Value) -> Editor {
    Editor::able(folder, &["--provider", "script"], more).await
}

#[tokio::test]
async fn what_a_worker_asks_for_is_asked_of_the_editor_whose_turn_waits() {
    let stage = scripted();
    let mut editor = editor_of(&stage.folder, json!({})).await;
    let (session, _) = editor.open(&stage.work()).await;
    let prompted = editor.prompt(&session, "dig");
    let (method, params, responder) = editor.request().await;
    assert_eq!((method.as_str(), &params["toolCall"]["title"]), ("session/request_permission", &json!("rm")));
    responder.respond(json!({ "outcome": { "outcome": "selected", "optionId": "allow" } })).unwrap();
    let (method, params, responder) = editor.request().await;
    assert_eq!((method.as_str(), &params["message"]), ("elicitation/create", &json!("How deep?")));
    responder.respond(json!({ "action": "accept", "content": { "depth": "1 m" } })).unwrap();
    assert_eq!(prompted.await.unwrap()["stopReason"], "end_turn");
    // What came before the question was left out while it was waited for.
    assert_eq!(said(&editor.updates(), "agent_message_chunk"), "accepted true");
    // One without elicitation.
    let mut editor = editor_of(&stage.folder, json!({ "elicitation": null })).await;
    let (session, _) = editor.open(&stage.work()).await;
    let prompted = editor.prompt(&session, "dig");
    let (_, _, responder) = editor.request().await;
    responder.respond(json!({ "outcome": { "outcome": "cancelled" } })).unwrap();
    assert_eq!(prompted.await.unwrap()["stopReason"], "end_turn");
    assert_eq!(said(&editor.updates(), "agent_message_chunk"), "approved false accepted false");
}

#[tokio::test]
async fn a_sign_in_that_no_client_can_do_cancels_the_turn() {
    let stage = scripted();
    let mut editor = editor_of(&stage.folder, json!({})).await;
    let (session, _) = editor.open(&stage.work()).await;
    assert_eq!(editor.say(&session, "sign in").await.0, "cancelled");
}

#[tokio::test]
async fn a_setting_that_no_backend_confirms_fails() {
    let stage = scripted();
    let editor = editor_of(&stage.folder, json!({})).await;
    let (session, _) = editor.open(&stage.work()).await;
    let why = editor.ask("session/set_mode", json!({ "sessionId": session, "modeId": "plan" })).await;
    assert!(why.as_ref().unwrap_err().contains("has not confirmed"), "{why:?}");
}

#[tokio::test]
async fn what_other_clients_remove_ends_the_prompts_that_wait_for_it() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let mut talk = joined(&stage, "desk", &session).await;
    let first = talk.chat.clone();
    // A truncation removes the running turn. Its client starts the next one, before those of the queue.
    let running = editor.prompt(&session, "!say begun\n!wait");
    editor.until("agent_message_chunk").await;
    let queued = editor.prompt(&session, "!say on");
    talk.until(&["chat/pendingMessageSet"]).await;
    talk.act(json!({ "type": "chat/truncated" })).await;
    assert_eq!(running.await.unwrap()["stopReason"], "cancelled");
    talk.begin("!say instead").await;
    assert_eq!(queued.await.unwrap()["stopReason"], "end_turn");
    // The default chat, with its turn and its queue.
    let other = json!({ "channel": session, "chat": "ahp-chat:/other" });
    talk.client.request("createChat", other).await.unwrap();
    editor.updates();
    let running = editor.prompt(&session, "!say begun\n!wait");
    editor.until("agent_message_chunk").await;
    let queued = editor.prompt(&session, "!say never");
    talk.until(&["chat/pendingMessageSet"]).await;
    talk.client.request("disposeChat", json!({ "channel": first })).await.unwrap();
    assert_eq!(running.await.unwrap()["stopReason"], "cancelled");
    let why = queued.await.unwrap_err();
    assert!(why.contains("was closed"), "{why}");
    let (reason, updates) = editor.say(&session, "!say elsewhere").await;
    assert_eq!((reason.as_str(), said(&updates, "agent_message_chunk").as_str()), ("end_turn", "elsewhere"));
    // The session.
    let prompts = [editor.prompt(&session, "!say begun\n!wait"), editor.prompt(&session, "!say never")];
    editor.until("agent_message_chunk").await;
    talk.client.request("disposeSession", json!({ "channel": session })).await.unwrap();
    for prompted in prompts {
        let why = prompted.await.unwrap_err();
        assert!(why.contains("was deleted"), "{why}");
    }
    let why = editor.prompt(&session, "!say never").await.unwrap_err();
    assert!(why.contains("not open"), "{why}");
}

#[tokio::test]
async fn a_session_that_is_opened_again_keeps_its_prompts() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    for method in ["session/load", "session/resume"] {
        let prompted = editor.prompt(&session, "!say begun\n!wait");
        editor.until("agent_message_chunk").await;
        let params = json!({ "sessionId": session, "cwd": stage.work(), "mcpServers": [] });
        editor.ask(method, params).await.unwrap();
        let updates = editor.until("agent_message_chunk").await;
        assert!(said(&updates, "agent_message_chunk").starts_with("begun"), "{updates:?}");
        editor.notify("session/cancel", json!({ "sessionId": session }));
        assert_eq!(prompted.await.unwrap()["stopReason"], "cancelled");
        editor.updates();
    }
}

/// Valid parameters of a request.
fn params(stage: &Stage, method: &str, session: &str) -> Value {
    let of_session = |more: Value| {
        let mut params = json!({ "sessionId": session });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let opens = json!({ "cwd": stage.work(), "mcpServers": [] });
    match method {
        "initialize" => {
            json!({ "protocolVersion": 1, "clientCapabilities": { "elicitation": { "form": {} } } })
        }
        "session/new" => opens,
        "session/load" | "session/resume" => of_session(opens),
        "session/prompt" => of_session(json!({ "prompt": [{ "type": "text", "text": "!say done" }] })),
        "session/set_mode" => of_session(json!({ "modeId": "plan" })),
        "session/set_config_option" => of_session(json!({ "configId": "level", "value": "b" })),
        "authenticate" => json!({ "methodId": "none" }),
        "session/list" | "logout" => json!({}),
        _ => of_session(json!({})),
    }
}

#[tokio::test]
async fn every_method_has_an_answer_in_every_state_of_its_session() {
    let stage = Stage::new(json!({ "new": settings() }));
    stage.talk().await.say("hello").await;
    let mut desk = stage.daemon.initialized("desk").await;
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let names = serde_json::to_value(acp::AGENT_METHOD_NAMES).unwrap();
    let names: Vec<&str> = names.as_object().unwrap().values().map(|name| name.as_str().unwrap()).collect();
    assert!(names.len() > 10, "{names:?}");
    // Notifications have no answer.
    let requests = names.into_iter().filter(|name| *name != "session/cancel");
    for method in requests.chain(["session/unknown"]) {
        let _ = editor.ask(method, json!({})).await;
        let _ = editor.ask(method, params(&stage, method, "fake:/none")).await;
        let (session, _) = editor.open(&stage.work()).await;
        let _ = editor.ask(method, params(&stage, method, &session)).await;
        // In a turn that is then cancelled, and in one that goes with the session.
        for deletes in [false, true] {
            let (session, _) = editor.open(&stage.work()).await;
            let prompted = editor.prompt(&session, "!say begun\n!wait");
            loop {
                let heard =
                    tokio::time::timeout(LIMIT, editor.heard.recv()).await.expect("an update in time");
                if matches!(heard, Some(Heard::Update(params)) if params["sessionId"] == session.as_str()
                    && params["update"]["sessionUpdate"] == "agent_message_chunk")
                {
                    break;
                }
            }
            let all = [params(&stage, method, &session), json!({ "sessionId": session })];
            let asked = futures::future::join_all(all.map(|params| editor.ask(method, params)));
            let ends = async {
                match deletes {
                    true => drop(desk.request("disposeSession", json!({ "channel": session })).await),
                    false => {
                        // Handled after the requests.
                        let _ = editor.ask("session/list", json!({})).await;
                        editor.notify("session/cancel", json!({ "sessionId": session }));
                    }
                }
            };
            let (_, _, _) = futures::join!(asked, ends, prompted);
        }
        editor.updates();
    }
}
