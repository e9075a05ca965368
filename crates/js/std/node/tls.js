import { absent } from 'internal/absent';

export const Server = absent('tls.Server', 'use fetch or WebSocket');
export const TLSSocket = absent('tls.TLSSocket', 'use fetch or WebSocket');
export const checkServerIdentity = absent('tls.checkServerIdentity', 'use fetch or WebSocket');
export const connect = absent('tls.connect', 'use fetch or WebSocket');
export const createSecureContext = absent('tls.createSecureContext', 'use fetch or WebSocket');
export const createServer = absent('tls.createServer', 'use fetch or WebSocket');

export default { Server, TLSSocket, checkServerIdentity, connect, createSecureContext, createServer };
