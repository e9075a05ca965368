export const name = 'route';

export function apply(host) {
  host.registerRoute(async (request) => {
    const url = new URL(request.url);
    switch (url.pathname.split('/').at(-1)) {
      case 'throw':
        throw new Error('the reason');
      case 'open': {
        const peer = host.connect();
        await peer.request('initialize', { channel: 'ahp-root://', clientId: 'route', protocolVersions: ['1.0.0'] });
        try {
          await peer.request('createSession', { channel: 'echo:/by-route' });
          return new Response('made');
        } catch ({ message }) {
          return Response.json({ message }, { status: 403 });
        }
      }
      case 'unread':
        return Response.json({ message: 'who are you?' }, { status: 401 });
      case 'made':
        return new Response('made', { status: 201, headers: { 'x-made': 'yes', location: '/there' } });
      default:
        return Response.json([
          request.method, url.protocol, url.host, url.pathname, url.searchParams.get('q'),
          request.headers.get('x-asked'), await request.text(),
        ]);
    }
  });
}
