import { absent } from 'internal/absent';

export const Agent = absent('http.Agent', 'use fetch');
export const ClientRequest = absent('http.ClientRequest', 'use fetch');
export const IncomingMessage = absent('http.IncomingMessage', 'use fetch');
export const OutgoingMessage = absent('http.OutgoingMessage', 'use fetch');
export const Server = absent('http.Server', 'use fetch');
export const ServerResponse = absent('http.ServerResponse', 'use fetch');
export const createServer = absent('http.createServer', 'use fetch');
export const get = absent('http.get', 'use fetch');
export const request = absent('http.request', 'use fetch');

export default {
  Agent,
  ClientRequest,
  IncomingMessage,
  OutgoingMessage,
  Server,
  ServerResponse,
  createServer,
  get,
  request,
};
