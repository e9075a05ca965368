// `EventSource`: a server sends random streams, ends them, and sees who comes back with what.
import http from 'node:http';
import { Random } from './lib.mjs';

const PIECES = ['data: one', 'data:two', 'data', 'data: ', 'data:  spaced ', ': comment', ':', 'event: named', 'event: other', 'id: 1', 'id: two', 'id: a\0b', 'retry: 2', 'retry: x', 'retry', 'nothing: here', 'data: ü€😀', 'data: a:b:c', 'DATA: no', ' data: no'];

/** By the standard these reset what was said before; Node ignores them. */
const EMPTY = [...PIECES, 'event', 'id', 'id:', 'event: '];

function stream(random, pieces) {
  const end = () => random.one(['\n', '\n', '\r\n', '\r']);
  let text = random.chance(20) ? '\ufeff' : '';
  text += `retry: 1${end()}`;
  for (let at = 0; at < 14; at += 1) text += (random.chance(35) ? '' : random.one(pieces)) + end();
  if (random.chance(60)) text += '\n\n';
  if (random.chance(30)) text += 'data: cut off';
  return Buffer.from(text);
}

const ANSWERS = [
  { status: 204, headers: {} },
  { status: 404, headers: { 'content-type': 'text/event-stream' } },
  { status: 200, headers: { 'content-type': 'text/plain' } },
];

export default async (seed) => {
  const random = new Random(seed);
  const [log, asked] = [[], []];
  const [pieces, how] = random.chance(30) ? [EMPTY, ' with empty fields'] : [PIECES, ''];
  const streams = Array.from({ length: 3 }, () => stream(random, pieces));
  const cuts = streams.map((bytes) => random.below(bytes.length));
  const [last, closes] = [random.one(ANSWERS), random.chance(30)];
  const server = http.createServer((request, response) => {
    const { accept, 'last-event-id': id } = request.headers;
    asked.push([request.method, request.url, accept, id ?? null, request.headers['cache-control']]);
    const bytes = streams[asked.length - 1];
    response.writeHead(bytes ? 200 : last.status, bytes ? { 'content-type': 'text/event-stream; charset=utf-8' } : last.headers);
    if (!bytes) {
      response.end();
      return;
    }
    const cut = cuts[asked.length - 1];
    response.write(bytes.subarray(0, cut));
    setTimeout(() => response.end(bytes.subarray(cut)), 2);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${server.address().port}`;
  try {
    await new Promise((resolve) => {
      const source = new EventSource(`${origin}/events?seed`);
      log.push([source.readyState, source.url === `${origin}/events?seed`, source.withCredentials, EventSource.OPEN, source.CLOSED]);
      const told = (event) => log.push([event.type, event.constructor.name, event.data, event.lastEventId, event.origin === origin, source.readyState]);
      source.onopen = () => log.push(['open', source.readyState]);
      source.onmessage = told;
      for (const type of ['named', 'other']) source.addEventListener(type, told);
      source.onerror = () => {
        log.push(['error', source.readyState]);
        if (source.readyState === EventSource.CLOSED) resolve();
        else if (closes && asked.length === 2) {
          source.close();
          log.push(['closed', source.readyState]);
          setTimeout(resolve, 20);
        }
      };
    });
  } finally {
    server.closeAllConnections();
    server.close();
  }
  const refused = [];
  for (const url of ['nope', 'http://', '/relative']) {
    try {
      new EventSource(url).close();
      refused.push('taken');
    } catch (error) {
      refused.push(error.name);
    }
  }
  return [[`events${how}`, null, log], [`requests${how}`, null, asked], ['refused', null, refused]];
};
