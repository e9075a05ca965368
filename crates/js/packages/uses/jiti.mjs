import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createJiti } from 'jiti';
export default async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'jiti-'));
  fs.writeFileSync(
    path.join(folder, 'a.ts'),
    'import { b } from "./b"; enum E { X = 2 } export const v: number = b + E.X;',
  );
  fs.writeFileSync(path.join(folder, 'b.ts'), 'export const b: number = 40;');
  const jiti = createJiti(import.meta.url, { fsCache: false });
  const { v } = await jiti.import(path.join(folder, 'a.ts'));
  fs.rmSync(folder, { recursive: true });
  return v;
};
