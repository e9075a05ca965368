import { createServer, get } from 'node:http';
import { connect } from 'node:net';
import { Agent } from 'agent-base';
import Koa from 'koa';
import Router from 'koa-router';
import { createTransport } from 'nodemailer';
import { SMTPServer } from 'smtp-server';
import { Server } from 'socket.io';
import { io } from 'socket.io-client';
const text = (address, options) =>
  new Promise((done, failed) => {
    get(address, options, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (part) => { body += part; }).on('end', () => done([response.statusCode, body]));
    }).on('error', failed);
  });
const listening = (server) => new Promise((done) => server.listen(0, '127.0.0.1', () => done(server.address().port)));
export default async () => {
  const said = {};
  // Mail, received by one package and sent by another.
  const mails = [];
  const smtp = new SMTPServer({
    disabledCommands: ['STARTTLS'],
    onAuth: ({ username, password }, session, callback) => (password === 'pass' ? callback(null, { user: username }) : callback(new Error('no'))),
    onData(stream, session, callback) {
      let mail = '';
      stream.on('data', (part) => { mail += part; }).on('end', () => {
        mails.push([session.user, session.envelope.mailFrom.address, session.envelope.rcptTo.map((to) => to.address), /Subject: (.*)/.exec(mail)[1].trim(), mail.includes('hello')]);
        callback(null, 'taken');
      });
    },
  });
  smtp.on('error', () => {});
  await new Promise((done) => smtp.listen(0, '127.0.0.1', done));
  const transport = createTransport({ host: '127.0.0.1', port: smtp.server.address().port, auth: { user: 'u', pass: 'pass' } });
  const sent = await transport.sendMail({ from: 'a@example.com', to: ['b@example.com', 'c@example.com'], subject: 'Hi', text: 'hello' });
  said.mail = [sent.accepted, sent.response, mails];
  transport.close();
  await new Promise((done) => smtp.close(done));
  // Routes.
  const router = new Router({ prefix: '/v1' });
  router.get('/users/:id', (context) => { context.body = { id: context.params.id, q: context.query.q }; });
  router.get('/fails', () => { throw Object.assign(new Error('teapot'), { status: 418, expose: true }); });
  const koa = new Koa();
  koa.silent = true;
  koa.use(router.routes()).use(router.allowedMethods());
  const http = createServer(koa.callback());
  const port = await listening(http);
  said.routes = [await text(`http://127.0.0.1:${port}/v1/users/7?q=x`), await text(`http://127.0.0.1:${port}/v1/fails`), (await text(`http://127.0.0.1:${port}/none`))[0]];
  // An agent of one's own.
  const asked = [];
  class Own extends Agent {
    async connect(request, options) {
      asked.push([options.host, options.secureEndpoint]);
      return connect({ host: '127.0.0.1', port });
    }
  }
  said.agent = [await text('http://elsewhere.invalid/v1/users/8', { agent: new Own() }), asked];
  http.close();
  http.closeAllConnections();
  // Events both ways, in rooms.
  const web = createServer();
  const sockets = new Server(web);
  sockets.of('/chat').on('connection', (socket) => {
    socket.join('room');
    socket.on('say', (words, answer) => {
      sockets.of('/chat').to('room').emit('said', words.toUpperCase(), Buffer.from([1, 2]));
      answer(words.length);
    });
  });
  const client = io(`http://127.0.0.1:${await listening(web)}/chat`, { transports: ['websocket'], reconnection: false });
  await new Promise((done, failed) => client.on('connect', done).on('connect_error', failed));
  const heard = new Promise((done) => client.on('said', (words, bytes) => done([words, [...new Uint8Array(bytes)]])));
  said.socket = [await client.timeout(5000).emitWithAck('say', 'hello'), await heard];
  client.close();
  await sockets.close();
  return said;
};
