import { URL } from 'internal/url';
import tls from 'node:tls';
import { urlToHttpOptions } from 'node:url';
import { Agent as HttpAgent } from 'internal/http1/agent';
import { ClientRequest } from 'internal/http1/client';
import { connectionListener, methods, setUp } from 'internal/http1/server';

export function Agent(options) {
  if (!(this instanceof Agent)) return new Agent(options);
  HttpAgent.call(this, { defaultPort: 443, protocol: 'https:', ...options });
  this.maxCachedSessions = this.options.maxCachedSessions ?? 100;
}
Object.setPrototypeOf(Agent.prototype, HttpAgent.prototype);
Object.setPrototypeOf(Agent, HttpAgent);

const DISTINCT = [
  'ca',
  'cert',
  'clientCertEngine',
  'ciphers',
  'key',
  'pfx',
  'rejectUnauthorized',
  'servername',
];

Object.assign(Agent.prototype, {
  createConnection(port, host, options) {
    let given;
    if (port !== null && typeof port === 'object') given = { ...port };
    else if (host !== null && typeof host === 'object') given = { ...host, port };
    else given = { ...options, port, host };
    if (typeof host === 'string') given.host = host;
    return tls.connect(given);
  },

  getName(options = {}) {
    let name = HttpAgent.prototype.getName.call(this, options);
    for (const part of DISTINCT) {
      name += ':';
      if (part === 'servername' && options.servername === options.host) continue;
      if (options[part] !== undefined) name += options[part];
    }
    return name;
  },
});

export const globalAgent = new Agent({ keepAlive: true, scheduling: 'lifo', timeout: 5000 });

export class Server extends tls.Server {
  constructor(options, listener) {
    if (typeof options === 'function') [options, listener] = [{}, options];
    super({ ALPNProtocols: ['http/1.1'], ...options });
    setUp(this, options ?? {}, listener);
    this.on('secureConnection', connectionListener);
  }

  close(callback) {
    this._closing = true;
    super.close(callback);
    this.closeIdleConnections();
    return this;
  }
}
Object.assign(Server.prototype, methods);

export const createServer = (options, listener) => new Server(options, listener);

export function request(...given) {
  let options = {};
  if (typeof given[0] === 'string') options = urlToHttpOptions(new URL(given.shift()));
  else if (given[0] instanceof URL || (given[0]?.searchParams && given[0].href))
    options = urlToHttpOptions(given.shift());
  if (given[0] && typeof given[0] !== 'function') options = { ...options, ...given.shift() };
  options._defaultAgent = globalAgent;
  return new ClientRequest(options, given[0]);
}

export function get(...given) {
  const made = request(...given);
  made.end();
  return made;
}

export default { Agent, Server, createServer, get, globalAgent, request };
