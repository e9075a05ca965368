// `mock.timers` of node:test: timers are started and stopped at random, and the time is moved.
import { mock } from 'node:test';
import timers from 'node:timers';
import promises from 'node:timers/promises';
import { Random, attempt } from './lib.mjs';

const APIS = ['setTimeout', 'setInterval', 'setImmediate', 'Date', 'scheduler.wait', 'AbortSignal.timeout'];

/** Times are multiples of it, and a rest of each timer's own. */
const STEP = 64;

/** Lets what has been settled be told. */
const settle = async () => {
  for (let at = 0; at < 20; at += 1) await null;
};

export default async (seed) => {
  const random = new Random(seed);
  const [rows, log, running] = [[], [], []];
  let every;
  const say = (what) => (...given) => log.push([what, Date.now(), ...given]);
  rows.push(['before enable', null, attempt(() => mock.timers.tick(1))]);
  for (const options of [{ apis: ['nope'] }, { apis: 5 }, { now: -1 }, { now: 'x' }])
    rows.push(['refused options', options, attempt(() => mock.timers.enable(options))]);
  const start = random.one([0, 1000, 86400000]);
  mock.timers.enable(random.chance(50) ? { now: start, apis: APIS } : { now: new Date(start) });
  rows.push(['enable again', null, attempt(() => mock.timers.enable())]);
  rows.push(['date', null, [Date.now(), new Date().toISOString(), new Date(5).getTime(), new Date(2020, 1).getFullYear(), Date.UTC(2020, 1), new Date() instanceof Date, Date.name, Date.isMock, typeof Date()]]);
  try {
    for (let at = 0; at < 30; at += 1) {
      // No two are due at once: Node runs those in no order of its own.
      const after = random.below(60) * STEP + at + 1;
      const name = `${at}`;
      switch (random.below(13)) {
        case 0: case 1: running.push(setTimeout(say(`timeout ${name}`), after, at)); break;
        case 2: running.push(timers.setTimeout(say(`timers ${name}`), after)); break;
        case 3: if (every) clearInterval(every); every = setInterval(say(`interval ${name}`), (1 + random.below(30)) * STEP); break;
        case 4: setImmediate(say(`immediate ${name}`), 'x'); mock.timers.tick(0); break;
        case 5: promises.setTimeout(after, name).then(say('promise')); break;
        case 6: promises.scheduler.wait(after).then(say(`wait ${name}`)); break;
        case 7: { const stop = new AbortController(); promises.setTimeout(after, name, { signal: stop.signal }).then(say('not stopped'), (error) => log.push([error.name, error.code, error.message])); if (random.chance(60)) stop.abort(); break; }
        case 8: { const signal = AbortSignal.timeout(after); signal.onabort = say(`aborted ${name}`); break; }
        case 9: if (running.length > 0) { const timer = random.one(running); random.chance(50) ? clearTimeout(timer) : clearInterval(timer); } break;
        case 10: setTimeout(() => { log.push(['outer', Date.now()]); setTimeout(say(`inner ${name}`), 3 * STEP + at + 1); }, after); break;
        case 11: clearTimeout(random.one([undefined, null, 123456, {}, 'x'])); break;
        default: rows.push(['setTime', null, attempt(() => (random.chance(20) ? mock.timers.setTime(Date.now() + STEP) : mock.timers.tick(-1)))]); break;
      }
      if (random.chance(40)) {
        const by = random.below(40) * STEP;
        mock.timers.tick(by);
        await settle();
        rows.push(['tick', by, log.splice(0)]);
      }
    }
    for (const timer of running) clearInterval(timer);
    clearInterval(every);
    mock.timers.runAll();
    await settle();
    rows.push(['runAll', null, [log.splice(0), Date.now()]]);
  } finally {
    mock.timers.reset();
  }
  rows.push(['reset', null, [Date.now() > 1e12, Date.isMock === undefined, setTimeout === timers.setTimeout]]);
  return rows;
};
