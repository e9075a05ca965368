// A URI scheme: `menu://today` is a document clients may list, read and write. What it can do is what it has members
// for; the grants `menu:get`, `menu:list` and `menu:put` come from them.

import { RpcError } from '@ostler/sdk';
import type { PluginHost } from '@ostler/sdk';

const NOT_FOUND = -32008;
const TOO_LONG = -32602;

export function apply(host: PluginHost): void {
    const dishes = new Map([['today', 'Soup'], ['tomorrow', 'Stew']]);
    const named = (uri: string) => new URL(uri).hostname;

    host.registerResourceProvider('menu', {
        read(uri) {
            const dish = dishes.get(named(uri));
            if (dish === undefined) throw new RpcError(NOT_FOUND, `nothing is served at ${uri}`);
            return { data: dish, contentType: 'text/plain' };
        },
        list: () => [...dishes.keys()].map((name) => ({ name, type: 'file' })),
        write(uri, { data }, writer) {
            if (data.length > 200) throw new RpcError(TOO_LONG, 'a dish has at most 200 characters', { most: 200 });
            dishes.set(named(uri), data);
            host.log(`${writer.owner ?? writer.client ?? 'somebody'} changed ${uri}`);
        },
        describe: () => ({ title: 'The menu', description: 'What the inn serves.' }),
    });
}
