// A synthetic floor: a server that does the least a plugin's host could do for the busy plugin. It hands its route web
// requests, its tool a turn that calls it, and its publishes to whoever subscribed and may see them. It checks nothing
// and keeps nothing.

import http from 'node:http';

import { WebSocketServer } from 'ws';

import { apply } from './busy-plugin.mjs';

const tools = new Map();
const methods = new Map();
const subscribers = new Map();
let route;
let serverSeq = 0;

function frameOf(channel, action) {
  const params = { channel, action, serverSeq: ++serverSeq };
  return Buffer.from(JSON.stringify({ jsonrpc: '2.0', method: 'action', params }));
}

function publish(channel, action, { visible } = {}) {
  const frame = frameOf(channel, action);
  for (const watcher of subscribers.get(channel) ?? []) {
    if (!visible || visible(undefined, watcher.client)) {
      watcher.send(frame, { binary: false });
    }
  }
}

apply(
  {
    registerTool: (tool) => tools.set(tool.definition.name, tool),
    registerRoute: (handler) => (route = handler),
    registerChannel: () => ({ publish }),
    registerMethod: (name, method) => methods.set(name, method),
  },
  {},
);

/** A turn that calls a tool, with the actions a host sends for it. */
async function callTool(channel, { turnId, message }) {
  const [, name, input] = /^\/tool (\S+) (.*)$/.exec(message.text);
  const call = { turnId, toolCallId: 'call' };
  publish(channel, { type: 'chat/turnStarted', turnId, message });
  publish(channel, { type: 'chat/toolCallStart', ...call, toolName: name, displayName: name });
  publish(channel, { type: 'chat/toolCallReady', ...call, invocationMessage: name, confirmed: 'not-needed' });
  const text = await tools.get(name).run(JSON.parse(input), {});
  const result = { success: true, pastTenseMessage: name, content: [{ type: 'text', text }] };
  publish(channel, { type: 'chat/toolCallComplete', ...call, result });
  publish(channel, { type: 'chat/turnComplete', turnId, duration: 0 });
}

async function answer(socket, { method, params }) {
  switch (method) {
    case 'initialize':
      socket.client = params.clientId;
      return { protocolVersion: params.protocolVersions[0], serverSeq, snapshots: [] };
    case 'subscribe': {
      const watchers = subscribers.get(params.channel) ?? new Set();
      subscribers.set(params.channel, watchers.add(socket));
      const state = { defaultChat: `${params.channel}/chat`, chats: [] };
      return { snapshot: { resource: params.channel, state, fromSeq: serverSeq } };
    }
    case 'createSession':
      return null;
    default:
      return methods.get(method).handle(params, undefined, socket.client);
  }
}

const server = http.createServer(async (incoming, outgoing) => {
  const url = `http://${incoming.headers.host}${incoming.url}`;
  const response = await route(new Request(url, { method: incoming.method, headers: incoming.headers }));
  const body = Buffer.from(await response.arrayBuffer());
  outgoing.writeHead(response.status, {
    ...Object.fromEntries(response.headers),
    'content-length': body.length,
  });
  outgoing.end(body);
});

new WebSocketServer({ server }).on('connection', (socket) => {
  socket.on('message', async (data) => {
    const message = JSON.parse(data);
    if (message.method === 'dispatchAction') {
      await callTool(message.params.channel, message.params.action);
    } else {
      const result = await answer(socket, message);
      socket.send(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }));
    }
  });
});

server.listen(0, '127.0.0.1', () => console.log(`floor on ws://127.0.0.1:${server.address().port}`));
