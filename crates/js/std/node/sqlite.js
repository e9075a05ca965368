// There is no database: a collection of the host's holds records, and the package sql.js reads files of SQLite.
export const DatabaseSync = undefined;
export const StatementSync = undefined;
export const Session = undefined;
export const backup = undefined;
export const constants = {
  SQLITE_CHANGESET_DATA: 1,
  SQLITE_CHANGESET_NOTFOUND: 2,
  SQLITE_CHANGESET_CONFLICT: 3,
  SQLITE_CHANGESET_CONSTRAINT: 4,
  SQLITE_CHANGESET_FOREIGN_KEY: 5,
  SQLITE_CHANGESET_OMIT: 0,
  SQLITE_CHANGESET_REPLACE: 1,
  SQLITE_CHANGESET_ABORT: 2,
};

export default { DatabaseSync, Session, StatementSync, backup, constants };
