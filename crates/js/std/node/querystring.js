import { Bytes } from 'internal/buffer';
import { coded } from 'internal/errors';

/** As `encodeURIComponent`, which refuses half a surrogate pair; Node joins it with whatever follows. */
export function escape(text) {
  text = typeof text === 'string' ? text : String(text);
  if (text.isWellFormed()) return encodeURIComponent(text);
  let out = '';
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code < 0xd800 || code > 0xdfff) {
      out += encodeURIComponent(text[at]);
      continue;
    }
    at += 1;
    if (at >= text.length) throw coded(URIError, 'ERR_INVALID_URI', 'URI malformed');
    const low = text.charCodeAt(at) & 0x3ff;
    out += encodeURIComponent(String.fromCodePoint(0x10000 + (((code & 0x3ff) << 10) | low)));
  }
  return out;
}

/** The bytes that a text stands for: each character is one, of which Node keeps eight bits. */
export function unescapeBuffer(text, decodeSpaces) {
  const bytes = [];
  for (let at = 0; at < text.length; at += 1) {
    const pair = text.slice(at + 1, at + 3);
    if (text[at] === '%' && /^[\da-f]{2}$/i.test(pair)) {
      bytes.push(parseInt(pair, 16));
      at += 2;
    } else bytes.push(decodeSpaces && text[at] === '+' ? 32 : text.charCodeAt(at) & 0xff);
  }
  return Bytes.from(bytes);
}

export function unescape(text, decodeSpaces) {
  try {
    return decodeURIComponent(text);
  } catch {
    return unescapeBuffer(`${text}`, decodeSpaces).toString();
  }
}

function primitive(value) {
  if (typeof value === 'string') return value;
  return (typeof value === 'number' && Number.isFinite(value)) || ['boolean', 'bigint'].includes(typeof value)
    ? `${value}`
    : '';
}

export function stringify(values, separator = '&', equals = '=', options) {
  if (values === null || typeof values !== 'object') return '';
  const encode = options?.encodeURIComponent ?? querystring.escape;
  return Object.keys(values)
    .flatMap((key) =>
      [values[key]].flat().map((value) => `${encode(key)}${equals}${encode(primitive(value))}`),
    )
    .join(separator);
}

const later = /%\+*[\da-f]\+*[\da-f]/i;

export function parse(text, separator, equals, options) {
  const values = Object.create(null);
  if (typeof text !== 'string' || text === '') return values;
  separator = separator ? `${separator}` : '&';
  equals = equals ? `${equals}` : '=';
  const own = options?.decodeURIComponent;
  const decode = typeof own === 'function' ? own : querystring.unescape;
  const custom = decode !== unescape;
  const read = (part, escaped) => {
    const plain = part.replaceAll('+', custom ? '%20' : ' ');
    // What holds no escape is taken as it is.
    if (!custom && !escaped) return plain;
    try {
      return decode(plain);
    } catch {
      return unescape(plain, true);
    }
  };
  const most = typeof options?.maxKeys === 'number' ? options.maxKeys : 1000;
  const pairs = text.split(separator);
  for (const pair of most > 0 ? pairs.slice(0, most) : pairs) {
    if (pair === '') continue;
    const at = pair.indexOf(equals);
    const [name, text] = at < 0 ? [pair, ''] : [pair.slice(0, at), pair.slice(at + equals.length)];
    const first = /%[\da-f]{2}/i.exec(name);
    const key = read(name, first !== null);
    // As in Node, the second escape of a key counts as one of the value.
    const value = read(text, later.test(text) || (first !== null && later.test(name.slice(first.index + 3))));
    if (!(key in values)) values[key] = value;
    else if (Array.isArray(values[key])) values[key].push(value);
    else values[key] = [values[key], value];
  }
  return values;
}

const querystring = { decode: parse, encode: stringify, escape, parse, stringify, unescape, unescapeBuffer };

export { parse as decode, stringify as encode };
export default querystring;
