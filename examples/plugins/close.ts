// What is done at the end: each message people send is gathered, and written to a file when the host closes.

import { appendFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { PluginHost } from '@ostler/sdk';

export function apply(host: PluginHost): void {
    const said: string[] = [];
    host.on('message', ({ session, text }) => {
        said.push(JSON.stringify({ session, text }));
    });
    host.registerClose(async () => {
        if (said.length > 0) await appendFile(join(host.configDir, 'said.jsonl'), `${said.join('\n')}\n`);
    });
}
