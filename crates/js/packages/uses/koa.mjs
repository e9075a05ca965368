import Koa from 'koa';
import { once } from 'node:events';
export default async () => {
  const app = new Koa();
  app.use(async (context, next) => { await next(); context.set('x-time', '1'); });
  app.use(async (context) => { context.body = { path: context.path, query: context.query }; });
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const answer = await fetch(`http://127.0.0.1:${server.address().port}/a?b=1`);
  const said = [answer.status, answer.headers.get('x-time'), await answer.json()];
  server.close();
  return said;
};
