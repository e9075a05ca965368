// Policies in one file of the plugin's own, in place of the daemon's. Every row is checked before it is kept.
//
// { "plugins": [{ "name": "./policies.ts", "options": { "file": "policies/ours.json" } }, …] }

import { resolve } from 'node:path';
import type { PluginHost, Policies } from '@ostler/sdk';
import { checkPolicy, filePolicies } from '@ostler/sdk';

export const name = 'policies';
export const title = 'Policies in one file';
export const defaults = { file: 'policies/ours.json' };
export const optionsSchema = {
    type: 'object',
    properties: { file: { type: 'string', description: 'Where policies are kept, from the configuration folder.' } },
};

export function apply(host: PluginHost, options: { file: string }) {
    const kept = filePolicies({ file: resolve(host.configDir, options.file) });
    const policies: Policies = {
        list: async () => (await kept.list()).map((row) => ({ ...row })),
        get: async (id) => {
            const row = await kept.get(id);
            return row && { ...row };
        },
        put: async (policy) => {
            const row = checkPolicy(policy);
            await kept.put(row);
            host.log(`policy ${row.id} is kept`);
        },
        remove: (id) => kept.remove(id),
    };
    host.registerPolicies(policies, 'replace');
}
