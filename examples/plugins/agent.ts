// A backend: it answers each message with what it heard, word by word, and stops when it is told to.
//
// { "plugins": [{ "name": "./agent.ts" }] }, then a client names the provider `parrot`.

import { setTimeout as wait } from 'node:timers/promises';
import type { AgentSession, Frozen, PluginHost, Start } from '@ostler/sdk';

class Conversation implements AgentSession {
    readonly #start: Frozen<Start>;
    readonly #running = new Map<string, AbortController>();

    constructor(start: Frozen<Start>) {
        this.#start = start;
    }

    async begin(turnId: string, text: string): Promise<void> {
        const { emit, settings } = this.#start;
        const stop = new AbortController();
        this.#running.set(turnId, stop);
        const begun = performance.now();
        const duration = () => Math.round(performance.now() - begun);
        emit('chat', { type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: 'said', content: '' } });
        try {
            for (const word of text.split(/(?<=\s)/)) {
                await wait(Number(settings.delayMs), undefined, { signal: stop.signal });
                emit('chat', { type: 'chat/delta', turnId, partId: 'said', content: word });
            }
            emit('chat', { type: 'chat/turnComplete', turnId, duration: duration() });
        } catch {
            emit('chat', { type: 'chat/turnCancelled', turnId, duration: duration() });
        } finally {
            this.#running.delete(turnId);
        }
    }

    cancel(turnId: string): void {
        this.#running.get(turnId)?.abort();
    }

    close(): void {
        for (const stop of this.#running.values()) stop.abort();
    }
}

export function apply(host: PluginHost): void {
    host.registerAgent({
        provider: 'parrot',
        displayName: 'Parrot',
        description: 'Says what it hears.',
        schema: () => ({
            type: 'object',
            properties: { delayMs: { type: 'integer', title: 'Pause', description: 'Between words, in milliseconds.' } },
        }),
        defaults: () => ({ delayMs: 0 }),
        create: (start) => new Conversation(start),
    });
}
