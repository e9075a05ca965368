import { PROTOCOL_VERSION, ndJsonStream } from '@agentclientprotocol/sdk';
export default async () => {
  const { readable, writable } = new TransformStream();
  const stream = ndJsonStream(writable, readable);
  const writer = stream.writable.getWriter();
  void writer.write({ jsonrpc: '2.0', id: 1, method: 'x' });
  const { value } = await stream.readable.getReader().read();
  return [typeof PROTOCOL_VERSION, value];
};
