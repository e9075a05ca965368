export const name = 'route';

export function apply(host) {
  host.registerRoute(async (request) => {
    const url = new URL(request.url);
    switch (url.pathname.split('/').at(-1)) {
      case 'throw':
        throw new Error('the reason');
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
