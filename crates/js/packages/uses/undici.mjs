import { Agent, MockAgent, request, fetch } from 'undici';
export default async () => {
  const { http } = globalThis.servers;
  const dispatcher = new Agent({ keepAliveTimeout: 10 });
  const { statusCode, body } = await request(`${http}/json?a=1`, { dispatcher });
  const said = await body.json();
  const fetched = await fetch(`${http}/json`, { method: 'POST', body: 'x', dispatcher });
  const answer = [statusCode, said.query, (await fetched.json()).body];
  await dispatcher.close();
  return [...answer, ...(await mocked())];
};

async function mocked() {
  const agent = new MockAgent();
  agent.disableNetConnect();
  const pool = agent.get('http://mocked.invalid');
  pool.intercept({ path: '/a', method: 'GET' }).reply(200, { a: 1 }, { headers: { 'content-type': 'application/json' } });
  pool.intercept({ path: '/fetched', method: 'GET' }).reply(200, 'fetched');
  pool.intercept({ path: '/b', method: 'POST', body: 'sent' }).reply(201, 'text');
  const first = await request('http://mocked.invalid/a', { dispatcher: agent });
  const second = await request('http://mocked.invalid/b', { method: 'POST', body: 'sent', dispatcher: agent });
  const seen = [first.statusCode, first.headers['content-type'], await first.body.json(), second.statusCode, await second.body.text()];
  seen.push(await (await fetch('http://mocked.invalid/fetched', { dispatcher: agent })).text());
  const refused = await request('http://mocked.invalid/c', { dispatcher: agent }).catch((error) => error.code);
  agent.assertNoPendingInterceptors();
  await agent.close();
  return [...seen, refused];
}
