//! A model server for tests: three dialects on loopback, and an answer that follows from the last message alone.
//!
//! A line `!tool <part of a name> <arguments>` calls the first offered tool with such a name, `!words <n>` streams words
//! slowly, `!think <text>` reasons first. Anything else is said back. The result of a tool is said back too.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// A running server. It ends with the test's process.
pub struct Model {
    pub port: u16,
    /// The bodies of the requests so far.
    seen: Arc<Mutex<Vec<String>>>,
}

/// What a request asks for.
#[derive(Debug, Default)]
struct Asked {
    user: String,
    result: Option<String>,
    tools: Vec<String>,
}

/// What is answered.
struct Answer {
    think: Option<String>,
    words: Vec<String>,
    pause: Duration,
    call: Option<(String, Value)>,
}

impl Model {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let requests = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = requests.clone();
                thread::spawn(move || drop(serve(stream, &seen)));
            }
        });
        Self { port, seen }
    }

    /// Whether a request held all of these texts.
    pub fn was_asked(&self, texts: &[&str]) -> bool {
        self.seen.lock().unwrap().iter().any(|body| texts.iter().all(|text| body.contains(text)))
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    let mut head = String::new();
    reader.read_line(&mut head)?;
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    seen.lock().unwrap().push(String::from_utf8_lossy(&body).into_owned());
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let place = path.split('?').next().unwrap_or_default();
    if place.ends_with("/chat/completions") {
        let answer = Answer::to(&chat_asked(&request));
        return match request["stream"] == true {
            true => chat(&mut out, &answer),
            false => whole(&mut out, &chat_whole(&answer)),
        };
    }
    if place.ends_with("/responses") {
        return responses(&mut out, &Answer::to(&responses_asked(&request)));
    }
    if place.ends_with(":streamGenerateContent") {
        return gemini(&mut out, &Answer::to(&gemini_asked(&request)));
    }
    if place.ends_with(":generateContent") {
        let answer = Answer::to(&gemini_asked(&request));
        return whole(&mut out, &gemini_piece(&answer.parts(), Some("STOP")));
    }
    let counted = json!({ "totalTokens": 11, "object": "list", "data": [{ "id": "fake-model", "object": "model" }],
        "models": [{ "name": "models/fake-model" }] });
    whole(&mut out, &counted)
}

impl Answer {
    fn to(asked: &Asked) -> Self {
        let directive = |name: &str| {
            let at = asked.user.find(&format!("!{name} "))?;
            asked.user[at + name.len() + 2..].lines().next().map(|rest| rest.trim().to_owned())
        };
        let words = |text: &str| text.split_inclusive(' ').map(str::to_owned).collect();
        let mut answer = Self { think: None, words: Vec::new(), pause: Duration::ZERO, call: None };
        if let Some(result) = &asked.result {
            answer.words = words(&format!("The tool answered: {result}"));
            return answer;
        }
        answer.think = directive("think");
        if let Some(call) = directive("tool") {
            let (part, arguments) = call.split_once(' ').unwrap_or((&call, "{}"));
            match asked.tools.iter().find(|name| name.contains(part)) {
                Some(name) => {
                    answer.call = Some((name.clone(), serde_json::from_str(arguments).unwrap_or_default()))
                }
                None => answer.words = words(&format!("No such tool. Offered: {}", asked.tools.join(", "))),
            }
        } else if let Some(count) = directive("words") {
            answer.words = (0..count.parse().unwrap_or(1)).map(|at| format!("word{at} ")).collect();
            answer.pause = Duration::from_millis(100);
        } else {
            answer.words = words(&format!("You said: {}", asked.user.trim()));
        }
        answer
    }

    /// Each word after its pause.
    fn each(&self, mut say: impl FnMut(&str) -> std::io::Result<()>) -> std::io::Result<()> {
        for word in &self.words {
            // Slow enough that a test can cancel it in between.
            thread::sleep(self.pause);
            say(word)?;
        }
        Ok(())
    }

    fn text(&self) -> String {
        self.words.concat()
    }

    /// The parts of an answer in Gemini's dialect.
    fn parts(&self) -> Value {
        match &self.call {
            Some((name, arguments)) => {
                json!([{ "functionCall": { "id": "call_1", "name": name, "args": arguments } }])
            }
            None => json!([{ "text": self.text() }]),
        }
    }
}

/// The text of a message's content, whatever its shape.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn chat_asked(request: &Value) -> Asked {
    let mut asked = Asked::default();
    for message in list(&request["messages"]) {
        match message["role"].as_str() {
            Some("user") => (asked.user, asked.result) = (text_of(&message["content"]), None),
            Some("tool") => asked.result = Some(text_of(&message["content"])),
            _ => {}
        }
    }
    asked.tools = list(&request["tools"])
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .map(str::to_owned)
        .collect();
    asked
}

fn responses_asked(request: &Value) -> Asked {
    let mut asked = Asked::default();
    for item in list(&request["input"]) {
        let text = text_of(&item["content"]);
        if item["role"] == "user" && !text.trim_start().starts_with('<') {
            (asked.user, asked.result) = (text, None);
        } else if item["type"].as_str().is_some_and(|kind| kind.ends_with("_output")) {
            asked.result =
                Some(item["output"].as_str().map_or_else(|| text_of(&item["output"]), str::to_owned));
        }
    }
    for tool in list(&request["tools"]) {
        let name = tool["name"].as_str().unwrap_or_default();
        match list(&tool["tools"]) {
            [] => asked.tools.push(name.to_owned()),
            inner => asked.tools.extend(
                inner.iter().map(|tool| format!("{name}::{}", tool["name"].as_str().unwrap_or_default())),
            ),
        }
    }
    asked
}

fn gemini_asked(request: &Value) -> Asked {
    let mut asked = Asked::default();
    for content in list(&request["contents"]).iter().filter(|content| content["role"] != "model") {
        // A result and the next message may be parts of one content.
        for part in list(&content["parts"]) {
            match (part.get("functionResponse"), part["text"].as_str()) {
                (Some(response), _) => asked.result = Some(response["response"].to_string()),
                (None, Some(text)) => (asked.user, asked.result) = (text.to_owned(), None),
                (None, None) => {}
            }
        }
    }
    let declared = list(&request["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"]));
    asked.tools = declared.filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect();
    asked
}

fn whole(out: &mut TcpStream, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    write!(
        out,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn stream(out: &mut TcpStream) -> std::io::Result<()> {
    write!(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
}

fn event(out: &mut TcpStream, data: &Value) -> std::io::Result<()> {
    if let Some(kind) = data["type"].as_str() {
        writeln!(out, "event: {kind}")?;
    }
    write!(out, "data: {data}\n\n")?;
    out.flush()
}

fn chat_call(answer: &Answer) -> Option<Value> {
    answer.call.as_ref().map(|(name, arguments)| {
        json!([{ "index": 0, "id": "call_1", "type": "function", "function": { "name": name, "arguments": arguments.to_string() } }])
    })
}

fn chat_whole(answer: &Answer) -> Value {
    let mut message = json!({ "role": "assistant", "content": answer.text() });
    if let Some(call) = chat_call(answer) {
        message["tool_calls"] = call;
    }
    json!({ "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "fake-model",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": message }],
        "usage": { "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 } })
}

fn chat(out: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    stream(out)?;
    let chunk = |delta: Value, finish: Value| {
        json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake-model",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
    };
    event(out, &chunk(json!({ "role": "assistant", "content": "" }), Value::Null))?;
    if let Some(think) = &answer.think {
        event(out, &chunk(json!({ "reasoning_content": think }), Value::Null))?;
    }
    let reason = match chat_call(answer) {
        Some(call) => {
            event(out, &chunk(json!({ "tool_calls": call }), Value::Null))?;
            "tool_calls"
        }
        None => {
            answer.each(|word| event(out, &chunk(json!({ "content": word }), Value::Null)))?;
            "stop"
        }
    };
    event(out, &chunk(json!({}), reason.into()))?;
    let usage = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake-model",
        "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 } });
    event(out, &usage)?;
    write!(out, "data: [DONE]\n\n")
}

fn responses(out: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    stream(out)?;
    let response = |status: &str, output: Value| {
        let usage = json!({ "input_tokens": 11, "input_tokens_details": { "cached_tokens": 0 }, "output_tokens": 7,
            "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 18 });
        json!({ "id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "fake-model",
            "output": output, "usage": if status == "completed" { usage } else { Value::Null } })
    };
    event(out, &json!({ "type": "response.created", "response": response("in_progress", json!([])) }))?;
    if let Some(think) = &answer.think {
        let item = json!({ "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": think }] });
        let empty = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
        event(out, &json!({ "type": "response.output_item.added", "output_index": 0, "item": empty }))?;
        event(
            out,
            &json!({ "type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": think }),
        )?;
        event(out, &json!({ "type": "response.output_item.done", "output_index": 0, "item": item }))?;
    }
    let item = match &answer.call {
        Some((name, arguments)) => {
            let (space, name) =
                name.split_once("::").map_or((None, name.as_str()), |(space, name)| (Some(space), name));
            let mut item = json!({ "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name,
                "arguments": arguments.to_string(), "status": "completed" });
            if let Some(space) = space {
                item["namespace"] = space.into();
            }
            event(out, &json!({ "type": "response.output_item.added", "output_index": 0, "item": item }))?;
            item
        }
        None => {
            let item = |content: Value| json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content });
            event(
                out,
                &json!({ "type": "response.output_item.added", "output_index": 0, "item": item(json!([])) }),
            )?;
            let part = json!({ "type": "output_text", "text": "", "annotations": [] });
            event(
                out,
                &json!({ "type": "response.content_part.added", "item_id": "msg_1", "output_index": 0, "content_index": 0, "part": part }),
            )?;
            answer.each(|word| {
                event(out, &json!({ "type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": word }))
            })?;
            item(json!([{ "type": "output_text", "text": answer.text(), "annotations": [] }]))
        }
    };
    event(out, &json!({ "type": "response.output_item.done", "output_index": 0, "item": item }))?;
    event(out, &json!({ "type": "response.completed", "response": response("completed", json!([item])) }))
}

fn gemini_piece(parts: &Value, finish: Option<&str>) -> Value {
    let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": parts } });
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    json!({ "candidates": [candidate], "modelVersion": "fake-model", "responseId": "1",
        "usageMetadata": { "promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18 } })
}

fn gemini(out: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    stream(out)?;
    if let Some(think) = &answer.think {
        event(out, &gemini_piece(&json!([{ "text": think, "thought": true }]), None))?;
    }
    if answer.call.is_some() {
        return event(out, &gemini_piece(&answer.parts(), Some("STOP")));
    }
    answer.each(|word| event(out, &gemini_piece(&json!([{ "text": word }]), None)))?;
    event(out, &gemini_piece(&json!([{ "text": "" }]), Some("STOP")))
}
