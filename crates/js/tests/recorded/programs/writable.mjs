// Cases of Node's tests of writable streams, as programs of ours: what they log is the outcome.
import { Writable } from 'node:stream';
import { nothing, watch, writer } from './support.mjs';

const tell = (log, name) => (error) => log(`${name} ${error ? (error.code ?? error.message) : error}`);

export default {
  'test-stream-writable-destroy.js': [
    function plain(log) {
      const stream = writer(log);
      watch(log, stream, 'finish', 'close', 'error');
      stream.destroy();
      log([stream.destroyed, stream.writable, stream.errored]);
    },
    function withAnError(log) {
      const stream = writer(log);
      watch(log, stream, 'finish', 'close', 'error');
      stream.destroy(new Error('kaboom'));
      log([stream.destroyed, stream.errored.message]);
    },
    function endThenDestroy(log) {
      const stream = writer(log);
      watch(log, stream, 'finish', 'close', 'error');
      stream.end('a', tell(log, 'ended'));
      stream.destroy();
    },
    function destroyInFinal(log) {
      const stream = writer(log, {
        final(done) {
          log('final');
          this.destroy();
          done();
        },
      });
      watch(log, stream, 'finish', 'close', 'error', 'prefinish');
      stream.end();
    },
    function hookGivesAnError(log) {
      const stream = writer(log, { destroy: (error, done) => done(new Error(`${error?.message} and more`)) });
      watch(log, stream, 'close', 'error');
      stream.destroy(new Error('kaboom'));
    },
    function hookSwallows(log) {
      const stream = writer(log, { destroy: (error, done) => done() });
      watch(log, stream, 'close', 'error');
      stream.destroy(new Error('kaboom'));
    },
    function lateHook(log) {
      const stream = writer(log, { destroy: (error, done) => process.nextTick(done, new Error('late')) });
      watch(log, stream, 'close', 'error');
      stream.destroy();
      stream.destroy(new Error('second'));
    },
    function pendingWritesFail(log) {
      const stream = new Writable({ write: nothing });
      watch(log, stream, 'error', 'close', 'drain');
      stream.write('a', tell(log, 'first'));
      stream.write('b', tell(log, 'second'));
      stream.end('c', tell(log, 'ended'));
      stream.destroy();
    },
    function pendingWritesFailWithTheError(log) {
      const stream = new Writable({ write: nothing });
      watch(log, stream, 'error', 'close');
      stream.write('a', tell(log, 'first'));
      stream.write('b', tell(log, 'second'));
      stream.destroy(new Error('why'));
    },
    function writeAfterDestroy(log) {
      const stream = writer(log);
      watch(log, stream, 'error', 'close');
      stream.destroy();
      log(stream.write('a', tell(log, 'written')));
    },
    function endAfterDestroy(log) {
      const stream = writer(log);
      watch(log, stream, 'error', 'close');
      stream.destroy();
      stream.end(tell(log, 'ended'));
      stream.end('a', tell(log, 'ended with more'));
    },
    function endCallbackBeforeDestroy(log) {
      const stream = writer(log);
      watch(log, stream, 'error', 'close');
      stream.end(tell(log, 'ended'));
      stream.destroy(new Error('gone'));
    },
    function errorOfWriteIsSaidOnce(log) {
      const stream = new Writable({ write: (chunk, encoding, done) => done(new Error('asd')) });
      watch(log, stream, 'error', 'close');
      stream.write('a', tell(log, 'written'));
      stream.destroy(new Error('other'));
    },
    function destroyedByAssignment(log) {
      const stream = writer(log);
      stream.destroyed = true;
      log(stream.destroyed);
      watch(log, stream, 'close', 'error');
      stream.destroy(new Error('ignored'));
    },
    function signal(log) {
      const control = new AbortController();
      const stream = new Writable({ signal: control.signal, write: nothing });
      stream.on('error', (error) => log([error.name, error.code]));
      watch(log, stream, 'close');
      stream.write('a', tell(log, 'written'));
      control.abort();
    },
    function noAutoDestroy(log) {
      const stream = new Writable({
        autoDestroy: false,
        write: (chunk, encoding, done) => done(new Error('bad')),
      });
      watch(log, stream, 'error', 'close');
      stream.write('a', tell(log, 'one'));
      stream.write('b', tell(log, 'two'));
      setImmediate(() => log([stream.destroyed, stream.errored?.message, stream.writable]));
    },
    function noEmitClose(log) {
      const stream = writer(log, { emitClose: false });
      watch(log, stream, 'close', 'finish');
      stream.end('a');
      setImmediate(() => log([stream.destroyed, stream.closed]));
    },
  ],
  'test-stream-writable-end-multiple.js': [
    function twice(log) {
      const stream = writer(log);
      watch(log, stream, 'finish', 'close', 'error');
      stream.end('a', tell(log, 'one'));
      stream.end(tell(log, 'two'));
      stream.on('finish', () => stream.end(tell(log, 'three')));
    },
  ],
  'test-stream-writable-end-cb-error.js': [
    function pendingEnds(log) {
      const stream = new Writable({
        write: (chunk, encoding, done) => setImmediate(done, new Error('kaboom')),
      });
      watch(log, stream, 'finish', 'close', 'error');
      stream.write('a');
      stream.end(tell(log, 'one'));
      stream.end(tell(log, 'two'));
    },
  ],
  'test-stream-writable-final-async.js': [
    function waited(log) {
      const stream = writer(log, {
        async final(done) {
          log('final');
          await new Promise(setImmediate);
          log('waited');
          done();
        },
      });
      watch(log, stream, 'prefinish', 'finish', 'close');
      stream.end('a');
    },
  ],
  'test-stream-writable-final-throw.js': [
    function thrown(log) {
      const stream = new Writable({
        write: (chunk, encoding, done) => done(),
        final() {
          throw new Error('thrown');
        },
      });
      watch(log, stream, 'error', 'finish', 'close');
      stream.end();
    },
  ],
  'test-stream-writable-final-destroy.js': [
    function finalThenDestroy(log) {
      const stream = writer(log, {
        final(done) {
          log('final');
          done();
        },
      });
      watch(log, stream, 'finish', 'close');
      stream.end();
      stream.destroy();
    },
  ],
  'test-stream-writable-finished.js': [
    function properties(log) {
      const stream = writer(log);
      const state = (what) => log([what, stream.writableEnded, stream.writableFinished, stream.writable]);
      state('made');
      stream.on('prefinish', () => state('prefinish'));
      stream.on('finish', () => state('finish'));
      stream.on('close', () => state('close'));
      stream.end('a', () => state('callback'));
      state('ended');
    },
    function finishAfterTheLastWrite(log) {
      const stream = new Writable({
        write(chunk, encoding, done) {
          log(String(chunk));
          setImmediate(done);
        },
      });
      watch(log, stream, 'finish');
      stream.write('a', () => log('one'));
      stream.end('b', () => log('two'));
    },
  ],
  'test-stream-writable-ended-state.js': [
    function states(log) {
      const stream = new Writable({ write: nothing });
      log([stream._writableState.ended, stream._writableState.ending, stream.writableEnded]);
      stream.end('a');
      log([stream._writableState.ended, stream._writableState.ending, stream.writableEnded]);
    },
  ],
  'test-stream-writable-aborted.js': [
    function aborted(log) {
      const one = new Writable({ write: nothing });
      log(one.writableAborted);
      one.destroy();
      log(one.writableAborted);
      const two = new Writable({ write: nothing });
      two.end();
      two.destroy();
      log(two.writableAborted);
    },
  ],
  'test-stream-writable-writable.js': [
    function property(log) {
      const one = writer(log);
      one.destroy();
      log(one.writable);
      const two = new Writable({ write: (chunk, encoding, done) => done(new Error('bad')) });
      watch(log, two, 'error');
      two.write('a');
      log(two.writable);
      process.nextTick(() => log(two.writable));
      const three = writer(log);
      three.end();
      log(three.writable);
    },
  ],
  'test-stream-writable-needdrain-state.js': [
    function drains(log) {
      const stream = new Writable({
        highWaterMark: 3,
        write: (chunk, encoding, done) => setImmediate(done),
      });
      const state = () => log([stream.writableNeedDrain, stream.writableLength]);
      watch(log, stream, 'drain');
      log(stream.write('ab'));
      state();
      log(stream.write('cd'));
      state();
      stream.on('drain', state);
    },
  ],
  'test-stream-write-drain.js': [
    function notAfterTheEnd(log) {
      const stream = new Writable({
        highWaterMark: 1,
        write: (chunk, encoding, done) => process.nextTick(done),
      });
      watch(log, stream, 'drain', 'finish');
      stream.write('asd');
      stream.end();
    },
  ],
  'test-stream-writable-invalid-chunk.js': [
    ...[undefined, 5, {}, true, [], Symbol('s')].map(
      (chunk) =>
        function invalid(log) {
          const stream = writer(log);
          watch(log, stream, 'error');
          try {
            log(stream.write(chunk));
          } catch (error) {
            log([error.name, error.code, error.message]);
          }
        },
    ),
  ],
  'test-stream-writable-null.js': [
    ...[false, true].map(
      (objectMode) =>
        function nulls(log) {
          const stream = writer(log, { objectMode });
          watch(log, stream, 'error');
          for (const value of [null, false, ''])
            try {
              log(stream.write(value));
            } catch (error) {
              log([error.code, error.message]);
            }
        },
    ),
  ],
  'test-stream-writable-change-default-encoding.js': [
    function defaults(log) {
      const stream = new Writable({
        decodeStrings: false,
        write(chunk, encoding, done) {
          log([typeof chunk, encoding]);
          done();
        },
      });
      stream.write('a');
      stream.setDefaultEncoding('ascii');
      stream.write('b');
      stream.write('c', 'latin1');
      stream.write(Buffer.from('d'));
      for (const name of ['nonsense', null, {}])
        try {
          stream.setDefaultEncoding(name);
        } catch (error) {
          log([error.name, error.code, error.message]);
        }
      stream.setDefaultEncoding('AsCii');
      stream.write('e');
      try {
        stream.write('f', 'nonsense');
      } catch (error) {
        log([error.code, error.message]);
      }
    },
  ],
  'test-stream-writable-decoded-encoding.js': [
    ...[true, false].map(
      (decodeStrings) =>
        function decoded(log) {
          const stream = new Writable({
            decodeStrings,
            write(chunk, encoding, done) {
              log([chunk instanceof Buffer, encoding, String(chunk)]);
              done();
            },
          });
          stream.write('some-text', 'utf8');
          stream.end('c3a9', 'hex');
        },
    ),
  ],
  'test-stream-writable-write-cb-error.js': [
    function sync(log) {
      const stream = new Writable({ write: (chunk, encoding, done) => done(new Error('asd')) });
      watch(log, stream, 'error', 'close');
      stream.write('a', tell(log, 'written'));
      log('after');
    },
    function later(log) {
      const stream = new Writable({
        write: (chunk, encoding, done) => process.nextTick(done, new Error('asd')),
      });
      watch(log, stream, 'error', 'close');
      stream.write('a', tell(log, 'written'));
      log('after');
    },
  ],
  'test-stream-writable-write-cb-twice.js': [
    ...[
      (done) => [done(), done()],
      (done) => [done(), process.nextTick(done)],
      (done) => [process.nextTick(done), process.nextTick(done)],
    ].map(
      (call) =>
        function twice(log) {
          const stream = new Writable({ write: (chunk, encoding, done) => void call(done) });
          watch(log, stream, 'error', 'close');
          stream.write('a', tell(log, 'written'));
        },
    ),
  ],
  'test-stream-writable-write-error.js': [
    ...[true, false].map(
      (autoDestroy) =>
        function failures(log) {
          const stream = new Writable({ autoDestroy, write: (chunk, encoding, done) => done() });
          watch(log, stream, 'error', 'close');
          stream.end();
          log(stream.write('asd', tell(log, 'after the end')));
          stream.destroy();
          log(stream.write('asd', tell(log, 'after destroy')));
        },
    ),
  ],
  'test-stream-writable-samecb-singletick.js': [
    function callbacksInOneTick(log) {
      const stream = new Writable({ write: (chunk, encoding, done) => done() });
      const done = () => log('done');
      for (let at = 0; at < 3; at += 1) stream.write('a', done);
      process.nextTick(() => log('tick'));
      Promise.resolve().then(() => log('microtask'));
    },
  ],
};
