import util from 'node:util';
import { Random, attempt, wellFormed } from './lib.mjs';

class Point { constructor(x) { this.x = x; } }
class Named extends Map { get [Symbol.toStringTag]() { return 'Tagged'; } }
const bare = Object.create(null);
bare.a = 1;

function value(random, depth) {
  const leaf = [0, -0, 1.5, NaN, 12n, 'text', "it's", 'a\nb', '', true, null, undefined, Symbol('s'), Symbol.iterator, /x+/gi, new Date(0), new Date(NaN), () => {}, function named() {}, class Foo {}, class Bar extends Point {}, async () => {}, function* gen() {}, 'long '.repeat(30), Buffer.from('hi'), new Uint8Array([1, 2]), new ArrayBuffer(4), new WeakMap(), new Boolean(true), new String('abc'), new Number(-0), Promise.resolve(4), new Proxy({ p: 1 }, {}), bare, new Point(3), Math, JSON, globalThis.Atomics, [,'hole',,], new URL('http://h/p?q#f'), new URLSearchParams('a=b'), new Error('plain').message];
  if (depth <= 0 || random.chance(35)) return random.one(leaf);
  const inner = () => value(random, depth - 1);
  switch (random.below(9)) {
    case 0: return random.some([1, 2, 3, 'x'], 4).map(inner);
    case 1: return Array.from({ length: random.one([3, 7, 27, 101, 130]) }, (_, at) => (random.chance(80) ? at * 3 : 'x'));
    case 2: return new Map(random.some(['a', 1, 'b'], 3).map((key) => [random.chance(20) ? inner() : key, inner()]));
    case 3: return new Set(random.some([1, 2], 3).map(inner));
    case 4: { const made = { a: inner() }; made.self = random.chance(40) ? made : 1; return made; }
    case 5: return Object.assign(new Point(inner()), { 'with-dash': inner(), 7: 1, [Symbol('key')]: inner() });
    case 6: return { get one() { return 1; }, set one(to) {}, get two() { throw new Error('no'); }, set three(to) {} };
    case 7: return new Named([[1, inner()]]);
    default: return Object.fromEntries(random.some(['alpha', 'beta', 'gamma', 'delta', "o'k", 'a b', '1a'], 6).map((key) => [key, inner()]));
  }
}

const optionsList = [{}, {}, {}, { depth: 0 }, { depth: null }, { compact: false }, { compact: 1 }, { breakLength: 40 }, { breakLength: Infinity }, { maxArrayLength: 2 }, { maxStringLength: 4 }, { sorted: true }, { showHidden: true }, { colors: true }, { getters: true }, { numericSeparator: true }];

export default (seed) => {
  const random = new Random(seed);
  const rows = [];
  for (let at = 0; at < 12; at += 1) {
    const options = random.one(optionsList);
    const shown = value(random, 3);
    // Stacks are the engine's.
    const framed = (text) => text.replace(/(?:\n\s+at [^\n]*[^\n)>]\)?)+/g, ' at');
    rows.push([`inspect ${JSON.stringify(options)}`, null, attempt(() => framed(util.inspect(shown, options)))]);
    const format = random.text(['%s', '%d', '%i', '%f', '%j', '%o', '%O', '%c', '%%', '%x', ' text ', '%'], 4);
    const given = random.some([0, 1], 4).map(() => value(random, 1));
    rows.push(['util.format', format, attempt(() => util.format(format, ...given))]);
    const [a, b] = [value(random, 2), value(random, 2)];
    rows.push(['util.isDeepStrictEqual', null, attempt(() => [util.isDeepStrictEqual(a, b), util.isDeepStrictEqual(a, a)])]);
  }
  return wellFormed(rows);
};
