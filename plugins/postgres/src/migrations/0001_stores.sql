-- Which host may write: one row for each running host.
CREATE TABLE host (
    id text COLLATE "C" PRIMARY KEY,
    -- Unique, so that a takeover, which changes it, waits for transactions that hold a key share lock on the row.
    incarnation text COLLATE "C" NOT NULL UNIQUE,
    url text,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
);

-- The number of the last transaction that each host committed.
CREATE TABLE writer (
    incarnation text COLLATE "C" PRIMARY KEY,
    batch bigint NOT NULL
);

-- The first statement of every transaction that writes: fails unless the host has a lease, and the transaction is the next one
-- of that host.
CREATE FUNCTION write_batch(me text, number bigint) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM 1 FROM host WHERE incarnation = me AND expires_at > clock_timestamp() FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the host has no lease' USING ERRCODE = 'OS001';
    END IF;
    UPDATE writer SET batch = number WHERE incarnation = me AND batch = number - 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'transaction % was committed already', number USING ERRCODE = 'OS002';
    END IF;
END $$;

-- Who may append to a session, and how many appends it has.
CREATE TABLE session_heads (
    session text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C",
    epoch bigint NOT NULL,
    head bigint NOT NULL
);

CREATE TABLE sessions (
    id text COLLATE "C" PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY,
    uri text COLLATE "C" NOT NULL,
    -- The time of its last change, unless it is a draft.
    listed_at text COLLATE "C",
    draft boolean NOT NULL,
    kept text NOT NULL CHECK (kept::json IS NOT NULL)
);
CREATE INDEX sessions_listed ON sessions (listed_at DESC, uri) WHERE listed_at IS NOT NULL;
CREATE INDEX sessions_drafts ON sessions (id) WHERE draft;
CREATE INDEX sessions_by_number ON sessions (number);

-- Marks, artifacts, pull requests, chats, annotations and titles of chats.
CREATE TABLE session_parts (
    session text COLLATE "C" NOT NULL,
    part text COLLATE "C" NOT NULL,
    value text NOT NULL CHECK (value::json IS NOT NULL),
    PRIMARY KEY (session, part)
);

CREATE TABLE session_chat_uris (
    uri text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    PRIMARY KEY (uri, session)
);
CREATE INDEX session_chat_uris_of ON session_chat_uris (session);

CREATE TABLE turns (
    session text COLLATE "C" NOT NULL,
    chat text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    kept text NOT NULL CHECK (kept::json IS NOT NULL),
    PRIMARY KEY (session, chat, place)
);

CREATE TABLE attachments (
    session text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    content_type text NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (session, id)
);
CREATE INDEX attachments_by_id ON attachments (id);

CREATE TABLE automations (
    id text COLLATE "C" PRIMARY KEY,
    definition text NOT NULL CHECK (definition::json IS NOT NULL),
    owner text,
    created_at text NOT NULL,
    modified_at text NOT NULL
);

CREATE TABLE automation_runs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uri text COLLATE "C" NOT NULL UNIQUE,
    automation text COLLATE "C" NOT NULL,
    -- What started it, where the same cause must not start another run: `schedule:<trigger>:<instant>`.
    cause text COLLATE "C",
    ended boolean NOT NULL,
    ended_at text COLLATE "C",
    bytes bigint NOT NULL,
    run text NOT NULL CHECK (run::json IS NOT NULL),
    CONSTRAINT automation_runs_once UNIQUE (automation, cause)
);
CREATE INDEX automation_runs_of ON automation_runs (automation, number);
CREATE INDEX automation_runs_unfinished ON automation_runs (number) WHERE NOT ended;
CREATE INDEX automation_runs_ended ON automation_runs (ended_at) WHERE ended;

CREATE TABLE automation_progress (
    automation text COLLATE "C" PRIMARY KEY,
    progress text NOT NULL CHECK (progress::json IS NOT NULL)
);

CREATE TABLE records (
    collection text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    record text NOT NULL CHECK (record::json IS NOT NULL),
    -- A hash of the record and one of each field, for equality and search. Null after an edit by hand.
    digest bytea,
    fields bigint[],
    PRIMARY KEY (collection, id)
);
CREATE INDEX records_by_field ON records USING gin (fields);
CREATE INDEX records_edited ON records (collection) WHERE fields IS NULL;

CREATE TABLE policies (
    id text COLLATE "C" PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY,
    policy text NOT NULL CHECK (policy::json IS NOT NULL)
);

-- Values are encrypted by the host; the database has no key.
CREATE TABLE vault (
    name text COLLATE "C" PRIMARY KEY,
    key_id bytea NOT NULL,
    value bytea NOT NULL
);

CREATE TABLE usage (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at text COLLATE "C" NOT NULL,
    entry text NOT NULL CHECK (entry::json IS NOT NULL),
    usd double precision, input_usd double precision, output_usd double precision,
    tokens bigint, input bigint, output bigint, cache_read bigint, cache_write bigint, calls bigint,
    seconds double precision
);
CREATE INDEX usage_by_time ON usage (at, number);
CREATE TABLE usage_charges (
    pool text COLLATE "C" NOT NULL,
    at text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (pool, at, number)
);
CREATE TABLE usage_pools (pool text COLLATE "C" PRIMARY KEY);

-- What changed, for hosts that watch. Ordered by transaction: a reader takes those that no running transaction can precede.
CREATE TABLE changes (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    kind text NOT NULL,
    collection text,
    id text NOT NULL,
    operation text NOT NULL,
    origin text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (xid, seq)
);

CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    one record;
    in_collection text;
    named text;
BEGIN
    IF TG_OP = 'DELETE' THEN one := OLD; ELSE one := NEW; END IF;
    IF TG_ARGV[0] = 'record' THEN in_collection := one.collection; END IF;
    IF TG_ARGV[0] = 'secret' THEN named := one.name; ELSE named := one.id; END IF;
    INSERT INTO changes (kind, collection, id, operation, origin)
        VALUES (TG_ARGV[0], in_collection, named, lower(TG_OP), coalesce(current_setting('ostler.origin', true), ''));
    -- Equal notifications of one transaction are sent once. They only wake; the table has the order.
    PERFORM pg_notify('ostler_' || TG_TABLE_SCHEMA, '');
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON records FOR EACH ROW EXECUTE FUNCTION note_change('record');
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON automations FOR EACH ROW EXECUTE FUNCTION note_change('automation');
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON policies FOR EACH ROW EXECUTE FUNCTION note_change('policy');
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON vault FOR EACH ROW EXECUTE FUNCTION note_change('secret');

-- An edit by hand leaves no stale hash behind.
CREATE FUNCTION forget_digest() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.digest := NULL;
    NEW.fields := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER edited BEFORE UPDATE ON records FOR EACH ROW
    WHEN (NEW.record <> OLD.record AND NEW.digest IS NOT DISTINCT FROM OLD.digest)
    EXECUTE FUNCTION forget_digest();
