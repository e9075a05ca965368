// A plugin that is asked for much: what the daemon loads and what Node imports are this same file.

export const title = 'Busy';

export function apply(host) {
  host.registerTool({
    definition: {
      name: 'stamp',
      description: 'Stamps a number.',
      inputSchema: { type: 'object', properties: { n: { type: 'number' } } },
    },
    effects: { reads: true },
    async run({ n }) {
      return `stamped ${n + 1}`;
    },
  });

  host.registerRoute(async (request) => {
    const { pathname } = new URL(request.url);
    return Response.json({ path: pathname, method: request.method });
  });

  const board = host.registerChannel('x-busy', {
    grant: 'busy:read',
    snapshot: () => ({ words: 0 }),
  });
  // Everybody but one client may see each word: somebody has to be asked about.
  const visible = (reader, client) => client !== 'nobody';
  host.registerMethod('x-busy/say', {
    grant: 'busy:say',
    handle({ words }) {
      for (let at = 0; at < words; at++) {
        board.publish('x-busy://board', { type: 'x-busy/delta', content: `word ${at} ` }, { visible });
      }
      board.publish('x-busy://board', { type: 'x-busy/turnComplete' }, { visible });
      return { said: words };
    },
  });
}
