// What a client of HTTP/2 sees; run here and on Node, against the same servers.
import http2 from 'node:http2';
import net from 'node:net';

const told = (run) => { try { return run(); } catch (error) { return [error.constructor.name, error.code, error.message]; } };
// Later versions of Node throw on the stream what earlier ones throw at once.
const refused = async (run) => { try { return (await once(run(), 'error'))[0].code; } catch (error) { return error.code; } };
const failure = (error) => [error.name, error.code ?? null, error.message];
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const once = (emitter, name) => new Promise((resolve) => emitter.once(name, (...given) => resolve(given)));
const plain = (headers) => Object.fromEntries(Object.entries(headers).filter(([name]) => name !== 'date').sort());

/** The order of events of a stream, with what it read. */
function watch(stream, before = () => {}) {
  const events = [];
  let text = '';
  stream.setEncoding('utf8');
  stream.on('ready', () => events.push('ready'));
  stream.on('response', (headers, flags, raw) => events.push(['response', plain(headers), flags, Array.isArray(raw)]));
  stream.on('headers', (headers) => events.push(['headers', plain(headers)]));
  stream.on('trailers', (headers, flags) => events.push(['trailers', plain(headers), flags]));
  stream.on('data', (part) => { text += part; });
  stream.on('aborted', () => events.push('aborted'));
  stream.on('error', (error) => events.push(['error', ...failure(error)]));
  before(stream, events);
  return new Promise((resolve) => {
    stream.on('end', () => events.push('end'));
    stream.on('close', () => resolve([...events, text.length > 400 ? text.length : text, stream.rstCode, stream.closed, stream.destroyed]));
  });
}

const body = async (stream) => { let text = ''; for await (const part of stream.setEncoding('utf8')) text += part; return text; };

async function opened(address, options) {
  const session = http2.connect(address, options);
  await once(session, 'connect');
  return session;
}

async function requests(said, session) {
  for (const path of ['/only', '/trailers', '/information', '/none']) said.push([path, await watch(session.request({ ':path': path }))]);
  said.push(await watch(session.request({ ':method': 'HEAD', ':path': '/x' })));
  const given = { ':method': 'POST', ':path': '/echo?a=1', 'X-Upper': 'Value', 'x-many': ['1', '2'], cookie: ['a=1', 'b=2'], [http2.sensitiveHeaders]: ['x-upper'] };
  const post = session.request(given);
  const [sent] = [post.sentHeaders[':scheme']];
  post.write('hello ');
  post.end('world');
  const [headers] = await once(post, 'response');
  said.push(sent, plain(headers), JSON.parse(await body(post)));
  const trailing = session.request({ ':method': 'POST', ':path': '/echo' }, { waitForTrailers: true });
  said.push(told(() => trailing.sendTrailers({ a: 'b' })));
  trailing.on('wantTrailers', () => trailing.sendTrailers({ 'x-sum': '42' }));
  trailing.end('body');
  said.push(JSON.parse(await body(trailing)).trailers, { ...trailing.sentTrailers });
  said.push((await body(session.request({ ':path': '/large' }))).length);
  const upload = session.request({ ':method': 'POST', ':path': '/count' });
  let waited = 0;
  for (let at = 0; at < 64; at += 1) {
    if (!upload.write(Buffer.alloc(32 << 10))) { waited += 1; await once(upload, 'drain'); }
  }
  upload.end();
  said.push(waited > 0, await body(upload));
  const slow = await Promise.all(Array.from({ length: 9 }, () => body(session.request({ ':path': '/slow' }))));
  said.push(slow);
}

async function endings(said, session, last) {
  for (const code of [0, 2, 8, 11]) said.push([code, await watch(session.request({ ':path': '/reset', 'x-code': `${code}` }))]);
  said.push(await watch(session.request({ ':path': '/refuse' })));
  for (const code of [undefined, 8, 5]) {
    said.push(await watch(session.request({ ':path': '/wait' }, { endStream: false }), (stream) => stream.once('data', () => stream.close(code))));
    said.push(await last());
  }
  said.push(await watch(session.request({ ':path': '/wait' }), (stream) => stream.once('data', () => stream.destroy(new Error('mine')))));
  said.push(await last());
  const controller = new AbortController();
  said.push(await watch(session.request({ ':path': '/wait' }, { signal: controller.signal }), (stream) => stream.once('data', () => controller.abort())));
  said.push(await last());
  const endless = session.request({ ':path': '/endless' });
  await once(endless, 'response');
  // A writer that is stopped has no event: what it wrote is compared after a while, here and below.
  await pause(100);
  const [, written] = await last();
  let read = 0;
  await new Promise((resolve) => endless.on('data', (part) => { read += part.length; if (read > 1 << 20) { endless.pause(); resolve(); } }));
  const [, more] = await last();
  await pause(100);
  const [, settled] = await last();
  said.push(written > 0 && written < 1 << 19, settled > 1 << 20 && settled - more < 1 << 19);
  endless.close(8);
  await once(endless, 'close');
  said.push(await watch(session.request({ ':path': '/early', ':method': 'POST' }), (stream) => { stream.write('x'); stream.on('end', () => stream.end()); }));
}

function mistakes(said, session) {
  for (const headers of [{ connection: 'close' }, { te: 'gzip' }, { ':other': 'x' }, { 'content-type': ['a', 'b'] }, { ':method': 'CONNECT' }, { ':method': 'CONNECT', ':authority': 'a', ':path': '/' }]) said.push(told(() => session.request(headers)));
  said.push(told(() => session.request('x')).slice(0, 2), told(() => session.request({}, { endStream: 1 })).slice(0, 2));
  said.push(told(() => session.ping(Buffer.alloc(3), () => {})), told(() => session.ping('12345678', () => {})).slice(0, 2));
  said.push(told(() => session.socket.write('x')), told(() => session.socket.pause()), session.socket instanceof net.Socket, typeof session.socket.remotePort);
  said.push(told(() => session.settings({ initialWindowSize: -1 })), told(() => session.settings({ initialWindowSize: 2 ** 31 })), told(() => http2.connect('ftp://localhost')));
}

export default async function run({ plain: port, secure, other, ca }) {
  const said = [];
  const address = `http://127.0.0.1:${port}`;
  const session = http2.connect(address);
  const first = session.request({ ':path': '/echo' });
  said.push(session.connecting, first.pending, first.id ?? null, session.encrypted ?? null, session.type, told(() => session.state));
  const settings = once(session, 'remoteSettings');
  const local = once(session, 'localSettings');
  await once(session, 'connect');
  said.push(session.connecting, session.alpnProtocol, session.encrypted, session.pendingSettingsAck);
  said.push((await watch(first)).slice(1), first.id);
  const [{ maxConcurrentStreams, initialWindowSize, maxFrameSize }] = await settings;
  said.push(maxConcurrentStreams, initialWindowSize, maxFrameSize, session.remoteSettings.maxConcurrentStreams);
  said.push((await local)[0].initialWindowSize, session.pendingSettingsAck);
  await requests(said, session);
  const last = async () => JSON.parse(await body(session.request({ ':path': '/last' })));
  await endings(said, session, last);
  mistakes(said, session);
  const pinged = await new Promise((resolve) => { said.push(session.ping(Buffer.from('12345678'), (...given) => resolve(given))); });
  said.push(pinged[0], typeof pinged[1], pinged[2].toString());
  said.push(await new Promise((resolve) => session.ping((error, time, payload) => resolve([error, payload.length]))));
  said.push(await new Promise((resolve) => session.settings({ initialWindowSize: 100000 }, (error, now) => resolve([error, now.initialWindowSize]))));
  said.push((await body(session.request({ ':path': '/large' }))).length);
  session.setLocalWindowSize(1 << 20);
  said.push(session.state.effectiveLocalWindowSize, (await body(session.request({ ':path': '/large' }))).length);
  const begun = session.request({ ':path': '/slow' });
  await pause(15);
  const closed = new Promise((resolve) => session.close(resolve));
  said.push(session.closed, session.destroyed, await refused(() => session.request({})), await body(begun));
  await closed;
  said.push(session.destroyed, await refused(() => session.request({})), told(() => session.ping(() => {})), session.state);

  for (const code of [0, 11]) {
    const gone = await opened(address);
    const events = [];
    for (const name of ['goaway', 'error', 'close']) gone.once(name, (...given) => events.push([name, ...given.map((each) => (each instanceof Error ? failure(each) : Buffer.isBuffer(each) ? each.toString() : name === 'goaway' ? each : null))]));
    const stream = watch(gone.request({ ':path': '/goaway', 'x-code': `${code}` }));
    await once(gone, 'close');
    said.push([code, await stream, events, gone.closed, gone.destroyed]);
  }

  const destroyed = await opened(address);
  const held = destroyed.request({ ':path': '/wait' });
  const waiting = watch(held);
  const errors = [once(destroyed, 'error'), once(destroyed, 'close')];
  held.once('data', () => setImmediate(() => destroyed.destroy(new Error('over'), 7)));
  said.push(failure((await errors[0])[0]), await waiting);
  await errors[1];
  const observer = await opened(address);
  said.push(JSON.parse(await body(observer.request({ ':path': '/last' }))));
  await body(observer.request({ ':path': '/clear' }));
  const again = await opened(address);
  observer.goaway(3, 0, Buffer.from('data'));
  said.push(JSON.parse(await body(again.request({ ':path': '/last' }))));
  again.destroy();
  observer.destroy();

  const lost = await opened(address);
  said.push(await watch(lost.request({ ':path': '/cut' })));

  const nobody = http2.connect('http://127.0.0.1:1');
  const stream = nobody.request({ ':path': '/' });
  const [one, two] = [once(nobody, 'error'), once(stream, 'error')];
  said.push(failure((await one)[0]), failure((await two)[0]), (await two)[0].cause?.code, nobody.destroyed);

  const wrong = http2.connect(`http://127.0.0.1:${other}`);
  said.push(failure((await once(wrong, 'error'))[0]));

  const tls = await opened(`https://localhost:${secure}`, { ca });
  said.push(tls.alpnProtocol, tls.encrypted, tls.socket.authorized, JSON.parse(await body(tls.request({ ':path': '/echo' }))));
  said.push((await body(tls.request({ ':path': '/large' }))).length);
  const idle = once(tls, 'timeout');
  tls.setTimeout(20);
  said.push((await idle).length);
  tls.close();
  const untrusted = http2.connect(`https://localhost:${secure}`);
  said.push((await once(untrusted, 'error'))[0].code);
  const own = http2.connect(address, { createConnection: () => net.connect(port, '127.0.0.1') });
  said.push(JSON.parse(await body(own.request({ ':path': '/echo' }))).authority);
  own.destroy();
  said.push(http2.getPackedSettings({ enablePush: false, initialWindowSize: 5 }).toString('hex'), http2.getUnpackedSettings(Buffer.from('000400000005', 'hex')));
  return said;
}
