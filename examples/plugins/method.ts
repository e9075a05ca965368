// A command: a client sends `x-feedback/send` with a text, and it is kept as a record. Guests may send even without the
// grant `x-feedback:send`.

import { RpcError } from '@ostler/sdk';
import type { PluginHost } from '@ostler/sdk';

const INVALID_PARAMS = -32602;

export function apply(host: PluginHost): void {
    const feedback = host.records('feedback', { body: 'text' });
    let sent = 0;

    host.registerMethod('x-feedback/send', {
        grant: 'x-feedback:send',
        authorize: (params, reader) => reader.roles.includes('guest'),
        async handle({ text }, reader, client, owner) {
            if (typeof text !== 'string' || text.trim() === '') {
                throw new RpcError(INVALID_PARAMS, 'text has to say something', { field: 'text' });
            }
            sent += 1;
            const id = `f${Date.now().toString(36)}-${sent}`;
            await feedback.put({ id, from: owner ?? client, text });
            return { id };
        },
        describe: () => ({ title: 'Send feedback', description: 'Stores a text for the operator of this host.' }),
    });
}
