import { RpcError } from '@ostler/sdk';

export const name = 'resource-provider';

const notes = new Map([['notes://first', 'Milk'], ['notes://second', 'Bread']]);

export function apply(host) {
  host.registerResourceProvider('notes', {
    read(uri, reader) {
      if (uri === 'notes://who') return { data: JSON.stringify(reader ?? null), contentType: 'application/json' };
      if (uri === 'notes://bytes') return { data: 'AAE=', encoding: 'base64' };
      if (!notes.has(uri)) throw new RpcError(-32008, `no note at ${uri}`, { uri });
      return { data: notes.get(uri), encoding: 'utf-8' };
    },
    list: async (uri) => [...notes.keys()].map((note) => ({ name: note.slice(uri.length), type: 'file' })),
    write(uri, content, writer) {
      host.log(`${writer.client} writes ${content.data}`);
      notes.set(uri, content.data);
    },
    describe: () => ({ title: 'Notes', description: 'What not to forget.', manifest: { type: 'object' } }),
    operations: ['archive'],
  });
}
