import { MemoryLevel } from 'memory-level';
export default async () => {
  const db = new MemoryLevel({ valueEncoding: 'json' });
  await db.batch([
    { type: 'put', key: 'a', value: { x: 1 } },
    { type: 'put', key: 'b', value: 2 },
  ]);
  const out = [];
  for await (const [k, v] of db.iterator()) out.push(k, v);
  await db.close();
  return out;
};
