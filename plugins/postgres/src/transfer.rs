//! Everything in a schema while no host runs on it, for moving a host from files to the database and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_contract::live::Pending;
use ostler_contract::points::{KeptAutomation, KeptChat, KeptSession, UsageEntry};
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::stores::transfer::{Content, Item, Kind, PAGE_BYTES, PAGE_ITEMS, Position, Transfer};
use ostler_contract::{JsonObject, Secret, Thrown};
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use crate::database::{Param, borrowed, decode, encode, json, parse, pipelined};
use crate::direct::Direct;
use crate::failure::thrown;
use crate::find_runs::Facts;
use crate::migrations::{self, SchemaState, Tables};
use crate::text::{accepted, original, storable};
use crate::{records, runs, sessions, usage};

/// How long to wait for the lease of a host that ended without releasing it, and for a host that starts.
const PATIENCE: Duration = Duration::from_secs(12);
/// The maximum length of a name in the database, in bytes.
const NAME_MAX: usize = 63;
/// How often to look.
const LOOK: Duration = Duration::from_millis(250);

/// A schema without hosts. As long as it exists, none starts: it holds the lock that serializes their starts.
#[derive(Clone)]
pub struct ExclusiveSchema {
    direct: Arc<Direct>,
}

impl ExclusiveSchema {
    /// Locks a schema that is only read.
    ///
    /// # Errors
    /// It has no tables of this version, or a host runs on it.
    pub async fn source(direct: Arc<Direct>) -> Result<Self, Thrown> {
        lock(&direct).await?;
        direct.check_schema().await?;
        let found = migrations::inspect(&direct.client, &direct.schema, Tables::default()).await?;
        refuse_newer(&direct, &found)?;
        wait_for_hosts(&direct).await?;
        Ok(Self { direct })
    }

    /// Locks a schema that is written. Creates and updates its tables.
    ///
    /// # Errors
    /// It was written by a newer host, or a host runs on it.
    pub async fn target(direct: Arc<Direct>) -> Result<Self, Thrown> {
        lock(&direct).await?;
        let found = migrations::inspect(&direct.client, &direct.schema, Tables::default()).await?;
        if found.has_tables() {
            wait_for_hosts(&direct).await?;
        }
        Self::prepared(direct, &found).await
    }

    /// As [`Self::target`], with an empty schema. An existing one is renamed; returns its new name.
    ///
    /// # Errors
    /// As [`Self::target`]; the database user does not own the schema.
    pub async fn empty_target(direct: Arc<Direct>, stamp: &str) -> Result<(Self, Option<String>), Thrown> {
        lock(&direct).await?;
        let found = migrations::inspect(&direct.client, &direct.schema, Tables::default()).await?;
        if !found.has_tables() {
            return Ok((Self::prepared(direct, &found).await?, None));
        }
        wait_for_hosts(&direct).await?;
        let rest = format!("_before_{stamp}");
        let begin = &direct.schema[..direct.schema.len().min(NAME_MAX.saturating_sub(rest.len()))];
        let renamed = format!("{begin}{rest}");
        // Both names are lowercase letters, digits and underscores.
        let sql = format!("ALTER SCHEMA \"{}\" RENAME TO \"{renamed}\"", direct.schema);
        direct.client.batch_execute(&sql).await.map_err(|why| thrown(&why))?;
        let found = migrations::inspect(&direct.client, &direct.schema, Tables::default()).await?;
        Ok((Self::prepared(direct, &found).await?, Some(renamed)))
    }

    /// Creates and updates the tables of a locked schema.
    async fn prepared(direct: Arc<Direct>, found: &SchemaState) -> Result<Self, Thrown> {
        refuse_newer(&direct, found)?;
        if !found.is_current() {
            let migrated = async {
                direct.client.batch_execute("BEGIN").await.map_err(|why| thrown(&why))?;
                let found = migrations::lock(&direct.client, &direct.schema, Tables::default()).await?;
                migrations::apply(&direct.client, &found).await?;
                direct.client.batch_execute("COMMIT").await.map_err(|why| thrown(&why))
            };
            if let Err(why) = migrated.await {
                drop(direct.client.batch_execute("ROLLBACK").await);
                return Err(why);
            }
        }
        // Otherwise an acknowledged write can be lost.
        let durable = "SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') = 'off'";
        direct.client.batch_execute(durable).await.map_err(|why| thrown(&why))?;
        Ok(Self { direct })
    }

    async fn page(&self, kind: Kind, after: Position) -> Result<Vec<Item>, Thrown> {
        let name = |at: usize| after.key.get(at).cloned().unwrap_or_default();
        let params: Vec<Param> = vec![Box::new(name(0)), Box::new(name(1)), Box::new(after.number)];
        let rows = self.direct.rows(&page_of(kind), params).await?;
        rows.iter().map(|row| self.item(kind, row)).collect()
    }

    fn item(&self, kind: Kind, row: &Row) -> Result<Item, Thrown> {
        let key: Vec<Option<String>> = vec![row.get(1), row.get(2)];
        let position = Position { key: key.into_iter().flatten().collect(), number: row.get(0) };
        let content = match kind {
            Kind::Secret => {
                let name = position.key.first().map(String::as_str).unwrap_or_default();
                Content::Secret(Secret::new(self.direct.cipher.open(name, row.get(4), row.get(3))?))
            }
            Kind::Attachment => Content::Bytes { content_type: row.get(4), bytes: row.get(3) },
            Kind::Automation => {
                let id = position.key.first().cloned().unwrap_or_default();
                let text: &str = row.get(3);
                let kept: KeptAutomation = decode(text, "automation", &id)?;
                Content::Json(json(&kept)?)
            }
            _ => Content::Json(original(row.get(3)).into_owned()),
        };
        Ok(Item { position, content })
    }

    /// Writes items in one transaction.
    async fn write(&self, kind: Kind, items: Vec<Item>) -> Result<(), Thrown> {
        let statements = statements(kind, items, &self.direct)?;
        let client = &self.direct.client;
        client.batch_execute("BEGIN").await.map_err(|why| thrown(&why))?;
        let written = async {
            for (sql, all) in statements {
                let all: Vec<_> = all.into_iter().map(accepted).collect();
                let statement = client.prepare(sql).await.map_err(|why| thrown(&why))?;
                let borrowed: Vec<_> = all.iter().map(|params| borrowed(params)).collect();
                let sent = pipelined(borrowed.iter().map(|params| client.query(&statement, params))).await;
                for one in sent {
                    one.map_err(|why| thrown(&why))?;
                }
            }
            client.batch_execute("COMMIT").await.map_err(|why| thrown(&why))
        };
        let written = written.await;
        if written.is_err() {
            drop(client.batch_execute("ROLLBACK").await);
        }
        written
    }
}

impl Transfer for ExclusiveSchema {
    fn place(&self) -> String {
        self.direct.place()
    }

    fn read(&self, kind: Kind, after: Option<Position>) -> Pending<Vec<Item>> {
        let schema = self.clone();
        let after = after.unwrap_or_else(|| Position { key: Vec::new(), number: i64::MIN });
        Box::pin(async move { schema.page(kind, after).await })
    }

    fn append(&self, kind: Kind, items: Vec<Item>) -> Pending<()> {
        let schema = self.clone();
        Box::pin(async move { schema.write(kind, items).await })
    }

    fn close(&self) -> Pending<()> {
        let schema = self.clone();
        Box::pin(async move {
            // So that the first queries of a host are planned for the copied rows.
            schema.direct.client.batch_execute("ANALYZE").await.map_err(|why| thrown(&why))
        })
    }
}

/// Refuses a schema of a newer program, which this one can use, but of which it would not copy everything.
fn refuse_newer(direct: &Direct, found: &SchemaState) -> Result<(), Thrown> {
    match found.is_served() && !found.is_current() {
        true => Err(Thrown::new(format_args!(
            "schema {} has tables of version {}, and this ostler copies those of version {}; use the ostler that updated them",
            direct.schema,
            found.version(),
            Tables::default().known()
        ))),
        false => Ok(()),
    }
}

async fn lock(direct: &Direct) -> Result<(), Thrown> {
    let begun = Instant::now();
    let sql = "SELECT pg_try_advisory_lock(hashtextextended('ostler:' || $1, 0))";
    loop {
        let rows = direct.rows(sql, vec![Box::new(direct.schema.clone())]).await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(Thrown::new(format_args!(
                "schema {} is locked by a host that starts, or by another copy; try again when it is done",
                direct.schema
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until no host has a lease.
async fn wait_for_hosts(direct: &Direct) -> Result<(), Thrown> {
    let begun = Instant::now();
    while let Some(host) = direct.hosts().await?.into_iter().next() {
        if begun.elapsed() > PATIENCE {
            let url = host.url.map(|url| format!(" at {url}")).unwrap_or_default();
            return Err(Thrown::new(format_args!(
                "{}{url} is running on schema {}; stop it first, with ostler stop on its computer",
                host.id, direct.schema
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
    // A host that was suspended must not renew a lease that has expired.
    direct.rows("DELETE FROM host WHERE expires_at <= clock_timestamp()", vec![]).await.map(drop)
}

/// The statement that reads a page: its columns are the number, the two names, the content and what belongs to it.
fn page_of(kind: Kind) -> String {
    let parts = |part: &'static str| -> (String, &'static str, &'static str) {
        (
            format!(
                "0::bigint AS number, session AS a, NULL::text AS b, value AS content, NULL::text AS more
                 FROM session_parts WHERE part = '{part}' AND session > $1"
            ),
            "session",
            "a",
        )
    };
    let (rows, order, outer) = match kind {
        Kind::Secret => (
            "0::bigint AS number, name AS a, NULL::text AS b, value AS content, key_id AS more FROM vault WHERE name > $1"
                .to_owned(),
            "name",
            "a",
        ),
        Kind::Users => (
            "0::bigint AS number, id AS a, NULL::text AS b, content, NULL::text AS more FROM users WHERE id > $1"
                .to_owned(),
            "id",
            "a",
        ),
        Kind::Policy => (
            "number, id AS a, NULL::text AS b, policy AS content, NULL::text AS more FROM policies WHERE number > $3"
                .to_owned(),
            "number",
            "number",
        ),
        Kind::Record => (
            "0::bigint AS number, collection AS a, id AS b, record AS content, NULL::text AS more FROM records
             WHERE (collection, id) > ($1, $2)"
                .to_owned(),
            "collection, id",
            "a, b",
        ),
        Kind::Automation => (
            "0::bigint AS number, id AS a, NULL::text AS b, json_build_object('id', id, 'definition', definition::json,
                 'owner', owner, 'createdAt', created_at, 'modifiedAt', modified_at)::text AS content, NULL::text AS more
             FROM automations WHERE id > $1"
                .to_owned(),
            "id",
            "a",
        ),
        Kind::Progress => (
            "0::bigint AS number, automation AS a, NULL::text AS b, progress AS content, NULL::text AS more
             FROM automation_progress WHERE automation > $1"
                .to_owned(),
            "automation",
            "a",
        ),
        Kind::Run => (
            "number, uri AS a, NULL::text AS b, run AS content, NULL::text AS more FROM automation_runs WHERE number > $3"
                .to_owned(),
            "number",
            "number",
        ),
        Kind::Session => (
            "number, id AS a, NULL::text AS b, kept AS content, NULL::text AS more FROM sessions WHERE number > $3"
                .to_owned(),
            "number",
            "number",
        ),
        Kind::Marks => parts("flags"),
        Kind::Artifacts => parts("artifacts"),
        Kind::PullRequests => parts("pullRequests"),
        Kind::Chats => parts("chats"),
        Kind::Annotations => parts("annotations"),
        Kind::Reported => parts("reported"),
        Kind::ChatTitle => (
            "0::bigint AS number, session AS a, substr(part, 7) AS b, value AS content, NULL::text AS more
             FROM session_parts WHERE (session, part) > ($1, 'title:' || $2) AND part LIKE 'title:%'"
                .to_owned(),
            "session, part",
            "a, b",
        ),
        Kind::Turn => (
            "place AS number, session AS a, chat AS b, kept AS content, NULL::text AS more FROM turns
             WHERE (session, chat, place) > ($1, $2, $3)"
                .to_owned(),
            "session, chat, place",
            "a, b, number",
        ),
        Kind::Attachment => (
            "0::bigint AS number, session AS a, id AS b, content, content_type AS more FROM attachments
             WHERE (session, id) > ($1, $2)"
                .to_owned(),
            "session, id",
            "a, b",
        ),
        Kind::Usage => (
            "number, NULL::text AS a, NULL::text AS b, entry AS content, NULL::text AS more FROM usage WHERE number > $3"
                .to_owned(),
            "number",
            "number",
        ),
    };
    // Every parameter has a type, also one that the rows do not depend on.
    format!(
        "SELECT number, a, b, content, more FROM (
             SELECT page.*, sum(octet_length(content)) OVER (ORDER BY {outer} ROWS UNBOUNDED PRECEDING)
                 - octet_length(content) AS before
             FROM (
                 SELECT {rows} AND $1::text IS NOT NULL AND $2::text IS NOT NULL AND $3::bigint IS NOT NULL
                 ORDER BY {order} LIMIT {PAGE_ITEMS}
             ) AS page
         ) AS sized WHERE before < {PAGE_BYTES} ORDER BY {outer}"
    )
}

/// A statement, and the values of each of its executions.
type Statements = Vec<(&'static str, Vec<Vec<Param>>)>;

/// The statements that store items.
fn statements(kind: Kind, items: Vec<Item>, direct: &Direct) -> Result<Statements, Thrown> {
    let keys = |at: usize| -> Vec<String> {
        items.iter().map(|item| item.position.key.get(at).cloned().unwrap_or_default()).collect()
    };
    let texts = || -> Vec<String> {
        let text = |item: &Item| match &item.content {
            Content::Json(text) => storable(text.clone()),
            _ => String::new(),
        };
        items.iter().map(text).collect()
    };
    let two = |sql| -> Statements { vec![(sql, vec![vec![Box::new(keys(0)), Box::new(texts())]])] };
    let part = |sql| two(sql);
    Ok(match kind {
        Kind::Secret => {
            let mut sealed = Vec::new();
            for item in &items {
                let Content::Secret(value) = &item.content else { continue };
                let name = item.position.key.first().cloned().unwrap_or_default();
                let value = direct.cipher.seal(&name, value.reveal())?;
                let params: Vec<Param> =
                    vec![Box::new(name), Box::new(direct.cipher.id().to_vec()), Box::new(value)];
                sealed.push(params);
            }
            vec![(crate::vault::SET, sealed)]
        }
        Kind::Users => two("INSERT INTO users (id, content) SELECT * FROM unnest($1::text[], $2::text[])"),
        Kind::Policy => two("INSERT INTO policies (id, policy)
             SELECT id, policy FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS t(id, policy, n) ORDER BY n"),
        Kind::Record => {
            let mut puts = Vec::new();
            for item in &items {
                let (Content::Json(text), [collection, _]) = (&item.content, item.position.key.as_slice()) else {
                    continue;
                };
                let record: JsonObject = parse(text, "record", &item.name(kind))?;
                puts.push(records::prepare(collection, None, record)?.params);
            }
            vec![(records::PUT, puts)]
        }
        Kind::Automation => {
            let all: Vec<KeptAutomation> = decoded(kind, &items)?;
            let encoded = |one: &KeptAutomation| encode(&one.definition);
            let params: Vec<Param> = vec![
                Box::new(keys(0)),
                Box::new(all.iter().map(encoded).collect::<Result<Vec<_>, _>>()?),
                Box::new(all.iter().map(|one| one.owner.clone()).collect::<Vec<_>>()),
                Box::new(all.iter().map(|one| one.created_at.clone()).collect::<Vec<_>>()),
                Box::new(all.iter().map(|one| one.modified_at.clone()).collect::<Vec<_>>()),
            ];
            vec![(
                "INSERT INTO automations (id, definition, owner, created_at, modified_at)
                 SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])",
                vec![params],
            )]
        }
        Kind::Progress => two("INSERT INTO automation_progress (automation, progress)
             SELECT * FROM unnest($1::text[], $2::text[])"),
        Kind::Run => {
            let all: Vec<AutomationRunState> = decoded(kind, &items)?;
            let automation =
                |run: &AutomationRunState| automation_id(&run.automation).unwrap_or(&run.automation).to_owned();
            let ended_at: Vec<Option<String>> = all.iter().map(runs::ended_at).collect();
            let facts: Vec<Facts> = all.iter().map(Facts::of).collect();
            let (mut uris, mut words) = (Vec::new(), Vec::new());
            for (uri, facts) in keys(0).into_iter().zip(&facts) {
                for word in facts.words.iter().flatten() {
                    uris.push(uri.clone());
                    words.push(word.clone());
                }
            }
            let params: Vec<Param> = vec![
                Box::new(keys(0)),
                Box::new(all.iter().map(automation).collect::<Vec<_>>()),
                Box::new(all.iter().map(runs::cause).collect::<Vec<_>>()),
                Box::new(ended_at.iter().map(Option::is_some).collect::<Vec<_>>()),
                Box::new(ended_at),
                Box::new(texts()),
                Box::new(facts.iter().map(|facts| facts.state.clone()).collect::<Vec<_>>()),
                Box::new(facts.iter().map(|facts| facts.owner.clone()).collect::<Vec<_>>()),
                Box::new(facts.iter().map(|facts| facts.accepted_at.clone()).collect::<Vec<_>>()),
                Box::new(uris),
                Box::new(words),
            ];
            // A host with files does not check that a cause has started one run only.
            vec![(
                "WITH stored AS (
                 INSERT INTO automation_runs (uri, automation, cause, ended, ended_at, bytes, run, state, work_owner,
                     accepted_at)
                 SELECT uri, automation,
                     CASE WHEN row_number() OVER (PARTITION BY automation, cause ORDER BY n) = 1 AND NOT EXISTS (
                         SELECT 1 FROM automation_runs stored
                         WHERE stored.automation = t.automation AND stored.cause = t.cause
                     ) THEN cause END,
                     ended, ended_at, octet_length(run), run, state, work_owner, accepted_at
                 FROM unnest($1::text[], $2::text[], $3::text[], $4::bool[], $5::text[], $6::text[], $7::text[], $8::text[],
                     $9::text[])
                     WITH ORDINALITY AS t(uri, automation, cause, ended, ended_at, run, state, work_owner, accepted_at, n)
                 ORDER BY n RETURNING number, uri
                 )
                 INSERT INTO automation_run_words (number, words)
                 SELECT number, array_to_tsvector(array_agg(word)) FROM stored
                 JOIN unnest($10::text[], $11::text[]) AS w(run_uri, word) ON run_uri = uri
                 GROUP BY number",
                vec![params],
            )]
        }
        Kind::Session => {
            let all: Vec<KeptSession> = decoded(kind, &items)?;
            let listed_at = |one: &KeptSession| one.draft.is_none().then(|| one.modified_at.clone());
            let params: Vec<Param> = vec![
                Box::new(keys(0)),
                Box::new(all.iter().map(|one| one.uri.clone()).collect::<Vec<_>>()),
                Box::new(all.iter().map(listed_at).collect::<Vec<_>>()),
                Box::new(all.iter().map(|one| one.draft.is_some()).collect::<Vec<_>>()),
                Box::new(texts()),
            ];
            vec![(
                "INSERT INTO sessions (id, uri, listed_at, draft, kept)
                 SELECT id, uri, listed_at, draft, kept
                 FROM unnest($1::text[], $2::text[], $3::text[], $4::bool[], $5::text[])
                     WITH ORDINALITY AS t(id, uri, listed_at, draft, kept, n)
                 ORDER BY n",
                vec![params],
            )]
        }
        Kind::Marks => part("INSERT INTO session_parts (session, part, value)
             SELECT session, 'flags', value FROM unnest($1::text[], $2::text[]) AS t(session, value)"),
        Kind::Artifacts => part("INSERT INTO session_parts (session, part, value)
             SELECT session, 'artifacts', value FROM unnest($1::text[], $2::text[]) AS t(session, value)"),
        Kind::PullRequests => part("INSERT INTO session_parts (session, part, value)
             SELECT session, 'pullRequests', value FROM unnest($1::text[], $2::text[]) AS t(session, value)"),
        Kind::Reported => part("INSERT INTO session_parts (session, part, value)
             SELECT session, 'reported', value FROM unnest($1::text[], $2::text[]) AS t(session, value)"),
        Kind::Annotations => part("INSERT INTO session_parts (session, part, value)
             SELECT session, 'annotations', value FROM unnest($1::text[], $2::text[]) AS t(session, value)"),
        Kind::Chats => {
            let all: Vec<Vec<KeptChat>> = decoded(kind, &items)?;
            let (mut uris, mut owners) = (Vec::new(), Vec::new());
            for (session, chats) in keys(0).into_iter().zip(all) {
                for uri in sessions::open_chats(chats) {
                    uris.push(uri);
                    owners.push(session.clone());
                }
            }
            let mut statements = part("INSERT INTO session_parts (session, part, value)
                 SELECT session, 'chats', value FROM unnest($1::text[], $2::text[]) AS t(session, value)");
            statements.push((
                "INSERT INTO session_chat_uris (uri, session) SELECT * FROM unnest($1::text[], $2::text[])
                 ON CONFLICT DO NOTHING",
                vec![vec![Box::new(uris), Box::new(owners)]],
            ));
            statements
        }
        Kind::ChatTitle => vec![(
            "INSERT INTO session_parts (session, part, value)
             SELECT session, 'title:' || chat, value
             FROM unnest($1::text[], $2::text[], $3::text[]) AS t(session, chat, value)",
            vec![vec![Box::new(keys(0)), Box::new(keys(1)), Box::new(texts())]],
        )],
        Kind::Turn => {
            let places: Vec<i64> = items.iter().map(|item| item.position.number).collect();
            vec![(
                "INSERT INTO turns (session, chat, place, kept)
                 SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[])",
                vec![vec![Box::new(keys(0)), Box::new(keys(1)), Box::new(places), Box::new(texts())]],
            )]
        }
        Kind::Attachment => {
            let (mut types, mut contents) = (Vec::new(), Vec::new());
            let (sessions, ids) = (keys(0), keys(1));
            for item in items {
                let Content::Bytes { content_type, bytes } = item.content else { continue };
                types.push(content_type);
                contents.push(bytes);
            }
            vec![(
                "INSERT INTO attachments (session, id, content_type, content)
                 SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[])",
                vec![vec![Box::new(sessions), Box::new(ids), Box::new(types), Box::new(contents)]],
            )]
        }
        Kind::Usage => {
            let mut entries = Vec::new();
            for (entry, text) in decoded::<UsageEntry>(kind, &items)?.iter().zip(texts()) {
                entries.push(usage::entry_params(entry, text)?);
            }
            vec![(usage::RECORD, entries)]
        }
    })
}

/// The values of items, which have to be readable for the columns that depend on them.
fn decoded<T: DeserializeOwned>(kind: Kind, items: &[Item]) -> Result<Vec<T>, Thrown> {
    let read = |item: &Item| match &item.content {
        Content::Json(text) => parse(text, kind.name(), &item.name(kind)),
        _ => Err(Thrown::new(format_args!("{} {} is not JSON", kind.name(), item.name(kind)))),
    };
    items.iter().map(read).collect()
}
