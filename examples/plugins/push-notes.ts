// A plugin in TypeScript: it gives every session's model a tool that sums up a push, and writes a line to the
// daemon's log whenever a turn ends.
//
// Name it in the configuration: { "plugins": [{ "name": "./push-notes.ts" }] }

import type { PluginHost } from '@ostler/sdk';

export const name = 'push-notes';
export const title = 'Push notes';

export const optionsSchema = {
    type: 'object',
    properties: {
        most: { type: 'integer', minimum: 1, description: 'How many commits are named.' },
    },
};

export const defaults = { most: 3 };

interface Push {
    ref: string;
    repository: string;
    commits: { id: string; message: string; author?: { name?: string } }[];
}

/** `refs/heads/main` is `main`. */
function branch(ref: string): string {
    return ref.replace(/^refs\/(heads|tags)\//, '');
}

/** The first line of a commit's message, with its short id. */
function line(commit: Push['commits'][number]): string {
    const [subject] = commit.message.split('\n');
    return `- ${subject} (${commit.id.slice(0, 7)})`;
}

export function apply(host: PluginHost, options: { most: number }): void {
    host.registerTool({
        definition: {
            name: 'push_notes',
            description: 'Summarizes a push: its branch and its commits.',
            inputSchema: {
                type: 'object',
                properties: {
                    ref: { type: 'string' },
                    repository: { type: 'string' },
                    commits: { type: 'array', items: { type: 'object' } },
                },
                required: ['ref', 'repository', 'commits'],
            },
        },
        effects: { reads: true },
        async run(input: Push): Promise<string> {
            const { ref, repository, commits } = input;
            const named = commits.slice(0, options.most).map(line);
            const more = commits.length - named.length;
            return [
                `${commits.length} new on ${branch(ref)} of ${repository}:`,
                ...named,
                ...(more > 0 ? [`and ${more} more`] : []),
            ].join('\n');
        },
    });

    host.on('turn_end', (event, ctx) => {
        ctx.log(`turn ${event.turn} ended: ${event.status}`);
    });
}
