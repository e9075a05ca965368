// A channel: clients that subscribe to `x-activity://turns` see which turns run now, and hear when one starts or ends. A
// person sees those of their own sessions; on a host that knows no people everybody sees all.
//
// A role that may watch holds the grant `x-activity:get`.

import type { PluginHost, Reader } from '@ostler/sdk';

const TURNS = 'x-activity://turns';

interface Turn {
    session: string;
    turn: string;
    owner?: string;
}

export function apply(host: PluginHost): void {
    const running = new Map<string, Turn>();
    const sees = (reader: Reader | undefined, turn: Turn) => reader === undefined || reader.id === turn.owner;

    const activity = host.registerChannel('x-activity', {
        grant: 'x-activity:get',
        snapshot: (uri, reader) => ({ turns: [...running.values()].filter((turn) => sees(reader, turn)) }),
        left: (client) => host.log(`${client} looks no longer`),
        describe: () => ({ title: 'Activity', description: 'The turns that run now.' }),
    });

    const say = (what: 'started' | 'ended', turn: Turn) =>
        activity.publish(TURNS, { type: `x-activity/${what}`, turn }, { visible: (reader) => sees(reader, turn) });

    host.on('turn_start', async ({ session, turn }) => {
        const started = { session, turn, owner: await host.sessionOwner(session) };
        running.set(turn, started);
        say('started', started);
    });
    host.on('turn_end', ({ turn }) => {
        const ended = running.get(turn);
        if (ended === undefined) return;
        running.delete(turn);
        say('ended', ended);
    });
}
