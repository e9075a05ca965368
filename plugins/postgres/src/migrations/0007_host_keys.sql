-- What identifies the key of the vault and the token of the cluster, which all hosts of a cluster share. Hosts of older versions
-- store neither.
ALTER TABLE host ADD COLUMN vault_key bytea;
ALTER TABLE host ADD COLUMN token_key bytea;
