// `process.nextTick`: after what runs now, before promises.

import timers from 'native/timers';
import { follow } from 'internal/context';
import { checkFunction } from 'internal/errors';

export function nextTick(callback, ...given) {
  checkFunction(callback, 'callback');
  const call = follow(callback);
  timers.tick(given.length === 0 ? () => call() : () => call(...given));
}
