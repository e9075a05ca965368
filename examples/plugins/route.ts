// A route: `GET /plugins/route/…` on the host's own port, for callers who bring a token. The host checks nothing but the
// `Host` header, so a route authenticates its caller itself, before it reads a body.
//
// { "plugins": [{ "name": "./route.ts", "options": { "token": { "$secret": "host:status" } } }] }

import { timingSafeEqual } from 'node:crypto';
import type { PluginHost } from '@ostler/sdk';

export const optionsSchema = {
    type: 'object',
    properties: { token: { type: 'string', minLength: 1, writeOnly: true, description: 'What a caller has to show.' } },
    required: ['token'],
};

function bears(request: Request, token: string): boolean {
    const [given, wanted] = [Buffer.from(request.headers.get('authorization') ?? ''), Buffer.from(`Bearer ${token}`)];
    return given.length === wanted.length && timingSafeEqual(given, wanted);
}

export function apply(host: PluginHost, { token }: { token: string }): void {
    const since = Date.now();
    host.registerRoute(async (request) => {
        if (!bears(request, token)) return Response.json({ message: 'a token is needed' }, { status: 401 });
        const { pathname } = new URL(request.url);
        switch (`${request.method} ${pathname.replace('/plugins/route', '')}`) {
            case 'GET /status':
                return Response.json({ host: host.hostName, version: host.version, upMs: Date.now() - since });
            case 'POST /say':
                host.log((await request.text()).slice(0, 200));
                return new Response(null, { status: 204 });
            default:
                return Response.json({ message: `nothing at ${request.method} ${pathname}` }, { status: 404 });
        }
    });
}
