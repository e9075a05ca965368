// Cases of Node's tests of pipes, `pipeline`, `finished` and `compose`, as programs of ours: what they log is the outcome.
import {
  Duplex,
  PassThrough,
  Readable,
  Transform,
  Writable,
  addAbortSignal,
  compose,
  finished,
  pipeline,
} from 'node:stream';
import * as promises from 'node:stream/promises';
import { nothing, reader, watch, writer } from './support.mjs';

const tell = (log, name) => (error, value) =>
  log([
    name,
    error ? [error.name, error.code ?? null, error.message] : null,
    ...(value === undefined ? [] : [value]),
  ]);
const attempt = (log, run) => {
  try {
    run();
  } catch (error) {
    log([error.name, error.code, error.message]);
  }
};

export default {
  'test-stream-pipe-event.js': [
    function event(log) {
      const target = writer(log);
      target.on('pipe', (source) => log(source === from));
      const from = reader();
      log(from.pipe(target) === target);
    },
  ],
  'test-stream-pipe-cleanup.js': [
    function listenersAfterwards(log) {
      for (const end of ['end', 'destroy', 'unpipe']) {
        const from = reader();
        const to = writer(log);
        const count = () => {
          const many = (stream) =>
            stream
              .eventNames()
              .sort()
              .map((name) => [String(name), stream.listenerCount(name)]);
          log([end, many(from), many(to)]);
        };
        from.pipe(to);
        count();
        if (end === 'end') from.push(null);
        else if (end === 'destroy') to.destroy();
        else from.unpipe(to);
        setImmediate(() => setImmediate(count));
      }
    },
  ],
  'test-stream-pipe-error-handling.js': [
    function ofTheSource(log) {
      const from = reader();
      const to = writer(log);
      watch(log, from, 'error');
      watch(log, to, 'error', 'unpipe', 'close', 'finish');
      from.pipe(to);
      from.destroy(new Error('source'));
    },
    function ofTheTarget(log) {
      const from = reader();
      const to = writer(log);
      watch(log, to, 'error', 'unpipe', 'close');
      from.pipe(to);
      log(from._readableState.pipes.length);
      to.destroy(new Error('target'));
      setImmediate(() => log([from._readableState.pipes.length, from.readableFlowing, from.destroyed]));
    },
    function listenerAddedLater(log) {
      const from = reader();
      const to = new Writable({ autoDestroy: false, write: (chunk, encoding, done) => done() });
      from.pipe(to);
      to.on('error', (error) => log(error.message));
      to.removeListener('error', nothing);
      to.emit('error', new Error('emitted'));
      log(from._readableState.pipes.length);
    },
  ],
  'test-stream-pipe-after-end.js': [
    function sourceHasEnded(log) {
      const from = reader();
      const to = writer(log);
      watch(log, to, 'finish');
      from.push(null);
      from.resume();
      from.on('end', () => from.pipe(to));
    },
  ],
  'test-stream-pipe-same-destination-twice.js': [
    function twice(log) {
      const from = new PassThrough();
      const to = writer(log);
      from.pipe(to);
      from.pipe(to);
      log(from._readableState.pipes.length);
      from.write('foobar');
      setImmediate(() => {
        from.unpipe(to);
        log(from._readableState.pipes.length);
        from.write('again');
      });
    },
  ],
  'test-stream-pipe-unpipe-streams.js': [
    function several(log) {
      const from = reader();
      const [one, two] = [writer(log), writer(log)];
      one.on('unpipe', (source, info) => log(['one', info]));
      two.on('unpipe', (source, info) => log(['two', info]));
      from.pipe(one);
      from.pipe(two);
      log(from._readableState.pipes.map((to) => (to === one ? 'one' : 'two')));
      from.unpipe(two);
      from.unpipe(two);
      log(from._readableState.pipes.length);
      from.pipe(two);
      from.unpipe();
      log([from._readableState.pipes.length, from.readableFlowing]);
    },
  ],
  'test-stream-unpipe-event.js': [
    ...[undefined, { end: false }].flatMap((options) =>
      [true, false].map(
        (byHand) =>
          function event(log) {
            const from = reader();
            const to = writer(log);
            to.on('unpipe', (source, info) => log(`unpipe ${JSON.stringify(info)}`));
            watch(log, to, 'finish');
            from.pipe(to, options);
            from.push('a');
            if (byHand) from.unpipe(to);
            else from.push(null);
          },
      ),
    ),
  ],
  'test-stream-pipe-flow-after-unpipe.js': [
    function flowsOn(log) {
      let at = 0;
      const from = new Readable({
        highWaterMark: 2,
        read() {
          setImmediate(() => this.push(at < 4 ? `${at++}` : null));
        },
      });
      const to = new Writable({
        highWaterMark: 1,
        write(chunk, encoding, done) {
          log(`write ${chunk}`);
          from.unpipe(to);
          log(from.readableFlowing);
          from.resume();
          done();
        },
      });
      watch(log, from, 'data', 'end');
      from.pipe(to);
    },
  ],
  'test-stream-pipe-await-drain.js': [
    function severalTargets(log) {
      const from = reader({ highWaterMark: 4 });
      const slow = [1, 2].map(
        (name) =>
          new Writable({
            highWaterMark: 1,
            write(chunk, encoding, done) {
              log(`${name} ${chunk}`);
              setTimeout(done, name);
            },
          }),
      );
      for (const to of slow) from.pipe(to);
      from.push('a');
      from.push('b');
      setImmediate(() => log([from._readableState.awaitDrainWriters?.size, from.readableFlowing]));
      from.push(null);
    },
  ],
  'test-stream-pipe-needDrain.js': [
    function fullTarget(log) {
      const to = new Writable({ highWaterMark: 1, write: (chunk, encoding, done) => setTimeout(done, 1) });
      to.write('asd');
      log(to.writableNeedDrain);
      const from = new Readable({
        read() {
          log('read');
          this.push('x');
          this.push(null);
        },
      });
      watch(log, from, 'pause', 'resume', 'end');
      watch(log, to, 'drain', 'finish');
      from.pipe(to);
      log(from.isPaused());
    },
  ],
  'test-stream-pipe-objectmode-to-non-objectmode.js': [
    function mixed(log) {
      const from = new Readable({ objectMode: true, read: nothing });
      const to = writer(log);
      watch(log, to, 'error');
      from.pipe(to);
      from.push('text');
      from.push(Buffer.from('bytes'));
      attempt(log, () => from.push({ no: 1 }));
      setImmediate(() => log([to.destroyed, from.destroyed]));
    },
  ],
  'test-stream-pipe-manual-resume.js': [
    function readByHand(log) {
      let left = 6;
      const from = new Readable({
        highWaterMark: 3,
        read() {
          this.push(left-- > 0 ? 'ab' : null);
        },
      });
      const to = new Writable({
        highWaterMark: 3,
        write(chunk, encoding, done) {
          log(String(chunk));
          setImmediate(done);
        },
      });
      from.pipe(to);
      from.on('readable', () => log('readable'));
      watch(log, to, 'finish');
    },
  ],
  'test-stream2-pipe-error-once-listener.js': [
    function onceListeners(log) {
      const from = new Readable({ read: () => from.destroy(new Error('reading')) });
      const to = writer(log);
      from.once('error', (error) => log(`read ${error.message}`));
      to.once('error', (error) => log(`write ${error.message}`));
      from.pipe(to);
    },
  ],
  'test-stream-pipeline.js': [
    function done(log) {
      const from = reader();
      const to = writer(log);
      log(pipeline(from, to, tell(log, 'done')) === to);
      for (const one of ['a', 'b']) from.push(one);
      from.push(null);
      watch(log, from, 'end', 'close');
      watch(log, to, 'finish', 'close');
    },
    function sourceFails(log) {
      const [from, through, to] = [reader(), new PassThrough(), writer(log)];
      for (const [name, stream] of Object.entries({ from, through, to }))
        for (const event of ['error', 'close'])
          stream.on(event, (error) => log(`${name} ${event} ${error?.message ?? ''}`));
      pipeline(from, through, to, tell(log, 'done'));
      from.destroy(new Error('kaboom'));
    },
    function middleFails(log) {
      const [from, to] = [reader(), writer(log)];
      const through = new Transform({ transform: (chunk, encoding, done) => done(new Error('middle')) });
      for (const [name, stream] of Object.entries({ from, through, to }))
        for (const event of ['error', 'close'])
          stream.on(event, (error) => log(`${name} ${event} ${error?.message ?? ''}`));
      pipeline(from, through, to, tell(log, 'done'));
      from.push('a');
    },
    function targetCloses(log) {
      const [from, to] = [reader(), writer(log)];
      pipeline(from, to, tell(log, 'done'));
      to.destroy();
      setImmediate(() => log(from.destroyed));
    },
    function sourceCloses(log) {
      const [from, to] = [reader(), writer(log)];
      pipeline(from, to, tell(log, 'done'));
      from.destroy();
      setImmediate(() => log(to.destroyed));
    },
    function arguments_(log) {
      attempt(log, () => pipeline());
      attempt(log, () => pipeline(reader(), writer(log)));
      attempt(log, () => pipeline(reader(), nothing));
      attempt(log, () => pipeline(nothing));
      attempt(log, () => pipeline([reader()], nothing));
      attempt(log, () => pipeline(5, writer(log), nothing));
    },
    function generators(log) {
      pipeline(
        function* () {
          yield 'hello';
          yield 'world';
        },
        async function* (source) {
          for await (const one of source) yield one.toUpperCase();
        },
        async function (source) {
          let all = '';
          for await (const one of source) all += one;
          return all;
        },
        tell(log, 'done'),
      );
    },
    function generatorThrows(log) {
      const from = reader();
      pipeline(
        from,
        async function* () {
          yield 'first';
          throw new Error('in generator');
        },
        writer(log),
        tell(log, 'done'),
      );
      from.push('a');
      setTimeout(() => log(from.destroyed), 1);
    },
    function iterables(log) {
      pipeline(['a', 'b'], writer(log), tell(log, 'done'));
    },
    function endOption(log) {
      const to = writer(log);
      promises
        .pipeline(Readable.from(['a']), to, { end: false })
        .then(() => log([to.writableEnded, to.destroyed]));
    },
    function notAFunctionResult(log) {
      attempt(log, () => pipeline(reader(), () => 5, tell(log, 'done')));
      attempt(log, () => pipeline(() => 5, writer(log), tell(log, 'done')));
    },
    function writeAfterEndOfATransform(log) {
      const through = new PassThrough();
      pipeline(Readable.from(['a']), through, writer(log), tell(log, 'done'));
      through.on('finish', () => log('finish'));
      watch(log, through, 'close');
    },
    function duplexAtTheEnd(log) {
      const to = new Duplex({
        read: nothing,
        write(chunk, encoding, done) {
          log(String(chunk));
          done();
        },
      });
      pipeline(Readable.from(['a', 'b']), to, tell(log, 'done'));
      setTimeout(() => log([to.destroyed, to.writableFinished]), 1);
    },
    function abortedSignal(log) {
      const control = new AbortController();
      const from = reader();
      promises.pipeline(from, writer(log), { signal: control.signal }).catch(tell(log, 'failed'));
      control.abort();
      setImmediate(() => log(from.destroyed));
    },
    function passThroughs(log) {
      const many = Array.from({ length: 4 }, () => new PassThrough());
      pipeline(Readable.from(['a']), ...many, writer(log), tell(log, 'done'));
    },
    function errorAfterTheEnd(log) {
      const to = writer(log, { final: (done) => done(new Error('final')) });
      pipeline(Readable.from(['a']), to, tell(log, 'done'));
    },
    function finishedAlready(log) {
      const from = reader();
      from.destroy();
      pipeline(from, writer(log), tell(log, 'done'));
    },
  ],
  'test-stream-promises.js': [
    async function pipelines(log) {
      await promises.pipeline(Readable.from(['a']), writer(log));
      log('done');
      await promises
        .pipeline(
          reader({
            read() {
              this.destroy(new Error('bad'));
            },
          }),
          writer(log),
        )
        .catch((error) => log(error.message));
      const control = new AbortController();
      const waiting = promises.pipeline(reader(), writer(log), { signal: control.signal });
      control.abort(new Error('why'));
      await waiting.catch((error) => log([error.name, error.code, error.cause?.message]));
    },
    async function finishes(log) {
      const stream = reader();
      stream.resume();
      stream.push(null);
      log((await promises.finished(stream)) ?? 'undefined');
      log((await promises.finished(stream)) ?? 'undefined');
      const other = reader();
      other.destroy(new Error('bad'));
      await promises.finished(other).catch((error) => log(error.message));
      attempt(log, () => promises.finished(reader(), { cleanup: 5 }));
      const cleaned = reader();
      cleaned.resume();
      cleaned.push(null);
      await promises.finished(cleaned, { cleanup: true });
      log(cleaned.listenerCount('end'));
    },
  ],
  'test-stream-finished.js': [
    function ofReading(log) {
      const stream = reader();
      finished(stream, tell(log, 'finished'));
      watch(log, stream, 'end', 'close');
      stream.push('a');
      stream.push(null);
      stream.resume();
    },
    function ofWriting(log) {
      const stream = writer(log);
      finished(stream, tell(log, 'finished'));
      watch(log, stream, 'finish', 'close');
      stream.end('a');
    },
    function ofBoth(log) {
      const stream = new PassThrough();
      finished(stream, tell(log, 'finished'));
      watch(log, stream, 'finish', 'end', 'close');
      stream.end('a');
      setImmediate(() => {
        log('resumed');
        stream.resume();
      });
    },
    function oneSide(log) {
      const stream = new PassThrough();
      finished(stream, { readable: false }, tell(log, 'writing'));
      finished(stream, { writable: false }, tell(log, 'reading'));
      stream.end('a');
      setImmediate(() => stream.resume());
    },
    function prematureClose(log) {
      for (const stream of [reader(), writer(log), new PassThrough()]) {
        finished(stream, tell(log, stream.constructor.name));
        stream.destroy();
      }
    },
    function error(log) {
      for (const stream of [reader(), writer(log)]) {
        finished(stream, tell(log, 'one'));
        finished(stream, { error: false }, tell(log, 'no error'));
        watch(log, stream, 'error');
        stream.destroy(new Error('bad'));
      }
    },
    function afterwards(log) {
      const read = reader();
      read.resume();
      read.push(null);
      const write = writer(log);
      write.end();
      const gone = reader();
      gone.destroy();
      const failed = writer(log);
      watch(log, failed, 'error');
      failed.destroy(new Error('bad'));
      setTimeout(() => {
        for (const [name, stream] of Object.entries({ read, write, gone, failed }))
          finished(stream, tell(log, name));
        log('asked');
      }, 1);
    },
    function cleanup(log) {
      const stream = reader();
      const stop = finished(stream, tell(log, 'never'));
      stop();
      log(stream.eventNames());
      stream.destroy();
    },
    function signal(log) {
      const control = new AbortController();
      const stream = reader();
      finished(stream, { signal: control.signal }, tell(log, 'finished'));
      control.abort();
      log(stream.destroyed);
      finished(stream, { signal: AbortSignal.abort() }, tell(log, 'before'));
    },
    function arguments_(log) {
      attempt(log, () => finished(reader(), 'x', nothing));
      attempt(log, () => finished(reader(), {}, 'x'));
      attempt(log, () => finished(reader(), {}));
      attempt(log, () => finished({}, nothing));
      attempt(log, () => finished(null, nothing));
    },
  ],
  'test-stream-add-abort-signal.js': [
    function aborts(log) {
      const control = new AbortController();
      const stream = addAbortSignal(control.signal, reader());
      stream.on('error', (error) => log([error.name, error.code, error.message]));
      control.abort();
      attempt(log, () => addAbortSignal('x', reader()));
      attempt(log, () => addAbortSignal(control.signal, 'x'));
      log(stream.destroyed);
    },
  ],
  'test-stream-compose.js': [
    async function two(log) {
      const stream = compose(
        new Transform({ transform: (chunk, encoding, done) => done(null, `${chunk}${chunk}`) }),
        new Transform({ transform: (chunk, encoding, done) => done(null, String(chunk).toUpperCase()) }),
      );
      stream.end('asd');
      for await (const one of stream) log(String(one));
      log([stream.readable, stream.writable, stream.destroyed]);
    },
    async function generators(log) {
      const stream = compose(
        async function* (source) {
          for await (const one of source) yield `${one}${one}`;
        },
        async function* (source) {
          for await (const one of source) yield String(one).toUpperCase();
        },
      );
      log(stream.writable);
      stream.end('asd');
      for await (const one of stream) log(String(one));
    },
    async function endsWithAFunction(log) {
      const stream = compose(
        async function* () {
          yield 'hello';
        },
        async (source) => {
          for await (const one of source) log(one);
        },
      );
      log([stream.readable, stream.writable]);
      watch(log, stream, 'end', 'finish', 'close', 'error');
      stream.resume();
    },
    function error(log) {
      const stream = compose(
        new PassThrough(),
        new Transform({ transform: (chunk, encoding, done) => done(new Error('bad')) }),
      );
      watch(log, stream, 'error', 'close');
      stream.end('a');
      stream.resume();
    },
    function arguments_(log) {
      attempt(log, () => compose());
      for (const parts of [
        [writer(log), new PassThrough()],
        [new PassThrough(), reader()],
      ])
        try {
          compose(...parts);
        } catch (error) {
          log([error.code, error.message.split(' Received')[0]]);
        }
      attempt(log, () => compose(5));
    },
    async function operator(log) {
      const stream = Readable.from(['a', 'b']).compose(async function* (source) {
        for await (const one of source) yield one + one;
      });
      log(await stream.toArray());
      attempt(log, () => Readable.from([1]).compose(5));
      attempt(log, () => Readable.from([1]).compose(writer(log), { signal: 5 }));
    },
  ],
};
