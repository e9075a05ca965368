import { io } from 'socket.io-client';
import { once } from 'node:events';
export default async () => {
  const seen = [];
  for (const transports of [['polling', 'websocket'], ['websocket'], ['polling']]) {
    const socket = io(globalThis.servers.http, { transports, forceNew: true, reconnection: false });
    await new Promise((resolve, reject) => { socket.on('connect', resolve); socket.on('connect_error', reject); });
    seen.push(await socket.emitWithAck('greet', 'you'));
    socket.disconnect();
  }
  return [seen, typeof once];
};
