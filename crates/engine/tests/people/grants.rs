//! Who may do what: every row of the tables, tried by somebody who holds exactly its grant, by somebody who holds
//! everything else, and by nobody.

use std::sync::Arc;

use ostler_contract::points::{
    Containers, ResourceContent, ResourceFacts, ResourceProvider, TerminalStore, Worktrees,
};
use ostler_contract::{Call, Plugin, Value, json};
use ostler_engine::users::{UsersFile, hash_of};
use ostler_engine::{People, Principal};
use ostler_ports::{MemoryAutomations, SqliteSessions, StateDb};
use ostler_protocol::actions::{ACTIONS, Scope};
use ostler_protocol::commands::{Command, NAMES, Needs};
use ostler_protocol::error::code;
use ostler_protocol::grants::{Grant, SCHEME_READ, SCHEME_WRITE, SUBJECTS};
use ostler_protocol::message::Params;
use ostler_protocol::uri::{self, Channel};
use ostler_testkit::{Builder, MemoryHost, RawClient, SIGN_IN, Stage};

/// A command with parameters that mean something here, and the grant the reference asks for it.
pub(crate) struct Row {
    pub name: &'static str,
    pub params: Value,
    pub asks: Option<&'static str>,
}

pub(crate) fn rows() -> Vec<Row> {
    let row = |name, asks, params| Row { name, params, asks };
    let session = "stage:/1";
    let note = json!({ "uri": "notes://a" });
    let there = json!({ "source": "notes://a", "destination": "notes://b" });
    vec![
        row("initialize", None, json!({ "clientId": "c", "protocolVersions": ["1.0.0"] })),
        row("ping", None, json!({})),
        row("reconnect", None, json!({ "clientId": "c", "lastSeenServerSeq": 0, "subscriptions": [] })),
        row("authenticate", None, json!({ "resource": SIGN_IN, "token": "" })),
        row("subscribe", None, json!({ "channel": uri::ROOT })),
        row("listSessions", Some("session:list"), json!({})),
        row("createSession", Some("session:create"), json!({ "channel": "stage:/2" })),
        row("disposeSession", Some("session:dispose"), json!({ "channel": session })),
        row("createChat", Some("chat:create"), json!({ "channel": session, "chat": "ahp-chat:/2" })),
        row("disposeChat", Some("chat:dispose"), json!({ "channel": "ahp-chat:/1" })),
        row("moveChat", Some("chat:move"), json!({ "channel": "ahp-chat:/1", "destination": "stage:/2" })),
        row("fetchTurns", Some("chat:turns"), json!({ "channel": uri::default_chat(session) })),
        row(
            "completions",
            Some("file:list"),
            json!({ "channel": session, "kind": "mention", "text": "a", "offset": 1 }),
        ),
        row("resolveSessionConfig", Some("session:create"), json!({})),
        row("sessionConfigCompletions", Some("session:create"), json!({ "property": "mood", "query": "" })),
        row("resourceRead", Some("notes:get"), note.clone()),
        row("resourceList", Some("notes:list"), note.clone()),
        row("resourceResolve", Some("notes:resolve"), note.clone()),
        row(
            "resourceWrite",
            Some("notes:put"),
            json!({ "uri": "notes://a", "data": "x", "encoding": "utf-8" }),
        ),
        row("resourceMkdir", Some("notes:mkdir"), note.clone()),
        row("resourceDelete", Some("notes:delete"), note.clone()),
        row("resourceMove", Some("notes:move"), there.clone()),
        row("resourceCopy", Some("notes:copy"), there),
        row("resourceRequest", Some("notes:request"), json!({ "uri": "notes://a", "read": true })),
        row("createResourceWatch", Some("notes:watch"), note),
        row(
            "createTerminal",
            Some("terminal:create"),
            json!({ "channel": "ahp-terminal:/1", "claim": { "kind": "client", "clientId": "c" } }),
        ),
        row("disposeTerminal", Some("terminal:dispose"), json!({ "channel": "ahp-terminal:/1" })),
        row("vscode/devContainers/isDockerAvailable", None, json!({})),
        row(
            "vscode/devContainers/connect",
            Some("container:connect"),
            json!({ "connectionId": "1", "workspaceFolder": "/srv" }),
        ),
        row(
            "vscode/devContainers/relaySend",
            Some("container:relay"),
            json!({ "connectionId": "1", "data": "{}" }),
        ),
        row("vscode/devContainers/disconnect", Some("container:disconnect"), json!({ "connectionId": "1" })),
        row("x-ostler/containers/stop", Some("container:stop"), json!({ "address": "a" })),
        row("x-ostler/containers/remove", Some("container:remove"), json!({ "address": "a" })),
        row(
            "vscode/createAgentHostDetachedWorktree",
            Some("session:worktree"),
            json!({ "session": session, "prompt": "" }),
        ),
        row("vscode/claimAgentHostDetachedWorktree", Some("session:worktree"), json!({ "handle": "1" })),
        row(
            "vscode/setAgentHostDetachedWorktreeArchived",
            Some("session:worktree"),
            json!({ "handle": "1", "archived": true }),
        ),
        row("vscode/deleteAgentHostDetachedWorktree", Some("session:worktree"), json!({ "handle": "1" })),
        row(
            "vscode/reconcileAgentHostDetachedWorktrees",
            Some("session:worktree"),
            json!({ "scope": "", "activeHandles": [] }),
        ),
        row(
            "invokeChangesetOperation",
            Some("session:changes"),
            json!({ "channel": "stage:/1/changeset/session", "operationId": "commit" }),
        ),
        row("listAutomationTriggerDefinitions", Some("automation:list"), json!({})),
        row(
            "runAutomation",
            Some("automation:run"),
            json!({ "automation": "ahp-automation:/a", "requestId": "1" }),
        ),
        row("x-ostler/usage/totals", None, json!({})),
        row("x-ostler/usage/records", None, json!({ "pool": "user:ada" })),
        row("x-ostler/usage/groups", None, json!({ "by": "user" })),
        row(
            "x-ostler/pull-request/create",
            Some("session:changes"),
            json!({ "channel": "stage:/1", "title": "Oats" }),
        ),
        row("x-ostler/diagnostics/network", Some("diagnostics:network"), json!({})),
        row(
            "x-ostler/diagnostics/fetch",
            Some("diagnostics:fetch"),
            json!({ "url": "https://example.com/" }),
        ),
        row("x-ostler/users/reload", None, json!({})),
        row("x-ostler/runs/list", Some("automation:list"), json!({ "limit": 1 })),
        row("fetchAutomationRuns", Some("automation:list"), json!({ "automation": "ahp-automation:/a" })),
    ]
}

/// Every single grant there is, but one.
fn all_but(grant: &Grant) -> Vec<String> {
    let scheme = SCHEME_READ.iter().chain(SCHEME_WRITE).map(|operation| format!("notes:{operation}"));
    let known = SUBJECTS.iter().flat_map(|subject| {
        subject.read.iter().chain(subject.write).map(move |operation| format!("{}:{operation}", subject.name))
    });
    let all: Vec<String> = known.chain(scheme).collect();
    assert!(all.contains(&grant.to_string()), "{grant} is no operation of its subject");
    all.into_iter().filter(|held| *held != grant.to_string()).collect()
}

/// A host with a session, a scheme that can do everything, and nobody yet.
async fn host() -> MemoryHost {
    let report = ostler_ports::Report::quiet();
    let store = SqliteSessions::new(StateDb::memory().unwrap(), report.clone());
    let host = builder()
        .sessions(Arc::new(store).into_point())
        .automations(Arc::new(MemoryAutomations::new(report).unwrap()).into_point())
        .people(People::new(SIGN_IN, "inn"))
        .start()
        .await;
    let mut root = host.raw_as(Principal::Root);
    root.initialize("root").await;
    root.request("createSession", json!({ "channel": "stage:/1" })).await.unwrap();
    host
}

/// A host on which each of the commands means something, without stores.
pub(crate) fn builder() -> Builder {
    let notes = Plugin::new("@test/notes", |host, _| {
        Box::pin(async move {
            let provider = ResourceProvider {
                read: Call::now(|_| Ok(ResourceContent::text("a note"))),
                list: Some(Call::now(|_| Ok(Vec::new()))),
                resolve: Some(Call::now(|_| {
                    Ok(ResourceFacts { r#type: "file".into(), ..ResourceFacts::default() })
                })),
                write: Some(Call::now(|_| Ok(()))),
                delete: Some(Call::now(|_| Ok(()))),
                mkdir: Some(Call::now(|_| Ok(()))),
                r#move: Some(Call::now(|_| Ok(()))),
                copy: Some(Call::now(|_| Ok(()))),
                request: Some(Call::now(|_| Ok(()))),
                watch: Some(Call::now(|_| Ok(None))),
                ..ResourceProvider::default()
            };
            let terminals =
                TerminalStore { create: Call::now(|_| Err("none".into())), ..TerminalStore::default() };
            let containers = Containers {
                available: Call::now(|()| Ok(true)),
                make: Call::now(|_| Err("none".into())),
                write: Call::now(|_| Ok(())),
                stop: Call::now(|_| Ok(())),
                remove: Call::now(|_| Ok(())),
                ..Containers::default()
            };
            host.register_terminals(terminals, None)?;
            host.register_containers(containers, None)?;
            let worktrees = Worktrees {
                repository: Call::now(|_| Ok(None)),
                branches: Call::now(|_| Ok(vec![])),
                create: Call::now(|_| Err("none".into())),
                dirty: Call::now(|_| Ok(false)),
                remove: Call::now(|_| Ok(())),
                ..Worktrees::default()
            };
            host.register_worktrees(worktrees, None)?;
            host.register_resource_provider("notes".into(), provider)
        })
    });
    MemoryHost::builder().plugin(Stage::default().plugin(), json!({})).plugin(notes, json!({})).own(|host| {
        let containers = Containers {
            available: Call::now(|()| Ok(true)),
            make: Call::now(|_| Err("none is made here".into())),
            write: Call::now(|_| Ok(())),
            stop: Call::now(|_| Ok(())),
            remove: Call::now(|_| Ok(())),
            ..Containers::default()
        };
        host.register_containers(containers, None)?;
        let create = Call::now(|_| Err("none is opened here".into()));
        host.register_terminals(TerminalStore { create, ..TerminalStore::default() }, None)
    })
}

/// Lets the host know one person, `ada`, who holds this, and makes a connection hers.
async fn ada(host: &MemoryHost, grants: &[String]) -> RawClient {
    let file = json!({
        "roles": { "r": grants },
        "users": [{ "id": "ada", "roles": ["r"], "token": hash_of("let ada in") }],
    });
    set(host, &file);
    let person = host.host.access.gate.people().unwrap().now().person("ada").unwrap();
    let mut client = host.raw_as(Principal::Person(person));
    client.initialize("c").await;
    client
}

/// A connection of somebody who holds this: of `ada`, or a plugin's own.
async fn holder(host: &MemoryHost, name: &str, grants: &[String]) -> RawClient {
    let Some(id) = name.strip_prefix("plugin:") else { return ada(host, grants).await };
    let grants = grants.iter().map(|grant| Grant::parse(grant).unwrap()).collect();
    let mut client = host.raw_as(Principal::Plugin { id: id.to_owned(), grants });
    client.initialize("p").await;
    client
}

const HOLDERS: [&str; 2] = ["ada", "plugin:caller"];

fn set(host: &MemoryHost, file: &Value) {
    let lines =
        host.host.access.gate.people().unwrap().set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    assert!(lines.is_empty(), "{lines:?}");
    host.host.review_authority();
}

fn declared(row: &Row) -> Option<Grant> {
    match Command::decode(row.name, &Params::from_value(&row.params).unwrap()).unwrap().needs() {
        Needs::Nothing => None,
        Needs::Grant(grant) => Some(grant),
        Needs::OnScheme { operation, uri } => Some(Grant::on(&uri::scheme(&uri).unwrap(), operation)),
    }
}

#[tokio::test]
async fn every_command_is_let_through_by_its_grant_and_by_no_other() {
    let rows = rows();
    let named: Vec<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(named, NAMES, "every command of the table is tried here");
    let host = host().await;
    for row in rows {
        let declared = declared(&row);
        assert_eq!(declared.as_ref().map(ToString::to_string).as_deref(), row.asks, "{}", row.name);
        let Some(grant) = declared else {
            // Open to a stranger: whatever is wrong, it is not who asks.
            let mut nobody = host.raw();
            if row.name != "initialize" {
                nobody.initialize("n").await;
            }
            let answer = nobody.request(row.name, row.params).await;
            let code = answer.err().map(|error| error["code"].clone());
            assert!(
                ![Some(json!(code::AUTH_REQUIRED)), Some(json!(code::PERMISSION_DENIED))].contains(&code),
                "{}",
                row.name
            );
            continue;
        };
        let mut nobody = host.raw();
        nobody.initialize("n").await;
        let refused = nobody.request(row.name, row.params.clone()).await.unwrap_err();
        assert_eq!(refused["code"], code::AUTH_REQUIRED, "{}: {refused}", row.name);
        assert_eq!(refused["data"]["resources"][0]["resource"], SIGN_IN, "{}", row.name);

        for name in HOLDERS {
            let mut without = holder(&host, name, &all_but(&grant)).await;
            let refused = without.request(row.name, row.params.clone()).await.unwrap_err();
            assert_eq!(refused["code"], code::PERMISSION_DENIED, "{}: {refused}", row.name);
            assert_eq!(refused["message"], format!("{name} may not {grant} here"), "{}", row.name);
            assert!(refused.get("data").is_none(), "{refused}");

            let mut with = holder(&host, name, &[grant.to_string()]).await;
            if let Err(error) = with.request(row.name, row.params.clone()).await {
                let message = error["message"].as_str().unwrap();
                assert!(
                    !message.contains("may not") && error["code"] != code::AUTH_REQUIRED,
                    "{}: {error}",
                    row.name
                );
            }
        }
    }
}

#[tokio::test]
async fn what_clients_publish_and_attach_asks_for_a_grant_too() {
    let host = host().await;
    let published = "vscode-agent-client://editor/file/-/a";
    let transfer = json!({ "source": published, "destination": format!("{published}b") });
    let own = json!({ "uri": published });
    let user = ada(&host, &["*:*".to_owned()]).await.connection.principal();
    let mut publisher = host.raw_as(user);
    publisher.initialize("editor").await;
    tokio::spawn(async move {
        while let Some(asked) = publisher.next_frame().await {
            let error = json!({ "code": code::NOT_FOUND, "message": "nothing there" });
            let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error });
            publisher.send(&answer.to_string()).await;
        }
    });
    for (method, grant, params) in [
        ("resourceRead", "file:get", own.clone()),
        ("resourceList", "file:list", own.clone()),
        ("resourceResolve", "file:resolve", own.clone()),
        ("resourceWrite", "file:put", json!({ "uri": published, "data": "x", "encoding": "utf-8" })),
        ("resourceDelete", "file:delete", own.clone()),
        ("resourceMkdir", "file:mkdir", own.clone()),
        ("resourceMove", "file:move", transfer.clone()),
        ("resourceCopy", "file:copy", transfer),
        ("resourceRequest", "file:request", own.clone()),
        ("createResourceWatch", "file:watch", own.clone()),
        ("resourceRead", "chat:turns", json!({ "uri": "ostler-attachment:/a" })),
        ("resourceResolve", "chat:turns", json!({ "uri": "ostler-attachment:/a" })),
    ] {
        let mut without = ada(&host, &all_but(&Grant::parse(grant).unwrap())).await;
        let refused = without.request(method, params.clone()).await.unwrap_err();
        let why = format!("ada may not {grant} here");
        assert_eq!((&refused["code"], &refused["message"]), (&json!(code::PERMISSION_DENIED), &json!(why)));
        let mut with = ada(&host, &[grant.to_owned()]).await;
        let answered = with.request(method, params).await.unwrap_err();
        assert_ne!(answered["code"], code::PERMISSION_DENIED, "{method}: {answered}");
    }
}

#[tokio::test]
async fn a_fork_asks_for_a_fork() {
    let host = host().await;
    let fork = json!({ "channel": "stage:/1", "chat": "ahp-chat:/2",
        "source": { "kind": "fork", "chat": "ahp-chat:/1", "turnId": "t" } });
    let grant = Grant::of("chat", "fork");
    let refused = ada(&host, &all_but(&grant)).await.request("createChat", fork.clone()).await.unwrap_err();
    assert_eq!(refused["message"], "ada may not chat:fork here");
    let other = ada(&host, &[grant.to_string()]).await.request("createChat", fork).await;
    assert!(other.err().is_none_or(|error| !error["message"].as_str().unwrap().contains("may not")));
}

/// A channel of each kind an action belongs to.
fn channel_of(scope: Scope) -> String {
    match scope {
        Scope::Root => uri::ROOT.to_owned(),
        Scope::Session => "stage:/1".to_owned(),
        Scope::Chat => uri::default_chat("stage:/1"),
        Scope::Terminal => "ahp-terminal:/1".to_owned(),
        Scope::Changeset => "stage:/1/changeset/session".to_owned(),
        Scope::Annotations => "stage:/1/annotations".to_owned(),
        Scope::ResourceWatch => "ahp-resource-watch:/1".to_owned(),
        Scope::Automations => uri::AUTOMATIONS.to_owned(),
        Scope::AutomationRun => "ahp-automation-run:/1".to_owned(),
        Scope::Canvas => "ahp-canvas:/1".to_owned(),
    }
}

/// Why the host did not take an action, if it said so.
async fn rejection(client: &mut RawClient, scope: Scope, name: &str) -> Option<String> {
    client.dispatch(&channel_of(scope), 7, json!({ "type": name })).await;
    // The answer to what is asked after it comes after it.
    client.request("ping", json!({})).await.unwrap();
    let said = client.ready_frames().await;
    let own = said.iter().find(|frame| frame["params"]["origin"]["clientSeq"] == 7)?;
    own["params"]["rejectionReason"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn every_action_is_let_through_by_its_grant_and_by_no_other() {
    let host = host().await;
    for row in ACTIONS {
        let Some(grant) = &row.client else {
            let mut root = host.raw_as(Principal::Root);
            root.initialize("root").await;
            let why = rejection(&mut root, row.scope, row.name).await.unwrap();
            assert_eq!(why, format!("only the host sends {}", row.name));
            continue;
        };
        let mut nobody = host.raw();
        nobody.initialize("n").await;
        let why = rejection(&mut nobody, row.scope, row.name).await;
        assert_eq!(
            why,
            Some(format!("sign in first: {grant} is not open to everybody here")),
            "{}",
            row.name
        );

        for name in HOLDERS {
            let mut without = holder(&host, name, &all_but(grant)).await;
            let why = rejection(&mut without, row.scope, row.name).await;
            assert_eq!(why, Some(format!("{name} may not {grant} here")), "{}", row.name);

            let mut with = holder(&host, name, &[grant.to_string()]).await;
            let why = rejection(&mut with, row.scope, row.name).await.unwrap_or_default();
            assert!(!why.contains("may not") && !why.contains("sign in"), "{}: {why}", row.name);
        }
    }
}

#[tokio::test]
async fn every_channel_is_watched_by_its_grant_and_by_no_other() {
    let host = host().await;
    let mut root = host.raw_as(Principal::Root);
    root.initialize("root").await;
    let watch = root.request("createResourceWatch", json!({ "uri": "notes://" })).await.unwrap();
    let watch = watch["channel"].as_str().unwrap().to_owned();
    let channels = [
        (uri::ROOT.to_owned(), None),
        ("stage:/1".to_owned(), Some("session:state")),
        (uri::default_chat("stage:/1"), Some("chat:turns")),
        ("ahp-chat:/1".to_owned(), Some("chat:turns")),
        (format!("ahp-chat://subagent/{}/call", "c3RhZ2U6LzE"), Some("chat:turns")),
        ("stage:/1/changeset/session".to_owned(), Some("session:state")),
        ("stage:/1/annotations".to_owned(), Some("session:state")),
        (uri::AUTOMATIONS.to_owned(), Some("automation:list")),
        ("ahp-automation-run:/1".to_owned(), Some("automation:list")),
        ("ahp-terminal:/1".to_owned(), Some("terminal:output")),
        (watch, Some("notes:watch")),
        // Nothing serves these two here: whoever comes to serve one asks the grant it declares.
        ("x-notes://a".to_owned(), None),
        ("ahp-unheard-of:/1".to_owned(), None),
        ("ahp-otlp://logs/info".to_owned(), Some("diagnostics:logs")),
    ];
    let mut kinds: Vec<u8> = channels
        .iter()
        .map(|(channel, _)| match Channel::parse(channel) {
            Channel::Root => 0,
            Channel::Session(_) => 1,
            Channel::Chat(_) => 2,
            Channel::DefaultChat(_) => 3,
            Channel::Worker { .. } => 4,
            Channel::Changeset { .. } => 5,
            Channel::Annotations(_) => 6,
            Channel::Automations => 7,
            Channel::AutomationRun(_) => 8,
            Channel::Terminal(_) => 9,
            Channel::ResourceWatch(_) => 10,
            Channel::Plugin { .. } => 11,
            Channel::Other => 12,
            Channel::Telemetry => 13,
        })
        .collect();
    kinds.sort_unstable();
    assert_eq!(kinds, (0..14).collect::<Vec<u8>>(), "every kind of channel is tried here, once");
    for (channel, asks) in channels {
        let params = json!({ "channel": channel });
        let Some(grant) = asks.map(|asks| Grant::parse(asks).unwrap()) else { continue };
        let mut nobody = host.raw();
        nobody.initialize("n").await;
        let refused = nobody.request("subscribe", params.clone()).await.unwrap_err();
        assert_eq!(refused["code"], code::AUTH_REQUIRED, "{channel}: {refused}");

        let mut without = ada(&host, &all_but(&grant)).await;
        let refused = without.request("subscribe", params.clone()).await.unwrap_err();
        assert_eq!(refused["message"], format!("ada may not {grant} here"), "{channel}");
        // Nor by coming in, nor by coming back.
        let initial =
            json!({ "clientId": "again", "protocolVersions": ["1.0.0"], "initialSubscriptions": [channel] });
        let person = host.host.access.gate.people().unwrap().now().person("ada").unwrap();
        let mut second = host.raw_as(Principal::Person(person.clone()));
        assert_eq!(second.request("initialize", initial).await.unwrap()["snapshots"], json!([]), "{channel}");
        let back = json!({ "clientId": "again", "lastSeenServerSeq": 0, "subscriptions": [channel] });
        let mut third = host.raw_as(Principal::Person(person));
        let back = third.request("reconnect", back).await.unwrap();
        assert!(back["missing"] == json!([channel]) || back["snapshots"] == json!([]), "{channel}: {back}");

        let mut with = ada(&host, &[grant.to_string()]).await;
        if let Err(error) = with.request("subscribe", params).await {
            assert!(!error["message"].as_str().unwrap().contains("may not"), "{channel}: {error}");
        }
    }
}
