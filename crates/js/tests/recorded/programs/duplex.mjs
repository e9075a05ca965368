// Cases of Node's tests of duplex and transform streams, as programs of ours: what they log is the outcome.
import { Duplex, PassThrough, Readable, Transform, Writable, duplexPair } from 'node:stream';
import { nothing, watch, writer } from './support.mjs';

const all = ['readable', 'data', 'end', 'prefinish', 'finish', 'error', 'close', 'drain'];
const upper = (options) =>
  new Transform({
    transform(chunk, encoding, done) {
      done(null, String(chunk).toUpperCase());
    },
    ...options,
  });

export default {
  'test-stream2-transform.js': [
    function writableSide(log) {
      const stream = new PassThrough();
      for (let at = 0; at < 4; at += 1) stream.write('ab');
      stream.end();
      log([stream.readableLength, stream.writableLength]);
    },
    function passThrough(log) {
      const stream = new PassThrough();
      for (const one of ['foog', 'bark', 'bazy', 'kuel']) stream.write(Buffer.from(one));
      stream.end();
      for (const size of [5, 5, 5, 5]) log(String(stream.read(size)));
    },
    function objects(log) {
      const stream = new PassThrough({ objectMode: true });
      for (const one of [1, true, false, 0, 'foo', '', { a: 'b' }]) stream.write(one);
      stream.end();
      for (let at = 0; at < 8; at += 1) log(stream.read());
    },
    function lateCallbacks(log) {
      const stream = new Transform({
        transform(chunk, encoding, done) {
          setTimeout(() => {
            this.push(chunk);
            this.push(chunk);
            done();
          }, 1);
        },
      });
      stream.on('data', (chunk) => log(String(chunk)));
      watch(log, stream, 'end', 'finish');
      stream.write('a');
      stream.write('b');
      stream.end('c');
    },
    function assymetric(log) {
      const stream = new Transform({
        transform(chunk, encoding, done) {
          this.all = (this.all ?? '') + chunk;
          if (this.all.length >= 5) {
            this.push(this.all);
            this.all = '';
          }
          done();
        },
        flush(done) {
          log('flush');
          this.push(this.all);
          done();
        },
      });
      stream.on('data', (chunk) => log(String(chunk)));
      watch(log, stream, 'end', 'finish', 'close');
      for (const one of ['aaa', 'bbb', 'c', 'dddd', 'e']) stream.write(one);
      stream.end();
    },
    function eventsOfReading(log) {
      const stream = new PassThrough();
      watch(log, stream, 'readable', 'end');
      stream.write('foog');
      stream.write('bark');
      log(String(stream.read(5)));
      log(String(stream.read(5)));
      stream.write('bazy');
      log(String(stream.read(5)));
      stream.write('kuel');
      stream.once('readable', () => {
        log(String(stream.read(5)));
        stream.end();
      });
    },
    function reordered(log) {
      const stream = new PassThrough();
      const seen = [];
      stream.on('readable', () => {
        const chunk = stream.read(5);
        seen.push(chunk === null ? null : String(chunk));
        log(seen.at(-1));
      });
      stream.write('foog');
      stream.write('bark');
      setImmediate(() => {
        stream.write('bazy');
        stream.write('kuel');
        stream.end();
      });
    },
    function flowingWhilePaused(log) {
      const stream = upper();
      watch(log, stream, ...all.slice(1));
      stream.write('a');
      stream.pause();
      stream.write('b');
      setImmediate(() => {
        stream.resume();
        stream.end('c');
      });
    },
    function json(log) {
      const stream = new Transform({
        readableObjectMode: true,
        transform(chunk, encoding, done) {
          try {
            done(null, JSON.parse(chunk));
          } catch {
            done(new TypeError('no JSON'));
          }
        },
      });
      stream.on('data', (value) => log(value));
      watch(log, stream, 'end', 'error', 'close');
      stream.write('{"a":1}');
      stream.write('[2]');
      stream.write('{');
      stream.end('3');
    },
    ...[0, 1, 16, 100].map(
      (highWaterMark) =>
        function backpressure(log) {
          const stream = upper({ highWaterMark });
          watch(log, stream, ...all);
          for (const one of ['ab', 'cd', 'ef']) log(stream.write(one));
          stream.end();
        },
    ),
  ],
  'test-stream-transform-callback-twice.js': [
    function twice(log) {
      const stream = new Transform({
        transform(chunk, encoding, done) {
          done();
          done();
        },
      });
      watch(log, stream, 'error', 'close');
      stream.write('a');
    },
  ],
  'test-stream-transform-destroy.js': [
    ...[undefined, new Error('kaboom')].map(
      (reason) =>
        function destroyed(log) {
          const stream = upper();
          watch(log, stream, ...all.slice(1));
          stream.resume();
          stream.end('a');
          stream.destroy(reason);
        },
    ),
    function hook(log) {
      const stream = upper({
        destroy(error, done) {
          this.push(null);
          this.end();
          process.nextTick(done, error);
        },
      });
      watch(log, stream, ...all.slice(1));
      stream.destroy(new Error('why'));
    },
  ],
  'test-stream-transform-final.js': [
    function order(log) {
      let at = 0;
      const step = (what) => log(`${(at += 1)} ${what}`);
      const stream = new Transform({
        objectMode: true,
        transform(chunk, encoding, done) {
          step(`transform ${chunk}`);
          this.push(at);
          done();
        },
        final(done) {
          step('final');
          setTimeout(() => {
            step('final done');
            done();
          }, 1);
        },
        flush(done) {
          step('flush');
          process.nextTick(() => {
            step('flush done');
            done();
          });
        },
      });
      stream.on('finish', () => step('finish'));
      stream.on('end', () => step('end'));
      stream.on('data', (value) => step(`data ${value}`));
      stream.write(1);
      stream.write(4);
      stream.end(7, () => step('end callback'));
    },
  ],
  'test-stream-transform-final-sync.js': [
    function order(log) {
      const stream = new Transform({
        objectMode: true,
        transform(chunk, encoding, done) {
          log(`transform ${chunk}`);
          done(null, chunk);
        },
        final(done) {
          log('final');
          done();
        },
        flush(done) {
          log('flush');
          done();
        },
      });
      watch(log, stream, 'finish', 'end', 'data', 'prefinish', 'close');
      stream.write(1);
      stream.end(2, () => log('ended'));
    },
  ],
  'test-stream-transform-flush-data.js': [
    function dataOfFlush(log) {
      const stream = upper({ flush: (done) => done(null, 'last') });
      stream.on('data', (chunk) => log(String(chunk)));
      watch(log, stream, 'end', 'finish');
      stream.end('foo');
    },
    function errorOfFlush(log) {
      const stream = upper({ flush: (done) => done(new Error('in flush')) });
      watch(log, stream, ...all.slice(1));
      stream.end('foo');
    },
  ],
  'test-stream-transform-hwm0.js': [
    function mark(log) {
      const stream = new Transform({
        objectMode: true,
        highWaterMark: 0,
        transform(chunk, encoding, done) {
          log(`transform ${chunk}`);
          process.nextTick(() => done(null, chunk));
        },
      });
      log(stream.write(1));
      stream.on('readable', () => log(stream.read()));
      watch(log, stream, 'drain', 'finish', 'end');
      setImmediate(() => stream.end(2));
    },
  ],
  'test-stream-transform-objectmode-falsey-value.js': [
    function falsy(log) {
      const stream = new PassThrough({ objectMode: true });
      stream.on('data', (value) => log(value));
      for (const value of [-1, 0, 1, '', false]) stream.write(value);
      stream.end();
      watch(log, stream, 'end');
    },
  ],
  'test-stream-transform-split-highwatermark.js': [
    ...[
      {},
      { readableHighWaterMark: 3 },
      { writableHighWaterMark: 4 },
      { readableHighWaterMark: 3, writableHighWaterMark: 4, highWaterMark: 5 },
      { readableObjectMode: true },
      { writableObjectMode: true },
      { readableHighWaterMark: 0, writableHighWaterMark: 0 },
      { readableHighWaterMark: NaN },
      { writableHighWaterMark: 'x' },
      { writableHighWaterMark: null },
    ].map(
      (options) =>
        function marks(log) {
          try {
            const stream = new Transform(options);
            log([
              stream.readableHighWaterMark,
              stream.writableHighWaterMark,
              stream.readableObjectMode,
              stream.writableObjectMode,
            ]);
          } catch (error) {
            log([error.name, error.code, error.message]);
          }
        },
    ),
  ],
  'test-stream-transform-constructor-set-methods.js': [
    function none(log) {
      const stream = new Transform();
      watch(log, stream, 'error', 'close');
      try {
        stream.write('a');
      } catch (error) {
        log([error.name, error.code, error.message]);
      }
      try {
        new Writable().write('a');
      } catch (error) {
        log([error.name, error.code, error.message]);
      }
      const reading = new Readable();
      reading.on('error', (error) => log([error.name, error.code, error.message]));
      reading.read();
    },
  ],
  'test-stream-duplex-end.js': [
    ...[true, false, undefined].flatMap((allowHalfOpen) =>
      [true, false].map(
        (emitClose) =>
          function halfOpen(log) {
            const stream = new Duplex({
              allowHalfOpen,
              emitClose,
              read: nothing,
              write: (chunk, encoding, done) => done(),
            });
            log(stream.allowHalfOpen);
            watch(log, stream, 'end', 'finish', 'close');
            stream.resume();
            stream.push(null);
            setImmediate(() => log([stream.writableEnded, stream.destroyed]));
          },
      ),
    ),
  ],
  'test-stream-duplex-props.js': [
    ...[
      { objectMode: true },
      { objectMode: true, highWaterMark: 3 },
      { readableObjectMode: true },
      { writableObjectMode: true },
      { readable: false },
      { writable: false },
      { readable: false, writable: false },
    ].map(
      (options) =>
        function properties(log) {
          const stream = new Duplex({ read: nothing, write: nothing, ...options });
          log([
            stream.readable,
            stream.writable,
            stream.readableObjectMode,
            stream.writableObjectMode,
            stream.readableHighWaterMark,
            stream.writableHighWaterMark,
            stream.destroyed,
          ]);
          watch(log, stream, 'end', 'finish', 'close');
          stream.resume();
          setImmediate(() => log([stream.readableEnded, stream.writableFinished]));
        },
    ),
  ],
  'test-stream-duplex-destroy.js': [
    ...[undefined, new Error('kaboom')].map(
      (reason) =>
        function destroyed(log) {
          const stream = new Duplex({ read: nothing, write: nothing });
          watch(log, stream, 'end', 'finish', 'error', 'close');
          stream.resume();
          stream.end();
          stream.destroy(reason);
          log([stream.destroyed, stream.readable, stream.writable]);
        },
    ),
    function oneSideByAssignment(log) {
      const stream = new Duplex({ read: nothing, write: nothing });
      stream.destroyed = true;
      log([stream.destroyed, stream._readableState.destroyed, stream._writableState.destroyed]);
    },
  ],
  'test-stream-auto-destroy.js': [
    ...[true, false].map(
      (autoDestroy) =>
        function sides(log) {
          const read = new Readable({ autoDestroy, read: nothing });
          watch(log, read, 'end', 'close');
          read.resume();
          read.push(null);
          const write = new Writable({ autoDestroy, write: (chunk, encoding, done) => done() });
          watch(log, write, 'finish', 'close');
          write.end();
          const both = upper({ autoDestroy });
          watch(log, both, 'end', 'finish', 'close');
          both.resume();
          both.end('a');
          setTimeout(() => log([read.destroyed, write.destroyed, both.destroyed]), 1);
        },
    ),
  ],
  'test-stream-destroy-event-order.js': [
    function order(log) {
      const stream = new Duplex({ read: nothing, write: nothing });
      let closed = false;
      stream.on('close', () => {
        closed = true;
        log('close');
      });
      stream.on('error', () => log(`error ${closed}`));
      stream.destroy(new Error('kaboom'));
    },
  ],
  'test-stream-duplex-from.js': [
    async function iterable(log) {
      const stream = Duplex.from(['a', 'b']);
      log([stream.readable, stream.writable]);
      for await (const one of stream) log(one);
    },
    async function asyncGenerator(log) {
      const stream = Duplex.from(async function* (source) {
        for await (const one of source) yield String(one).toUpperCase();
      });
      stream.end('hello');
      for await (const one of stream) log(String(one));
      log([stream.readable, stream.writable]);
    },
    async function promise(log) {
      const stream = Duplex.from(Promise.resolve('later'));
      for await (const one of stream) log(String(one));
      log(stream.destroyed);
    },
    async function asyncFunction(log) {
      const stream = Duplex.from(async (source) => {
        for await (const one of source) log(String(one));
      });
      watch(log, stream, 'finish', 'close');
      log([stream.readable, stream.writable]);
      stream.write('a');
      stream.end('b');
    },
    function readableOnly(log) {
      const stream = Duplex.from({
        readable: new Readable({
          read() {
            this.push('asd');
            this.push(null);
          },
        }),
      });
      log([stream.readable, stream.writable]);
      watch(log, stream, 'data', 'end', 'close');
    },
    function writableOnly(log) {
      const stream = Duplex.from(writer(log));
      log([stream.readable, stream.writable]);
      watch(log, stream, 'finish', 'close');
      stream.end('asd');
    },
    function pair(log) {
      const stream = Duplex.from({
        readable: Readable.from(['x']),
        writable: writer(log),
      });
      watch(log, stream, 'data', 'end', 'finish', 'close', 'error');
      stream.end('asd');
    },
    function errorOfOneSide(log) {
      const readable = new Readable({ read: nothing });
      const stream = Duplex.from({ readable, writable: writer(log) });
      watch(log, stream, 'error', 'close');
      readable.destroy(new Error('why'));
    },
    ...[null, undefined, 5, {}, () => 5].map(
      (given) =>
        function invalid(log) {
          try {
            Duplex.from(given);
          } catch (error) {
            log([error.name, error.code, error.message]);
          }
        },
    ),
  ],
  'test-stream-duplexpair.js': [
    function bothWays(log) {
      const [client, server] = duplexPair();
      server.on('data', (chunk) => log(`server ${chunk}`));
      client.on('data', (chunk) => log(`client ${chunk}`));
      for (const [name, side] of Object.entries({ client, server }))
        for (const event of ['end', 'finish', 'close']) side.on(event, () => log(`${name} ${event}`));
      client.write('ping');
      server.write('pong');
      client.end();
      server.end();
    },
    function callbacks(log) {
      const [client, server] = duplexPair();
      client.write('foo', () => log('written'));
      log('wrote');
      setImmediate(() => {
        log('reading');
        server.once('readable', () => log(String(server.read())));
      });
    },
  ],
};
