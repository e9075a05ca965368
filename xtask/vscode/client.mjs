/** A second client of the host, which says what the host has. */

export class Client {
  #socket;
  #lastId = 0;
  #lastSeq = 0;
  #waiting = new Map();

  /** Connects and initializes. */
  static async connect(port, token) {
    const client = new Client();
    client.#socket = new WebSocket(`ws://127.0.0.1:${port}/?tkn=${token}`);
    await new Promise((resolve, reject) => {
      client.#socket.addEventListener('open', resolve);
      client.#socket.addEventListener('error', () => reject(new Error('the host does not answer')));
      setTimeout(() => reject(new Error('the host does not answer')), 5000).unref();
    });
    client.#socket.addEventListener('message', ({ data }) => client.#receive(JSON.parse(data)));
    client.#socket.addEventListener('close', () => client.#lose());
    await client.request('initialize', {
      channel: 'ahp-root://',
      clientId: 'check',
      protocolVersions: ['1.0.0'],
    });
    return client;
  }

  request(method, params) {
    const id = ++this.#lastId;
    this.#socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    return new Promise((resolve, reject) => this.#waiting.set(id, { method, resolve, reject }));
  }

  dispatch(channel, action) {
    const params = { channel, clientSeq: ++this.#lastSeq, action };
    this.#socket.send(JSON.stringify({ jsonrpc: '2.0', method: 'dispatchAction', params }));
  }

  /** The state of a channel as it is now. */
  async state(channel) {
    const { snapshot } = await this.request('subscribe', { channel });
    this.#socket.send(JSON.stringify({ jsonrpc: '2.0', method: 'unsubscribe', params: { channel } }));
    return snapshot.state;
  }

  async sessions() {
    const { items } = await this.request('listSessions', { channel: 'ahp-root://' });
    return items;
  }

  /** The chat of a session that is shown first. */
  async chat(session) {
    const { defaultChat } = await this.state(session);
    return this.state(defaultChat);
  }

  close() {
    this.#socket.close();
  }

  #receive({ id, result, error }) {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error) {
      waiting?.reject(new Error(`${waiting.method}: ${error.message}`));
    } else {
      waiting?.resolve(result);
    }
  }

  #lose() {
    for (const { method, reject } of this.#waiting.values()) {
      reject(new Error(`${method}: the connection is closed`));
    }
    this.#waiting.clear();
  }
}
