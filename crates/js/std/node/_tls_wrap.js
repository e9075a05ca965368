import { Server, TLSSocket, connect, createServer } from 'node:tls';

export { Server, TLSSocket, connect, createServer };
export default { Server, TLSSocket, connect, createServer };
