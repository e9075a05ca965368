export function escape(text) {
  return encodeURIComponent(`${text}`);
}

export function unescape(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text.replace(/(?:%[\da-f]{2})+/gi, (run) => {
      try {
        return decodeURIComponent(run);
      } catch {
        return run;
      }
    });
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

export function parse(text, separator = '&', equals = '=', options) {
  const values = Object.create(null);
  if (typeof text !== 'string' || text === '') return values;
  const decode = options?.decodeURIComponent ?? querystring.unescape;
  const most = options?.maxKeys ?? 1000;
  const pairs = text.split(separator);
  for (const pair of most > 0 ? pairs.slice(0, most) : pairs) {
    if (pair === '') continue;
    const at = pair.indexOf(equals);
    const [key, value] = [
      at < 0 ? pair : pair.slice(0, at),
      at < 0 ? '' : pair.slice(at + equals.length),
    ].map((part) => decode(part.replaceAll('+', ' ')));
    if (!(key in values)) values[key] = value;
    else if (Array.isArray(values[key])) values[key].push(value);
    else values[key] = [values[key], value];
  }
  return values;
}

const querystring = { decode: parse, encode: stringify, escape, parse, stringify, unescape };

export { parse as decode, stringify as encode };
export default querystring;
