import {
  clearImmediate,
  clearInterval,
  clearTimeout,
  setImmediate,
  setInterval,
  setTimeout,
} from 'internal/timers';
import promises from 'node:timers/promises';

export { clearImmediate, clearInterval, clearTimeout, promises, setImmediate, setInterval, setTimeout };

export default {
  clearImmediate,
  clearInterval,
  clearTimeout,
  promises,
  setImmediate,
  setInterval,
  setTimeout,
};
