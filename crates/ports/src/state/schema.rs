//! The tables, and the migrations of older databases.

use ostler_contract::Thrown;
use rusqlite::{Connection, TransactionBehavior};

use super::Failure;

/// The application id of ostler's databases: `ostl`.
const APPLICATION: i32 = 0x6f73_746c;

/// The migrations; the version of a database is the number of applied ones. A released migration is never changed.
const VERSIONS: &[&str] = &["
    CREATE TABLE sessions (id TEXT NOT NULL UNIQUE, kept TEXT NOT NULL) STRICT;
    CREATE TABLE session_flags (
        session TEXT PRIMARY KEY, is_read INTEGER NOT NULL, is_archived INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE session_artifacts (session TEXT PRIMARY KEY, artifacts TEXT NOT NULL) STRICT;
    CREATE TABLE session_pull_requests (session TEXT PRIMARY KEY, pull_requests TEXT NOT NULL) STRICT;
    CREATE TABLE session_chats (session TEXT PRIMARY KEY, chats TEXT NOT NULL) STRICT;
    CREATE TABLE chat_titles (
        session TEXT NOT NULL, chat TEXT NOT NULL, title TEXT NOT NULL, PRIMARY KEY (session, chat)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE turns (
        session TEXT NOT NULL, chat TEXT NOT NULL, place INTEGER NOT NULL, kept TEXT NOT NULL,
        PRIMARY KEY (session, chat, place)
    ) STRICT;

    CREATE TABLE automation_runs (
        number INTEGER PRIMARY KEY AUTOINCREMENT, uri TEXT NOT NULL UNIQUE, automation TEXT NOT NULL,
        ended INTEGER NOT NULL, run TEXT NOT NULL
    ) STRICT;
    CREATE INDEX automation_runs_of ON automation_runs (automation, number);
    CREATE INDEX automation_runs_unfinished ON automation_runs (number) WHERE ended = 0;
", "
    CREATE TABLE automation_progress (automation TEXT PRIMARY KEY, progress TEXT NOT NULL) STRICT, WITHOUT ROWID;
", "
    CREATE TABLE usage (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, entry TEXT NOT NULL,
        usd REAL, input_usd REAL, output_usd REAL, tokens INTEGER, input INTEGER, output INTEGER,
        cache_read INTEGER, cache_write INTEGER, calls INTEGER, seconds REAL
    ) STRICT;
    CREATE INDEX usage_by_time ON usage (at, number);
    CREATE TABLE usage_charges (
        pool TEXT NOT NULL, at TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (pool, at, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE usage_pools (pool TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
", "
    CREATE TABLE attachments (
        session TEXT NOT NULL, id TEXT NOT NULL, content_type TEXT NOT NULL, content BLOB NOT NULL,
        PRIMARY KEY (session, id)
    ) STRICT;
    CREATE INDEX attachments_by_id ON attachments (id);
", "
    CREATE TABLE session_annotations (session TEXT PRIMARY KEY, annotations TEXT NOT NULL) STRICT;
", "
    ALTER TABLE sessions ADD COLUMN modified_at TEXT
        AS (CASE WHEN json_valid(kept) THEN CAST(kept ->> '$.modifiedAt' AS TEXT) END) VIRTUAL;
    ALTER TABLE sessions ADD COLUMN uri TEXT
        AS (CASE WHEN json_valid(kept) THEN CAST(kept ->> '$.uri' AS TEXT) END) VIRTUAL;
    CREATE INDEX sessions_listed ON sessions (modified_at DESC, uri);
    ALTER TABLE sessions ADD COLUMN draft TEXT AS (CASE WHEN json_valid(kept) THEN kept -> '$.draft' END) VIRTUAL;
    CREATE INDEX sessions_drafts ON sessions (id) WHERE draft IS NOT NULL;

    CREATE TABLE session_chat_uris (
        uri TEXT NOT NULL, session TEXT NOT NULL, PRIMARY KEY (uri, session)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX session_chat_uris_of ON session_chat_uris (session);
    CREATE TRIGGER session_chats_stored AFTER INSERT ON session_chats BEGIN
        DELETE FROM session_chat_uris WHERE session = NEW.session;
        INSERT OR IGNORE INTO session_chat_uris (uri, session)
            SELECT value ->> '$.uri', NEW.session
            FROM json_each(CASE WHEN json_valid(NEW.chats) THEN NEW.chats ELSE '[]' END)
            WHERE NOT coalesce(value ->> '$.closed', 0)
                AND value ->> '$.uri' NOT LIKE 'ahp-chat://default/%';
    END;
    INSERT OR IGNORE INTO session_chat_uris (uri, session)
        SELECT value ->> '$.uri', session
        FROM session_chats, json_each(CASE WHEN json_valid(chats) THEN chats ELSE '[]' END)
        WHERE NOT coalesce(value ->> '$.closed', 0)
            AND value ->> '$.uri' NOT LIKE 'ahp-chat://default/%';
", "
    DROP INDEX sessions_listed;
    ALTER TABLE sessions DROP COLUMN modified_at;
    ALTER TABLE sessions ADD COLUMN listed_at TEXT AS (CASE
        WHEN json_valid(kept) AND kept -> '$.draft' IS NULL THEN CAST(kept ->> '$.modifiedAt' AS TEXT)
    END) VIRTUAL;
    CREATE INDEX sessions_listed ON sessions (listed_at DESC, uri) WHERE listed_at IS NOT NULL;
", "
    ALTER TABLE automation_runs ADD COLUMN ended_at TEXT AS (CASE
        WHEN ended = 1 AND json_valid(run) THEN CAST(run ->> '$.lifecycle.completedAt' AS TEXT)
    END) VIRTUAL;
    CREATE INDEX automation_runs_ended ON automation_runs (ended_at) WHERE ended_at IS NOT NULL;
    CREATE TABLE automation_run_totals (
        automation TEXT PRIMARY KEY, runs INTEGER NOT NULL, bytes INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER automation_runs_added AFTER INSERT ON automation_runs WHEN NEW.ended = 1 BEGIN
        INSERT INTO automation_run_totals VALUES (NEW.automation, 1, octet_length(NEW.run))
            ON CONFLICT (automation) DO UPDATE SET runs = runs + 1, bytes = bytes + excluded.bytes;
    END;
    CREATE TRIGGER automation_runs_changed AFTER UPDATE ON automation_runs BEGIN
        UPDATE automation_run_totals SET runs = runs - 1, bytes = bytes - octet_length(OLD.run)
            WHERE OLD.ended = 1 AND automation = OLD.automation;
        INSERT INTO automation_run_totals SELECT NEW.automation, 1, octet_length(NEW.run) WHERE NEW.ended = 1
            ON CONFLICT (automation) DO UPDATE SET runs = runs + 1, bytes = bytes + excluded.bytes;
    END;
    CREATE TRIGGER automation_runs_removed AFTER DELETE ON automation_runs WHEN OLD.ended = 1 BEGIN
        UPDATE automation_run_totals SET runs = runs - 1, bytes = bytes - octet_length(OLD.run)
            WHERE automation = OLD.automation;
    END;
    INSERT INTO automation_run_totals
        SELECT automation, count(*), sum(octet_length(run)) FROM automation_runs WHERE ended = 1 GROUP BY automation;
", "
    CREATE TABLE automation_run_facts (
        number INTEGER PRIMARY KEY, automation TEXT NOT NULL, ended INTEGER NOT NULL, state TEXT, owner TEXT,
        accepted_at TEXT
    ) STRICT;
    INSERT INTO automation_run_facts
        SELECT number, automation, ended, run ->> '$.lifecycle.status', run ->> '$._meta.\"ostler.owner\"',
            run ->> '$.lifecycle.createdAt'
        FROM automation_runs WHERE json_valid(run);
    CREATE INDEX automation_run_facts_by_time ON automation_run_facts (accepted_at);
    CREATE INDEX automation_run_facts_by_state ON automation_run_facts (state, number) WHERE ended = 1;
    CREATE INDEX automation_run_facts_of ON automation_run_facts (automation, state, number) WHERE ended = 1;
    CREATE INDEX automation_run_facts_by_owner ON automation_run_facts (owner, number) WHERE owner IS NOT NULL;

    CREATE VIRTUAL TABLE automation_run_words USING fts5 (
        text, content = '', contentless_delete = 1, detail = none,
        tokenize = \"unicode61 remove_diacritics 0 categories 'L* N* M* Co'\"
    );
    INSERT INTO automation_run_words (rowid, text)
        SELECT number, automation || ' ' || substr(coalesce(run ->> '$.lifecycle.error.message', ''), 1, 2000)
        FROM automation_runs WHERE ended = 1 AND json_valid(run);

    CREATE TRIGGER automation_run_facts_added AFTER INSERT ON automation_runs WHEN json_valid(NEW.run) BEGIN
        INSERT INTO automation_run_facts VALUES (
            NEW.number, NEW.automation, NEW.ended, NEW.run ->> '$.lifecycle.status',
            NEW.run ->> '$._meta.\"ostler.owner\"', NEW.run ->> '$.lifecycle.createdAt'
        );
    END;
    CREATE TRIGGER automation_run_facts_changed AFTER UPDATE ON automation_runs
    WHEN json_valid(NEW.run) AND (NEW.ended <> OLD.ended OR NOT json_valid(OLD.run)
        OR NEW.run ->> '$.lifecycle.status' IS NOT OLD.run ->> '$.lifecycle.status')
    BEGIN
        UPDATE automation_run_facts SET ended = NEW.ended, state = NEW.run ->> '$.lifecycle.status'
            WHERE number = NEW.number;
    END;
    CREATE TRIGGER automation_run_facts_removed AFTER DELETE ON automation_runs BEGIN
        DELETE FROM automation_run_facts WHERE number = OLD.number;
        DELETE FROM automation_run_words WHERE rowid = OLD.number;
    END;
", "
    -- Names of fields: quotation marks inside of a string are escaped. Two fields of a message may have the names as well.
    CREATE INDEX session_chats_waiting ON session_chats (session)
        WHERE instr(chats, '\"queued\":[') > 0 OR instr(chats, '\"starting\":{') > 0;
", "
    CREATE TABLE session_reported (session TEXT PRIMARY KEY, reported TEXT NOT NULL) STRICT;
", "
    -- The turns that had not ended when they were stored. An index instead would have to read all turns when it is made. The
    -- condition is the name of a field, as above.
    CREATE TABLE unended_turns (
        session TEXT NOT NULL,
        chat TEXT NOT NULL,
        place INTEGER NOT NULL,
        PRIMARY KEY (session, chat, place)
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER turns_begun AFTER INSERT ON turns WHEN instr(NEW.kept, '\"unended\":true') > 0 BEGIN
        INSERT INTO unended_turns VALUES (NEW.session, NEW.chat, NEW.place);
    END;
    CREATE TRIGGER turns_resumed AFTER UPDATE OF kept ON turns
    WHEN instr(NEW.kept, '\"unended\":true') > 0 AND instr(OLD.kept, '\"unended\":true') = 0 BEGIN
        INSERT INTO unended_turns VALUES (NEW.session, NEW.chat, NEW.place);
    END;
    CREATE TRIGGER turns_ended AFTER UPDATE OF kept ON turns
    WHEN instr(NEW.kept, '\"unended\":true') = 0 AND instr(OLD.kept, '\"unended\":true') > 0 BEGIN
        DELETE FROM unended_turns WHERE session = OLD.session AND chat = OLD.chat AND place = OLD.place;
    END;
    CREATE TRIGGER turns_removed AFTER DELETE ON turns WHEN instr(OLD.kept, '\"unended\":true') > 0 BEGIN
        DELETE FROM unended_turns WHERE session = OLD.session AND chat = OLD.chat AND place = OLD.place;
    END;
"];

/// Rejects a database that is not from ostler, or from a newer version.
pub(super) fn check(connection: &Connection, place: &str) -> Result<(), Failure> {
    let version = number(connection, "user_version")?;
    let application = number(connection, "application_id")?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != i64::from(APPLICATION) && (application != 0 || tables > 0) {
        let refused = format!("{place} is the database of another program; move it away");
        return Err(Thrown::new(refused).into());
    }
    let newest = VERSIONS.len() as i64;
    if version > newest {
        return Err(Thrown::new(format_args!(
            "{place} was written by a newer ostler (its tables are of version {version}, and this one knows up to \
             {newest}); update ostler, or move the file away to start empty"
        ))
        .into());
    }
    Ok(())
}

/// Returns whether all migrations were applied.
pub(super) fn is_current(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(number(connection, "user_version")? == VERSIONS.len() as i64)
}

/// Adds what a connection that reads needs besides the tables: the terms of the word index.
pub(super) fn add_views(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "CREATE VIRTUAL TABLE temp.automation_run_terms USING fts5vocab(main, automation_run_words, instance)",
    )
}

/// Creates the tables, or migrates an older database.
pub(super) fn upgrade(connection: &mut Connection) -> Result<(), Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = usize::try_from(number(&transaction, "user_version")?).unwrap_or(0);
    for sql in VERSIONS.iter().skip(version) {
        transaction.execute_batch(sql)?;
    }
    if version < VERSIONS.len() {
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSIONS.len() as i64)?;
    }
    Ok(transaction.commit()?)
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}
