import { connect, StringCodec } from 'nats';
export default async () => {
  const connection = await connect({ servers: `127.0.0.1:${globalThis.servers.nats}` });
  const codec = StringCodec();
  const subscription = connection.subscribe('greet', { max: 1 });
  connection.publish('greet', codec.encode('hello'));
  const seen = [];
  for await (const message of subscription) seen.push([message.subject, codec.decode(message.data)]);
  await connection.close();
  return seen;
};
