// The connections of a client: made, kept for the next request, and limited.

import { EventEmitter } from 'node:events';
import net from 'node:net';
import { outOfRange, wrongType } from 'internal/errors';
import { nextTick } from 'internal/ticks';

const kOptions = Symbol('options');

export function Agent(options) {
  if (!(this instanceof Agent)) return new Agent(options);
  EventEmitter.call(this);
  this.options = { __proto__: null, path: null, noDelay: true, ...options };
  this.defaultPort = this.options.defaultPort || 80;
  this.protocol = this.options.protocol || 'http:';
  this.requests = Object.create(null);
  this.sockets = Object.create(null);
  this.freeSockets = Object.create(null);
  this.keepAliveMsecs = this.options.keepAliveMsecs || 1000;
  this.keepAlive = this.options.keepAlive || false;
  this.maxSockets = this.options.maxSockets || Infinity;
  this.maxFreeSockets = this.options.maxFreeSockets || 256;
  this.scheduling = this.options.scheduling || 'lifo';
  this.maxTotalSockets = this.options.maxTotalSockets ?? Infinity;
  this.totalSocketCount = 0;
  if (typeof this.maxTotalSockets !== 'number')
    throw wrongType('maxTotalSockets', 'of type number', this.maxTotalSockets);
  if (this.maxTotalSockets < 1) throw outOfRange('maxTotalSockets', '> 0', this.maxTotalSockets);
  this.on('free', (socket, given) => free(this, socket, given));
}
Object.setPrototypeOf(Agent.prototype, EventEmitter.prototype);
Object.setPrototypeOf(Agent, EventEmitter);

Agent.defaultMaxSockets = Infinity;

function forget(table, name, socket) {
  const list = table[name];
  const at = list?.indexOf(socket) ?? -1;
  if (at < 0) return false;
  list.splice(at, 1);
  if (list.length === 0) delete table[name];
  return true;
}

function free(agent, socket, options) {
  const name = agent.getName(options);
  if (socket.destroyed || !socket.writable) {
    socket.destroy();
    return;
  }
  const waiting = agent.requests[name];
  if (waiting?.length > 0) {
    const request = waiting.shift();
    if (waiting.length === 0) delete agent.requests[name];
    agent.reuseSocket(socket, request);
    use(agent, request, socket);
    return;
  }
  const idle = agent.freeSockets[name] ?? [];
  const many = idle.length + (agent.sockets[name]?.length ?? 0);
  if (
    !agent.keepAlive ||
    many > agent.maxSockets ||
    agent.totalSocketCount > agent.maxTotalSockets ||
    idle.length >= agent.maxFreeSockets ||
    !agent.keepSocketAlive(socket)
  ) {
    socket.destroy();
    return;
  }
  agent.removeSocket(socket, options);
  agent.freeSockets[name] = [...idle, socket];
  agent.totalSocketCount += 1;
  socket._httpMessage = null;
  const gone = () => socket.destroy();
  socket._idle = gone;
  // A server that closes, or says something nobody asked for, ends the connection. `_idle` hears what it says: packages
  // count the listeners for data.
  socket.on('end', gone);
  socket.on('error', gone);
  socket.resume();
}

function busy(socket) {
  if (!socket._idle) return;
  for (const event of ['data', 'end', 'error']) socket.removeListener(event, socket._idle);
  socket._idle = undefined;
}

function use(agent, request, socket) {
  request.onSocket(socket);
  const { timeout } = agent.options;
  if (timeout && !request.timeout) socket.setTimeout(timeout);
}

function install(agent, socket, options) {
  const onFree = () => agent.emit('free', socket, options);
  const onClose = () => agent.removeSocket(socket, options);
  const onTimeout = () => {
    const name = agent.getName(options);
    if (agent.freeSockets[name]?.includes(socket)) socket.destroy();
  };
  const onRemove = () => {
    agent.removeSocket(socket, options);
    socket.removeListener('close', onClose);
    socket.removeListener('free', onFree);
    socket.removeListener('timeout', onTimeout);
    socket.removeListener('agentRemove', onRemove);
  };
  socket[kOptions] = options;
  socket.on('free', onFree);
  socket.on('close', onClose);
  socket.on('timeout', onTimeout);
  socket.on('agentRemove', onRemove);
  if (agent.options.timeout) socket.setTimeout(agent.options.timeout);
}

function servername(options, request) {
  let name = options.servername ?? options.host;
  const header = request?.getHeader?.('host');
  if (header) {
    const text = `${header}`;
    if (text.startsWith('[')) {
      const end = text.indexOf(']');
      name = end === -1 ? text : text.slice(1, end);
    } else {
      name = text.split(':', 1)[0];
    }
  }
  return net.isIP(name) ? '' : name;
}

Object.assign(Agent.prototype, {
  createConnection(...given) {
    return net.createConnection(...given);
  },

  getName(options = {}) {
    let name = options.host || 'localhost';
    name += ':';
    if (options.port) name += options.port;
    name += ':';
    if (options.localAddress) name += options.localAddress;
    if (options.family === 4 || options.family === 6) name += `:${options.family}`;
    if (options.socketPath) name += `:${options.socketPath}`;
    return name;
  },

  addRequest(request, options, port, localAddress) {
    let given = options;
    if (typeof given === 'string') given = { __proto__: null, host: options, port, localAddress };
    given = { __proto__: null, ...given, ...this.options };
    if (given.socketPath) given.path = given.socketPath;
    if (given.servername === undefined && given.servername !== '')
      given.servername = servername(given, request);
    const name = this.getName(given);
    this.sockets[name] ??= [];
    const idle = this.freeSockets[name] ?? [];
    let socket;
    while (idle.length > 0 && !socket) {
      const next = this.scheduling === 'fifo' ? idle.shift() : idle.pop();
      if (next.destroyed || !next.writable) continue;
      socket = next;
    }
    if (idle.length === 0) delete this.freeSockets[name];
    const many = (this.sockets[name]?.length ?? 0) + idle.length;
    if (socket) {
      busy(socket);
      this.reuseSocket(socket, request);
      use(this, request, socket);
      this.sockets[name].push(socket);
    } else if (many < this.maxSockets && this.totalSocketCount < this.maxTotalSockets) {
      this.createSocket(request, given, (error, made) => {
        if (error) request.onSocket(made, error);
        else use(this, request, made);
      });
    } else {
      this.requests[name] ??= [];
      request._queued = given;
      this.requests[name].push(request);
    }
    if (this.sockets[name]?.length === 0 && !this.requests[name]) delete this.sockets[name];
  },

  createSocket(request, options, callback) {
    const given = { __proto__: null, ...options, ...this.options };
    if (given.socketPath) given.path = given.socketPath;
    if (given.servername === undefined) given.servername = servername(given, request);
    const name = this.getName(given);
    given._agentKey = name;
    given.encoding = null;
    let called = false;
    const created = (error, socket) => {
      if (called) return;
      called = true;
      if (error) {
        callback(error);
        return;
      }
      this.sockets[name] ??= [];
      this.sockets[name].push(socket);
      this.totalSocketCount += 1;
      install(this, socket, given);
      callback(null, socket);
    };
    try {
      if (this.keepAlive) given.keepAlive = this.keepAlive;
      const socket = this.createConnection(given, created);
      if (socket) created(null, socket);
    } catch (error) {
      if (called) throw error;
      nextTick(created, error);
    }
  },

  removeSocket(socket, options) {
    const name = this.getName(options);
    for (const table of [this.sockets, this.freeSockets])
      if (forget(table, name, socket)) this.totalSocketCount -= 1;
    const waiting = this.requests[name];
    if (!waiting?.length) return;
    const many = (this.sockets[name]?.length ?? 0) + (this.freeSockets[name]?.length ?? 0);
    if (many >= this.maxSockets || this.totalSocketCount >= this.maxTotalSockets) return;
    const request = waiting.shift();
    if (waiting.length === 0) delete this.requests[name];
    this.createSocket(request, request._queued ?? options, (error, made) => {
      if (error) request.onSocket(made, error);
      else use(this, request, made);
    });
  },

  keepSocketAlive(socket) {
    socket.setKeepAlive?.(true, this.keepAliveMsecs);
    socket.unref?.();
    let { timeout = 0 } = this.options;
    const hint = /timeout=(\d+)/i.exec(socket._keepAlive ?? '')?.[1];
    if (hint !== undefined) {
      const most = Number(hint) * 1000 - 1000;
      if (most <= 0) return false;
      if (timeout === 0 || most < timeout) timeout = most;
    }
    socket.setTimeout?.(timeout);
    return true;
  },

  reuseSocket(socket, request) {
    busy(socket);
    request.reusedSocket = true;
    socket.ref?.();
  },

  destroy() {
    for (const table of [this.freeSockets, this.sockets])
      for (const list of Object.values(table)) for (const socket of [...list]) socket.destroy();
  },
});

export const globalAgent = new Agent({ keepAlive: true, scheduling: 'lifo', timeout: 5000 });
