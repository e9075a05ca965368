// Names outside ASCII as ASCII, according to RFC 3492.

import { coded } from 'internal/errors';

export const version = '2.1.0';

const BASE = 36;
const T_MIN = 1;
const T_MAX = 26;
const SKEW = 38;
const DAMP = 700;
const LARGEST = 2 ** 31 - 1;
const FIRST = 128;
const BIAS = 72;

const refuse = (message) => coded(RangeError, 'ERR_OUT_OF_RANGE', message);

/** Code points to text, and back. */
export const ucs2 = {
  decode: (text) => Array.from(text, (each) => each.codePointAt(0)),
  encode: (points) => String.fromCodePoint(...points),
};

const digit = (value) => String.fromCharCode(value < 26 ? value + 97 : value + 22);

function valueOf(code) {
  if (code >= 48 && code <= 57) return code - 22;
  if (code >= 65 && code <= 90) return code - 65;
  if (code >= 97 && code <= 122) return code - 97;
  return BASE;
}

function adapt(delta, many, first) {
  let rest = first ? Math.floor(delta / DAMP) : delta >> 1;
  rest += Math.floor(rest / many);
  let steps = 0;
  for (; rest > ((BASE - T_MIN) * T_MAX) >> 1; steps += BASE) rest = Math.floor(rest / (BASE - T_MIN));
  return steps + Math.floor(((BASE - T_MIN + 1) * rest) / (rest + SKEW));
}

const threshold = (at, bias) => Math.min(Math.max(at - bias, T_MIN), T_MAX);

export function decode(text) {
  const cut = text.lastIndexOf('-');
  const points = [];
  for (let at = 0; at < cut; at += 1) {
    if (text.charCodeAt(at) >= FIRST) throw refuse('Illegal input >= 0x80 (not a basic code point)');
    points.push(text.charCodeAt(at));
  }
  let point = FIRST;
  let bias = BIAS;
  let place = 0;
  for (let at = cut > 0 ? cut + 1 : 0; at < text.length;) {
    const before = place;
    for (let weight = 1, step = BASE; ; step += BASE) {
      if (at >= text.length) throw refuse('Invalid input');
      const value = valueOf(text.charCodeAt(at));
      at += 1;
      if (value >= BASE) throw refuse('Invalid input');
      place += value * weight;
      if (place > LARGEST) throw refuse('Overflow: input needs wider integers to process');
      const limit = threshold(step, bias);
      if (value < limit) break;
      weight *= BASE - limit;
    }
    const many = points.length + 1;
    bias = adapt(place - before, many, before === 0);
    point += Math.floor(place / many);
    place %= many;
    points.splice(place, 0, point);
    place += 1;
  }
  return ucs2.encode(points);
}

export function encode(text) {
  const points = ucs2.decode(text);
  const basic = points.filter((each) => each < FIRST);
  let written = String.fromCharCode(...basic);
  let done = basic.length;
  if (done > 0) written += '-';
  let point = FIRST;
  let bias = BIAS;
  let delta = 0;
  while (done < points.length) {
    const next = Math.min(...points.filter((each) => each >= point));
    delta += (next - point) * (done + 1);
    if (delta > LARGEST) throw refuse('Overflow: input needs wider integers to process');
    point = next;
    for (const each of points) {
      if (each < point) delta += 1;
      if (each !== point) continue;
      let rest = delta;
      for (let step = BASE; ; step += BASE) {
        const limit = threshold(step, bias);
        if (rest < limit) break;
        written += digit(limit + ((rest - limit) % (BASE - limit)));
        rest = Math.floor((rest - limit) / (BASE - limit));
      }
      written += digit(rest);
      bias = adapt(delta, done + 1, done === basic.length);
      delta = 0;
      done += 1;
    }
    delta += 1;
    point += 1;
  }
  return written;
}

function labels(name, change) {
  const at = name.lastIndexOf('@');
  const user = name.slice(0, at + 1);
  return (
    user +
    name
      .slice(at + 1)
      .split(/[.\u3002\uFF0E\uFF61]/)
      .map(change)
      .join('.')
  );
}

export const toASCII = (name) =>
  labels(name, (label) => (/[^\0-\x7F]/.test(label) ? `xn--${encode(label)}` : label));
export const toUnicode = (name) =>
  labels(name, (label) => (label.startsWith('xn--') ? decode(label.slice(4).toLowerCase()) : label));

export default { decode, encode, toASCII, toUnicode, ucs2, version };
