// What an error says of a call of what is no function. The calls are written to a module, because the engine names them
// by their place in a file.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import url from 'node:url';
import { Random, attemptLater } from './lib.mjs';

const HEAD = `const o = { a: { n: 1 }, list: [{}], yes: (x) => x, s: 'text' };
const k = 'key', z = 7, t = 'text';
let u;
class Thing { #hidden = 1; own() { return this.#hidden(); } call() { return this.lacking(z); } }
`;

const OBJECTS = ['o', 'o.a', 'o.list[0]', 'o.yes(o)', "o['a']", 'globalThis', 't', '[1, z]', '({})', 'new Map()', '(z + 1)', '(z || o)', 'o?.a', 'o.a?.n', '`${z}x`', '(await o)', '"words"', '(() => 1)', 'o.yes(o).a'];
const MEMBERS = ['.nope', '.nope', '.a1', "['b-c']", "['plain']", '[k]', '[3]', '?.gone', '[o.s]', '.class'];
const ARGUMENTS = ['', '', '1', 'z', 'z, k', '"a"', 'o.a.n', '{ z, q: k }', '() => u', 'function () { return z; }', '...[z]', 'k + z', '[z, k]', 'null', 'String', '`${k}`', '/x/, z'];
/** Calls in arguments, which the place of an error tells from the one around them. */
const NESTED = ['String(z)', 'JSON.stringify(o)', 'Math.max(z, 1)', 'new Map([[z, k]])', 'o.a, Number(k)'];
/** And those that it does not. */
const ALIKE = ['o.yes(z)', 'z, o.yes(k)', 'o.yes(o.yes(z))'];

/** Whether another call may be meant by the last name before it. */
const endsAlike = (call) => ALIKE.some((alike) => call.includes(alike)) || /\)\[['\d]/.test(call);

function expression(random, alike) {
  const given = random.chance(25) ? random.one(alike ? ALIKE : NESTED) : random.one(ARGUMENTS);
  const callee = random.chance(15)
    ? random.one(['u', 'z', 'k', '(0, o.nope)', '(u ?? z)', 'o.a', 'null', '(z, u)'])
    : random.one(OBJECTS) + random.one(MEMBERS);
  switch (random.below(8)) {
    case 0:
      return callee.includes('?.') || /[(`"]/.test(callee) ? `${callee}(${given})` : `new ${callee}(${given})`;
    case 1:
      return callee.includes('?.') ? `${callee}(${given})` : `${callee}\`a\${z}b\``;
    case 2:
      return `${callee.replace(/(?<![?.])\.(?=[a-z])/, '\n    .')}(\n  ${given.startsWith('/') ? '' : given})`;
    case 3:
      return `[1].map(${callee.includes('await') ? 'async ' : ''}(x) => ${callee}(${given}))`;
    case 4:
      return `(z ? ${callee}(${given}) : o)`;
    case 5:
      return random.one(['new Thing().own()', 'new Thing().call()', callee.includes('await') ? 'u()' : `((x = ${callee}(${given})) => x)()`]);
    default:
      return `${callee}(${given})`;
  }
}

export default async (seed) => {
  const random = new Random(seed);
  const calls = Array.from({ length: 14 }, (_, at) => expression(random, at > 10));
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'calls-'));
  try {
    const file = path.join(folder, 'calls.mjs');
    const lines = calls.map((call) => `  async () => { const value = ${call}; return 'called'; },`);
    fs.writeFileSync(file, `${HEAD}export default [\n${lines.join('\n')}\n];\n`);
    const { default: list } = await import(url.pathToFileURL(file).href);
    const rows = [];
    for (const [at, call] of calls.entries()) rows.push([endsAlike(call) ? 'calls that end alike' : 'call', call, await attemptLater(list[at])]);
    return rows;
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
};
