import { H3, HTTPError, getQuery, getRouterParam, readBody } from 'h3';
const posted = (body) => ({ method: 'POST', body, headers: { 'content-type': 'application/json' } });
export default async () => {
  const app = new H3()
    .get('/a/:id', (event) => ({ id: getRouterParam(event, 'id'), query: getQuery(event) }))
    .post('/b', async (event) => ({ got: await readBody(event) }))
    .get('/text', () => new Response('plain', { headers: { 'x-a': 'b' } }))
    .get('/fails', () => {
      throw new HTTPError({ status: 418, message: 'tea' });
    });
  const text = await app.request('/text');
  return [
    await (await app.request('/a/5?x=1')).json(),
    await (await app.request('/b', posted('{"z":1}'))).json(),
    text instanceof Response,
    text.headers.get('x-a'),
    await text.text(),
    (await app.request('/fails')).status,
    (await app.request('/none')).status,
  ];
};
