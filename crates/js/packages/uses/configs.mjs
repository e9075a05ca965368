import toml from 'toml';
import ini from 'ini';
import * as smol from 'smol-toml';
import JSON5 from 'json5';
import * as jsonc from 'jsonc-parser';
import { jsonrepair } from 'jsonrepair';
import nconf from 'nconf';
import { cosmiconfig } from 'cosmiconfig';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
export default async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cfg-'));
  fs.writeFileSync(path.join(dir, '.appxrc.yaml'), 'a: 1\nb: [x]');
  fs.writeFileSync(path.join(dir, 'appx.config.js'), 'module.exports = { z: 1 }');
  const c = await cosmiconfig('appx').search(dir);
  const j = await cosmiconfig('appx').load(path.join(dir, 'appx.config.js'));
  fs.rmSync(dir, { recursive: true });
  return [
    toml.parse('a = 1\n[b]\nc = ["x"]'),
    ini.parse('a=1\n[b]\nc=d'),
    ini.stringify({ a: 1, b: { c: 'd' } }),
    smol.parse('d = 2020-01-02T03:04:05Z').d.toISOString(),
    smol.stringify({ a: { b: [1, 2] } }),
    JSON5.parse("{a: 'x', /*c*/ b: +1,}"),
    jsonc.parse('{"a":1,//x\n"b":2,}'),
    jsonc.modify('{"a":1}', ['b'], 2, {}).length,
    jsonrepair("{a:'x',}"),
    new nconf.Provider().defaults({ x: { y: 1 } }).get('x:y'),
    c.config,
    j.config,
  ];
};
