import { absent } from 'internal/absent';

const instead = "use a collection of the host's, or the package sql.js";

export const DatabaseSync = absent('sqlite.DatabaseSync', instead);
export const StatementSync = absent('sqlite.StatementSync', instead);
export const Session = absent('sqlite.Session', instead);
export const backup = absent('sqlite.backup', instead);
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
