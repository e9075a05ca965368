import fse from 'fs-extra';
import { rimraf } from 'rimraf';
import { mkdirp } from 'mkdirp';
import { globby } from 'globby';
import tmp from 'tmp';
import writeAtomic from 'write-file-atomic';
import lockfile from 'proper-lockfile';
import { JSONFilePreset } from 'lowdb/node';
import Datastore from '@seald-io/nedb';
import { fs as mem, vol } from 'memfs';
import path from 'node:path';
export default async () => {
  const d = tmp.dirSync({ unsafeCleanup: true });
  const p = (x) => path.join(d.name, x);
  await fse.outputJson(p('a/b.json'), { x: 1 });
  await fse.copy(p('a'), p('c'));
  await mkdirp(p('m/n'));
  await writeAtomic(p('w.txt'), 'hi');
  const rel = await lockfile.lock(p('w.txt'));
  const locked = await lockfile.check(p('w.txt'));
  const again = await lockfile.lock(p('w.txt')).catch((e) => e.code);
  await rel();
  const db = await JSONFilePreset(p('db.json'), { l: [] });
  await db.update(({ l }) => l.push(1));
  const ne = new Datastore({ filename: p('ne.db'), autoload: true });
  await ne.insertAsync([{ a: 1 }, { a: 2 }]);
  vol.fromJSON({ '/x/y': 'z' });
  const g = await globby('**/*.json', { cwd: d.name });
  const out = [
    await fse.readJson(p('c/b.json')),
    await fse.pathExists(p('zz')),
    locked,
    again,
    fse.readFileSync(p('db.json'), 'utf8'),
    (await ne.findAsync({ a: { $gt: 1 } })).length,
    mem.readFileSync('/x/y', 'utf8'),
    g.sort(),
    await fse.readdir(d.name).then((l) => l.sort()),
  ];
  await rimraf(p('c'));
  out.push(await fse.pathExists(p('c')));
  await fse.remove(d.name);
  return out;
};
