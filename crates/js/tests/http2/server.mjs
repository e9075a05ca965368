// Servers of HTTP/2 for the program, on the loopback. They end with standard input.
import http2 from 'node:http2';
import net from 'node:net';
import { readFileSync } from 'node:fs';

const packages = new URL('../../packages/', import.meta.url);
const [key, cert] = ['key.pem', 'cert.pem'].map((name) => readFileSync(new URL(name, packages)));
let last = null;

const paths = {
  '/echo': (stream, headers) => {
    const { ':method': method, ':path': path, ':scheme': scheme, ':authority': authority } = headers;
    const plain = Object.fromEntries(Object.entries(headers).filter(([name]) => name[0] !== ':'));
    const parts = [];
    stream.on('data', (part) => parts.push(part));
    let trailers = null;
    stream.on('trailers', (given) => { trailers = { ...given }; });
    stream.on('end', () => {
      stream.respond({ ':status': 201, 'content-type': 'application/json', 'x-two': ['a', 'b'], 'set-cookie': ['c=1', 'd=2'] });
      stream.end(JSON.stringify({ method, path, scheme, authority: authority.replace(/\d+$/, 'PORT'), plain, body: Buffer.concat(parts).toString(), trailers }));
    });
  },
  '/trailers': (stream) => {
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-last': 'yes', 'grpc-status': '0' }));
    stream.write('one');
    stream.end('two');
  },
  '/only': (stream) => stream.respond({ ':status': 204, 'x-only': 'headers' }, { endStream: true }),
  '/large': (stream) => {
    stream.respond({ ':status': 200 });
    stream.end(Buffer.alloc(2 << 20, 'abcdefgh'));
  },
  '/count': (stream) => {
    let bytes = 0;
    stream.on('data', (part) => { bytes += part.length; });
    stream.on('end', () => { stream.respond({ ':status': 200 }); stream.end(`${bytes}`); });
  },
  '/reset': (stream, headers) => { stream.respond({ ':status': 200 }); stream.write('part'); setTimeout(() => stream.close(Number(headers['x-code'])), 20); },
  '/refuse': (stream) => stream.close(http2.constants.NGHTTP2_REFUSED_STREAM),
  '/wait': (stream) => {
    last = null;
    stream.respond({ ':status': 200 });
    stream.on('aborted', () => { last = ['aborted', stream.rstCode]; });
    stream.write('begun');
  },
  '/clear': (stream) => {
    last = null;
    stream.respond({ ':status': 204 }, { endStream: true });
  },
  '/last': (stream) => {
    if (last === null) { setTimeout(() => paths['/last'](stream), 2); return; }
    stream.respond({ ':status': 200 });
    stream.end(JSON.stringify(last));
  },
  '/information': (stream) => { stream.additionalHeaders({ ':status': 103, link: '</a>' }); stream.respond({ ':status': 200 }); stream.end('told'); },
  '/goaway': (stream, headers) => {
    stream.respond({ ':status': 200 });
    stream.write('x');
    const { session } = stream;
    // Long enough for the client to receive the head, then the frame, before what follows: neither is acknowledged.
    setTimeout(() => session.goaway(Number(headers['x-code']), stream.id, Buffer.from('why')), 100);
    setTimeout(() => { if (!stream.destroyed) stream.end('y'); }, 200);
  },
  '/cut': (stream) => { stream.respond({ ':status': 200 }); stream.write('x'); setTimeout(() => stream.session.socket && stream.session.destroy(), 20); },
  // Later than the client, which closes its session 15 ms after the request.
  '/slow': (stream) => setTimeout(() => { if (stream.destroyed) return; stream.respond({ ':status': 200 }); stream.end('late'); }, 40),
  '/endless': (stream) => {
    let written = 0;
    last = null;
    stream.respond({ ':status': 200 });
    const more = () => stream.write(Buffer.alloc(16 << 10), (error) => { if (!error && !stream.destroyed) { written += 16 << 10; last = ['written', written]; more(); } });
    more();
  },
  '/early': (stream) => { stream.respond({ ':status': 413 }); stream.end('too much'); },
};

function answer(stream, headers) {
  stream.on('error', () => {});
  const path = headers[':path'].split('?')[0];
  if (headers[':method'] === 'HEAD') { stream.respond({ ':status': 200, 'content-length': '7' }, { endStream: true }); return; }
  (paths[path] ?? ((other) => other.respond({ ':status': 404 }, { endStream: true })))(stream, headers);
}

const listen = (server) => new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));
const settings = { maxConcurrentStreams: 4, initialWindowSize: 20000 };
const plain = http2.createServer({ settings });
const secure = http2.createSecureServer({ key, cert });
for (const server of [plain, secure]) {
  server.on('stream', answer);
  server.on('sessionError', () => {});
  server.on('session', (session) => session.on('goaway', (code, id, data) => { last = ['goaway', code, data?.toString() ?? null]; }));
}
const other = net.createServer((socket) => { socket.on('error', () => {}); socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'); });
console.log(JSON.stringify({ plain: await listen(plain), secure: await listen(secure), other: await listen(other), ca: cert.toString() }));
process.stdin.on('end', () => process.exit(0)).resume();
