import { setTimeout as wait } from 'node:timers/promises';
import { Random } from './lib.mjs';

/** The order in which callbacks run that are due at once, each of which may ask for more. */
export default async (seed) => {
  const random = new Random(seed);
  const log = [];
  let left = 40;
  let open = 0;
  let over;
  const done = new Promise((resolve) => { over = resolve; });
  const plan = (name, depth) => {
    if (left-- <= 0 || depth > 4) return;
    open += 1;
    const run = () => {
      log.push(name);
      for (let at = random.below(3); at > 0; at -= 1) plan(`${name}.${at}`, depth + 1);
      open -= 1;
      if (open === 0) over();
    };
    switch (random.below(5)) {
      case 0: process.nextTick(run); break;
      case 1: queueMicrotask(run); break;
      case 2: Promise.resolve().then(run); break;
      case 3: (async () => { await null; run(); })(); break;
      default: setImmediate(run);
    }
  };
  // From a timer, so that both engines begin in the same phase.
  await wait(1);
  await new Promise((resolve) => { setImmediate(resolve); });
  for (let at = 1; at <= 5; at += 1) plan(`${at}`, 0);
  if (open > 0) await done;
  return [['order of ticks, jobs and immediates', null, log]];
};
