-- Hosts of a cluster share the schema; a host that is not a member is alone.
ALTER TABLE host ADD COLUMN member boolean NOT NULL DEFAULT false;
ALTER TABLE host ADD COLUMN version text NOT NULL DEFAULT '';
ALTER TABLE host ADD COLUMN draining boolean NOT NULL DEFAULT false;

-- The stable names of hosts: of the one that owned the session last, and of the one whose files it needs. The row of a host that
-- is lost can be gone.
ALTER TABLE session_heads ADD COLUMN owner_id text COLLATE "C";
ALTER TABLE session_heads ADD COLUMN bound_to text COLLATE "C";
CREATE INDEX session_heads_owned ON session_heads (owner) WHERE owner IS NOT NULL;
