import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { watch } from 'chokidar';
export default async () => {
  const folder = await mkdtemp(join(tmpdir(), 'watched-'));
  await writeFile(join(folder, 'first.txt'), '1');
  const seen = [];
  const watcher = watch(folder, { ignored: (path) => path.endsWith('.log') });
  let wake = () => {};
  watcher.on('all', (event, path) => {
    seen.push(`${event} ${relative(folder, path)}`);
    wake();
  });
  const until = async (what) => {
    while (!seen.includes(what)) await new Promise((done) => { wake = done; });
  };
  await new Promise((done) => watcher.on('ready', done));
  await writeFile(join(folder, 'second.txt'), '2');
  await until('add second.txt');
  await writeFile(join(folder, 'skipped.log'), '2');
  await mkdir(join(folder, 'inner'));
  await until('addDir inner');
  await writeFile(join(folder, 'inner', 'third.txt'), '3');
  await until(`add ${join('inner', 'third.txt')}`);
  await writeFile(join(folder, 'first.txt'), 'longer than before');
  await until('change first.txt');
  await rm(join(folder, 'second.txt'));
  await until('unlink second.txt');
  await watcher.close();
  await rm(folder, { recursive: true });
  // A file that is written while its new folder is read may be told once more.
  return [...new Set(seen)].filter((event) => event !== `change ${join('inner', 'third.txt')}`).sort();
};
