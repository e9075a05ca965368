import mqtt from 'mqtt';
import { once } from 'node:events';
export default async () => {
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${globalThis.servers.mqtt}`);
  const topic = `t/${Math.random()}`;
  await client.subscribeAsync(topic);
  const got = once(client, 'message');
  await client.publishAsync(topic, 'hello');
  const [, message] = await got;
  await client.endAsync();
  return [String(message), client.connected];
};
