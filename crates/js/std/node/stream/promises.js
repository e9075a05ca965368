import { wrongType } from 'internal/errors';
import { finished as ends, join } from 'internal/stream/pipeline';
import { webKind } from 'internal/stream/web';

export function finished(stream, options) {
  const cleanup = options?.cleanup;
  if (cleanup !== undefined && typeof cleanup !== 'boolean')
    throw wrongType('cleanup', 'of type boolean', cleanup);
  return new Promise((resolve, reject) => {
    ends(stream, options ?? {}, (error) => (error ? reject(error) : resolve()));
  });
}

export function pipeline(...given) {
  const last = given.at(-1);
  const isOptions =
    last !== null &&
    typeof last === 'object' &&
    typeof last.pipe !== 'function' &&
    typeof last.write !== 'function' &&
    !webKind(last) &&
    !last[Symbol.iterator] &&
    !last[Symbol.asyncIterator];
  const options = isOptions ? given.pop() : {};
  const parts = given.length === 1 && Array.isArray(given[0]) ? given[0] : given;
  return new Promise((resolve, reject) => {
    join(parts, options, (error, value) => (error ? reject(error) : resolve(value)));
  });
}

export default { finished, pipeline };
