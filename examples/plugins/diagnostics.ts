// What a host tells those who look after it: how many turns it has run, every few seconds, and where it runs.

import { hostname } from 'node:os';
import type { Diagnostics, JsonObject, PluginHost } from '@ostler/sdk';

export const title = 'Turns, counted';
export const defaults = { seconds: 10 };
export const optionsSchema = {
    type: 'object',
    properties: { seconds: { type: 'number', description: 'How often the count is told.' } },
};

class Counted implements Diagnostics {
    readonly #seconds: number;
    turns = 0;

    constructor(seconds: number) {
        this.#seconds = seconds;
    }

    metrics(told: (payload: JsonObject) => Promise<void>): () => void {
        const tell = () => {
            const point = { asInt: String(this.turns), timeUnixNano: `${Date.now()}000000` };
            const sum = { isMonotonic: true, aggregationTemporality: 2, dataPoints: [point] };
            void told({ resourceMetrics: [{ scopeMetrics: [{ metrics: [{ name: 'turns', sum }] }] }] });
        };
        tell();
        const timer = setInterval(tell, this.#seconds * 1000);
        return () => clearInterval(timer);
    }

    network(): JsonObject {
        return { hostname: hostname() };
    }
}

export function apply(host: PluginHost, options: { seconds: number }): void {
    const counted = new Counted(options.seconds);
    host.on('turn_end', () => {
        counted.turns += 1;
    });
    host.registerDiagnostics(counted, 'replace');
}
