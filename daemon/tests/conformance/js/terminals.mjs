export const name = 'terminals';

function terminal(host, request, events) {
  const { terminal: uri, cwd, cols, rows, shell = 'none', command = 'shell', args = [], env } = request;
  if (cwd === '/nowhere') throw new Error('no luck');
  events.data(`${cwd} ${cols}x${rows} ${shell} ${[command, ...args].join('+')} ${Object.keys(env).length}\n`);
  if (command === 'done') events.exited(3);
  return {
    title: 'parrot',
    isPty: cwd === '/pty',
    async input(data) {
      if (data === 'ready') await events.ready();
      const [word, said] = [data.slice(0, data.indexOf(' ')), data.slice(data.indexOf(' ') + 1)];
      if (data === 'throw') throw new Error('not that');
      if (word === 'exit') return events.exited(Number(said));
      if (word === 'title') return events.title(said);
      if (word === 'cd') return events.cwd(said);
      if (word === 'flood') return events.data('x'.repeat(Number(said)));
      return events.data(data);
    },
    resize: (width, height) => events.data(`now ${width}x${height}\n`),
    kill(signal = 'SIGTERM') {
      events.data(`${signal}\n`);
      events.exited();
      events.data('too late');
    },
    dispose: () => host.log(`disposed ${uri}`),
  };
}

class Session {
  #start;

  constructor(start) {
    this.#start = start;
  }

  #end(turnId, content) {
    const part = { kind: 'markdown', id: turnId, content };
    this.#start.emit('chat', { type: 'chat/responsePart', turnId, part });
    this.#start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
  }

  async begin(turnId, text) {
    const { terminals } = this.#start;
    if (!terminals) return this.#end(turnId, 'no terminals');
    const open = await terminals.open({ command: text, args: ['-l'], env: { A: 'b' }, name: 'Mine', turnId, toolCallId: 'c' });
    await open.write('typed');
    await open.resize(100, 30);
    if (text === 'kill') await open.kill();
    else await open.write('exit 7');
    const code = await open.wait();
    this.#end(turnId, JSON.stringify([open.uri, code ?? null, await open.output()]));
    if (text === 'release') await open.release();
  }

  async ran(turnId, command, run) {
    const open = await run('call');
    const code = await open.wait();
    this.#end(turnId, JSON.stringify([command, code, await open.output()]));
  }

  cancel() {}
  close() {}
}

export function apply(host) {
  host.registerTerminals({ create: (request, events) => terminal(host, request, events), close: () => host.log('store closed') });
  host.registerAgent({
    provider: 'runner', displayName: 'Runner', schema: () => ({ properties: {} }), defaults: () => ({}),
    create: (start) => new Session(start),
  });
}
