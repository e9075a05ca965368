// Globals that are modules' exports. Each is made when it is first used.

import native from 'native/globals';

const exports = {
  'internal/timers': [
    'setTimeout', 'setInterval', 'setImmediate', 'clearTimeout', 'clearInterval', 'clearImmediate',
  ],
};

function define(name, value) {
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: false });
}

for (const module in exports) {
  for (const name of exports[module]) {
    Object.defineProperty(globalThis, name, {
      configurable: true,
      enumerable: false,
      get() {
        const value = native.load(module)[name];
        define(name, value);
        return value;
      },
      set(value) {
        define(name, value);
      },
    });
  }
}

define('global', globalThis);
