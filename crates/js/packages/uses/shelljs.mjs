import shell from 'shelljs';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
export default async () => {
  const folder = mkdtempSync(join(tmpdir(), 'packages-'));
  const file = join(folder, 'a.txt');
  shell.config.silent = true;
  shell.mkdir('-p', join(folder, 'in/here'));
  shell.ShellString('one\ntwo\n').to(file);
  shell.cp(file, join(folder, 'in/b.txt'));
  const said = {
    ls: [...shell.ls('-R', folder)],
    cat: shell.cat(file).stdout,
    grep: shell.grep('two', file).stdout,
    sed: shell.sed('one', 'three', file).stdout,
    find: shell.find(folder).length,
    which: shell.which('sh') !== null,
    tested: [shell.test('-d', folder), shell.test('-f', join(folder, 'none'))],
    // In another process of Node, which waits for the command.
    exec: [shell.exec('echo out; echo err >&2; exit 3')].map(({ code, stdout, stderr }) => [code, stdout, stderr])[0],
    piped: shell.cat(file).exec('wc -l').stdout.trim(),
    cmd: [shell.cmd('printf', '%s', 'a b')].map(({ code, stdout }) => [code, stdout])[0],
    later: await new Promise((resolve) => {
      shell.exec('echo later', { async: true }, (code, stdout) => resolve([code, stdout]));
    }),
  };
  shell.rm('-rf', folder);
  return [said, shell.test('-e', folder)];
};
