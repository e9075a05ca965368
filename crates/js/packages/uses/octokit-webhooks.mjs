import { Webhooks, createNodeMiddleware } from '@octokit/webhooks';
import http from 'node:http';
export default async () => {
  const seen = [];
  const hooks = new Webhooks({ secret: 's', log: { debug() {}, info() {}, warn() {}, error() {} } });
  hooks.on('push', ({ id, payload }) => {
    seen.push([id, payload.ref]);
  });
  hooks.on('issues.opened', ({ payload }) => {
    seen.push(payload.action);
  });
  const server = http.createServer(createNodeMiddleware(hooks, { path: '/hook' }));
  await new Promise((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const url = `http://127.0.0.1:${server.address().port}/hook`;
  const body = JSON.stringify({ ref: 'refs/heads/main' });
  const signature = await hooks.sign(body);
  const post = (given) =>
    fetch(url, {
      method: 'POST',
      body,
      headers: {
        'content-type': 'application/json',
        'x-github-event': 'push',
        'x-github-delivery': '7',
        'x-hub-signature-256': given,
      },
    });
  const statuses = [(await post(signature)).status, (await post('sha256=00')).status];
  await hooks.receive({ id: '8', name: 'issues', payload: { action: 'opened' } });
  server.close();
  server.closeAllConnections();
  return [statuses, seen, signature, await hooks.verify(body, signature)];
};
