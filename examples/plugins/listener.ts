// Listeners: they are told what happened and change nothing. This one says in the log how long turns take, and in the
// host's announcement that it does.

import type { PluginHost } from '@ostler/sdk';

export function apply(host: PluginHost): void {
    const begun = new Map<string, number>();
    host.on('turn_start', ({ turn }) => {
        begun.set(turn, performance.now());
    });
    host.on('turn_end', ({ session, turn, status }, { log }) => {
        const took = performance.now() - (begun.get(turn) ?? performance.now());
        begun.delete(turn);
        log(`${session}: turn ${turn} ended ${status} after ${took.toFixed(0)} ms`);
    });
    host.on('listening', ({ port }, { say }) => say(`turns are timed, port ${port}`));
}
