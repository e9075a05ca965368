import { Duplex, PassThrough, Readable, Transform, Writable, finished, pipeline } from 'node:stream';
import { attempt, attemptLater, failure, quiet, Random, turns } from './lib.mjs';

// Turns of the event loop, not time: what they do is the same on a busy computer.
const later = turns;

const events = ['data', 'end', 'close', 'error', 'finish', 'drain', 'pause', 'resume', 'readable', 'pipe', 'unpipe'];

function watch(stream, name, log, without = []) {
  for (const event of events) {
    if (without.includes(event)) continue;
    stream.on(event, (given) => log.push([name, event, event === 'data' ? String(given) : event === 'error' ? failure(given) : null]));
  }
  return stream;
}

const state = (stream) => ['readable', 'writable', 'destroyed', 'closed', 'readableEnded', 'writableEnded', 'writableFinished', 'readableFlowing', 'readableLength', 'writableLength', 'writableNeedDrain', 'readableAborted', 'writableAborted', 'errored'].map((name) => (name === 'errored' ? stream[name]?.message ?? null : stream[name] ?? null));

function readable(from, log) {
  const random = new Random(from.next());
  let next = 0;
  const most = random.below(6);
  return new Readable({
    objectMode: random.chance(30),
    highWaterMark: random.one([undefined, 1, 3, 16]),
    read() {
      next += 1;
      const give = () => {
        if (next > most) this.push(null);
        else this.push(`r${next}`);
      };
      if (random.chance(40)) setImmediate(give);
      else give();
    },
    destroy(error, callback) { log.push(['destroy', error?.message ?? null]); callback(error); },
  });
}

function writable(from, log, extra = {}) {
  const random = new Random(from.next());
  const bad = random.chance(20) ? random.below(4) : -1;
  let seen = 0;
  return new Writable({
    highWaterMark: random.one([undefined, 1, 4]),
    write(chunk, encoding, callback) {
      log.push(['write', String(chunk), encoding]);
      seen += 1;
      const error = seen === bad ? new Error('write failed') : null;
      if (random.chance(50)) setImmediate(callback, error);
      else callback(error);
    },
    final(callback) { log.push(['final']); callback(); },
    ...extra,
  });
}

async function writing(random, log) {
  const stream = watch(writable(random, log), 'w', log, ['data', 'readable']);
  for (let at = 0; at < 7; at += 1) {
    const how = random.below(12);
    if (how < 6) log.push(['returned', attempt(() => stream.write(`c${at}`, (error) => log.push(['callback', at, error ? failure(error) : null])))]);
    else if (how === 6) stream.cork();
    else if (how === 7) stream.uncork();
    else if (how === 8) stream.end(random.chance(50) ? 'last' : undefined, (error) => log.push(['end callback', error ? failure(error) : null]));
    else if (how === 9) stream.destroy(random.chance(50) ? new Error('destroyed') : undefined);
    else await later(1);
    log.push(state(stream));
  }
  await later(3);
  log.push(state(stream));
}

async function reading(random, log) {
  const stream = watch(readable(random, log), 'r', log, random.one([['data', 'readable'], ['readable'], ['data']]));
  for (let at = 0; at < 6; at += 1) {
    const how = random.below(8);
    if (how < 2) log.push(['read', String(stream.read())]);
    else if (how === 2) stream.pause();
    else if (how === 3) stream.resume();
    else if (how === 4 && random.chance(30)) stream.destroy(random.chance(50) ? new Error('destroyed') : undefined);
    else if (how === 5) log.push(['unshift', attempt(() => stream.unshift('u'))]);
    else await later(1);
    log.push(state(stream));
  }
  await later(3);
  log.push(state(stream));
}

async function transforming(from, log) {
  const random = new Random(from.next());
  const inside = new Random(from.next());
  const stream = watch(new Transform({
    highWaterMark: random.one([undefined, 1, 4]),
    transform(chunk, encoding, callback) {
      log.push(['transform', String(chunk)]);
      const give = () => {
        if (inside.chance(20)) this.push(`x${chunk}`);
        if (inside.chance(8)) callback(new Error('transform failed'));
        else callback(null, `t${chunk}`);
      };
      if (inside.chance(40)) setImmediate(give);
      else give();
    },
    flush(callback) { log.push(['flush']); callback(null, 'f'); },
  }), 't', log, random.one([['readable'], ['readable', 'data']]));
  for (let at = 0; at < 5; at += 1) {
    log.push(['returned', attempt(() => stream.write(`c${at}`, (error) => log.push(['callback', at, error ? failure(error) : null])))]);
    if (random.chance(30)) await later(1);
  }
  if (random.chance(85)) stream.end();
  else stream.destroy();
  await later(5);
  log.push(state(stream));
}

async function piping(random, log) {
  const from = watch(readable(random, log), 'from', log, ['data', 'readable', 'pause', 'resume']);
  const to = watch(writable(random, log), 'to', log, ['data', 'readable']);
  if (random.chance(50)) {
    pipeline(from, new PassThrough(), to, (error) => log.push(['pipeline', error ? failure(error) : null]));
  } else {
    finished(to, (error) => log.push(['finished', error ? failure(error) : null]));
    from.pipe(to);
  }
  if (random.chance(25)) {
    await later(random.below(2));
    random.one([from, to]).destroy(random.chance(50) ? new Error('destroyed') : undefined);
  }
  await later(8);
}

async function helping(random, log) {
  let running = 0;
  let most = 0;
  const work = async (value) => {
    running += 1;
    most = Math.max(most, running);
    await later(1);
    running -= 1;
    if (value === 13) throw new RangeError('unlucky');
    return value * 2;
  };
  const given = random.some([1, 2, 3, 4, 13], 6);
  const options = random.one([undefined, { concurrency: 1 }, { concurrency: 2 }, { concurrency: 3 }]);
  for (const [name, ...rest] of [['map', work, options], ['filter', async (value) => value > 1, options], ['flatMap', async (value) => [value, value], options], ['take', random.below(4)], ['drop', random.below(4)], ['forEach', work, options], ['reduce', (sum, value) => sum + value], ['some', (value) => value > 2], ['every', (value) => value < 4], ['find', (value) => value === 3], ['toArray']]) {
    running = most = 0;
    log.push([name, options ?? null, await attemptLater(async () => {
      const answer = Readable.from(given)[name](...rest);
      return typeof answer?.toArray === 'function' ? answer.toArray() : answer;
    }), name === 'map' ? most : null]);
  }
}

async function converting(random, log) {
  const makers = {
    'an async generator function': () => async function* double(source) { for await (const chunk of source) yield `${chunk}${chunk}`; },
    'an async function': () => async (source) => { for await (const chunk of source) log.push(['took', String(chunk)]); },
    'an async iterable': () => (async function* () { yield 'a'; yield 'b'; })(),
    'an array': () => ['a', 'b'],
    'a string': () => 'text',
    'a promise': () => Promise.resolve('p'),
    'a pair': () => ({ readable: Readable.from(['x']), writable: writable(random, log) }),
    'a readable': () => Readable.from(['x', 'y']),
    'nothing': () => undefined,
  };
  const name = random.one(Object.keys(makers));
  log.push([name, await attemptLater(async () => {
    const stream = Duplex.from(makers[name]());
    stream.on('error', () => {});
    const seen = [];
    if (stream.writable) { stream.write('q'); stream.end('w'); }
    if (stream.readable) for await (const chunk of stream) seen.push(String(chunk));
    else await new Promise((resolve) => { finished(stream, resolve); });
    return [seen, stream.readable, stream.writable];
  })]);
}

export default async (seed) => {
  const rows = [];
  for (const run of [writing, reading, transforming, piping, helping, converting]) {
    const log = [];
    await Promise.race([attemptLater(() => run(new Random(seed * 100 + rows.length), log)).then((got) => log.push(['over', got])), quiet(log, 60)]);
    rows.push([`node streams: ${run.name}`, null, log]);
  }
  return rows;
};
