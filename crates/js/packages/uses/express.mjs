import express from 'express';
import { once } from 'node:events';
export default async () => {
  const app = express();
  app.use(express.json());
  app.get('/hello/:name', (request, response) => response.set('x-one', '1').send(`hello ${request.params.name} ${request.query.q}`));
  app.post('/sum', (request, response) => response.status(201).json({ sum: request.body.a + request.body.b }));
  app.get('/fail', () => { throw new Error('no'); });
  app.use((error, request, response, next) => response.status(500).json({ error: error.message, more: typeof next }));
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const at = `http://127.0.0.1:${server.address().port}`;
  const hello = await fetch(`${at}/hello/you?q=1`);
  const sum = await fetch(`${at}/sum`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"a":1,"b":2}' });
  const answer = [hello.status, hello.headers.get('x-one'), await hello.text(), sum.status, await sum.json(), await (await fetch(`${at}/fail`)).json(), (await fetch(`${at}/none`)).status];
  server.close();
  return answer;
};
