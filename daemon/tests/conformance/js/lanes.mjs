import { existsSync } from 'node:fs';
import { join } from 'node:path';

export const name = 'lanes';

// Held, so that they could still be settled.
const held = [];
const never = () => new Promise((resolve) => held.push(resolve));
const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A backend that takes no message in, does not close, and floods its host when it is asked to. */
class Session {
  #host;
  #start;
  #cancelled = false;

  constructor(host, start) {
    this.#host = host;
    this.#start = start;
  }

  #emit(action) {
    this.#start.emit('chat', action);
  }

  async begin(turnId, text) {
    this.#cancelled = false;
    this.#emit({ type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: turnId, content: '' } });
    while (text === 'flood' && !this.#cancelled) {
      try {
        for (let at = 0; at < 1000; at += 1) this.#emit({ type: 'chat/delta', turnId, partId: turnId, content: 'neigh ' });
      } catch {
        // As many wait as may.
      }
      await later(1);
    }
    if (text === 'use') {
      this.#emit({ type: 'chat/usage', turnId, usage: { inputTokens: 5, outputTokens: 7, model: 'oats' } });
      this.#emit({ type: 'chat/turnComplete', turnId, duration: 1 });
    }
  }

  cancel(turnId) {
    this.#cancelled = true;
    this.#host.log(`cancelled ${turnId}`);
  }

  steer() {
    this.#host.log('stuck in steer');
    return never();
  }

  close() {
    this.#host.log('stuck in close');
    return never();
  }
}

const ports = {
  policies: (host, unless) =>
    host.registerPolicies({
      list: () => unless('list', [{ id: 'yes', scope: 'all', kind: 'agent', effect: 'allow' }]),
      get: () => undefined,
      put: () => {},
      remove: () => false,
    }),
  automations: (host, unless) =>
    host.registerAutomations({
      list: () => [],
      get: () => undefined,
      triggers: () => unless('triggers', []),
      create: () => unless('create', undefined),
      update: () => { throw new Error('none'); },
      remove: () => false,
      run: () => {},
      runOf: () => undefined,
      runs: () => ({ items: [] }),
    }),
  sessions: (host, unless) =>
    host.registerSessions({
      flags: () => undefined,
      setFlags: () => {},
      config: () => undefined,
      setConfig: () => {},
      artifacts: () => [],
      setArtifacts: () => {},
      pullRequests: () => ({}),
      setPullRequests: () => {},
      chatTitle: () => undefined,
      setChatTitle: () => {},
      chats: () => [],
      setChats: () => {},
      sessions: () => [],
      forget: () => {},
      session: () => unless('session', undefined),
      page: () => [],
      sessionOfChat: () => undefined,
      drafts: () => [],
      // More than there are, so that the store is asked.
      count: () => 100,
      turns: () => [],
      setTurn: () => unless('setTurn', undefined),
      dropTurns: () => {},
    }),
  usage: (host, unless) =>
    host.registerUsage({
      record: () => unless('record', undefined),
      total: () => unless('total', {}),
      pools: () => [],
      records: () => [],
    }),
  listener: (host) =>
    host.registerTool({
      definition: { name: 'hear' },
      run: async () => {
        const peer = host.connect();
        const heard = [];
        let opened;
        const ready = new Promise((resolve) => (opened = resolve));
        const all = new Promise((resolve) => {
          peer.onMessage(async ({ method, params }) => {
            const { items } = await peer.request('listSessions', {});
            await ready;
            heard.push(params.action?.type ?? method, items.length > 0);
            if (params.action?.type === 'chat/turnComplete') resolve();
          });
        });
        await peer.request('initialize', { channel: 'ahp-root://', clientId: 'peer', protocolVersions: ['1.0.0'] });
        await peer.request('subscribe', { channel: 'ahp-root://' });
        await peer.request('createSession', { channel: 'lanes:/heard', provider: 'lanes' });
        const { snapshot } = await peer.request('subscribe', { channel: 'lanes:/heard' });
        const [{ resource }] = snapshot.state.chats;
        await peer.request('subscribe', { channel: resource });
        const action = { type: 'chat/turnStarted', turnId: 't', message: { text: 'use' } };
        peer.notify('dispatchAction', { channel: resource, clientSeq: 1, action });
        const { length } = (await peer.request('listSessions', {})).items;
        opened();
        await all;
        peer.close();
        return [length > 0, heard.includes('chat/turnStarted'), heard.includes(false)];
      },
    }),
  backend: () => {},
};

export function apply(host, { port }) {
  // What never answers once there is a file that says so.
  const unless = (what, answer) => {
    if (!existsSync(join(host.configDir, 'stuck'))) return answer;
    host.log(`stuck in ${what}`);
    return never();
  };
  host.registerAgent({
    provider: 'lanes',
    displayName: 'Lanes',
    schema: () => ({ properties: {} }),
    defaults: () => ({}),
    create: (start) => new Session(host, start),
  });
  ports[port](host, unless);
}
