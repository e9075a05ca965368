//! Turns of the host as updates of ACP, and prompts of ACP as messages of the host.

use std::cmp::Ordering;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ostler_contract::media_type::{Content, media_type};
use ostler_contract::{Value, json};
use ostler_protocol::uri::inline_text;
use ostler_protocol::wire::state::{ChatState, Message, ResponsePart};

/// The kinds of tools that ACP knows.
const KINDS: &[&str] =
    &["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

/// A prompt's text and attachments.
pub fn message(blocks: &Value) -> Value {
    let mut text = Vec::new();
    let mut attachments = Vec::new();
    for block in blocks.as_array().into_iter().flatten() {
        let of = |name: &str| block[name].as_str().unwrap_or_default();
        match of("type") {
            "text" => text.push(of("text").to_owned()),
            "image" | "audio" => {
                let kind = media_type(block["mimeType"].as_str(), "", Content::Base64(of("data")));
                attachments
                    .push(json!({ "type": "embeddedResource", "label": of("type"), "data": of("data"),
                    "contentType": kind.unwrap_or_default() }));
            }
            "resource_link" => {
                let mut link =
                    json!({ "type": "resource", "label": label(of("name"), of("uri")), "uri": of("uri") });
                if let Some(kind) = media_type(block["mimeType"].as_str(), of("uri"), Content::Unknown) {
                    link["contentType"] = kind.into();
                }
                attachments.push(link);
            }
            "resource" => {
                let resource = &block["resource"];
                let uri = resource["uri"].as_str().unwrap_or_default();
                let (data, content) = match (resource["text"].as_str(), resource["blob"].as_str()) {
                    (Some(text), _) => (BASE64_STANDARD.encode(text), Content::Text),
                    (None, Some(blob)) => (blob.to_owned(), Content::Base64(blob)),
                    (None, None) => continue,
                };
                let kind = media_type(resource["mimeType"].as_str(), uri, content);
                attachments.push(json!({ "type": "embeddedResource", "label": label("", uri), "data": data,
                    "contentType": kind.unwrap_or_default() }));
            }
            _ => {}
        }
    }
    let mut message = json!({ "text": text.join("\n"), "origin": { "kind": "user" } });
    if !attachments.is_empty() {
        message["attachments"] = attachments.into();
    }
    message
}

fn label(name: &str, uri: &str) -> String {
    let name = if name.is_empty() { uri.rsplit('/').next().unwrap_or_default() } else { name };
    if name.is_empty() { "resource".to_owned() } else { name.to_owned() }
}

/// A user's message as updates.
pub fn user(message: &Message) -> Vec<Value> {
    let mut updates = vec![chunk("user_message_chunk", &message.text)];
    for attachment in message.attachments.iter().flatten() {
        let attachment = serde_json::to_value(attachment).unwrap_or_default();
        if let Some(uri) = attachment["uri"].as_str() {
            let name = attachment["label"].as_str().unwrap_or(uri);
            updates.push(json!({ "sessionUpdate": "user_message_chunk",
                "content": { "type": "resource_link", "uri": uri, "name": name } }));
        }
    }
    updates
}

/// Where a part has the entries of the plan that it shows.
const PLAN: &str = "ostler.plan";

/// Returns the plan of a turn after an activity has begun, if it is one of its entries: what was under way is done.
pub fn plan_at(turn: &[ResponsePart], activity: &str) -> Option<Value> {
    let mut plans = turn.iter().rev().filter_map(|part| match part {
        ResponsePart::SystemNotification(part) => part.meta.as_ref()?.get(PLAN)?.as_array().cloned(),
        _ => None,
    });
    let mut entries = plans.next()?;
    let is_it = |entry: &Value| entry["content"] == activity;
    let is_open = |entry: &Value| is_it(entry) && entry["status"] != "completed";
    let at = entries.iter().position(is_open).or_else(|| entries.iter().position(is_it))?;
    for (place, entry) in entries.iter_mut().enumerate() {
        match place.cmp(&at) {
            Ordering::Less => entry["status"] = "completed".into(),
            Ordering::Equal => entry["status"] = "in_progress".into(),
            Ordering::Greater => {}
        }
    }
    Some(json!({ "sessionUpdate": "plan", "entries": entries }))
}

/// Returns text as an update.
pub fn chunk(kind: &str, text: &str) -> Value {
    json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } })
}

/// Returns a part of a response as an update; `None` if it has no counterpart.
pub fn part(part: &ResponsePart, notices: bool) -> Option<Value> {
    match part {
        ResponsePart::Markdown(part) => {
            (!part.content.is_empty()).then(|| chunk("agent_message_chunk", &part.content))
        }
        ResponsePart::Reasoning(part) => {
            (!part.content.is_empty()).then(|| chunk("agent_thought_chunk", &part.content))
        }
        ResponsePart::ToolCall(part) => {
            let call = serde_json::to_value(&part.tool_call).ok()?;
            Some(tool_call(&call, "tool_call"))
        }
        ResponsePart::SystemNotification(_) | ResponsePart::ContentRef(_) => {
            let part = serde_json::to_value(part).ok()?;
            if part["kind"] == "contentRef" {
                let uri = part["uri"].as_str()?;
                return Some(content_ref(uri, part["contentType"].as_str()));
            }
            if let Some(plan) = part["_meta"][PLAN].as_array()
                && plan.iter().all(|entry| entry["content"].is_string())
            {
                return Some(json!({ "sessionUpdate": "plan", "entries": plan }));
            }
            let text = text_of(&part["content"]);
            Some(match notices {
                true => json!({ "sessionUpdate": "notice", "severity": "info", "title": text }),
                false => chunk("agent_thought_chunk", &format!("{text}\n\n")),
            })
        }
        _ => None,
    }
}

fn content_ref(uri: &str, mime: Option<&str>) -> Value {
    let embedded = uri.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let content = match embedded {
        Some((mime, data)) if mime.starts_with("image/") => {
            json!({ "type": "image", "mimeType": mime, "data": data })
        }
        Some((mime, data)) if mime.starts_with("audio/") => {
            json!({ "type": "audio", "mimeType": mime, "data": data })
        }
        _ => {
            let mut link = json!({ "type": "resource_link", "uri": uri, "name": label("", uri) });
            if let Some(mime) = mime {
                link["mimeType"] = mime.into();
            }
            link
        }
    };
    json!({ "sessionUpdate": "agent_message_chunk", "content": content })
}

/// Text or Markdown.
pub fn text_of(value: &Value) -> String {
    value.as_str().or_else(|| value["markdown"].as_str()).unwrap_or_default().to_owned()
}

/// A tool call of the running turn, or of the latest one.
pub fn find_call(chat: &ChatState, id: &str) -> Option<Value> {
    let running = chat.active_turn.as_ref().map(|turn| &turn.response_parts);
    let parts = running.or_else(|| chat.turns.last().map(|turn| &turn.response_parts))?;
    parts.iter().find_map(|part| match part {
        ResponsePart::ToolCall(part) => {
            let call = serde_json::to_value(&part.tool_call).ok()?;
            (call["toolCallId"] == id).then_some(call)
        }
        _ => None,
    })
}

/// A tool call as an update: `tool_call` when it is new, `tool_call_update` afterwards.
pub fn tool_call(call: &Value, update: &str) -> Value {
    let mut shown = call_fields(call);
    shown["sessionUpdate"] = update.into();
    shown
}

/// The fields of a tool call.
pub fn call_fields(call: &Value) -> Value {
    let status = match call["status"].as_str().unwrap_or_default() {
        "streaming" | "pending-confirmation" => "pending",
        "completed" if call["success"] == true => "completed",
        "completed" | "cancelled" => "failed",
        _ => "in_progress",
    };
    let name = call["toolName"].as_str().unwrap_or_default();
    // `@ostler/acp` reports the kind of the tool in place of its name.
    let kind = call["_meta"]["ostler.toolKind"].as_str().unwrap_or(name);
    let title = [&call["invocationMessage"], &call["displayName"], &call["toolName"]]
        .into_iter()
        .map(text_of)
        .find(|text| !text.is_empty());
    let mut shown = json!({ "toolCallId": call["toolCallId"], "title": title.unwrap_or_default(), "status": status,
        "kind": if KINDS.contains(&kind) { kind } else { "other" } });
    if let Some(input) = call["toolInput"].as_str() {
        shown["rawInput"] = serde_json::from_str(input).unwrap_or_else(|_| json!(input));
    }
    if call["structuredContent"].is_object() {
        shown["rawOutput"] = call["structuredContent"].clone();
    }
    let locations: Vec<Value> = call["_meta"]["ostler.locations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|location| {
            let mut shown = json!({ "path": file_path(location["uri"].as_str()?)? });
            if location["line"].is_u64() {
                shown["line"] = location["line"].clone();
            }
            Some(shown)
        })
        .collect();
    if !locations.is_empty() {
        shown["locations"] = locations.into();
    }
    let mut content: Vec<Value> =
        call["content"].as_array().into_iter().flatten().filter_map(result_content).collect();
    if call["edits"]["items"].is_array() && content.is_empty() {
        content.extend(call["edits"]["items"].as_array().into_iter().flatten().filter_map(diff));
    }
    let error = call["error"]["message"].as_str().or_else(|| call["reasonMessage"].as_str());
    content.extend(error.filter(|_| status == "failed").map(text_content));
    if !content.is_empty() {
        shown["content"] = content.into();
    }
    shown
}

fn text_content(text: &str) -> Value {
    json!({ "type": "content", "content": { "type": "text", "text": text } })
}

fn result_content(content: &Value) -> Option<Value> {
    match content["type"].as_str()? {
        "text" => Some(text_content(content["text"].as_str()?)),
        "embeddedResource" => {
            let mime = content["contentType"].as_str().unwrap_or_default();
            let data = content["data"].as_str()?;
            mime.starts_with("image/").then(|| {
                json!({ "type": "content", "content": { "type": "image", "mimeType": mime, "data": data } })
            })
        }
        "resource" => {
            let uri = content["uri"].as_str()?;
            Some(json!({ "type": "content",
                "content": { "type": "resource_link", "uri": uri, "name": label("", uri) } }))
        }
        "fileEdit" => diff(content),
        "terminal" => Some(text_content(content["title"].as_str().unwrap_or("terminal"))),
        _ => None,
    }
}

/// Returns an edit with both texts; only its name if the texts are elsewhere.
fn diff(edit: &Value) -> Option<Value> {
    let side = |name: &str| edit.get(name).filter(|side| side.is_object());
    let uri = side("after").or_else(|| side("before"))?["uri"].as_str()?;
    let path = file_path(uri)?;
    let text = |name: &str| side(name).map(|side| side["content"]["uri"].as_str().and_then(data_text));
    match (text("before"), text("after")) {
        (Some(None), _) | (_, Some(None)) => Some(text_content(&format!("Edited {path}"))),
        (before, after) => {
            let mut diff =
                json!({ "type": "diff", "path": path, "newText": after.flatten().unwrap_or_default() });
            if let Some(before) = before.flatten() {
                diff["oldText"] = before.into();
            }
            Some(diff)
        }
    }
}

/// The text that a URI contains.
fn data_text(uri: &str) -> Option<String> {
    if let Some(text) = inline_text(uri) {
        return Some(text);
    }
    let (head, body) = uri.strip_prefix("data:")?.split_once(',')?;
    match head.ends_with(";base64") {
        true => String::from_utf8(BASE64_STANDARD.decode(body).ok()?).ok(),
        false => Some(percent_encoding::percent_decode_str(body).decode_utf8().ok()?.into_owned()),
    }
}

/// The path of a `file:` URI.
pub fn file_path(uri: &str) -> Option<String> {
    url::Url::parse(uri).ok()?.to_file_path().ok().map(|path| path.display().to_string())
}

/// The `file:` URI of a path.
pub fn file_uri(path: &str) -> Option<String> {
    url::Url::from_file_path(path).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_becomes_text_and_attachments() {
        let blocks = json!([
            { "type": "text", "text": "look at" }, { "type": "text", "text": "this" },
            { "type": "resource_link", "uri": "file:///a/b.rs", "name": "b.rs" },
            { "type": "resource", "resource": { "uri": "file:///a/c.rs", "mimeType": "text/rust", "text": "fn" } },
            { "type": "image", "data": "aGk=", "mimeType": "image/png" },
        ]);
        assert_eq!(
            message(&blocks),
            json!({ "text": "look at\nthis", "origin": { "kind": "user" }, "attachments": [
                { "type": "resource", "label": "b.rs", "uri": "file:///a/b.rs", "contentType": "text/x-rust" },
                { "type": "embeddedResource", "label": "c.rs", "data": "Zm4=", "contentType": "text/rust" },
                { "type": "embeddedResource", "label": "image", "data": "aGk=", "contentType": "image/png" },
            ] })
        );
    }

    #[test]
    fn an_edit_becomes_a_diff() {
        let side = |text: &str| json!({ "uri": "file:///a", "content": { "uri": format!("data:text/plain,{text}") } });
        let call = json!({ "toolCallId": "c", "toolName": "edit", "displayName": "Edit", "status": "completed",
            "success": true, "content": [{ "type": "fileEdit", "before": side("x%0A"), "after": side("y%0A") }] });
        let inline = |text: &str| {
            let uri = ostler_protocol::uri::inline("file:///a", text);
            json!({ "uri": "file:///a", "content": { "uri": uri } })
        };
        let mut other = call.clone();
        other["content"][0]["before"] = inline("x\n");
        other["content"][0]["after"] = inline("y\n");
        for call in [call, other] {
            let shown = tool_call(&call, "tool_call_update");
            assert_eq!(shown["status"], "completed");
            assert_eq!(
                shown["content"],
                json!([{ "type": "diff", "path": "/a", "newText": "y\n", "oldText": "x\n" }])
            );
        }
    }
}
