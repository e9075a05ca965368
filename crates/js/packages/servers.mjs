// The servers that programs talk to, on the loopback. They end with standard input.
import { createServer } from 'node:http';
import { createServer as createTls } from 'node:https';
import net from 'node:net';
import grpc from '@grpc/grpc-js';
import { gzipSync } from 'node:zlib';
import { WebSocketServer } from 'ws';
import { Server as SocketServer } from 'socket.io';
import { readFileSync } from 'node:fs';

const chunks = (response, parts, after = '') => {
  const next = () => {
    const part = parts.shift();
    if (part === undefined) response.end(after);
    else {
      response.write(part);
      setTimeout(next, 2);
    }
  };
  next();
};
const event = (data) => `data: ${JSON.stringify(data)}\n\n`;
const json = (response, value, status = 200) => {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
};
const completion = { id: 'c1', object: 'chat.completion', created: 1, model: 'm', choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'hello there' } }], usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 } };
const delta = (content, finish = null) => ({ id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta: { content }, finish_reason: finish }] });

async function handle(request, response) {
  const url = new URL(request.url, 'http://localhost');
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts).toString();
  const { pathname } = url;
  if (pathname === '/json') json(response, { method: request.method, query: Object.fromEntries(url.searchParams), body, type: request.headers['content-type'] ?? null, accept: request.headers.accept ?? null, auth: request.headers.authorization ?? null });
  else if (pathname === '/form') json(response, { type: (request.headers['content-type'] ?? '').split(';')[0], length: body.length > 0, file: body.includes('file content'), field: body.includes('field value') });
  else if (pathname === '/redirect') response.writeHead(302, { location: '/json?redirected=1' }).end();
  else if (pathname === '/gzip') response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end(gzipSync('{"zipped":true}'));
  else if (pathname === '/stream') chunks(response, ['one ', 'two ', 'three']);
  else if (pathname === '/bytes') response.end(Buffer.alloc(Number(url.searchParams.get('n')), 7));
  else if (pathname === '/slow') setTimeout(() => response.end('slow'), 5000).unref();
  else if (pathname === '/status') json(response, { error: { message: 'not here', type: 'invalid_request_error', code: 'none' } }, Number(url.searchParams.get('code') ?? 404));
  else if (pathname === '/events') {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    chunks(response, ['id: 1\nevent: greet\ndata: hello\n\n', 'data: second\n\n']);
  } else if (pathname.endsWith('/chat/completions')) {
    if (JSON.parse(body).stream) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      chunks(response, [event(delta('hel')), event(delta('lo')), event(delta('', 'stop')), 'data: [DONE]\n\n']);
    } else json(response, completion);
  } else if (pathname.endsWith('/v1/messages')) {
    const message = { id: 'm1', type: 'message', role: 'assistant', model: 'm', content: [{ type: 'text', text: 'hello there' }], stop_reason: 'end_turn', stop_sequence: null, usage: { input_tokens: 1, output_tokens: 2 } };
    if (JSON.parse(body).stream) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const send = (type, data) => `event: ${type}\n${event({ type, ...data })}`;
      chunks(response, [
        send('message_start', { message: { ...message, content: [] } }),
        send('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
        send('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'hel' } }),
        send('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'lo' } }),
        send('content_block_stop', { index: 0 }),
        send('message_delta', { delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 2 } }),
        send('message_stop', {}),
      ]);
    } else json(response, message);
  } else if (pathname.includes(':generateContent')) json(response, { candidates: [{ content: { role: 'model', parts: [{ text: 'hello there' }] }, finishReason: 'STOP' }], usageMetadata: { promptTokenCount: 1 } });
  else if (pathname.includes(':streamGenerateContent')) {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    chunks(response, ['hel', 'lo'].map((text) => event({ candidates: [{ content: { role: 'model', parts: [{ text }] } }] })));
  } else if (pathname === '/v1/customers') json(response, { id: 'cus_1', object: 'customer', email: new URLSearchParams(body).get('email') });
  else if (/^\/bot[^/]+\//.test(pathname)) {
    const method = pathname.split('/').pop();
    json(response, { ok: true, result: method === 'getMe' ? { id: 1, is_bot: true, first_name: 'bot', username: 'a_bot' } : { message_id: 7, date: 1, chat: { id: 5, type: 'private' }, text: body.includes('hi') ? 'hi' : '' } });
  } else if (pathname.startsWith('/slack/')) json(response, { ok: true, channel: 'C1', ts: '1.2' });
  else if (pathname.startsWith('/repos/')) json(response, { full_name: 'a/b', stargazers_count: 3 });
  else if (pathname.startsWith('/discord/')) json(response, { id: '1', content: 'hi' });
  else json(response, { path: pathname }, 404);
}

const listen = (server) => new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));
const http = createServer(handle);
const sockets = new WebSocketServer({ noServer: true });
sockets.on('connection', (socket) => socket.on('message', (data, binary) => socket.send(binary ? data : `echo ${data}`)));
new SocketServer(http, { path: '/socket.io/' }).on('connection', (socket) => {
  socket.on('greet', (name, answer) => answer(`hello ${name}`));
});
http.on('upgrade', (request, socket, head) => {
  if (request.url.startsWith('/ws')) sockets.handleUpgrade(request, socket, head, (made) => sockets.emit('connection', made));
});
const certificate = { key: readFileSync(new URL('key.pem', import.meta.url)), cert: readFileSync(new URL('cert.pem', import.meta.url)) };
const https = createTls(certificate, handle);

/** A server of a protocol with lines. */
const lines = (greeting, answer) =>
  net.createServer((socket) => {
    let rest = '';
    const state = {};
    socket.on('error', () => {});
    if (greeting) socket.write(greeting);
    socket.on('data', (bytes) => {
      rest += bytes.toString('latin1');
      for (let at = rest.indexOf('\r\n'); at >= 0; at = rest.indexOf('\r\n')) {
        const line = rest.slice(0, at);
        rest = rest.slice(at + 2);
        const said = answer(line, state, socket);
        if (said) socket.write(said);
      }
    });
  });

const smtp = lines('220 local ESMTP\r\n', (line, state, socket) => {
  if (state.data) {
    if (line !== '.') return '';
    state.data = false;
    return '250 queued as 1\r\n';
  }
  if (/^EHLO/i.test(line)) return '250-local\r\n250-8BITMIME\r\n250 SIZE 100000\r\n';
  if (/^DATA/i.test(line)) {
    state.data = true;
    return '354 go on\r\n';
  }
  if (/^QUIT/i.test(line)) {
    socket.end('221 bye\r\n');
    return '';
  }
  return '250 ok\r\n';
});

const store = new Map();
const redis = lines('', (line, state) => {
  state.parts ??= [];
  if (line.startsWith('*')) {
    state.left = Number(line.slice(1));
    state.parts = [];
    return '';
  }
  if (line.startsWith('$')) return '';
  state.parts.push(line);
  if (state.parts.length < state.left) return '';
  const [command, key, value] = state.parts;
  switch (command.toUpperCase()) {
    case 'PING':
      return '+PONG\r\n';
    case 'SET':
      store.set(key, value);
      return '+OK\r\n';
    case 'GET':
      return store.has(key) ? `$${store.get(key).length}\r\n${store.get(key)}\r\n` : '$-1\r\n';
    case 'INCR':
      store.set(key, `${Number(store.get(key) ?? 0) + 1}`);
      return `:${store.get(key)}\r\n`;
    case 'DEL':
      return `:${store.delete(key) ? 1 : 0}\r\n`;
    case 'INFO':
      return '$23\r\nredis_version:7.0.0\r\nx:1\r\n\r\n'.replace('$23', `$${'redis_version:7.0.0\r\nx:1\r\n'.length}`);
    case 'HELLO':
      return '*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:2\r\n';
    default:
      return '+OK\r\n';
  }
});

const nats = lines('INFO {"server_id":"s","version":"2.10.0","proto":1,"max_payload":1048576,"headers":true}\r\n', (line, state) => {
  if (state.payload) {
    const [subject] = state.payload;
    state.payload = undefined;
    return state.sid ? `MSG ${subject} ${state.sid} ${line.length}\r\n${line}\r\n` : '';
  }
  if (line === 'PING') return 'PONG\r\n';
  if (line.startsWith('SUB ')) [, , state.sid] = line.split(' ');
  if (line.startsWith('PUB ')) state.payload = line.split(' ').slice(1);
  return '';
});

const imap = lines('* OK [CAPABILITY IMAP4rev1] ready\r\n', (line, state, socket) => {
  const [tag, ...words] = line.split(' ');
  switch (words[0]?.toUpperCase()) {
    case 'CAPABILITY':
      return `* CAPABILITY IMAP4rev1\r\n${tag} OK done\r\n`;
    case 'LOGIN':
      return `${tag} OK [CAPABILITY IMAP4rev1] in\r\n`;
    case 'NAMESPACE':
      return `* NAMESPACE (("" "/")) NIL NIL\r\n${tag} OK done\r\n`;
    case 'LIST':
    case 'LSUB':
      return `* LIST (\\HasNoChildren) "/" INBOX\r\n${tag} OK done\r\n`;
    case 'SELECT':
      return `* FLAGS (\\Seen)\r\n* 3 EXISTS\r\n* 0 RECENT\r\n* OK [UIDVALIDITY 1] ok\r\n* OK [UIDNEXT 4] ok\r\n${tag} OK [READ-WRITE] done\r\n`;
    case 'LOGOUT':
      socket.end(`* BYE\r\n${tag} OK done\r\n`);
      return '';
    default:
      return `${tag} OK done\r\n`;
  }
});

const { Aedes } = await import('aedes');
const broker = Aedes.createBroker ? await Aedes.createBroker() : new Aedes();
const mqtt = net.createServer(broker.handle);

const text = { serialize: (value) => Buffer.from(value), deserialize: (bytes) => bytes.toString() };
const method = (path, responseStream, requestStream = false) => ({ path, requestStream, responseStream, requestSerialize: text.serialize, requestDeserialize: text.deserialize, responseSerialize: text.serialize, responseDeserialize: text.deserialize });
const calls = new grpc.Server();
calls.addService(
  { say: method('/t.T/Say', false), count: method('/t.T/Count', true), sum: method('/t.T/Sum', false, true), talk: method('/t.T/Talk', true, true) },
  {
    say(call, callback) {
      const trailers = new grpc.Metadata();
      trailers.set('x-trailer', 'yes');
      if (call.request === 'fail') callback({ code: grpc.status.INVALID_ARGUMENT, details: 'not that', metadata: trailers });
      else if (call.request !== 'never') callback(null, `${call.metadata.get('x-from')[0] ?? 'nobody'}: ${call.request}`, trailers);
    },
    count(call) {
      const many = Number(call.request);
      for (let at = 0; at < many; at += 1) call.write(many > 100 ? 'x'.repeat(1024) : `${at}`);
      call.end();
    },
    sum(call, callback) {
      let sum = 0;
      call.on('data', (part) => { sum += Number(part); });
      call.on('end', () => callback(null, `${sum}`));
    },
    talk(call) {
      call.on('data', (part) => call.write(part.toUpperCase()));
      call.on('end', () => call.end());
    },
  },
);
const rpc = (credentials) => new Promise((resolve, reject) => calls.bindAsync('127.0.0.1:0', credentials, (error, port) => (error ? reject(error) : resolve(port))));

const addresses = {
  http: `http://127.0.0.1:${await listen(http)}`,
  https: `https://localhost:${await listen(https)}`,
  ca: certificate.cert.toString(),
  smtp: await listen(smtp),
  redis: await listen(redis),
  nats: await listen(nats),
  imap: await listen(imap),
  mqtt: await listen(mqtt),
  grpc: await rpc(grpc.ServerCredentials.createInsecure()),
  grpcs: await rpc(grpc.ServerCredentials.createSsl(null, [{ private_key: certificate.key, cert_chain: certificate.cert }])),
};
console.log(JSON.stringify(addresses));
process.stdin.on('end', () => process.exit(0)).resume();
