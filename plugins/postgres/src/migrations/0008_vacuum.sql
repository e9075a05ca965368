-- Rows that are removed or replaced soon after they were written. Hosts look for work with indexes that contain few living rows and
-- all dead ones, so these are removed when 2 % of a table is dead, and not 20 %.
ALTER TABLE automation_wakes SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE automation_runs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE automation_run_words SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE changes SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE records SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE session_heads SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Counts the ended runs of an automation without reading them.
CREATE INDEX automation_runs_retained ON automation_runs (automation, number) WHERE ended;

-- How many migrations the program of a host knows. Hosts of earlier versions store nothing.
ALTER TABLE host ADD COLUMN knows integer;
