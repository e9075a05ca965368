export const name = 'worker';

/** A conversation whose turns each have one worker dig. */
class Lone {
  constructor(host, start) {
    this.host = host;
    this.start = start;
  }

  emit(type, more) {
    this.start.emit('chat', { type, turnId: this.turn, ...more });
  }

  inWorker(type, more) {
    this.worker.emit({ type, turnId: this.worker.turnId, ...more });
  }

  get call() {
    return `${this.turn}-dig`;
  }

  async begin(turn) {
    this.turn = turn;
    this.emit('chat/toolCallStart', { toolCallId: this.call, toolName: 'dig', displayName: 'Dig' });
    this.emit('chat/toolCallReady', { toolCallId: this.call, invocationMessage: 'Digging', confirmed: 'not-needed' });
    this.worker = await this.start.subagent(this.call, {
      title: 'Digger', agentName: 'mole', description: 'Digs.', prompt: 'Dig.',
    });
    const options = [{ id: 'once', label: 'Once', kind: 'approve', group: 0 }];
    this.inWorker('chat/toolCallStart', { toolCallId: 'rm', toolName: 'rm', displayName: 'Remove' });
    this.inWorker('chat/toolCallReady', { toolCallId: 'rm', invocationMessage: 'Removing', options });
    this.inWorker('chat/responsePart', { part: { kind: 'inputRequest', request: { id: 'q', message: 'How deep?' } } });
    this.host.log(JSON.stringify([this.worker.uri, this.worker.turnId]));
  }

  confirm(toolCallId, approved, optionId) {
    this.host.log(`confirm ${toolCallId} ${approved} ${optionId ?? ''}`);
    this.inWorker('chat/toolCallComplete', { toolCallId, result: { success: true, pastTenseMessage: 'Removed' } });
  }

  answer(requestId, accepted, answers, response) {
    this.host.log(`answer ${requestId} ${accepted} ${response}`);
    this.inWorker('chat/responsePart', { part: { kind: 'markdown', id: 'dug', content: 'Deep enough.' } });
    this.end('complete');
    return true;
  }

  end(status) {
    this.worker.end(status);
    const result = { success: true, pastTenseMessage: 'Dug' };
    this.emit('chat/toolCallComplete', { toolCallId: this.call, result });
    this.emit('chat/turnComplete', { duration: 0 });
  }

  cancel(turnId) {
    this.host.log(`cancel ${turnId}`);
  }

  close() {}
}

class Boss extends Lone {
  stopWorker(toolCallId) {
    this.host.log(`stop ${toolCallId}`);
    this.end('cancelled');
  }
}

export function apply(host) {
  for (const [provider, Session] of [['boss', Boss], ['lone', Lone]]) {
    host.registerAgent({
      provider,
      displayName: provider,
      schema: () => ({ properties: {} }),
      defaults: () => ({}),
      create: (start) => new Session(host, start),
    });
  }
}
