//! The rows of the state database.

use ostler_contract::Thrown;
use ostler_contract::points::{SessionFlags, UsageEntry};
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::stores::transfer::{Content, Item, Kind, PAGE_ITEMS, Position};
use rusqlite::{Connection, Row, params};

use super::Page;
use crate::runs::{self, Titles};
use crate::sessions::{decode, encode};
use crate::state::Failure;
use crate::usage;

/// The table of a kind: its columns for the number, the two names and the content, the rows after a position, and their
/// order.
fn table(kind: Kind) -> Option<(&'static str, &'static str, &'static str)> {
    Some(match kind {
        Kind::Progress => {
            ("0, automation, NULL, progress FROM automation_progress", "automation > ?1", "automation")
        }
        Kind::Run => ("number, uri, NULL, run FROM automation_runs", "number > ?3", "number"),
        Kind::Session => ("rowid, id, NULL, kept FROM sessions", "rowid > ?3", "rowid"),
        Kind::Marks => {
            ("0, session, NULL, is_read, is_archived FROM session_flags", "session > ?1", "session")
        }
        Kind::Artifacts => ("0, session, NULL, artifacts FROM session_artifacts", "session > ?1", "session"),
        Kind::PullRequests => {
            ("0, session, NULL, pull_requests FROM session_pull_requests", "session > ?1", "session")
        }
        Kind::Chats => ("0, session, NULL, chats FROM session_chats", "session > ?1", "session"),
        Kind::Annotations => {
            ("0, session, NULL, annotations FROM session_annotations", "session > ?1", "session")
        }
        Kind::Reported => ("0, session, NULL, reported FROM session_reported", "session > ?1", "session"),
        Kind::ChatTitle => {
            ("0, session, chat, title FROM chat_titles", "(session, chat) > (?1, ?2)", "session, chat")
        }
        Kind::Turn => (
            "place, session, chat, kept FROM turns",
            "(session, chat, place) > (?1, ?2, ?3)",
            "session, chat, place",
        ),
        Kind::Attachment => (
            "0, session, id, content_type, content FROM attachments",
            "(session, id) > (?1, ?2)",
            "session, id",
        ),
        Kind::Usage => ("number, NULL, NULL, entry FROM usage", "number > ?3", "number"),
        Kind::Secret | Kind::Users | Kind::Policy | Kind::Record | Kind::Automation => return None,
    })
}

/// Reads the rows after a position.
pub(super) fn page(db: &Connection, kind: Kind, after: &Position) -> Result<Vec<Item>, Failure> {
    let Some((columns, rest, order)) = table(kind) else { return Ok(Vec::new()) };
    let sql = format!(
        "SELECT {columns} WHERE {rest} AND ?1 IS NOT NULL AND ?2 IS NOT NULL AND ?3 IS NOT NULL
         ORDER BY {order} LIMIT {PAGE_ITEMS}"
    );
    let name = |at: usize| after.key.get(at).cloned().unwrap_or_default();
    let mut asked = db.prepare_cached(&sql)?;
    let mut rows = asked.query(params![name(0), name(1), after.number])?;
    let mut page = Page::default();
    while let Some(row) = rows.next()? {
        if page.add(item(kind, row)?) {
            break;
        }
    }
    Ok(page.items)
}

fn item(kind: Kind, row: &Row<'_>) -> Result<Item, Failure> {
    let key: Vec<Option<String>> = vec![row.get(1)?, row.get(2)?];
    let position = Position { key: key.into_iter().flatten().collect(), number: row.get(0)? };
    let content = match kind {
        Kind::Marks => {
            Content::Json(encode(&SessionFlags { is_read: row.get(3)?, is_archived: row.get(4)? })?)
        }
        Kind::ChatTitle => Content::Json(encode(&row.get::<_, String>(3)?)?),
        Kind::Attachment => Content::Bytes { content_type: row.get(3)?, bytes: row.get(4)? },
        _ => Content::Json(row.get(3)?),
    };
    Ok(Item { position, content })
}

/// Stores rows. `titles` are those of the automations, for the search of runs.
pub(super) fn append(db: &Connection, kind: Kind, items: Vec<Item>, titles: &Titles) -> Result<(), Failure> {
    for item in items {
        let name = item.name(kind);
        let text = match &item.content {
            Content::Json(text) => text.as_str(),
            _ => "",
        };
        let [first, second] =
            [0, 1].map(|at| item.position.key.get(at).map(String::as_str).unwrap_or_default());
        let one = |sql: &str| -> Result<(), Failure> {
            db.prepare_cached(sql)?.execute([first, text])?;
            Ok(())
        };
        match kind {
            Kind::Progress => one("INSERT INTO automation_progress (automation, progress) VALUES (?1, ?2)")?,
            Kind::Run => {
                let run: AutomationRunState = decode(text, "run", &name)?;
                runs::insert(db, &run, text, titles)?;
            }
            Kind::Session => one("INSERT INTO sessions (id, kept) VALUES (?1, ?2)")?,
            Kind::Marks => {
                let flags: SessionFlags = decode(text, "marks of", &name)?;
                db.prepare_cached(
                    "INSERT INTO session_flags (session, is_read, is_archived) VALUES (?1, ?2, ?3)",
                )?
                .execute(params![first, flags.is_read, flags.is_archived])?;
            }
            Kind::Artifacts => one("INSERT INTO session_artifacts (session, artifacts) VALUES (?1, ?2)")?,
            Kind::PullRequests => {
                one("INSERT INTO session_pull_requests (session, pull_requests) VALUES (?1, ?2)")?;
            }
            Kind::Chats => one("INSERT INTO session_chats (session, chats) VALUES (?1, ?2)")?,
            Kind::Annotations => {
                one("INSERT INTO session_annotations (session, annotations) VALUES (?1, ?2)")?;
            }
            Kind::Reported => one("INSERT INTO session_reported (session, reported) VALUES (?1, ?2)")?,
            Kind::ChatTitle => {
                let title: String = decode(text, "title of", &name)?;
                db.prepare_cached("INSERT INTO chat_titles (session, chat, title) VALUES (?1, ?2, ?3)")?
                    .execute([first, second, &title])?;
            }
            Kind::Turn => {
                db.prepare_cached("INSERT INTO turns (session, chat, place, kept) VALUES (?1, ?2, ?3, ?4)")?
                    .execute(params![first, second, item.position.number, text])?;
            }
            Kind::Attachment => {
                let Content::Bytes { content_type, bytes } = &item.content else { continue };
                db.prepare_cached(
                    "INSERT INTO attachments (session, id, content_type, content) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![first, second, content_type, bytes])?;
            }
            Kind::Usage => {
                let entry: UsageEntry = decode(text, "usage entry", &name)?;
                usage::insert(db, &entry, text)?;
            }
            Kind::Secret | Kind::Users | Kind::Policy | Kind::Record | Kind::Automation => {
                return Err(Thrown::new(format_args!("{} are not in the state database", kind.name())).into());
            }
        }
    }
    Ok(())
}
