import Piscina from 'piscina';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
export default async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'pis-'));
  const file = path.join(dir, 'w.cjs');
  fs.writeFileSync(
    file,
    'module.exports = ({ a, b }) => { if (a < 0) throw new RangeError("neg"); return a + b; };',
  );
  const p = new Piscina({ filename: file, maxThreads: 2, atomics: 'disabled' });
  const r = await Promise.all([1, 2, 3].map((n) => p.run({ a: n, b: 10 })));
  const e = await p.run({ a: -1, b: 0 }).catch((e) => [e.name, e.message]);
  await p.destroy();
  fs.rmSync(dir, { recursive: true });
  return [r, e];
};
