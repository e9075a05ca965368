// Cases of Node's tests of the methods of readable streams and of their iterators, as programs of ours: what they log is the
// outcome.
import { once } from 'node:events';
import { PassThrough, Readable, Writable } from 'node:stream';
import * as consumers from 'node:stream/consumers';
import { reader, watch } from './support.mjs';

const numbers = (...many) => Readable.from(many);
const failing = async (log, run) => {
  try {
    log((await run()) ?? 'nothing');
  } catch (error) {
    log([error.name, error.code ?? null, error.message]);
  }
};
const tick = () => new Promise(setImmediate);

/** The checks that all methods with a function share. */
const checks = (name, ...more) => [
  async function arguments_(log) {
    for (const given of [
      [5],
      [null],
      [() => {}, 5],
      [() => {}, { concurrency: 'x' }],
      [() => {}, { signal: 5 }],
    ])
      await failing(log, async () => {
        const made = numbers(1)[name](...given);
        return made instanceof Readable ? await made.toArray() : await made;
      });
  },
  async function throws(log) {
    for (const bad of [
      () => {
        throw new Error('sync');
      },
      () => Promise.reject(new Error('async')),
    ])
      await failing(log, async () => {
        const made = numbers(1, 2)[name](bad);
        return made instanceof Readable ? await made.toArray() : await made;
      });
  },
  async function aborted(log) {
    const control = new AbortController();
    await failing(log, async () => {
      const made = numbers(1, 2)[name](
        async (value, { signal }) => {
          log(signal.aborted);
          control.abort();
          await tick();
          log(signal.aborted);
        },
        { signal: control.signal },
      );
      return made instanceof Readable ? await made.toArray() : await made;
    });
  },
  ...more,
];

export default {
  'test-stream-map.js': checks(
    'map',
    async function values(log) {
      log(
        await numbers(1, 2, 3)
          .map((value) => value + 1)
          .toArray(),
      );
      log(
        await numbers(1, 2, 3)
          .map(async (value) => value * 2)
          .map((value) => `${value}`)
          .toArray(),
      );
    },
    async function concurrency(log) {
      const made = numbers(3, 1, 2, 0).map(
        async (value) => {
          log(`begin ${value}`);
          for (let at = 0; at < value; at += 1) await tick();
          log(`end ${value}`);
          return value;
        },
        { concurrency: 2 },
      );
      for await (const value of made) log(value);
    },
    async function highWaterMark(log) {
      const made = numbers(1, 2, 3, 4, 5, 6).map(
        async (value) => {
          log(`map ${value}`);
          return value;
        },
        { concurrency: 1, highWaterMark: 1 },
      );
      for await (const value of made) {
        log(value);
        await tick();
      }
    },
    async function invalidOptions(log) {
      for (const options of [{ concurrency: 0 }, { concurrency: 1.5 }, { highWaterMark: -1 }, 'x'])
        await failing(log, () =>
          numbers(1)
            .map((value) => value, options)
            .toArray(),
        );
    },
  ),
  'test-stream-filter.js': checks('filter', async function values(log) {
    log(
      await numbers(1, 2, 3, 4)
        .filter((value) => value > 2)
        .toArray(),
    );
    log(
      await numbers(1, 2, 3, 4)
        .filter(async (value) => value % 2)
        .map(async (value) => value + value)
        .toArray(),
    );
  }),
  'test-stream-forEach.js': checks('forEach', async function values(log) {
    log(String(await numbers(1, 2, 3).forEach((value) => log(value))));
    await numbers(3, 1, 2).forEach(
      async (value) => {
        for (let at = 0; at < value; at += 1) await tick();
        log(value);
      },
      { concurrency: 3 },
    );
  }),
  'test-stream-flatMap.js': checks('flatMap', async function values(log) {
    log(
      await numbers(1, 2, 3)
        .flatMap(() => [])
        .toArray(),
    );
    log(
      await numbers(1, 2)
        .flatMap((value) => [value, value])
        .toArray(),
    );
    log(
      await numbers(1, 2)
        .flatMap(async (value) => numbers(value, -value))
        .toArray(),
    );
  }),
  'test-stream-some-find-every.mjs': [
    ...['some', 'every', 'find'].flatMap((name) =>
      checks(name, async function values(log) {
        for (const given of [[], [1], [1, 2, 3], [3, 2, 1]]) {
          const seen = [];
          const stream = numbers(...given);
          const answer = await stream[name]((value) => {
            seen.push(value);
            return value > 1;
          });
          log([String(answer), seen, stream.destroyed]);
        }
      }),
    ),
    async function concurrently(log) {
      const answer = await numbers(1, 2, 3, 4).some(
        async (value) => {
          log(value);
          await tick();
          return value > 2;
        },
        { concurrency: 2 },
      );
      log(answer);
    },
  ],
  'test-stream-reduce.js': [
    async function values(log) {
      log(await numbers(1, 2, 3).reduce((sum, value) => sum + value));
      log(await numbers(1, 2, 3).reduce(async (sum, value) => sum + value, 10));
      log(await numbers(1).reduce(() => 'never'));
      log(await numbers().reduce(() => 'never', 'initial'));
      log((await numbers().reduce(() => 'never', undefined)) ?? 'undefined');
      await failing(log, () => numbers().reduce((sum, value) => sum + value));
      await failing(log, () => numbers(1, 2).reduce(() => Promise.reject(new Error('bad'))));
      await failing(log, () => numbers(1).reduce(5));
      await failing(log, () => numbers(1).reduce(() => {}, 0, 5));
      await failing(log, () => numbers(1).reduce(() => {}, 0, { signal: 5 }));
      await failing(log, () => numbers(1, 2).reduce(() => {}, 0, { signal: AbortSignal.abort() }));
    },
  ],
  'test-stream-toArray.js': [
    async function values(log) {
      log(await numbers().toArray());
      log(await numbers(1, 'a', { b: 1 }).toArray());
      const bytes = reader();
      bytes.push('ab');
      bytes.push('cd');
      bytes.push(null);
      log((await bytes.toArray()).map(String));
      await failing(log, () => numbers(1).toArray({ signal: AbortSignal.abort() }));
      await failing(log, () => numbers(1).toArray(5));
      await failing(log, () => numbers(1).toArray({ signal: true }));
      await failing(log, () =>
        reader({
          read() {
            this.destroy(new Error('bad'));
          },
        }).toArray(),
      );
    },
  ],
  'test-stream-drop-take.js': [
    async function values(log) {
      for (const many of [0, 1, 2, 5, Infinity, '1', undefined, null]) {
        log(await numbers(1, 2, 3).drop(many).toArray());
        log(await numbers(1, 2, 3).take(many).toArray());
      }
      for (const many of [-1, NaN, {}]) {
        await failing(log, () => numbers(1).drop(many).toArray());
        await failing(log, () => numbers(1).take(many).toArray());
      }
      log(await numbers(1, 2, 3, 4).drop(1).take(2).toArray());
      await failing(log, () => numbers(1).take(1, 5).toArray());
      await failing(log, () => numbers(1).drop(1, { signal: 5 }).toArray());
      await failing(log, () => numbers(1, 2).take(1, { signal: AbortSignal.abort() }).toArray());
    },
    async function takeEnds(log) {
      const stream = new Readable({
        objectMode: true,
        highWaterMark: 1,
        read() {
          log('read');
          setImmediate(() => this.push(1));
        },
        destroy(error, done) {
          log('destroy');
          done(error);
        },
      });
      log(await stream.take(2).toArray());
      log(stream.destroyed);
    },
  ],
  'test-stream-asIndexedPairs.mjs': [
    async function values(log) {
      log(typeof numbers(1).asIndexedPairs);
    },
  ],
  'test-stream-iterator-helpers-test262-tests.mjs': [
    async function shapes(log) {
      for (const name of [
        'map',
        'filter',
        'forEach',
        'flatMap',
        'some',
        'every',
        'find',
        'reduce',
        'toArray',
        'drop',
        'take',
        'compose',
        'iterator',
      ]) {
        const { value, writable, enumerable, configurable } = Object.getOwnPropertyDescriptor(
          Readable.prototype,
          name,
        );
        log([name, value.name, value.length, writable, enumerable, configurable]);
      }
    },
    async function prematureEnd(log) {
      let closed = 0;
      const source = {
        [Symbol.asyncIterator]() {
          return this;
        },
        next: async () => ({ value: 1, done: false }),
        return: async () => {
          closed += 1;
          return {};
        },
      };
      log(await Readable.from(source).some(() => true));
      log(closed);
    },
  ],
  'test-stream-readable-async-iterators.js': [
    async function reads(log) {
      const stream = reader({ encoding: 'utf8' });
      stream.push('a');
      stream.push('b');
      setImmediate(() => {
        stream.push('c');
        stream.push(null);
      });
      for await (const one of stream) log(one);
      log([stream.destroyed, stream.readableEnded]);
    },
    async function breaks(log) {
      const stream = numbers(1, 2, 3);
      for await (const one of stream) {
        log(one);
        break;
      }
      log(stream.destroyed);
    },
    async function breaksWithoutDestroying(log) {
      const stream = numbers(1, 2, 3);
      for await (const one of stream.iterator({ destroyOnReturn: false })) {
        log(one);
        break;
      }
      log(stream.destroyed);
      for await (const one of stream) log(one);
      log(stream.destroyed);
    },
    async function throws(log) {
      const stream = numbers(1, 2, 3);
      await failing(log, async () => {
        for await (const one of stream) throw new Error(`at ${one}`);
      });
      log([stream.destroyed, stream.errored]);
    },
    async function destroyedWithAnError(log) {
      const stream = reader();
      stream.push('a');
      await failing(log, async () => {
        for await (const one of stream) {
          log(String(one));
          stream.destroy(new Error('kaboom'));
        }
      });
    },
    async function destroyedWithout(log) {
      const stream = reader();
      stream.push('a');
      await failing(log, async () => {
        for await (const one of stream) {
          log(String(one));
          stream.destroy();
        }
      });
    },
    async function destroyedBefore(log) {
      const stream = reader();
      stream.destroy();
      await failing(log, async () => {
        for await (const one of stream) log(String(one));
        return 'ended';
      });
      const failed = reader();
      failed.on('error', () => log('error'));
      failed.destroy(new Error('bad'));
      await failing(log, async () => {
        for await (const one of failed) log(String(one));
      });
    },
    async function byHand(log) {
      const stream = numbers('a', 'b');
      const iterator = stream[Symbol.asyncIterator]();
      const all = await Promise.all([iterator.next(), iterator.next(), iterator.next(), iterator.next()]);
      log(all.map(({ value, done }) => [value ?? null, done]));
      log((await iterator.return('x')).value);
    },
    async function returned(log) {
      const stream = reader();
      const iterator = stream[Symbol.asyncIterator]();
      log(await iterator.return('given'));
      log((await iterator.next()).done);
      log(stream.destroyed);
      const other = reader()[Symbol.asyncIterator]();
      await failing(log, () => other.throw(new Error('thrown')));
    },
    async function pauses(log) {
      let at = 0;
      const stream = new Readable({
        objectMode: true,
        highWaterMark: 1,
        read() {
          log('read');
          this.push(at < 3 ? { at: at++ } : null);
        },
      });
      for await (const one of stream) {
        await tick();
        log(one);
      }
    },
    async function prematureClose(log) {
      const stream = new PassThrough();
      stream.write('a');
      setImmediate(() => stream.emit('close'));
      await failing(log, async () => {
        for await (const one of stream) log(String(one));
        return 'ended';
      });
    },
    async function ofATransform(log) {
      const stream = new PassThrough();
      stream.write('one');
      setImmediate(() => stream.end('two'));
      for await (const one of stream) log(String(one));
      log([stream.destroyed, stream.writableFinished]);
    },
    async function once_(log) {
      const stream = reader();
      const ended = once(stream, 'end');
      stream.push(null);
      stream.resume();
      log(await ended);
    },
  ],
  'test-readable-from.js': [
    async function sources(log) {
      const all = [
        ['a', 'b'],
        new Set([1, 2]),
        'text',
        Buffer.from('bytes'),
        (function* () {
          yield 1;
          yield Promise.resolve(2);
        })(),
        (async function* () {
          yield 'x';
        })(),
      ];
      for (const source of all) {
        const stream = Readable.from(source);
        log([stream.readableObjectMode, stream.readableHighWaterMark]);
        log((await stream.toArray()).map(String));
      }
      for (const source of [5, null, undefined, {}, true])
        await failing(log, () => Readable.from(source).toArray());
    },
    async function options(log) {
      const stream = Readable.from(['a'], { objectMode: false, encoding: 'hex' });
      log([stream.readableObjectMode, stream.readableEncoding]);
      log(await stream.toArray());
    },
    async function nullValue(log) {
      await failing(log, () => Readable.from([1, null, 2]).toArray());
      await failing(log, () => Readable.from([1, undefined, 2]).toArray());
    },
    async function throwing(log) {
      const stream = Readable.from(
        (function* () {
          yield 1;
          throw new Error('in source');
        })(),
      );
      watch(log, stream, 'error', 'close');
      await failing(log, () => stream.toArray());
    },
    async function rejecting(log) {
      await failing(log, () => Readable.from([Promise.reject(new Error('bad'))]).toArray());
    },
    function destroyedEarly(log) {
      const stream = Readable.from(
        (async function* () {
          try {
            yield 1;
            yield 2;
          } finally {
            log('finally');
          }
        })(),
      );
      stream.once('data', () => stream.destroy());
      watch(log, stream, 'data', 'close', 'error');
    },
    function order(log) {
      const stream = Readable.from(['a', 'b', 'c']);
      watch(log, stream, 'readable', 'data', 'end', 'close');
      process.nextTick(() => log('tick'));
      setImmediate(() => log('immediate'));
      Promise.resolve().then(() => log('microtask'));
    },
  ],
  'test-stream-consumers.js': [
    async function all(log) {
      const given = () => {
        const stream = new PassThrough();
        stream.write('{"a":');
        setImmediate(() => stream.end('"\u20ac"}'));
        return stream;
      };
      log(await consumers.text(given()));
      log(await consumers.json(given()));
      log((await consumers.buffer(given())).length);
      log((await consumers.arrayBuffer(given())).byteLength);
      log((await consumers.blob(given())).size);
      if (consumers.bytes) log((await consumers.bytes(given())).length);
      await failing(log, () => consumers.json(Readable.from(['{'])).catch((error) => log(error.name)));
    },
  ],
  'test-stream-catch-rejections.js': [
    function reading(log) {
      const stream = reader({ captureRejections: true });
      stream.on('data', async () => {
        throw new Error('kaboom');
      });
      watch(log, stream, 'error', 'close');
      stream.push('a');
    },
    function writing(log) {
      const stream = new Writable({
        captureRejections: true,
        highWaterMark: 1,
        write: (chunk, encoding, done) => setImmediate(done),
      });
      stream.on('drain', async () => {
        throw new Error('kaboom');
      });
      watch(log, stream, 'error', 'close');
      stream.write('a');
    },
  ],
  'test-stream-readable-dispose.js': [
    async function disposed(log) {
      const stream = reader();
      watch(log, stream, 'error', 'close');
      log(typeof stream[Symbol.asyncDispose]);
      await stream[Symbol.asyncDispose]();
      log([stream.destroyed, stream.errored?.code ?? null]);
    },
  ],
};
