// An event automations wait for: a file that changed in a folder. An automation saved with the trigger type
// `folder-watch` and `config: { folder: inbox }` runs when something in that folder does.
//
// { "plugins": [{ "name": "./trigger-type.ts", "options": { "folders": { "inbox": "/srv/inbox" } } }] }

import { watch } from 'node:fs';
import type { FSWatcher } from 'node:fs';
import type { PluginHost } from '@ostler/sdk';

export const optionsSchema = {
    type: 'object',
    properties: {
        folders: { type: 'object', additionalProperties: { type: 'string' }, description: 'Folders by a name of your own.' },
    },
    required: ['folders'],
};

export function apply(host: PluginHost, { folders }: { folders: Record<string, string> }): void {
    host.registerTriggerType({
        type: 'folder-watch',
        title: 'A folder',
        description: 'Something changed in a folder.',
        events: [{ id: 'changed', title: 'A file changed' }],
        configSchema: { type: 'object', properties: { folder: { type: 'string', title: 'Folder', enum: Object.keys(folders) } } },
    });

    const watchers: FSWatcher[] = [];
    host.on('listening', (event, { log }) => {
        for (const [folder, path] of Object.entries(folders)) {
            const watcher = watch(path, (_, file) => {
                host.fireTrigger('folder-watch', 'changed', { folder, file: String(file) });
            });
            watcher.on('error', (error) => log(`${path} is watched no more: ${error.message}`));
            watchers.push(watcher);
        }
    });
    host.registerClose(() => watchers.forEach((watcher) => watcher.close()));
}
