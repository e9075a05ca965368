// Cases of Node's tests of readable streams, as programs of ours: what they log is the outcome.
import { Readable } from 'node:stream';
import { nothing, reader, watch } from './support.mjs';

export default {
  'test-stream-readable-event.js': [
    function pushedBeforeTheListener(log) {
      const stream = reader({ highWaterMark: 3 });
      stream.push(Buffer.from('blerg'));
      setTimeout(() => watch(log, stream, 'readable'), 1);
    },
    function listenerWhileAReadIsOn(log) {
      const stream = reader({ highWaterMark: 3 });
      stream.read = (
        (read) =>
        (...given) => {
          log(`read ${given.join()}`);
          return read.apply(stream, given);
        }
      )(stream.read);
      stream.push('bl');
      setTimeout(() => {
        watch(log, stream, 'readable');
        stream.push('erg');
      }, 1);
    },
    function readingZeroFirst(log) {
      const stream = new Readable({
        highWaterMark: 30,
        read() {
          log('read');
          setTimeout(() => stream.push(null), 1);
        },
      });
      stream.push('blerg');
      stream.read(0);
      watch(log, stream, 'readable', 'end');
      setTimeout(() => log(String(stream.read())), 2);
    },
    function decodedAndFlowing(log) {
      const stream = new Readable({ encoding: 'utf8', read: nothing });
      watch(log, stream, 'readable');
      stream.push('\n');
      stream.push('');
      stream.push(null);
      stream.on('data', (chunk) => log(chunk));
    },
    function removedListenerFlowsAgain(log) {
      const stream = reader();
      const listener = () => log('readable');
      stream.on('readable', listener);
      stream.push('a');
      log(stream.readableFlowing);
      stream.removeListener('readable', listener);
      stream.on('data', (chunk) => log(String(chunk)));
      log(stream.readableFlowing);
      stream.resume();
      log(stream.readableFlowing);
      stream.push('b');
    },
  ],
  'test-stream-readable-emittedReadable.js': [
    function emittedAndNeeded(log) {
      const stream = reader();
      const state = () => log([stream._readableState.emittedReadable, stream._readableState.needReadable]);
      state();
      stream.on('readable', () => {
        state();
        log(String(stream.read()));
        state();
      });
      setImmediate(() => {
        stream.push('foo');
        setImmediate(() => {
          stream.push('bar');
          setImmediate(() => stream.push('quo'));
        });
      });
    },
    function notWhileFlowing(log) {
      const stream = reader();
      stream.on('data', () => log(stream._readableState.emittedReadable));
      stream.push('foo');
      stream.push('bar');
      stream.push(null);
    },
    function afterReadOfZero(log) {
      const stream = new Readable({ objectMode: true, read: nothing });
      stream.on('readable', () => log(`readable ${JSON.stringify(stream.read())}`));
      stream.push({ one: 1 });
      stream.read(0);
      setImmediate(() => stream.push(null));
    },
  ],
  'test-stream-readable-needReadable.js': [
    function asynchronousParts(log) {
      const stream = reader();
      stream.on('readable', () => log(`${stream.read()} ${stream._readableState.needReadable}`));
      setImmediate(() => {
        stream.push('foooo');
        setImmediate(() => {
          stream.push('bar');
          setImmediate(() => stream.push(null));
        });
      });
    },
    function slowParts(log) {
      const stream = new Readable({ read: nothing, highWaterMark: 3 });
      stream.on('readable', () => {
        for (let chunk; (chunk = stream.read(2)) !== null;) log(String(chunk));
        log(stream._readableState.needReadable);
      });
      stream.push('abcde');
      setImmediate(() => stream.push(null));
    },
  ],
  'test-stream-readable-reading-readingMore.js': [
    function readingByHand(log) {
      const stream = reader({ highWaterMark: 10 });
      const state = (what) => log([what, stream._readableState.reading, stream._readableState.readingMore]);
      stream.on('readable', () => {
        state('readable');
        for (let chunk; (chunk = stream.read()) !== null;) log(String(chunk));
        state('read');
      });
      stream.on('end', () => state('end'));
      stream.push('pushed');
      state('pushed');
      stream.read(6);
      stream.unshift('unshifted');
      state('unshifted');
      setImmediate(() => stream.push(null));
    },
    function flowingState(log) {
      const stream = reader();
      stream.on('data', () => log([stream._readableState.readingMore, stream.readableFlowing]));
      stream.on('end', () => log([stream._readableState.readingMore, stream.readableFlowing]));
      stream.push('pushed');
      stream.resume();
      stream.pause();
      log(stream.readableFlowing);
      stream.resume();
      log(stream.readableFlowing);
      setImmediate(() => stream.push(null));
    },
    function removingTheListener(log) {
      const stream = reader();
      const listener = () => {
        log(`readable ${stream._readableState.readingMore}`);
        stream.removeListener('readable', listener);
        stream.on('data', (chunk) => log(String(chunk)));
        stream.resume();
      };
      stream.on('readable', listener);
      watch(log, stream, 'end', 'pause', 'resume');
      stream.push('one');
      setImmediate(() => {
        stream.push('two');
        stream.push(null);
      });
    },
  ],
  'test-stream-readable-resumeScheduled.js': [
    function byPipe(log) {
      const stream = reader();
      log(stream._readableState.resumeScheduled);
      stream.on('data', () => log('data'));
      log(stream._readableState.resumeScheduled);
      stream.push('a');
      process.nextTick(() => log(stream._readableState.resumeScheduled));
    },
    function byHand(log) {
      const stream = reader();
      watch(log, stream, 'resume', 'pause');
      stream.resume();
      log(stream._readableState.resumeScheduled);
      stream.resume();
      stream.pause();
      log(stream._readableState.resumeScheduled);
      stream.resume();
      process.nextTick(() => log(stream._readableState.resumeScheduled));
    },
  ],
  'test-stream-readable-readable-then-resume.js': [
    function resumedWhileReadable(log) {
      const stream = reader();
      watch(log, stream, 'readable', 'data', 'end', 'resume', 'pause');
      stream.push('a');
      stream.removeAllListeners('readable');
      stream.resume();
      stream.push(null);
    },
  ],
  'test-stream-readable-pause-and-resume.js': [
    function pausedInData(log) {
      let at = 0;
      const stream = new Readable({
        highWaterMark: 2,
        read() {
          setImmediate(() => this.push(at < 5 ? String(at++) : null));
        },
      });
      watch(log, stream, 'pause', 'resume', 'end', 'close');
      stream.on('data', (chunk) => {
        log(String(chunk));
        stream.pause();
        setImmediate(() => stream.resume());
      });
    },
    function pauseIsKeptByData(log) {
      const stream = reader();
      stream.pause();
      stream.on('data', () => log('data'));
      stream.push('a');
      log([stream.isPaused(), stream.readableFlowing]);
      setImmediate(() => {
        log('later');
        stream.resume();
      });
    },
    function pausedStateWithReadable(log) {
      const stream = reader();
      stream.on('readable', () => log('readable'));
      stream.pause();
      log([stream.isPaused(), stream.readableFlowing]);
      stream.resume();
      log([stream.isPaused(), stream.readableFlowing]);
      stream.push('a');
    },
  ],
  'test-stream-ispaused.js': [
    function states(log) {
      const stream = reader();
      log(stream.isPaused());
      stream.on('data', nothing);
      log(stream.isPaused());
      stream.pause();
      log(stream.isPaused());
      stream.resume();
      log(stream.isPaused());
    },
  ],
  'test-stream-readable-destroy.js': [
    function plain(log) {
      const stream = reader();
      stream.resume();
      watch(log, stream, 'end', 'close', 'error');
      stream.destroy();
      log([stream.errored, stream.destroyed, stream.readable]);
    },
    function withAnError(log) {
      const stream = reader();
      stream.resume();
      watch(log, stream, 'end', 'close', 'error');
      stream.destroy(new Error('kaboom'));
      log([stream.errored?.message, stream.destroyed]);
    },
    function hookGivesTheError(log) {
      const stream = reader({
        destroy(error, done) {
          log(error.message);
          done(new Error('other'));
        },
      });
      watch(log, stream, 'close', 'error');
      stream.destroy(new Error('kaboom'));
    },
    function hookSwallowsTheError(log) {
      const stream = reader({ destroy: (error, done) => done() });
      watch(log, stream, 'close', 'error', 'end');
      stream.destroy(new Error('kaboom'));
      log(stream.destroyed);
    },
    function lateHook(log) {
      const stream = reader({ destroy: (error, done) => process.nextTick(done, new Error('late')) });
      watch(log, stream, 'close', 'error');
      stream.destroy();
      log(stream.closed);
      setImmediate(() => log([stream.closed, stream.errored.message]));
    },
    function pushInTheHook(log) {
      const stream = reader({
        destroy(error, done) {
          log(this.push(null));
          log(this.push('a'));
          done(error);
        },
      });
      stream.resume();
      watch(log, stream, 'end', 'data', 'close');
      stream.destroy();
    },
    function onlyTheFirstErrorCounts(log) {
      const stream = reader({ destroy: (error, done) => setImmediate(done, error) });
      watch(log, stream, 'error', 'close');
      stream.destroy(new Error('one'));
      stream.destroy(new Error('two'));
    },
    function callbackOfDestroy(log) {
      const stream = reader();
      stream.destroyed = true;
      log(stream.destroyed);
      watch(log, stream, 'close');
      stream.destroy();
      stream._destroy(new Error('given'), (error) => log(error.message));
    },
    function destroyedWhileReading(log) {
      const stream = new Readable({
        read() {
          log('read');
          process.nextTick(() => {
            log(this.push('a'));
            this.push(null);
          });
        },
      });
      watch(log, stream, 'data', 'end', 'error', 'close');
      process.nextTick(() => stream.destroy());
    },
    function unshiftAfterDestroy(log) {
      const stream = reader();
      watch(log, stream, 'data', 'error', 'close');
      stream.destroy();
      log(stream.unshift('a'));
      log(stream.read());
    },
    function pushAfterErrorOfRead(log) {
      const stream = new Readable({
        read() {
          throw new Error('in read');
        },
      });
      watch(log, stream, 'data', 'error', 'close');
      process.nextTick(() => log([stream.errored?.message, stream.readableAborted, stream.destroyed]));
    },
    function signalAborts(log) {
      const control = new AbortController();
      const stream = reader({ signal: control.signal });
      stream.on('error', (error) => log([error.name, error.code, error.message]));
      watch(log, stream, 'close');
      control.abort();
      log(stream.destroyed);
    },
    function signalWasAborted(log) {
      const stream = reader({ signal: AbortSignal.abort(new Error('why')) });
      stream.on('error', (error) => log([error.name, error.cause.message]));
      watch(log, stream, 'close');
    },
  ],
  'test-stream-readable-end-destroyed.js': [
    function endIsNotSaid(log) {
      const stream = reader();
      watch(log, stream, 'end', 'close');
      stream.resume();
      stream.push('asd');
      stream.on('data', () => stream.destroy());
      stream.push(null);
    },
  ],
  'test-stream-readable-ended.js': [
    function endedOnlyAfterReading(log) {
      const stream = reader();
      log(stream.readableEnded);
      stream.push('a');
      stream.push(null);
      stream.on('data', () => log(stream.readableEnded));
      stream.on('end', () => log(stream.readableEnded));
    },
    function readableUntilTheEnd(log) {
      const stream = reader();
      stream.push(null);
      log(stream.readable);
      stream.resume();
      stream.on('end', () => log([stream.readable, stream.readableEnded, stream.destroyed]));
      stream.on('close', () => log([stream.readable, stream.destroyed]));
    },
  ],
  'test-stream-readable-aborted.js': [
    function aborted(log) {
      const one = reader();
      log(one.readableAborted);
      one.destroy();
      log(one.readableAborted);
      const two = reader();
      two.push(null);
      two.destroy();
      log(two.readableAborted);
      const three = reader();
      three.push('a');
      three.push(null);
      three.on('end', () => {
        log(three.readableAborted);
        three.destroy();
        log(three.readableAborted);
      });
      three.resume();
    },
  ],
  'test-stream-readable-readable.js': [
    function readableProperty(log) {
      const one = reader();
      log(one.readable);
      one.destroy();
      log(one.readable);
      const two = reader();
      watch(log, two, 'error');
      two.push('a');
      two.destroy(new Error('gone'));
      log(two.readable);
    },
  ],
  'test-stream-readable-invalid-chunk.js': [
    ...[5, {}, [], true, Symbol('s'), 10n].map(
      (chunk) =>
        function invalid(log) {
          const pushed = reader();
          pushed.on('error', (error) => log([error.name, error.code, error.message]));
          log(pushed.push(chunk));
          const unshifted = reader();
          unshifted.on('error', (error) => log([error.name, error.code]));
          log(unshifted.unshift(chunk));
        },
    ),
  ],
};
