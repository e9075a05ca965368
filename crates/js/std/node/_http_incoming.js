import { IncomingMessage } from 'node:http';

export const readStart = (socket) => {
  if (socket && !socket._paused && socket.readable) socket.resume();
};
export const readStop = (socket) => {
  socket?.pause();
};

export { IncomingMessage };
export default { IncomingMessage, readStart, readStop };
