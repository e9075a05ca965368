import { Agent, globalAgent as shared } from 'internal/http1/agent';
import { ClientRequest } from 'internal/http1/client';
import { METHODS, STATUS_CODES, validateHeaderName, validateHeaderValue } from 'internal/http1/common';
import { maxHeaderSize } from 'internal/http1/connection';
import { IncomingMessage } from 'internal/http1/incoming';
import { OutgoingMessage } from 'internal/http1/outgoing';
import { Server, ServerResponse, connectionListener as _connectionListener } from 'internal/http1/server';

export const createServer = (options, listener) => new Server(options, listener);

export function request(input, options, callback) {
  return new ClientRequest(input, options, callback);
}

export function get(input, options, callback) {
  const made = request(input, options, callback);
  made.end();
  return made;
}

export const setMaxIdleHTTPParsers = () => {};
export const setGlobalProxyFromEnv = undefined;
export const globalAgent = shared;
export const { CloseEvent, MessageEvent, WebSocket } = globalThis;

export {
  Agent,
  ClientRequest,
  IncomingMessage,
  METHODS,
  OutgoingMessage,
  STATUS_CODES,
  Server,
  ServerResponse,
  _connectionListener,
  maxHeaderSize,
  validateHeaderName,
  validateHeaderValue,
};
export default {
  Agent,
  ClientRequest,
  CloseEvent,
  IncomingMessage,
  METHODS,
  MessageEvent,
  OutgoingMessage,
  STATUS_CODES,
  Server,
  ServerResponse,
  WebSocket,
  _connectionListener,
  createServer,
  get,
  globalAgent,
  maxHeaderSize,
  request,
  setMaxIdleHTTPParsers,
  validateHeaderName,
  validateHeaderValue,
};
