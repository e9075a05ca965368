-- The users file, which all hosts of the schema share: one row. Tokens are hashes.
CREATE SEQUENCE users_versions;
CREATE TABLE users (
    id text COLLATE "C" PRIMARY KEY DEFAULT 'users' CHECK (id = 'users'),
    -- Different after each change, also after one with SQL: a writer changes only what it has read.
    version bigint NOT NULL,
    content text NOT NULL CHECK (json_typeof(content::json) = 'object')
);

CREATE FUNCTION next_users_version() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.version := nextval('users_versions');
    RETURN NEW;
END $$;
CREATE TRIGGER versioned BEFORE INSERT OR UPDATE ON users FOR EACH ROW EXECUTE FUNCTION next_users_version();
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON users FOR EACH ROW EXECUTE FUNCTION note_change('users');
