// Settings beside those of the backend: how sure a session has to be, and which ticket it is about. The second is a
// picker: a client shows its first rows and asks again as a person types. Tickets are records, as `tickets/<id>.md`.

import type { PluginHost } from '@ostler/sdk';

export function apply(host: PluginHost): void {
    const tickets = host.records('tickets', { body: 'text' });

    host.registerSessionConfig('care', {
        type: 'string',
        title: 'Care',
        description: 'How sure the agent has to be before it acts.',
        enum: ['quick', 'careful'],
        default: 'careful',
        sessionMutable: true,
    });

    host.registerSessionConfig('ticket', { type: 'string', title: 'Ticket' }, async ({ query, care }) => {
        const words = query.toLowerCase();
        const open = await tickets.find({ state: 'open' });
        return open
            .map(({ id, title, risk }) => ({ value: String(id), label: String(title ?? id), risk: String(risk ?? 'unknown') }))
            .filter(({ risk }) => care !== 'quick' || risk !== 'high')
            .filter(({ value, label }) => value.includes(words) || label.toLowerCase().includes(words))
            .slice(0, 20)
            .map(({ value, label, risk }) => ({ value, label, description: `${risk} risk` }));
    });
}
