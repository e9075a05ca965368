import util from 'node:util';
import { Random, attempt, wellFormed } from './lib.mjs';

class Point { constructor(x) { this.x = x; } get double() { return 2; } }

function value(random, depth, seen) {
  const leaf = [0, -0, NaN, 12n, 'text', '\ud800', true, null, undefined, /x/gi, new Date(7), new Error('plain'), new RangeError('range', { cause: 3 }), new Boolean(false), new String('abc'), Object(3n), Buffer.from('hi'), new Uint16Array([1, 2]), new ArrayBuffer(4), new DataView(new ArrayBuffer(3), 1), new Point(3), [,'hole']];
  const odd = [Symbol('s'), () => {}, new WeakMap(), Promise.resolve(1)];
  if (random.chance(4)) return random.one(odd);
  if (seen.length > 0 && random.chance(15)) return random.one(seen);
  if (depth <= 0 || random.chance(30)) return random.one(leaf);
  const inner = () => value(random, depth - 1, seen);
  const made = random.one([() => [], () => ({}), () => new Map(), () => new Set()])();
  seen.push(made);
  for (let at = random.below(4); at > 0; at -= 1) {
    if (Array.isArray(made)) made.push(inner());
    else if (made instanceof Map) made.set(inner(), inner());
    else if (made instanceof Set) made.add(inner());
    else made[random.one(['a', 'b', '1'])] = inner();
  }
  return made;
}

export default (seed) => {
  const random = new Random(seed);
  const rows = [];
  for (let at = 0; at < 15; at += 1) {
    const given = value(random, 3, []);
    rows.push(['structuredClone', null, attempt(() => {
      const made = structuredClone(given);
      return util.inspect(made, { depth: 9, showHidden: false }).replace(/\n\s+at .*/g, '');
    })]);
  }
  const buffer = new ArrayBuffer(8);
  rows.push(['structuredClone with transfer', null, attempt(() => {
    const made = structuredClone({ buffer, view: new Uint8Array(buffer, 2) }, { transfer: [buffer] });
    return [made.buffer.byteLength, made.view.byteOffset, made.view.buffer === made.buffer, buffer.byteLength];
  })]);
  return wellFormed(rows);
};
