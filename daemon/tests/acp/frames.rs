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

/// The method of a frame that was sent to an agent, and its problems. One that no schema is known for is a problem.
pub fn check(frame: &Value) -> (String, Vec<String>) {
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
            // Of agents from before configuration options; the schema no longer has it.
            "session/set_model" => {
                let is_text = |member: &str| params[member].is_string();
                match is_text("sessionId") && is_text("modelId") {
                    true => Vec::new(),
                    false => vec![format!("sessionId and modelId have to be text: {params}")],
                }
            }
            // Not stable: its members are those of `session/load`.
            "session/fork" => problems::<acp::LoadSessionRequest>(params),
            _ => vec!["there is no schema for it".to_owned()],
        };
        return (method.to_owned(), problems);
    }
    let Some(method) = frame["answers"].as_str() else {
        return ("an answer".to_owned(), vec!["it answers nothing that was asked".to_owned()]);
    };
    if let Some(error) = frame.get("error") {
        return ("an error".to_owned(), problems::<acp::Error>(error));
    }
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
        _ => vec!["there is no schema for an answer to it".to_owned()],
    };
    (method.to_owned(), problems)
}

async fn answer(talk: &mut Talk, script: &str, action: impl FnOnce(&Value) -> Value) {
    talk.begin(script).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let action = action(&last(&seen)["request"]);
    talk.act(action).await;
    talk.until(&["chat/turnComplete"]).await;
}

#[tokio::test]
async fn every_method_of_the_schema_is_driven_and_every_frame_fits_it() {
    let (log, sent) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let options = json!([{ "id": "fast", "name": "Fast", "type": "boolean", "currentValue": false },
        { "id": "level", "name": "Level", "type": "select", "currentValue": "a",
            "options": [{ "value": "a", "name": "A" }, { "value": "b", "name": "B" }] }]);
    let modes = json!({ "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }, { "id": "b", "name": "B" }] });
    let capabilities = json!({ "loadSession": true, "promptCapabilities": { "image": true, "embeddedContext": true },
        "sessionCapabilities": { "resume": {}, "close": {}, "delete": {}, "list": {}, "additionalDirectories": {} },
        "auth": { "logout": {} } });
    let ways = json!([{ "id": "browser", "name": "Browser" }]);
    for resume in [true, false] {
        let mut capabilities = capabilities.clone();
        if !resume {
            capabilities["sessionCapabilities"].as_object_mut().unwrap().remove("resume");
        }
        let stage = Stage::new(json!({ "log": log.path(), "sent": sent.path(),
                "initialize": { "agentCapabilities": capabilities, "authMethods": ways }, "new": { "configOptions": options, "modes": modes } }));
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
        talk.say(&format!(
            "!withdraw {permission}\n!notify elicitation/complete {}",
            json!({ "elicitationId": "e" })
        ))
        .await;
        for command in ["login", "sessions", "logout"] {
            let ended = stage.folder.run(&["agent", command, "fake"]);
            assert_eq!(ended.code, Some(0), "{command}: {ended:?}");
        }
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
    let frames = |of: &tempfile::NamedTempFile| -> Vec<Value> {
        let text = std::fs::read_to_string(of.path()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let mut methods = BTreeSet::new();
    for frame in frames(&log) {
        let (method, problems) = check(&frame);
        assert!(problems.is_empty(), "{method}: {problems:?}\n{frame}");
        methods.extend(frame["method"].is_string().then_some(method));
    }
    methods.extend(frames(&sent).iter().map(|frame| frame["method"].as_str().unwrap().to_owned()));
    assert_eq!(methods, crate::schema_table::methods());
}

#[test]
fn a_frame_that_cannot_be_checked_is_a_problem() {
    let problems = |frame: Value| check(&frame).1;
    assert!(
        problems(json!({ "id": 1, "method": "session/new", "params": { "cwd": "/", "mcpServers": [] } }))
            .is_empty()
    );
    assert!(
        problems(json!({ "id": 1, "error": { "code": 1, "message": "m" }, "answers": "terminal/kill" }))
            .is_empty()
    );
    for frame in [
        json!({ "id": 1, "method": "session/new", "params": { "cwd": 1 } }),
        json!({ "id": 1, "method": "session/unheard-of", "params": {} }),
        json!({ "id": 1, "result": {} }),
        json!({ "id": 1, "result": {}, "answers": "session/unheard-of" }),
        json!({ "id": 1, "result": {}, "answers": "terminal/create" }),
        json!({ "id": 1, "error": { "message": "m" }, "answers": "terminal/create" }),
    ] {
        assert!(!problems(frame.clone()).is_empty(), "{frame}");
    }
}
