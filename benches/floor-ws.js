// A synthetic floor: a WebSocket server that does the least a host of the Agent Host Protocol could do. It keeps
// sessions in a map, decodes every message once, encodes every action once, and sends it to whoever subscribed.
// It checks nothing, keeps nothing and has no plugins: no host written for Node gets below this.

'use strict';

const { WebSocketServer } = require('ws');

const sessions = new Map();
const subscribers = new Map();
let serverSeq = 0;

function watchersOf(channel) {
  let watchers = subscribers.get(channel);
  if (!watchers) {
    subscribers.set(channel, (watchers = new Set()));
  }
  return watchers;
}

function publish(channel, action) {
  const params = { channel, action, serverSeq: ++serverSeq };
  const frame = Buffer.from(JSON.stringify({ jsonrpc: '2.0', method: 'action', params }));
  for (const watcher of watchersOf(channel)) {
    watcher.send(frame, { binary: false });
  }
}

/** A turn that answers `/words <n>`, as the echo backend does. */
function runTurn(channel, { turnId, message }) {
  const count = Number(message.text.slice('/words '.length));
  publish(channel, { type: 'chat/turnStarted', turnId, message });
  publish(channel, {
    type: 'chat/responsePart',
    turnId,
    part: { kind: 'markdown', id: 'answer', content: '' },
  });
  for (let at = 0; at < count; at++) {
    publish(channel, { type: 'chat/delta', turnId, partId: 'answer', content: `word ${at} ` });
  }
  publish(channel, { type: 'chat/turnComplete', turnId, duration: 0 });
}

function stateOf(channel) {
  const session = sessions.get(channel);
  return session ? { provider: session.provider, defaultChat: session.defaultChat, chats: [] } : {};
}

function answer(socket, { method, params }) {
  switch (method) {
    case 'initialize':
      return { protocolVersion: params.protocolVersions[0], serverSeq, snapshots: [] };
    case 'createSession':
      sessions.set(params.channel, {
        provider: params.provider,
        defaultChat: `${params.channel}/chat`,
        createdAt: new Date().toISOString(),
      });
      return null;
    case 'subscribe':
      watchersOf(params.channel).add(socket);
      socket.channels.push(params.channel);
      return { snapshot: { resource: params.channel, state: stateOf(params.channel), fromSeq: serverSeq } };
    default:
      return null;
  }
}

const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });

server.on('connection', (socket) => {
  socket.channels = [];
  socket.on('message', (data) => {
    const message = JSON.parse(data);
    if (message.method === 'dispatchAction') {
      runTurn(message.params.channel, message.params.action);
    } else {
      socket.send(JSON.stringify({ jsonrpc: '2.0', id: message.id, result: answer(socket, message) }));
    }
  });
  socket.on('close', () => {
    for (const channel of socket.channels) {
      watchersOf(channel).delete(socket);
    }
  });
});

server.on('listening', () => console.log(`floor on ws://127.0.0.1:${server.address().port}`));
