// Stacks as V8 writes them: the error on the first line. Libraries print `error.stack` and expect its message.

import native from 'native/globals';
import loader from 'native/modules';

/** What only makes errors for others is no place an author looks for. */
const makers = ['ostler:internal/bridge', 'ostler:internal/errors'];

export function place(site) {
  const file = site.getFileName();
  if (file === null || file === undefined || site.isNative()) return 'native';
  return `${file}:${site.getLineNumber()}:${site.getColumnNumber()}`;
}

const dataViewMethod = /^[gs]et(?:Big)?(?:Int|Uint|Float)\d+$/;

/** Completes the message of the engine's own error for a call of what is no function, or outside of a DataView. */
function name(error, site) {
  const { message } = error;
  if (message.includes("' in module '") && Object.getPrototypeOf(error) === SyntaxError.prototype) {
    error.message = loader.completeLink(message) ?? message;
    return;
  }
  const outside = message === 'out of bound' || message === 'invalid array index';
  if (outside && error instanceof RangeError && dataViewMethod.test(site?.getFunctionName())) {
    error.message = 'Offset is outside the bounds of the DataView';
    return;
  }
  if ((message !== 'not a function' && message !== 'not a constructor') || !site) return;
  if (Object.getPrototypeOf(error) !== TypeError.prototype) return;
  error.message = native.load('internal/callees').told(site) || message;
}

export function prepareStackTrace(error, sites) {
  try {
    name(error, sites[0]);
  } catch {
    // What cannot be named is still told.
  }
  let head = 'Error';
  try {
    head = Error.prototype.toString.call(error);
  } catch {
    // An error that cannot be told is still an error.
  }
  for (const site of sites) {
    if (makers.includes(site.getFileName())) continue;
    const name = site.getFunctionName();
    head += name ? `\n    at ${name} (${place(site)})` : `\n    at ${place(site)}`;
  }
  return head;
}
