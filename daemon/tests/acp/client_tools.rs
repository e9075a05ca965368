//! Tools of clients: an agent learns of them, whatever it does when the list changes, and a call of one is shown once,
//! however the agent reports it.

use std::path::Path;

use serde_json::{Value, json};

use crate::talk::{Stage, Talk, all, last, text_of};

/// The name under which the client's tool is offered.
const TOOL: &str = "fake--one__weigh";

/// Contributes tools of these names to the session.
async fn contribute(talk: &mut Talk, names: &[&str]) {
    contribute_as(talk, "One", names).await;
}

/// The same, as a client with this name. What changes nothing is not echoed.
async fn contribute_as(talk: &mut Talk, name: &str, names: &[&str]) {
    let tool =
        |name: &&str| json!({ "name": name, "description": "A tool.", "inputSchema": { "type": "object" } });
    let tools: Vec<Value> = names.iter().map(tool).collect();
    let client =
        json!({ "clientId": "fake--one", "displayName": name, "customizations": [], "tools": tools });
    let session = talk.session.clone();
    talk.act_on(&session, json!({ "type": "session/activeClientSet", "activeClient": client })).await;
    talk.until(&["session/activeClientSet"]).await;
}

fn starts(log: &Path) -> usize {
    std::fs::read_to_string(log).unwrap().matches("\"method\":\"initialize\"").count()
}

/// The agent with these abilities, over HTTP or over stdio.
fn agent(log: &Path, abilities: Value, http: bool) -> Stage {
    let mut abilities = abilities;
    abilities["mcpCapabilities"] = json!({ "http": http });
    Stage::new(json!({ "log": log, "initialize": { "agentCapabilities": abilities } }))
}

#[tokio::test]
async fn an_agent_that_ignores_changed_tools_is_started_again_for_the_next_turn() {
    let (resume, load) = (json!({ "sessionCapabilities": { "resume": {} } }), json!({ "loadSession": true }));
    for (abilities, http, method) in [
        (resume.clone(), true, "session/resume"),
        (resume, false, "session/resume"),
        (load, true, "session/load"),
    ] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let stage = agent(log.path(), abilities, http);
        let mut talk = stage.talk().await;
        assert!(!talk.say("!mcp tools/list").await.contains("__weigh"));
        contribute(&mut talk, &["weigh"]).await;
        // The message follows without a pause, as an editor sends it.
        let said = talk.say("!mcp tools/list").await;
        assert!(said.contains(TOOL), "{said}");
        assert_eq!(starts(log.path()), 2, "{method}");
        let sent = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(sent.matches(&format!("\"method\":\"{method}\"")).count(), 1, "{sent}");
        // The same list again, and one that only lacks a tool, are no reason.
        contribute_as(&mut talk, "Another", &["weigh"]).await;
        talk.say("!say hello").await;
        contribute(&mut talk, &[]).await;
        talk.say("!say hello").await;
        assert_eq!(starts(log.path()), 2, "{method}");
        stage.folder.wait_for_log(
            "the agent has not requested the changed list of tools; it is started again for it",
        );
    }
}

#[tokio::test]
async fn an_agent_that_requests_changed_tools_is_not_started_again() {
    for http in [true, false] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let stage = agent(log.path(), json!({ "sessionCapabilities": { "resume": {} } }), http);
        let mut talk = stage.talk().await;
        talk.say("!mcp tools/list").await;
        talk.begin("!mcp-changes\n!mcp tools/list").await;
        talk.until(&["chat/responsePart"]).await;
        contribute(&mut talk, &["weigh"]).await;
        let said = text_of(&talk.until(&["chat/turnComplete"]).await);
        assert!(said.contains(TOOL), "{said}");
        talk.say("!say hello").await;
        // One that has never requested the list knows the tools when it does.
        let mut other = stage.talk_in("fake:/two", json!({})).await;
        other.say("!say hello").await;
        let client = json!({ "clientId": "fake--two", "tools": [{ "name": "weigh", "inputSchema": { "type": "object" } }] });
        other.act_on("fake:/two", json!({ "type": "session/activeClientSet", "activeClient": client })).await;
        other.say("!say hello").await;
        assert_eq!(starts(log.path()), 2, "one for each session");
    }
}

#[tokio::test]
async fn the_user_is_told_of_tools_that_the_agent_does_not_get() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = agent(log.path(), json!({}), true);
    let mut talk = stage.talk().await;
    talk.say("!mcp tools/list").await;
    contribute(&mut talk, &["weigh"]).await;
    let notices = |seen: &[Value]| -> Vec<String> {
        let parts = all(seen, "chat/responsePart").into_iter().map(|action| &action["part"]);
        let parts = parts.filter(|part| part["kind"] == "systemNotification");
        parts.map(|part| part["content"]["markdown"].as_str().unwrap().to_owned()).collect()
    };
    let told = notices(&talk.turn("!say hello").await);
    assert!(told.len() == 1 && told[0].contains("a new session has the current ones"), "{told:?}");
    assert_eq!(notices(&talk.turn("!say hello").await), Vec::<String>::new(), "once");
    contribute(&mut talk, &["weigh", "brush"]).await;
    assert_eq!(notices(&talk.turn("!say hello").await).len(), 1, "of each change");
    assert_eq!(starts(log.path()), 1);
    stage.folder.wait_for_log("the agent works with an earlier list of tools");
}

/// What a client did in a turn.
struct Seen {
    actions: Vec<Value>,
    /// How often an approval was asked for, and how often a tool was to be run.
    approvals: usize,
    runs: usize,
}

/// Runs a turn, approves every call, and answers every call of the client's tool.
async fn run(talk: &mut Talk, script: &str) -> Seen {
    let turn = talk.begin(script).await;
    let mut seen = Seen { actions: Vec::new(), approvals: 0, runs: 0 };
    loop {
        seen.actions.extend(talk.until(&["session/inputNeededSet", "chat/turnComplete", "chat/error"]).await);
        let asked = last(&seen.actions)["request"].clone();
        let call = &asked["toolCall"]["toolCallId"];
        match asked["kind"].as_str() {
            None => return seen,
            Some("toolConfirmation") => {
                seen.approvals += 1;
                talk.act(json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call,
                    "approved": true, "confirmed": "user-action" }))
                    .await;
            }
            Some(kind) => {
                assert_eq!((kind, &asked["toolCall"]["toolInput"]), ("toolClientExecution", &json!(INPUT)));
                seen.runs += 1;
                talk.act(json!({ "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": call, "result": weighed() }))
                    .await;
            }
        }
    }
}

/// The input of the tool.
const INPUT: &str = "{\"of\":\"hay\"}";

fn weighed() -> Value {
    json!({ "success": true, "pastTenseMessage": "Weighed", "content": [{ "type": "text", "text": "seven stone" }] })
}

fn calls() -> String {
    format!("!mcp tools/call {{ \"name\": \"{TOOL}\", \"arguments\": {INPUT} }}")
}

/// The first report of a call in the form of each agent, without its id: as recorded, with another name of the tool.
fn forms() -> Vec<(&'static str, Value)> {
    let input: Value = serde_json::from_str(INPUT).unwrap();
    let named = json!({ "server": "ostler", "tool": TOOL, "arguments": input });
    let text = json!([{ "type": "content", "content": { "type": "text", "text": INPUT } }]);
    vec![
        (
            "claude",
            json!({ "name": format!("mcp__ostler__{TOOL}"), "title": "weigh", "kind": "other", "status": "pending",
            "rawInput": input }),
        ),
        (
            "codex",
            json!({ "title": format!("mcp.ostler.{TOOL}"), "kind": "execute", "status": "in_progress",
            "rawInput": named }),
        ),
        (
            "codex in Rust",
            json!({ "title": format!("Tool: ostler/{TOOL}"), "status": "in_progress", "rawInput": named }),
        ),
        ("another title", json!({ "title": "Weighs", "status": "in_progress", "rawInput": named })),
        (
            "gemini",
            json!({ "title": format!("{TOOL} (ostler MCP Server)"), "kind": "other", "status": "pending",
            "content": text }),
        ),
        (
            "qwen",
            json!({ "title": format!("{TOOL} (ostler MCP Server): {INPUT}"), "kind": "other", "status": "pending",
            "rawInput": input }),
        ),
        (
            "opencode",
            json!({ "title": format!("ostler_{TOOL}"), "kind": "other", "status": "pending", "rawInput": {} }),
        ),
        ("the name alone", json!({ "title": TOOL, "status": "pending", "rawInput": input })),
    ]
}

#[tokio::test]
async fn a_call_of_a_clients_tool_is_shown_once() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    contribute(&mut talk, &["weigh"]).await;
    let options = json!([{ "optionId": "no", "name": "No", "kind": "reject_once" },
        { "optionId": "yes", "name": "Yes", "kind": "allow_once" }]);
    for (of, form) in forms() {
        let mut report = form.clone();
        report["sessionUpdate"] = "tool_call".into();
        report["toolCallId"] = "c".into();
        let input: Value = serde_json::from_str(INPUT).unwrap();
        let more = match form["rawInput"] == json!({}) {
            true => {
                json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress", "rawInput": input })
            }
            false => {
                json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress" })
            }
        };
        let done = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
            "content": [{ "type": "content", "content": { "type": "text", "text": "seven stone" } }] });
        let mut call = form.clone();
        call["toolCallId"] = "c".into();
        call["status"] = "pending".into();
        let ask = json!({ "toolCall": call, "options": options });
        // An own title and input of the request, as Codex has them.
        let own = json!({ "toolCall": { "toolCallId": "c", "title": "Approve MCP tool call",
            "rawInput": { "server_name": "ostler" } }, "options": options });
        let (report, more, done) =
            (format!("!update {report}"), format!("!update {more}"), format!("!update {done}"));
        let ask = format!("!request session/request_permission {ask}");
        let own = format!("!request session/request_permission {own}");
        let call = calls();
        let orders: &[(&str, usize, Vec<&str>)] = &[
            ("before the call", 0, vec![&report, &more, &call, &done]),
            ("after the call", 0, vec![&call, &report, &more, &done]),
            ("approved", 1, vec![&report, &more, &ask, &call, &done]),
            ("approved in another form", 1, vec![&report, &more, &own, &call, &done]),
            ("never", 0, vec![&call]),
        ];
        let first = [("approved first", 1, vec![ask.as_str(), &call, &done])];
        let has_input = form["rawInput"] != json!({});
        for (order, approvals, lines) in orders.iter().chain(first.iter().filter(|_| has_input)) {
            let seen = run(&mut talk, &lines.join("\n")).await;
            let about = format!("{of}, {order}: {:#?}", seen.actions);
            assert_eq!((seen.approvals, seen.runs), (*approvals, 1), "{about}");
            let begun = all(&seen.actions, "chat/toolCallStart");
            assert_eq!((begun.len(), &begun[0]["toolName"]), (1, &json!("weigh")), "{about}");
            assert_eq!(
                begun[0]["contributor"],
                json!({ "kind": "client", "clientId": "fake--one" }),
                "{about}"
            );
            let ended = all(&seen.actions, "chat/toolCallComplete");
            assert_eq!((ended.len(), &ended[0]["result"]), (1, &weighed()), "{about}");
            assert_eq!(ended[0]["toolCallId"], begun[0]["toolCallId"], "{about}");
            assert!(text_of(&seen.actions).contains("seven stone"), "{about}");
        }
    }
}

/// A client runs its tool as soon as the call is approved, as AHP says.
#[tokio::test]
async fn a_client_that_runs_an_approved_call_at_once_runs_it_once() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    contribute(&mut talk, &["weigh"]).await;
    let flag = stage.work().join("flag");
    for (of, form) in forms().into_iter().filter(|(_, form)| form["rawInput"] != json!({})) {
        let mut call = form;
        call["toolCallId"] = "c".into();
        call["status"] = "pending".into();
        let ask = json!({ "toolCall": call, "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }] });
        // The agent calls the tool after the client has run it.
        let wait = format!("!shell until [ -e {} ]; do sleep 0.02; done", flag.display());
        let script = format!("!request session/request_permission {ask}\n{wait}\n{}\n!say done", calls());
        let turn = talk.begin(&script).await;
        let mut seen = talk.until(&["session/inputNeededSet"]).await;
        let id = last(&seen)["request"]["toolCall"]["toolCallId"].clone();
        assert_eq!(last(&seen)["request"]["toolCall"]["toolInput"], INPUT, "{of}: {seen:#?}");
        talk.act(
            json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": id, "approved": true,
            "confirmed": "user-action" }),
        )
        .await;
        talk.act(
            json!({ "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": id, "result": weighed() }),
        )
        .await;
        seen.extend(talk.until(&["chat/toolCallComplete"]).await);
        std::fs::write(&flag, "").unwrap();
        seen.extend(talk.until(&["chat/turnComplete"]).await);
        std::fs::remove_file(&flag).unwrap();
        assert_eq!(all(&seen, "chat/toolCallStart").len(), 1, "{of}: {seen:#?}");
        assert_eq!(all(&seen, "chat/toolCallComplete").len(), 1, "{of}: {seen:#?}");
        assert!(text_of(&seen).contains("seven stone"), "{of}: {seen:#?}");
    }
}

#[tokio::test]
async fn a_call_that_is_none_of_a_clients_tool_is_the_agents() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    contribute(&mut talk, &["weigh"]).await;
    let others = [
        json!({ "title": "weigh" }),
        json!({ "title": "weigh (ostler MCP Server)" }),
        json!({ "title": format!("{TOOL} (other MCP Server)") }),
        json!({ "title": format!("grep {TOOL} notes.txt"), "kind": "execute", "rawInput": { "command": "grep" } }),
        json!({ "title": format!("x-{TOOL}") }),
        json!({ "title": format!("{TOOL}s") }),
        json!({ "title": "Tool", "rawInput": { "server": "other", "tool": TOOL } }),
    ];
    for mut report in others {
        report["sessionUpdate"] = "tool_call".into();
        report["toolCallId"] = "c".into();
        report["status"] = "in_progress".into();
        let done = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed" });
        let seen = talk.turn(&format!("!update {report}\n!update {done}")).await;
        let begun = all(&seen, "chat/toolCallStart");
        assert!(begun.len() == 1 && begun[0].get("contributor").is_none(), "{report}: {seen:#?}");
        assert_eq!(begun[0]["displayName"], report["title"], "{seen:#?}");
        let ended = all(&seen, "chat/toolCallComplete");
        assert_eq!((ended.len(), &ended[0]["result"]["success"]), (1, &json!(true)), "{report}: {seen:#?}");
    }
}

/// As Codex reports a call that its reviewer denies. No client may begin to run it.
#[tokio::test]
async fn a_call_that_the_agent_gives_up_ends_without_its_client() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    contribute(&mut talk, &["weigh"]).await;
    let report = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": format!("mcp.ostler.{TOOL}"),
        "status": "in_progress", "rawInput": { "server": "ostler", "tool": TOOL, "arguments": { "of": "hay" } } });
    let failed = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "failed",
        "rawOutput": "denied by the reviewer" });
    for script in [format!("!update {report}\n!update {failed}"), format!("!update {report}")] {
        let seen = talk.turn(&script).await;
        assert_eq!(all(&seen, "chat/toolCallStart").len(), 1, "{seen:#?}");
        let ready = all(&seen, "chat/toolCallReady");
        assert!(ready.iter().all(|action| action.get("confirmed").is_none()), "{seen:#?}");
        let ended = all(&seen, "chat/toolCallComplete");
        assert_eq!((ended.len(), &ended[0]["result"]["success"]), (1, &json!(false)), "{seen:#?}");
        assert!(all(&seen, "session/inputNeededSet").is_empty(), "{seen:#?}");
    }
}

/// What a user approves is what the agent asks for then, and not what was denied before.
#[tokio::test]
async fn a_denied_call_that_is_asked_about_again_has_its_new_arguments() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    contribute(&mut talk, &["weigh"]).await;
    let options = json!([{ "optionId": "no", "name": "No", "kind": "reject_once" },
        { "optionId": "yes", "name": "Yes", "kind": "allow_once" }]);
    let ask = |of: &str| {
        let call = json!({ "toolCallId": "c", "name": format!("mcp__ostler__{TOOL}"), "title": "weigh",
            "status": "pending", "rawInput": { "of": of } });
        format!("!request session/request_permission {}", json!({ "toolCall": call, "options": options }))
    };
    let call = format!("!mcp tools/call {{ \"name\": \"{TOOL}\", \"arguments\": {{\"of\":\"oats\"}} }}");
    let turn = talk.begin(&format!("{}\n{}\n{call}", ask("hay"), ask("oats"))).await;
    for (of, approved) in [("hay", false), ("oats", true)] {
        let seen = talk.until(&["session/inputNeededSet"]).await;
        let call = &last(&seen)["request"]["toolCall"];
        assert_eq!(call["toolInput"], format!("{{\"of\":\"{of}\"}}"), "{call}");
        let mut answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call["toolCallId"],
            "approved": approved });
        answer[if approved { "confirmed" } else { "reason" }] =
            if approved { "user-action" } else { "denied" }.into();
        talk.act(answer).await;
    }
    let seen = talk.until(&["session/inputNeededSet", "chat/turnComplete"]).await;
    let asked = &last(&seen)["request"];
    assert_eq!(
        (&asked["kind"], &asked["toolCall"]["toolInput"]),
        (&json!("toolClientExecution"), &json!("{\"of\":\"oats\"}"))
    );
}
