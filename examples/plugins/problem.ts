// Items of a file a person writes: those that cannot be used are reported and left out, and the rest of the plugin goes
// on. The start prints each as `skipped: <line>`.
//
// snippets.yaml in the configuration folder:
//   greet: Say hello to {{name}}.
//   bye: Say goodbye.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { PluginHost } from '@ostler/sdk';

export function apply(host: PluginHost): void {
    let snippets: unknown;
    try {
        snippets = host.parseYaml(readFileSync(join(host.configDir, 'snippets.yaml'), 'utf8'));
    } catch (error) {
        host.problem(`snippets.yaml could not be read: ${(error as Error).message}`);
        return;
    }
    for (const [name, text] of Object.entries(snippets ?? {})) {
        if (typeof text !== 'string') {
            host.problem(`snippet ${name} must be text`);
            continue;
        }
        host.registerTool({
            definition: { name: `snippet_${name}`, description: text },
            run: (input: Record<string, unknown>) => text.replace(/\{\{(\w+)\}\}/g, (_, key) => String(input[key] ?? '')),
        });
    }
}
