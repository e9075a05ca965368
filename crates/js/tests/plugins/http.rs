//! Requests and responses: those of routes, those of `fetch`, and `WebSocket`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::server::{Came, Say, Server, ok};
use crate::support::*;
use futures::stream;
use ostler_contract::http::{Body, BodyError, Request, Response, StatusCode};
use ostler_contract::points::*;
use ostler_contract::*;

/// A plugin with one route.
async fn route(handler: &str) -> (Applied, RouteHandler) {
    let loader = Loader::default();
    let plugin = loader.text(&format!("let seen = [];\nexport function apply(host) {{\nhost.registerRoute({handler});\nhost.registerTool({{ definition: {{ name: 'seen' }}, run: () => seen }});\n}}")).await.unwrap();
    let handler = plugin.recorder().all::<Route>().next().unwrap().handler.clone();
    (plugin, handler)
}

fn post(url: &str, content_type: &str, body: impl Into<Body>) -> Request {
    let request = Request::new(body.into());
    let (mut head, body) = request.into_parts();
    head.method = "POST".parse().unwrap();
    head.uri = url.parse().unwrap();
    head.headers.insert("content-type", content_type.parse().unwrap());
    Request::from_parts(head, body)
}

/// A body in three bits, that counts what was asked of it.
fn counted(counter: &Arc<AtomicUsize>) -> Body {
    let counter = counter.clone();
    Body::stream(stream::unfold(0, move |at| {
        let counter = counter.clone();
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            let bits: [&'static str; 3] = ["on", "e t", "wo"];
            bits.get(at).map(|bit| (Ok((*bit).into()), at + 1))
        }
    }))
}

async fn call(handler: &RouteHandler, request: Request) -> Result<Response, Thrown> {
    tokio::time::timeout(LONG, handler.unbounded((request,))).await.expect("the route takes too long")
}

async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().read(1 << 20).await.unwrap().to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_read_when_it_is_asked_for() {
    let (_plugin, handler) = route(
        "async (request) => {\n\
           if (new URL(request.url).pathname === '/p/no') return new Response('who are you?', { status: 401 });\n\
           return Response.json([request.method, request.url, request.headers.get('content-type'), await request.text(), request.bodyUsed]);\n\
         }",
    )
    .await;
    let pulled = Arc::new(AtomicUsize::new(0));
    let refused = call(&handler, post("http://h/p/no", "text/plain", counted(&pulled))).await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(pulled.load(Ordering::SeqCst), 0, "nothing of the body is pulled before it is read");
    let answered = call(&handler, post("http://h/p/yes?q=1", "text/plain", counted(&pulled))).await.unwrap();
    assert_eq!(answered.headers()["content-type"], "application/json");
    assert_eq!(text(answered).await, r#"["POST","http://h/p/yes?q=1","text/plain","one two",true]"#);
    assert_eq!(pulled.load(Ordering::SeqCst), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_read_in_every_way() {
    let (_plugin, handler) = route(
        "async (request) => {\n\
           const hex = (bytes) => Buffer.from(bytes).toString();\n\
           const ways = {\n\
             json: async () => (await request.json()).a,\n\
             bytes: async () => hex(await request.bytes()),\n\
             arrayBuffer: async () => hex(await request.arrayBuffer()),\n\
             blob: async () => { const blob = await request.blob(); return [blob.type, await blob.text()]; },\n\
             form: async () => [...await request.formData()].map(([name, value]) => [name, value instanceof File ? value.name : value]),\n\
             stream: async () => { const seen = []; for await (const bit of request.body) seen.push(hex(bit)); return seen; },\n\
             clone: async () => { const twin = request.clone(); return [await twin.text(), await request.text()]; },\n\
             twice: async () => { await request.text(); return request.text().catch((error) => error.name); },\n\
           };\n\
           return Response.json(await ways[new URL(request.url).pathname.slice(1)]());\n\
         }",
    )
    .await;
    let say = async |path: &str, content_type: &str, body: Body| {
        text(call(&handler, post(&format!("http://h/{path}"), content_type, body)).await.unwrap()).await
    };
    let streamed = || counted(&Arc::default());
    assert_eq!(say("json", "application/json", r#"{"a":[1]}"#.into()).await, "[1]");
    assert_eq!(say("bytes", "x/y", streamed()).await, r#""one two""#);
    assert_eq!(say("arrayBuffer", "x/y", "ab".into()).await, r#""ab""#);
    assert_eq!(say("blob", "x/y", streamed()).await, r#"["x/y","one two"]"#);
    assert_eq!(say("stream", "x/y", streamed()).await, r#"["on","e t","wo"]"#);
    assert_eq!(say("stream", "x/y", "whole".into()).await, r#"["whole"]"#);
    assert_eq!(say("clone", "x/y", streamed()).await, r#"["one two","one two"]"#);
    assert_eq!(say("twice", "x/y", streamed()).await, r#""TypeError""#);
    let form = "application/x-www-form-urlencoded";
    assert_eq!(say("form", form, "a=1&b=%C3%A4+x".into()).await, r#"[["a","1"],["b","ä x"]]"#);
    let parts = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\nxyz\r\n--B--\r\n";
    assert_eq!(
        say("form", "multipart/form-data; boundary=B", parts.into()).await,
        r#"[["a","1"],["f","f.txt"]]"#
    );
}

/// A request whose body of `count` pieces, 64 KiB each, is read into this memory.
fn charged(path: &str, bodies: &Bodies, count: usize) -> Request {
    let pieces = vec![Ok(vec![b'x'; 64 * 1024].into()); count];
    let mut request = post(&format!("http://h/{path}"), "x/y", Body::stream(stream::iter(pieces)));
    request.extensions_mut().insert(bodies.clone());
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_charged_until_the_plugin_drops_what_it_read() {
    let (_plugin, handler) = route(
        "async (request) => {\n\
           const ways = {\n\
             text: async () => (await request.text()).length,\n\
             stream: async () => { let length = 0; for await (const piece of request.body) length += piece.length; return length; },\n\
             keep: async () => { for await (const piece of request.body) seen.push(piece); return seen.length; },\n\
             free: async () => { seen = []; return 0; },\n\
             caught: async () => request.text().catch((error) => error.message),\n\
           };\n\
           return Response.json(await ways[new URL(request.url).pathname.slice(1)]());\n\
         }",
    )
    .await;
    const MIB: usize = 1024 * 1024;
    let bodies = Bodies::new(Budget::new(MIB), MIB);
    let budget = bodies.unverified();
    let say = async |path: &str, count: usize| {
        let answered = call(&handler, charged(path, &bodies, count)).await;
        match answered {
            Ok(response) => text(response).await,
            Err(thrown) => thrown.message,
        }
    };
    assert_eq!(say("text", 8).await, (MIB / 2).to_string());
    assert_eq!(budget.used(), 0, "what was read is dropped");
    assert_eq!(say("stream", 160).await, (10 * MIB).to_string(), "larger than the memory, piece by piece");
    assert_eq!(budget.used(), 0);
    assert_eq!(say("keep", 8).await, "8");
    assert_eq!(budget.used(), MIB / 2, "the plugin has it");
    let no_memory = "the host has no memory for this body now; retry later";
    assert_eq!(say("keep", 12).await, no_memory);
    assert_eq!(say("free", 0).await, "0");
    assert_eq!(budget.used(), 0);
    assert_eq!(say("caught", 20).await, format!("\"the body is larger than {} bytes\"", MIB / 4 * 3));
    assert_eq!(budget.used(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_fails_its_reader() {
    let (_plugin, handler) =
        route("async (request) => new Response(await request.text().catch((error) => `${error.name}: ${error.message}`))").await;
    let bits = stream::iter([Ok("half".into()), Err(BodyError::Cut("the peer left".into()))]);
    let answered = call(&handler, post("http://h/", "x/y", Body::stream(bits))).await.unwrap();
    assert_eq!(text(answered).await, "Error: the body was cut short: the peer left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_keeps_its_status_its_cookies_and_its_bytes() {
    let (_plugin, handler) = route(
        "() => {\n\
           const headers = new Headers({ 'X-One': 'ü'.normalize() });\n\
           headers.append('set-cookie', 'a=1; HttpOnly');\n\
           headers.append('set-cookie', 'b=2');\n\
           return new Response(new Uint8Array([0, 255, 10]), { status: 418, headers });\n\
         }",
    )
    .await;
    let answered = call(&handler, post("http://h/", "x/y", Body::Empty)).await.unwrap();
    assert_eq!(answered.status().as_u16(), 418);
    let cookies: Vec<_> =
        answered.headers().get_all("set-cookie").iter().map(|c| c.to_str().unwrap()).collect();
    assert_eq!(cookies, ["a=1; HttpOnly", "b=2"]);
    assert_eq!(answered.headers()["x-one"].as_bytes(), b"\xfc");
    assert!(matches!(answered.body(), Body::Full(bytes) if bytes[..] == [0, 255, 10]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_events_goes_out_as_it_is_made_and_stops_when_nobody_listens() {
    let (plugin, handler) = route(
        "() => {\n\
           let at = 0;\n\
           const body = new ReadableStream({\n\
             async pull(to) { at += 1; await new Promise((go) => setTimeout(go, 1)); to.enqueue(`data: ${at}\\n\\n`); },\n\
             cancel() { seen.push('cancelled'); },\n\
           });\n\
           return new Response(body.pipeThrough(new TextEncoderStream()), { headers: { 'content-type': 'text/event-stream' } });\n\
         }",
    )
    .await;
    let answered = call(&handler, post("http://h/", "x/y", Body::Empty)).await.unwrap();
    let mut body = answered.into_body();
    assert_eq!(body.next().await, Some(Ok("data: 1\n\n".into())));
    assert_eq!(body.next().await, Some(Ok("data: 2\n\n".into())));
    drop(body);
    let seen = async { while plugin.run("seen", Value::Null).await.unwrap() != json!(["cancelled"]) {} };
    tokio::time::timeout(LONG, seen).await.expect("the source is cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_fails_is_cut_and_a_finished_one_is_let_go() {
    let (plugin, handler) = route(
        "(request) => {\n\
           const fails = request.url.endsWith('/fails');\n\
           return new Response((async function* () {\n\
             yield new TextEncoder().encode('first');\n\
             if (fails) throw new Error('out of words');\n\
             yield 'second';\n\
           })());\n\
         }",
    )
    .await;
    let before = plugin.engine().functions_held().await.unwrap();
    let mut body = call(&handler, post("http://h/fails", "x/y", Body::Empty)).await.unwrap().into_body();
    assert_eq!(body.next().await, Some(Ok("first".into())));
    assert_eq!(body.next().await, Some(Err(BodyError::Cut("out of words".into()))));
    assert_eq!(body.next().await, None);
    drop(body);
    assert_eq!(
        text(call(&handler, post("http://h/", "x/y", Body::Empty)).await.unwrap()).await,
        "firstsecond"
    );
    assert_eq!(plugin.engine().functions_held().await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_response_is_told_apart() {
    let (_plugin, handler) =
        route("(request) => request.url.endsWith('/own') ? { status: 200, headers: {}, body: 'x' } : 'text'")
            .await;
    for url in ["http://h/own", "http://h/text"] {
        let thrown = call(&handler, post(url, "x/y", Body::Empty)).await.unwrap_err();
        assert_eq!(thrown.message, "its answer needs to be a Response");
    }
}

fn router(came: &Came) -> Say {
    match came.path() {
        "/json" => {
            ok("content-type: application/json\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n", r#"{"a":[1]}"#)
        }
        "/echo" => {
            let seen = json!({ "line": came.line, "body": came.body, "type": came.header("content-type"), "agent": came.header("user-agent"), "own": came.header("x-own"), "auth": came.header("authorization") });
            ok("", &seen.to_string())
        }
        "/chunks" => {
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n4\r\n two\r\n0\r\n\r\n"
                .to_owned()
                .into()
        }
        "/302" => "HTTP/1.1 302 Found\r\nlocation: /echo\r\ncontent-length: 0\r\n\r\n".to_owned().into(),
        "/307" => "HTTP/1.1 307 Temporary Redirect\r\nlocation: /echo\r\ncontent-length: 0\r\n\r\n"
            .to_owned()
            .into(),
        "/round" => "HTTP/1.1 302 Found\r\nlocation: /round\r\ncontent-length: 0\r\n\r\n".to_owned().into(),
        "/204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned().into(),
        "/500" => "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\noops".to_owned().into(),
        "/hang" => Say { text: b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart".to_vec(), hang: true },
        "/never" => Say { text: Vec::new(), hang: true },
        "/cut" => Say { text: b"nonsense\r\n\r\n".to_vec(), hang: true },
        "/gzip" => {
            let packed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcbH\xcd\xc9\xc9\x07\x00\x86\xa6\x106\x05\x00\x00\x00";
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
                packed.len()
            );
            Say { text: [head.as_bytes(), packed].concat(), hang: false }
        }
        other => ok("", &format!("no {other}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_is_awaited_in_the_store_it_was_called_in() {
    let server = Server::new(router).await;
    let said = run(
        &format!(
            "import {{ AsyncLocalStorage }} from 'node:async_hooks';\nconst at = '{}';\nconst store = new AsyncLocalStorage();",
            server.origin
        ),
        "const one = (name) => store.run(name, async () => {\n\
           const answer = await fetch(`${at}/json`);\n\
           const seen = [store.getStore()];\n\
           await answer.json();\n\
           seen.push(store.getStore());\n\
           try { await fetch('http://127.0.0.1:1/'); } catch { seen.push(store.getStore()); }\n\
           return seen.join();\n\
         });\n\
         return [...await Promise.all([one('a'), one('b')]), store.getStore() ?? null];",
    )
    .await;
    assert_eq!(said, json!(["a,a,a", "b,b,b", null]));
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_talks_to_servers() {
    let server = Server::new(router).await;
    let said = run(
        &format!("const at = '{}';", server.origin),
        "const said = [];\n\
         const json = await fetch(`${at}/json`);\n\
         said.push([json.status, json.ok, json.url === `${at}/json`, json.headers.get('content-type'), json.headers.getSetCookie(), await json.json()]);\n\
         const echo = await (await fetch(`${at}/echo`, { method: 'POST', body: JSON.stringify({ b: 1 }), headers: { 'content-type': 'application/json', 'X-Own': 'o' } })).json();\n\
         said.push([echo.line, echo.body, echo.type, echo.own, echo.agent.startsWith('ostler/')]);\n\
         said.push(await (await fetch(`${at}/chunks`)).text(), (await fetch(`${at}/204`)).status);\n\
         const packed = await fetch(`${at}/gzip`);\n\
         said.push([packed.headers.get('content-encoding'), packed.headers.get('content-length'), await packed.text()]);\n\
         const failed = await fetch(`${at}/500`);\n\
         said.push([failed.ok, failed.status, failed.statusText, await failed.text()]);\n\
         const stream = new ReadableStream({ start(to) { to.enqueue(new TextEncoder().encode('str')); to.enqueue(new TextEncoder().encode('eam')); to.close(); } });\n\
         said.push((await (await fetch(`${at}/echo`, { method: 'PUT', body: stream, duplex: 'half' })).json()).body);\n\
         const form = new FormData(); form.append('f', new File(['file!'], 'n.txt'));\n\
         const sent = await (await fetch(new Request(`${at}/echo`, { method: 'POST', body: form }))).json();\n\
         said.push([sent.type.split(';')[0], sent.body.includes('filename=\"n.txt\"'), sent.body.includes('file!')]);\n\
         const all = await Promise.all(Array.from({ length: 20 }, async (_, n) => (await (await fetch(`${at}/n${n}`)).text())));\n\
         said.push(all.every((text, n) => text === `no /n${n}`));\n\
         return said;",
    )
    .await;
    assert_eq!(
        said,
        json!([
            [200, true, true, "application/json", ["a=1", "b=2"], { "a": [1] }],
            ["POST /echo HTTP/1.1", "{\"b\":1}", "application/json", "o", true],
            "one two", 204, ["gzip", "25", "hello"],
            [false, 500, "Internal Server Error", "oops"],
            "stream",
            ["multipart/form-data", true, true],
            true,
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_follows_redirects_and_tells_no_secret_to_strangers() {
    let other = Server::new(router).await;
    let stranger = format!("{}/echo", other.origin);
    let server = Server::new(move |came| match came.path() {
        "/away" => {
            format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {stranger}\r\ncontent-length: 0\r\n\r\n")
                .into()
        }
        _ => router(came),
    })
    .await;
    let said = run(
        &format!("const at = '{}';", server.origin),
        "const said = [];\n\
         const headers = { authorization: 'Bearer secret' };\n\
         const post = (path, more) => fetch(`${at}${path}`, { method: 'POST', body: 'b', headers, ...more });\n\
         const turned = await post('/302'); said.push(turned.redirected, turned.url === `${at}/echo`, await turned.json());\n\
         said.push(await (await post('/307')).json());\n\
         said.push(await (await post('/away')).json());\n\
         const manual = await post('/302', { redirect: 'manual' }); said.push([manual.status, manual.headers.get('location')]);\n\
         for (const wrong of [post('/302', { redirect: 'error' }), fetch(`${at}/round`)]) said.push(await wrong.catch((error) => [error.name, error.message, error.cause.message]));\n\
         for (const each of said) if (each.agent) delete each.agent;\n\
         return said;",
    )
    .await;
    let echo = |method: &str, body: &str, auth: Value| {
        let kind = if body.is_empty() { Value::Null } else { json!("text/plain;charset=UTF-8") };
        json!({ "line": format!("{method} /echo HTTP/1.1"), "body": body, "type": kind, "own": null, "auth": auth })
    };
    assert_eq!(
        said,
        json!([
            true,
            true,
            echo("GET", "", json!("Bearer secret")),
            echo("POST", "b", json!("Bearer secret")),
            echo("POST", "b", Value::Null),
            [302, "/echo"],
            ["TypeError", "fetch failed", "unexpected redirect to /echo"],
            ["TypeError", "fetch failed", "redirect count exceeded"],
        ])
    );
    assert_eq!(other.came().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_gives_up_when_told_and_says_why_it_failed() {
    let server = Server::new(router).await;
    let body = "const said = [];\n\
         const why = (error) => [error.name, error.message, error.cause?.message.replace(/ \\(.*/, '')];\n\
         const stop = new AbortController();\n\
         const hanging = await fetch(`${at}/hang`, { signal: stop.signal });\n\
         const reader = hanging.body.getReader();\n\
         said.push(new TextDecoder().decode((await reader.read()).value));\n\
         const rest = reader.read();\n\
         stop.abort();\n\
         said.push(await rest.catch(why));\n\
         said.push(await fetch(`${at}/never`, { signal: AbortSignal.timeout(5) }).catch(why));\n\
         said.push(await fetch(`${at}/never`, { signal: AbortSignal.abort(new Error('no need')) }).catch(why));\n\
         said.push((await fetch(`${at}/cut`).catch(why)).slice(0, 2));\n\
         said.push((await fetch('http://127.0.0.1:1/').catch((error) => [...why(error), error.cause.code])));\n\
         return said;";
    let said = run(&format!("const at = '{}';", server.origin), body).await;
    assert_eq!(
        said,
        json!([
            "part",
            ["AbortError", "This operation was aborted", null],
            ["TimeoutError", "The operation was aborted due to timeout", null],
            ["Error", "no need", null],
            ["TypeError", "fetch failed"],
            ["TypeError", "fetch failed", "Connection refused", "ECONNREFUSED"],
        ])
    );
    tokio::time::timeout(LONG, server.left.notified()).await.expect("the connection is given up");
}

/// A model stops generating once nobody reads what it says.
#[tokio::test(flavor = "multi_thread")]
async fn fetch_closes_the_connection_of_a_body_that_is_given_up() {
    for how in [
        "stop.abort();",
        "await answer.body.cancel();",
        "const reader = answer.body.getReader(); await reader.read(); const rest = reader.read(); await reader.cancel(); await rest;",
        "const reader = answer.body.getReader(); await reader.read(); const rest = reader.read(); stop.abort(); await rest.catch(() => {});",
        "for await (const chunk of answer.body) break;",
    ] {
        let server = Server::new(router).await;
        let text = format!(
            "export const kept = [];\nexport const apply = (host) => host.registerTool({{ definition: {{ name: 'run' }}, run: async () => {{\n\
               const stop = new AbortController();\n\
               const answer = await fetch('{}/hang', {{ signal: stop.signal }});\n\
               kept.push(stop, answer);\n{how}\n}} }});",
            server.origin
        );
        let plugin = Loader::default().text(&text).await.unwrap();
        plugin.run("run", Value::Null).await.unwrap();
        tokio::time::timeout(LONG, server.left.notified())
            .await
            .unwrap_or_else(|_| panic!("still open: {how}"));
        drop(plugin);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_sends_one_length_and_the_right_one() {
    let server = Server::new(router).await;
    let body = "const said = [];\n\
         for (const length of ['4', '9']) {\n\
           const sent = fetch(`${at}/echo`, { method: 'POST', body: 'four', headers: { 'Content-Length': length } });\n\
           said.push(await sent.then((answer) => answer.status, (error) => [error.message, error.cause.code]));\n\
         }\n\
         return said;";
    let said = run(&format!("const at = '{}';", server.origin), body).await;
    assert_eq!(said, json!([200, ["fetch failed", "UND_ERR_REQ_CONTENT_LENGTH_MISMATCH"]]));
    let came = server.came();
    let lengths: Vec<_> = came[0].headers.iter().filter(|(name, _)| name == "content-length").collect();
    assert_eq!((came.len(), lengths), (1, vec![&("content-length".to_owned(), "4".to_owned())]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_may_stand_behind_fetch_itself() {
    let mut loader = Loader::default();
    loader.options.http = Arc::new(|request: Request| {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            if head.uri.host() == Some("forbidden.example") {
                return Err("plugins may not go there".into());
            }
            let body = body.read(1000).await.unwrap();
            let said = format!("{} {} {}", head.method, head.uri, String::from_utf8_lossy(&body));
            Ok(Response::new(said.into()))
        })
    });
    let body = "return [await (await fetch('https://a.example/x?y#z', { method: 'PATCH', body: 'b' })).text(), await fetch('https://forbidden.example/').catch((error) => error.cause.message)];";
    assert_eq!(
        run_with(&loader, "", body).await.unwrap(),
        json!(["PATCH https://a.example/x?y b", "plugins may not go there"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_is_a_client() {
    use futures::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut socket = tokio_tungstenite::accept_async(socket).await.unwrap();
                while let Some(Ok(message)) = socket.next().await {
                    match message {
                        Message::Text(text) if text.as_str() == "bye" => {
                            let frame = tokio_tungstenite::tungstenite::protocol::CloseFrame {
                                code: 4001.into(),
                                reason: "as you wish".into(),
                            };
                            socket.close(Some(frame)).await.unwrap();
                        }
                        Message::Text(text) => {
                            socket.send(Message::text(format!("heard {text}"))).await.unwrap()
                        }
                        Message::Binary(bytes) => socket.send(Message::binary(bytes)).await.unwrap(),
                        _ => {}
                    }
                }
            });
        }
    });
    let body = "const said = [];\n\
         const socket = new WebSocket(at);\n\
         socket.binaryType = 'arraybuffer';\n\
         said.push(socket.readyState);\n\
         const next = (name) => new Promise((go) => socket.addEventListener(name, go, { once: true }));\n\
         await next('open'); said.push(socket.readyState, socket.url === at);\n\
         socket.send('one'); said.push((await next('message')).data);\n\
         socket.send(new Uint8Array([1, 2])); said.push([...new Uint8Array((await next('message')).data)]);\n\
         const heard = []; socket.onmessage = (event) => heard.push(event.data);\n\
         for (let at = 0; at < 5; at += 1) socket.send(`${at}`);\n\
         socket.send('bye');\n\
         const closed = await next('close'); said.push(heard, [closed.code, closed.reason, closed.wasClean], socket.readyState);\n\
         const own = new WebSocket(at);\n\
         await new Promise((go) => { own.onopen = go; });\n\
         own.close(1000, 'done');\n\
         said.push((await new Promise((go) => { own.onclose = go; })).code);\n\
         const refused = new WebSocket('ws://127.0.0.1:1/');\n\
         said.push(await new Promise((go) => { refused.onerror = (event) => go(event.message.includes('refused')); }));\n\
         try { new WebSocket('nope'); } catch (error) { said.push(error.name); }\n\
         return said;";
    let said = run(&format!("const at = 'ws://{at}/';"), body).await;
    assert_eq!(
        said,
        json!([
            0,
            1,
            true,
            "heard one",
            [1, 2],
            ["heard 0", "heard 1", "heard 2", "heard 3", "heard 4"],
            [4001, "as you wish", true],
            3,
            1000,
            true,
            "SyntaxError",
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requests_url_is_whole_and_names_the_host_it_came_to() {
    let (_plugin, handler) = route("(request) => new Response(new URL(request.url).href)").await;
    let asked = async |uri: &str, host: Option<&str>| {
        let mut request = post(uri, "text/plain", Body::Empty);
        if let Some(host) = host {
            request.headers_mut().insert("host", host.parse().unwrap());
        }
        text(call(&handler, request).await.unwrap()).await
    };
    assert_eq!(
        asked("/plugins/p/a?b=c%20d", Some("127.0.0.1:9187")).await,
        "http://127.0.0.1:9187/plugins/p/a?b=c%20d"
    );
    assert_eq!(asked("/plugins/p//x/y", Some("[::1]:9187")).await, "http://[::1]:9187/plugins/p//x/y");
    assert_eq!(
        asked("https://evil.example/plugins/p", Some("localhost:9187")).await,
        "http://localhost:9187/plugins/p"
    );
    assert_eq!(asked("http://h/plugins/p", None).await, "http://h/plugins/p");
}
