// The web's streams, where functions of `node:stream` take them.

import loader from 'native/globals';

const isFunction = (value) => typeof value === 'function';

/** Whether a value is one of Node's streams, of this module or of a package. */
export const isNodeStream = (value) =>
  !!value &&
  !!(
    value._readableState ||
    value._writableState ||
    (isFunction(value.on) && (isFunction(value.write) || isFunction(value.pipe)))
  );

/** `readable` or `writable` if a value is such a stream of the web's. */
function single(value) {
  if (value === null || typeof value !== 'object' || isNodeStream(value)) return undefined;
  if (isFunction(value.pipeThrough) && isFunction(value.getReader) && isFunction(value.cancel))
    return 'readable';
  return isFunction(value.getWriter) && isFunction(value.abort) ? 'writable' : undefined;
}

/** Which of the web's streams a value is: `readable`, `writable`, or `transform` for a pair of both. */
export function webKind(value) {
  if (value === null || typeof value !== 'object' || isNodeStream(value)) return undefined;
  const kind = single(value);
  if (kind !== undefined) return kind;
  return single(value.readable) === 'readable' && single(value.writable) === 'writable'
    ? 'transform'
    : undefined;
}

/** The inside of a readable or writable stream of this engine; nothing of a pair, or of another implementation. */
export function webInside(value) {
  switch (webKind(value)) {
    case 'readable':
      return loader.load('internal/streams/readable').readableInside(value);
    case 'writable':
      return loader.load('internal/streams/writable').writableInside(value);
    default:
      return undefined;
  }
}
