export const name = 'tools-server';

export function apply(host) {
  host.registerTool({
    definition: { name: 'double', description: 'Twice as much.', inputSchema: { type: 'object', required: ['n'] } },
    effects: { writes: false, network: true },
    run: ({ n }) => (n === undefined ? undefined : n * 2),
  });
  host.registerTool({
    definition: { name: 'fails' },
    run: () => {
      throw new Error('it has no hands');
    },
  });
  host.registerTool({
    definition: { name: 'where', outputSchema: { type: 'object' } },
    run: async (input, at) => ({ session: at.session, chat: at.chat, turn: await at.turn() }),
  });
  host.registerAgent({
    provider: 'server',
    displayName: 'Server',
    chats: {},
    schema: () => ({ type: 'object', properties: {} }),
    defaults: () => ({}),
    create: (start) => new Session(start),
  });
}

class Session {
  waiting = new Map();
  calls = 0;

  constructor(start) {
    this.start = start;
  }

  emit(type, more) {
    this.start.emit('chat', { type, turnId: this.turn, ...more });
  }

  end(text) {
    this.emit('chat/responsePart', { part: { kind: 'markdown', id: this.turn, content: text } });
    this.emit('chat/turnComplete', { duration: 0 });
  }

  async begin(turn, text) {
    this.turn = turn;
    const [word, way] = text.split(' ');
    if (word === 'hold') return this.emit('chat/activityChanged', { activity: 'holding' });
    if (word === 'close') {
      this.server.close();
      return this.end('closed');
    }
    const runClient = (name, input) => this.runClient(name, input);
    this.server = await this.start.toolsServer?.(way && { toolsChanged: way, runClient });
    this.end(JSON.stringify(this.server ? [this.server.url, this.server.token] : typeof this.start.toolsServer));
  }

  /** Has the client a tool is of run it, and answers what the client said became of it. */
  runClient(name, input) {
    const [clientId] = name.split('__');
    const toolCallId = `call-${++this.calls}`;
    const contributor = { kind: 'client', clientId };
    this.emit('chat/toolCallStart', { toolCallId, toolName: name, displayName: name, contributor });
    this.emit('chat/toolCallReady', {
      toolCallId, invocationMessage: name, toolInput: JSON.stringify(input), confirmed: 'not-needed',
    });
    return new Promise((resolve) => this.waiting.set(toolCallId, resolve));
  }

  completeToolCall(toolCallId, clientId, result) {
    this.emit('chat/toolCallComplete', { toolCallId, result });
    this.waiting.get(toolCallId)(result);
    return true;
  }

  cancel() {}

  close() {}
}
