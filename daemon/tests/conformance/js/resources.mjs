import { RpcError } from '@ostler/sdk';

export const name = 'resources';

/** Files in memory; with `writes`, ones that are written to. */
export function apply(host, { writes, replace }) {
  const files = new Map([['file:///inn/menu', 'Stew']]);
  const held = (uri) => {
    if (!files.has(uri)) throw new RpcError(-32008, `there is no ${uri}`);
    return files.get(uri);
  };
  const store = {
    list: (uri) => [...files.keys()]
      .filter((file) => file.startsWith(`${uri}/`))
      .map((file) => ({ name: file.slice(uri.length + 1), type: 'file' })),
    read: (uri, reader) => ({ data: uri === 'file:///who' ? JSON.stringify(reader?.id ?? null) : held(uri) }),
    resolve: (uri, reader, { followSymlinks }) => {
      if (uri === 'file:///link') return followSymlinks ? { uri: 'file:///inn/menu', type: 'file' } : { type: 'symlink' };
      return { type: 'file', size: held(uri).length };
    },
    complete: (directory, typed) => [{ uri: `${directory}/${typed}nu`, path: `${typed}nu` }],
  };
  const half = {
    write: (uri, { data }, { client }) => {
      host.log(`${client} writes ${uri}`);
      files.set(uri, data);
    },
    delete: (uri) => { held(uri); files.delete(uri); },
    request: (uri, writer, { write }) => { if (write) throw new RpcError(-32009, 'ask the cook'); },
    watch: async (uri, recursive, told) => { await told([{ uri: `${uri}/menu`, type: 'updated' }]); },
  };
  host.registerResources(writes ? { ...store, ...half } : store, replace ? 'replace' : undefined);
}
