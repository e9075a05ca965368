//! A start with 12,000 stored sessions, without JavaScript: the first connection, the dirty memory a second later,
//! and pages of the listing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_contract::points::{KeptChat, KeptSession};
use ostler_ports::{SqliteSessions, StateDb};
use serde_json::{Value, json};

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::ws::Ws;
use super::super::ostler::Folder;
use super::super::rounds::{Bounds, Column, alternate};
use super::super::stats::percentile;

/// Stored sessions.
const STORED: usize = 12_000;
/// Timed pages.
const PAGES: usize = 100;
/// Sessions per page.
const PAGE: usize = 50;

const COLUMNS: &[Column] = &[
    ("start over 12,000 stored sessions, to first connection", "ms", Some(Target::Under(60.0))),
    ("memory a second later: written", "MB", Some(Target::Under(16.0))),
    ("listSessions, a page of 50: p50", "ms", Some(Target::Under(2.0))),
    ("listSessions, a page of 50: p99", "ms", None),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let folder = Folder::new(&context.root, &[json!({ "name": "@ostler/echo" })])?;
    store(&folder)?;
    let bounds = Bounds { floor: false, ..context.bounds(11, Duration::from_secs(60)) };
    alternate(bounds, COLUMNS, |_| {
        let (process, address) = context.ostler.start(&folder)?;
        drop(Ws::connect(address)?);
        let took = process.begun.elapsed();
        std::thread::sleep(Duration::from_secs(1));
        let memory = process.memory()?;
        let mut client = Ws::introduced(address, "bench")?;
        let (mut pages, mut cursor) = (Vec::with_capacity(PAGES), Value::Null);
        for _ in 0..PAGES {
            let mut params = json!({ "channel": "ahp-root://", "limit": PAGE });
            if !cursor.is_null() {
                params["cursor"] = cursor;
            }
            let begun = Instant::now();
            let mut page = client.ask("listSessions", params)?;
            pages.push(begun.elapsed().as_secs_f64() * 1000.0);
            if page["items"].as_array().map(Vec::len) != Some(PAGE) {
                return Err(Failure::new("a page has another number of sessions than was asked for"));
            }
            cursor = page["nextCursor"].take();
        }
        let share = |share| percentile(&pages, share).ok_or_else(|| Failure::new("no page was read"));
        Ok(vec![took.as_secs_f64() * 1000.0, memory.written / 1000.0 * 1.024, share(0.5)?, share(0.99)?])
    })
}

/// Stores the sessions in the daemon's state folder.
fn store(folder: &Folder) -> Result<()> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("the sessions cannot be stored: {error}"));
    let runtime = tokio::runtime::Runtime::new().map_err(|error| failed(&error))?;
    runtime.block_on(async {
        let db = StateDb::open(folder.path()).map_err(|error| failed(&error))?;
        let store = Arc::new(SqliteSessions::new(db, ostler_ports::Report::quiet())).into_point();
        let mut writes = Vec::new();
        for number in 0..STORED {
            let id = format!("{number:032x}");
            let session = KeptSession {
                uri: format!("echo:/{id}"),
                provider: "echo".to_owned(),
                title: format!("Session {number} of those that rest in the store"),
                created_at: "2026-01-01T00:00:00.000Z".to_owned(),
                modified_at: format!(
                    "2026-01-01T{:02}:{:02}:{:02}.000Z",
                    number / 3600,
                    number / 60 % 60,
                    number % 60
                ),
                working_directories: vec!["file:///srv/project".to_owned()],
                ..KeptSession::default()
            };
            let first = ostler_contract::protocol::uri::default_chat(&session.uri);
            let chats = vec![KeptChat { uri: first, default: true, ..KeptChat::default() }];
            writes.push(store.set_config.unbounded((id.clone(), session)));
            writes.push(store.set_chats.unbounded((id, chats)));
        }
        for write in writes {
            write.await.map_err(|error| failed(&error))?;
        }
        match &store.close {
            Some(close) => close.unbounded(()).await.map_err(|error| failed(&error)),
            None => Ok(()),
        }
    })
}
