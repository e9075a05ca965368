-- The run of the host that stored a run last, where several hosts share the schema.
ALTER TABLE automation_runs ADD COLUMN owner text COLLATE "C";

-- Which host decides about the wakes of an automation and has its runs.
CREATE TABLE automation_owners (
    automation text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C",
    -- The id of that host, and of the one before it.
    host text COLLATE "C",
    previous text COLLATE "C"
);

-- Requests for runs. A decided one is retained for a while, because its cause starts no other run.
CREATE TABLE automation_wakes (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The URI of the run that it starts.
    uri text COLLATE "C" NOT NULL UNIQUE,
    automation text COLLATE "C" NOT NULL,
    cause text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind::json IS NOT NULL),
    run text NOT NULL CHECK (run::json IS NOT NULL),
    done boolean NOT NULL DEFAULT false,
    -- The run that it became or was merged into; null if it was dropped.
    outcome text COLLATE "C",
    at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT automation_wakes_once UNIQUE (automation, cause)
);
CREATE INDEX automation_wakes_waiting ON automation_wakes (automation, number) WHERE NOT done;
CREATE INDEX automation_wakes_done ON automation_wakes (at) WHERE done;

-- Wakes the hosts. Equal notifications of one transaction are sent once.
CREATE FUNCTION note_wake() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_notify('ostler_' || TG_TABLE_SCHEMA, '');
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE ON automation_wakes FOR EACH ROW EXECUTE FUNCTION note_wake();

-- Stores a record unless there is one with its id: `new`, `exists`, or `busy` while another transaction stores it. Nobody waits
-- for that transaction, because two that wait for each other would deadlock.
CREATE FUNCTION store_new_record(
    in_collection text, record_id text, record_text text, record_digest bytea, record_fields bigint[]
) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(in_collection || '/' || record_id, 14)) THEN
        RETURN 'busy';
    END IF;
    INSERT INTO records (collection, id, record, digest, fields)
        VALUES (in_collection, record_id, record_text, record_digest, record_fields)
        ON CONFLICT DO NOTHING;
    IF FOUND THEN RETURN 'new'; END IF;
    RETURN 'exists';
END $$;

-- Stores runs together with a new record, or nothing.
CREATE FUNCTION store_runs(
    uris text[], automations text[], causes text[], sizes bigint[], runs text[],
    states text[], work_owners text[], accepted text[],
    in_collection text, record_id text, record_text text, record_digest bytea, record_fields bigint[]
) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    status text;
BEGIN
    status := store_new_record(in_collection, record_id, record_text, record_digest, record_fields);
    IF status = 'new' THEN
        INSERT INTO automation_runs (
            uri, automation, cause, ended, bytes, run, state, work_owner, accepted_at
        )
            SELECT new.uri, new.automation, new.cause, false, new.size, new.run, new.state, new.work_owner, new.accepted_at
            FROM unnest(uris, automations, causes, sizes, runs, states, work_owners, accepted)
                AS new (uri, automation, cause, size, run, state, work_owner, accepted_at)
            ON CONFLICT (uri) DO UPDATE SET bytes = excluded.bytes, run = excluded.run, state = excluded.state
                WHERE NOT automation_runs.ended;
    END IF;
    RETURN status;
END $$;

-- Stores wakes, and a record if there is one. The answer is `sent` with the wake of each cause, which may be an earlier one, or
-- one row: `full`, `exists` or `busy`.
CREATE FUNCTION send_wakes(
    uris text[], automations text[], causes text[], kinds text[], states text[], most bigint,
    in_collection text, record_id text, record_text text, record_digest bytea, record_fields bigint[]
) RETURNS TABLE (status text, wake text) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    stored text;
BEGIN
    IF EXISTS (
        SELECT 1 FROM unnest(automations) AS named WHERE most <= (
            SELECT count(*) FROM (
                SELECT 1 FROM automation_wakes WHERE automation = named AND NOT done LIMIT most
            ) AS waiting
        )
    ) THEN
        RETURN QUERY SELECT 'full', NULL::text;
        RETURN;
    END IF;
    IF record_id IS NOT NULL THEN
        stored := store_new_record(in_collection, record_id, record_text, record_digest, record_fields);
        IF stored <> 'new' THEN
            RETURN QUERY SELECT stored, NULL::text;
            RETURN;
        END IF;
    END IF;
    INSERT INTO automation_wakes (uri, automation, cause, kind, run)
        SELECT uri, automation, cause, kind, state
        FROM unnest(uris, automations, causes, kinds, states) AS new (uri, automation, cause, kind, state)
        WHERE NOT EXISTS (
            SELECT 1 FROM automation_runs AS runs WHERE runs.automation = new.automation AND runs.cause = new.cause
        )
        ON CONFLICT DO NOTHING;
    RETURN QUERY
        SELECT 'sent', coalesce(wakes.uri, runs.uri, new.uri)
        FROM unnest(uris, automations, causes) WITH ORDINALITY AS new (uri, automation, cause, place)
        LEFT JOIN automation_wakes AS wakes ON wakes.automation = new.automation AND wakes.cause = new.cause
        LEFT JOIN automation_runs AS runs ON runs.automation = new.automation AND runs.cause = new.cause
        ORDER BY place;
END $$;

-- The automations with something to do that no living host owns, unless this host drains. One that is pinned to a session of a
-- living host is left to that host.
CREATE FUNCTION unowned_automations(me text) RETURNS SETOF text LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT busy.automation
    FROM (
        SELECT automation FROM automation_wakes WHERE NOT done
        UNION SELECT automation FROM automation_runs WHERE NOT ended
    ) AS busy
    LEFT JOIN automation_owners AS owners ON owners.automation = busy.automation
    WHERE owners.owner IS DISTINCT FROM me
        AND NOT EXISTS (SELECT 1 FROM host WHERE incarnation = me AND draining)
        AND NOT EXISTS (
            SELECT 1 FROM host WHERE incarnation = owners.owner AND expires_at > clock_timestamp()
        )
        AND NOT EXISTS (
            SELECT 1 FROM automations
            JOIN session_heads AS heads
                ON heads.session = regexp_replace(definition::json #>> '{_meta,ostler,pinnedSession}', '^.*/', '')
            JOIN host ON incarnation = heads.owner AND expires_at > clock_timestamp()
            WHERE automations.id = busy.automation AND heads.owner <> me
        )
    ORDER BY 1
$$;

-- Takes over such automations with their runs that have not ended. Returns them with the host that owned them.
CREATE FUNCTION claim_automations(me text, my_host text) RETURNS TABLE (automation text, previous text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    claimed text[];
BEGIN
    WITH taken AS (
        INSERT INTO automation_owners AS owners (automation, owner, host)
            SELECT unowned, me, my_host FROM unowned_automations(me) AS unowned ORDER BY 1
            ON CONFLICT (automation) DO UPDATE SET owner = me, previous = owners.host, host = my_host
                WHERE owners.owner IS DISTINCT FROM me AND NOT EXISTS (
                    SELECT 1 FROM host WHERE incarnation = owners.owner AND expires_at > clock_timestamp()
                )
            RETURNING automation
    )
    SELECT array_agg(taken.automation) INTO claimed FROM taken;
    -- In a statement after the claim, which waited for what the host before it was writing.
    UPDATE automation_runs AS runs SET owner = me
        WHERE runs.automation = ANY (claimed) AND NOT runs.ended AND runs.owner IS DISTINCT FROM me;
    RETURN QUERY
        SELECT owners.automation, owners.previous FROM automation_owners AS owners
        WHERE owners.automation = ANY (claimed);
END $$;
