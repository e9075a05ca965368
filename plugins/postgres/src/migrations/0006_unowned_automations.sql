-- The same as before in PL/pgSQL, which plans the statement once for each connection. Every host asks after each notification, and
-- planning took most of the time.
CREATE OR REPLACE FUNCTION unowned_automations(me text) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
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
        ORDER BY 1;
END $$;
