//! A synchronous bot call, compared with the plain call of an automation on the same daemon: the turn starts, runs on
//! the echo backend, is stored, and its words are the body of the response.

use std::time::Duration;

use serde_json::json;

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::Figure;
use super::super::net::http_load::latencies;
use super::super::ostler::{ENDPOINT, Folder, SECRET, call};
use super::super::rounds::{Bounds, Column, Side, alternate};
use super::super::stats::percentile;

/// The endpoint of the bot.
const BOT: &str = "talk";
/// Calls for the warm-up.
const FIRST: usize = 20;
/// Timed calls.
const TIMED: usize = 400;

const COLUMNS: &[Column] = &[
    ("sync call of a bot, over the bare call: p50", "ms", None),
    ("sync call of a bot, over the bare call: p99", "ms", None),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let bounds = Bounds { floor: true, ..context.bounds(5, Duration::from_secs(60)) };
    alternate(bounds, COLUMNS, |side| {
        let folder = folder(context)?;
        let (_process, address) = context.ostler.start(&folder)?;
        let took = match side {
            Side::Ostler => {
                let body = json!({ "thread": "t", "text": "How are the horses?" }).to_string();
                latencies(address, call(address, BOT, SECRET, &body).as_bytes(), 200, FIRST, TIMED)?
            }
            Side::Floor => {
                let request = call(address, ENDPOINT, SECRET, r#"{"horses":"well"}"#);
                latencies(address, request.as_bytes(), 202, FIRST, TIMED)?
            }
        };
        let share = |share| percentile(&took, share).ok_or_else(|| Failure::new("no call was answered"));
        Ok(vec![share(0.5)?, share(0.99)?])
    })
}

fn folder(context: &Context) -> Result<Folder> {
    let folder = Folder::usual(&context.root)?;
    let plugins = json!([
        { "name": "@ostler/echo" },
        { "name": "@ostler/bot", "options": { "root": folder.path().join("folders") } },
        { "name": "@ostler/webhook" },
    ]);
    let config = json!({ "port": 0, "deltaWindowMs": 0, "plugins": plugins });
    folder.write("config.json", &config.to_string())?;
    folder.endpoint(BOT, "bot: bot://groom\nreply: sync")?;
    folder.write("bots/groom.md", "---\nid: groom\nname: Groom\nharness: echo\nanswers: true\n---\n")?;
    Ok(folder)
}
