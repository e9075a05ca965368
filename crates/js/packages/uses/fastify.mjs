import Fastify from 'fastify';
export default async () => {
  const app = Fastify();
  app.get('/hello/:name', { schema: { response: { 200: { type: 'object', properties: { hello: { type: 'string' } } } } } }, async (request) => ({ hello: request.params.name, hidden: 1 }));
  app.post('/echo', async (request, reply) => reply.code(201).send(request.body));
  const at = await app.listen({ port: 0, host: '127.0.0.1' });
  const injected = await app.inject('/hello/inject');
  const hello = await fetch(`${at}/hello/you`);
  const echo = await fetch(`${at}/echo`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"a":1}' });
  const answer = [injected.json(), await hello.json(), echo.status, await echo.json(), (await fetch(`${at}/none`)).status];
  await app.close();
  return answer;
};
