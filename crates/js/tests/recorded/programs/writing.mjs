// Cases of Node's tests of writable streams, as programs of ours: what they log is the outcome.
import { Writable } from 'node:stream';
import { nothing, watch, writer } from './support.mjs';

const tell = (log, name) => (error) => log(`${name} ${error ? (error.code ?? error.message) : error}`);

export default {
  'test-stream-writev.js': [
    ...[true, false].flatMap((decodeStrings) =>
      [true, false].map(
        (uncork) =>
          function corked(log) {
            const stream = new Writable({
              decodeStrings,
              writev(chunks, done) {
                log(chunks.map(({ chunk, encoding }) => [chunk instanceof Buffer, encoding, String(chunk)]));
                done();
              },
            });
            watch(log, stream, 'finish');
            if (uncork) stream.cork();
            stream.write('asdf', 'ascii', tell(log, 'one'));
            stream.write('66', 'hex', tell(log, 'two'));
            stream.write(Buffer.from('x'), tell(log, 'three'));
            if (uncork) stream.uncork();
            stream.end('end', tell(log, 'ended'));
          },
      ),
    ),
    function errorForAll(log) {
      const stream = new Writable({ writev: (chunks, done) => done(new Error('bad')) });
      watch(log, stream, 'error');
      stream.cork();
      stream.write('a', tell(log, 'one'));
      stream.write('b', tell(log, 'two'));
      stream.uncork();
    },
  ],
  'test-stream3-cork-uncork.js': [
    function corkedTwice(log) {
      const stream = writer(log);
      stream.cork();
      stream.cork();
      stream.write('a');
      stream.write('b');
      log([stream.writableCorked, stream.writableLength]);
      stream.uncork();
      log(stream.writableCorked);
      process.nextTick(() => {
        log('tick');
        stream.uncork();
        stream.uncork();
        log(stream.writableCorked);
      });
    },
  ],
  'test-stream3-cork-end.js': [
    function endUncorks(log) {
      const stream = writer(log);
      watch(log, stream, 'finish');
      stream.cork();
      stream.write('a');
      stream.write('b');
      stream.end();
      log(stream.writableCorked);
    },
  ],
  'test-stream-writableState-uncorked-bufferedRequestCount.js': [
    function counted(log) {
      const stream = new Writable({
        writev(chunks, done) {
          log(`writev ${chunks.length}`);
          done();
        },
        write(chunk, encoding, done) {
          log(`write ${chunk}`);
          done();
        },
      });
      stream.cork();
      stream.write('first');
      log([stream._writableState.corked, stream._writableState.bufferedRequestCount]);
      stream.write('second');
      stream.uncork();
      log([stream._writableState.corked, stream._writableState.bufferedRequestCount]);
      stream.cork();
      stream.write('third');
      stream.uncork();
      log(stream._writableState.bufferedRequestCount);
    },
  ],
  'test-stream-write-final.js': [
    function finalAfterTheLastWrite(log) {
      const stream = new Writable({
        write(chunk, encoding, done) {
          log(`write ${chunk}`);
          setTimeout(done, 1);
        },
        final(done) {
          log('final');
          setTimeout(done, 1);
        },
      });
      watch(log, stream, 'prefinish', 'finish', 'close');
      stream.write('a');
      stream.end('b', () => log('ended'));
    },
  ],
  'test-stream2-writable.js': [
    function callbacksInOrder(log) {
      const stream = new Writable({
        highWaterMark: 2,
        write: (chunk, encoding, done) => setTimeout(done, chunk[0] % 3),
      });
      for (const one of ['a', 'b', 'c', 'd', 'e']) stream.write(one, () => log(one));
      stream.end(() => log('end'));
    },
    function endWithEverything(log) {
      const stream = writer(log);
      stream.end('dead', 'hex', tell(log, 'ended'));
      log(stream.writableEnded);
    },
    function notReadable(log) {
      const stream = writer(log);
      watch(log, stream, 'error');
      log(stream.pipe.length);
      try {
        stream.pipe(writer(log));
      } catch (error) {
        log(error.code);
      }
    },
    function highWaterMarkZero(log) {
      const stream = writer(log, { highWaterMark: 0 });
      watch(log, stream, 'drain');
      log(stream.write(''));
      log(stream.write('a'));
    },
    function finishInTheRightOrder(log) {
      const stream = writer(log, {
        final(done) {
          log('final');
          setImmediate(done);
        },
      });
      watch(log, stream, 'prefinish', 'finish');
      stream.write('a', tell(log, 'one'));
      stream.end(tell(log, 'ended'));
      process.nextTick(() => log('tick'));
    },
  ],
  'test-stream-writable-properties.js': [
    function properties(log) {
      const stream = new Writable({ write: nothing, highWaterMark: 5, objectMode: true });
      log([
        stream.writableHighWaterMark,
        stream.writableObjectMode,
        stream.writableLength,
        stream.writableCorked,
      ]);
      stream.cork();
      stream.write(1);
      log([stream.writableCorked, stream.writableLength]);
    },
  ],
  'test-streams-highwatermark.js': [
    ...[true, false, '5', {}, -5, NaN, 0.5, null, 1e20].map(
      (highWaterMark) =>
        function mark(log) {
          try {
            log(new Writable({ highWaterMark, write: nothing }).writableHighWaterMark);
          } catch (error) {
            log([error.name, error.code, error.message]);
          }
        },
    ),
  ],
  'test-stream-construct.js': [
    function constructFirst(log) {
      const stream = writer(log, {
        construct(done) {
          log('construct');
          setImmediate(done);
        },
      });
      watch(log, stream, 'finish', 'close', 'error');
      stream.write('a', tell(log, 'one'));
      stream.end('b');
      log('made');
    },
    function constructFails(log) {
      const stream = writer(log, { construct: (done) => done(new Error('bad')) });
      watch(log, stream, 'finish', 'close', 'error');
      stream.write('a', tell(log, 'one'));
      stream.end('b', tell(log, 'ended'));
    },
    function constructThrows(log) {
      const stream = writer(log, {
        construct() {
          throw new Error('thrown');
        },
      });
      watch(log, stream, 'close', 'error');
    },
    function constructTwice(log) {
      const stream = writer(log, {
        construct(done) {
          done();
          done();
        },
      });
      watch(log, stream, 'close', 'error');
    },
    function destroyWaits(log) {
      const stream = writer(log, {
        construct(done) {
          setImmediate(() => {
            log('constructed');
            done();
          });
        },
        destroy(error, done) {
          log('destroy');
          done(error);
        },
      });
      watch(log, stream, 'close', 'error');
      stream.destroy(new Error('gone'));
    },
  ],
};
