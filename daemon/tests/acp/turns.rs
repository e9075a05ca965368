//! Turns of an agent that keeps to the protocol.

use std::io::BufRead;

use serde_json::{Value, json};

use crate::support::wait_for;
use crate::talk::{Stage, Talk, all, last, text_of};

#[tokio::test]
async fn a_prompt_streams_its_answer() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    assert_eq!(talk.say("hello").await, "You said: hello");
    let seen = talk.turn("!say one \n!say two").await;
    let kinds = seen.iter().map(|action| action["type"].as_str().unwrap());
    let kinds: Vec<&str> = kinds.filter(|kind| kind.starts_with("chat/")).collect();
    assert_eq!(kinds, ["chat/turnStarted", "chat/responsePart", "chat/delta", "chat/turnComplete"]);
    assert_eq!(text_of(&seen), "one two");
    assert!(last(&seen)["duration"].is_u64());
    assert_eq!(stage.daemon.stop(), Some(0));
}

#[tokio::test]
async fn thoughts_plans_and_notices_have_parts_of_their_own() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let thought =
        json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": "hm" } });
    let plan = |status: &str| {
        json!({ "sessionUpdate": "plan", "entries": [
            { "content": "Look", "priority": "high", "status": "completed" },
            { "content": "Leap", "priority": "low", "status": status },
        ] })
    };
    let notice =
        json!({ "sessionUpdate": "notice", "severity": "warning", "title": "Slow", "description": "Very." });
    let script = format!(
        "!update {thought}\n!update {}\n!update {}\n!update {}\n!update {notice}\n!say done",
        plan("pending"),
        plan("in_progress"),
        plan("completed")
    );
    let seen = talk.turn(&script).await;
    let parts: Vec<&Value> =
        all(&seen, "chat/responsePart").into_iter().map(|action| &action["part"]).collect();
    assert_eq!((&parts[0]["kind"], &parts[0]["content"]), (&json!("reasoning"), &json!("hm")));
    let notices: Vec<&str> =
        parts[1..4].iter().map(|part| part["content"]["markdown"].as_str().unwrap()).collect();
    assert_eq!(notices, ["- [x] Look\n- [ ] Leap", "- [x] Look\n- [x] Leap", "Warning: Slow\n\nVery."]);
    assert_eq!(parts[4]["content"], "done");
    let activities: Vec<&Value> =
        all(&seen, "chat/activityChanged").into_iter().map(|action| &action["activity"]).collect();
    assert!(
        activities.contains(&&json!("Leap")) && activities.last() == Some(&&Value::Null),
        "{activities:?}"
    );
}

#[tokio::test]
async fn a_tool_call_is_shown_with_its_input_edits_and_result() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let script = [
        json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Edit a", "kind": "edit", "status": "pending",
            "rawInput": { "path": "/a" }, "locations": [{ "path": "/a", "line": 3 }] }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress",
            "content": [{ "type": "content", "content": { "type": "text", "text": "working" } }] }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "rawOutput": { "ok": true },
            "content": [{ "type": "diff", "path": "/a", "oldText": "x\n", "newText": "y\nz\n" }] }),
    ];
    let script: Vec<String> = script.iter().map(|update| format!("!update {update}")).collect();
    let seen = talk.turn(&script.join("\n")).await;
    let start = all(&seen, "chat/toolCallStart")[0];
    assert_eq!((&start["toolName"], &start["displayName"]), (&json!("edit"), &json!("Edit a")));
    assert_eq!(start["_meta"]["ostler.locations"], json!([{ "uri": "file:///a", "line": 3 }]));
    let ready = all(&seen, "chat/toolCallReady")[0];
    assert_eq!(
        (&ready["confirmed"], &ready["toolInput"]),
        (&json!("not-needed"), &json!("{\"path\":\"/a\"}"))
    );
    let content = all(&seen, "chat/toolCallContentChanged")[0];
    assert_eq!(content["content"], json!([{ "type": "text", "text": "working" }]));
    let result = &all(&seen, "chat/toolCallComplete")[0]["result"];
    assert_eq!((&result["success"], &result["pastTenseMessage"]), (&json!(true), &json!("Edit a")));
    assert_eq!(result["content"][0]["diff"], json!({ "added": 2, "removed": 1 }));
    for (side, text) in [("before", "x\n"), ("after", "y\nz\n")] {
        let uri = result["content"][0][side]["content"]["uri"].as_str().unwrap();
        // VS Code puts it into a URI with an authority, whose path begins with a slash.
        assert!(uri.split_once(':').unwrap().1.starts_with("/a?"), "{uri}");
        let named = json!({ "channel": "ahp-root://", "uri": uri });
        let read = talk.client.request("resourceRead", named.clone()).await.unwrap();
        assert_eq!(read["data"], text);
        assert_eq!(talk.client.request("resourceResolve", named).await.unwrap()["size"], text.len());
    }
    assert_eq!(result["structuredContent"], json!({ "ok": true }));
}

fn permission() -> Value {
    json!({ "toolCall": { "toolCallId": "c", "title": "Run rm", "kind": "execute", "rawInput": { "command": "rm" } },
        "options": [
            { "optionId": "no", "name": "Never", "kind": "reject_once" },
            { "optionId": "server", "name": "Trust the server", "kind": "allow_always" },
            { "optionId": "tool", "name": "Trust the tool", "kind": "allow_always" },
            { "optionId": "yes", "name": "Once", "kind": "allow_once" },
        ] })
}

#[tokio::test]
async fn an_approval_offers_every_option_and_answers_with_the_chosen_one() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    for (approved, option, expected) in [
        (true, Some("tool"), json!({ "outcome": "selected", "optionId": "tool" })),
        (true, None, json!({ "outcome": "selected", "optionId": "yes" })),
        (false, Some("no"), json!({ "outcome": "selected", "optionId": "no" })),
        (false, None, json!({ "outcome": "selected", "optionId": "no" })),
    ] {
        let mut ask = permission();
        // What was answered for always is not asked again.
        ask["toolCall"]["title"] = format!("Run rm {approved} {option:?}").into();
        let turn = talk.begin(&format!("!request session/request_permission {ask}")).await;
        let seen = talk.until(&["session/inputNeededSet"]).await;
        let asked = &last(&seen)["request"];
        assert_eq!((&asked["kind"], &asked["turnId"]), (&json!("toolConfirmation"), &json!(turn)));
        assert_eq!(
            asked["toolCall"]["options"],
            json!([
                { "id": "no", "label": "Never", "kind": "deny", "group": 1 },
                { "id": "server", "label": "Trust the server", "kind": "approve", "group": 0 },
                { "id": "tool", "label": "Trust the tool", "kind": "approve", "group": 0 },
                { "id": "yes", "label": "Once", "kind": "approve", "group": 0 },
            ])
        );
        let mut answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": "c", "approved": approved });
        match approved {
            true => answer["confirmed"] = "user-action".into(),
            false => answer["reason"] = "denied".into(),
        }
        if let Some(option) = option {
            answer["selectedOptionId"] = option.into();
        }
        talk.act(answer).await;
        let seen = talk.until(&["chat/turnComplete"]).await;
        assert_eq!(
            serde_json::from_str::<Value>(&text_of(&seen)).unwrap()["outcome"],
            expected,
            "{approved} {option:?}"
        );
    }
}

#[tokio::test]
async fn a_cancelled_turn_ends_and_the_next_waits_for_the_agent() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let turn = talk.begin("!say begun\n!wait").await;
    talk.until(&["chat/responsePart"]).await;
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    talk.until(&["chat/turnCancelled"]).await;
    assert_eq!(talk.say("again").await, "You said: again");
}

#[tokio::test]
async fn what_comes_of_a_cancelled_prompt_is_not_in_the_next_turn() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let turn = talk.begin("!say begun\n!wait too late").await;
    talk.until(&["chat/responsePart"]).await;
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    talk.until(&["chat/turnCancelled"]).await;
    assert_eq!(talk.say("again").await, "You said: again");
}

#[tokio::test]
async fn a_cancelled_turn_cancels_its_approvals() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path() }));
    let mut talk = stage.talk().await;
    let turn = talk.begin(&format!("!request session/request_permission {}", permission())).await;
    talk.until(&["session/inputNeededSet"]).await;
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    talk.until(&["session/inputNeededRemoved"]).await;
    let cancelled = "\"outcome\":{\"outcome\":\"cancelled\"}";
    let told = wait_for(|| std::fs::read_to_string(log.path()).unwrap().contains(cancelled).then_some(()));
    assert!(told.is_some(), "{}", std::fs::read_to_string(log.path()).unwrap());
}

#[tokio::test]
async fn settings_are_the_agents_own() {
    let options = json!([
        { "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": "small",
            "options": [{ "value": "small", "name": "Small" }, { "value": "large", "name": "Large" }] },
        { "id": "fast", "name": "Fast", "type": "boolean", "currentValue": false },
    ]);
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path(), "new": { "configOptions": options } }));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let resolved = talk
        .client
        .request("resolveSessionConfig", json!({ "provider": "fake", "config": {} }))
        .await
        .unwrap();
    let model = &resolved["schema"]["properties"]["model"];
    assert_eq!(
        (&model["enum"], &model["enumLabels"]),
        (&json!(["small", "large"]), &json!(["Small", "Large"]))
    );
    assert_eq!(resolved["values"]["fast"], false);
    for (typed, expected) in [("LAR", json!(["large"])), ("", json!(["small", "large"])), ("hay", json!([]))]
    {
        let params = json!({ "provider": "fake", "property": "model", "query": typed });
        let items = talk.client.request("sessionConfigCompletions", params).await.unwrap()["items"].clone();
        let values: Value = items.as_array().unwrap().iter().map(|item| item["value"].clone()).collect();
        assert_eq!(values, expected, "{items}");
    }
    let mut talk = stage.talk_in("fake:/two", json!({ "model": "large", "fast": true })).await;
    talk.say("hello").await;
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let sent: Vec<Value> = sent.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let set: Vec<&Value> = sent
        .iter()
        .filter(|frame| frame["method"] == "session/set_config_option")
        .map(|frame| &frame["params"])
        .collect();
    assert_eq!(set.len(), 2, "{set:?}");
    assert!(set.iter().any(|params| params["configId"] == "model" && params["value"] == "large"));
    assert!(set.iter().any(|params| params["configId"] == "fast"
        && params["type"] == "boolean"
        && params["value"] == true));
}

#[tokio::test]
async fn files_and_terminals_are_served() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let file = stage.work().join("a.txt");
    let write = json!({ "path": file, "content": "one\ntwo\n" });
    let read = json!({ "path": file, "line": 2 });
    let outside = json!({ "path": "/etc/passwd" });
    let said = talk
        .say(&format!(
            "!request fs/write_text_file {write}\n!request fs/read_text_file {read}\n!request fs/read_text_file {outside}"
        ))
        .await;
    assert!(said.contains("{\"content\":\"two\\n\"}"), "{said}");
    assert!(said.contains("/etc/passwd is outside the session's directories"), "{said}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "one\ntwo\n");
    let create = json!({ "command": "printf", "args": ["%s", "hay"] });
    let of = json!({ "terminalId": "terminal-1" });
    let said = talk
        .say(&format!(
            "!request terminal/create {create}\n!request terminal/wait_for_exit {of}\n!request terminal/output {of}\n\
             !request terminal/release {of}\n!request terminal/output {of}"
        ))
        .await;
    assert!(said.contains("{\"exitCode\":0,\"signal\":null}"), "{said}");
    assert!(said.contains("\"output\":\"hay\"") && said.contains("\"truncated\":false"), "{said}");
    assert!(said.contains("there is no terminal terminal-1"), "{said}");
}

#[tokio::test]
async fn commands_and_the_title_are_the_sessions() {
    let commands = json!({ "sessionUpdate": "available_commands_update",
        "availableCommands": [{ "name": "plan", "description": "Plans." }] });
    let title = json!({ "sessionUpdate": "session_info_update", "title": "Haymaking" });
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    talk.begin(&format!("!update {commands}\n!update {title}")).await;
    let seen = talk.until(&["session/customizationUpdated"]).await;
    let children = &last(&seen)["customization"]["children"];
    assert_eq!((&children[0]["name"], &children[0]["description"]), (&json!("plan"), &json!("Plans.")));
    let seen = talk.until(&["session/titleChanged"]).await;
    assert_eq!(last(&seen)["title"], "Haymaking");
}

#[tokio::test]
async fn a_refusal_and_the_agents_own_cancellation_are_ends_of_their_own() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let error = talk.fail("!say no\n!stop refusal").await;
    assert_eq!(error["errorType"], "refusal");
    assert_eq!(last(&talk.turn("!stop cancelled").await)["type"], "chat/turnCancelled");
    let seen = talk.turn("!say cut\n!stop max_tokens").await;
    let notice = &all(&seen, "chat/responsePart")[1]["part"]["content"]["markdown"];
    assert_eq!(notice, "The answer stopped at the model's limit of tokens");
}

#[tokio::test]
async fn a_turn_costs_what_it_adds_to_the_session() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    for (total, added) in [(0.25, 0.25), (0.75, 0.5)] {
        let usage = json!({ "sessionUpdate": "usage_update", "used": 10, "size": 100,
            "cost": { "amount": total, "currency": "EUR" } });
        let seen = talk.turn(&format!("!update {usage}")).await;
        let meta = &last(&seen[..=seen.iter().position(|action| action["type"] == "chat/usage").unwrap()])["usage"]
            ["_meta"];
        assert_eq!(meta["ostler.cost"], json!({ "amount": added, "currency": "EUR" }));
        assert_eq!((&meta["ostler.contextTokens"], &meta["ostler.contextSize"]), (&json!(10), &json!(100)));
    }
}

#[tokio::test]
async fn a_cost_that_cannot_be_one_is_left_out() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let turn = async |talk: &mut Talk, amount: Value, currency: &str| {
        let usage = json!({ "sessionUpdate": "usage_update", "used": 10, "size": 100,
            "cost": { "amount": amount, "currency": currency } });
        let seen = talk.turn(&format!("!update {usage}")).await;
        all(&seen, "chat/usage")[0]["usage"]["_meta"].clone()
    };
    assert_eq!(turn(&mut talk, json!(0.25), "EUR").await["ostler.cost"]["amount"], 0.25);
    let long = "E".repeat(1000);
    for (amount, currency) in
        [(json!(1e308), "EUR"), (json!(1e10), "EUR"), (json!(-1.0), "EUR"), (json!(0.5), long.as_str())]
    {
        let meta = turn(&mut talk, amount.clone(), currency).await;
        assert_eq!(
            (&meta["ostler.cost"], &meta["ostler.contextTokens"]),
            (&Value::Null, &json!(10)),
            "{amount}"
        );
    }
    stage.folder.wait_for_log("an implausible cost is left out");
    assert_eq!(turn(&mut talk, json!(0.75), "EUR").await["ostler.cost"]["amount"], 0.5);
    let read = async |talk: &mut Talk, command: &str, uri: &str| {
        talk.client.request(command, json!({ "channel": "ahp-root://", "uri": uri })).await.unwrap()
    };
    let pools = read(&mut talk, "resourceList", "usage://").await;
    let pool = pools["entries"][0]["name"].as_str().unwrap().to_owned();
    let records = read(&mut talk, "resourceRead", &format!("usage://{pool}/records")).await.to_string();
    assert!(
        records.contains("0.25") && !records.contains("e308") && !records.contains("00000000"),
        "{records}"
    );
}

/// VS Code does not let users choose an agent without models.
#[tokio::test]
async fn an_agent_whose_models_are_unknown_offers_its_own_choice() {
    let models =
        json!({ "currentModelId": "large", "availableModels": [{ "modelId": "large", "name": "Large" }] });
    for new in [json!({}), json!({ "models": models })] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let stage = Stage::new(json!({ "log": log.path(), "new": new }));
        let mut talk = stage.talk().await;
        let offered = talk.client.subscribe("ahp-root://").await["agents"][0]["models"].clone();
        assert_eq!(offered, json!([{ "id": "default", "provider": "fake", "name": "Default" }]));
        let message = json!({ "text": "!say hello", "model": { "id": "default" } });
        for turn in ["first", "second"] {
            talk.act(json!({ "type": "chat/turnStarted", "turnId": turn, "message": message })).await;
            let seen = talk.until(&["chat/turnComplete"]).await;
            assert!(json!(seen).to_string().contains("hello"), "{seen:#?}");
        }
        let sent = std::fs::read_to_string(log.path()).unwrap();
        assert!(sent.contains("session/prompt") && !sent.contains("set_model"), "{sent}");
    }
}

#[tokio::test]
async fn what_an_agent_reported_is_known_after_a_restart() {
    let options = json!([{ "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": "small",
        "options": [{ "value": "small", "name": "Small" }] }]);
    let sees = json!({ "agentCapabilities": { "promptCapabilities": { "image": true } } });
    let stage = Stage::new(json!({ "initialize": sees, "new": { "configOptions": options } }));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let stored = wait_for(|| stage.folder.read("acp-agents/fake.md").contains("Small").then_some(()));
    assert!(stored.is_some());
    drop(talk);
    let stage = stage.restarted(true);
    let mut client = stage.daemon.initialized("later").await;
    let resolved =
        client.request("resolveSessionConfig", json!({ "provider": "fake", "config": {} })).await.unwrap();
    assert_eq!(resolved["schema"]["properties"]["model"]["enum"], json!(["small"]), "no agent was started");
    let root = client.subscribe("ahp-root://").await;
    let model = json!({ "id": "small", "provider": "fake", "name": "Small", "supportsVision": true });
    assert_eq!(root["agents"][0]["models"], json!([model]), "{root}");
}

#[tokio::test]
async fn a_fork_knows_the_turns_up_to_it_and_no_later_one() {
    let stage = Stage::new(json!({ "initialize": { "agentCapabilities": { "loadSession": true } } }));
    let mut talk = stage.talk().await;
    let first = talk.begin("remember seven").await;
    talk.until(&["chat/turnComplete"]).await;
    talk.say("forget eight").await;
    let chat = "ahp-chat:/forked";
    let source = json!({ "kind": "fork", "chat": talk.chat, "turnId": first });
    let params = json!({ "channel": talk.session, "chat": chat, "source": source });
    talk.client.request("createChat", params).await.unwrap();
    talk.client.subscribe(chat).await;
    talk.chat = chat.to_owned();
    let said = talk.say("!heard").await;
    assert!(said.contains("User: remember seven") && !said.contains("eight"), "{said}");
}

#[tokio::test]
async fn an_agent_is_signed_in_where_that_is_configured() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut entry = crate::agent::entry(json!({ "log": log.path() }));
    entry["authenticate"] = "api-key".into();
    let stage = Stage::of(entry, json!({}));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let methods: Vec<String> = sent
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["method"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(methods, ["initialize", "authenticate", "session/new", "session/prompt"]);
    assert!(sent.contains("\"methodId\":\"api-key\""), "{sent}");
}

#[tokio::test]
async fn more_directories_reach_an_agent_that_takes_them() {
    for takes in [true, false] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let capabilities =
            if takes { json!({ "sessionCapabilities": { "additionalDirectories": {} } }) } else { json!({}) };
        let stage =
            Stage::new(json!({ "log": log.path(), "initialize": { "agentCapabilities": capabilities } }));
        let folders = ["a", "b"].map(|name| stage.work().join(name));
        folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let uris = folders.each_ref().map(|folder| format!("file://{}", folder.display()));
        let mut client = stage.daemon.initialized("one").await;
        let params = json!({ "channel": "fake:/one", "provider": "fake", "workingDirectories": uris });
        client.request("createSession", params).await.unwrap();
        let mut talk = crate::talk::Talk::join(client, "fake:/one").await;
        // Files in both are served, others not.
        let read = |path: &std::path::Path| {
            format!("!request fs/read_text_file {}", json!({ "path": path.join("f") }))
        };
        std::fs::write(folders[1].join("f"), "hay").unwrap();
        std::fs::write(stage.work().join("f"), "secret").unwrap();
        let said = talk.say(&format!("{}\n{}", read(&folders[1]), read(&stage.work()))).await;
        assert!(said.contains("hay") && !said.contains("secret"), "{said}");
        let sent = std::fs::read_to_string(log.path()).unwrap();
        let opened = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let opened = opened.into_iter().find(|frame| frame["method"] == "session/new").unwrap();
        assert_eq!(opened["params"]["cwd"], json!(folders[0]));
        let expected = if takes { json!([folders[1]]) } else { Value::Null };
        assert_eq!(opened["params"]["additionalDirectories"], expected, "{sent}");
        if !takes {
            stage.folder.wait_for_log("the agent works in one directory; the others are left out");
        }
    }
}

#[tokio::test]
async fn directories_that_change_during_a_session_reach_its_agent() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let capabilities = json!({ "sessionCapabilities": { "additionalDirectories": {}, "resume": {} } });
    let stage = Stage::new(json!({ "log": log.path(), "initialize": { "agentCapabilities": capabilities } }));
    let folders = ["a", "b"].map(|name| stage.work().join(name));
    for folder in &folders {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("f"), "hay").unwrap();
    }
    let uris = folders.each_ref().map(|folder| format!("file://{}", folder.display()));
    let mut client = stage.daemon.initialized("one").await;
    let params = json!({ "channel": "fake:/one", "provider": "fake", "workingDirectories": [uris[0]] });
    client.request("createSession", params).await.unwrap();
    let mut talk = crate::talk::Talk::join(client, "fake:/one").await;
    let mut changer = stage.daemon.initialized("two").await;
    changer.subscribe("fake:/one").await;
    let mut change = async |seq: i64, name: &str| {
        changer.dispatch("fake:/one", seq, json!({ "type": name, "directory": uris[1] })).await;
        let taken = changer.actions_until(name).await.pop().unwrap();
        assert!(taken.get("rejectionReason").is_none(), "{taken}");
    };
    let read = format!("!request fs/read_text_file {}", json!({ "path": folders[1].join("f") }));
    assert!(!talk.say(&read).await.contains("hay"));
    change(1, "session/workingDirectorySet").await;
    assert!(talk.say(&read).await.contains("hay"));
    change(2, "session/workingDirectoryRemoved").await;
    assert!(!talk.say(&read).await.contains("hay"), "a directory that is removed is not served any more");
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let opened =
        frames.filter(|frame| matches!(frame["method"].as_str(), Some("session/new" | "session/resume")));
    let directories: Vec<Value> =
        opened.map(|frame| frame["params"]["additionalDirectories"].clone()).collect();
    assert_eq!(directories, [Value::Null, json!([folders[1]]), Value::Null], "{sent}");
}

#[tokio::test]
async fn what_an_agent_reports_is_recorded_as_usage() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    for total in [0.25, 0.75] {
        let usage = json!({ "sessionUpdate": "usage_update", "used": 10, "size": 100,
            "cost": { "amount": total, "currency": "EUR" } });
        talk.turn(&format!("!update {usage}")).await;
    }
    let params = json!({ "channel": "ahp-root://", "uri": "usage://" });
    let pools = talk.client.request("resourceList", params).await.unwrap();
    let pool = pools["entries"][0]["name"].as_str().unwrap().to_owned();
    let params = json!({ "channel": "ahp-root://", "uri": format!("usage://{pool}/records") });
    let records = talk.client.request("resourceRead", params).await.unwrap();
    let records: Value = serde_json::from_str(records["data"].as_str().unwrap()).unwrap();
    let text = records.to_string();
    assert!(
        text.contains("\"amount\":0.25") && text.contains("\"amount\":0.5") && text.contains("EUR"),
        "{text}"
    );
}

#[tokio::test]
async fn the_daemons_variables_reach_the_agent_and_its_own_do_not() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let path = std::env::var("PATH").unwrap();
    assert_eq!(talk.say("!env PATH").await, path);
    assert_eq!(talk.say("!env OSTLER_SESSION").await, "fake:/one");
    assert_eq!(talk.say("!env OSTLER_CONNECTION_TOKEN").await, "nothing");
}

#[tokio::test]
async fn a_provider_with_a_reserved_or_an_invalid_name_is_one_problem() {
    let other = crate::agent::entry(json!({}));
    let long = "a".repeat(41);
    let agents = json!({ "agents": { "session": other, "x-mine": other, "Not a name": other, "Up.Per": other,
        "two+parts": other, &long: other } });
    let mut stage = Stage::with(json!({}), agents);
    // They follow the line about the token.
    let mut lines = String::new();
    for _ in 0..6 {
        stage.daemon.out.read_line(&mut lines).unwrap();
    }
    for name in ["session", "x-mine", "Not a name", "Up.Per", "two+parts", &long] {
        let line = lines.lines().find(|line| line.contains(&format!("agents.{name}: ")));
        let line = line.unwrap_or_else(|| panic!("{name}: {lines}"));
        assert!(line.starts_with("skipped: "), "{line}");
        if name != "session" && name != "x-mine" {
            assert!(line.contains("lowercase letters, digits and dashes, 1 to 40 characters"), "{line}");
        }
    }
    let mut talk = stage.talk().await;
    assert_eq!(talk.say("hello").await, "You said: hello", "the others load");
}

#[tokio::test]
async fn an_entry_whose_secret_is_missing_is_one_problem() {
    let mut other = crate::agent::entry(json!({}));
    other["env"]["KEY"] = json!({ "$secret": "host:missing" });
    let mut stage = Stage::with(json!({}), json!({ "agents": { "other": other } }));
    let mut line = String::new();
    stage.daemon.out.read_line(&mut line).unwrap();
    assert!(
        line.starts_with("skipped: ")
            && line.contains("agents.other is left out: agents.other.env.KEY names host:missing: the vault holds no host:missing"),
        "{line}"
    );
    let mut talk = stage.talk().await;
    assert_eq!(talk.say("hello").await, "You said: hello", "the others load");
    let params = json!({ "channel": "other:/one", "provider": "other" });
    assert!(talk.client.request("createSession", params).await.is_err());
}
