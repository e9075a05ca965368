// A connection of the Agent Host Protocol: requests, subscriptions whose state is folded from actions, and a new
// connection when one is lost.

import { fold } from './fold.js';

const ROOT = 'ahp-root://';

/** A channel that is subscribed to. */
class Channel {
  constructor(uri, view) {
    this.uri = uri;
    this.view = view;
    this.state = undefined;
    this.error = undefined;
    this.users = 0;
    this.listeners = new Set();
  }

  tell(action) {
    for (const listener of this.listeners) listener(this.state, action);
  }
}

export class Connection {
  constructor(url, { onState, onRefused } = {}) {
    this.url = url;
    this.clientId = `console-${crypto.randomUUID()}`;
    this.onState = onState ?? (() => {});
    this.onRefused = onRefused ?? (() => {});
    this.channels = new Map();
    this.pending = new Map();
    this.notifications = new Set();
    this.nextId = 1;
    this.clientSeq = 1;
    this.attempt = 0;
    this.closed = false;
    this.facts = {};
  }

  open() {
    this.ready = new Promise((resolve, reject) => {
      const socket = new WebSocket(this.url);
      this.socket = socket;
      socket.addEventListener('open', async () => {
        try {
          const result = await this.send('initialize', {
            channel: ROOT,
            protocolVersions: ['1.0.0', '0.9.0'],
            clientId: this.clientId,
            clientInfo: { name: 'ostler-console' },
            initialSubscriptions: [ROOT],
          });
          this.attempt = 0;
          this.facts = result;
          const root = this.channel(ROOT);
          root.users ||= 1;
          root.state = result.snapshots?.find((snapshot) => snapshot.resource === ROOT)?.state ?? {};
          this.isOpen = true;
          this.onState('connected');
          root.tell(null);
          for (const channel of this.channels.values())
            if (channel.uri !== ROOT && channel.users) this.join(channel);
          resolve();
        } catch (error) {
          reject(error);
          socket.close();
        }
      });
      socket.addEventListener('message', (event) => this.receive(JSON.parse(event.data)));
      socket.addEventListener('close', () => {
        this.isOpen = false;
        const lost = new Error('The connection to the host is lost');
        for (const { reject: fail } of this.pending.values()) fail(lost);
        this.pending.clear();
        reject(lost);
        if (this.closed) return;
        this.onState('lost');
        const wait = Math.min(10000, 300 * 2 ** this.attempt++);
        this.timer = setTimeout(() => this.open().catch(() => {}), wait);
      });
    });
    return this.ready;
  }

  close() {
    this.closed = true;
    this.isOpen = false;
    clearTimeout(this.timer);
    this.socket?.close();
  }

  send(method, params) {
    const id = this.nextId++;
    this.socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    return new Promise((resolve, reject) => this.pending.set(id, { resolve, reject }));
  }

  request(method, params = {}) {
    if (!this.isOpen) return Promise.reject(new Error('The host is not connected'));
    return this.send(method, { channel: ROOT, ...params });
  }

  notify(method, params) {
    if (!this.isOpen) throw new Error('The host is not connected');
    this.socket.send(JSON.stringify({ jsonrpc: '2.0', method, params }));
  }

  dispatch(channel, action) {
    this.notify('dispatchAction', { channel, clientSeq: this.clientSeq++, action });
  }

  channel(uri, view) {
    let channel = this.channels.get(uri);
    if (!channel) this.channels.set(uri, (channel = new Channel(uri, view)));
    return channel;
  }

  /** Subscribes; `listener(state, action)` is called with the state, and after each action. Returns what ends it. */
  subscribe(uri, listener, view) {
    const channel = this.channel(uri, view);
    channel.listeners.add(listener);
    if (channel.users++ === 0) {
      if (this.isOpen) this.join(channel);
    } else if (channel.state !== undefined || channel.error) {
      queueMicrotask(() => channel.listeners.has(listener) && listener(channel.state, null, channel.error));
    }
    return () => {
      if (!channel.listeners.delete(listener) || --channel.users > 0 || uri === ROOT) return;
      this.channels.delete(uri);
      if (this.isOpen) this.notify('unsubscribe', { channel: uri });
    };
  }

  async join(channel) {
    try {
      const params = { channel: channel.uri };
      if (channel.view) params.view = channel.view;
      const result = await this.send('subscribe', params);
      channel.error = undefined;
      channel.state = result.snapshot?.state ?? {};
      channel.tell(null);
    } catch (error) {
      channel.error = error;
      for (const listener of channel.listeners) listener(undefined, null, error);
    }
  }

  receive(message) {
    if (message.method === 'action') {
      const { channel: uri, action, rejectionReason } = message.params;
      const channel = this.channels.get(uri);
      if (rejectionReason) {
        this.onRefused(rejectionReason);
        // What a page shows in advance is as it was.
        if (channel?.state !== undefined) channel.tell(null);
        return;
      }
      if (channel?.state === undefined) return;
      fold(channel.state, action);
      channel.tell(action);
    } else if (message.method && message.id === undefined) {
      for (const listener of this.notifications) listener(message.method, message.params ?? {});
    } else if (message.method) {
      const error = { code: -32601, message: 'The console serves no requests' };
      this.socket.send(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }));
    } else {
      const waiting = this.pending.get(message.id);
      this.pending.delete(message.id);
      if (message.error)
        waiting?.reject(Object.assign(new Error(message.error.message), { code: message.error.code }));
      else waiting?.resolve(message.result);
    }
  }

  onNotification(listener) {
    this.notifications.add(listener);
    return () => this.notifications.delete(listener);
  }

  /** The text of a resource. */
  async read(uri) {
    const { data, encoding } = await this.request('resourceRead', { uri });
    if (encoding !== 'base64') return data;
    return new TextDecoder().decode(Uint8Array.from(atob(data), (c) => c.charCodeAt(0)));
  }

  /** The records of a scheme, as JSON. */
  async records(scheme) {
    const { entries } = await this.request('resourceList', { uri: `${scheme}://` });
    const read = async ({ name }) => {
      try {
        return { id: name, ...JSON.parse(await this.read(`${scheme}://${name}`)) };
      } catch (error) {
        return { id: name, problem: error.message };
      }
    };
    return Promise.all(entries.map(read));
  }
}
