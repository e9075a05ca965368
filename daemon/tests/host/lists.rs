//! Runs and sessions as other programs find them: their URLs, lists of them over HTTP, and streams of their changes.

use std::time::Duration;

use crate::support::{Daemon, Folder, LIMIT};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

const TOKEN: &str = "the-token";

/// A folder with an endpoint `in` and these automations for it, which say their messages to the echo backend.
fn folder(config: Value, automations: &[(&str, &str)]) -> Folder {
    let mut all = json!({
        "connectionToken": TOKEN, "http": true,
        "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }],
    });
    all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    let folder = Folder::new(all);
    folder.write("webhooks/in.md", "---\nid: in\nautomation: true\nsecret: host:in\n---\n");
    folder.write("vault.json", r#"{ "host:in": "right" }"#);
    for (id, message) in automations {
        folder.write(
            &format!("automations/{id}.md"),
            &format!(
                "---\ntitle: Title of {id}\nsession: {{ provider: echo }}\ntriggers:\n  - id: called\n    kind: event\n    \
                 type: webhook\n    events: [{{ id: call }}]\n    config: {{ endpoint: in }}\n\
                 _meta: {{ ostler: {{ overlap: parallel, hourlyCap: 1000000 }} }}\n---\n{message}\n"
            ),
        );
    }
    folder
}

/// The head and the body of the answer to a call of the endpoint.
async fn call(daemon: &Daemon, body: &Value) -> (String, Value) {
    let (host, body) = (daemon.address(), body.to_string());
    let length = body.len();
    let answer = daemon
        .exchange(
            format!(
                "POST /plugins/webhook/in HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer right\r\n\
                 Content-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )
        .await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 202 "), "{answer}");
    (head.to_owned(), serde_json::from_str(body).unwrap())
}

/// The values of a header.
fn headers<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

async fn get(daemon: &Daemon, path: &str, token: &str) -> (u16, Value) {
    daemon.ask(&format!("GET {path}"), &format!("Authorization: Bearer {token}\r\n"), "").await
}

async fn list(daemon: &Daemon, path: &str) -> Value {
    let (status, body) = get(daemon, path, TOKEN).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Waits until a list of runs has so many that have ended.
async fn ended_runs(daemon: &Daemon, count: usize) -> Vec<Value> {
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let listed = list(daemon, "/api/runs?limit=500").await;
        let runs = listed["runs"].as_array().unwrap();
        if runs.len() == count && runs.iter().all(|run| run["endedAt"].is_string()) {
            return runs.clone();
        }
        assert!(tokio::time::Instant::now() < deadline, "{listed}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_call_answers_where_its_runs_are() {
    let folder = folder(json!({}), &[("one", "See {{run.url}}")]);
    let daemon = folder.start();
    let (head, body) = call(&daemon, &json!({ "ref": "main" })).await;
    assert_eq!(body, json!({ "endpoint": "in" }), "the body is as before");
    let located = headers(&head, "location");
    assert_eq!((located.len(), headers(&head, "link").len()), (1, 0), "{head}");
    let path = located[0].strip_prefix(&format!("http://{}", daemon.address())).unwrap();
    let run = ended_runs(&daemon, 1).await.remove(0);
    assert_eq!(list(&daemon, path).await["uri"], run["uri"]);
    assert_eq!(run["url"], located[0]);
    assert_eq!(
        (&run["title"], &run["state"], &run["event"]["ref"], &run["trigger"], &run["triggeredBy"]),
        (
            &json!("Title of one"),
            &json!("completed"),
            &json!("main"),
            &json!("called"),
            &json!("plugin:webhook")
        )
    );
    // The session has the run, and its message the run's URL.
    let session = run["session"].as_str().unwrap();
    let seen = list(&daemon, &format!("/api/sessions/{}", session.rsplit('/').next().unwrap())).await;
    assert_eq!((&seen["uri"], &seen["run"]), (&run["session"], &run["id"]));
    let mut client = crate::support::Client::connect(&format!("{}/?tkn={TOKEN}", daemon.url)).await;
    client.initialize("reader").await;
    let chat = client.subscribe(&ostler_protocol::uri::default_chat(session)).await;
    let said = chat["turns"][0]["message"]["text"].as_str().unwrap();
    assert!(said.starts_with(&format!("See {}\n", located[0])), "{said}");

    // Several runs: a link to each.
    for id in ["two", "three"] {
        let text = folder.read("automations/one.md");
        folder.write(&format!("automations/{id}.md"), &text);
    }
    let links = loop {
        let (head, _) = call(&daemon, &json!({})).await;
        let links: Vec<String> = headers(&head, "link").into_iter().map(str::to_owned).collect();
        // A new file is read within a moment.
        if links.len() == 3 {
            assert!(headers(&head, "location").is_empty(), "{head}");
            break links;
        }
    };
    for link in links {
        let url = link.strip_prefix('<').unwrap().strip_suffix(r#">; rel="item""#).unwrap();
        let path = url.strip_prefix(&format!("http://{}", daemon.address())).unwrap();
        assert_eq!(list(&daemon, path).await["url"], url);
    }
}

#[tokio::test]
async fn every_field_that_a_message_shows_is_read_of_a_large_call() {
    let folder = folder(json!({}), &[("one", r#"Say {{{event.text}}} of {"n":{{event.a.b}}}"#)]);
    let daemon = folder.start();
    let long = |word: &str| word.repeat(2_500);
    let body = json!({ "text": long("ab"), "a": { "b": long("cd") }, "unread": long("x").repeat(200) });
    call(&daemon, &body).await;
    let run = ended_runs(&daemon, 1).await.remove(0);
    let id = run["session"].as_str().unwrap().rsplit('/').next().unwrap();
    let session = list(&daemon, &format!("/api/sessions/{id}?turns=1")).await;
    let said = session["turns"][0]["message"]["text"].as_str().unwrap();
    assert!(said.starts_with(&format!("Say {{{}}} of {{\"n\":{}}}\n", long("ab"), long("cd"))), "{said}");
}

#[cfg(feature = "console")]
#[tokio::test]
async fn links_begin_with_the_public_url_and_lead_to_the_console() {
    let plugins =
        json!([{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }, { "name": "@ostler/console" }]);
    let config = json!({ "publicUrl": "https://agents.example/", "plugins": plugins });
    let folder = folder(config, &[("one", "x")]);
    let daemon = folder.start();
    let (head, _) = call(&daemon, &json!({})).await;
    let run = ended_runs(&daemon, 1).await.remove(0);
    let page = "https://agents.example/plugins/console/#/run/ahp-automation-run%3A%2F";
    assert_eq!(headers(&head, "location"), [format!("{page}{}", run["id"].as_str().unwrap())]);
    assert_eq!(run["url"], headers(&head, "location")[0]);
    let sessions = list(&daemon, "/api/sessions").await;
    let url = sessions["sessions"][0]["url"].as_str().unwrap();
    assert!(url.starts_with("https://agents.example/plugins/console/#/session/echo%3A%2F"), "{url}");
}

/// A backend that tells the environment of its processes.
const ENVOY: &str = "
    export const name = 'envoy';
    export function apply(host) {
        host.registerAgent({
            provider: 'envoy', displayName: 'Envoy',
            schema: () => ({ type: 'object', properties: {} }), defaults: () => ({}),
            create: (start) => ({
                begin(turnId) {
                    host.log(`environment ${JSON.stringify(start.env)}`);
                    start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
                },
                cancel() {}, close() {},
            }),
        });
    }
";

#[tokio::test]
async fn processes_know_the_urls_of_their_run_and_session() {
    let plugins = json!([{ "name": "./envoy.js" }, { "name": "@ostler/webhook" }]);
    let folder = folder(json!({ "plugins": plugins }), &[]);
    folder.write("envoy.js", ENVOY);
    folder.write(
        "automations/one.md",
        "---\ntitle: One\nsession: { provider: envoy }\ntriggers:\n  - id: called\n    kind: event\n    type: webhook\n    \
         events: [{ id: call }]\n    config: { endpoint: in }\n---\nx\n",
    );
    let daemon = folder.start();
    call(&daemon, &json!({})).await;
    let run = ended_runs(&daemon, 1).await.remove(0);
    let log = folder.wait_for_log("environment ");
    let line = log.split_once("environment ").unwrap().1.lines().next().unwrap();
    let environment: Value = serde_json::from_str(line).unwrap();
    let session = list(&daemon, "/api/sessions").await["sessions"][0].clone();
    assert_eq!(
        environment,
        json!({
            "OSTLER_RUN": run["uri"], "OSTLER_RUN_URL": run["url"], "OSTLER_SESSION": session["uri"],
            "OSTLER_SESSION_URL": session["url"],
        })
    );
}

#[tokio::test]
async fn runs_and_sessions_are_listed_by_what_is_known_of_them() {
    let folder = folder(json!({ "users": "users.json" }), &[("one", "Hello"), ("two", "/fail broken")]);
    folder.write("users.json", r#"{ "roles": { "none": { "grants": [] } }, "users": [] }"#);
    let daemon = folder.start();
    for number in 0..3 {
        call(&daemon, &json!({ "issue": { "number": 7000 + number } })).await;
    }
    let all = ended_runs(&daemon, 6).await;
    let ids = |listed: &Value| -> Vec<Value> {
        listed["runs"].as_array().unwrap().iter().map(|run| run["id"].clone()).collect()
    };
    let of = |fits: &dyn Fn(&Value) -> bool| -> Vec<Value> {
        all.iter().filter(|run| fits(run)).map(|run| run["id"].clone()).collect()
    };
    for (query, expected) in [
        ("automation=one", of(&|run| run["automation"] == "one")),
        ("automation=ahp-automation:/two", of(&|run| run["automation"] == "two")),
        ("state=failed", of(&|run| run["state"] == "failed")),
        ("state=running", of(&|_| false)),
        ("text=7001", of(&|run| run["event"]["issue"]["number"] == 7001)),
        ("text=%F0%9F%98%80", of(&|_| false)),
        ("text=*", of(&|_| false)),
        ("text=-+-", of(&|_| false)),
        ("text=+", of(&|_| true)),
        ("text=title+two+700*", of(&|run| run["automation"] == "two")),
        ("owner=user:nobody", of(&|_| false)),
        (
            "since=2020-01-01T00:00:00Z&state=completed&automation=one",
            of(&|run| run["state"] == "completed" && run["automation"] == "one"),
        ),
        ("until=2020-01-01T00:00:00Z", of(&|_| false)),
    ] {
        assert_eq!(ids(&list(&daemon, &format!("/api/runs?{query}")).await), expected, "{query}");
    }
    // Page by page.
    let (mut seen, mut path) = (Vec::new(), "/api/runs?limit=4".to_owned());
    loop {
        let page = list(&daemon, &path).await;
        seen.extend(ids(&page));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/runs?limit=4&cursor={next}");
    }
    assert_eq!(seen, of(&|_| true));
    let sessions = list(&daemon, "/api/sessions?limit=500").await;
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 6);
    let count = async |query: &str| {
        list(&daemon, &format!("/api/sessions?{query}")).await["sessions"].as_array().unwrap().len()
    };
    assert_eq!(count("provider=echo&archived=false").await, 6);
    assert_eq!(count("text=title%20OF%20two").await, 3);
    assert_eq!(count("waiting=true").await + count("provider=none").await + count("archived=true").await, 0);
    let first = list(&daemon, "/api/sessions?limit=5").await;
    let next = percent_encoding::utf8_percent_encode(
        first["next"].as_str().unwrap(),
        percent_encoding::NON_ALPHANUMERIC,
    );
    let last = list(&daemon, &format!("/api/sessions?limit=5&cursor={next}")).await;
    assert_eq!((last["sessions"].as_array().unwrap().len(), last.get("next")), (1, None));
    for (path, status, says) in [
        ("/api/runs?state=ended", 400, "state must be one of"),
        ("/api/runs?cursor=nonsense", 400, "Unrecognised cursor"),
        ("/api/runs?nonsense=1", 400, "unknown parameter nonsense"),
        ("/api/sessions?cursor=nonsense", 400, "cursor is not one of this list"),
        ("/api/sessions?limit=0", 400, "limit must be an integer between 1 and 500"),
        ("/api/runs/none", 404, "There is no run none"),
        ("/api/sessions/none", 404, "There is no session none"),
    ] {
        let (code, body) = get(&daemon, path, TOKEN).await;
        assert_eq!(code, status, "{path}: {body}");
        assert!(body["message"].as_str().unwrap().contains(says), "{path}: {body}");
    }
    // A user without the grants sees neither.
    let token = folder.run(&["user", "add", "ben", "--role", "none", "--json"]);
    let token: Value = serde_json::from_str(&token.out).unwrap_or_else(|_| panic!("{token:?}"));
    let token = token["token"].as_str().unwrap();
    let (status, body) = get(&daemon, "/api/me", token).await;
    assert_eq!(status, 200, "the command returns when the daemon knows the user: {body}");
    let holds = |grant: &str| body["grants"].as_array().unwrap().iter().any(|held| held == grant);
    assert!(!holds("automation:list") && !holds("*:*"), "{body}");
    let stream = format!("Authorization: Bearer {token}\r\nAccept: text/event-stream\r\n");
    for path in ["/api/runs", "/api/runs/none", "/api/sessions", "/api/sessions/none"] {
        assert_eq!(get(&daemon, path, token).await.0, 403, "{path}");
        assert_eq!(daemon.ask(&format!("GET {path}"), &stream, "").await.0, 403, "{path}");
    }
}

/// A stream of events.
struct Events {
    lines: tokio::io::Lines<BufReader<TcpStream>>,
}

#[derive(Debug, PartialEq)]
struct Event {
    name: String,
    id: String,
    data: Value,
}

impl Events {
    async fn open(daemon: &Daemon, path: &str, token: &str, last: Option<&str>) -> Self {
        let (first, mut events) = Self::ask(daemon, path, token, last).await;
        assert_eq!(first, "HTTP/1.1 200 OK");
        while events.line().await.is_some_and(|line| !line.is_empty()) {}
        events
    }

    /// Asks for a stream: the first line of the answer, and the rest.
    async fn ask(daemon: &Daemon, path: &str, token: &str, last: Option<&str>) -> (String, Self) {
        let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\n{last}\r\n",
            daemon.address()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        let first = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        (first, Self { lines })
    }

    async fn line(&mut self) -> Option<String> {
        tokio::time::timeout(LIMIT, self.lines.next_line()).await.expect("a line in time").unwrap()
    }

    /// The next event; nothing where the stream ended.
    async fn next(&mut self) -> Option<Event> {
        let mut event = Event { name: String::new(), id: String::new(), data: Value::Null };
        loop {
            let line = self.line().await?;
            match line.split_once(": ") {
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                _ if line.is_empty() && !event.data.is_null() => return Some(event),
                // The length of a chunk, a comment, or the end of a block.
                _ => {}
            }
        }
    }

    /// Reads until a run has ended; returns its states and the id of the last event.
    async fn run(&mut self) -> (Value, Vec<String>, String) {
        let mut states = Vec::new();
        loop {
            let event = self.next().await.expect("an event");
            assert_eq!(event.name, "run");
            states.push(event.data["state"].as_str().unwrap().to_owned());
            if event.data["endedAt"].is_string() {
                return (event.data["id"].clone(), states, event.id);
            }
        }
    }
}

#[tokio::test]
async fn a_stream_of_runs_goes_on_where_it_was_left() {
    let folder = folder(json!({}), &[("one", "Hello")]);
    let daemon = folder.start();
    let mut events = Events::open(&daemon, "/api/runs", TOKEN, None).await;
    let ready = events.next().await.unwrap();
    assert_eq!((ready.name.as_str(), &ready.data), ("ready", &json!({})));
    call(&daemon, &json!({})).await;
    let (_, states, last) = events.run().await;
    assert_eq!((states.first().unwrap().as_str(), states.last().unwrap().as_str()), ("pending", "completed"));
    assert!(states.contains(&"running".to_owned()), "{states:?}");
    drop(events);
    // What happens meanwhile is sent to who comes back, and what happens then.
    call(&daemon, &json!({})).await;
    let missed = ended_runs(&daemon, 2).await.remove(0)["id"].clone();
    let mut events = Events::open(&daemon, "/api/runs", TOKEN, Some(&last)).await;
    let (id, states, _) = events.run().await;
    assert_eq!((id, states.first().unwrap().as_str()), (missed, "pending"));
    call(&daemon, &json!({})).await;
    events.run().await;
    drop(events);
    // Of another automation nothing is sent, and what came is counted as seen.
    let mut others = Events::open(&daemon, "/api/runs?automation=other", TOKEN, None).await;
    assert_eq!(others.next().await.unwrap().name, "ready");
    // A place of another start of the host is too old.
    daemon.stop();
    let daemon = folder.start();
    assert_eq!(others.next().await, None);
    let mut events = Events::open(&daemon, "/api/runs", TOKEN, Some(&last)).await;
    let reload = events.next().await.unwrap();
    assert_eq!((reload.name.as_str(), &reload.data), ("reload", &json!({})));
    call(&daemon, &json!({})).await;
    events.run().await;
    let (status, body) = daemon
        .ask(
            "GET /api/runs?state=failed",
            &format!("Authorization: Bearer {TOKEN}\r\nAccept: text/event-stream\r\n"),
            "",
        )
        .await;
    assert_eq!(status, 400, "{body}");
    assert!(body["message"].as_str().unwrap().contains("state is not a parameter of the stream"), "{body}");
}

#[tokio::test]
async fn who_follows_a_stream_of_runs_has_what_the_list_has() {
    let folder = folder(json!({ "runs": { "count": 2 } }), &[("one", "Hello")]);
    let daemon = folder.start();
    let mut events = Events::open(&daemon, "/api/runs", TOKEN, None).await;
    assert_eq!(events.next().await.unwrap().name, "ready");
    let mut seen: std::collections::BTreeMap<String, Value> = Default::default();
    for _ in 0..4 {
        call(&daemon, &json!({})).await;
    }
    // Four runs end, and the two that ended first are removed.
    let (mut ended, mut removed) = (0, 0);
    while ended < 4 || removed < 2 {
        let event = events.next().await.unwrap();
        match event.name.as_str() {
            "run" => {
                ended += usize::from(event.data["endedAt"].is_string());
                seen.insert(event.data["uri"].as_str().unwrap().to_owned(), event.data);
            }
            "removed" => {
                assert!(seen.remove(event.data["uri"].as_str().unwrap()).is_some(), "{event:?}");
                removed += 1;
            }
            _ => panic!("{event:?}"),
        }
    }
    let listed = ended_runs(&daemon, 2).await;
    let uris: Vec<&str> = listed.iter().map(|run| run["uri"].as_str().unwrap()).collect();
    assert!(seen.len() == 2 && uris.iter().all(|uri| seen.contains_key(*uri)), "{seen:?} is not {listed:?}");

    // With an automation all its runs are removed: one event says so.
    let mut others = Events::open(&daemon, "/api/runs?automation=two", TOKEN, None).await;
    assert_eq!(others.next().await.unwrap().name, "ready");
    let mut client = crate::support::Client::connect(&format!("{}/?tkn={TOKEN}", daemon.url)).await;
    client.initialize("remover").await;
    client.subscribe("ahp-automations://").await;
    let remove =
        |id: &str| json!({ "type": "automation/removed", "resource": format!("ahp-automation:/{id}") });
    client.dispatch("ahp-automations://", 1, remove("one")).await;
    let event = events.next().await.unwrap();
    assert_eq!((event.name.as_str(), event.data), ("removed", json!({ "automation": "one" })));
    assert_eq!(list(&daemon, "/api/runs").await["runs"], json!([]));
    // Who follows another automation is not told.
    daemon.stop();
    assert_eq!(others.next().await, None);
}

#[tokio::test]
async fn a_stream_of_sessions_shows_them_come_change_and_go() {
    let folder = folder(json!({}), &[]);
    let daemon = folder.start();
    let mut events = Events::open(&daemon, "/api/sessions?provider=echo", TOKEN, None).await;
    assert_eq!(events.next().await.unwrap().name, "ready");
    let mut client = crate::support::Client::connect(&format!("{}/?tkn={TOKEN}", daemon.url)).await;
    client.initialize("maker").await;
    client.request("createSession", json!({ "channel": "echo:/s1", "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("echo:/s1");
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Hello" } });
    client.dispatch(&chat, 1, turn).await;
    client.actions_until("chat/turnComplete").await;
    let mut states = Vec::new();
    loop {
        let event = events.next().await.unwrap();
        assert_eq!((event.name.as_str(), &event.data["id"]), ("session", &json!("s1")));
        states.push(event.data["state"].as_str().unwrap().to_owned());
        if states.contains(&"running".to_owned())
            && event.data["state"] == "idle"
            && event.data["title"] != ""
        {
            break;
        }
    }
    client.request("disposeSession", json!({ "channel": "echo:/s1" })).await.unwrap();
    let removed = loop {
        let event = events.next().await.unwrap();
        if event.name == "removed" {
            break event.data;
        }
    };
    assert_eq!(removed, json!({ "uri": "echo:/s1" }));
}

#[tokio::test]
async fn a_user_has_so_many_streams_and_a_closed_one_is_noticed() {
    let folder = folder(json!({ "users": "users.json" }), &[("one", "Hello")]);
    folder.write("users.json", r#"{ "users": [] }"#);
    let daemon = folder.start();
    let token = |id: &str| {
        let added = folder.run(&["user", "add", id, "--role", "admin", "--json"]);
        let added: Value = serde_json::from_str(&added.out).unwrap_or_else(|_| panic!("{added:?}"));
        added["token"].as_str().unwrap().to_owned()
    };
    let (ada, ben) = (token("ada"), token("ben"));
    let mut open = Vec::new();
    for _ in 0..32 {
        open.push(Events::open(&daemon, "/api/runs", &ada, None).await);
    }
    let asked = |token: &str| format!("Authorization: Bearer {token}\r\nAccept: text/event-stream\r\n");
    let (status, body) = daemon.ask("GET /api/sessions", &asked(&ada), "").await;
    assert_eq!(status, 503, "{body}");
    assert_eq!(
        body["message"],
        "32 streams of ada are open, which is the limit of a user; close one, then try again"
    );
    let mut other = Events::open(&daemon, "/api/runs", &ben, None).await;
    assert_eq!(other.next().await.unwrap().name, "ready", "other users have their own");
    drop(open);
    let closed = std::time::Instant::now();
    while Events::ask(&daemon, "/api/runs", &ada, None).await.0 != "HTTP/1.1 200 OK" {
        assert!(closed.elapsed().as_secs() < 14, "closed connections hold their places");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_grant_of_its_reader() {
    let folder = folder(json!({ "users": "users.json" }), &[("one", "Hello")]);
    folder.write("users.json", r#"{ "users": [] }"#);
    let daemon = folder.start();
    let added = folder.run(&["user", "add", "ada", "--role", "admin", "--json"]);
    let added: Value = serde_json::from_str(&added.out).unwrap_or_else(|_| panic!("{added:?}"));
    let token = added["token"].as_str().unwrap();
    let mut events = Events::open(&daemon, "/api/runs", token, None).await;
    assert_eq!(events.next().await.unwrap().name, "ready");
    assert_eq!(folder.run(&["user", "rm", "ada", "--yes"]).code, Some(0));
    assert_eq!(get(&daemon, "/api/runs", token).await.0, 401, "the removal is in force");
    assert_eq!(events.next().await, None, "the stream of a user who was removed is closed");
}
