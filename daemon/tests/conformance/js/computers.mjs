export const name = 'computers';

class Session {
  #start;

  constructor(start) {
    this.#start = start;
  }

  async begin(turnId, text) {
    const { computer, emit } = this.#start;
    const content = computer === undefined ? 'this host' : JSON.stringify([
      computer.uri,
      await computer.how({ program: 'agent', args: ['-x'], env: { A: 'b' } }),
      (await computer.place(text)) ?? null,
    ]);
    emit('chat', { type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: turnId, content } });
    emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
  }

  cancel() {}
  close() {}
}

function agent(provider, needs, host) {
  return {
    provider,
    displayName: provider,
    schema: () => ({ properties: { lame: { type: 'boolean' } } }),
    defaults: () => ({}),
    create(start) {
      if (start.settings.lame) throw new Error('no legs');
      return new Session(start);
    },
    machine: needs && (() => {
      host.log(`${provider} is asked`);
      return needs;
    }),
  };
}

export function apply(host, { needs = {}, more = {}, profiles = {} }) {
  const made = [{ id: 'barn', title: 'Barn', running: true, workdir: '/w', mounts: [{ source: '/srv', target: '/work' }] },
    { id: 'cold', running: false }, { id: 'theirs', running: true, agents: ['other'] }];
  host.registerAgent(agent('walker', needs, host));
  host.registerAgent(agent('rider', more, host));
  host.registerAgent(agent('sitter', undefined, host));
  host.registerTool({
    definition: { name: 'start', inputSchema: { type: 'object' } },
    run: (config) => host.startSession({ owner: 'root:localhost', provider: 'walker', config }),
  });
  host.registerComputers({
    how(computer, { program, args, cwd, env }) {
      return { program: 'enter', args: [computer, cwd ?? '-', program, ...args], env };
    },
    list: () => made,
    profiles: () => profiles,
    make(request) {
      host.log(`make ${JSON.stringify(request)}`);
      if (request.profile === 'broken') throw new Error('no room');
      made.push({ id: 'm1', running: true });
      return 'computer://m1';
    },
    remove: (computer) => host.log(`remove ${computer}`),
    left: (computer, session) => host.log(`left ${computer} ${session}`),
    close: () => host.log('closed'),
  });
}
