import { Agent, request, fetch } from 'undici';
export default async () => {
  const { http } = globalThis.servers;
  const dispatcher = new Agent({ keepAliveTimeout: 10 });
  const { statusCode, body } = await request(`${http}/json?a=1`, { dispatcher });
  const said = await body.json();
  const fetched = await fetch(`${http}/json`, { method: 'POST', body: 'x', dispatcher });
  const answer = [statusCode, said.query, (await fetched.json()).body];
  await dispatcher.close();
  return answer;
};
