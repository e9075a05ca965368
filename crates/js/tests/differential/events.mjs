import EventEmitter, { once, on } from 'node:events';
import { Random, attempt, attemptLater, failure, later } from './lib.mjs';

export default async (seed) => {
  const random = new Random(seed);
  const log = [];
  const emitter = new EventEmitter({ captureRejections: random.chance(20) });
  emitter.on('error', (error) => log.push(['error', failure(error)]));
  if (random.chance(40)) emitter.on('newListener', (name) => log.push(['new', name]));
  if (random.chance(40)) emitter.on('removeListener', (name) => log.push(['removed', name]));
  const listeners = Array.from({ length: 4 }, (_, which) => function listener(...given) {
    log.push([which, given, this === emitter]);
    if (which === 3) emitter.removeListener('a', listeners[0]);
    if (which === 2 && given[0] === 'throw') throw new RangeError('thrown');
    if (which === 1 && given[0] === 'reject') return Promise.reject(new Error('rejected'));
    return undefined;
  });
  process.on('unhandledRejection', () => {});
  const rows = [];
  for (let at = 0; at < 25; at += 1) {
    const call = random.one(['on', 'once', 'prependListener', 'prependOnceListener', 'off', 'emit', 'emit', 'emit', 'listenerCount', 'eventNames', 'rawListeners', 'removeAllListeners', 'setMaxListeners']);
    const name = random.one(['a', 'b']);
    const which = random.below(4);
    rows.push([`emitter.${call}`, [name, which], attempt(() => {
      if (call === 'emit') return emitter.emit(name, random.one(['x', 'throw', 'reject', 2]), which);
      if (call === 'eventNames') return emitter.eventNames();
      if (call === 'rawListeners') return emitter.rawListeners(name).length;
      if (call === 'listenerCount') return [emitter.listenerCount(name), emitter.listenerCount(name, listeners[which])];
      if (call === 'removeAllListeners') return random.chance(50) ? emitter.removeAllListeners(name) === emitter : 0;
      if (call === 'setMaxListeners') return emitter.setMaxListeners(random.one([5, 100])) === emitter;
      return emitter[call](name, random.chance(5) ? 'no function' : listeners[which]) === emitter;
    })]);
  }
  await later();
  rows.push(['order of listeners', null, log]);
  const waiting = once(emitter, 'c');
  emitter.emit('c', 1, 2);
  rows.push(['once', null, await attemptLater(() => waiting)]);
  const stop = new AbortController();
  const seen = [];
  const reading = attemptLater(async () => {
    for await (const given of on(emitter, 'd', { signal: stop.signal })) seen.push(given);
  });
  for (let at = random.below(4); at >= 0; at -= 1) emitter.emit('d', at);
  await later();
  stop.abort();
  rows.push(['on', null, [await reading, seen]]);

  const target = new EventTarget();
  const told = [];
  const phases = [];
  let first = true;
  const heard = Array.from({ length: 3 }, (_, which) => (event) => {
    told.push([which, event.type, event.defaultPrevented, event.target === target, event.cancelBubble]);
    if (first) told.push([event.eventPhase, event.currentTarget === target, event.composedPath().length]);
    else phases.push(event.eventPhase);
    first = false;
    if (which === 1) event.preventDefault();
    if (which === 2) event.stopImmediatePropagation();
  });
  for (let at = 0; at < 10; at += 1) {
    const call = random.one(['add', 'add', 'remove', 'dispatch']);
    const which = random.below(3);
    const options = random.one([undefined, { once: true }, { capture: true }, { passive: true }]);
    rows.push([`target.${call}`, which, attempt(() => {
      if (call === 'add') return target.addEventListener('e', heard[which], options);
      if (call === 'remove') return target.removeEventListener('e', heard[which], options);
      first = true;
      return target.dispatchEvent(new Event('e', { cancelable: random.chance(70) }));
    })]);
  }
  rows.push(['order of event listeners', null, told]);
  if (phases.length > 0) rows.push(['phase at another listener than the first', null, phases]);
  if (seed > 1) return rows;
  // What does not depend on the seed.
  const captured = [];
  const both = () => captured.push('called');
  const other = new EventTarget();
  other.addEventListener('e', both);
  other.addEventListener('e', both, true);
  other.dispatchEvent(new Event('e'));
  rows.push(['one listener with and without capture', null, captured.splice(0)]);
  other.removeEventListener('e', both);
  other.dispatchEvent(new Event('e'));
  rows.push(['the one with capture is left', null, captured.splice(0)]);
  other.removeEventListener('e', both, true);
  other.dispatchEvent(new Event('e'));
  rows.push(['capture removed with true', null, captured.splice(0)]);
  return rows;
};
