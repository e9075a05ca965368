import querystring from 'node:querystring';
import { Random, attempt, wellFormed } from './lib.mjs';

const pieces = ['a', 'b', '=', '&', '%', '%20', '%zz', '%E2', '%82', '%AC', '+', ' ', 'é', '😀', '\ud800', "'", '(', '!', '*', '~', ';', '/', '"', '\n', '\0'];
const values = ['x', '', 1, -0, 1.5, NaN, Infinity, true, 7n, null, undefined, ['a', 2, null], {}, 'é ', '~!*()\''];

export default (seed) => {
  const random = new Random(seed);
  const rows = [];
  for (let at = 0; at < 20; at += 1) {
    const text = random.text(pieces, 12);
    rows.push(['querystring.parse', text, attempt(() => ({ ...querystring.parse(text) }))]);
    rows.push(['querystring.parse with separators', text, attempt(() => ({ ...querystring.parse(text, ';', ':') }))]);
    rows.push(['querystring.parse maxKeys', text, attempt(() => ({ ...querystring.parse(text, null, null, { maxKeys: 2 }) }))]);
    rows.push(['querystring.escape', text, attempt(() => querystring.escape(text))]);
    rows.push(['querystring.unescape', text, attempt(() => querystring.unescape(text))]);
    const object = Object.fromEntries(random.some(['a', 'b c', 'é', '=', '__proto__x'], 4).map((key) => [key, random.one(values)]));
    rows.push(['querystring.stringify', Object.keys(object), attempt(() => querystring.stringify(object))]);
    rows.push(['querystring.stringify with separators', Object.keys(object), attempt(() => querystring.stringify(object, ';', ':'))]);
  }
  return wellFormed(rows);
};
