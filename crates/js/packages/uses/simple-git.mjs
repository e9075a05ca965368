import { simpleGit } from 'simple-git';
import { mkdtempSync, writeFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
export default async () => {
  const folder = mkdtempSync(join(tmpdir(), 'packages-'));
  const git = simpleGit(folder);
  await git.init();
  writeFileSync(join(folder, 'a'), 'x');
  const { not_added } = await git.status();
  rmSync(folder, { recursive: true });
  return not_added;
};
