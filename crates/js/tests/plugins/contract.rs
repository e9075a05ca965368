//! The registration points, driven by plugins of JavaScript through the contract alone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::*;
use ostler_contract::points::*;
use ostler_contract::*;

fn start(heard: &Arc<Mutex<Vec<String>>>, prefix: &str, held: &Arc<()>) -> Start {
    let (emitted, recorded, held) = (heard.clone(), heard.clone(), held.clone());
    Start {
        uri: "parrot:/1".into(),
        chat_uri: "ahp-chat:/1".into(),
        chat_id: None,
        settings: json!({ "prefix": prefix }).as_object().cloned().unwrap(),
        chosen_settings: Default::default(),
        working_directory: Some("/srv/work".into()),
        additional: None,
        client_plugins: None,
        tools: None,
        mcp_servers: None,
        instructions: None,
        client_tool_timeout_ms: 0,
        emit: Func::new(move |(channel, action): (Emit, wire::StateAction)| {
            let _held = &held;
            let action = serde_json::to_value(&action).unwrap();
            emitted.lock().unwrap().push(format!(
                "{} {}",
                channel.as_str(),
                action["type"].as_str().unwrap()
            ));
            if let Some(content) = action["part"]["content"].as_str() {
                emitted.lock().unwrap().push(content.to_owned());
            }
            Ok(())
        }),
        subagent: None,
        read: None,
        client_settings: None,
        tools_server: None,
        terminals: None,
        computer: None,
        env: Default::default(),
        resume: None,
        fork_at: None,
        rewind_at: None,
        context: None,
        seed: None,
        seed_context: None,
        on_turn_recorded: Func::new(move |(turn, native)| {
            recorded.lock().unwrap().push(format!("{turn} is {native}"));
            Ok(())
        }),
        credentials: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_emits_through_the_start_it_was_handed() {
    let loader = Loader::default();
    let mut plugin = loader.load(&fixture("parrot.mjs"), "parrot", Value::Null).await.unwrap();
    assert_eq!(plugin.module.name, Some("parrot".into()));
    let engine = plugin.engine();
    let registry = plugin.fold();
    let agent = &registry.all::<Agent>()[0];
    assert_eq!(&*agent.provider, "parrot", "a getter of a class is read");
    assert_eq!(
        agent.defaults.unbounded(()).await.unwrap()["prefix"],
        "says ",
        "a method is called on its object"
    );
    assert_eq!(
        agent.probe.as_ref().unwrap().unbounded(()).await.unwrap().models[0].max_context_window,
        Some(1000)
    );

    let (heard, held) = (Arc::default(), Arc::new(()));
    let session = agent.create.unbounded((Frozen(start(&heard, "says ", &held)),)).await.unwrap();
    session.begin.unbounded(("t1".into(), "hello there".into(), None, None, None)).await.unwrap();
    assert_eq!(
        *heard.lock().unwrap(),
        [
            "chat chat/responsePart",
            "says hello there",
            "chat chat/delta",
            "t1 is native-t1",
            "chat chat/delta",
            "chat chat/turnComplete",
        ]
    );
    session.cancel.unbounded(("t1".into(),)).await.unwrap();
    let refused = session.cancel.unbounded(("t9".into(),)).await.unwrap_err();
    assert_eq!((refused.name.as_str(), refused.message.as_str()), ("Error", "no turn t9"));
    assert!(refused.stack.unwrap().contains("parrot.mjs:30"), "the stack names the author's line");

    // Everything is let go of: JavaScript's hold on the start, and the host's on the session.
    let before = engine.functions_held().await.unwrap();
    assert_eq!(Arc::strong_count(&held), 2);
    session.close.unbounded((Some(true),)).await.unwrap();
    drop(session);
    assert_eq!(engine.functions_held().await.unwrap(), before - 3, "begin, cancel and close are released");
    until("the start is released", || Arc::strong_count(&held) == 1).await;
    let weak = Arc::downgrade(&engine);
    drop((engine, registry, plugin));
    until("the engine ends with its last handle", || weak.strong_count() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_of_a_registration_read_as_a_native_plugins() {
    let loader = Loader::default();
    let plugin = loader
        .text(
            "const say = [];\n\
             const refused = (name, ...given) => (host) => {\n\
               try { host[name](...given); say.push(`${name} took it`); } catch (error) { say.push(`${error.name}: ${error.message}`); }\n\
             };\n\
             export function apply(host) {\n\
               const agent = { provider: 'a', displayName: 'A', schema() {}, defaults() {}, create() {} };\n\
               for (const attempt of [\n\
                 refused('registerAgent', {}),\n\
                 refused('registerAgent', { ...agent, create: 5 }),\n\
                 refused('registerAgent'),\n\
                 refused('registerAgent', { ...agent, provider: 'file' }),\n\
                 refused('registerAgent', agent),\n\
                 refused('registerAgent', { ...agent, provider: 'A' }),\n\
                 refused('registerTool', { definition: { name: '' }, run() {} }),\n\
                 refused('registerVault', { get() {} }),\n\
                 refused('registerRoute', 'x'),\n\
                 refused('registerTriggerType', { type: 'build', title: 'T', events: [{ id: 'a' }] }),\n\
                 refused('on', 'nonsense', () => {}),\n\
               ]) attempt(host);\n\
               host.registerTool({ definition: { name: 'say' }, run: () => say });\n\
             }",
        )
        .await
        .unwrap();
    let said: Vec<String> = serde_json::from_value(plugin.run("say", Value::Null).await.unwrap()).unwrap();
    insta::assert_snapshot!(said.join("\n"), @r"
    Error: plugin text: registerAgent needs provider to be a non-empty string
    Error: plugin text: registerAgent needs create to be a function
    Error: plugin text: registerAgent needs agent to be an object
    Error: plugin text: registerAgent needs provider to be a name other than file, which is reserved
    registerAgent took it
    Error: plugin text: registerAgent needs provider to be a provider no other agent in this plugin uses
    Error: plugin text: registerTool needs definition.name to be a non-empty string
    Error: plugin text: registerVault needs vault.set to be a function
    Error: plugin text: registerRoute needs handler to be a function
    Error: plugin text: registerTriggerType needs events[0].title to be a non-empty string
    Error: plugin text: on needs event to be one of session_start, session_end, session_opened, turn_start, turn_end, message, tool_call, input_needed_set, input_needed_removed, client_connect, client_disconnect, authenticated, automation_fire, resource_write, terminal_open, listening, stopping, log
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_registered_after_apply() {
    let loader = Loader::default();
    let plugin = loader
        .text(
            "export function apply(host) {\n\
               host.registerTool({ definition: { name: 'late' }, run: () => host.registerRoute(() => {}) });\n\
             }",
        )
        .await
        .unwrap();
    let thrown = plugin.run("late", Value::Null).await.unwrap_err();
    assert_eq!(thrown.message, "text: nothing may be registered after apply returned");
}

#[tokio::test(flavor = "multi_thread")]
async fn that_it_is_too_late_comes_before_what_is_wrong_with_it() {
    let loader = Loader::default();
    let plugin = loader
        .text(
            "const deep = {}; deep.down = deep;\n\
             export function apply(host) {\n\
               const late = (method, ...given) => { try { return host[method](...given); } catch (error) { return error.message; } };\n\
               host.registerTool({ definition: { name: 'late' }, run: () => [\n\
                 late('registerAgent'), late('registerTool', { definition: { name: 5 } }), late('registerVault', {}, 'never'),\n\
                 late('registerSessionConfig', 'k', deep), late('on', 'nonsense'), late('problem', 5),\n\
               ] });\n\
             }",
        )
        .await
        .unwrap();
    let said = plugin.run("late", Value::Null).await.unwrap();
    assert_eq!(said, json!(vec!["text: nothing may be registered after apply returned"; 6]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_names_the_plugin_the_method_and_the_field() {
    let loader = Loader::default();
    let plugin = loader
        .text(
            "export function apply(host) {\n\
               const said = async (call) => { try { return await call(); } catch (error) { return `${error.name}: ${error.message}`; } };\n\
               host.registerTool({ definition: { name: 'ask' }, run: async () => [\n\
                 await said(() => host.startSession({})), await said(() => host.startSession()),\n\
                 await said(() => host.secret('host:k', { team: 5 })), await said(() => host.fireTrigger('a', 5)),\n\
                 await said(() => host.recordUsage({ kind: 'toll' })), await said(() => host.records('notes', { body: 5 })),\n\
                 await said(() => host.log(5)), await said(() => host.parseYaml()),\n\
               ] });\n\
             }",
        )
        .await
        .unwrap();
    let said: Vec<String> = serde_json::from_value(plugin.run("ask", Value::Null).await.unwrap()).unwrap();
    insta::assert_snapshot!(said.join("\n"), @r"
    TypeError: plugin text: startSession needs owner to be a string
    TypeError: plugin text: startSession needs request to be an object
    TypeError: plugin text: secret needs scope.team to be a string
    TypeError: plugin text: fireTrigger needs event to be a string
    TypeError: plugin text: recordUsage needs kind to be one of model, computer
    TypeError: plugin text: records needs options.body to be a string
    TypeError: plugin text: log needs line to be a string
    TypeError: plugin text: parseYaml needs text to be a string
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_answers_and_fails() {
    let loader = Loader::default();
    let plugin = loader
        .text(
            "export async function apply(host, options) {\n\
               await null;\n\
               host.registerTool({\n\
                 definition: { name: 'shout', description: 'Louder.', inputSchema: { type: 'object' } },\n\
                 effects: { reads: true },\n\
                 run: async ({ text }, at) => { if (!text) throw new TypeError('nothing to shout'); return text.toUpperCase() + ' in ' + at.session; },\n\
               });\n\
             }",
        )
        .await
        .unwrap();
    let tool = plugin.tool("shout");
    assert_eq!(tool.definition.description.as_deref(), Some("Louder."));
    assert_eq!(tool.effects.unwrap().reads, Some(true));
    assert_eq!(plugin.run("shout", json!({ "text": "hello" })).await.unwrap(), json!("HELLO in echo:/1"));
    let thrown = plugin.run("shout", json!({})).await.unwrap_err();
    assert_eq!((thrown.name.as_str(), thrown.message.as_str()), ("TypeError", "nothing to shout"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_answers_as_its_members_promise() {
    let loader = Loader::default();
    let mut plugin = loader
        .text(
            "class Vault {\n\
               #kept = new Map([['host:a', '1']]);\n\
               get(name) { return this.#kept.get(name) ?? null; }\n\
               async set(name, value) { this.#kept.set(name, value); }\n\
               async delete(name) { return this.#kept.delete(name); }\n\
               list() { return [...this.#kept.keys()]; }\n\
             }\n\
             export function apply(host) { host.registerVault(new Vault(), 'replace'); }",
        )
        .await
        .unwrap();
    let registry = plugin.fold();
    let vault = registry.port::<Vault>().unwrap();
    assert_eq!(vault.get.unbounded(("host:a".into(),)).await, Ok(Some("1".into())));
    assert_eq!(vault.get.unbounded(("host:b".into(),)).await, Ok(None));
    vault.set.unbounded(("host:b".into(), "2".into())).await.unwrap();
    assert_eq!(vault.list.unbounded(()).await, Ok(vec!["host:a".into(), "host:b".into()]));
    assert_eq!(vault.delete.unbounded(("host:b".into(),)).await, Ok(true));
    assert_eq!(vault.delete.unbounded(("host:b".into(),)).await, Ok(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_store_calls_its_watchers_back() {
    let loader = Loader::default();
    let mut plugin = loader.load(&fixture("records.mjs"), "records", Value::Null).await.unwrap();
    let registry = plugin.fold();
    let store = registry.port::<RecordStore>().unwrap();
    let notes = store.collection.unbounded(("notes".into(), CollectionOptions::default())).await.unwrap();
    let (seen, held) = (Arc::new(Mutex::new(Vec::new())), Arc::new(()));
    let (sees, holds) = (seen.clone(), held.clone());
    let stop = notes
        .watch
        .unbounded((HostFunction::now(move |(change,): (RecordChange,)| {
            let _holds = &holds;
            sees.lock().unwrap().push(format!("{} {}", change.id, change.r#type.as_str()));
            Ok(())
        }),))
        .await
        .unwrap()
        .unwrap();
    let record = |value: Value| value.as_object().cloned().unwrap();
    notes
        .put
        .unbounded((record(json!({ "id": "a", "title": "Milk", "deep": { "list": [1, "x", null] } })),))
        .await
        .unwrap();
    notes.put.unbounded((record(json!({ "id": "a", "title": "Bread" })),)).await.unwrap();
    notes.put.unbounded((record(json!({ "id": "b", "title": "Bread" })),)).await.unwrap();
    assert_eq!(
        notes.get.unbounded(("a".into(),)).await.unwrap(),
        Some(record(json!({ "id": "a", "title": "Bread" })))
    );
    assert_eq!(notes.find.unbounded((record(json!({ "title": "Bread" })),)).await.unwrap().len(), 2);
    assert_eq!(notes.remove.unbounded(("b".into(),)).await, Ok(true));
    stop.unbounded(()).await.unwrap();
    drop(stop);
    assert_eq!(notes.remove.unbounded(("a".into(),)).await, Ok(true));
    assert_eq!(*seen.lock().unwrap(), ["a added", "a updated", "b added", "b deleted"]);
    until("the watcher is released", || Arc::strong_count(&held) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_on_the_host_answer_and_throw() {
    let loader = Loader::default();
    loader.host.secrets.lock().unwrap().insert("host:key".into(), "s3cret".into());
    let answer = run_with(&loader, "import { RpcError } from '@ostler/sdk'; let host; ", "return 'nothing'")
        .await
        .unwrap();
    assert_eq!(answer, "nothing");
    let plugin = loader
        .text(
            "import { RpcError } from '@ostler/sdk';\n\
             export function apply(host) {\n\
               host.registerTriggerType({ type: 'build', title: 'B', events: [{ id: 'done', title: 'D' }] });\n\
               host.registerTool({ definition: { name: 'run' }, run: async () => {\n\
                 const said = [host.path, host.paths.length, host.version, host.hostName, host.configDir];\n\
                 host.log('one line');\n\
                 said.push(await host.secret('host:key'));\n\
                 said.push(await host.secret('host:none').catch((error) => [error.name, error.message, error instanceof RpcError]));\n\
                 said.push(await host.startSession({ owner: 'user:a', provider: 'parrot' }));\n\
                 try { await host.startSession({ owner: 'user:a', prompt: '' }); } catch (error) {\n\
                   said.push([error instanceof RpcError, error instanceof Error, error.code, error.message, error.data]);\n\
                 }\n\
                 said.push(await host.sessionKept('echo:/1'), await host.sessionOwner('echo:/1'));\n\
                 try { host.parseYaml('{'); } catch (error) { said.push(error.message.slice(0, 7)); }\n\
                 said.push(host.parseYaml('{\"a\":1}'));\n\
                 const fired = host.fireTrigger('build', 'done', { ok: true });\n\
                 said.push(await fired.kept());\n\
                 said.push(await host.secret(5).catch((error) => [error.name, error.message]));\n\
                 try { host.log = 1; } catch (error) { said.push(error.name); }\n\
                 try { host.paths.push('/'); } catch (error) { said.push(error.name); }\n\
                 return said;\n\
               } });\n\
             }",
        )
        .await
        .unwrap();
    let said = plugin.run("run", Value::Null).await.unwrap();
    assert_eq!(
        said,
        json!([
            "/srv/work", 1, "1.2.3", "inn", "/etc/ostler",
            "s3cret",
            ["Error", "the vault holds no host:none", false],
            "parrot:/1",
            [true, true, -32602, "prompt is blank", { "field": "prompt" }],
            true, null,
            "no YAML",
            { "a": 1 },
            ["automations:/a/runs/1"],
            ["TypeError", "plugin text: secret needs name to be a string"],
            "TypeError", "TypeError",
        ])
    );
    assert_eq!(*loader.host.said.lock().unwrap(), ["text: one line"]);
    assert_eq!(loader.host.fired.lock().unwrap()[0].2, *json!({ "ok": true }).as_object().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thrown_rpc_error_keeps_its_code_and_data() {
    let loader = Loader::default();
    let thrown = run_with(
        &loader,
        "import { RpcError } from '@ostler/sdk';",
        "throw new RpcError(-32001, 'too many', { retry: 5 });",
    )
    .await
    .unwrap_err();
    let rpc = thrown.rpc.clone().unwrap();
    assert_eq!((thrown.name.as_str(), thrown.message.as_str(), rpc.code), ("RpcError", "too many", -32001));
    assert_eq!(rpc.data, Some(json!({ "retry": 5 })));
    // One of the author's own, without the SDK.
    let own = "const error = new Error('gone'); error.name = 'RpcError'; error.code = -32005; throw error;";
    assert_eq!(run_with(&loader, "", own).await.unwrap_err().rpc.unwrap().code, -32005);
    let node = "const error = new Error('no file'); error.code = 'ENOENT'; throw error;";
    assert_eq!(run_with(&loader, "", node).await.unwrap_err().rpc, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_runs_every_row_and_keeps_failures_apart() {
    let loader = Loader::default();
    let plugin = loader
        .text(
            "export function apply(host) {\n\
               let running = 0;\n\
               host.registerTool({ definition: { name: 'run' }, run: async (n) => {\n\
                 if (n === 1) throw new Error('not one');\n\
                 if (n === 2) return new Promise(() => {});\n\
                 running += 1; await new Promise((go) => setTimeout(go, 5)); return running * 100 + n;\n\
               } });\n\
             }",
        )
        .await
        .unwrap();
    let rows = (0..5).map(|n| (json!(n), place())).collect();
    let run = plugin.tool("run").run;
    let answers = run.each_within(Duration::from_secs(30), rows).await.unwrap();
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.map_err(|thrown| thrown.message)).collect();
    assert_eq!(answers[0], Ok(json!(300)), "rows with promises run at the same time");
    assert_eq!(answers[1], Err("not one".into()));
    assert_eq!(answers[2], Err("plugin text will never answer: its promise can no longer be settled".into()));
    assert_eq!(answers[3..], [Ok(json!(303)), Ok(json!(304))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_arrive_in_the_order_they_were_made() {
    let loader = Loader::default();
    let plugin = loader
        .text(
            "export function apply(host) {\n\
               const heard = [];\n\
               host.registerTool({ definition: { name: 'run' }, run: (n) => { heard.push(n); return heard; } });\n\
             }",
        )
        .await
        .unwrap();
    let tool = plugin.tool("run");
    // Awaited backwards: the order is that of the calls.
    let calls: Vec<_> = (0..50).map(|n| tool.run.unbounded((json!(n), place()))).collect();
    let mut last = Value::Null;
    for (at, call) in calls.into_iter().enumerate().rev() {
        let heard = call.await.unwrap();
        if at == 49 {
            last = heard;
        }
    }
    assert_eq!(last, json!((0..50).collect::<Vec<_>>()));
}
