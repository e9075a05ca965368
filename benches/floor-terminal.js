// A synthetic floor: a server of terminals that does the least one could do. The pseudoterminal is that of `script`. What
// it prints is encoded once and sent to every subscriber, however much waits for it; the last of it is kept.

'use strict';

const { spawn } = require('node:child_process');
const { WebSocketServer } = require('ws');

const KEPT = 200_000;
const terminals = new Map();
let serverSeq = 0;

function open(channel) {
  const child = spawn('script', ['-qfc', '/bin/sh', '/dev/null'], { stdio: ['pipe', 'pipe', 'ignore'] });
  const terminal = { child, text: '', watchers: new Set() };
  child.stdin.on('error', () => {});
  child.stdout.setEncoding('utf8');
  child.stdout.on('data', (data) => {
    terminal.text = (terminal.text + data).slice(-KEPT);
    const params = { channel, action: { type: 'terminal/data', data }, serverSeq: ++serverSeq };
    const frame = Buffer.from(JSON.stringify({ jsonrpc: '2.0', method: 'action', params }));
    for (const watcher of terminal.watchers) {
      watcher.send(frame, { binary: false });
    }
  });
  terminals.set(channel, terminal);
}

function answer(socket, { method, params }) {
  switch (method) {
    case 'initialize':
      return { protocolVersion: params.protocolVersions[0], serverSeq, snapshots: [] };
    case 'createTerminal':
      open(params.channel);
      return null;
    case 'disposeTerminal':
      terminals.get(params.channel).child.kill();
      terminals.delete(params.channel);
      return null;
    case 'subscribe': {
      const { text, watchers } = terminals.get(params.channel);
      watchers.add(socket);
      socket.on('close', () => watchers.delete(socket));
      const state = { content: [{ type: 'unclassified', value: text }] };
      return { snapshot: { resource: params.channel, state, fromSeq: serverSeq } };
    }
    default:
      return null;
  }
}

const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });

server.on('connection', (socket) => {
  socket.on('message', (data) => {
    const message = JSON.parse(data);
    if (message.method === 'dispatchAction') {
      terminals.get(message.params.channel).child.stdin.write(message.params.action.data);
    } else {
      socket.send(JSON.stringify({ jsonrpc: '2.0', id: message.id, result: answer(socket, message) }));
    }
  });
});

server.on('listening', () => console.log(`floor on ws://127.0.0.1:${server.address().port}`));
