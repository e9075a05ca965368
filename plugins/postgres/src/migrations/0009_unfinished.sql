-- The turns that had not ended when they were stored, and the sessions in whose chats messages wait: what a host continues after its
-- start and after the loss of another one. Tables, because indexes would have to read all turns when they are made, and every
-- later change of a turn or of a part of a session would be one of all its indexes too. The conditions look for names of fields:
-- quotation marks inside of a string are escaped. Two fields of a message may have the names as well.
--
-- Hosts of the version before write meanwhile: they wait until what is there is listed. If one of them has locked the tables in
-- the other order, this gives up, and is tried again, before PostgreSQL looks for a deadlock.
SET LOCAL lock_timeout = '500ms';
LOCK TABLE turns, session_parts IN SHARE ROW EXCLUSIVE MODE;

CREATE TABLE unended_turns (
    session text COLLATE "C" NOT NULL,
    chat text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    PRIMARY KEY (session, chat, place)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE FUNCTION turn_has_not_ended() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO unended_turns VALUES (NEW.session, NEW.chat, NEW.place) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE FUNCTION turn_has_ended() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM unended_turns WHERE session = OLD.session AND chat = OLD.chat AND place = OLD.place;
    RETURN NULL;
END $$;
CREATE TRIGGER begun AFTER INSERT ON turns FOR EACH ROW
    WHEN (strpos(NEW.kept, '"unended":true') > 0) EXECUTE FUNCTION turn_has_not_ended();
CREATE TRIGGER resumed AFTER UPDATE OF kept ON turns FOR EACH ROW
    WHEN (strpos(NEW.kept, '"unended":true') > 0 AND strpos(OLD.kept, '"unended":true') = 0) EXECUTE FUNCTION turn_has_not_ended();
CREATE TRIGGER ended AFTER UPDATE OF kept ON turns FOR EACH ROW
    WHEN (strpos(NEW.kept, '"unended":true') = 0 AND strpos(OLD.kept, '"unended":true') > 0)
    EXECUTE FUNCTION turn_has_ended();
CREATE TRIGGER removed AFTER DELETE ON turns FOR EACH ROW
    WHEN (strpos(OLD.kept, '"unended":true') > 0) EXECUTE FUNCTION turn_has_ended();

CREATE TABLE waiting_sessions (session text COLLATE "C" PRIMARY KEY)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
INSERT INTO waiting_sessions SELECT session FROM session_parts
    WHERE part = 'chats' AND (strpos(value, '"queued":[') > 0 OR strpos(value, '"starting":{') > 0);

CREATE FUNCTION session_waits() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO waiting_sessions VALUES (NEW.session) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE FUNCTION session_waits_no_more() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM waiting_sessions WHERE session = OLD.session;
    RETURN NULL;
END $$;
CREATE TRIGGER waits AFTER INSERT OR UPDATE OF value ON session_parts FOR EACH ROW
    WHEN (NEW.part = 'chats' AND (strpos(NEW.value, '"queued":[') > 0 OR strpos(NEW.value, '"starting":{') > 0))
    EXECUTE FUNCTION session_waits();
CREATE TRIGGER went_on AFTER UPDATE OF value ON session_parts FOR EACH ROW
    WHEN (NEW.part = 'chats' AND strpos(NEW.value, '"queued":[') = 0 AND strpos(NEW.value, '"starting":{') = 0
        AND (strpos(OLD.value, '"queued":[') > 0 OR strpos(OLD.value, '"starting":{') > 0))
    EXECUTE FUNCTION session_waits_no_more();
CREATE TRIGGER removed AFTER DELETE ON session_parts FOR EACH ROW
    WHEN (OLD.part = 'chats' AND (strpos(OLD.value, '"queued":[') > 0 OR strpos(OLD.value, '"starting":{') > 0))
    EXECUTE FUNCTION session_waits_no_more();
