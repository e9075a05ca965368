import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { once } from 'node:events';
export default async () => {
  const app = new Hono();
  app.get('/hello/:name', (context) => context.json({ hello: context.req.param('name') }));
  app.post('/echo', async (context) => context.text(await context.req.text(), 201));
  const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
  if (!server.listening) await once(server, 'listening');
  const at = `http://127.0.0.1:${server.address().port}`;
  const hello = await fetch(`${at}/hello/you`);
  const echo = await fetch(`${at}/echo`, { method: 'POST', body: 'text' });
  const answer = [await hello.json(), echo.status, await echo.text()];
  server.close();
  return answer;
};
