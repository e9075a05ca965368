// Names for calls of what is no function, which the engine reports by their place alone.

import native from 'native/callees';

const MOST = 64;
const known = new Map();

/** Whether it is a global that can be called. */
function works(path) {
  let value = globalThis;
  for (const name of path) value = value?.[name];
  return typeof value === 'function';
}

function describe(file, line, column) {
  const rows = native.find(file, line, column).filter(([, , path]) => !path || !works(path));
  const told = rows.map(([name, made]) => `${name} is not a ${made ? 'constructor' : 'function'}`);
  return [...new Set(told)].join(', or ');
}

/** The message of an error thrown by a call at that place, or nothing. */
export function told(site) {
  const [file, line, column] = [site.getFileName(), site.getLineNumber(), site.getColumnNumber()];
  if (typeof file !== 'string' || site.isNative()) return '';
  const place = `${file}:${line}:${column}`;
  let message = known.get(place);
  if (message === undefined) {
    message = describe(file, line, column);
    if (known.size >= MOST) known.clear();
    known.set(place, message);
  }
  return message;
}
