import http from 'node:http';
import axios from 'axios';
import { http as mocks, graphql, HttpResponse } from 'msw';
import { setupServer } from 'msw/node';
const get = (url) =>
  new Promise((done, failed) => {
    http
      .get(url, (response) => {
        let text = '';
        response.on('data', (part) => (text += part)).on('end', () => done([response.statusCode, text]));
      })
      .on('error', failed);
  });
export default async () => {
  const seen = [];
  const server = setupServer(
    mocks.get('http://api.test/users/:id', ({ params, request }) => {
      seen.push(request.method);
      return HttpResponse.json({ id: params.id });
    }),
    mocks.post('http://api.test/users', async ({ request }) =>
      HttpResponse.json(await request.json(), { status: 201, headers: { 'x-a': 'b' } }),
    ),
    mocks.get('http://api.test/error', () => HttpResponse.error()),
    graphql.query('Q', () => HttpResponse.json({ data: { a: 1 } })),
  );
  server.listen({ onUnhandledRequest: 'bypass' });
  const said = [];
  const one = await fetch('http://api.test/users/7');
  said.push(one.status, await one.json());
  const post = (url, body) =>
    fetch(url, { method: 'POST', body, headers: { 'content-type': 'application/json' } });
  const two = await post('http://api.test/users', '{"a":1}');
  said.push(two.status, two.headers.get('x-a'), await two.json());
  said.push(await fetch('http://api.test/error').catch((error) => error.name));
  said.push(await (await post('http://api.test/graphql', JSON.stringify({ query: 'query Q { a }' }))).json());
  server.use(mocks.get('http://api.test/users/:id', () => new HttpResponse('over', { status: 418 })));
  const three = await fetch('http://api.test/users/7');
  said.push(three.status, await three.text());
  server.resetHandlers();
  said.push((await axios.get('http://api.test/users/8')).data, await get('http://api.test/users/9'));
  said.push(
    (await axios.post('http://api.test/users', { b: 2 })).data,
    (await get(`${globalThis.servers.http}/json?a=1`))[0],
  );
  server.close();
  return [said, seen];
};
