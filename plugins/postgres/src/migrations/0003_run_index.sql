-- What runs are found by. The host writes it, because functions of JSON in the database refuse texts with U+0000.
ALTER TABLE automation_runs
    ADD COLUMN state text COLLATE "C",
    ADD COLUMN work_owner text COLLATE "C",
    ADD COLUMN accepted_at text COLLATE "C";
CREATE INDEX automation_runs_by_state ON automation_runs (state, number);
CREATE INDEX automation_runs_by_owner ON automation_runs (work_owner, number) WHERE work_owner IS NOT NULL;
CREATE INDEX automation_runs_by_time ON automation_runs (accepted_at);
CREATE INDEX automation_runs_unindexed ON automation_runs (number) WHERE state IS NULL;

-- The words of runs that have ended.
CREATE TABLE automation_run_words (
    number bigint PRIMARY KEY REFERENCES automation_runs ON DELETE CASCADE,
    words tsvector NOT NULL
);
CREATE INDEX automation_run_words_by_word ON automation_run_words USING gin (words);
