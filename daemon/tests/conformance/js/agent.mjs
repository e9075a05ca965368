export const name = 'agent';

class Session {
  #host;
  #start;
  #waiting = new Map();

  constructor(host, start) {
    this.#host = host;
    this.#start = start;
  }

  #say(turnId, content) {
    this.#start.emit('chat', { type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: turnId, content } });
  }

  #end(turnId) {
    this.#start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
  }

  async begin(turnId, text) {
    const { emit, settings, tools } = this.#start;
    switch (text) {
      case 'wait':
        return;
      case 'throw':
        throw new Error('it will not');
      case 'tool': {
        const double = tools.find((tool) => tool.definition.name === 'double');
        this.#say(turnId, `${await double.run({ n: 21 }, { turnId, toolCallId: 'c' })} ${double.effects.reads}`);
        break;
      }
      case 'start':
        this.#say(turnId, JSON.stringify([
          this.#start.uri, this.#start.chatUri, this.#start.workingDirectory,
          'mcpServers' in this.#start ? this.#start.mcpServers : null, 'toolsServer' in this.#start,
          this.#start.env,
        ]));
        break;
      case 'misplaced':
        emit('chat', { type: 'session/titleChanged', title: 'x' });
        break;
      case 'approve': {
        const call = { turnId, toolCallId: `${turnId}-call` };
        const options = [
          { id: 'once', label: 'Once', kind: 'approve', group: 1 },
          { id: 'never', label: 'Never', kind: 'deny', group: 2 },
        ];
        const about = { toolName: 'rm', displayName: 'Remove' };
        const shown = { invocationMessage: 'Removing', toolInput: '{}', options };
        emit('chat', { type: 'chat/toolCallStart', ...call, ...about });
        emit('chat', { type: 'chat/toolCallReady', ...call, ...shown });
        emit('session', { type: 'session/inputNeededSet', request: {
          kind: 'toolConfirmation', id: call.toolCallId, chat: this.#start.chatUri, turnId,
          toolCall: { status: 'pending-confirmation', toolCallId: call.toolCallId, ...about, ...shown },
        } });
        this.#waiting.set(call.toolCallId, turnId);
        return;
      }
      default: {
        if (text.startsWith('read ')) {
          const said = await this.#start.read(text.slice('read '.length)).then(
            ({ data, encoding, contentType }) => [data, encoding ?? 'utf-8', contentType ?? null],
            (error) => error.message,
          );
          this.#say(turnId, JSON.stringify(said));
          break;
        }
        this.#say(turnId, settings.prefix);
        for (const word of text.split(/(?<= )/)) {
          await undefined;
          emit('chat', { type: 'chat/delta', turnId, partId: turnId, content: word });
        }
      }
    }
    this.#end(turnId);
  }

  confirm(toolCallId, approved, optionId) {
    const turnId = this.#waiting.get(toolCallId);
    const result = { success: approved, pastTenseMessage: 'Removed' };
    this.#start.emit('chat', { type: 'chat/toolCallComplete', turnId, toolCallId, result });
    this.#say(turnId, `${approved} ${optionId ?? 'plain'}`);
    this.#end(turnId);
  }

  authenticated(resource, token) {
    this.#host.log(`${this.#start.uri} ${resource} ${token}`);
  }

  cancel(turnId) {
    this.#host.log(`cancel ${turnId}`);
  }

  async close(removing) {
    this.#host.log(`close ${removing ?? 'kept'}`);
  }
}

export function apply(host) {
  host.registerTool({
    definition: { name: 'double', description: 'Twice as much.', inputSchema: { type: 'object' } },
    effects: { reads: true },
    run: ({ n }) => n * 2,
  });
  host.registerAgent({
    provider: 'parrot',
    displayName: 'Parrot',
    description: 'Says what it hears.',
    schema: () => ({ type: 'object', properties: { prefix: { type: 'string', title: 'Prefix' } } }),
    defaults: () => ({ prefix: 'heard: ' }),
    protectedResources: [{ resource: 'https://seed.example', resource_name: 'Seed', required: false }],
    probe: () => ({ models: [{ id: 'm', name: 'M', maxContextWindow: 1000 }], commands: [] }),
    create: (start) => new Session(host, start),
  });
}
