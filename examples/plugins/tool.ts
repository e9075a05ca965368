// Two tools for every session's model: one keeps a note, one finds notes again. Notes are records, so a person may read
// and edit them as Markdown files in the configuration folder.

import type { PluginHost } from '@ostler/sdk';

const slug = (title: string) =>
    title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^[^a-z]+|-+$/g, '').slice(0, 40) || 'note';

export function apply(host: PluginHost): void {
    const notes = host.records('notes', { body: 'text' });

    host.registerTool({
        definition: {
            name: 'note_keep',
            title: 'Keep a note',
            description: 'Keeps a note under its title, in place of an earlier one of the same title.',
            inputSchema: {
                type: 'object',
                properties: { title: { type: 'string' }, text: { type: 'string' } },
                required: ['title', 'text'],
            },
        },
        effects: { writes: true },
        async run({ title, text }: { title: string; text: string }, at) {
            await notes.put({ id: slug(title), title, text, session: at.session });
            return `kept as ${slug(title)}`;
        },
    });

    host.registerTool({
        definition: {
            name: 'note_find',
            title: 'Find notes',
            description: 'Answers the notes that hold a word.',
            inputSchema: { type: 'object', properties: { word: { type: 'string' } }, required: ['word'] },
        },
        effects: { reads: true },
        async run({ word }: { word: string }) {
            const found = (await notes.list()).filter((note) => `${note.title} ${note.text}`.includes(word));
            return found.map(({ title, text }) => ({ title, text }));
        },
    });
}
