import type { PluginHost } from '@ostler/sdk';

export const title = 'PLUGIN_NAME';

export const optionsSchema = {
    type: 'object',
    properties: { greeting: { type: 'string', description: 'Greeting before the name.' } },
};

export const defaults = { greeting: 'Hello' };

export function apply(host: PluginHost, options: { greeting: string }): void {
    host.registerTool({
        definition: {
            name: 'greet',
            description: 'Greets a person by name.',
            inputSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
        },
        run: ({ name }: { name: string }) => `${options.greeting}, ${name}!`,
    });

    host.on('turn_end', ({ turn, status }, { log }) => log(`turn ${turn} ended: ${status}`));
}
