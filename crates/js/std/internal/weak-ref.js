// `WeakRef`, whose target stays while the code runs that made it or asked for it. The engine's own forgets an object that
// nothing else holds at once.

import { NativeWeakRef as Native } from 'internal/globals';

const { deref } = Native.prototype;
const { queueMicrotask } = globalThis;
const kept = [];

function keep(target) {
  if (kept.length === 0) {
    queueMicrotask(() => {
      kept.length = 0;
    });
  }
  kept.push(target);
}

export class WeakRef extends Native {
  constructor(target) {
    super(target);
    keep(target);
  }

  deref() {
    const target = deref.call(this);
    if (target !== undefined) keep(target);
    return target;
  }
}
