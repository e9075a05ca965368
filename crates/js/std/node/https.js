import { absent } from 'internal/absent';

export const Agent = absent('https.Agent', 'use fetch');
export const Server = absent('https.Server', 'use fetch');
export const createServer = absent('https.createServer', 'use fetch');
export const get = absent('https.get', 'use fetch');
export const request = absent('https.request', 'use fetch');

export default { Agent, Server, createServer, get, request };
