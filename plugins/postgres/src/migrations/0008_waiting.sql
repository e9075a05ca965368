-- The sessions in whose chats messages wait, which a host continues after its start. The names are those of fields: quotation marks
-- inside of a string are escaped. Two fields of a message may have the names as well.
CREATE INDEX session_parts_waiting ON session_parts (session)
    WHERE part = 'chats' AND (strpos(value, '"queued":[') > 0 OR strpos(value, '"starting":{') > 0);
