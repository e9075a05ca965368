export const name = 'host-calls';

const ways = {
  facts: (host) => [host.path, host.paths, typeof host.version, host.hostName, host.configDir],
  yaml: (host) => {
    const value = { title: 'yes', list: [1, 'no', null], deep: { text: 'a\nb' } };
    return [host.parseYaml('a: [1, two]\n'), host.parseYaml(host.stringifyYaml(value))];
  },
  badYaml: (host) => host.parseYaml('a: [').length,
  session: async (host) => {
    const uri = await host.startSession({ owner: 'user:ada', provider: 'echo', title: 'Asked', prompt: 'hello' });
    const silent = await host.startSession({ owner: 'root:inn' });
    return [await host.sessionKept(uri), await host.sessionKept('echo:/none'), await host.sessionOwner(uri), await host.sessionOwner(silent) ?? null];
  },
  start: (host, { request }) => host.startSession(request),
  blank: (host) => host.startSession({ owner: 'user:ada', prompt: '  ' }),
  nobody: (host) => host.startSession({ owner: 'ada' }),
  secret: (host) => host.secret('host:key'),
  noSecret: (host) => host.secret('host:none'),
  malformed: (host) => host.secret('key'),
  outOfScope: (host) => host.secret('team:inn/key'),
  inScope: (host) => host.secret('team:inn/key', { team: 'inn' }),
  personal: (host) => host.secret('user:ada/key', { owner: 'user:ada' }),
  usage: async (host, { request }) => (await host.recordUsage(request)) ?? null,
  records: async (host, { notes }) => {
    const calls = [notes.list(), notes.get('z'), notes.find({ z: 1 }), notes.put({ id: 'z' }), notes.remove('z')];
    if (!calls.every((call) => call instanceof Promise)) throw new Error('a call answers no promise');
    await Promise.all(calls);
    const changes = [];
    const stop = notes.watch((change) => changes.push(`${change.type} ${change.id}`));
    await notes.put({ id: 'a', text: 'Milk' });
    await notes.put({ id: 'a', text: 'Bread' });
    while (changes.length < 2) await new Promise((resolve) => setTimeout(resolve, 1));
    stop();
    await notes.put({ id: 'b', text: 'Bread' });
    const bad = await notes.put({ id: 'Not a slug' }).catch((error) => error.message);
    return [
      await notes.get('a'), await notes.get('none') ?? null, (await notes.list()).length,
      (await notes.find({ text: 'Bread' })).length, await notes.remove('b'), await notes.remove('b'), changes, bad,
    ];
  },
  copies: async (host, { notes }) => {
    const quietly = (change) => {
      try {
        change();
      } catch {
        // Frozen: that is one way to be nobody else's.
      }
    };
    const given = { id: 'a', text: 'Milk', deep: { list: [1] } };
    await notes.put(given);
    given.deep.list.push(2);
    const got = await notes.get('a');
    quietly(() => got.deep.list.push(3));
    const [listed] = await notes.list();
    quietly(() => { listed.text = 'gone'; });
    const [found] = await notes.find({ text: 'Milk' });
    quietly(() => { found.deep = null; });
    quietly(() => host.paths.push('/mine'));
    return [await notes.get('a'), host.paths];
  },
  badCollection: (host) => host.records('Not a slug').list(),
  early: (host, { early }) => early,
  peer: async (host) => {
    const peer = host.connect();
    const heard = [];
    const over = new Promise((resolve) => {
      peer.onMessage(({ method, params }) => {
        heard.push(params.action?.type ?? method);
        if (params.action?.type === 'chat/turnComplete') resolve();
      });
    });
    await peer.request('initialize', { channel: 'ahp-root://', clientId: 'peer', protocolVersions: ['1.0.0', '0.9.0'] });
    await peer.request('createSession', { channel: 'echo:/peer', provider: 'echo' });
    const { items } = await peer.request('listSessions', {});
    const { snapshot } = await peer.request('subscribe', { channel: 'echo:/peer' });
    const [{ resource }] = snapshot.state.chats;
    await peer.request('subscribe', { channel: resource });
    const action = { type: 'chat/turnStarted', turnId: 't', message: { text: 'hi' } };
    peer.notify('dispatchAction', { channel: resource, clientSeq: 1, action });
    await over;
    const refused = await peer.request('createSession', { channel: 'echo:/peer' }).catch((error) => error.code);
    peer.close();
    const closed = await peer.request('listSessions', {}).catch((error) => error.message);
    return [items.length, heard.includes('chat/delta'), refused, closed];
  },
};

export function apply(host) {
  let tooEarly;
  try {
    host.connect();
  } catch (error) {
    tooEarly = error.message;
  }
  host.log(tooEarly);
  const notes = host.records('notes', { body: 'text' });
  const early = notes.list().then((list) => list.length);
  host.problem('one note could not be read');
  host.registerTool({
    definition: { name: 'ask' },
    run: async ({ way, request }) => {
      try {
        return { answer: await ways[way](host, { notes, early, request }) };
      } catch (error) {
        return { threw: error.message };
      }
    },
  });
}
