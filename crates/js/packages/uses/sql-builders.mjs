import knex from 'knex';
import { pgTable, serial, text, integer } from 'drizzle-orm/pg-core';
import { drizzle } from 'drizzle-orm/node-postgres';
import { eq, and, sql } from 'drizzle-orm';
import { Kysely, PostgresAdapter, DummyDriver, PostgresIntrospector, PostgresQueryCompiler } from 'kysely';
export default async () => {
  const k = knex({ client: 'pg' });
  const q = k('u').where({ a: 1 }).orWhereIn('b', [1, 2]).orderBy('c', 'desc').limit(3).toSQL().toNative();
  const t = pgTable('t', {
    id: serial('id').primaryKey(),
    name: text('name').notNull(),
    age: integer('age'),
  });
  const db = drizzle.mock();
  const dq = db
    .select()
    .from(t)
    .where(and(eq(t.name, 'x'), sql`${t.age} > ${3}`))
    .toSQL();
  const ky = new Kysely({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => new DummyDriver(),
      createIntrospector: (d) => new PostgresIntrospector(d),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
  });
  const kq = ky
    .selectFrom('p')
    .innerJoin('q', 'q.id', 'p.q')
    .select(['p.a', 'q.b as c'])
    .where('p.a', '=', 5)
    .compile();
  return [q, dq, kq.sql, kq.parameters, await ky.selectFrom('p').selectAll().execute()];
};
