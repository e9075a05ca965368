import initSqlJs from 'sql.js';
export default async () => {
  const SQL = await initSqlJs();
  const db = new SQL.Database();
  db.run('CREATE TABLE t (a INTEGER, b TEXT)');
  db.run('INSERT INTO t VALUES (?, ?), (?, ?)', [1, 'one', 2, 'two']);
  return db.exec('SELECT a, upper(b) FROM t ORDER BY a DESC');
};
