import { createClient } from 'redis';
export default async () => {
  const client = createClient({ RESP: 2, url: `redis://127.0.0.1:${globalThis.servers.redis}`, disableClientInfo: true });
  await client.connect();
  const answer = [await client.set('r', 'value'), await client.get('r'), await client.del('r')];
  await client.close();
  return answer;
};
