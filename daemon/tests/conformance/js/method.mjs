import { RpcError } from '@ostler/sdk';

export const name = 'method';

export function apply(host) {
  host.registerMethod('x-method/echo', {
    grant: 'x-method:call',
    authorize(params, reader) {
      host.log(`authorize ${params.word} of ${reader.id}`);
      if (params.word === 'angry') throw new Error('not in the mood');
      return params.word === 'please';
    },
    handle: (params, reader, client, owner) => ({ params, reader: reader ?? null, client, owner: owner ?? null }),
    describe: () => ({ title: 'Echo', description: 'Says it back.' }),
  });
  host.registerMethod('x-method/fail', {
    grant: 'x-method:fail',
    async handle({ how }) {
      if (how === 'rpc') throw new RpcError(-32099, 'out of oats', { left: 0 });
      if (how === 'throw') throw new Error('it broke');
      if (how === 'never') await new Promise(() => {});
    },
    describe: () => ({}),
  });
  const order = [];
  host.registerMethod('x-method/order', {
    grant: 'x-method:call',
    handle({ word }) {
      order.push(word);
      return order;
    },
  });
}
