// Cases of Node's tests of readable streams, as programs of ours: what they log is the outcome.
import { Readable } from 'node:stream';
import { nothing, reader, watch } from './support.mjs';

export default {
  'test-stream-readable-hwm-0.js': [
    function pushedInPieces(log) {
      const stream = new Readable({
        highWaterMark: 0,
        read() {
          log('read');
          process.nextTick(() => {
            this.push('chunk');
            this.push(null);
          });
        },
      });
      watch(log, stream, 'readable', 'end');
    },
    function flowing(log) {
      let left = 3;
      const stream = new Readable({
        highWaterMark: 0,
        read() {
          log('read');
          process.nextTick(() => this.push(left-- ? 'x' : null));
        },
      });
      watch(log, stream, 'data', 'end');
    },
  ],
  'test-stream-readable-hwm-0-no-flow-data.js': [
    function dataAndReadable(log) {
      const stream = reader({ highWaterMark: 0 });
      stream.on('data', (chunk) => log(String(chunk)));
      stream.on('readable', () => log('readable'));
      log(stream.readableFlowing);
      stream.push('a');
      stream.read();
      stream.push('b');
      process.nextTick(() => {
        log(String(stream.read()));
        stream.push('c');
        stream.push(null);
      });
    },
  ],
  'test-stream-readable-setEncoding-existing-buffers.js': [
    function existing(log) {
      const stream = reader();
      stream.push(Buffer.from([0xe2, 0x98]));
      stream.push(Buffer.from([0x83, 0x61]));
      stream.setEncoding('utf8');
      log([stream.readableLength, stream.readableEncoding]);
      stream.on('data', (chunk) => log(chunk));
    },
    function halfLeftAtTheEnd(log) {
      const stream = reader({ encoding: 'utf8' });
      stream.on('data', (chunk) => log(chunk));
      stream.push(Buffer.from([0x61, 0xe2, 0x98]));
      stream.push(null);
    },
    function encodingOfPushedText(log) {
      const stream = reader({ encoding: 'hex' });
      stream.on('data', (chunk) => log(chunk));
      stream.push('YWI=', 'base64');
      stream.push('ff', 'hex');
      stream.push('é');
    },
    function noEncoding(log) {
      const stream = reader();
      stream.setEncoding(null);
      log(stream.readableEncoding);
      stream.on('data', (chunk) => log(chunk));
      stream.push('ab');
    },
    function unknownEncoding(log) {
      try {
        reader({ encoding: 'nonsense' });
      } catch (error) {
        log([error.code, error.message]);
      }
      try {
        reader().setEncoding('nonsense');
      } catch (error) {
        log([error.code, error.message]);
      }
    },
  ],
  'test-stream-readable-default-encoding.js': [
    function defaults(log) {
      const stream = reader({ defaultEncoding: 'hex' });
      stream.on('data', (chunk) => log(chunk));
      stream.push('666f');
      try {
        reader({ defaultEncoding: 'nonsense' });
      } catch (error) {
        log([error.name, error.code, error.message]);
      }
    },
  ],
  'test-stream-readable-unshift.js': [
    function inReadable(log) {
      const stream = reader();
      let first = true;
      stream.on('readable', () => {
        const chunk = stream.read();
        log(chunk === null ? 'null' : String(chunk));
        if (first && chunk) stream.unshift('again');
        first = false;
      });
      stream.push('one');
      setImmediate(() => stream.push(null));
    },
    function textWithEncoding(log) {
      const stream = reader({ encoding: 'utf8' });
      stream.push('world');
      stream.unshift(' ');
      stream.unshift(Buffer.from('hello'));
      log(stream.readableLength);
      log(stream.read());
    },
    function objects(log) {
      const stream = new Readable({ objectMode: true, read: nothing });
      stream.push(2);
      stream.unshift(1);
      stream.push(3);
      stream.on('data', (value) => log(value));
    },
    function afterTheEnd(log) {
      const stream = reader();
      stream.on('error', (error) => log([error.code, error.message]));
      watch(log, stream, 'end', 'close');
      stream.push(null);
      stream.resume();
      setImmediate(() => log(stream.unshift('a')));
    },
    function emptyChunk(log) {
      const stream = reader();
      stream.on('data', (chunk) => log(chunk.length));
      stream.unshift('');
      stream.unshift(Buffer.alloc(0));
      stream.push('ab');
      stream.push('');
      stream.push(null);
      watch(log, stream, 'end');
    },
  ],
  'test-stream-push-order.js': [
    function order(log) {
      const left = ['1', '10', '100'];
      const stream = new Readable({
        highWaterMark: 20,
        encoding: 'ascii',
        read() {
          const one = left.shift();
          process.nextTick(() => this.push(one ?? null));
          log(`read ${stream.readableLength}`);
        },
      });
      stream.read(0);
      setTimeout(() => {
        log(stream._readableState.buffer.join(','));
        log(stream.read());
      }, 1);
    },
  ],
  'test-stream-push-strings.js': [
    function fewer(log) {
      let at = 5;
      const stream = new Readable({
        encoding: 'utf8',
        read() {
          at -= 1;
          if (at === 0) return this.push(null);
          if (at === 1) return this.push('last');
          if (at === 2) {
            this.push('second');
            return process.nextTick(() => this._read(1));
          }
          if (at >= 3) return process.nextTick(() => this.push('first'));
        },
      });
      stream.on('readable', () => {
        for (let chunk; (chunk = stream.read()) !== null;) log(chunk);
        log('read all');
      });
      watch(log, stream, 'end');
    },
  ],
  'test-stream2-readable-empty-buffer-no-eof.js': [
    function emptyPushesDoNotEnd(log) {
      let at = 0;
      const stream = new Readable({
        read() {
          at += 1;
          log(`read ${at}`);
          if (at === 1) this.push(Buffer.alloc(0));
          else if (at === 2) setTimeout(() => this.push(Buffer.alloc(0)), 1);
          else if (at === 3) setTimeout(() => this.read(0), 1);
          else if (at === 4) this.push('x');
          else this.push(null);
        },
      });
      const flow = () => {
        for (let chunk; (chunk = stream.read()) !== null;) log(String(chunk));
      };
      stream.on('readable', flow);
      watch(log, stream, 'end');
      flow();
    },
  ],
  'test-stream2-objects.js': [
    ...[
      ['objects', [{ one: 1 }, { two: 2 }]],
      ['texts', ['', 'a', 'b']],
      ['falsy values', [0, false, '']],
    ].map(
      ([, values]) =>
        function each(log) {
          const stream = new Readable({ objectMode: true, read: nothing });
          for (const value of values) stream.push(value);
          stream.push(null);
          log(stream.readableLength);
          log(stream.read(1));
          log(stream.readableLength);
          stream.on('data', (value) => log(value));
          watch(log, stream, 'end');
        },
    ),
    function highWaterMark(log) {
      let at = 0;
      const stream = new Readable({
        objectMode: true,
        highWaterMark: 2,
        read() {
          at += 1;
          log(`read ${at}`);
          this.push(at > 4 ? null : { at });
        },
      });
      stream.on('readable', () => {
        for (let value; (value = stream.read()) !== null;) log(value);
      });
    },
  ],
  'test-stream2-set-encoding.js': [
    ...['utf8', 'hex', 'base64', 'latin1', 'utf16le'].map(
      (encoding) =>
        function parts(log) {
          const stream = reader({ encoding });
          const text = Buffer.from('ab\u20acé\u{1f600}z');
          for (const byte of text) stream.push(Buffer.from([byte]));
          stream.push(null);
          log(stream.readableLength);
          log(stream.read(3));
          log(stream.read(2));
          log(stream.read());
          log(stream.read());
        },
    ),
  ],
  'test-stream3-pause-then-read.js': [
    function readPauseFlow(log) {
      let left = 30;
      const stream = new Readable({
        highWaterMark: 10,
        read(size) {
          const many = Math.min(size, left);
          left -= many;
          setImmediate(() => this.push(many ? Buffer.alloc(many, 'x') : null));
        },
      });
      const reading = () => {
        const chunk = stream.read(7);
        if (!chunk) return stream.once('readable', reading);
        log(chunk.length);
        stream.on('data', (more) => {
          log(more.length);
          if (left < 15) stream.pause();
          setImmediate(() => stream.resume());
        });
      };
      reading();
      watch(log, stream, 'end', 'pause', 'resume');
    },
  ],
  'test-stream-readable-didRead.js': [
    function didRead(log) {
      const stream = reader();
      log(stream.readableDidRead);
      stream.read();
      log(stream.readableDidRead);
      stream.push('a');
      stream.on('data', nothing);
      log(stream.readableDidRead);
      setImmediate(() => log(stream.readableDidRead));
      const other = reader();
      other.destroy();
      log(other.readableDidRead);
      other.on('data', nothing);
      setImmediate(() => log(other.readableDidRead));
    },
  ],
  'test-stream-readable-no-unneeded-readable.js': [
    function pushedAfterReading(log) {
      const stream = reader();
      let many = 0;
      stream.on('readable', () => {
        log(`readable ${++many}`);
        const chunk = stream.read();
        log(chunk === null ? null : String(chunk));
      });
      stream.on('end', () => log('end'));
      stream.push('x');
      setImmediate(() => {
        stream.push('y');
        stream.push(null);
      });
    },
  ],
  'test-stream-readable-flow-recursion.js': [
    function readInFlow(log) {
      const stream = new Readable({
        highWaterMark: 8,
        read(size) {
          this.push(left > 0 ? Buffer.alloc(Math.min(size, left)) : null);
          left -= size;
        },
      });
      let left = 40;
      let depth = 0;
      stream.on('data', (chunk) => {
        log(`${'>'.repeat(++depth)} ${chunk.length}`);
        if (depth < 3) {
          const more = stream.read(2);
          log(`read ${more?.length}`);
        }
        depth -= 1;
      });
      watch(log, stream, 'end');
    },
  ],
};
