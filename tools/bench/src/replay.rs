//! An agent of the Agent Client Protocol for the benchmarks: `ostler-bench replay-agent` responds based on the prompt only.
//!
//! `/words <n>` streams that many words. `/tools <n>` calls the tool `noop` of the session's MCP server that often and
//! reports the median time of a call, in microseconds. The response to any other prompt is one word.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::{Value, json};

use super::failure::{Failure, Result};
use super::stats::median;

/// Runs until its input ends.
///
/// # Errors
/// The system's error.
pub fn run() -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut server = Value::Null;
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else { continue };
        let result = match method {
            "initialize" => {
                json!({ "protocolVersion": 1, "agentInfo": { "name": "replay", "version": "1.0.0" },
                "agentCapabilities": { "mcpCapabilities": { "http": true } } })
            }
            "session/new" => {
                server = message["params"]["mcpServers"][0].clone();
                json!({ "sessionId": "replayed" })
            }
            "session/prompt" => {
                prompt(&mut out, &message["params"]["prompt"], &server)?;
                json!({ "stopReason": "end_turn" })
            }
            _ => json!({}),
        };
        writeln!(out, "{}", json!({ "jsonrpc": "2.0", "id": id, "result": result }))?;
        out.flush()?;
    }
    Ok(())
}

fn prompt(out: &mut impl Write, blocks: &Value, server: &Value) -> Result<()> {
    let mut blocks = blocks.as_array().into_iter().flatten();
    let text = blocks.find_map(|block| block["text"].as_str().filter(|text| text.starts_with('/')));
    let (directive, count) = text.and_then(|text| text.split_once(' ')).unwrap_or(("", "1"));
    let count: usize = count.trim().parse().unwrap_or(1);
    match directive {
        "/words" => {
            // The first chunk opens the part; after it, each word is a separate delta.
            say(out, "begin ")?;
            (0..count).try_for_each(|at| say(out, &format!("word {at} ")))
        }
        "/tools" => {
            let took = tools(server, count)?;
            say(out, &format!("took {took} end"))
        }
        _ => say(out, "word"),
    }
}

fn say(out: &mut impl Write, text: &str) -> Result<()> {
    let update =
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
    let params = json!({ "sessionId": "replayed", "update": update });
    writeln!(out, "{}", json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))?;
    Ok(out.flush()?)
}

/// Returns the median time of a call of `noop` over one connection, in microseconds.
fn tools(server: &Value, count: usize) -> Result<f64> {
    let url = server["url"].as_str().and_then(|url| url.strip_prefix("http://"));
    let (address, path) =
        url.and_then(|url| url.split_once('/')).ok_or_else(|| Failure::new("no MCP server"))?;
    let token = server["headers"][0]["value"].as_str().unwrap_or_default();
    let mut stream = BufReader::new(TcpStream::connect(address)?);
    stream.get_ref().set_nodelay(true)?;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "noop", "arguments": {} } });
    let body = call.to_string();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        stream.get_mut().write_all(request.as_bytes())?;
        answer(&mut stream)?;
        took.push(begun.elapsed().as_secs_f64() * 1_000_000.0);
    }
    median(&took).ok_or_else(|| Failure::new("no call was timed"))
}

fn answer(stream: &mut BufReader<TcpStream>) -> Result<()> {
    let mut length = 0;
    let mut status = String::new();
    stream.read_line(&mut status)?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or_default();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let said = String::from_utf8_lossy(&body);
    match status.contains(" 200 ") && said.contains("called") {
        true => Ok(()),
        false => Err(Failure::new(format!("the endpoint answered {} {said}", status.trim()))),
    }
}
