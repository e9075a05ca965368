import Hapi from '@hapi/hapi';
export default async () => {
  const s = Hapi.server({ port: 0, host: '127.0.0.1' });
  s.route({
    method: 'POST',
    path: '/u/{id}',
    handler: (q, h) => h.response({ id: q.params.id, b: q.payload }).code(201),
  });
  await s.start();
  const r = await fetch(`${s.info.uri}/u/3`, {
    method: 'POST',
    body: '{"a":1}',
    headers: { 'content-type': 'application/json' },
  });
  const i = await s.inject({ method: 'GET', url: '/none' });
  const out = [r.status, await r.json(), i.statusCode, i.result];
  await s.stop({ timeout: 10 });
  return out;
};
