//! `ostler acp`: editors that use the host's sessions, beside AHP clients. The editor is the ACP crate's own client; all
//! that it hears is checked against the protocol's schema.

use std::process::Stdio;
use std::time::Duration;

use agent_client_protocol::v1::schema as acp;
use agent_client_protocol::v1::{ConnectionTo, Dispatch, Responder};
use agent_client_protocol::{Agent, Client, Lines, UntypedMessage};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

use crate::agent;
use crate::frames::problems;
use crate::support::{Folder, LIMIT};
use crate::talk::{Stage, Talk, text_of};

/// What an editor hears of its agent's own accord.
pub enum Heard {
    Update(Value),
    Request { method: String, params: Value, responder: Responder<Value> },
}

/// An editor with its `ostler acp`.
pub struct Editor {
    pub connection: ConnectionTo<Agent>,
    pub heard: mpsc::UnboundedReceiver<Heard>,
    child: Child,
    _open: oneshot::Sender<()>,
}

impl Editor {
    /// Starts `ostler acp` in the folder and initializes it.
    pub async fn start(folder: &Folder, arguments: &[&str]) -> Self {
        Self::able(folder, arguments, json!({})).await
    }

    /// The same for an editor with more capabilities.
    pub async fn able(folder: &Folder, arguments: &[&str], more: Value) -> Self {
        let mut command = Command::from(folder.command(&[&["acp"], arguments].concat()));
        let log = std::fs::File::create(folder.path().join("acp.log")).unwrap();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let outgoing = futures::sink::unfold(stdin, |mut stdin, line: String| async move {
            stdin.write_all(format!("{line}\n").as_bytes()).await?;
            Ok::<_, std::io::Error>(stdin)
        });
        let incoming = futures::stream::unfold(BufReader::new(stdout).lines(), |mut lines| async move {
            Some((lines.next_line().await.transpose()?, lines))
        });
        let (tell, heard) = mpsc::unbounded_channel();
        let receive = async move |message: Dispatch<UntypedMessage, UntypedMessage>,
                                  _: ConnectionTo<Agent>| {
            match message {
                Dispatch::Response(result, router) => return router.route_with_result(result),
                Dispatch::Notification(message) => {
                    let (method, params) = message.into_parts();
                    if method == "session/update" {
                        fits::<acp::SessionNotification>(&params);
                        let _ = tell.send(Heard::Update(params));
                    }
                }
                Dispatch::Request(message, responder) => {
                    let (method, params) = message.into_parts();
                    match method.as_str() {
                        "session/request_permission" => fits::<acp::RequestPermissionRequest>(&params),
                        "elicitation/create" => fits::<acp::CreateElicitationRequest>(&params),
                        "fs/read_text_file" => fits::<acp::ReadTextFileRequest>(&params),
                        other => panic!("{other}"),
                    }
                    let _ = tell.send(Heard::Request { method, params, responder });
                }
            }
            Ok(())
        };
        let (handed, connection) = oneshot::channel();
        let (open, closed) = oneshot::channel::<()>();
        let lines = Lines::new(Box::pin(outgoing), Box::pin(incoming));
        let builder = Client
            .v1()
            .name("editor")
            .on_receive_dispatch(receive, agent_client_protocol::on_receive_dispatch!());
        tokio::spawn(async move {
            let foreground = async move |connection: ConnectionTo<Agent>| {
                let _ = handed.send(connection);
                let _ = closed.await;
                Ok(())
            };
            let _ = builder.connect_with(lines, foreground).await;
        });
        let editor = Self { connection: connection.await.unwrap(), heard, child, _open: open };
        let mut capabilities =
            json!({ "elicitation": { "form": {} }, "session": { "configOptions": { "boolean": {} } } });
        capabilities.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = editor
            .ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": capabilities }))
            .await
            .unwrap_or_else(|why| panic!("{why}: {}", folder.read("acp.log")));
        fits::<acp::InitializeResponse>(&answer);
        assert_eq!(answer["agentInfo"]["name"], "ostler");
        editor
    }

    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, String> {
        self.ask_or_code(method, params).await.map_err(|(_, message)| message)
    }

    /// The same, with the code of an error.
    pub async fn ask_or_code(&self, method: &str, params: Value) -> Result<Value, (i32, String)> {
        let sent = self.connection.send_request(UntypedMessage { method: method.to_owned(), params });
        let answer = tokio::time::timeout(LIMIT, sent.block_task()).await.expect("an answer in time");
        answer.map_err(|error| (error.code.into(), error.message))
    }

    pub fn notify(&self, method: &str, params: Value) {
        let message = UntypedMessage { method: method.to_owned(), params };
        self.connection.send_notification(message).unwrap();
    }

    pub async fn open(&self, cwd: &std::path::Path) -> (String, Value) {
        let answer = self.ask("session/new", json!({ "cwd": cwd, "mcpServers": [] })).await.unwrap();
        fits::<acp::NewSessionResponse>(&answer);
        (answer["sessionId"].as_str().unwrap().to_owned(), answer)
    }

    /// Sends a prompt; the answer is to be awaited.
    pub fn prompt(&self, session: &str, text: &str) -> impl Future<Output = Result<Value, String>> + use<> {
        let answer = self.prompt_or_code(session, text);
        async move { answer.await.map_err(|(_, message)| message) }
    }

    /// The same, with the code of an error.
    pub fn prompt_or_code(
        &self,
        session: &str,
        text: &str,
    ) -> impl Future<Output = Result<Value, (i32, String)>> + use<> {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        let sent =
            self.connection.send_request(UntypedMessage { method: "session/prompt".to_owned(), params });
        async move {
            let answer = tokio::time::timeout(LIMIT, sent.block_task()).await.expect("an answer in time");
            let answer: Value = answer.map_err(|error| (error.code.into(), error.message))?;
            fits::<acp::PromptResponse>(&answer);
            Ok(answer)
        }
    }

    /// Sends a prompt and waits for its answer; answers the stop reason and the updates.
    pub async fn say(&mut self, session: &str, text: &str) -> (String, Vec<Value>) {
        let answer = self.prompt(session, text).await.unwrap();
        (answer["stopReason"].as_str().unwrap().to_owned(), self.updates())
    }

    /// The updates heard so far.
    pub fn updates(&mut self) -> Vec<Value> {
        let mut updates = Vec::new();
        while let Ok(heard) = self.heard.try_recv() {
            match heard {
                Heard::Update(params) => updates.push(params["update"].clone()),
                Heard::Request { method, .. } => panic!("{method}"),
            }
        }
        updates
    }

    /// The next request of the agent; updates before it are left out.
    pub async fn request(&mut self) -> (String, Value, Responder<Value>) {
        loop {
            let heard = tokio::time::timeout(LIMIT, self.heard.recv()).await.expect("a request in time");
            if let Heard::Request { method, params, responder } = heard.expect("the connection is open") {
                return (method, params, responder);
            }
        }
    }

    /// The updates up to one of this kind.
    pub async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut updates = Vec::new();
        loop {
            let heard = tokio::time::timeout(LIMIT, self.heard.recv()).await.expect("an update in time");
            if let Heard::Update(params) = heard.expect("the connection is open") {
                updates.push(params["update"].clone());
                if params["update"]["sessionUpdate"] == kind {
                    return updates;
                }
            }
        }
    }

    /// Closes its end; answers how the program ended.
    async fn close(self) -> Option<i32> {
        let Self { mut child, connection, _open, heard } = self;
        drop((_open, connection, heard));
        tokio::time::timeout(LIMIT, child.wait()).await.expect("it ends").unwrap().code()
    }
}

#[track_caller]
pub fn fits<T: schemars::JsonSchema>(value: &Value) {
    let problems = problems::<T>(value);
    assert!(problems.is_empty(), "{problems:?}\n{value}");
}

pub fn said(updates: &[Value], kind: &str) -> String {
    let of_kind = updates.iter().filter(|update| update["sessionUpdate"] == kind);
    of_kind.filter_map(|update| update["content"]["text"].as_str()).collect()
}

pub async fn joined(stage: &Stage, name: &str, session: &str) -> Talk {
    Talk::join(stage.daemon.initialized(name).await, session).await
}

#[tokio::test]
async fn an_editor_creates_a_session_that_ahp_clients_share() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    assert!(session.starts_with("fake:/"), "{session}");
    let (reason, updates) = editor.say(&session, "!say one \n!say two").await;
    assert_eq!((reason.as_str(), said(&updates, "agent_message_chunk").as_str()), ("end_turn", "one two"));
    // An AHP client's turn in the same session reaches the editor, its message included.
    let mut talk = joined(&stage, "desk", &session).await;
    assert_eq!(talk.say("!say three").await, "three");
    let updates = editor.until("agent_message_chunk").await;
    assert_eq!(said(&updates, "user_message_chunk"), "!say three");
    assert_eq!(said(&updates, "agent_message_chunk"), "three");
    // And the editor's reaches the client.
    let answer = editor.prompt(&session, "!say four");
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert_eq!(text_of(&seen), "four");
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    assert_eq!(editor.close().await, Some(0));
}

#[tokio::test]
async fn a_session_is_listed_loaded_resumed_and_deleted() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    talk.say("!say seven").await;
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let listed = editor.ask("session/list", json!({})).await.unwrap();
    fits::<acp::ListSessionsResponse>(&listed);
    let row = &listed["sessions"][0];
    assert_eq!((&row["sessionId"], &row["cwd"]), (&json!("fake:/one"), &json!(stage.work())), "{listed}");
    let elsewhere = editor.ask("session/list", json!({ "cwd": "/nowhere" })).await.unwrap();
    assert_eq!(elsewhere["sessions"], json!([]));
    let params = json!({ "sessionId": "fake:/one", "cwd": stage.work(), "mcpServers": [] });
    let loaded = editor.ask("session/load", params.clone()).await.unwrap();
    fits::<acp::LoadSessionResponse>(&loaded);
    let updates = editor.updates();
    assert_eq!(said(&updates, "user_message_chunk"), "!say seven");
    assert_eq!(said(&updates, "agent_message_chunk"), "seven");
    assert_eq!(editor.say("fake:/one", "!say eight").await.0, "end_turn");
    assert_eq!(editor.close().await, Some(0));

    let mut editor = Editor::start(&stage.folder, &[]).await;
    let resumed = editor.ask("session/resume", params).await.unwrap();
    fits::<acp::ResumeSessionResponse>(&resumed);
    assert_eq!(said(&editor.updates(), "agent_message_chunk"), "", "nothing is replayed");
    editor.ask("session/close", json!({ "sessionId": "fake:/one" })).await.unwrap();
    let why = editor.prompt("fake:/one", "hello").await.unwrap_err();
    assert!(why.contains("is not open"), "{why}");
    editor.ask("session/delete", json!({ "sessionId": "fake:/one" })).await.unwrap();
    assert_eq!(editor.ask("session/list", json!({})).await.unwrap()["sessions"], json!([]));
    let missing = json!({ "sessionId": "fake:/none", "cwd": stage.work(), "mcpServers": [] });
    let why = editor.ask("session/load", missing).await.unwrap_err();
    assert!(why.contains("fake:/none"), "{why}");
}

#[tokio::test]
async fn many_turns_are_replayed_in_order() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    for at in 0..130 {
        talk.say(&format!("!say <{at}>")).await;
    }
    // After a restart a client is sent the latest turns only; older ones are fetched.
    drop(talk);
    let stage = stage.restarted(false);
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let params = json!({ "sessionId": "fake:/one", "cwd": stage.work(), "mcpServers": [] });
    editor.ask("session/load", params).await.unwrap();
    let expected: String = (0..130).map(|at| format!("<{at}>")).collect();
    assert_eq!(said(&editor.updates(), "agent_message_chunk"), expected);
}

#[tokio::test]
async fn a_cancelled_prompt_is_answered_and_the_session_goes_on() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let answer = editor.prompt(&session, "!say begun\n!wait");
    editor.until("agent_message_chunk").await;
    editor.notify("session/cancel", json!({ "sessionId": session }));
    assert_eq!(answer.await.unwrap()["stopReason"], "cancelled");
    // One that is cancelled before it began.
    let answer = editor.prompt(&session, "!wait");
    editor.notify("session/cancel", json!({ "sessionId": session }));
    assert_eq!(answer.await.unwrap()["stopReason"], "cancelled");
    assert_eq!(editor.say(&session, "!say on").await.0, "end_turn");
}

#[tokio::test]
async fn a_prompt_waits_for_another_clients_turn() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let turn = talk.begin("!say first\n!wait").await;
    talk.until(&["chat/responsePart"]).await;
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let params = json!({ "sessionId": "fake:/one", "cwd": stage.work(), "mcpServers": [] });
    editor.ask("session/resume", params).await.unwrap();
    let updates = editor.until("agent_message_chunk").await;
    assert_eq!(said(&updates, "agent_message_chunk"), "first", "what runs is shown");
    // One that waits is taken back without disturbing what runs.
    let withdrawn = editor.prompt("fake:/one", "!say never");
    talk.until(&["chat/pendingMessageSet"]).await;
    editor.notify("session/cancel", json!({ "sessionId": "fake:/one" }));
    assert_eq!(withdrawn.await.unwrap()["stopReason"], "cancelled");
    let answer = editor.prompt("fake:/one", "!say second");
    talk.until(&["chat/pendingMessageSet"]).await;
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    let said = said(&editor.updates(), "agent_message_chunk");
    assert!(said.ends_with("second") && !said.contains("never"), "{said}");
}

fn permission(title: &str) -> Value {
    json!({ "toolCall": { "toolCallId": "c", "title": title, "kind": "execute", "rawInput": { "command": "rm" } },
        "options": [{ "optionId": "yes", "name": "Once", "kind": "allow_once" },
            { "optionId": "always", "name": "Always", "kind": "allow_always" },
            { "optionId": "no", "name": "Never", "kind": "reject_once" }] })
}

#[tokio::test]
async fn an_approval_is_asked_of_the_editor_and_of_ahp_clients() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let script = |title: &str| format!("!request session/request_permission {}", permission(title));
    for (option, outcome) in [("always", "always"), ("no", "no")] {
        let title = format!("Run rm {option}");
        let answer = editor.prompt(&session, &script(&title));
        let (method, params, responder) = editor.request().await;
        assert_eq!(method, "session/request_permission");
        assert_eq!(params["toolCall"]["title"], title);
        assert_eq!(params["toolCall"]["rawInput"], json!({ "command": "rm" }));
        let names: Vec<&str> = params["options"]
            .as_array()
            .unwrap()
            .iter()
            .map(|option| option["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["Once", "Always", "Never"]);
        responder.respond(json!({ "outcome": { "outcome": "selected", "optionId": option } })).unwrap();
        assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
        let said = said(&editor.updates(), "agent_message_chunk");
        assert!(said.contains(&format!("\"optionId\":\"{outcome}\"")), "{said}");
    }
    // An AHP client that answers first takes the question back from the editor.
    let mut talk = joined(&stage, "desk", &session).await;
    let answer = editor.prompt(&session, &script("Run rm"));
    let (_, _, responder) = editor.request().await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let request = &crate::talk::last(&seen)["request"];
    let action = json!({ "type": "chat/toolCallConfirmed", "turnId": request["turnId"], "toolCallId": "c",
        "approved": true, "confirmed": "user-action", "selectedOptionId": "yes" });
    talk.act(action).await;
    tokio::time::timeout(LIMIT, responder.cancellation().cancelled()).await.expect("it is taken back");
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
}

#[tokio::test]
async fn an_approval_that_the_editor_does_not_decide_is_denied() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let script = format!("!request session/request_permission {}", permission("Run rm"));
    let cancelled = || json!({ "outcome": { "outcome": "cancelled" } });
    for fails in [false, true] {
        let answer = editor.prompt(&session, &script);
        let (_, _, responder) = editor.request().await;
        match fails {
            true => responder.respond_with_error(agent_client_protocol::Error::internal_error()).unwrap(),
            false => responder.respond(cancelled()).unwrap(),
        }
        assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
        let said = said(&editor.updates(), "agent_message_chunk");
        assert!(said.contains("\"optionId\":\"no\""), "{said}");
    }
    // Where another client is active, it may decide.
    let mut talk = joined(&stage, "desk", &session).await;
    let present = json!({ "type": "session/activeClientSet", "activeClient":
        { "clientId": "desk", "customizations": [], "tools": [] } });
    talk.act_on(&session, present).await;
    talk.until(&["session/activeClientSet"]).await;
    let answer = editor.prompt(&session, &script);
    let (_, _, responder) = editor.request().await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    responder.respond(cancelled()).unwrap();
    // The daemon hears of a denial, if there is one, before it is asked this.
    editor.ask("session/list", json!({})).await.unwrap();
    let request = &crate::talk::last(&seen)["request"];
    let action = json!({ "type": "chat/toolCallConfirmed", "turnId": request["turnId"],
        "toolCallId": request["toolCall"]["toolCallId"], "approved": true, "confirmed": "user-action",
        "selectedOptionId": "yes" });
    talk.act(action).await;
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    let said = said(&editor.updates(), "agent_message_chunk");
    assert!(said.contains("\"optionId\":\"yes\""), "{said}");
}

#[tokio::test]
async fn what_other_clients_leave_undecided_is_asked_again() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let form = json!({ "mode": "form", "message": "Who are you?", "requestedSchema": schema });
    let scripts = [
        (
            format!("!request session/request_permission {}", permission("Run rm")),
            json!({ "outcome": { "outcome": "selected", "optionId": "yes" } }),
            "\"optionId\":\"yes\"",
        ),
        (
            format!("!request elicitation/create {form}"),
            json!({ "action": "accept", "content": { "name": "Ada" } }),
            "\"name\":\"Ada\"",
        ),
    ];
    let mut talk = joined(&stage, "desk", &session).await;
    for (script, decision, outcome) in scripts {
        let present = json!({ "type": "session/activeClientSet", "activeClient":
            { "clientId": "desk", "customizations": [], "tools": [] } });
        talk.act_on(&session, present).await;
        talk.until(&["session/activeClientSet"]).await;
        let answer = editor.prompt(&session, &script);
        let (asked, first, responder) = editor.request().await;
        talk.until(&["session/inputNeededSet"]).await;
        responder.respond_with_error(agent_client_protocol::Error::internal_error()).unwrap();
        // Answered after it: the editor's answer has arrived.
        editor.ask("session/list", json!({})).await.unwrap();
        talk.act_on(&session, json!({ "type": "session/activeClientRemoved", "clientId": "desk" })).await;
        let (again, second, responder) = editor.request().await;
        assert_eq!((again, second), (asked, first));
        responder.respond(decision).unwrap();
        assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
        let said = said(&editor.updates(), "agent_message_chunk");
        assert!(said.contains(outcome), "{said}");
    }
}

#[tokio::test]
async fn a_question_is_a_form_of_the_editor() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let schema = json!({ "type": "object", "required": ["name"], "properties": { "name": { "type": "string", "title": "Name" },
        "colour": { "type": "string", "enum": ["red", "blue"] }, "count": { "type": "integer" } } });
    let form = json!({ "mode": "form", "message": "Who are you?", "requestedSchema": schema });
    let answer = editor.prompt(&session, &format!("!request elicitation/create {form}"));
    let (method, params, responder) = editor.request().await;
    assert_eq!((method.as_str(), &params["message"]), ("elicitation/create", &json!("Who are you?")));
    let content = json!({ "name": "Ada", "colour": "red", "count": 3 });
    responder.respond(json!({ "action": "accept", "content": content })).unwrap();
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    let said: Value = serde_json::from_str(&said(&editor.updates(), "agent_message_chunk")).unwrap();
    assert_eq!(said, json!({ "action": "accept", "content": content }));
}

#[tokio::test]
async fn tool_calls_thoughts_and_titles_are_shown() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let script = [
        json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": "hm" } }),
        json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Edit a", "kind": "edit", "status": "pending",
            "rawInput": { "path": "/a" }, "locations": [{ "path": "/a", "line": 3 }] }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
            "content": [{ "type": "diff", "path": "/a", "oldText": "x\n", "newText": "y\n" }] }),
        json!({ "sessionUpdate": "tool_call", "toolCallId": "n", "name": "Bash", "title": "ls", "kind": "execute",
            "status": "completed" }),
        json!({ "sessionUpdate": "session_info_update", "title": "Editing" }),
        json!({ "sessionUpdate": "usage_update", "used": 10, "size": 100 }),
        json!({ "sessionUpdate": "available_commands_update",
            "availableCommands": [{ "name": "plan", "description": "Plans" }] }),
    ];
    let script: Vec<String> = script.iter().map(|update| format!("!update {update}")).collect();
    let (_, updates) = editor.say(&session, &format!("{}\n!say done", script.join("\n"))).await;
    assert_eq!(said(&updates, "agent_thought_chunk"), "hm");
    let of = |kind: &str| updates.iter().filter(|update| update["sessionUpdate"] == kind).collect::<Vec<_>>();
    let call = of("tool_call")[0];
    assert_eq!((&call["title"], &call["kind"]), (&json!("Edit a"), &json!("edit")));
    assert_eq!(of("tool_call")[1]["kind"], "execute", "that of a tool with a name");
    let of_call = |call: &str| {
        let mut updates = of("tool_call_update").into_iter().filter(|update| update["toolCallId"] == call);
        updates.next_back().cloned().unwrap()
    };
    assert_eq!(of_call("n")["kind"], "execute");
    let done = of_call("c");
    assert_eq!((&done["status"], &done["rawInput"]), (&json!("completed"), &json!({ "path": "/a" })));
    assert_eq!(done["locations"], json!([{ "path": "/a", "line": 3 }]));
    assert_eq!(
        done["content"],
        json!([{ "type": "diff", "path": "/a", "oldText": "x\n", "newText": "y\n" }])
    );
    assert_eq!(of("usage_update")[0]["used"], 10);
    // They are on the session's channel, which is another than the turn's.
    let mut later = updates.clone();
    let wanted = ["session_info_update", "available_commands_update"];
    while !wanted.iter().all(|kind| later.iter().any(|update| update["sessionUpdate"] == *kind)) {
        let heard = tokio::time::timeout(LIMIT, editor.heard.recv()).await.expect("an update in time");
        if let Heard::Update(params) = heard.unwrap() {
            later.push(params["update"].clone());
        }
    }
}

#[tokio::test]
async fn a_plan_is_a_plan_of_the_editor() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let plan = |statuses: [&str; 2]| {
        let entry = |at: usize, content: &str| json!({ "content": content, "priority": "high", "status": statuses[at] });
        json!({ "sessionUpdate": "plan", "entries": [entry(0, "first"), entry(1, "second")] })
    };
    let told =
        [["in_progress", "pending"], ["completed", "in_progress"], ["completed", "completed"]].map(plan);
    let script: Vec<String> = told.iter().map(|update| format!("!update {update}")).collect();
    let (_, updates) = editor.say(&session, &script.join("\n")).await;
    let mut plans: Vec<&Value> = updates.iter().filter(|update| update["sessionUpdate"] == "plan").collect();
    plans.dedup();
    assert_eq!(plans, told.iter().collect::<Vec<_>>());
    assert_eq!(said(&updates, "agent_thought_chunk"), "");
    // So it is when the conversation is loaded.
    let params = json!({ "sessionId": session, "cwd": stage.work(), "mcpServers": [] });
    editor.ask("session/load", params).await.unwrap();
    let mut replayed = Vec::new();
    while replayed.len() < 2 {
        let heard = tokio::time::timeout(LIMIT, editor.heard.recv()).await.expect("an update in time");
        if let Heard::Update(params) = heard.unwrap() {
            replayed
                .extend(Some(params["update"].clone()).filter(|update| update["sessionUpdate"] == "plan"));
        }
    }
    assert_eq!(replayed.last(), told.last());
}

#[tokio::test]
async fn settings_are_options_of_the_editor() {
    let options = json!([{ "id": "fast", "name": "Fast", "type": "boolean", "currentValue": false },
        { "id": "level", "name": "Level", "type": "select", "currentValue": "a",
            "options": [{ "value": "a", "name": "A" }, { "value": "b", "name": "B" }] }]);
    let modes = json!({ "currentModeId": "ask", "availableModes": [{ "id": "ask", "name": "Ask" }, { "id": "plan", "name": "Plan" }] });
    let stage = Stage::new(json!({ "new": { "configOptions": options, "modes": modes } }));
    stage.talk().await.say("hello").await;
    let editor = Editor::start(&stage.folder, &[]).await;
    let (session, answer) = editor.open(&stage.work()).await;
    assert_eq!(answer["modes"]["currentModeId"], "ask");
    let ids: Vec<&str> = answer["configOptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| option["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["mode", "fast", "level"]);
    let set = json!({ "sessionId": session, "configId": "level", "value": "b" });
    let answer = editor.ask("session/set_config_option", set).await.unwrap();
    fits::<acp::SetSessionConfigOptionResponse>(&answer);
    let level =
        answer["configOptions"].as_array().unwrap().iter().find(|option| option["id"] == "level").unwrap();
    assert_eq!(level["currentValue"], "b");
    editor.ask("session/set_mode", json!({ "sessionId": session, "modeId": "plan" })).await.unwrap();
    let why =
        editor.ask("session/set_mode", json!({ "sessionId": session, "modeId": "fly" })).await.unwrap_err();
    assert!(why.contains("fly"), "{why}");
    let client = stage.daemon.initialized("desk").await;
    let mut client = client;
    let state = client.subscribe(&session).await;
    assert_eq!(
        (&state["config"]["values"]["level"], &state["config"]["values"]["mode"]),
        (&json!("b"), &json!("plan"))
    );
}

#[tokio::test]
async fn an_agent_reads_the_unsaved_text_of_an_editor() {
    let stage = Stage::new(json!({}));
    let files = json!({ "fs": { "readTextFile": true } });
    let mut editor = Editor::able(&stage.folder, &[], files).await;
    let (session, _) = editor.open(&stage.work()).await;
    let (open, closed) = (stage.work().join("open file.txt"), stage.work().join("closed.txt"));
    std::fs::write(&open, "saved").unwrap();
    std::fs::write(&closed, "saved").unwrap();
    editor.say(&session, "hello").await;
    // Its announcement is a request of its own, whose answer only the bridge receives.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let read = |path: &std::path::Path| format!("!request fs/read_text_file {}", json!({ "path": path }));
    let answer = editor.prompt(&session, &read(&open));
    let (method, params, responder) = editor.request().await;
    assert_eq!(
        (method.as_str(), &params["path"], &params["sessionId"]),
        ("fs/read_text_file", &json!(open), &json!(session))
    );
    responder.respond(json!({ "content": "unsaved" })).unwrap();
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    assert!(said(&editor.updates(), "agent_message_chunk").ends_with("{\"content\":\"unsaved\"}"));
    // A file that the editor cannot read is read from disk.
    let answer = editor.prompt(&session, &read(&closed));
    let (_, _, responder) = editor.request().await;
    responder.respond_with_error(agent_client_protocol::Error::internal_error()).unwrap();
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    assert!(said(&editor.updates(), "agent_message_chunk").ends_with("{\"content\":\"saved\"}"));
    // Outside the session's directories no editor is asked.
    let (_, updates) = editor.say(&session, &read(std::path::Path::new("/etc/passwd"))).await;
    assert!(said(&updates, "agent_message_chunk").contains("outside the session's directories"));
    // Another session, and one whose editor is gone, have the files.
    assert_eq!(editor.close().await, Some(0));
    let mut talk = joined(&stage, "desk", &session).await;
    assert_eq!(talk.say(&read(&open)).await, "{\"content\":\"saved\"}");
    let mut other = stage.talk().await;
    assert_eq!(other.say(&read(&open)).await, "{\"content\":\"saved\"}");
}

/// Editors offer a sign-in for the protocol's code alone.
#[tokio::test]
async fn an_agent_that_is_not_signed_in_is_that_for_the_editor_too() {
    let stage = Stage::new(json!({}));
    let editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let refused = json!({ "code": -32000, "message": "Authentication required" });
    let (code, message) = editor.prompt_or_code(&session, &format!("!refuse {refused}")).await.unwrap_err();
    assert_eq!(code, -32000, "{message}");
    assert!(message.starts_with("fake is not signed in"), "{message}");
    let (code, message) = editor.prompt_or_code(&session, "!exit 9").await.unwrap_err();
    assert_eq!(code, -32603, "{message}");
}

#[tokio::test]
async fn a_failed_turn_answers_with_its_error() {
    let stage = Stage::new(json!({}));
    let editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let why = editor.prompt(&session, "!exit 9").await.unwrap_err();
    assert!(why.starts_with("fake ended with exit code 9"), "{why}");
    let why = editor.ask("session/new", json!({ "cwd": "relative", "mcpServers": [] })).await.unwrap_err();
    assert!(why.contains("absolute"), "{why}");
    // What the editor asks for is wrong, and nothing of ostler's.
    for (method, params) in [
        ("session/new", json!({ "cwd": "/etc", "mcpServers": [] })),
        ("authenticate", json!({ "methodId": "none" })),
    ] {
        let (code, why) = editor.ask_or_code(method, params).await.unwrap_err();
        assert_eq!(code, -32602, "{method}: {why}");
    }
    let why = editor.ask("session/fly", json!({})).await.unwrap_err();
    assert!(why.contains("session/fly"), "{why}");
}

#[tokio::test]
async fn an_editor_continues_with_the_daemon_that_starts_next() {
    for kill in [false, true] {
        let stage = Stage::new(json!({}));
        let mut editor = Editor::start(&stage.folder, &[]).await;
        let (session, _) = editor.open(&stage.work()).await;
        editor.say(&session, "!say before").await;
        let interrupted = editor.prompt(&session, "!say begun\n!wait");
        editor.until("agent_message_chunk").await;
        let stage = stage.restarted(kill);
        // What becomes of the turn is the host's to say; the prompt is answered, once.
        let _ = interrupted.await;
        let (reason, updates) = editor.say(&session, "!say after").await;
        assert_eq!((reason.as_str(), said(&updates, "agent_message_chunk").as_str()), ("end_turn", "after"));
        // It follows the session as before.
        let mut talk = joined(&stage, "desk", &session).await;
        assert_eq!(talk.say("!say three").await, "three");
        let updates = editor.until("agent_message_chunk").await;
        assert_eq!(said(&updates, "agent_message_chunk"), "three");
        assert_eq!(editor.close().await, Some(0));
    }
}

/// The queue goes on by itself, under an id of the host's: the prompt has the end of that turn, although it can begin and end
/// before the editor's connection is back.
#[tokio::test]
async fn a_prompt_that_waited_is_answered_by_the_daemon_that_starts_next() {
    for kill in [false, true] {
        let stage = Stage::new(json!({}));
        let mut editor = Editor::start(&stage.folder, &[]).await;
        let (session, _) = editor.open(&stage.work()).await;
        editor.say(&session, "!say before").await;
        let mut talk = joined(&stage, "desk", &session).await;
        let interrupted = editor.prompt(&session, "!say begun\n!wait");
        editor.until("agent_message_chunk").await;
        let queued = editor.prompt(&session, "!say queued");
        talk.until(&["chat/pendingMessageSet"]).await;
        let stage = stage.restarted(kill);
        assert!(interrupted.await.unwrap_err().contains("the host stopped"), "{kill}");
        assert_eq!(queued.await.unwrap()["stopReason"], "end_turn", "{kill}");
        let mut text = String::new();
        while !text.contains("queued") {
            text += &said(&editor.until("agent_message_chunk").await, "agent_message_chunk");
        }
        drop(stage);
    }
}

#[tokio::test]
async fn an_editor_that_reads_nothing_costs_a_bounded_amount() {
    const CHUNK: usize = 64 << 10;
    const CHUNKS: usize = 20;
    const TURNS: usize = 25;
    let stage = Stage::new(json!({}));
    let mut command = Command::from(stage.folder.command(&["acp"]));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let open = json!({ "cwd": stage.work(), "mcpServers": [] });
    for (id, method, params) in [(1, "initialize", json!({ "protocolVersion": 1 })), (2, "session/new", open)]
    {
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        input.write_all(format!("{frame}\n").as_bytes()).await.unwrap();
    }
    let session = loop {
        let line = lines.next_line().await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        if answer["id"] == 2 {
            break answer["result"]["sessionId"].as_str().unwrap().to_owned();
        }
    };
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id().unwrap())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    };
    let before = memory();
    let mut talk = joined(&stage, "desk", &session).await;
    for _ in 0..TURNS {
        talk.turn(&format!("!bulk {CHUNKS} {CHUNK}")).await;
    }
    // What the other process reads next: it cannot say that it has read all that it will.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let more = memory().saturating_sub(before);
    assert!(more < TURNS * CHUNKS * CHUNK / 2, "{more} bytes wait for an editor that reads nothing");
}

#[tokio::test]
async fn the_editor_hears_when_the_daemon_ends() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    stage.daemon.stop();
    let status = tokio::time::timeout(LIMIT, editor.child.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(stage.folder.read("acp.log").contains("the daemon closed the connection"));
}

#[tokio::test]
async fn a_daemon_is_started_on_demand_and_outlives_the_editor() {
    let options = json!({ "agents": { "fake": agent::entry(json!({})) } });
    let folder = Folder::new(
        json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/acp", "options": options }] }),
    );
    let refused = folder.run(&["acp", "--no-start"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("no daemon is running"), "{refused:?}");
    let mut editor = Editor::start(&folder, &["--provider", "fake"]).await;
    let (session, _) = editor.open(&folder.path().canonicalize().unwrap()).await;
    assert!(session.starts_with("fake:/"), "{session}");
    let (_, updates) = editor.say(&session, "!say up").await;
    assert_eq!(said(&updates, "agent_message_chunk"), "up");
    assert_eq!(editor.close().await, Some(0));
    let status = folder.run(&["status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let mut next = Editor::start(&folder, &["--no-start", "--provider", "fake"]).await;
    let (session, _) = next.open(&folder.path().canonicalize().unwrap()).await;
    let (_, updates) = next.say(&session, "!say still up").await;
    assert_eq!(said(&updates, "agent_message_chunk"), "still up");
    assert_eq!(next.close().await, Some(0));
    assert_eq!(folder.run(&["stop"]).code, Some(0));
}

#[tokio::test]
async fn a_prompt_that_is_taken_back_is_cancelled_and_no_other() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let prompt = |text: &str| {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        editor.connection.send_request(UntypedMessage { method: "session/prompt".to_owned(), params })
    };
    let running = prompt("!say begun\n!wait");
    let taken_back = running.cancellation_handle();
    editor.until("agent_message_chunk").await;
    taken_back.cancel().unwrap();
    let answer: Value = tokio::time::timeout(LIMIT, running.block_task()).await.expect("an answer").unwrap();
    assert_eq!(answer["stopReason"], "cancelled");
    // Of two that wait, the other one is run.
    let mut talk = joined(&stage, "desk", &session).await;
    let turn = talk.begin("!say first\n!wait").await;
    talk.until(&["chat/responsePart"]).await;
    editor.until("agent_message_chunk").await;
    let params = |text: &str| json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
    let send = |text: &str| {
        let message = UntypedMessage { method: "session/prompt".to_owned(), params: params(text) };
        editor.connection.send_request(message)
    };
    let withdrawn = send("!say never");
    talk.until(&["chat/pendingMessageSet"]).await;
    let kept = send("!say second");
    talk.until(&["chat/pendingMessageSet"]).await;
    withdrawn.cancellation_handle().cancel().unwrap();
    let answer: Value =
        tokio::time::timeout(LIMIT, withdrawn.block_task()).await.expect("an answer").unwrap();
    assert_eq!(answer["stopReason"], "cancelled");
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    let answer: Value = tokio::time::timeout(LIMIT, kept.block_task()).await.expect("an answer").unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let said = said(&editor.updates(), "agent_message_chunk");
    assert!(said.ends_with("second") && !said.contains("never"), "{said}");
}

#[tokio::test]
async fn a_prompt_without_content_is_refused() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    for params in [
        json!({ "sessionId": session }),
        json!({ "sessionId": session, "prompt": [] }),
        json!({ "sessionId": session, "prompt": "hello" }),
        json!({ "sessionId": session, "prompt": [{ "type": "text", "text": " " }] }),
    ] {
        let message = UntypedMessage { method: "session/prompt".to_owned(), params: params.clone() };
        let answer = tokio::time::timeout(LIMIT, editor.connection.send_request(message).block_task()).await;
        let error = answer.expect("an answer in time").unwrap_err();
        assert_eq!(error.code.value(), -32602, "{params}: {error:?}");
    }
    assert_eq!(editor.say(&session, "!say on").await.0, "end_turn");
}

#[tokio::test]
async fn a_prompt_stops_for_the_reason_of_its_turn() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    for reason in ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"] {
        assert_eq!(editor.say(&session, &format!("!say x\n!stop {reason}")).await.0, reason);
    }
}

#[tokio::test]
async fn an_option_keeps_its_id_and_its_kind() {
    let stage = Stage::new(json!({}));
    let mut editor = Editor::start(&stage.folder, &[]).await;
    let (session, _) = editor.open(&stage.work()).await;
    let options = json!([{ "optionId": "approved-for-session", "name": "Yes, for this session", "kind": "allow_always" },
        { "optionId": "yes-not-always", "name": "Yes", "kind": "allow_once" },
        { "optionId": "no", "name": "No", "kind": "reject_once" }, { "optionId": "stop", "name": "Never", "kind": "reject_always" }]);
    let ask = json!({ "toolCall": { "toolCallId": "c", "title": "Run ls", "kind": "execute" }, "options": options });
    let answer = editor.prompt(&session, &format!("!request session/request_permission {ask}"));
    let (method, params, responder) = editor.request().await;
    assert_eq!((method.as_str(), &params["options"]), ("session/request_permission", &options));
    responder
        .respond(json!({ "outcome": { "outcome": "selected", "optionId": "approved-for-session" } }))
        .unwrap();
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    let said = said(&editor.updates(), "agent_message_chunk");
    assert!(said.contains("approved-for-session"), "{said}");
}
