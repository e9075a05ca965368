// A small plugin in JavaScript: what the daemon loads and what Node imports are this same file.

import { join } from 'node:path';

export const title = 'Small';

export function apply(host) {
  host.registerTool({
    definition: {
      name: 'joined',
      description: 'Joins two parts of a path.',
      inputSchema: { type: 'object', properties: { first: { type: 'string' }, second: { type: 'string' } } },
    },
    effects: { reads: true },
    async run({ first, second }) {
      return join(first, second);
    },
  });
}
