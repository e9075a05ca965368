import { RpcError } from '@ostler/sdk';

export const name = 'channel';

export function apply(host) {
  const released = new Map();
  let asked = [];
  const board = host.registerChannel('x-board', {
    grant: 'x-board:get',
    snapshot(uri, reader, client) {
      host.log(`snapshot ${uri} of ${client}`);
      if (uri === 'x-board://broken') throw new Error('no such board');
      if (uri === 'x-board://gone') throw new RpcError(-32008, 'this board is gone', { since: 'May' });
      const state = { uri, reader: reader ?? null, client };
      if (uri !== 'x-board://slow') return state;
      return new Promise((resolve) => released.set(client, () => resolve(state)));
    },
    authorize(uri, reader) {
      host.log(`authorize ${uri} of ${reader.id}`);
      if (uri === 'x-board://angry') throw new Error('not in the mood');
      return uri === 'x-board://open';
    },
    left: (client) => host.log(`left ${client}`),
    describe: () => ({ title: 'Board', description: 'What everybody sees.' }),
  });
  host.registerChannel('X-Plain', { grant: 'x-plain:read', snapshot: () => null });
  const attempt = ({ uri, action, to, hide, angry }) => {
    const visible = (reader, client) => {
      asked.push([client, reader?.id ?? null]);
      if (angry?.includes(client)) throw new Error(`not ${client}`);
      return !hide?.includes(client);
    };
    try {
      board.publish(uri, action, { to, visible: hide || angry ? visible : undefined });
    } catch (error) {
      return error.message;
    }
  };
  host.log(attempt({ uri: 'x-board://a', action: { type: 'x-board/early' } }));
  host.log(`${board.subscribers('x-board://a').length} subscribers`);
  const control = (verb, handle) => host.registerMethod(`x-channel/${verb}`, { grant: 'x-channel:control', handle });
  control('publish', attempt);
  control('subscribers', ({ uri }) => board.subscribers(uri));
  control('release', ({ client }) => released.get(client)());
  control('asked', () => {
    const were = asked;
    asked = [];
    return were;
  });
}
