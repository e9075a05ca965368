//! Everything that is sent to an agent fits the protocol's schema.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use agent_client_protocol::v1::schema as acp;
use jsonschema::Validator;
use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use crate::talk::{Stage, Talk, last};

thread_local! {
    /// By type: the agents of the tests check every frame.
    static VALIDATORS: RefCell<HashMap<&'static str, Rc<Validator>>> = RefCell::default();
}

pub fn problems<T: JsonSchema>(value: &Value) -> Vec<String> {
    let validator = VALIDATORS.with_borrow_mut(|validators| {
        let made = || Rc::new(jsonschema::validator_for(&schema_for!(T).to_value()).unwrap());
        validators.entry(std::any::type_name::<T>()).or_insert_with(made).clone()
    });
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// The problems of a frame; nothing for one without a schema.
pub fn check(frame: &Value) -> Option<(String, Vec<String>)> {
    let (params, result) = (&frame["params"], &frame["result"]);
    if let Some(method) = frame["method"].as_str() {
        let problems = match method {
            "initialize" => problems::<acp::InitializeRequest>(params),
            "authenticate" => problems::<acp::AuthenticateRequest>(params),
            "session/new" => problems::<acp::NewSessionRequest>(params),
            "session/load" => problems::<acp::LoadSessionRequest>(params),
            "session/resume" => problems::<acp::ResumeSessionRequest>(params),
            "session/prompt" => problems::<acp::PromptRequest>(params),
            "session/cancel" => problems::<acp::CancelNotification>(params),
            "session/set_mode" => problems::<acp::SetSessionModeRequest>(params),
            "session/set_config_option" => problems::<acp::SetSessionConfigOptionRequest>(params),
            "session/close" => problems::<acp::CloseSessionRequest>(params),
            "session/delete" => problems::<acp::DeleteSessionRequest>(params),
            "session/list" => problems::<acp::ListSessionsRequest>(params),
            "logout" => problems::<acp::LogoutRequest>(params),
            "$/cancel_request" => problems::<acp::CancelRequestNotification>(params),
            // Of agents from before configuration options.
            "session/set_model" => Vec::new(),
            // Not stable.
            "session/fork" => Vec::new(),
            other => panic!("no schema for {other}"),
        };
        return Some((method.to_owned(), problems));
    }
    let method = frame["answers"].as_str().filter(|_| frame.get("result").is_some())?;
    let problems = match method {
        "session/request_permission" => problems::<acp::RequestPermissionResponse>(result),
        "elicitation/create" => problems::<acp::CreateElicitationResponse>(result),
        "fs/read_text_file" => problems::<acp::ReadTextFileResponse>(result),
        "fs/write_text_file" => problems::<acp::WriteTextFileResponse>(result),
        "terminal/create" => problems::<acp::CreateTerminalResponse>(result),
        "terminal/output" => problems::<acp::TerminalOutputResponse>(result),
        "terminal/wait_for_exit" => problems::<acp::WaitForTerminalExitResponse>(result),
        "terminal/kill" => problems::<acp::KillTerminalResponse>(result),
        "terminal/release" => problems::<acp::ReleaseTerminalResponse>(result),
        other => panic!("no schema for an answer to {other}"),
    };
    Some((method.to_owned(), problems))
}

async fn answer(talk: &mut Talk, script: &str, action: impl FnOnce(&Value) -> Value) {
    talk.begin(script).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let action = action(&last(&seen)["request"]);
    talk.act(action).await;
    talk.until(&["chat/turnComplete"]).await;
}

#[tokio::test]
async fn every_frame_fits_the_schema() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let options = json!([{ "id": "fast", "name": "Fast", "type": "boolean", "currentValue": false },
        { "id": "level", "name": "Level", "type": "select", "currentValue": "a",
            "options": [{ "value": "a", "name": "A" }, { "value": "b", "name": "B" }] }]);
    let modes = json!({ "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }, { "id": "b", "name": "B" }] });
    let capabilities = json!({ "loadSession": true, "promptCapabilities": { "image": true, "embeddedContext": true },
        "sessionCapabilities": { "resume": {}, "close": {}, "delete": {}, "additionalDirectories": {} } });
    for resume in [true, false] {
        let mut capabilities = capabilities.clone();
        if !resume {
            capabilities["sessionCapabilities"].as_object_mut().unwrap().remove("resume");
        }
        let stage =
            Stage::new(json!({ "log": log.path(), "initialize": { "agentCapabilities": capabilities },
            "new": { "configOptions": options, "modes": modes } }));
        let mut talk = stage.talk().await;
        talk.say("hello").await;
        let mut talk = stage.talk_in("fake:/two", json!({ "fast": true, "level": "b", "mode": "b" })).await;
        let file = stage.work().join("a");
        let of = json!({ "terminalId": "terminal-1" });
        talk.say(&format!(
            "!request fs/write_text_file {}\n!request fs/read_text_file {}\n!request terminal/create {}\n\
             !request terminal/output {of}\n!request terminal/wait_for_exit {of}\n!request terminal/kill {of}\n\
             !request terminal/release {of}",
            json!({ "path": file, "content": "x" }),
            json!({ "path": file }),
            json!({ "command": "true" })
        ))
        .await;
        let permission = json!({ "toolCall": { "toolCallId": "c", "title": "T" },
            "options": [{ "optionId": "y", "name": "Y", "kind": "allow_once" }] });
        answer(&mut talk, &format!("!request session/request_permission {permission}"), |request| {
            json!({ "type": "chat/toolCallConfirmed", "turnId": request["turnId"], "toolCallId": "c", "approved": true,
                "confirmed": "user-action" })
        })
        .await;
        let form = json!({ "mode": "form", "message": "?", "requestedSchema": { "type": "object", "properties": { "n": { "type": "string" } } } });
        answer(&mut talk, &format!("!request elicitation/create {form}"), |request| {
            json!({ "type": "chat/inputCompleted", "requestId": request["id"], "response": "accept",
                "answers": { "n": { "state": "submitted", "value": { "kind": "text", "value": "v" } } } })
        })
        .await;
        let attachments = json!([
            { "type": "embeddedResource", "label": "a.png", "data": "AA==", "contentType": "image/png" },
            { "type": "embeddedResource", "label": "a.txt", "data": "aGF5", "contentType": "text/plain" },
            { "type": "resource", "label": "a", "uri": "file:///a" },
            { "type": "simple", "label": "Hay", "modelRepresentation": "hay" },
        ]);
        let message = json!({ "text": "look", "attachments": attachments });
        talk.act(
            json!({ "type": "chat/turnStarted", "turnId": format!("attached-{resume}"), "message": message }),
        )
        .await;
        talk.until(&["chat/turnComplete"]).await;
        let turn = talk.begin("!say x\n!wait").await;
        talk.until(&["chat/responsePart"]).await;
        talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
        talk.until(&["chat/turnCancelled"]).await;
        talk.fail("!exit 1").await;
        talk.say("again").await;
        let params = json!({ "channel": talk.session });
        talk.client.request("disposeSession", params).await.unwrap();
    }
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let mut methods = BTreeSet::new();
    for line in sent.lines() {
        let frame: Value = serde_json::from_str(line).unwrap();
        if let Some((method, problems)) = check(&frame) {
            assert!(problems.is_empty(), "{method}: {problems:?}\n{frame}");
            methods.insert(method);
        }
    }
    let expected = [
        "elicitation/create",
        "fs/read_text_file",
        "fs/write_text_file",
        "initialize",
        "session/cancel",
        "session/close",
        "session/delete",
        "session/load",
        "session/new",
        "session/prompt",
        "session/request_permission",
        "session/resume",
        "session/set_config_option",
        "session/set_mode",
        "terminal/create",
        "terminal/kill",
        "terminal/output",
        "terminal/release",
        "terminal/wait_for_exit",
    ];
    assert_eq!(methods.into_iter().collect::<Vec<_>>(), expected);
}
